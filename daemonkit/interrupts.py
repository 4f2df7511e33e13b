"""How Ctrl-C (in commands for people, too) and a container's stop end a process until a daemon handles signals, and
that a hangup does not. And that the ends of child processes are told."""

import os
import signal
from types import FrameType
from typing import Final

# Added to the signal number: the exit status that shells and container runtimes report for such an end
_BY_SIGNAL: Final = 128


def end_on_interrupt() -> None:
    """Exit at once on SIGINT, as on SIGTERM, until a daemon handles both: a stack trace is of no use to the user.

    Call this before other packages are imported. The kernel does not deliver unhandled signals to the first process of
    a container: if it were stopped while starting, it would run on until it is killed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == 1:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def ignore_hangup() -> None:
    """Ignore SIGHUP, as `daemonkit.lifecycle` does later: a daemon outlives the terminal that it was started from, and
    a service manager's reload that comes early. A command for people should not call this."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def notice_children() -> None:
    """Do not ignore SIGCHLD, as a process does whose parent did: the kernel would forget how children ended, and
    `subprocess` would take a crash for exit code 0."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(_BY_SIGNAL + number)
