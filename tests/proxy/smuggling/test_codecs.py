"""Every case of the corpus through both codecs: a strict, independent backend (h11) reads what was meant."""

import h11
import pytest

from proxy.h1 import (
    Caches,
    ClientConnection,
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    ServerConnection,
    TrailersReceived,
)
from proxy.heads import RequestHead, ResponseHead
from tests.proxy.smuggling.corpus import Case, Forwarded, load

CASES = load()
HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"}


def test_the_corpus_has_at_least_sixty_cases_each_with_its_own_name_and_a_source() -> None:
    assert len(CASES) >= 60
    assert len(CASES) == len({case.name for case in CASES})
    assert all(case.source for case in CASES)
    assert all(case.forwarded or case.rejected for case in CASES)


@pytest.mark.parametrize("is_bytewise", [False, True], ids=["whole", "byte-by-byte"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_rejected_or_reaches_the_backend_with_one_meaning(case: Case, is_bytewise: bool) -> None:
    relay = Relay()

    relay.play(case.raw, is_bytewise)

    assert case.rejected == relay.rejected
    assert len(case.forwarded) == len(relay.backends)
    for wanted, sent in zip(case.forwarded, relay.backends, strict=True):
        check(wanted, sent)


def check(wanted: Forwarded, sent: bytes) -> None:
    backend = h11.Connection(h11.SERVER)
    backend.receive_data(sent)
    head = backend.next_event()
    assert isinstance(head, h11.Request)
    fields = dict(head.headers)
    assert (wanted.method, wanted.path, wanted.host) == (head.method, head.target, fields[b"host"])
    assert wanted.fields.items() <= fields.items()
    assert wanted.absent.isdisjoint(fields)
    body = b""
    while isinstance(event := backend.next_event(), h11.Data):
        body += event.data

    assert wanted.body == body
    assert wanted.is_cut == (event is h11.NEED_DATA)
    assert wanted.is_cut or (isinstance(event, h11.EndOfMessage) and not event.headers)
    assert backend.trailing_data[0] == b""


class Relay:
    """A proxy without routes: each request goes to a backend connection of its own and is answered with 200."""

    def __init__(self) -> None:
        self.server = ServerConnection(Caches())
        self.rejected: int | None = None
        self.backends: list[bytes] = []
        self._client = ClientConnection(Caches())

    def play(self, raw: bytes, is_bytewise: bool) -> None:
        for piece in [raw[index : index + 1] for index in range(len(raw))] if is_bytewise else [raw]:
            self._handle(self.server.receive(piece))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ConnectionTerminated):
                self.rejected = event.status_code
                self.server.send_headers(ResponseHead(event.status_code, []), True)
                assert self.server.should_close
            elif isinstance(event, RequestReceived):
                self._client = ClientConnection(Caches())
                self._client.send_request(end_to_end(event.head), event.end_stream)
                self.backends.append(b"")
            elif isinstance(event, DataReceived):
                self._client.send_data(event.data, event.end_stream)
            elif isinstance(event, TrailersReceived):
                self._client.send_trailers(event.fields)
            if self.backends:
                self.backends[-1] += self._client.data_to_send()
            if getattr(event, "end_stream", isinstance(event, TrailersReceived)):
                self.server.send_headers(ResponseHead(200, []), True)
                self._handle(self.server.receive(b""))


def end_to_end(head: RequestHead) -> RequestHead:
    """What the exchange does before it forwards (RFC 9110, 7.6.1)."""
    listed = {
        option.strip().lower() for name, value in head.fields if name == b"connection" for option in value.split(b",")
    }
    fields = [field for field in head.fields if field[0] not in HOP_BY_HOP | listed]
    return RequestHead(head.method, head.scheme, head.authority, head.path, fields)
