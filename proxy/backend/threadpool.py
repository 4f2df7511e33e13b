"""Work that blocks, done by threads: name resolution, and reading certificates.

    threads = ThreadPool(loop, "resolver", threads=4)
    threads.run(work, on_done)          on_done(result, None) or on_done(None, error), in the loop's thread

Threads start with the first task and are daemons, since a resolver cannot be told to stop: the process would wait for
those of concurrent.futures before it ends. More tasks than threads wait in order.

With `substitutes`, a thread whose task takes longer than `patience_s` while others wait is replaced by another one, and
ends when that task does.
"""

import errno
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from proxy.loop import Loop

R = TypeVar("R")
OnDone = Callable[[R | None, Exception | None], None]


class ThreadPool:
    def __init__(self, loop: Loop, name: str, threads: int, *, patience_s: float = 0.0, substitutes: int = 0) -> None:
        self._loop = loop
        self._name = name
        self._patience_s = patience_s
        self._look_again = loop.deadline(self._look)
        self._max_threads = threads
        """Grows by one for each thread that has a substitute and has not ended yet."""
        self._most_threads = threads + substitutes
        self._threads = 0
        self._unfinished = 0
        self._busy: dict[int, float] = {}
        """When each thread began its task, by thread id, the oldest first. Whoever removes an entry has decided: the
        thread itself, that it ended in time; the loop, that it has a substitute.
        """
        self._queue: queue.SimpleQueue[Callable[[], Callable[[], None]] | None] = queue.SimpleQueue()
        self._is_closed = False

    def run(self, work: Callable[[], R], on_done: OnDone[R]) -> None:
        """Do `work` in a thread. What it raises is given to `on_done`, and an OSError where there is no thread for it.
        Nothing is called after `close`.
        """
        self._unfinished += 1
        if self._unfinished == 1:
            self._look_soon()
        lack = None
        if self._threads < min(self._max_threads, self._unfinished):
            lack = self._start_thread()
        else:
            self._substitute()
        if lack is not None and not self._threads:
            self._loop.call_soon(lambda: self._finish(lambda: on_done(None, lack)))
            return
        self._queue.put(partial(_outcome, work, on_done))

    def close(self) -> None:
        """Threads end with the task that they are doing."""
        self._is_closed = True
        self._look_again.cancel()
        for _ in range(self._threads):
            self._queue.put(None)

    def _start_thread(self) -> OSError | None:
        """Returns why none could be started; None: one was."""
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return OSError(errno.EAGAIN, f"{error}: raise the limit of tasks (TasksMax in a unit), or free memory")
        self._threads += 1
        return None

    def _look_soon(self) -> None:
        if self._patience_s:
            self._look_again.set(self._loop.now_s + self._patience_s / 2)

    def _look(self) -> None:
        if self._unfinished:
            self._substitute()
            self._look_soon()

    def _substitute(self) -> None:
        """Replace threads that take long, as long as more tasks wait than threads are free."""
        late_s = time.monotonic() - self._patience_s
        for thread, began_s in self._busy.copy().items():
            if began_s > late_s or self._threads >= self._unfinished or self._max_threads == self._most_threads:
                return
            # If the thread that the last substitute was for ended just in time, that one is there to be used.
            if self._threads <= self._max_threads and self._start_thread() is not None:
                return
            if self._busy.pop(thread, None) is not None:
                self._max_threads += 1

    def _finish(self, done: Callable[[], None], *, has_substitute: bool = False) -> None:
        self._unfinished -= 1
        if has_substitute:
            self._threads -= 1
            self._max_threads -= 1
        if not self._is_closed:
            done()

    def _serve(self) -> None:
        me = threading.get_ident()
        has_substitute = False
        while not has_substitute and (task := self._queue.get()) is not None:
            if not self._is_closed:
                self._busy[me] = time.monotonic()
                done = task()
                has_substitute = self._busy.pop(me, None) is None
                self._loop.call_from_thread(partial(self._finish, done, has_substitute=has_substitute))
                del done
            # It may hold a private key, which must not stay in memory until the next task comes.
            del task


def _outcome(work: Callable[[], R], on_done: OnDone[R]) -> Callable[[], None]:
    try:
        return partial(on_done, work(), None)
    except Exception as error:
        # Without its traceback, whose frames would keep it alive, and it them.
        return partial(on_done, None, error.with_traceback(None))
