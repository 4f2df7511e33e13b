"""Dialogues with the `h2` package: another implementation, in either role, over a fake link."""

from typing import TypeVar

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hpack
import pytest

from proxy.h2 import (
    Caches,
    Connection,
    DataReceived,
    ErrorCode,
    Event,
    GoawayReceived,
    InformationalReceived,
    PingAcked,
    RequestReceived,
    ResponseReceived,
    Settings,
    StreamReset,
    TrailersReceived,
)
from proxy.heads import RequestHead, ResponseHead
from tests.proxy.h2.wire import get_head, new_client, sent_frames

T = TypeVar("T")
BODY = bytes(range(256)) * 2_000
GET = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/x")]
POST = [(":method", "POST"), *GET[1:]]


class Talk:
    """Ours in one role, the other implementation in the opposite one."""

    def __init__(self, *, ours_is_server: bool, settings: Settings | None = None) -> None:
        config = h2.config.H2Configuration(client_side=ours_is_server, header_encoding=None)
        self.theirs = h2.connection.H2Connection(config)
        self.ours = Connection.server(Caches(), settings) if ours_is_server else Connection.client(Caches(), settings)
        self.at_ours: list[Event] = []
        self.at_theirs: list[h2.events.Event] = []
        self.theirs.initiate_connection()
        self.flow()
        self.at_ours.clear()
        self.at_theirs.clear()

    def flow(self) -> None:
        while True:
            theirs, ours = self.theirs.data_to_send(), self.ours.data_to_send()
            if not theirs and not ours:
                return
            self.at_ours += self.ours.receive(theirs, 0.0)
            self.at_theirs += self.theirs.receive_data(ours) if ours else []

    def their(self, kind: type[T]) -> list[T]:
        return [event for event in self.at_theirs if isinstance(event, kind)]

    def our(self, kind: type[T]) -> list[T]:
        return [event for event in self.at_ours if isinstance(event, kind)]


def test_their_client_is_served_warm_and_cold() -> None:
    talk = Talk(ours_is_server=True)
    for number in range(20):
        stream_id = talk.theirs.get_next_available_stream_id()
        talk.theirs.send_headers(stream_id, [*GET, ("user-agent", "t"), ("x-n", str(number))], end_stream=True)
        talk.flow()
        request = talk.our(RequestReceived)[-1]
        assert (b"GET", b"/x", b"a.example") == (request.head.method, request.head.path, request.head.authority)
        assert [(b"user-agent", b"t"), (b"x-n", b"%d" % number)] == request.head.fields
        talk.ours.send_headers(stream_id, ResponseHead(200, [(b"x-n", b"%d" % number)]))
        talk.ours.send_data(stream_id, b"hello", end_stream=True)
        talk.flow()

    assert talk.ours._decoder.is_stateless
    answers = [dict(event.headers) for event in talk.their(h2.events.ResponseReceived)]
    assert [{b":status": b"200", b"x-n": b"%d" % number} for number in range(20)] == answers
    assert [b"hello"] * 20 == [event.data for event in talk.their(h2.events.DataReceived)]


def test_our_client_is_served_by_their_server() -> None:
    talk = Talk(ours_is_server=False)
    for number in range(20):
        fields = [(b"user-agent", b"t"), (b"x-n", b"%d" % number)]
        stream_id = talk.ours.open_stream(RequestHead(b"GET", b"https", b"a.example", b"/x", fields), end_stream=True)
        talk.flow()
        request = talk.their(h2.events.RequestReceived)[-1]
        assert [(b"user-agent", b"t"), (b"x-n", b"%d" % number)] == list(request.headers)[4:]
        talk.theirs.send_headers(stream_id, [(":status", "103"), ("link", "</a>")])
        talk.theirs.send_headers(stream_id, [(":status", "200"), ("x-n", str(number))])
        talk.theirs.send_data(stream_id, b"hello")
        talk.theirs.send_headers(stream_id, [("x-sum", "1")], end_stream=True)
        talk.flow()

    assert talk.ours._decoder.is_stateless
    assert [103] * 20 == [event.head.status_code for event in talk.our(InformationalReceived)]
    assert [[(b"x-n", b"%d" % n)] for n in range(20)] == [event.head.fields for event in talk.our(ResponseReceived)]
    assert [b"hello"] * 20 == [event.data for event in talk.our(DataReceived)]
    assert [[(b"x-sum", b"1")]] * 20 == [event.fields for event in talk.our(TrailersReceived)]
    assert 0 == talk.ours.stream_count


def test_our_settings_do_not_make_a_window_negative_that_was_used_up_before() -> None:
    """With a negative one, httpcore sends empty DATA frames forever, and `h2` before 4.4 cannot end a complete body."""
    theirs = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    theirs.initiate_connection()
    theirs.send_headers(1, POST)
    while room := min(theirs.local_flow_control_window(1), theirs.max_outbound_frame_size):
        theirs.send_data(1, bytes(room))
    ours = Connection.server(Caches())

    theirs.receive_data(ours.data_to_send())

    assert theirs.local_flow_control_window(1) >= 0
    sizes = [len(event.data) for event in ours.receive(theirs.data_to_send(), 0.0) if isinstance(event, DataReceived)]
    assert 65_535 == sum(sizes)


def test_a_long_upload_from_their_client_flows_as_we_release_it() -> None:
    talk = Talk(ours_is_server=True, settings=Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))
    talk.theirs.send_headers(1, [*POST, ("content-length", str(len(BODY)))])
    sent = 0
    received = b""
    while sent < len(BODY):
        room = min(talk.theirs.local_flow_control_window(1), talk.theirs.max_outbound_frame_size, len(BODY) - sent)
        assert room > 0
        talk.theirs.send_data(1, BODY[sent : sent + room])
        sent += room
        talk.flow()
        for event in talk.our(DataReceived):
            received += bytes(event.data)
            talk.ours.release(1, len(event.data))
        talk.at_ours.clear()
        talk.flow()
    talk.theirs.end_stream(1)
    talk.flow()

    assert BODY == received
    assert talk.our(DataReceived)[-1].end_stream


def test_a_long_answer_to_their_client_never_overdraws_its_window() -> None:
    talk = Talk(ours_is_server=True)
    talk.theirs.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
    talk.theirs.send_headers(1, GET, end_stream=True)
    talk.flow()
    talk.ours.send_headers(1, ResponseHead(200, [(b"content-length", b"%d" % len(BODY))]))
    sent = 0
    received = b""
    while sent < len(BODY):
        taken = talk.ours.send_data(1, memoryview(BODY)[sent:], end_stream=True)
        assert 0 < taken <= 10_000
        sent += taken
        talk.flow()
        for event in talk.their(h2.events.DataReceived):
            received += event.data
            talk.theirs.acknowledge_received_data(event.flow_controlled_length, 1)
        talk.at_theirs.clear()
        talk.flow()

    assert BODY == received
    assert 0 == talk.ours.stream_count


@pytest.mark.parametrize("ours_is_server", [True, False])
def test_pings_resets_and_goaway_are_understood_both_ways(ours_is_server: bool) -> None:
    talk = Talk(ours_is_server=ours_is_server)
    head = RequestHead(b"GET", b"https", b"a.example", b"/", [])
    for stream_id in (1, 3):
        if ours_is_server:
            talk.theirs.send_headers(stream_id, GET)
        else:
            talk.ours.open_stream(head)
    talk.flow()

    talk.ours.ping(b"12345678")
    talk.theirs.ping(b"abcdefgh")
    talk.ours.reset_stream(1, ErrorCode.INTERNAL_ERROR)
    talk.theirs.reset_stream(3, h2.errors.ErrorCodes.CANCEL)
    talk.flow()
    talk.theirs.close_connection(additional_data=b"bye")
    talk.flow()

    assert [b"12345678"] == [event.payload for event in talk.our(PingAcked)]
    assert [b"abcdefgh"] == [event.ping_data for event in talk.their(h2.events.PingAckReceived)]
    assert [(1, 2)] == [(event.stream_id, event.error_code) for event in talk.their(h2.events.StreamReset)]
    assert [(3, 8, True)] == [(e.stream_id, e.error_code, e.by_peer) for e in talk.our(StreamReset)]
    assert [b"bye"] == [event.debug_data for event in talk.our(GoawayReceived)]


def test_extended_connect_from_their_client_reaches_us() -> None:
    talk = Talk(ours_is_server=True)
    assert 1 == talk.theirs.remote_settings.enable_connect_protocol

    talk.theirs.send_headers(
        1,
        [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "a.example"),
            (":path", "/chat"),
        ],
    )
    talk.flow()

    head = talk.our(RequestReceived)[0].head
    assert (b"CONNECT", b"websocket", b"/chat") == (head.method, head.protocol, head.path)


def test_error_codes_have_the_same_numbers() -> None:
    assert {code.name: code.value for code in h2.errors.ErrorCodes} == {
        name: code.value for name, code in ErrorCode.__members__.items()
    }


@pytest.mark.parametrize("size_bytes", [0, 1, 125, 126, 127, 128, 254, 255])
def test_a_value_is_read_as_it_was_sent_however_its_length_is_written(size_bytes: int) -> None:
    client, field = new_client(), (b"x", b"a" * size_bytes)
    client.open_stream(get_head(b"/", field), end_stream=True)
    block = sent_frames(client.data_to_send())[0].payload

    assert field in [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]
