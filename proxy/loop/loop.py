"""The loop: wait for sockets, call their handlers, then deadlines, then send what was queued, then a slice of work.

    loop = Loop()
    loop.watch(sock, handler)          handler.on_readable() whenever sock has something to read
    loop.deadline(callback).set(loop.now_s + 10)
    loop.run()                         until loop.stop()

Level-triggered: a handler reads once per turn, so that nobody starves, and interest in writing exists only while a
socket is full. Where many have much to do, a turn ends after TURN_S all the same, and the next one begins with those
who have waited; who is urgent is heard in each. Deadlines are called that had come before the sockets were looked at
that have all been heard since: whoever was in time is heard first, also where the process has stood still. Output is
flushed once a turn, so that the answers of a turn share system calls and TLS records. Long work, such as a new routing
table, is done in slices: about one in a turn, an eighth of the time of a turn that took long. After a turn without
anything else to do, whoever waits for the CPU gets it: where there are few, that is who makes the requests, or answers
them. While some are served it is left idle for a moment, so that those find it free.
A handler that raises has a bug; it is logged with its stack, `on_bug` lets it clean up, and the loop goes on.
Only `call_from_thread` may be called by other threads.
"""

import contextlib
import math
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from daemonkit.logs import get_logger
from proxy.loop.deadlines import Deadline, Deadlines

log = get_logger(__name__)

READ_BYTES: Final = 1020 * 1024
"""What a turn takes of large bodies over TLS, about, all sockets together: a millisecond until others have a turn."""
TURN_S: Final = 0.05
"""How long sockets are served until output leaves, and who is urgent is heard."""
SLICE_S: Final = 0.0001
"""How long a turn may work on slices when nothing else was to be done: one, mostly; shorter ones share it."""
_SHARE: Final = 1 / 8
"""Of a turn that took long: with one slice in each of those, work would not come to its end while many are served."""
_SERVING_S: Final = 0.1
"""Since something came: more will."""
_PAUSE_S: Final = 0.0001
"""Between two slices meanwhile. The kernel makes it 0.15 ms, in which nothing is answered."""
_MAX_WAIT_S: Final = 86_400.0
"""A deadline may be further away than the kernel can wait at once, which is 2^31 ms."""

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE


class Handler(Protocol):
    """Somebody whose socket is watched. Calls may come once more in the turn in which it stopped watching."""

    def on_readable(self) -> None:
        """There is something to read, or the peer has gone."""

    def on_writable(self) -> None:
        """There is room again; only while it asked for that."""

    def on_bug(self) -> None:
        """One of the other two raised: let go of everything, raise nothing."""


class Flusher(Protocol):
    """Somebody who has output."""

    def flush(self) -> None:
        """Called at the end of a turn, once for each `Loop.flush_later`."""

    def on_bug(self) -> None:
        """`flush` raised: let go of everything, raise nothing."""


class Loop:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.now_s = clock()
        """Seconds of a clock that never runs backwards, read at the start of this turn."""
        self.read_bytes = READ_BYTES
        """Of READ_BYTES, the share of each socket that is ready in this turn."""
        self._selector = selectors.DefaultSelector()
        self._deadlines = Deadlines()
        self._soon: deque[Callable[[], None]] = deque()
        self._flushers: list[Flusher] = []
        self._slices: deque[Iterator[None]] = deque()
        self._served_s = -math.inf
        """When something came last, beside slices."""
        self._urgent: set[int] = set()
        """Descriptors."""
        self._heard: set[int] = set()
        """Likewise: of sockets that had their turn while others still wait for theirs."""
        self._round_s = 0.0
        """When the sockets were looked at of which some wait still."""
        self._is_stopping = False
        self._waker = _Waker(self._selector)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns after `stop`."""
        while not self._is_stopping:
            self.turn()

    def stop(self) -> None:
        """End `run` after this turn."""
        self._is_stopping = True

    def close(self) -> None:
        """Let go of the selector; sockets belong to their handlers."""
        self._waker.close()
        self._selector.close()

    def turn(self) -> None:
        """Wait for something to do, and do all that can be done now."""
        looked_at_s = self._clock()
        ready = self._selector.select(self._wait_s(looked_at_s))
        self.now_s = now_s = self._clock()
        self.read_bytes = READ_BYTES // (len(ready) or 1)
        if not self._heard:
            self._round_s = looked_at_s
        if self._serve(ready, now_s + TURN_S):
            # Those of the time before the sockets were looked at: what came in time has been read. After a pause since
            # then they may have more to tell, and after one by SIGSTOP the selector tells of none at all.
            next_s = self._deadlines.next_s()
            if next_s is not None and next_s <= self._round_s:
                for callback in self._deadlines.due(self._round_s):
                    self._call(callback)
        # What is added by these calls waits for the next turn.
        for _ in range(len(self._soon)):
            self._call(self._soon.popleft())
        self._flush()
        if self._slices:
            if ready:
                self._served_s = now_s
                share_s = (self._clock() - now_s) * _SHARE
                self._work(share_s if share_s > SLICE_S else 0.0)
            else:
                self._work(SLICE_S)
                if now_s < self._served_s + _SERVING_S:
                    time.sleep(_PAUSE_S)
                else:
                    os.sched_yield()

    def _serve(self, ready: list[tuple[selectors.SelectorKey, int]], until_s: float) -> bool:
        """False: of those that were ready when this round began, some wait for the next turn."""
        heard = self._heard
        if heard:
            ready.sort(key=lambda one: one[0].fd in heard)
        for place, (key, events) in enumerate(ready):
            if self._clock() >= until_s and place:
                return self._put_off(ready, place)
            self._serve_one(key, events)
        heard.clear()
        return True

    def _put_off(self, ready: list[tuple[selectors.SelectorKey, int]], place: int) -> bool:
        """The time of a turn is over for those from `place` on."""
        heard = self._heard
        for key, events in ready[place:]:
            if key.fd in self._urgent:
                self._serve_one(key, events)
                heard.add(key.fd)
        if all(key.fd in heard for key, _ in ready[place:]):
            # The others have had their turn in this round.
            heard.clear()
            return True
        heard.update(key.fd for key, _ in ready[:place])
        return False

    def _serve_one(self, key: selectors.SelectorKey, events: int) -> None:
        handler = key.data
        try:
            if events & _READ:
                handler.on_readable()
            if events & _WRITE:
                handler.on_writable()
        except Exception:
            log.exception("bug in the handler of a socket", handler=type(handler).__name__)
            self._call(handler.on_bug)

    def _wait_s(self, now_s: float) -> float | None:
        if self._soon or self._slices or self._flushers or self._is_stopping:
            return 0
        next_s = self._deadlines.next_s()
        return None if next_s is None else min(max(0.0, next_s - now_s), _MAX_WAIT_S)

    def _flush(self) -> None:
        flushers = self._flushers
        while flushers:
            # Flushing gives credit back, which may queue output elsewhere: that leaves in this turn as well.
            self._flushers = []
            for flusher in flushers:
                try:
                    flusher.flush()
                except Exception:
                    log.exception("bug while sending", handler=type(flusher).__name__)
                    self._call(flusher.on_bug)
            flushers = self._flushers

    def _work(self, limit_s: float) -> None:
        end_s = self._clock() + limit_s
        while self._slices:
            try:
                next(self._slices[0])
            except StopIteration:
                self._slices.popleft()
            except Exception:
                self._slices.popleft()
                log.exception("bug in sliced work")
            if self._clock() >= end_s:
                return

    @staticmethod
    def _call(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("bug in a call of the loop", call=getattr(callback, "__qualname__", repr(callback)))

    # -- sockets -----------------------------------------------------------------------------------------------------

    def watch(
        self,
        sock: socket.socket,
        handler: Handler,
        *,
        reads: bool = True,
        writes: bool = False,
        is_urgent: bool = False,
    ) -> None:
        """Call `handler`; at least one of `reads` and `writes`. `is_urgent`, of a socket that is watched for good: in
        each turn, however much others have to do."""
        self._selector.register(sock, (_READ if reads else 0) | (_WRITE if writes else 0), handler)
        if is_urgent:
            self._urgent.add(sock.fileno())

    def rewatch(self, sock: socket.socket, handler: Handler, *, reads: bool, writes: bool) -> None:
        """Change what `handler` is called for; neither: it is not watched, but `rewatch` and `unwatch` still work."""
        events = (_READ if reads else 0) | (_WRITE if writes else 0)
        is_watched = sock in self._selector.get_map()
        if is_watched and events:
            self._selector.modify(sock, events, handler)
        elif is_watched:
            self._selector.unregister(sock)
        elif events:
            self._selector.register(sock, events, handler)

    def unwatch(self, sock: socket.socket) -> None:
        """Before the socket is closed; does nothing when it is not watched."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    # -- later -------------------------------------------------------------------------------------------------------

    def deadline(self, callback: Callable[[], None]) -> Deadline:
        """A deadline that is not set yet; times are of the clock of `now_s`."""
        return Deadline(self._deadlines, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call later in this turn, or in the next when this one has come to its own calls."""
        self._soon.append(callback)

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Call in the loop's thread; any thread may ask for that."""
        self._soon.append(callback)
        self._waker.wake()

    def flush_later(self, flusher: Flusher) -> None:
        """Call `flusher.flush()` at the end of this turn; the caller sees to it that this is asked for once."""
        self._flushers.append(flusher)

    def work_through(self, slices: Iterator[None]) -> None:
        """Exhaust `slices` between turns, some tenths of a millisecond each; one after another, in the order given."""
        self._slices.append(slices)


class _Waker:
    """Ends the loop's wait from another thread."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        selector.register(self._inner, _READ, self)

    def wake(self) -> None:
        # Full: the loop is to wake up already. Closed: there is none to wake.
        with contextlib.suppress(OSError):
            self._outer.send(b"\0")

    def on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._inner.recv(4096)

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        """Nothing to let go of."""

    def close(self) -> None:
        self._inner.close()
        self._outer.close()
