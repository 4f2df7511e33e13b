"""Returns memory to the system after a peak.

Clients that do not read their answers make a worker hold some hundred KiB for each. When they have gone, a small object
that was allocated meanwhile lies above the freed buffers and keeps them resident, for as long as the worker runs.
"""

from typing import Final

from daemonkit.memory import free_heap_bytes, give_back_free_heap, resident_bytes
from proxy.loop import Loop

PERIOD_S: Final = 10.0
WORTH_BYTES: Final = 32 << 20
"""Less is left to be used again: what is returned costs page faults later."""


class FreeHeap:
    def __init__(self, loop: Loop, kept_bytes: int) -> None:
        """`kept_bytes` of free memory are never returned."""
        self._loop = loop
        self._kept_bytes = kept_bytes
        self._least_ever_bytes = self._least_bytes = resident_bytes()
        """The least that was resident, ever and since memory was last returned."""
        self._least_free_bytes = free_heap_bytes()
        """The least that was free at a look since then. What is free beyond it has been in use, so it is resident; the
        rest may have been returned already."""
        self._deadline = loop.deadline(self._look)

    def start(self) -> None:
        self._deadline.set(self._loop.now_s + PERIOD_S)

    def _look(self) -> None:
        self._deadline.set(self._loop.now_s + PERIOD_S)
        now_bytes = resident_bytes()
        self._least_bytes = min(self._least_bytes, now_bytes)
        self._least_ever_bytes = min(self._least_ever_bytes, now_bytes)
        if now_bytes - self._least_ever_bytes < WORTH_BYTES:
            return
        free_bytes = free_heap_bytes()
        self._least_free_bytes = min(self._least_free_bytes, free_bytes)
        # Between two looks free memory may have been used and freed again: then more is resident.
        more_bytes = max(now_bytes - self._least_bytes, free_bytes - self._least_free_bytes)
        if min(more_bytes, free_bytes) >= WORTH_BYTES:
            give_back_free_heap(self._kept_bytes)
            self._least_bytes, self._least_free_bytes = resident_bytes(), free_heap_bytes()
