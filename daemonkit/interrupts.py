"""How Ctrl-C, also in commands for people, and a container's stop end a process until a daemon handles signals."""

import os
import signal
from types import FrameType
from typing import Final

_BY_SIGNAL: Final = 128  # added to the signal's number: how shells and container runtimes report such an end


def end_on_interrupt() -> None:
    """End at once on SIGINT, as on SIGTERM, until a daemon handles both: a stack trace is of no use to the user.

    Call before other packages are imported. The kernel does not deliver unhandled signals to the first process of a
    container: stopped while it starts, it would go on until it is killed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == 1:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(_BY_SIGNAL + number)
