"""Standard input, output and error of a process that was started without some of them, or whose reader leaves.

What is opened next gets the numbers of missing ones: a socket would be where log lines are written, and the standard
input of a child would take the place of what the child was to inherit.
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
    """Open those that are missing on /dev/null, also for child processes. Call before anything else is opened."""
    with contextlib.suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
    for number, (name, mode) in enumerate(_NAMES):
        # Python has left out what was missing when it began: whoever prints would find None.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


@contextlib.contextmanager
def printing(command: str) -> Iterator[None]:
    """For a command: once whoever reads what it prints has seen enough, it ends quietly, as other programs do. Where it
    cannot be written, it says so and ends with exit code 2; an OSError of the command's own must not come to here.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As the log is, whatever the locale says: who prints names cannot choose their characters.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # By the signal there is no last try at the exit.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
        raise
    except OSError as error:
        _lead_nowhere(sys.stdout)
        try:
            sys.stderr.write(f"{command}: the answer cannot be written: {error.strerror or error}\n")
        except OSError:  # both go to the same file: who reads nothing shall have the exit code
            _lead_nowhere(sys.stderr)
        sys.exit(_EXIT_UNWRITTEN)


def _lead_nowhere(file: TextIO) -> None:
    """The interpreter flushes again at its end, and takes another exit code where that fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
