"""Standard input, output and error of a process that was started without some of them.

What is opened next gets their numbers: a socket would be where log lines are written, and the standard input of a child
would take the place of what the child was to inherit.
"""

import contextlib
import os
import sys
from typing import Final

_STDERR: Final = 2
_NAMES: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_missing() -> None:
    """Lead them nowhere, also for children. Call before anything else is opened."""
    with contextlib.suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
    for number, (name, mode) in enumerate(_NAMES):
        # Python has left out what was missing when it began: whoever prints would find None.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good
