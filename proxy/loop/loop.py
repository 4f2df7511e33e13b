"""The loop: wait for sockets, call their handlers, then expired deadlines, flush output, then do a slice of work.

    loop = Loop()
    loop.watch(sock, handler)          handler.on_readable() whenever sock has something to read
    loop.deadline(callback).set(loop.now_s + 10)
    loop.run()                         until loop.stop()

Level-triggered: a handler reads once per turn, so none starves, and a socket is polled for writing only while it is
full. Even if many handlers have much to do, a turn ends after TURN_S; the next one begins with those that are still
waiting, and urgent sockets are served in every turn.

A deadline is called only after all sockets that were ready at its time have been served. So a peer that was in time is
never timed out, even if the process was suspended.

Output is flushed once per turn, so the answers of a turn share system calls and TLS records.

Long work, such as a new routing table, is done in slices: about one per turn, or for an eighth of the time of a long
turn. After a turn with nothing but slices to do, the CPU is yielded; while requests are being served it is left idle
for a moment, so that the programs that send or answer them find it free.

A handler that raises has a bug: it is logged with its stack, `on_bug` lets it clean up, and the loop goes on.
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
from proxy.loop.unsent import Unsent

log = get_logger(__name__)

READ_BYTES: Final = 1020 * 1024
"""About how much a turn reads of large bodies over TLS, for all sockets together: a millisecond's work."""
LITTLE_BYTES: Final = 16 * 1024
"""While the loop `reads_little`: how much is read from a socket at a time. Over HTTP/1.1, also how much of a body may
be held before reading stops."""
TURN_S: Final = 0.05
"""How long a turn serves sockets; then it serves only urgent ones, and sends output."""
SLICE_S: Final = 0.0001
"""How long a turn works on slices if nothing else was to do: one slice as a rule, or several short ones."""
_SHARE: Final = 1 / 8
"""The part of a long turn that is added for slices. With one slice per turn, work would never end under load."""
_SERVING_S: Final = 0.1
"""After an event of a socket, more are expected for this long."""
_PAUSE_S: Final = 0.0001
"""The pause between two slices while events are expected. The kernel makes it 0.15 ms, in which nothing is answered."""
_MAX_WAIT_S: Final = 86_400.0
"""Less than the 2^31 ms that the kernel can wait; a deadline may be further away."""

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE


class Handler(Protocol):
    """Handles events of a watched socket. It may be called once more in the turn in which watching ends."""

    def on_readable(self) -> None:
        """There is something to read, or the peer is gone."""

    def on_writable(self) -> None:
        """There is room again. Called only if asked for."""

    def on_bug(self) -> None:
        """One of the other two raised: release everything, raise nothing."""


class Flusher(Protocol):
    """Has output to send at the end of a turn."""

    def flush(self) -> None:
        """Called at the end of a turn, once for each `Loop.flush_later`."""

    def on_bug(self) -> None:
        """`flush` raised: release everything, raise nothing."""


class Loop:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.now_s = clock()
        """When this turn began, in seconds of a monotonic clock."""
        self.read_bytes = READ_BYTES
        """The share of READ_BYTES for each socket that is ready in this turn."""
        self.unsent = Unsent()
        self.reads_little = False
        """`unsent` is large in this turn, so little is read of what would be added to it."""
        self._selector = selectors.DefaultSelector()
        self._deadlines = Deadlines()
        self._soon: deque[Callable[[], None]] = deque()
        self._flushers: list[Flusher] = []
        self._slices: deque[Iterator[None]] = deque()
        self._served_s = -math.inf
        """When a socket last had an event while slices were waiting."""
        self._urgent: set[int] = set()
        """Descriptors of urgent sockets."""
        self._heard: set[int] = set()
        """Descriptors of sockets that have been served in this round. A round takes several turns if one is not
        enough."""
        self._round_s = 0.0
        """When the round began: when the selector was asked which sockets are ready."""
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
        """Close the selector; sockets belong to their handlers."""
        self._waker.close()
        self._selector.close()

    def turn(self) -> None:
        """Wait for something to do, and do all that can be done now."""
        looked_at_s = self._clock()
        ready = self._selector.select(self._wait_s(looked_at_s))
        self.now_s = now_s = self._clock()
        self.reads_little = self.unsent.is_large
        self.read_bytes = LITTLE_BYTES if self.reads_little else READ_BYTES // (len(ready) or 1)
        if not self._heard:
            self._round_s = looked_at_s
        if self._serve(ready, now_s + TURN_S):
            # Deadlines up to the beginning of the round: everything that arrived before has been read. Not up to now:
            # if the process was suspended since, sockets may have more to read, and after SIGSTOP select returns none.
            next_s = self._deadlines.next_s()
            if next_s is not None and next_s <= self._round_s:
                for callback in self._deadlines.due(self._round_s):
                    self._call(callback)
        # Calls that these add wait for the next turn.
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
        """Returns whether the round is over: all sockets that were ready when it began have been served."""
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
        """The turn's time is up: of the sockets from `place` on, serve only urgent ones."""
        heard = self._heard
        for key, events in ready[place:]:
            if key.fd in self._urgent:
                self._serve_one(key, events)
                heard.add(key.fd)
        if all(key.fd in heard for key, _ in ready[place:]):
            # All others were served in an earlier turn of this round.
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
            # Flushing gives credit back, which may queue output elsewhere; that is sent in this turn as well.
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
        """Call `handler` for at least one of `reads` and `writes`. `is_urgent`: in every turn, however much the others
        have to do; only for a socket that is never unwatched."""
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
        """Call before the socket is closed; does nothing if it is not watched."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    # -- later -------------------------------------------------------------------------------------------------------

    def deadline(self, callback: Callable[[], None]) -> Deadline:
        """A deadline that is not set yet. Times are of the same clock as `now_s`."""
        return Deadline(self._deadlines, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call later in this turn, or in the next one if this one is already making such calls."""
        self._soon.append(callback)

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Call in the loop's thread; any thread may use this."""
        self._soon.append(callback)
        self._waker.wake()

    def flush_later(self, flusher: Flusher) -> None:
        """Call `flusher.flush()` at the end of this turn. The caller must not ask twice."""
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
        # If the socket is full, the loop is about to wake up; if it is closed, there is no loop to wake.
        with contextlib.suppress(OSError):
            self._outer.send(b"\0")

    def on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._inner.recv(4096)

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        self._inner.close()
        self._outer.close()
