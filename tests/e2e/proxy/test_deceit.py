"""Fields with which one side could deceive the other, checked by what the other really received."""

import socket

import pytest
import requests

from tests.support.gateway import Gateway, route_to
from tests.support.h2peer import H2Client
from tests.support.recordingbackend import RecordingBackend, Reply
from tests.support.socketbackend import Dialogue, SocketBackend

DEADLINE_S = 20.0


def test_a_host_field_in_a_response_is_dropped(gateway: Gateway, backend: RecordingBackend) -> None:
    backend.respond = lambda received: Reply(headers=(("Host", "a.example"), ("X-Kept", "1")), body=b"ok")
    gateway.serve(route_to(backend.address))
    reply = requests.get(gateway.url_of("/"), timeout=DEADLINE_S)

    assert (reply.status_code, reply.content, reply.headers["X-Kept"]) == (200, b"ok", "1")
    assert "Host" not in reply.headers


def test_forwarding_fields_in_request_trailers_are_dropped(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))
    head = b"POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"X-Forwarded-For: 192.0.2.1\r\nX-Request-Id: mine\r\nX_Forwarded_Host: b.example\r\nChecksum: 1\r\n"
    with socket.create_connection(gateway.clear, timeout=DEADLINE_S) as client:
        client.sendall(head + b"4\r\nbody\r\n0\r\n" + trailers + b"\r\n")
        while client.recv(65536):
            pass
    (received,) = backend.wait_for_requests(1)

    assert received.trailers == (("checksum", "1"),)
    assert received.value("x-forwarded-for") == "127.0.0.1"


@pytest.mark.parametrize("name", [b"content-length", b"transfer-encoding", b"cache-control", b"set-cookie"])
def test_framing_caching_and_cookie_fields_in_response_trailers_are_dropped(gateway: Gateway, name: bytes) -> None:
    def talk(dialogue: Dialogue) -> None:
        dialogue.read_request()
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        dialogue.send(head + b"3\r\none\r\n0\r\n" + name + b": 9\r\nX-Sum: 1\r\n\r\n")

    received = b""
    with SocketBackend(talk) as backend, socket.create_connection(gateway.clear, timeout=DEADLINE_S) as client:
        gateway.serve(route_to(backend.address))
        client.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n")
        while data := client.recv(65536):
            received += data

    head, _, body = received.partition(b"\r\n\r\n")
    assert body == b"3\r\none\r\n0\r\nX-Sum: 1\r\n\r\n"
    assert name + b": 9" not in head


@pytest.mark.parametrize("name", ["content_length", "transfer_encoding", "x_forwarded_for", "cf.connecting.ip"])
def test_field_names_that_backends_may_mistake_for_others_are_dropped_over_http2(
    gateway: Gateway, backend: RecordingBackend, name: str
) -> None:
    gateway.serve(route_to(backend.address))
    with H2Client(gateway.clear[1]) as client:
        stream_id = client.request(fields=[(name, "7"), ("x-kept", "1")])
        assert client.head(stream_id)[":status"] == "200"
    (received,) = backend.wait_for_requests(1)

    assert (received.values(name), received.value("x-kept")) == ([], "1")
