"""A pushed configuration on its stream: collected, decoded, reported to whoever tracks versions, and answered."""

from collections.abc import Callable
from typing import Protocol

from proxy.exchange.client import ClientStream
from proxy.exchange.relay import NOBODY
from proxy.heads import Fields
from proxy.tunnel.remoteconfig import (
    MAX_UPDATE_BYTES,
    MalformedUpdate,
    decode_update,
    encode_answer,
    flaw_of,
)
from proxy.tunnel.responses import CONFIGURATION_HEAD, FAILURE_HEAD


class Acknowledge(Protocol):
    def __call__(self, version: int | None, answer: Callable[[int], None], /) -> None:
        """`version` is None if the configuration is unusable. `answer` is called, perhaps later, with the version then
        in force."""


class Room:
    """The buffer space of one connection for incomplete pushes: together they may hold as much as one push may."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class Push:
    """A `ClientExchange`."""

    def __init__(self, stream: ClientStream, acknowledge: Acknowledge, room: Room) -> None:
        self._stream = stream
        self._acknowledge = acknowledge
        self._room = room
        self._body = bytearray()
        self._unsent = b""
        self._is_over = False

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self._stream.release(len(data))
        if self._is_over:
            return
        self._body += data
        self._room.held_bytes += len(data)
        if self._room.held_bytes > MAX_UPDATE_BYTES:
            self._refuse()
        elif end_stream:
            self.take()

    def on_request_trailers(self, fields: Fields) -> None:  # noqa: ARG002 - there is nothing in them
        self.take()

    def on_client_writable(self) -> None:
        self._send()

    def on_client_gone(self, reason: str) -> None:  # noqa: ARG002 - there is nobody to tell
        self._is_over = True
        self._forget_body()

    def take(self) -> None:
        """The body is complete."""
        try:
            update = decode_update(bytes(self._body))
        except MalformedUpdate:
            self._refuse()
            return
        finally:
            self._forget_body()
        flaw = flaw_of(update)

        def answer(applied_version: int) -> None:
            if self._is_over:
                return
            self._unsent = encode_answer(applied_version, flaw)
            self._stream.send_headers(CONFIGURATION_HEAD, False)
            self._send()

        self._acknowledge(update.version if flaw is None else None, answer)

    def _forget_body(self) -> None:
        self._room.held_bytes -= len(self._body)
        self._body.clear()

    def _refuse(self) -> None:
        self._is_over = True
        self._forget_body()
        self._stream.stop_request()
        self._stream.send_headers(FAILURE_HEAD, True)

    def _send(self) -> None:
        if self._unsent and not self._is_over:
            taken_bytes = self._stream.send_data(self._unsent, True, NOBODY)
            self._unsent = self._unsent[taken_bytes:]
            self._is_over = not self._unsent
