"""HTTP/2 clients with prior knowledge on plain doors, played by an independent implementation."""

import socket
from collections.abc import Callable
from typing import Final

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from proxy.doors.h2connection import H2Connection
from proxy.doors.rests import REST_BYTES, REST_S
from proxy.h2 import ErrorCode, Settings, frames
from proxy.h2.sending import DRAIN_PING
from tests.proxy.doors.h2client import Answer, H2Client, request_head
from tests.proxy.doors.rig import WAIT_S, Rig, read_all, read_until, serving
from tests.proxy.h2.wire import GET, PREFACE_AND_SETTINGS, headers

MIB = 1024 * 1024
HEADER_TIMEOUT_S = 10.0
"""Unless the document says otherwise."""
LONGER_THAN_TESTS_S = 600.0
PATIENT: Final = {"limits": {"idleTimeout": "1h"}}


def client_of(rig: Rig, **options: bool | int) -> H2Client:
    return H2Client(rig.connect(), **options)  # type: ignore[arg-type]


def test_each_stream_is_answered_by_its_own_exchange() -> None:
    with serving() as rig, client_of(rig) as client:
        held = client.ask("/hold")
        assert b"hello\n" == client.get("/hello").body
        assert bytes(100_000) == client.get("/bulk/100000").body
        rig.call(rig.services.let_go)

        assert b"hello\n" == client.answer(held).body
        assert "HTTP/2" == rig.services.begun.get_nowait().client.arrival.protocol
        rig.wait_for(lambda: rig.door_stats.connections == 1, "one connection in the account")


def test_interim_answers_and_trailers_come_through() -> None:
    with serving() as rig, client_of(rig) as client:
        assert [b"103"] == client.get("/interim").interim
        answer = client.get("/trailers")

        assert (b"body\n", {b"checksum": b"1234"}) == (answer.body, answer.trailers)


def test_a_body_goes_through_and_back_under_flow_control() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/echo", method="POST", has_body=True)
        client.send(stream_id, b"x" * (3 * MIB), ends=True)

        assert 3 * MIB == len(client.answer(stream_id).body)


def test_trailers_of_a_request_reach_its_exchange() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/count", method="POST", has_body=True)
        client.send(stream_id, b"abc")
        client.h2.send_headers(stream_id, [(b"x-sum", b"1")], end_stream=True)
        client.flush()

        assert b"3 bytes, trailers [x-sum]\n" == client.answer(stream_id).body


@pytest.mark.parametrize("drained_bytes", [0, 64 * 1024], ids=["from the start", "after a while"])
def test_stalled_uploads_do_not_block_others_however_many_there_are(drained_bytes: int) -> None:
    settings = Settings()
    with serving() as rig, client_of(rig) as client:
        client.get("/hello")
        uploads = [
            client.ask(f"/stall/{drained_bytes}", method="POST", has_body=True)
            for _ in range(settings.max_concurrent_streams - 1)
        ]
        for upload in uploads:
            client.send(upload, bytes(drained_bytes))
        # All credit for it has arrived when the response has.
        client.get("/hello")
        for upload in uploads:
            client.send(upload, bytes(client.h2.local_flow_control_window(upload)))
            assert client.h2.local_flow_control_window(upload) == 0

        other = client.ask("/count", method="POST", has_body=True)
        client.send(other, bytes(2 * MIB), ends=True)
        assert b"2097152 bytes, trailers []\n" == client.answer(other).body
        for _ in range(20):
            small = client.ask("/count", method="POST", has_body=True)
            client.send(small, bytes(settings.stream_window_bytes), ends=True)
            assert b"%d bytes, trailers []\n" % settings.stream_window_bytes == client.answer(small).body
        assert client.h2.outbound_flow_control_window > 0


def test_a_stream_is_reset_with_no_error_after_an_early_response() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(stream_id)
        client.read_until(lambda: answer.reset_code is not None)

        assert (413, b"too much\n", 0) == (answer.status_code, answer.body, answer.reset_code)
        assert b"hello\n" == client.get("/hello").body


@pytest.mark.parametrize("has_trailers", [False, True])
@pytest.mark.parametrize("is_another_underway", [False, True])
def test_an_early_response_to_a_request_received_completely_is_not_followed_by_a_reset(
    is_another_underway: bool, has_trailers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as rig, client_of(rig) as client:
        if is_another_underway:
            client.answer(client.ask("/early", method="POST", has_body=True))
        stream_id = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream_id, request_head("/early", "POST"))
        client.h2.send_data(stream_id, b"order", end_stream=not has_trailers)
        if has_trailers:
            client.h2.send_headers(stream_id, [(b"x-sum", b"1")], end_stream=True)
        client.answers[stream_id] = Answer()
        client.flush()
        answer = client.answer(stream_id)

        assert (413, b"too much\n", None) == (answer.status_code, answer.body, answer.reset_code)
        assert b"hello\n" == client.get("/hello").body
        assert "bug" not in caplog.text


@pytest.fixture
def has_long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stall of the machine ends them: time is set by the rig."""
    monkeypatch.setattr("proxy.doors.rests.REST_S", LONGER_THAN_TESTS_S)


@pytest.mark.usefixtures("has_long_rests")
def test_the_rest_of_an_upload_is_read_after_its_response() -> None:
    """Some clients send the whole body before they read the response."""
    with serving(**PATIENT) as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(stream_id)
        client.send(stream_id, bytes(3 * MIB), ends=True)
        client.get("/hello")
        rig.pass_time(LONGER_THAN_TESTS_S)

        assert b"hello\n" == client.get("/hello").body
        assert (413, b"too much\n", None) == (answer.status_code, answer.body, answer.reset_code)


@pytest.mark.usefixtures("has_long_rests")
def test_an_upload_whose_window_was_used_up_may_go_on_after_its_response() -> None:
    """Bytes that its exchange held are credited at once, and not again when the exchange releases them."""
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/hold", method="POST", has_body=True)
        window_bytes = client.h2.local_flow_control_window(stream_id)
        client.send(stream_id, bytes(window_bytes))
        exchange = rig.services.begun.get(timeout=WAIT_S)
        rig.wait_for(lambda: exchange.received_bytes == window_bytes, "the body")
        rig.call(rig.services.let_go)
        answer = client.answer(stream_id)
        client.send(stream_id, bytes(1))
        rig.call(lambda: exchange.client.release(window_bytes))
        client.send(stream_id, bytes(3 * MIB), ends=True)

        assert b"hello\n" == client.get("/hello").body
        assert (200, None) == (answer.status_code, answer.reset_code)


@pytest.mark.usefixtures("has_long_rests")
def test_an_answered_upload_is_reset_after_its_time() -> None:
    with serving(**PATIENT) as rig, client_of(rig) as client:
        first = client.answer(client.ask("/early", method="POST", has_body=True))
        client.get("/hello")
        rig.pass_time(LONGER_THAN_TESTS_S / 2)
        stream_id = client.ask("/early", method="POST", has_body=True)
        second = client.answer(stream_id)
        client.get("/hello")
        assert (None, None) == (first.reset_code, second.reset_code)

        rig.pass_time(LONGER_THAN_TESTS_S / 2)
        client.read_until(lambda: first.reset_code is not None)
        client.send(stream_id, bytes(MIB))
        client.get("/hello")
        assert (ErrorCodes.NO_ERROR, None) == (first.reset_code, second.reset_code)
        rig.pass_time(LONGER_THAN_TESTS_S / 2)
        client.read_until(lambda: second.reset_code is not None)
        assert ErrorCodes.NO_ERROR == second.reset_code


@pytest.mark.usefixtures("has_long_rests")
def test_an_answered_upload_is_reset_beyond_a_bound() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(stream_id)
        client.get("/hello")
        client.send(stream_id, bytes(REST_BYTES))
        client.get("/hello")
        assert answer.reset_code is None
        client.send(stream_id, bytes(1))
        client.read_until(lambda: answer.reset_code is not None)

        assert ErrorCodes.NO_ERROR == answer.reset_code
        assert b"hello\n" == client.get("/hello").body


@pytest.mark.usefixtures("has_long_rests")
@pytest.mark.parametrize("how", ["data", "trailers", "reset"])
def test_an_answered_upload_that_has_ended_is_not_reset(how: str) -> None:
    with serving(**PATIENT) as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(stream_id)
        client.get("/hello")
        if how == "data":
            client.h2.end_stream(stream_id)
        elif how == "trailers":
            client.h2.send_headers(stream_id, [(b"x-sum", b"1")], end_stream=True)
        else:
            client.h2.reset_stream(stream_id)
        client.flush()
        client.get("/hello")
        rig.pass_time(LONGER_THAN_TESTS_S)

        assert b"hello\n" == client.get("/hello").body
        assert answer.reset_code is None


@pytest.mark.usefixtures("has_long_rests")
def test_the_end_of_an_answered_upload_is_acknowledged_by_a_ping() -> None:
    """curl 7.88 ends a refused upload by itself, and without a body in the answer it waits for a frame after that."""
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        client.answer(stream_id)
        client.get("/hello")
        client.send(stream_id, b"some more")
        client.get("/hello")
        assert [] == client.pings
        client.send(stream_id, b"", ends=True)
        client.read_until(lambda: bool(client.pings))

        assert [b"answered"] == client.pings
        assert b"hello\n" == client.get("/hello").body


def test_a_drain_ends_when_the_rest_of_an_answered_upload_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(stream_id)
        client.get("/hello")
        rig.call(rig.drain)
        client.read_until(lambda: len(client.goaways) == 2)
        rig.pass_time(REST_S)
        client.read_until(lambda: client.is_closed)

        assert 0 == answer.reset_code


def test_the_reset_of_an_answered_upload_cuts_no_other_stream_of_a_draining_connection() -> None:
    with serving() as rig, client_of(rig) as client:
        held = client.ask("/hold")
        upload = client.ask("/early", method="POST", has_body=True)
        answer = client.answer(upload)
        rig.call(rig.drain)
        client.read_until(lambda: len(client.goaways) == 2)
        rig.pass_time(REST_S)
        client.read_until(lambda: answer.reset_code is not None)
        rig.call(rig.services.let_go)

        assert b"hello\n" == client.answer(held).body


@pytest.mark.usefixtures("has_long_rests")
def test_a_draining_connection_ends_after_a_response_before_the_end_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/hold", method="POST", has_body=True)
        rig.services.begun.get(timeout=WAIT_S)
        rig.call(rig.drain)
        client.read_until(lambda: len(client.goaways) == 2)
        rig.call(rig.services.let_go)

        assert b"hello\n" == client.answer(stream_id).body
        client.read_until(lambda: client.is_closed)
        assert 0 == client.answers[stream_id].reset_code


def test_credit_of_answered_uploads_is_never_lost() -> None:
    """Each upload leaves body bytes in an exchange that keeps them: in all, more than the connection window."""
    settings = Settings()
    held_bytes = 100 * settings.stream_window_bytes
    assert 5 * held_bytes > settings.connection_window_bytes
    with serving() as rig, client_of(rig) as client:
        client.get("/hello")
        for _ in range(5):
            uploads = [client.ask("/hold", method="POST", has_body=True) for _ in range(100)]
            for upload in uploads:
                client.send(upload, bytes(settings.stream_window_bytes), ends=True)
            rig.wait_for(lambda: sum(each.received_bytes for each in rig.services.held) == held_bytes, "the bodies")
            rig.call(rig.services.let_go)
            assert [200] * 100 == [client.answer(upload).status_code for upload in uploads]


def test_streams_that_wait_for_the_connection_window_take_turns() -> None:
    with serving() as rig, client_of(rig, gives_credit=False) as client:
        streams = [client.ask(f"/bulk/{MIB}") for _ in range(3)]
        for _ in streams:
            rig.services.begun.get(timeout=10)
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 4 * MIB})
        client.flush()
        wanted_bytes = 65_535

        def has_come() -> bool:
            return sum(len(client.answers[stream_id].body) for stream_id in streams) == wanted_bytes

        client.read_until(has_come)
        for _ in range(30):
            wanted_bytes += 10_000
            client.h2.increment_flow_control_window(10_000)
            client.flush()
            client.read_until(has_come)

        assert all(len(client.answers[stream_id].body) >= 100_000 for stream_id in streams)


@pytest.mark.parametrize("how", ["by the client", "by its exchange"])
def test_streams_that_have_ended_do_not_wait_for_the_connection_window(how: str) -> None:
    """A client that never opens it and cancels request after request would use memory without bound."""
    path = "/bulk/100000" if how == "by the client" else "/cut"
    with serving() as rig, client_of(rig, gives_credit=False) as client:
        client.ask("/bulk/100000")
        rig.services.begun.get(timeout=10)
        for _ in range(30):
            stream_id = client.ask(path)
            rig.services.begun.get(timeout=10)
            if how == "by the client":
                client.h2.reset_stream(stream_id)
                client.flush()
                assert rig.services.gone.get(timeout=10)
            else:
                assert client.answer(stream_id).reset_code is not None
        (connection,) = rig.call(lambda: [*rig.doors._registry])

        assert isinstance(connection, H2Connection)
        assert rig.call(lambda: len(connection.turns.waiting)) == 1


def test_a_stream_resumes_when_its_own_window_opens() -> None:
    with serving() as rig, client_of(rig, gives_credit=False) as client:
        stream_id = client.ask("/bulk/100000")
        answer = client.answers[stream_id]
        client.h2.increment_flow_control_window(MIB)
        client.flush()
        client.read_until(lambda: len(answer.body) == 65_535)
        client.h2.increment_flow_control_window(MIB, stream_id)
        client.flush()

        assert bytes(100_000) == client.answer(stream_id).body


def test_a_stream_reset_by_the_client_cancels_its_exchange() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/hold")
        rig.services.begun.get(timeout=10)
        client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        client.flush()

        assert "reset by the client, code 8" == rig.services.gone.get(timeout=10)
        assert b"hello\n" == client.get("/hello").body


def test_a_stream_error_of_the_client_cancels_its_exchange_with_the_reason() -> None:
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/hold", method="POST", has_body=True, fields=[(b"content-length", b"1")])
        rig.services.begun.get(timeout=WAIT_S)
        client.send(stream_id, b"more")

        assert "body longer than its content-length" == rig.services.gone.get(timeout=WAIT_S)
        assert ErrorCodes.PROTOCOL_ERROR == client.answer(stream_id).reset_code
        assert b"hello\n" == client.get("/hello").body


def test_a_body_shorter_than_its_content_length_after_the_response_began_is_tolerated() -> None:
    """curl 7.88 ends a refused upload so; the exchange does not learn that the body has ended."""
    with serving() as rig, client_of(rig) as client:
        stream_id = client.ask("/begin", method="POST", has_body=True, fields=[(b"content-length", b"100")])
        exchange = rig.services.begun.get(timeout=WAIT_S)
        ended: list[bool] = []
        exchange._on_end = lambda: ended.append(True)
        client.send(stream_id, b"less", ends=True)
        client.get("/hello")
        rig.call(rig.services.let_go)
        answer = client.answer(stream_id)

        assert (200, b"hello\n", None) == (answer.status_code, answer.body, answer.reset_code)
        assert (4, []) == (exchange.received_bytes, ended)
        assert b"hello\n" == client.get("/hello").body


@pytest.mark.parametrize("path", ["/hold", "/" + "a" * 300], ids=["to an exchange", "to be refused"])
def test_requests_that_are_already_reset_are_not_begun(path: str) -> None:
    """Rapid reset (CVE-2023-44487): each costs only the parsing of its head."""
    with serving(limits={"maxUriBytes": 256}) as rig, client_of(rig) as client:
        client.get("/hello")
        for _ in range(20):
            stream_id = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream_id, request_head(path, "POST"))
            client.h2.send_data(stream_id, bytes(100))
            client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        client.flush()
        assert b"hello\n" == client.get("/hello").body

        assert [b"/hello"] * 2 == [rig.services.begun.get_nowait().head.path for _ in range(rig.services.begun.qsize())]
        assert rig.services.gone.empty()
        assert {} == rig.door_stats.refused


def test_a_client_that_closes_its_connection_cancels_all_its_exchanges() -> None:
    with serving() as rig, client_of(rig) as client:
        for _ in range(3):
            client.ask("/hold")
            rig.services.begun.get(timeout=10)
        client.sock.shutdown(socket.SHUT_WR)

        assert ["closed by the client"] * 3 == [rig.services.gone.get(timeout=10) for _ in range(3)]
        rig.wait_for_connections(0)


def test_an_answer_that_breaks_off_resets_its_stream() -> None:
    with serving() as rig, client_of(rig) as client:
        answer = client.get("/break")

        assert (b"half of ", ErrorCodes.INTERNAL_ERROR) == (answer.body, answer.reset_code)


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_an_exchange_resets_only_its_stream() -> None:
    with serving() as rig, client_of(rig) as client:
        held = client.ask("/hold")

        assert ErrorCodes.INTERNAL_ERROR == client.get("/raise").reset_code
        rig.call(rig.services.let_go)
        assert b"hello\n" == client.answer(held).body


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_a_stream_waiting_for_the_connection_window_does_not_block_those_after_it() -> None:
    with serving() as rig, client_of(rig, gives_credit=False) as client:
        first, tripping, last = (client.ask(path) for path in ("/bulk/65535", "/trip/100", "/bulk/100"))
        answers = client.answers
        # All that the connection's window lets through.
        client.read_until(lambda: answers[first].has_ended and bool(answers[last].headers))
        client.h2.increment_flow_control_window(MIB)
        client.flush()

        assert ErrorCodes.INTERNAL_ERROR == client.answer(tripping).reset_code
        assert bytes(100) == client.answer(last).body
        assert "given up after a bug in this proxy" == rig.services.gone.get(timeout=10)


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_at_the_end_of_one_exchange_does_not_keep_others_from_being_cancelled() -> None:
    with serving() as rig, client_of(rig) as client:
        for path in ("/grudge", "/hold"):
            client.ask(path)
            rig.services.begun.get(timeout=10)
        client.sock.close()

        for _ in range(2):
            assert rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)


def test_an_extended_connect_carries_bytes_both_ways() -> None:
    with serving() as rig, client_of(rig) as client:
        client.read_until(lambda: client.h2.remote_settings.enable_connect_protocol == 1)
        stream_id = client.ask("/switch", method="CONNECT", has_body=True, fields=[(b":protocol", b"websocket")])
        client.send(stream_id, b"\x00\xff")
        client.read_until(lambda: client.answers[stream_id].body == b"\x00\xff")
        head = rig.services.begun.get(timeout=10).head

        assert (b"CONNECT", b"websocket") == (head.method, head.protocol)
        client.send(stream_id, b"bye", ends=True)
        assert b"\x00\xffbye" == client.answer(stream_id).body


def test_an_extended_connect_with_content_length_0_carries_bytes_after_its_response() -> None:
    with serving() as rig, client_of(rig) as client:
        client.read_until(lambda: client.h2.remote_settings.enable_connect_protocol == 1)
        fields = [(b":protocol", b"websocket"), (b"content-length", b"0")]
        stream_id = client.ask("/switch", method="CONNECT", has_body=True, fields=fields)
        client.read_until(lambda: b":status" in client.answers[stream_id].headers)
        client.send(stream_id, b"\x00\xff", ends=True)

        assert b"\x00\xff" == client.answer(stream_id).body


def test_a_request_that_names_no_host_is_answered_400() -> None:
    """RFC 9113, 8.3.1: `:authority` or Host must be there, and not be empty."""
    with serving() as rig, client_of(rig) as client:
        answer = client.answer(client.ask("/", authority=""))

        assert answer.status_code == 400
        assert answer.body == b"400 bad request: neither :authority nor Host, or an empty one\n"
        assert rig.services.begun.empty()
        assert {"protocol": 1} == rig.door_stats.refused


@pytest.mark.parametrize(
    ("path", "fields", "status_code"),
    [("/" + "a" * 16_384, [], 414), ("/", [(b"x-large", b"a" * 15_000)] * 5, 431)],
    ids=["long target", "large fields"],
)
def test_a_request_over_a_limit_is_answered(path: str, fields: list[tuple[bytes, bytes]], status_code: int) -> None:
    with serving() as rig, client_of(rig) as client:
        client.read_until(lambda: client.h2.remote_settings.max_header_list_size is not None)
        answer = client.answer(client.ask(path, fields=fields))

        assert status_code == answer.status_code
        assert answer.headers[b"date"].endswith(b" GMT")
        assert answer.body
        assert rig.services.begun.empty()
        assert {"protocol": 1} == rig.door_stats.refused
        assert b"hello\n" == client.get("/hello").body


@pytest.mark.parametrize(
    ("path", "fields", "status_code"),
    [("/" + "a" * 16_384, [], 414), ("/", [(b"x-large", b"a" * 15_000)] * 5, 431)],
    ids=["long target", "large fields"],
)
def test_a_refusal_of_a_head_request_has_no_body(
    path: str, fields: list[tuple[bytes, bytes]], status_code: int
) -> None:
    """curl and browsers treat a body there as a stream error, and show nothing of the response."""
    with serving() as rig, client_of(rig) as client:
        client.read_until(lambda: client.h2.remote_settings.max_header_list_size is not None)
        answer = client.answer(client.ask(path, method="HEAD", fields=fields))

        assert (status_code, b"", None) == (answer.status_code, answer.body, answer.reset_code)
        assert int(answer.headers[b"content-length"]) > 0


def test_a_refusal_has_no_body_when_the_window_of_the_client_is_too_small() -> None:
    with serving(limits={"maxUriBytes": 256}) as rig, client_of(rig) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 3})
        answer = client.get("/" + "a" * 300)

        assert (414, b"", None) == (answer.status_code, answer.body, answer.reset_code)
        assert {b":status", b"date"} == set(answer.headers)


def test_a_client_with_many_requests_at_once_does_not_keep_others_waiting() -> None:
    with serving() as rig, client_of(rig) as client, rig.connect() as other:
        client.get("/hello")
        for _ in range(200):
            stream_id = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream_id, request_head("/hello") + [(b"x", b"")] * 40, end_stream=True)
            client.answers[stream_id] = Answer()
        much = client.h2.data_to_send()

        def both() -> None:
            """In the loop's thread, so that both have arrived when it polls."""
            client.sock.sendall(much)
            other.sendall(b"GET /hello HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")

        rig.call(both)
        assert read_all(other).endswith(b"hello\n")
        begun = [rig.services.begun.get_nowait() for _ in range(rig.services.begun.qsize())]
        place = next(i for i, exchange in enumerate(begun) if exchange.client.arrival.protocol == "HTTP/1.1")

        assert place < 50
        assert {b"hello\n"} == {client.answer(stream_id).body for stream_id in client.answers}


def test_a_flood_ends_the_connection_and_its_streams() -> None:
    with serving() as rig, client_of(rig) as client:
        client.ask("/hold")
        rig.services.begun.get(timeout=10)
        for number in range(150):
            client.h2.update_settings({SettingCodes.MAX_FRAME_SIZE: 16_384 + number})
        client.flush()
        client.read_until(lambda: bool(client.goaways))

        assert ErrorCodes.ENHANCE_YOUR_CALM == client.goaways[0].error_code
        assert "SETTINGS" in rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)
        assert {"protocol": 1} == rig.door_stats.refused


def test_a_malformed_request_is_counted_and_resets_only_its_stream() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(PREFACE_AND_SETTINGS + headers(1, GET[:2]) + headers(3, [*GET[:3], (b":path", b"/hello")]))

        assert frames.encode_rst_stream(1, ErrorCode.PROTOCOL_ERROR) in read_until(client, b"hello\n")
        assert 1 == rig.services.begun.qsize()
        assert {"protocol": 1} == rig.door_stats.refused


def test_over_the_limit_an_idle_connection_gets_goaway_and_is_closed() -> None:
    with serving(limits={"maxConnections": 1}) as rig, client_of(rig) as client:
        client.get("/hello")
        with client_of(rig) as newcomer:
            assert b"hello\n" == newcomer.get("/hello").body

        client.read_until(lambda: client.is_closed)
        assert [ErrorCodes.NO_ERROR] == [goaway.error_code for goaway in client.goaways]
        assert {} == rig.door_stats.refused
        rig.wait_for_connections(0)


def test_a_client_that_never_sends_its_settings_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is not given the time to answer a GOAWAY that others have.
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving() as rig, rig.connect() as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert client.recv(1)
        rig.pass_time(HEADER_TIMEOUT_S)

        assert read_all(client)
        assert {"header_timeout": 1} == rig.door_stats.refused
        client.close()
        rig.wait_for_connections(0)


def test_an_idle_connection_gets_goaway_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client cooperates, so the drain does not wait for its deadline.
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving(limits={"idleTimeout": "50ms"}) as rig, client_of(rig) as client:
        assert b"hello\n" == client.get("/hello").body
        client.read_until(lambda: client.is_closed)

        assert ErrorCodes.NO_ERROR == client.goaways[-1].error_code


def test_a_request_that_crosses_the_goaway_of_an_idle_connection_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving(**PATIENT) as rig, rig.connect() as client:
        hello = [*GET[:3], (b":path", b"/hello")]
        client.sendall(PREFACE_AND_SETTINGS + headers(1, hello))
        read_until(client, b"hello\n")
        rig.pass_time(3_600)
        read_until(client, DRAIN_PING)
        client.sendall(headers(3, hello))

        assert read_until(client, b"hello\n")


def break_off(rig: Rig, client: H2Client, stream_id: int) -> None:
    exchange = rig.services.held.pop()
    exchange.is_over = True
    rig.call(exchange.client.reset)
    assert ErrorCodes.INTERNAL_ERROR == client.answer(stream_id).reset_code


def take_back(rig: Rig, client: H2Client, stream_id: int) -> None:
    client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
    client.flush()
    assert rig.services.gone.get(timeout=WAIT_S)


@pytest.mark.parametrize("end", [break_off, take_back])
def test_an_idle_connection_whose_last_stream_was_reset_gets_goaway_too(
    end: Callable[[Rig, H2Client, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving(**PATIENT) as rig, client_of(rig) as client:
        client.get("/hello")
        stream_id = client.ask("/hold")
        rig.wait_for(lambda: bool(rig.services.held), "the request")
        end(rig, client, stream_id)
        rig.pass_time(3_600)
        client.read_until(lambda: client.is_closed)

        assert ErrorCodes.NO_ERROR == client.goaways[-1].error_code


@pytest.mark.parametrize("end", [break_off, take_back])
def test_a_draining_connection_ends_with_the_reset_of_its_last_stream(
    end: Callable[[Rig, H2Client, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving(**PATIENT) as rig, client_of(rig) as client:
        stream_id = client.ask("/hold")
        rig.wait_for(lambda: bool(rig.services.held), "the request")
        rig.call(rig.drain)
        client.read_until(lambda: len(client.goaways) == 2)
        end(rig, client, stream_id)
        client.read_until(lambda: client.is_closed)


def test_a_client_without_streams_has_time_to_react_to_goaway(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have sent a request before it received the GOAWAY."""
    monkeypatch.setattr("proxy.doors.h2connection.DRAIN_S", LONGER_THAN_TESTS_S)
    with serving(**PATIENT) as rig, rig.connect() as client:
        client.sendall(PREFACE_AND_SETTINGS)
        rig.wait_for_connections(1)
        rig.call(rig.drain)

        rig.pass_time(0)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            read_all(client)
        rig.pass_time(LONGER_THAN_TESTS_S)
        client.settimeout(WAIT_S)
        assert read_all(client)


def test_the_preface_may_come_in_pieces() -> None:
    with serving() as rig:
        sock = rig.connect()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with H2Client(_Dribbler(sock)) as client:  # type: ignore[arg-type]
            assert b"hello\n" == client.get("/hello").body


class _Dribbler:
    """A socket whose first bytes leave one by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.recv, self.close = sock.recv, sock.close
        self._left = 60

    def sendall(self, data: bytes) -> None:
        while data and self._left:
            self._sock.sendall(data[:1])
            data, self._left = data[1:], self._left - 1
        self._sock.sendall(data)
