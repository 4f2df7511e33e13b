"""The interpreter's JIT, which workers may have: whether this host can give it to them.

CPython calls it an experiment and leaves it off. It makes memory executable after it has written code there, and ends
the process where that is forbidden, so this is tried out here.
"""

import mmap
import sys


def missing() -> str | None:
    """None: workers can have it; else what is in the way, and what to do."""
    python = ".".join(map(str, sys.version_info[:3]))
    # Since Python 3.14, see its module sys.
    jit = getattr(sys, "_jit", None)
    if jit is None or not jit.is_available():
        return f"this Python {python} has no JIT; want 3.15 or newer, built with --enable-experimental-jit=yes-off"
    try:
        mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    except OSError as error:
        return f"memory cannot be made executable here: {error.strerror}; under systemd set MemoryDenyWriteExecute=no"
    return None
