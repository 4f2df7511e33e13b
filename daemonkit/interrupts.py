"""What ends a process until a daemon takes its signals: Ctrl-C, of commands for people too, and a container's stop."""

import os
import signal
from types import FrameType
from typing import Final

_BY_SIGNAL: Final = 128  # added to its number: how shells and container runtimes tell such an end


def end_on_interrupt() -> None:
    """At once, as SIGTERM does until a daemon takes both: a stack trace tells whoever interrupts nothing.

    Call before the rooms are imported. The kernel keeps from the first process of a container what it does not handle:
    stopped while it starts, it would go on until it is killed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == 1:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(_BY_SIGNAL + number)
