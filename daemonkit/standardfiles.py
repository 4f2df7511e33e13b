"""Standard input, output and error of a process that was started without some of them, or whose reader goes away.

Files opened next would get the numbers of the missing ones: log lines would be written to a socket, and a child's
standard input would replace a descriptor that the child was meant to inherit.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Final, TextIO

_STDERR: Final = 2
_EXIT_UNWRITTEN: Final = 2
_NAMES: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_missing() -> None:
    """Open the missing ones on /dev/null, also for child processes. Call this before opening anything else."""
    with contextlib.suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
    for number, (name, mode) in enumerate(_NAMES):
        # Python sets files that were missing when it started to None, and `print` would see that.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


@contextlib.contextmanager
def printing(command: str) -> Iterator[None]:
    """Run a command that prints. If the reader of its output goes away, the command ends quietly, as other programs do.

    If the output cannot be written, this prints the reason and exits with code 2. The command must handle its own
    OSErrors.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # UTF-8 as in the log, whatever the locale: printed names may contain any character.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Killed by the signal, the interpreter does not try to flush again.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
        raise
    except OSError as error:
        _lead_nowhere(sys.stdout)
        complain(f"{command}: the answer cannot be written: {error.strerror or error}\n")
        sys.exit(_EXIT_UNWRITTEN)


def complain(text: str) -> None:
    """Write an error message to standard error. If that fails, the exit code must suffice."""
    try:
        sys.stderr.write(text)
    except OSError:
        _lead_nowhere(sys.stderr)


def _lead_nowhere(file: TextIO) -> None:
    """Send further output to /dev/null: on exit, the interpreter flushes again, and a failure changes the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
