"""A backend that responds with what it received, parsed by h11, which is strict and independent of our code.

Every request gets a 200 with JSON: the request as a `Received`. A test's `respond` may respond differently. Requests
are also kept, so that copies (mirrors, retries) can be counted, and so are each connection's raw bytes.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import h11

from tests.support.headerlist import HeaderList
from tests.support.socketbackend import PATIENCE_S, Dialogue, SocketBackend


@dataclass(frozen=True)
class Received(HeaderList):
    """A request as this backend read it."""

    backend: str
    connection: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    trailers: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> bytes:
        shown = {
            "backend": self.backend,
            "connection": self.connection,
            "method": self.method,
            "target": self.target,
            "headers": self.headers,
            "body_bytes": len(self.body),
            "body_sha256": hashlib.sha256(self.body).hexdigest(),
            "trailers": self.trailers,
        }
        return json.dumps(shown).encode()


@dataclass(frozen=True)
class Reply:
    """The response; `chunks` makes it a chunked response with `trailers`."""

    status_code: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()
    trailers: tuple[tuple[str, str], ...] = ()


def echo(received: Received) -> Reply:
    return Reply(headers=(("Content-Type", "application/json"),), body=received.as_json())


Respond = Callable[[Received], Reply]


class RecordingBackend:
    """`name` distinguishes several of them."""

    def __init__(self, name: str = "backend", respond: Respond = echo, tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self.respond = respond
        self._news = threading.Condition()
        self._received: list[Received] = []
        self._sockets = SocketBackend(self._talk, tls)
        self.address = self._sockets.address
        self.raw: dict[int, bytearray] = {}
        """All bytes received, by connection."""

    @property
    def received(self) -> list[Received]:
        with self._news:
            return list(self._received)

    @property
    def connections(self) -> int:
        return self._sockets.accepted

    def forget(self) -> None:
        with self._news:
            self._received.clear()

    def wait_for_requests(self, count: int, timeout_s: float = PATIENCE_S) -> list[Received]:
        """The requests, once there are at least this many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._received) >= count, timeout_s), (
                f"{self.name}: {len(self._received)} requests after {timeout_s:g} s, want {count}"
            )
            return list(self._received)

    def wait_until_closed(self) -> None:
        """Wait until all connections have ended."""
        self._sockets.wait_until_closed()

    def close(self) -> None:
        self._sockets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sockets.__exit__(kind, error, trace)

    def _talk(self, dialogue: Dialogue) -> None:
        raw = self.raw.setdefault(dialogue.number, bytearray())
        reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        while True:
            received = self._read(dialogue, reader, raw)
            if received is None:
                return
            with self._news:
                self._received.append(received)
                self._news.notify_all()
            self._write(dialogue, reader, self.respond(received), received.method)
            if reader.our_state is not h11.DONE or reader.their_state is not h11.DONE:
                return
            reader.start_next_cycle()

    def _read(self, dialogue: Dialogue, reader: h11.Connection, raw: bytearray) -> Received | None:
        head: h11.Request | None = None
        body: list[bytes] = []
        receive = dialogue.receive_idle
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                if reader.they_are_waiting_for_100_continue:
                    dialogue.send(reader.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                data = receive()
                receive = dialogue.receive
                raw += data
                reader.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return Received(
                    self.name,
                    dialogue.number,
                    head.method.decode(),
                    head.target.decode("latin-1"),
                    _text(head.headers),
                    b"".join(body),
                    _text(event.headers),
                )
            else:
                return None

    def _write(self, dialogue: Dialogue, writer: h11.Connection, reply: Reply, method: str) -> None:
        headers = list(reply.headers)
        headers += [("Transfer-Encoding", "chunked")] if reply.chunks else [("Content-Length", str(len(reply.body)))]
        head = h11.Response(status_code=reply.status_code, headers=headers)
        data = writer.send(head) or b""
        for part in (reply.chunks or (reply.body,)) if method != "HEAD" else ():
            data += writer.send(h11.Data(data=part)) or b""
        data += writer.send(h11.EndOfMessage(headers=list(reply.trailers) if reply.chunks else [])) or b""
        dialogue.send(data)


def _text(fields: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)
