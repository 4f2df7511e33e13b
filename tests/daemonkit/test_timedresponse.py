"""A response has one time limit for all of it, however slowly it arrives."""

from __future__ import annotations

import http.client
import select
import time

import pytest

from daemonkit.timedresponse import response_within
from tests.support.socketbackend import Dialogue, SocketBackend

PATIENCE_S = 15.0
LIMIT_S = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"


def drip(dialogue: Dialogue, begin: bytes, piece: bytes) -> None:
    """An octet or two now and then, so that a socket's own timeout never expires."""
    dialogue.read_request()
    dialogue.send(begin)
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and not dialogue.backend.over.wait(0.02):
        dialogue.send(piece)


def asked(port: int, limit_s: float) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.response_class = response_within(limit_s)
    connection.request("GET", "/")
    return connection


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(HEAD + b"\r\n", b"x"), (HEAD, b"A: b\r\n"), (b"", b"H"), (HEAD + b"\r\n", b"")],
    ids=["body", "fields", "status line", "silence"],
)
def test_a_response_that_arrives_too_slowly_ends_at_its_time_limit(begin: bytes, piece: bytes) -> None:
    with SocketBackend(lambda dialogue: drip(dialogue, begin, piece)) as backend:
        connection = asked(backend.port, LIMIT_S)

        with pytest.raises(TimeoutError, match=r"not complete after 0\.5 s"):
            connection.getresponse().read()

        connection.close()


def test_the_timeout_of_the_socket_still_applies() -> None:
    with SocketBackend(lambda dialogue: drip(dialogue, HEAD + b"\r\n", b"")) as backend:
        connection = asked(backend.port, 3600.0)
        connection.sock.settimeout(LIMIT_S)

        with pytest.raises(TimeoutError, match="timed out"):
            connection.getresponse().read()

        connection.close()


@pytest.mark.parametrize(("begin", "said"), [(b"", "timed out"), (HEAD + b"\r\n", "not complete after")])
def test_where_both_limits_are_the_same_a_peer_that_has_said_nothing_is_silent_and_another_slow(
    begin: bytes, said: str
) -> None:
    with SocketBackend(lambda dialogue: drip(dialogue, begin, b"")) as backend:
        connection = asked(backend.port, LIMIT_S)
        connection.sock.settimeout(LIMIT_S)
        if begin:
            assert select.select([connection.sock], [], [], PATIENCE_S)[0], "the limit begins once it is there"

        with pytest.raises(TimeoutError, match=said):
            connection.getresponse().read()

        connection.close()


def test_each_response_on_a_connection_has_its_own_time_limit() -> None:
    with SocketBackend() as backend:
        connection = asked(backend.port, PATIENCE_S)
        assert connection.getresponse().read() == b"connection 1"
        connection.request("GET", "/")

        assert connection.getresponse().read() == b"connection 1"

        connection.close()


def _negative_chunk(dialogue: Dialogue, size: bytes) -> None:
    dialogue.read_request()
    dialogue.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n%b" % (size, b"x" * 100_000))


@pytest.mark.parametrize("size", [b"-1", b"-5"])
@pytest.mark.parametrize("method", ["read", "read1"])
def test_a_chunk_of_a_negative_size_is_refused_instead_of_read_to_the_end_of_the_connection(
    size: bytes, method: str
) -> None:
    with SocketBackend(lambda dialogue: _negative_chunk(dialogue, size)) as backend:
        connection = asked(backend.port, PATIENCE_S)
        response = connection.getresponse()

        with pytest.raises(http.client.HTTPException, match=f"a chunk of {size.decode()} bytes"):
            getattr(response, method)(10)

        connection.close()


def test_a_response_without_a_length_is_read_to_the_end_of_the_connection() -> None:
    with SocketBackend(lambda dialogue: _unmeasured(dialogue, b"x" * 100_000)) as backend:
        connection = asked(backend.port, PATIENCE_S)

        assert len(connection.getresponse().read()) == 100_000

        connection.close()


def _unmeasured(dialogue: Dialogue, body: bytes) -> None:
    dialogue.read_request()
    dialogue.send(b"HTTP/1.1 200 OK\r\n\r\n%b" % body)
