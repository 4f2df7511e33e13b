"""Backends that fail in every way: what the client gets, how many requests a backend got, and what the log says."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable

import pytest

from tests.e2e.proxy.doors import through_both_doors_alone
from tests.support.asking import ask, connect
from tests.support.gateway import Gateway, resident_bytes, route_to
from tests.support.h2peer import H2Client
from tests.support.kernelqueues import queued_bytes
from tests.support.ports import ReservedPort
from tests.support.recordingbackend import RecordingBackend
from tests.support.socketbackend import Dialogue, SocketBackend

MIB = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


def test_a_backend_that_refuses_is_answered_502(lone_gateway: Gateway) -> None:
    with ReservedPort() as nobody:
        lone_gateway.serve(route_to(nobody.address))

        answer = ask(lone_gateway.clear[1])

    assert 502 == answer.status_code
    request_id = answer.value("x-request-id")
    assert request_id
    assert request_id in answer.body.decode()
    line = lone_gateway.access_line(request_id)
    assert (502, "refused") == (line["status_code"], line["reason"])


@through_both_doors_alone
def test_connection_errors_are_retried_at_another_address(lone_gateway: Gateway, backend: RecordingBackend) -> None:
    with ReservedPort() as nobody:
        addresses = [nobody.address, backend.address]
        lone_gateway.serve(route_to("", addresses=addresses, retry={"attempts": 3, "backoff": "1ms"}))

        answers = [ask(lone_gateway.clear[1]).status_code for _ in range(10)]

    assert [200] * 10 == answers


@through_both_doors_alone
def test_a_backend_that_resets_before_it_answers_is_502(lone_gateway: Gateway) -> None:
    def read_and_reset(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.reset()

    with SocketBackend(read_and_reset) as backend:
        lone_gateway.serve(route_to(backend.address))

        assert 502 == ask(lone_gateway.clear[1], method="POST", body=b"x").status_code
        assert 1 == backend.accepted


def cut_body(head: bytes, *, is_reset: bool) -> Callable[[Dialogue], None]:
    def script(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(head + b"x" * 5000)
        if is_reset:
            dialogue.reset()

    return script


CUT = {
    "length": HEAD,
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
}


@through_both_doors_alone
@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("framing", CUT)
def test_a_truncated_body_never_looks_complete(lone_gateway: Gateway, framing: str, is_reset: bool) -> None:
    with SocketBackend(cut_body(CUT[framing], is_reset=is_reset)) as backend:
        lone_gateway.serve(route_to(backend.address))

        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(lone_gateway.clear[1])
        with H2Client(lone_gateway.clear[1]) as client:
            stream_id = client.request()
            client.wait_for(lambda: client.is_reset(stream_id), "RST_STREAM")
            assert not client.has_ended(stream_id)

            assert "502" != client.head(client.request("/again"))[":status"]


@through_both_doors_alone
def test_a_body_without_a_length_ends_with_its_connection(lone_gateway: Gateway) -> None:
    def script(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000)

    with SocketBackend(script) as backend:
        lone_gateway.serve(route_to(backend.address))

        assert b"x" * 5000 == ask(lone_gateway.clear[1]).body


CLOSING = b"Connection: close"
OLD_DEVICES = {
    "a camera": b"HTTP/1.1 200 OK\r\n%b\r\nContent-Type: text/html\n\nhello",
    "a router": b"HTTP/1.0 200 OK\nServer: GoAhead-Webs\r\n%b\nContent-Type: text/html\n\nhello",
    "a microcontroller": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n%b\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5   \r\nhello\r\n0   \r\n\r\n",
    "a router that says how long its chunks are": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n%b\r\n"
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a stream of SHOUTcast": b"ICY 200 OK\r\n%b\r\nContent-Type: text/html\r\n\r\nhello",
    "a field on two lines": b"HTTP/1.1 200 OK\r\nContent-Type: text/html;\n  charset=utf-8\r\n%b\r\n\r\nhello",
}


@through_both_doors_alone
@pytest.mark.parametrize("device", OLD_DEVICES)
def test_odd_responses_of_old_devices_that_browsers_accept_are_forwarded(lone_gateway: Gateway, device: str) -> None:
    def script(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(OLD_DEVICES[device] % CLOSING)

    with SocketBackend(script) as backend:
        lone_gateway.serve(route_to(backend.address))

        answer = ask(lone_gateway.clear[1])
        assert (200, b"hello") == (answer.status_code, answer.body)
        assert answer.value("content-type") in ("text/html", "text/html; charset=utf-8")
        with H2Client(lone_gateway.clear[1]) as client:
            stream_id = client.request()
            assert "200" == client.head(stream_id)[":status"]
            client.wait_for(lambda: client.has_ended(stream_id), "the end")


def stall(dialogue: Dialogue) -> None:
    dialogue.read_request()
    dialogue.backend.over.wait(20)


@through_both_doors_alone
@pytest.mark.parametrize("timeouts", [{"request": "150ms"}, {"backendRequest": "150ms"}])
def test_a_backend_that_stalls_is_answered_504(lone_gateway: Gateway, timeouts: dict[str, str]) -> None:
    with SocketBackend(stall) as backend:
        lone_gateway.serve(route_to(backend.address, timeouts=timeouts))

        assert 504 == ask(lone_gateway.clear[1]).status_code
        backend.over.set()


@through_both_doors_alone
def test_a_backend_that_stalls_for_ever_is_given_up_at_the_idle_timeout(lone_gateway: Gateway) -> None:
    with SocketBackend(stall) as backend:
        lone_gateway.serve(route_to(backend.address), limits={"streamIdleTimeout": "150ms"})

        assert 504 == ask(lone_gateway.clear[1]).status_code
        backend.over.set()


@through_both_doors_alone
def test_a_backend_that_stalls_in_its_body_is_cut_off(lone_gateway: Gateway) -> None:
    def stall_in_body(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(HEAD + b"x" * 100)
        dialogue.read_to_end()

    with SocketBackend(stall_in_body) as backend:
        # It is 504 if the time is over before the backend has begun its response, as on a stalled machine.
        for limit in ("1s", "10s"):
            lone_gateway.serve(route_to(backend.address, timeouts={"request": limit}))
            try:
                assert 504 == ask(lone_gateway.clear[1]).status_code
            except (http.client.IncompleteRead, ConnectionError):
                break
        else:
            pytest.fail("the body was never cut off")
        backend.wait_until_closed()


GARBAGE = {
    "another protocol": b"220 mail.example ESMTP ready\r\n",
    "binary": bytes(range(128, 256)) * 10,
    "nothing but line ends": b"\r\n" * 3000,
    "no status code": b"HTTP/1.1 OK\r\n\r\n",
    "status code of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "another version": b"HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "two lengths and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Length: 2\r\n\r\n0\r\n\r\n",
    "a status line that goes on": b"HTTP/1.1 200 OK\r\n b\r\nContent-Length: 0\r\n\r\n",
    "field name with a space": b"HTTP/1.1 200 OK\r\nX Y: a\r\nContent-Length: 0\r\n\r\n",
    "NUL in a field": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 2_000_000,
    "a switch nobody asked for": b"HTTP/1.1 101 Switch\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    "HTTP/2 in answer to HTTP/1.1": b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "TLS in answer to HTTP/1.1": b"\x15\x03\x01\x00\x02\x02\x46",
}


@through_both_doors_alone
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_answered_502_and_its_connection_is_closed(lone_gateway: Gateway, garbage: str) -> None:
    def babble(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(GARBAGE[garbage])
        dialogue.read_to_end()

    with SocketBackend(babble) as backend:
        lone_gateway.serve(route_to(backend.address))

        assert 502 == ask(lone_gateway.clear[1]).status_code
        backend.wait_until_closed()


BODIES = (b"mine", b"not asked for")


@through_both_doors_alone
@pytest.mark.parametrize("is_in_one", [True, False])
def test_bytes_after_a_response_never_reach_the_next_client(lone_gateway: Gateway, is_in_one: bool) -> None:
    def answer_twice(dialogue: Dialogue) -> None:
        dialogue.read_request()
        answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in BODIES]
        for piece in [b"".join(answers)] if is_in_one else answers:
            dialogue.send(piece)
        dialogue.read_to_end()

    with SocketBackend(answer_twice) as backend:
        lone_gateway.serve(route_to(backend.address))

        for _ in range(5):
            assert b"mine" == ask(lone_gateway.clear[1]).body
            if not is_in_one:
                # Bytes that arrive once the next request has been sent cannot be told from its response.
                backend.wait_until_closed()


def close_on_second_request(dialogue: Dialogue) -> None:
    """Like a server whose keep-alive timeout expires at this very moment."""
    dialogue.read_request()
    dialogue.answer(b"connection %d" % dialogue.number)
    dialogue.read_request()


@through_both_doors_alone
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_an_idempotent_request_is_repeated_when_its_kept_connection_closes(lone_gateway: Gateway, method: str) -> None:
    with SocketBackend(close_on_second_request) as backend:
        lone_gateway.serve(route_to(backend.address))
        first = ask(lone_gateway.clear[1])

        second = ask(lone_gateway.clear[1], method=method)

        assert (200, b"connection 1") == (first.status_code, first.body)
        assert 200 == second.status_code
        assert 2 == backend.accepted


@through_both_doors_alone
def test_a_post_is_not_repeated_when_its_kept_connection_closes(lone_gateway: Gateway) -> None:
    """The backend may have acted on it."""
    with SocketBackend(close_on_second_request) as backend:
        lone_gateway.serve(route_to(backend.address))
        ask(lone_gateway.clear[1])

        assert 502 == ask(lone_gateway.clear[1], method="POST", body=b"pay").status_code
        assert 1 == backend.accepted


@through_both_doors_alone
def test_a_connection_that_the_backend_closed_while_idle_is_not_used_again(lone_gateway: Gateway) -> None:
    def answer_once(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"connection %d" % dialogue.number)

    with SocketBackend(answer_once) as backend:
        lone_gateway.serve(route_to(backend.address))
        for number in range(1, 6):
            answer = ask(lone_gateway.clear[1], method="POST", body=b"pay")
            assert (200, b"connection %d" % number) == (answer.status_code, answer.body)
            backend.wait_until_closed()


@through_both_doors_alone
def test_an_early_answer_to_an_upload_reaches_the_client(lone_gateway: Gateway) -> None:
    def refuse_early(dialogue: Dialogue) -> None:
        dialogue.read_until(b"\r\n\r\n")
        dialogue.answer(b"too large", b"Connection: close", status=b"413 Content Too Large")
        dialogue.read_to_end()

    with SocketBackend(refuse_early) as backend:
        lone_gateway.serve(route_to(backend.address))
        with H2Client(lone_gateway.clear[1]) as client:
            stream_id = client.request(method="POST", fields=[("content-length", "50000000")], end_stream=False)
            client.send(stream_id, b"x" * 10_000)

            assert "413" == client.head(stream_id)[":status"]
            assert b"too large" == client.body(stream_id)


def test_an_early_response_delimited_by_close_is_complete_although_the_upload_is_reset(lone_gateway: Gateway) -> None:
    """As with cheroot's: the reset provoked by the rest of the upload comes after the end of the response."""

    def refuse_and_close(dialogue: Dialogue) -> None:
        dialogue.read_until(b"\r\n\r\n")
        dialogue.send(b"HTTP/1.1 413 Content Too Large\r\n\r\ntoo large")
        dialogue.sock.shutdown(socket.SHUT_WR)
        dialogue.reset()

    with SocketBackend(refuse_and_close) as backend:
        lone_gateway.serve(route_to(backend.address))
        for _ in range(20):
            answer = upload_all_the_while(lone_gateway.clear[1])
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert answer.endswith(b"\r\n\r\n9\r\ntoo large\r\n0\r\n\r\n")


def upload_all_the_while(port: int) -> bytes:
    """The whole response to a client that goes on sending."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n")

        def send() -> None:
            with contextlib.suppress(OSError):
                sock.sendall(bytes(100_000_000))

        sender = threading.Thread(target=send)
        sender.start()
        answer = bytearray()
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(65536):
                answer += data
        sender.join()
    return bytes(answer)


@through_both_doors_alone
def test_a_client_that_stops_an_upload_at_an_early_response_gets_its_body_and_the_backend_no_complete_upload(
    lone_gateway: Gateway,
) -> None:
    """curl 7.88 ends its stream short of its content-length as soon as it sees an error status."""
    has_stopped = threading.Event()
    received: list[bytes] = []

    def refuse_early(dialogue: Dialogue) -> None:
        dialogue.read_until(b"\r\n\r\n")
        dialogue.sock.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\n")
        assert has_stopped.wait(20)
        dialogue.sock.sendall(b"too large")
        received.append(dialogue.read_to_end())

    with SocketBackend(refuse_early) as backend:
        fixed = {"matches": [{"path": {"value": "/fixed"}}], "respond": {"statusCode": 204}}
        lone_gateway.serve(route_to(backend.address), {"name": "fixed", "rules": [fixed]})
        with H2Client(lone_gateway.clear[1]) as client:
            stream_id = client.request(method="POST", fields=[("content-length", "20")], end_stream=False)
            client.send(stream_id, b"x" * 10)
            assert "413" == client.head(stream_id)[":status"]
            client.send(stream_id, b"y", end_stream=True)
            assert "204" == client.head(client.request("/fixed"))[":status"]
            has_stopped.set()

            assert b"too large" == client.body(stream_id)
            backend.wait_until_closed()
        assert received[0] in (b"x" * 10, b"x" * 10 + b"y")


@through_both_doors_alone
def test_a_response_reaches_the_client_when_the_backend_closes_amid_the_upload(lone_gateway: Gateway) -> None:
    """It closes with most of the body unread, which resets the connection while the rest is in flight."""

    def refuse_and_close(dialogue: Dialogue) -> None:
        dialogue.read_until(b"\r\n\r\n")
        dialogue.answer(b"too large", b"Connection: close", status=b"413 Content Too Large")
        dialogue.sock.close()

    with SocketBackend(refuse_and_close) as backend:
        lone_gateway.serve(route_to(backend.address))
        for _ in range(20):
            answer = ask(lone_gateway.clear[1], method="POST", body=bytes(MIB))
            assert (413, b"too large") == (answer.status_code, answer.body)


@through_both_doors_alone
def test_a_client_that_disconnects_cancels_the_backends_request(lone_gateway: Gateway) -> None:
    arrived = threading.Event()

    def wait_for_the_end(dialogue: Dialogue) -> None:
        dialogue.read_request()
        arrived.set()
        assert dialogue.read_to_end() == b""

    with SocketBackend(wait_for_the_end) as backend:
        lone_gateway.serve(route_to(backend.address))
        connection = connect(lone_gateway.clear[1])
        connection.request("GET", "/", headers={"Host": "a.example"})
        assert arrived.wait(10)

        connection.close()

        backend.wait_until_closed()


@through_both_doors_alone
def test_a_slow_reader_stops_a_fast_backend_and_costs_little_memory(lone_gateway: Gateway) -> None:
    """256 MiB for a client that reads nothing until the backend can send no more."""
    size_bytes = 256 * MIB
    stuck = threading.Event()
    sent_bytes = 0

    def pour(dialogue: Dialogue) -> None:
        nonlocal sent_bytes
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size_bytes)
        chunk = memoryview(bytes(MIB))
        dialogue.sock.settimeout(0.5)
        while sent_bytes < size_bytes:
            try:
                sent_bytes += dialogue.sock.send(chunk[: size_bytes - sent_bytes])
            except TimeoutError:
                stuck.set()
                dialogue.sock.settimeout(20)

    with SocketBackend(pour) as backend:
        lone_gateway.serve(route_to(backend.address))
        (worker,) = lone_gateway.worker_pids
        before_bytes = resident_bytes(worker)
        connection = connect(lone_gateway.clear[1])
        connection.request("GET", "/", headers={"Host": "a.example"})
        response = connection.getresponse()

        assert stuck.wait(20)
        assert sent_bytes - queued_bytes(worker) < 8 * MIB
        assert resident_bytes(worker) - before_bytes < 16 * MIB
        received_bytes = 0
        while data := response.read(MIB):
            received_bytes += len(data)
        assert size_bytes == received_bytes
        assert resident_bytes(worker) - before_bytes < 16 * MIB
        connection.close()


@through_both_doors_alone
def test_a_slow_backend_stops_a_fast_upload(lone_gateway: Gateway) -> None:
    """The client's writes block while the backend does not read; then the whole body arrives."""
    size_bytes = 256 * MIB
    go_on = threading.Event()

    def read_late(dialogue: Dialogue) -> None:
        dialogue.read_until(b"\r\n\r\n")
        assert go_on.wait(20)
        left_bytes = size_bytes - len(dialogue.unread)
        while left_bytes:
            left_bytes -= len(dialogue.sock.recv(min(left_bytes, MIB)))
        dialogue.answer(b"all there")

    with SocketBackend(read_late) as backend:
        lone_gateway.serve(route_to(backend.address))
        (worker,) = lone_gateway.worker_pids
        before_bytes = resident_bytes(worker)
        connection = connect(lone_gateway.clear[1])
        connection.putrequest("PUT", "/")
        connection.putheader("Content-Length", str(size_bytes))
        connection.endheaders()
        assert connection.sock is not None
        connection.sock.settimeout(0.5)
        sent_bytes, chunk = 0, memoryview(bytes(MIB))
        try:
            while sent_bytes < size_bytes:
                sent_bytes += connection.sock.send(chunk[: size_bytes - sent_bytes])
        except TimeoutError:
            pass

        assert sent_bytes - queued_bytes(worker) < 8 * MIB
        assert resident_bytes(worker) - before_bytes < 16 * MIB
        go_on.set()
        connection.sock.settimeout(20)
        while sent_bytes < size_bytes:
            sent_bytes += connection.sock.send(chunk[: size_bytes - sent_bytes])
        assert b"all there" == connection.getresponse().read()
        connection.close()


@through_both_doors_alone
def test_an_address_that_keeps_failing_is_left_alone_for_a_while(
    lone_gateway: Gateway, backend: RecordingBackend
) -> None:
    def fail(dialogue: Dialogue) -> None:
        while dialogue.read_request():
            dialogue.answer(b"", status=b"503 Service Unavailable")

    with SocketBackend(fail) as broken:
        spec = {
            "name": "pair",
            "addresses": [broken.address, backend.address],
            "passiveHealth": {"consecutiveFailures": 3, "ejectionTime": "1h"},
        }
        route = route_to("")
        route["rules"][0]["backends"] = [{"backend": "pair"}]
        lone_gateway.serve(route, backends=[spec])

        answers = [ask(lone_gateway.clear[1]).status_code for _ in range(40)]

    assert 3 == answers.count(503)
    assert [200] * 20 == answers[-20:]
