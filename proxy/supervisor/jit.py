"""Whether workers can use Python's JIT on this host.

CPython calls it experimental and leaves it off. It makes memory executable after writing code there, and ends the
process if that is forbidden, so this is tried here first.
"""

import mmap
import sys


def missing() -> str | None:
    """Why workers cannot use the JIT, and what to do about it; None if they can."""
    python = ".".join(map(str, sys.version_info[:3]))
    # `sys._jit` exists since Python 3.14.
    jit = getattr(sys, "_jit", None)
    if jit is None or not jit.is_available():
        return f"this Python {python} has no JIT; want 3.15 or newer, built with --enable-experimental-jit=yes-off"
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError as error:
        return f"memory cannot be made executable here: {error.strerror}; under systemd set MemoryDenyWriteExecute=no"
    return None
