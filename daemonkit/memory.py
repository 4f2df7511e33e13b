"""How the process's memory goes back to the system, and how little time is spent on looking for garbage.

The C library serves large buffers from mappings of their own, but after the first of them was freed it raises the limit
of what is large, up to 32 MiB. From then on bodies of some MiB lie in the heap of the thread that made them, whose free
top is kept; with a dozen threads that adds up. A fixed limit keeps such buffers in mappings, which vanish when freed.
"""

import ctypes
import gc

_M_TRIM_THRESHOLD = -1  # malloc.h
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024
_YOUNG_OBJECTS = 50_000


def give_back_large_buffers(size_bytes: int = _LARGE_BYTES) -> bool:
    """Large is what has `size_bytes` or more. Call once, early.

    False where the C library has no such setting (musl, macOS), and nothing was changed.
    """
    return _set(_M_MMAP_THRESHOLD, size_bytes)


def keep_free_heap(size_bytes: int) -> bool:
    """Let each heap keep a free top of this size. Call after `give_back_large_buffers`; the answer means the same."""
    return _set(_M_TRIM_THRESHOLD, size_bytes)


def _set(parameter: int, value: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(parameter, value))


def spare_the_collector() -> None:
    """Call once, when everything that lives as long as the process has been made.

    What is there is never looked at again, and cycles are sought less often: our data has none, and a call that makes
    tens of thousands of objects would have all of them, and the whole heap, walked several times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
