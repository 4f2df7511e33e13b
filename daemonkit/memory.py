"""Makes the process return memory to the system, and spend little time on garbage collection.

The C library serves large buffers from separate mappings, but when the first of them is freed, it raises the threshold
for "large", up to 32 MiB. From then on, bodies of a few MiB come from the heap of the thread that allocated them, and
the free top of that heap is kept; with a dozen threads that adds up. A fixed threshold keeps such buffers in mappings,
which are returned when freed.

Smaller buffers share a heap, of which only the free top is returned. One small object above a few hundred MiB of freed
buffers keeps them all, until `give_back_free_heap`.
"""

import ctypes
import gc
import mmap
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD = -1  # malloc.h
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024
_YOUNG_OBJECTS = 50_000
_STATM = Path("/proc/self/statm")  # proc_pid_statm(5), in pages: total, resident, ...


class _Info(ctypes.Structure):
    """struct mallinfo2, mallinfo(3)."""

    _fields_ = (("_before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))
    fordblks: int


def give_back_large_buffers(size_bytes: int = _LARGE_BYTES) -> bool:
    """Serve buffers of `size_bytes` or more from mappings of their own. Call once, early.

    Returns False if the C library has no such setting (musl, macOS), and nothing was changed.
    """
    return _set(_M_MMAP_THRESHOLD, size_bytes)


def keep_free_heap(size_bytes: int) -> bool:
    """Let each heap keep this much free at its top. Call after `give_back_large_buffers`; the result means the same."""
    return _set(_M_TRIM_THRESHOLD, size_bytes)


def _set(parameter: int, value: int) -> bool:
    mallopt = _from_c_library("mallopt")
    return mallopt is not None and bool(mallopt(parameter, value))


def _from_c_library(name: str) -> Any | None:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


def free_heap_bytes() -> int:
    """How much of the heaps is free, whether it has been returned or not; 0 if the C library does not say."""
    ask = _from_c_library("mallinfo2")
    if ask is None:
        return 0
    ask.restype = _Info
    info: _Info = ask()
    return info.fordblks


def give_back_free_heap(kept_bytes: int = 0) -> None:
    """Return the free pages of the heaps, except `kept_bytes` at the top: about 1 ms for 16 MiB, 0.2 ms for nothing."""
    trim = _from_c_library("malloc_trim")
    if trim is not None:
        trim.argtypes = [ctypes.c_size_t]
        trim(kept_bytes)


def resident_bytes() -> int:
    """How much memory this process has; 0 if the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def spare_the_collector() -> None:
    """Call once, when everything that lives as long as the process has been created.

    The collector then ignores those objects and runs less often. Our data has no cycles, and during a call that creates
    tens of thousands of objects, it would traverse all of them and the whole heap several times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
