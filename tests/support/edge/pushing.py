"""Configurations that the edge pushes on its own: one stream each, whose answer goes into the record."""

from __future__ import annotations

import msgspec

from proxy.exchange.relay import NOBODY, Relay
from proxy.heads import Fields, RequestHead, ResponseHead
from tests.support.edge.connection import EdgeConnection
from tests.support.edge.heads import UPDATE_CONFIGURATION
from tests.support.edge.ledger import Ledger, PushAnswer
from tests.support.edge.stream import EdgeStream


class Update(msgspec.Struct, frozen=True):
    version: int
    config: object


def push(connection: EdgeConnection, update: Update, ledger: Ledger) -> None:
    """Called by the loop's thread."""
    owner = _Push(connection, ledger)
    head = RequestHead(b"PUT", b"http", b"edge.internal", b"/", [UPDATE_CONFIGURATION])
    owner.stream = connection.open(head, False, owner, is_counted=False)
    owner.upload.add(msgspec.json.encode(update), True, NOBODY)
    owner.on_writable()


def check_head(head: ResponseHead) -> None:
    """Raises AssertionError."""
    assert head.status_code == 200, f"status {head.status_code} to a pushed configuration"
    assert not any(name.startswith(b"cf-") for name, _ in head.fields), (
        f"fields {head.fields} of a pushed configuration"
    )


class _Push:
    stream: EdgeStream

    def __init__(self, connection: EdgeConnection, ledger: Ledger) -> None:
        self._connection = connection
        self._ledger = ledger
        self.upload = Relay()
        self._body = b""

    def on_interim(self, head: ResponseHead) -> None:
        raise AssertionError(f"status {head.status_code} to a pushed configuration")

    def on_head(self, head: ResponseHead, end_stream: bool) -> None:
        check_head(head)
        assert not end_stream, "an empty answer to a pushed configuration"

    def on_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self._body += data
        self.stream.release(len(data))
        if end_stream:
            answer = msgspec.json.decode(self._body, type=PushAnswer)
            with self._ledger.writing():
                self._connection.record.push_answers.append(answer)

    def on_trailers(self, fields: Fields) -> None:
        raise AssertionError("trailers after the answer to a pushed configuration")

    def on_writable(self) -> None:
        self.upload.pump(self.stream)

    def on_lost(self, error: str, code: int | None) -> None:
        if code is not None:
            with self._ledger.writing():
                self._ledger.violations.append(f"connection {self._connection.record.number}: a push was lost: {error}")
