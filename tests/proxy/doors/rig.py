"""Doors of a worker in a thread of their own, and clients on real sockets; every wait has a deadline."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from proxy import document
from proxy.doors.doors import Doors
from proxy.loop import Loop
from proxy.routing import Table, compile_table, socket_door
from proxy.stats import DoorStats, Stats
from tests.proxy.doors.echo import Services
from tests.support.loops import call_in

WAIT_S = 10.0

T = TypeVar("T")


def listening_socket(port: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(1024)
    return sock


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def table_of(*listeners: dict[str, Any], **settings: Any) -> Table:
    content = {"listeners": listeners, "routes": [], **settings}
    return compile_table(document.decode(msgspec.json.encode(content)))


def plain(port: int, name: str = "web", **fields: Any) -> dict[str, Any]:
    return {"name": name, "address": "127.0.0.1", "port": port, **fields}


class Rig:
    """One plain door, unless told otherwise by `use`."""

    def __init__(self, **settings: Any) -> None:
        self._passed_s = 0.0
        self.loop = Loop(lambda: time.monotonic() + self._passed_s)
        self.services = Services(self.loop)
        self.stats = Stats()
        self.is_idle = threading.Event()
        self.doors = Doors(self.loop, self.services.begin, self.stats, lambda _: None)
        self._settings = settings
        self._thread = threading.Thread(target=self.loop.run, name="loop", daemon=True)
        self._thread.start()
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with contextlib.suppress(TimeoutError):
            self.call(self.doors.abort)
        self.loop.call_from_thread(self.loop.stop)
        self._thread.join(WAIT_S)
        assert error is not None or not self._thread.is_alive(), "the loop does not end"
        self.loop.close()

    def call(self, what: Callable[[], T]) -> T:
        """In the loop's thread."""
        return call_in(self.loop, what, WAIT_S)

    def use(self, table: Table, sockets: Mapping[str, socket.socket]) -> None:
        def use() -> None:
            self.doors.prepare(table, sockets)()

        self.call(use)

    def drain(self) -> None:
        """In the loop's thread only."""
        self.doors.drain(self.is_idle.set)

    def pass_time(self, seconds: float) -> None:
        """For the loop, at once; everything due by then has happened when this returns."""

        def leap() -> None:
            self._passed_s += seconds

        self.call(leap)
        for _ in range(3):
            self.call(lambda: None)

    def hold_time(self, seconds: float) -> None:
        """What is due comes so much later; in the loop's thread only. `pass_time` brings it."""
        self._passed_s -= seconds

    def open_plain(self, *, send_buffer_bytes: int | None = None, **fields: Any) -> "Rig":
        """`send_buffer_bytes`: roughly what the kernel buffers of a response that is not read."""
        sock = listening_socket()
        if send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.port = port_of(sock)
        table = table_of(plain(self.port, **fields), **self._settings)
        self.use(table, {self.door: sock})
        return self

    @property
    def door(self) -> str:
        return socket_door("127.0.0.1", self.port)

    @property
    def door_stats(self) -> DoorStats:
        return self.stats.door(self.door)

    def connect(self) -> socket.socket:
        return connect(self.port)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Looked at once a turn of the loop."""
        done = threading.Event()

        def look() -> None:
            if condition():
                done.set()
            elif not is_over.is_set():
                deadline.set(self.loop.now_s + 0.002)

        is_over = threading.Event()
        deadline = self.loop.deadline(look)
        self.loop.call_from_thread(look)
        try:
            assert done.wait(WAIT_S), f"never came: {what}"
        finally:
            is_over.set()

    def wait_for_connections(self, count: int) -> None:
        doors = self.stats.doors
        self.wait_for(lambda: sum(door.connections for door in doors.values()) == count, f"{count} connections")


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def read_all(sock: socket.socket) -> bytes:
    """Up to the end of the connection."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def read_all_or_reset(sock: socket.socket) -> bytes:
    """Where the other side may have left data unread: that turns its close into a reset."""
    try:
        return read_all(sock)
    except ConnectionResetError:
        return b""


def read_until(sock: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        data = sock.recv(65536)
        assert data, f"connection closed after {found[-200:]!r}, want {end!r}"
        found += data
    return found


def ask(sock: socket.socket, path: str = "/hello", extra: str = "", method: str = "GET") -> None:
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: a.example\r\n{extra}\r\n".encode())


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Rig]:
    with Rig(**settings) as rig:
        yield rig.open_plain()
