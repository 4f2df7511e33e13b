"""Responses as the edge must see them: interim heads, trailers, responses without a body, truncated ones."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from proxy.h2 import ErrorCode
from proxy.tunnel.responses import META, SERIALIZED
from tests.e2e.tunnel.connector import Connector
from tests.support.gateway import route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.socketbackend import Dialogue, SocketBackend

Script = Callable[[Dialogue], None]


@contextlib.contextmanager
def served_by(proxy: Connector, script: Script, **rule: Any) -> Iterator[SocketBackend]:
    with SocketBackend(script) as backend:
        proxy.put({"listeners": [], "routes": [route_to(backend.address, **rule)]})
        yield backend


def answering(raw: bytes) -> Script:
    """The same for every request, then the end of the connection."""

    def talk(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(raw)

    return talk


def wait_for_end(dialogue: Dialogue) -> None:
    """Closed cleanly or not."""
    with contextlib.suppress(ConnectionError):
        assert dialogue.sock.recv(1) == b""


def serve(proxy: Connector, backend: RecordingBackend) -> None:
    proxy.put({"listeners": [], "routes": [route_to(backend.address)]})


# -- interim responses -------------------------------------------------------------------------------------------------


def test_interim_responses_are_forwarded_as_separate_heads(proxy: Connector) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"
    with served_by(proxy, answering(hints + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")):
        call = proxy.edge.call()
        assert call.read_all() == b"ok"
    (interim,) = call.interims
    assert (interim.status_code, interim.fields) == (103, [(b"link", b"</a.css>")])
    assert call.response().status_code == 200


def test_reserved_fields_of_interim_responses_are_dropped(proxy: Connector) -> None:
    meta = b'cf-cloudflared-response-meta: {"src":"cloudflared"}\r\ncf-int-x: 1\r\nx-other: 2\r\n\r\n'
    with served_by(proxy, answering(b"HTTP/1.1 103 Early Hints\r\n" + meta + b"HTTP/1.1 204 No Content\r\n\r\n")):
        call = proxy.edge.call()
        assert call.read_all() == b""
    assert [interim.fields for interim in call.interims] == [[(b"x-other", b"2")]]


def test_a_client_that_expects_100_continue_gets_it_before_it_sends_its_body(
    proxy: Connector, backend: RecordingBackend
) -> None:
    serve(proxy, backend)
    fields = [(b"expect", b"100-continue"), (b"content-length", b"4")]
    call = proxy.edge.call(method="POST", fields=fields, end_stream=False)
    assert call.wait_for_interim().status_code == 100
    call.send(b"body", True)
    assert call.response().status_code == 200
    (received,) = backend.received
    assert received.body == b"body"


# -- without a body ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "status", "fields", "raw"),
    [
        ("HEAD", 200, b"content-length: 1234\r\n", [(b"content-length", b"1234")]),
        ("HEAD", 200, b"transfer-encoding: chunked\r\n", []),
        ("GET", 204, b"", []),
        ("GET", 304, b'etag: "x"\r\ncontent-length: 1234\r\n', [(b"content-length", b"1234")]),
        ("GET", 304, b'etag: "x"\r\n', []),
        ("GET", 200, b"content-length: 0\r\n", [(b"content-length", b"0")]),
    ],
)
def test_a_response_without_a_body_ends_with_its_head(
    proxy: Connector, method: str, status: int, fields: bytes, raw: list[tuple[bytes, bytes]]
) -> None:
    with served_by(proxy, answering(b"HTTP/1.1 %d Said\r\n%b\r\n" % (status, fields))):
        call = proxy.edge.call(method=method)
        response = call.response()
        assert call.read_all() == b""
    assert (response.status_code, response.source) == (status, "origin")
    assert [field for field in response.raw.fields if field[0] == b"content-length"] == raw
    assert not call.pieces, "DATA frames"


# -- fields ------------------------------------------------------------------------------------------------------------


def test_fields_are_forwarded_in_order_with_any_value_and_length(proxy: Connector) -> None:
    values = [(b"x-a", b"1"), (b"set-cookie", b"a=1; Path=/"), (b"x-empty", b""), (b"set-cookie", b"b=2")]
    values += [(b"x-bytes", bytes(range(0x80, 0x100))), (b"x-signs", b";:=+/ \t,\"'"), (b"x-long", b"v" * 30_000)]
    head = b"".join(b"%b: %b\r\n" % field for field in values)
    with served_by(proxy, answering(b"HTTP/1.1 200 OK\r\n%bcontent-length: 0\r\n\r\n" % head)):
        response = proxy.edge.call().response()
    names = {name for name, _ in values}
    assert [field for field in response.fields if field[0] in names] == values


def test_hop_by_hop_fields_are_dropped_and_a_chunked_body_is_forwarded(proxy: Connector) -> None:
    raw = (
        b"HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nx-end: 1\r\n"
        b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    )
    with served_by(proxy, answering(raw)):
        call = proxy.edge.call()
        assert call.read_all() == b"body"
    names = {name for name, _ in call.response().fields}
    assert b"x-end" in names
    assert not names & {b"connection", b"x-hop", b"keep-alive", b"transfer-encoding", b"content-length"}


def test_a_response_without_fields_gets_only_a_date(proxy: Connector) -> None:
    """RFC 9110, 6.6.1: a recipient that forwards a response without Date adds the time of its receipt."""
    with served_by(proxy, answering(b"HTTP/1.1 204 No Content\r\n\r\n")):
        response = proxy.edge.call().response()
    ((name, date),) = response.fields
    assert (response.status_code, name) == (204, b"date")
    assert parsedate_to_datetime(date.decode()).tzinfo is UTC
    serialized = b"ZGF0ZQ:" + base64.b64encode(date).rstrip(b"=")
    assert response.raw.fields == [(SERIALIZED, serialized), (META, b'{"src":"origin"}')]


def test_a_body_that_ends_with_the_backends_connection_passes(proxy: Connector) -> None:
    with served_by(proxy, answering(b"HTTP/1.1 200 OK\r\n\r\nas long as it lasts")):
        assert proxy.edge.call().read_all() == b"as long as it lasts"


# -- trailers ----------------------------------------------------------------------------------------------------------


def test_trailers_pass_as_trailers(proxy: Connector, backend: RecordingBackend) -> None:
    trailers = (("Grpc-Status", "0"), ("X-Sum", "1"), ("X-Sum", "2"))
    backend.respond = lambda _: Reply(200, (), chunks=(b"one", b"two"), trailers=trailers)
    serve(proxy, backend)
    call = proxy.edge.call(fields=[(b"te", b"trailers")])
    assert call.read_all() == b"onetwo"
    assert call.trailers == [(b"grpc-status", b"0"), (b"x-sum", b"1"), (b"x-sum", b"2")]


@pytest.mark.parametrize("other", [b"", b"X-Sum: 1\r\n"], ids=["alone", "beside another"])
@pytest.mark.parametrize(
    "name",
    [
        b"content-length",
        b"transfer-encoding",
        b"cache-control",
        b"trailer",
        b"if-match",
        b"cf-cloudflared-response-meta",
        b"cf-int-x",
    ],
)
def test_fields_not_allowed_as_trailers_are_dropped(proxy: Connector, name: bytes, other: bytes) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n"
    with served_by(proxy, answering(chunked + name + b": 9\r\n" + other + b"\r\n")):
        call = proxy.edge.call(fields=[(b"te", b"trailers")])
        assert call.read_all() == b"one"
    assert call.trailers == ([(b"x-sum", b"1")] if other else None)
    assert not call.response().values(name)


def test_a_grpc_call_that_ends_with_its_head_has_its_status_among_the_response_fields(proxy: Connector) -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 5\r\ncontent-length: 0\r\n\r\n"
    with served_by(proxy, answering(raw)):
        call = proxy.edge.call(method="POST", fields=[(b"content-type", b"application/grpc"), (b"te", b"trailers")])
        assert call.read_all() == b""
    assert call.response().values(b"grpc-status") == [b"5"]
    assert call.trailers is None


# -- when bytes are sent on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        b"content-type: text/event-stream\r\ncontent-length: 10",
        b"content-type: Application/gRPC+proto\r\ncontent-length: 10",
        b"content-type: application/x-ndjson\r\ncontent-length: 10",
        b"content-type: text/plain\r\ntransfer-encoding: chunked",
        b"content-type: text/plain",
        b"content-type: text/plain\r\ncontent-length: 10",
    ],
    ids=["events", "gRPC", "lines of JSON", "chunked", "to the end of the connection", "of known length"],
)
def test_each_part_of_a_response_is_forwarded_before_the_backend_sends_the_next(
    proxy: Connector, fields: bytes
) -> None:
    has_head, has_half = threading.Event(), threading.Event()
    is_chunked = b"chunked" in fields

    def talk(dialogue: Dialogue) -> None:
        def say(data: bytes) -> None:
            dialogue.send(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)

        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % fields)
        assert has_head.wait(20), "the head was kept back"
        say(b"half ")
        assert has_half.wait(20), "the body was kept back"
        say(b"whole")
        if is_chunked:
            dialogue.send(b"0\r\n\r\n")

    with served_by(proxy, talk):
        call = proxy.edge.call()
        assert call.response().status_code == 200
        has_head.set()
        assert call.read(5) == b"half "
        has_half.set()
        assert call.read_all() == b"whole"


# -- broken ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf \r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf \r\nno chunk\r\n",
    ],
    ids=["of known length", "chunked", "no HTTP any more"],
)
def test_a_truncated_response_resets_its_stream_only(proxy: Connector, raw: bytes) -> None:
    with served_by(proxy, answering(raw)):
        call = proxy.edge.call("/broken")
        assert call.response().status_code == 200
        assert call.read(5) == b"half "
        assert call.wait_until_lost() == ErrorCode.INTERNAL_ERROR
    assert len(proxy.edge.ledger.registered) == 1


@pytest.mark.parametrize("raw", [b"", b"no HTTP\r\n\r\n"], ids=["nothing", "no HTTP"])
def test_a_backend_without_a_valid_response_is_answered_502_of_the_connector(proxy: Connector, raw: bytes) -> None:
    with served_by(proxy, answering(raw)):
        call = proxy.edge.call()
        response = call.response()
        assert call.read_all() == b""
    assert (response.status_code, response.source) == (502, "cloudflared")
    assert sorted(name for name, _ in response.raw.fields) == [b"cf-cloudflared-response-meta", b"content-length"]


def test_a_404_of_the_proxy_has_a_body_and_is_attributed_to_the_origin(proxy: Connector) -> None:
    proxy.put({"listeners": [], "routes": []})
    call = proxy.edge.call()
    assert (call.response().status_code, call.response().source) == (404, "origin")
    assert b"404" in call.read_all()


def test_a_backend_timeout_is_answered_504_with_a_body(proxy: Connector) -> None:
    gate = threading.Event()

    def talk(dialogue: Dialogue) -> None:
        dialogue.read_request()
        assert gate.wait(20)

    with served_by(proxy, talk, timeouts={"request": "200ms"}):
        call = proxy.edge.call()
        assert (call.response().status_code, call.response().source) == (504, "origin")
        assert b"504" in call.read_all()
        gate.set()


def test_a_response_before_the_end_of_the_request_ends_its_stream(proxy: Connector) -> None:
    proxy.put({"listeners": [], "routes": [{"rules": [{"respond": {"statusCode": 200, "body": "enough"}}]}]})
    call = proxy.edge.call(method="POST", end_stream=False)
    assert call.read_all() == b"enough"
    call.send(b"more", waits=False)
    proxy.edge.wait_for(lambda: not proxy.edge.ledger.in_flight, "the end of the stream")
    assert not proxy.edge.ledger.violations


# -- cancelled ---------------------------------------------------------------------------------------------------------


def test_a_response_reset_by_the_edge_is_cancelled_at_the_backend(proxy: Connector) -> None:
    closed = threading.Event()

    def talk(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        wait_for_end(dialogue)
        closed.set()

    with served_by(proxy, talk):
        call = proxy.edge.call()
        assert call.read(4) == b"some"
        call.reset()
        assert closed.wait(20), "the backend's connection was kept"


def test_a_request_reset_by_the_edge_before_the_response_is_cancelled_at_the_backend(proxy: Connector) -> None:
    asked, closed = threading.Event(), threading.Event()

    def talk(dialogue: Dialogue) -> None:
        dialogue.read_request()
        asked.set()
        wait_for_end(dialogue)
        closed.set()

    with served_by(proxy, talk):
        call = proxy.edge.call()
        assert asked.wait(20)
        call.reset(ErrorCode.INTERNAL_ERROR)
        assert closed.wait(20), "the backend's connection was kept"


# -- backends ----------------------------------------------------------------------------------------------------------


def test_concurrent_requests_share_few_backend_connections(proxy: Connector) -> None:
    """25 rounds of eight at a time."""

    def respond(received: Received) -> Reply:
        return Reply(body=received.target.encode())

    with RecordingBackend(respond=respond) as backend:
        serve(proxy, backend)
        for turn in range(25):
            calls = [proxy.edge.call(f"/{turn}/{number}") for number in range(8)]
            assert [call.read_all() for call in calls] == [b"/%d/%d" % (turn, number) for number in range(8)]
        assert backend.connections <= 8
