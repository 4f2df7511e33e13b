"""Threads for blocking work: name resolution, and reading certificates.

    threads = ThreadPool(loop, "resolver", threads=4)
    threads.run(work, on_done)          on_done(result, None) or on_done(None, error), in the loop's thread

Threads start on demand. They are daemon threads, because a lookup cannot be interrupted, and the process would wait for
the threads of concurrent.futures at exit. Excess tasks wait in order.

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

from daemonkit.lifecycle import StartFailed, start_thread
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
        """Includes one for each thread that has a substitute and has not ended yet."""
        self._most_threads = threads + substitutes
        self._threads = 0
        self._unfinished = 0
        self._busy: dict[int, float] = {}
        """When each thread began its task, by thread id, oldest first. Removing an entry decides a race: if the thread
        removes it, the task ended in time; if the loop does, the thread has a substitute.
        """
        self._queue: queue.SimpleQueue[Callable[[], Callable[[], None]] | None] = queue.SimpleQueue()
        self._is_closed = False

    def run(self, work: Callable[[], R], on_done: OnDone[R]) -> None:
        """Run `work` in a thread. `on_done` gets its exception, or an OSError if there is no thread for it, and is not
        called after `close`.
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
        """Stop the threads, each after its current task."""
        self._is_closed = True
        self._look_again.cancel()
        for _ in range(self._threads):
            self._queue.put(None)

    def _start_thread(self) -> OSError | None:
        """Returns why no thread could be started; None if one was."""
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            start_thread(thread)
        except StartFailed as error:
            return OSError(errno.EAGAIN, str(error))
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
        """Replace slow threads while there are more tasks than free threads."""
        late_s = time.monotonic() - self._patience_s
        for thread, began_s in self._busy.copy().items():
            if began_s > late_s or self._threads >= self._unfinished or self._max_threads == self._most_threads:
                return
            # If the thread that was last to be replaced finished just in time, its substitute is still spare.
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
            # A task may hold a private key, which must not stay in memory until the next task.
            del task


def _outcome(work: Callable[[], R], on_done: OnDone[R]) -> Callable[[], None]:
    try:
        return partial(on_done, work(), None)
    except Exception as error:
        # Without its traceback: its frames and the exception would keep each other alive.
        return partial(on_done, None, error.with_traceback(None))
