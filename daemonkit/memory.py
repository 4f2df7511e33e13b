"""How the process returns memory to the system, and spends little time on collecting garbage.

The C library serves large buffers from separate mappings, but when the first of them is freed, it raises the limit for
"large", up to 32 MiB. From then on bodies of some MiB are in the heap of the thread that created them, and the free top
of that heap is kept; with a dozen threads that adds up. A fixed limit keeps such buffers in mappings, which vanish when
freed.
"""

import ctypes
import gc

_M_TRIM_THRESHOLD = -1  # malloc.h
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024
_YOUNG_OBJECTS = 50_000


def give_back_large_buffers(size_bytes: int = _LARGE_BYTES) -> bool:
    """Buffers of `size_bytes` or more are large. Call once, early.

    False if the C library has no such setting (musl, macOS), and nothing was changed.
    """
    return _set(_M_MMAP_THRESHOLD, size_bytes)


def keep_free_heap(size_bytes: int) -> bool:
    """Let each heap keep a free top of this size. Call after `give_back_large_buffers`; the result means the same."""
    return _set(_M_TRIM_THRESHOLD, size_bytes)


def _set(parameter: int, value: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(parameter, value))


def spare_the_collector() -> None:
    """Call once, when everything that lives as long as the process has been created.

    The collector never looks at those objects again, and runs less often: our data has no cycles, and during a call
    that creates tens of thousands of objects it would walk through all of them, and the whole heap, several times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
