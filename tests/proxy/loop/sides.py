"""A loop that a test turns by itself, transports over real sockets, and owners that record their callbacks."""

import select
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proxy.loop import Buffer, Loop, Transport

PATIENCE_S = 10.0
SEND_BUFFER_BYTES = 256 * 1024


class Clock:
    """Real time, unless it is stopped, plus the time that a test adds."""

    def __init__(self, *, stands_still: bool = False) -> None:
        self.passed_s = 0.0
        self._stood_at_s = time.monotonic() if stands_still else None

    def __call__(self) -> float:
        return (time.monotonic() if self._stood_at_s is None else self._stood_at_s) + self.passed_s


class Side:
    """An owner."""

    def __init__(self) -> None:
        self.output: list[Buffer] = []
        self.received = bytearray()
        self.reads: list[int] = []
        self.has_eof = False
        self.error: OSError | None = None
        self.drained = 0
        self.closed = 0
        self.on_read: Callable[[], None] = lambda: None

    def on_data(self, data: bytes) -> None:
        assert data
        self.received += data
        self.reads.append(len(data))
        self.on_read()

    def on_eof(self) -> None:
        assert not self.has_eof
        self.has_eof = True

    def on_lost(self, error: OSError) -> None:
        assert self.error is None
        self.error = error

    def buffers_to_send(self) -> list[Buffer]:
        output, self.output = self.output, []
        return output

    def on_drained(self) -> None:
        self.drained += 1

    def on_closed(self) -> None:
        self.closed += 1


class Owed:
    """A creditor."""

    def __init__(self) -> None:
        self.released_bytes = 0

    def release(self, size_bytes: int) -> None:
        self.released_bytes += size_bytes


def until(loop: Loop, condition: Callable[[], bool]) -> None:
    """Turn the loop until `condition` holds."""
    end_s = time.monotonic() + PATIENCE_S
    beat = loop.deadline(lambda: beat.set(loop.now_s + 0.005))
    beat.set(loop.now_s)
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        loop.turn()
    beat.cancel()


def turns(loop: Loop, count: int = 5) -> None:
    """Let the loop do all that it can do without waiting."""
    for _ in range(count):
        loop.call_soon(lambda: None)
        loop.turn()


@contextmanager
def loop_of(clock: Callable[[], float] | None = None) -> Iterator[Loop]:
    loop = Loop(clock) if clock is not None else Loop()
    try:
        yield loop
    finally:
        loop.close()


def tcp_pair(send_buffer_bytes: int = 0) -> tuple[socket.socket, socket.socket]:
    """Ours, which does not block, and the peer's, which waits up to PATIENCE_S.

    `send_buffer_bytes`: roughly what our kernel buffers beyond the peer's buffer. Without it that buffer grows while a
    test sends, at times to 4 MiB and more.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    if send_buffer_bytes:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    ours.setblocking(False)
    peer.settimeout(PATIENCE_S)
    return ours, peer


class Link:
    """A transport and its peer."""

    def __init__(self, loop: Loop) -> None:
        ours, self.peer = tcp_pair()
        self.loop = loop
        self.side = Side()
        self.transport = Transport(loop, ours, self.side)
        self.transport.start()

    def send(self, *pieces: Buffer) -> Owed:
        """Queue pieces whose credit goes to the creditor returned."""
        owed = Owed()
        self.side.output += pieces
        self.transport.owe(owed, sum(map(len, pieces)))
        return owed

    def until(self, condition: Callable[[], bool]) -> None:
        until(self.loop, condition)

    def close(self) -> None:
        self.transport.abort()
        self.peer.close()


@contextmanager
def linked(clock: Callable[[], float] | None = None) -> Iterator[Link]:
    with loop_of(clock) as loop:
        link = Link(loop)
        try:
            yield link
        finally:
            link.close()


def receive(sock: socket.socket, size_bytes: int) -> bytes:
    """Exactly that many bytes."""
    parts = []
    while size_bytes:
        part = sock.recv(min(size_bytes, 65536))
        assert part, "the connection ended"
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


def has_ended(sock: socket.socket) -> bool:
    """The other side sends nothing more, in order."""
    return sock.recv(1) == b""


def is_silent(sock: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return not selector.select(0)


def wait_for_the_end_of(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    assert poll.poll(1000 * PATIENCE_S), "the end never came"
