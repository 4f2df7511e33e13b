"""Work that blocks, done by threads: name resolution, and reading certificates.

    threads = ThreadPool(loop, "resolver", threads=4)
    threads.run(work, on_done)          on_done(result, None) or on_done(None, error), in the loop's thread

Threads start with the first task and are daemons, since a resolver cannot be told to stop: the process would wait for
those of concurrent.futures before it ends. More tasks than threads wait in order.

With `substitutes` a thread whose task takes longer than `patience_s` counts as one less: another does what waits.
"""

import errno
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from proxy.loop import Deadline, Loop

R = TypeVar("R")


class _Task:
    """One that waits, or that a thread is at."""

    __slots__ = ("has_begun", "is_late", "patience")

    def __init__(self) -> None:
        self.has_begun = False
        """Written by the thread."""
        self.patience: Deadline | None = None
        self.is_late = False


class ThreadPool:
    def __init__(self, loop: Loop, name: str, threads: int, *, patience_s: float = 0.0, substitutes: int = 0) -> None:
        self._loop = loop
        self._name = name
        self._patience_s = patience_s
        self._substitutes_left = substitutes
        self._max_threads = threads
        """Of which there is one more for each task that is late."""
        self._threads = 0
        self._unfinished = 0
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_closed = False

    def run(self, work: Callable[[], R], on_done: Callable[[R | None, Exception | None], None]) -> None:
        """Do `work` in a thread. What it raises is given to `on_done`, and an OSError where there is no thread for it.
        Nothing is called after `close`.
        """

        task = _Task()

        def do() -> None:
            task.has_begun = True
            try:
                result = work()
            except Exception as error:
                # By itself: what it was raised through would hold it, and it that.
                failed = error.with_traceback(None)
                self._loop.call_from_thread(partial(self._finish, task, partial(on_done, None, failed)))
                del failed
            else:
                self._loop.call_from_thread(partial(self._finish, task, partial(on_done, result, None)))

        self._unfinished += 1
        if self._patience_s:
            self._be_patient(task)
        lack = self._start_thread_for_what_waits()
        if lack is not None and not self._threads:
            self._loop.call_soon(lambda: self._finish(task, lambda: on_done(None, lack)))
            return
        self._queue.put(do)

    def close(self) -> None:
        """Threads end with the task that they are doing."""
        self._is_closed = True
        for _ in range(self._threads):
            self._queue.put(None)

    def _start_thread_for_what_waits(self) -> OSError | None:
        """Where there is something; returns why there is none for it."""
        if self._threads < min(self._max_threads, self._unfinished):
            return self._start_thread()
        return None

    def _start_thread(self) -> OSError | None:
        """Another one; returns why there is none."""
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return OSError(errno.EAGAIN, f"{error}: raise the limit of tasks (TasksMax in a unit), or free memory")
        self._threads += 1
        return None

    def _be_patient(self, task: _Task) -> None:
        task.patience = task.patience or self._loop.deadline(partial(self._look_at, task))
        task.patience.set(self._loop.now_s + self._patience_s)

    def _look_at(self, task: _Task) -> None:
        if self._is_closed:
            return
        if not task.has_begun or not self._substitutes_left:
            self._be_patient(task)
            return
        self._substitutes_left -= 1
        self._max_threads += 1
        task.is_late = True
        self._start_thread_for_what_waits()

    def _finish(self, task: _Task, done: Callable[[], None]) -> None:
        self._unfinished -= 1
        if task.patience is not None:
            task.patience.cancel()
        if task.is_late:
            self._substitutes_left += 1
            self._max_threads -= 1
            if self._threads > self._max_threads:
                self._threads -= 1
                self._queue.put(None)
        if not self._is_closed:
            done()

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            if not self._is_closed:
                task()
            # It may hold a key of a backend, which is to go with that, and the next may be long in coming.
            del task
