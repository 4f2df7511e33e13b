"""Flow control with backends that speak HTTP/2: what a full window stops, and when credit is returned."""

import gc
import socket
import threading
import weakref

import h2.events
import pytest
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.h2link import H2Link
from proxy.heads import Field
from tests.proxy.backend.h2peer import H2Peer, answers, h2c, opened, speaks
from tests.proxy.backend.servers import PATIENCE_S, Behaviour, Conn, backend, of
from tests.proxy.backend.world import Answer, Owed, World, world

MIB = 1024 * 1024
LARGE_BYTES = 4 * MIB
WINDOW_BYTES = 65_535
"""Of a connection, and of each stream."""


def test_a_large_body_follows_the_windows_and_returns_credit() -> None:
    got: list[int] = []

    def take(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            got.append(len(event.data))
        answers(peer, event)

    with backend(speaks(take)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"PUT", end_stream=False))
        assert answer.request is not None
        owed = Owed()
        rest = memoryview(b"x" * LARGE_BYTES)
        taken = answer.request.send_data(rest, True, owed)
        assert 0 < taken < LARGE_BYTES
        while taken < len(rest):
            told = answer.is_writable_told
            rest = rest[taken:]
            w.until(lambda told=told: answer.is_writable_told > told)  # type: ignore[misc]
            taken = answer.request.send_data(rest, True, owed)
        w.until(lambda: answer.is_over)

        assert sum(got) == LARGE_BYTES
        assert owed.released_bytes == LARGE_BYTES
        assert answer.status_code == 200


def test_a_body_stopped_only_by_its_stream_window_resumes_when_that_opens() -> None:
    got: list[int] = []

    def take(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.increment_flow_control_window(LARGE_BYTES)
        elif isinstance(event, h2.events.DataReceived) and event.stream_ended is None:
            got.append(len(event.data))
            if sum(got) == 65_535:
                peer.h2.increment_flow_control_window(LARGE_BYTES, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            peer.answer(event.stream_id)

    with backend(speaks(take)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        answer = opened(w, w.get(method=b"PUT", end_stream=False))
        assert answer.request is not None
        body = memoryview(b"x" * 100_000)
        taken = answer.request.send_data(body, True, Owed())
        assert taken == 65_535
        w.until(lambda: answer.is_writable_told == 1)
        assert answer.request.send_data(body[taken:], True, Owed()) == 100_000 - taken
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200


@pytest.mark.parametrize("most_connections", [1, 9])
def test_an_upload_does_not_use_a_connection_whose_window_is_used_up_forever(most_connections: int) -> None:
    """It would wait there until it times out, like all later uploads. Another connection takes its place."""
    got: dict[H2Peer, int] = {}

    def forget_the_large(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived) and event.stream_ended is None:
            got[peer] = got.get(peer, 0) + len(event.data)
            if got[peer] == 65_535:
                peer.answer(event.stream_id, status=b"413")
        else:
            answers(peer, event)

    with backend(speaks(forget_the_large)) as peer, world() as w:
        w.use(of(peer, protocol="h2c", circuit=document.Circuit(max_connections=most_connections)))
        w.fetch()
        large = opened(w, w.get(method=b"PUT", end_stream=False))
        assert large.request is not None
        assert large.request.send_data(b"x" * 100_000, True, Owed()) == 65_535
        w.until(lambda: large.is_over)
        small = opened(w, w.get(method=b"PUT", end_stream=False))
        assert small.request is not None
        taken = small.request.send_data(b"x" * 1_000, True, Owed())
        w.until(lambda: small.is_over)

        assert (413, 1_000, 200) == (large.status_code, taken, small.status_code)
        assert peer.connections == 2


def reads_others_first(peer: H2Peer, event: h2.events.Event) -> None:
    """The upload that began a connection is not read before somebody asks for `/go`; the others are at once."""
    if isinstance(event, h2.events.RequestReceived) and dict(event.headers)[b":path"] == b"/go":
        peer.h2.acknowledge_received_data(WINDOW_BYTES, 1)
    if not isinstance(event, h2.events.DataReceived) or event.stream_id != 1:
        answers(peer, event)


def upload(w: World, size_bytes: int) -> Answer:
    """It sends what it may as soon as it has a connection."""
    answer = w.get(method=b"POST", end_stream=False)
    assert answer.request is not None
    answer.on_open = lambda: send(answer, size_bytes)
    if answer.request.is_open:
        send(answer, size_bytes)
    return answer


def send(answer: Answer, size_bytes: int) -> None:
    assert answer.request is not None
    answer.request.send_data(b"x" * size_bytes, True, Owed())


class Traced(list[Field]):
    """Fields to which there can be weak references."""


def ended_upload(w: World, is_reset: bool) -> weakref.ref[Traced]:
    """Ends while it waits for a window. Returns its fields, if they are kept."""
    fields = Traced([(b"x-head", b"of the request")])
    answer = opened(w, w.get(method=b"PUT", fields=fields, end_stream=False))
    assert answer.request is not None
    assert answer.request.send_data(bytes(LARGE_BYTES), True, Owed()) < LARGE_BYTES
    if is_reset:
        w.until(lambda: answer.is_over)
    else:
        answer.request.cancel()
    return weakref.ref(fields)


@pytest.mark.parametrize("is_reset", [False, True], ids=["cancelled", "reset by the backend"])
def test_an_upload_that_ends_while_it_waits_for_a_window_is_not_kept(is_reset: bool) -> None:
    """A connection lasts for up to an hour, and a client can begin and cancel any number of uploads."""

    def take(peer: H2Peer, event: h2.events.Event) -> None:
        if is_reset and isinstance(event, h2.events.RequestReceived):
            peer.h2.reset_stream(event.stream_id)

    with backend(speaks(take)) as peer, world() as w:
        w.use(h2c(peer.address))
        kept = ended_upload(w, is_reset)
        gc.collect()

        assert w.backend().connections == 1
        assert kept() is None


def test_a_stalled_upload_does_not_block_others() -> None:
    """It has used up the window that all requests of its connection share."""
    with backend(speaks(reads_others_first)) as peer, world() as w:
        w.use(h2c(peer.address))
        still = opened(w, upload(w, WINDOW_BYTES + 1))
        others = [upload(w, 1), w.get(), upload(w, 1)]
        w.until(lambda: all(other.is_over for other in others))

        assert [200] * 3 == [other.status_code for other in others]
        assert not still.is_over
        assert peer.connections == 2


def test_waiting_uploads_do_not_all_start_on_a_connection_whose_window_the_first_uses_up() -> None:
    """Tomcat reads twenty streams of a connection at a time, and never one whose window later ones have used up."""
    with backend(speaks(reads_others_first)) as peer, world() as w:
        w.use(h2c(peer.address))
        still = [upload(w, WINDOW_BYTES + 1) for _ in range(3)]
        others = [upload(w, 1) for _ in range(5)]
        w.until(lambda: all(other.is_over for other in others))

        assert [200] * 5 == [other.status_code for other in others]
        assert not any(answer.is_over for answer in still)
        assert peer.connections == 4


def test_waiting_uploads_share_connections_at_the_limit_of_connections() -> None:
    with backend(speaks(reads_others_first)) as peer, world() as w:
        w.use(of(peer, protocol="h2c", circuit=document.Circuit(max_connections=1)), connect_timeout="0s")
        uploads = [upload(w, WINDOW_BYTES + 1), upload(w, 1)]

        for answer in uploads:
            opened(w, answer)
        assert peer.connections == 1


@pytest.mark.parametrize("most_connections", [1, 9], ids=["allowed", "made"])
def test_an_upload_waits_for_the_window_if_no_other_connection_can_be_opened(most_connections: int) -> None:
    def behave(conn: Conn) -> None:
        if not conn.place:
            speaks(reads_others_first)(conn)

    with backend(behave) as peer, world() as w:
        w.use(of(peer, protocol="h2c", circuit=document.Circuit(max_connections=most_connections)))
        still = opened(w, upload(w, WINDOW_BYTES + 1))
        second = opened(w, upload(w, 1))
        assert w.fetch(path=b"/go").status_code == 200
        w.until(lambda: bool(still.is_writable_told and second.is_writable_told))
        send(still, 1)
        send(second, 1)
        w.until(lambda: still.is_over and second.is_over)

        assert (200, 200) == (still.status_code, second.status_code)
        assert peer.connections == min(2, most_connections)


def test_an_upload_takes_a_stalled_connection_after_the_connect_timeout_or_over_max_pending() -> None:
    def behave(conn: Conn) -> None:
        if conn.place:
            conn.wait_for_end()
        else:
            speaks(reads_others_first)(conn)

    with backend(behave) as peer, world() as w:
        circuit = document.Circuit(max_pending=1)
        w.use(of(peer, protocol="h2c", circuit=circuit), connect_timeout="1s")
        opened(w, upload(w, WINDOW_BYTES + 1))
        waits, beyond_those_that_may = upload(w, 1), upload(w, 1)

        for answer in (beyond_those_that_may, waits):
            assert opened(w, answer).failure is None
        assert peer.connections == 2


def test_tiny_frames_of_a_large_read_are_delivered_over_many_turns() -> None:
    """All those of one read at once would block all others for a tenth of a second.

    Nor is more read before they are delivered: it would accumulate here.
    """
    count = 20_000

    def dribble(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
            for _ in range(count):
                peer.h2.send_data(event.stream_id, b"a")
            peer.h2.end_stream(event.stream_id)

    with backend(speaks(dribble)) as peer, world() as w:
        w.use(h2c(peer.address))
        for _ in range(2):
            answer = w.get()

            assert w.most_in_a_turn(answer) <= 1_000
            assert bytes(answer.body) == b"a" * count


def test_a_paused_response_stops_only_its_stream() -> None:
    def pour(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            if event.stream_id == 1:
                peer.h2.send_headers(1, [(b":status", b"200")])
            else:
                peer.answer(event.stream_id)
        has_begun = not isinstance(event, h2.events.RequestReceived) and bool(peer.requests)
        while has_begun and (room := min(peer.h2.local_flow_control_window(1), 16384)) > 0:
            peer.h2.send_data(1, b"x" * room)

    with backend(speaks(pour)) as peer, world() as w:
        w.use(h2c(peer.address))
        held = w.get(holds=True)
        w.until(lambda: held.held_bytes >= 262_144)
        other = w.fetch()

        assert other.status_code == 200
        assert held.held_bytes == 262_144
        held.release()
        w.until(lambda: held.held_bytes >= 100_000)
        assert held.request is not None
        held.request.cancel()


def pours_for_slow_readers(ready: list[H2Peer]) -> Behaviour:
    """What comes for `/slow` fills the window of its stream. `ready` are those of whom the proxy knows."""
    slow: set[tuple[H2Peer, int]] = set()

    def send(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.SettingsAcknowledged):
            ready.append(peer)
        elif isinstance(event, h2.events.RequestReceived):
            if dict(event.headers)[b":path"] == b"/slow":
                slow.add((peer, event.stream_id))
        elif isinstance(event, h2.events.StreamEnded) and (peer, event.stream_id) in slow:
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
            while room := min(peer.h2.local_flow_control_window(event.stream_id), 16384):
                peer.h2.send_data(event.stream_id, b"x" * room)
        elif isinstance(event, h2.events.StreamEnded) and peer.h2.local_flow_control_window(event.stream_id):
            peer.answer(event.stream_id)

    return speaks(send)


def slow_readers(w: World, count: int) -> list[Answer]:
    held = []
    for _ in range(count):
        reader = w.get(path=b"/slow", holds=True)
        w.until(lambda reader=reader: reader.held_bytes == 262_144)  # type: ignore[misc]
        held.append(reader)
    return held


def leave_all(readers: list[Answer]) -> None:
    for reader in readers:
        assert reader.request is not None
        reader.request.cancel()


def test_stalled_readers_leave_room_for_others() -> None:
    """Together they hold as much as the window of a connection takes."""
    ready: list[H2Peer] = []
    with backend(pours_for_slow_readers(ready)) as peer, world() as w:
        w.use(h2c(peer.address))
        held = slow_readers(w, 33)
        w.until(lambda: len(ready) == 2)
        held += slow_readers(w, 31)
        other = w.fetch()

        assert other.status_code == 200
        assert peer.connections == 2
        leave_all(held)


def test_one_connection_at_a_time_is_opened_beside_one_full_of_slow_readers() -> None:
    with backend(pours_for_slow_readers([])) as peer, world() as w:
        w.use(h2c(peer.address))
        held = slow_readers(w, 32)
        others = [w.get() for _ in range(5)]
        w.until(lambda: all(other.is_over for other in others) and w.backend().connections == 2)
        w.turns()

        assert [other.status_code for other in others] == [200] * 5
        assert w.backend().connections_opened == 2
        leave_all(held)


def test_no_connection_over_the_limit_is_opened_beside_one_full_of_slow_readers() -> None:
    with backend(pours_for_slow_readers([])) as peer, world() as w:
        w.use(of(peer, protocol="h2c", circuit=document.Circuit(max_connections=1)))
        held = slow_readers(w, 32)

        assert w.fetch().status_code == 200
        w.turns()
        assert w.backend().connections_opened == 1
        leave_all(held)


def answers_at_length(peer: H2Peer, event: h2.events.Event) -> None:
    """Each response is as large as the window of its stream."""
    if isinstance(event, h2.events.StreamEnded):
        peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
        for place in range(16):
            peer.h2.send_data(event.stream_id, b"x" * 16384, end_stream=place == 15)


def test_credit_after_the_end_of_a_stream_is_returned_to_the_connection() -> None:
    """Otherwise each response taken late by a slow client would shrink the connection window permanently."""
    with backend(speaks(answers_at_length)) as peer, world() as w:
        w.use(h2c(peer.address))
        # Together much more than the connection's window.
        for _ in range(100):
            answer = w.fetch(holds=True)
            assert answer.held_bytes == 262_144
            answer.release()

        assert peer.connections == 1


def test_another_connection_is_opened_beside_one_half_full_of_complete_responses_that_slow_clients_hold() -> None:
    with backend(speaks(answers_at_length)) as peer, world() as w:
        w.use(h2c(peer.address))
        held = [w.fetch(holds=True) for _ in range(32)]
        assert peer.connections == 1

        held.append(w.fetch(holds=True))

        w.until(lambda: peer.connections == 2)
        for answer in held:
            answer.release()


def test_a_backend_that_does_not_read_gets_no_more_of_any_body_until_it_does_however_wide_its_windows() -> None:
    """What it has been sent waits for it even if the request is cancelled: clients that leave would pile it up."""
    reads_on = threading.Event()

    def read_later(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived) and event.stream_id == 1:
            peer.h2.increment_flow_control_window(2**30)
            peer.h2.send_headers(event.stream_id, [(b":status", b"103")])
            peer.flush()
            assert reads_on.wait(PATIENCE_S)
        if isinstance(event, h2.events.StreamEnded):
            peer.answer(event.stream_id)

    with backend(speaks(read_later, {SettingCodes.INITIAL_WINDOW_SIZE: 2**30})) as peer, world() as w:
        w.use(h2c(peer.address))
        first, piece, owed, sent_bytes = w.get(), bytes(64 * 1024), Owed(), 0
        w.until(lambda: bool(first.interim))
        waits = None
        while waits is None:
            upload = w.get(method=b"POST", end_stream=False)
            assert upload.request is not None
            taken_bytes = upload.request.send_data(piece, False, owed)
            sent_bytes += taken_bytes
            assert sent_bytes < 40_000_000
            w.turns(1)
            if taken_bytes:
                upload.request.cancel()
            else:
                waits = upload.request
        progress = waits.progress_of(Owed())
        reads_on.set()
        w.until(lambda: upload.is_writable_told == 1)

        assert progress is not None
        assert waits.send_data(piece, True, owed) == len(piece)
        w.until(lambda: first.is_over and upload.is_over)
        assert (first.status_code, upload.status_code) == (200, 200)
        assert owed.released_bytes == sent_bytes + len(piece)
        assert peer.connections == 1


def test_an_upload_that_waits_for_its_own_window_makes_no_progress_while_others_wait_for_the_socket() -> None:
    """Its handler may hang, and the backend read what others send for ever."""
    reads_on = threading.Event()

    def read_later(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.increment_flow_control_window(2**30)
            peer.answer(event.stream_id)
        elif isinstance(event, h2.events.RequestReceived) and dict(event.headers)[b":path"] == b"/other":
            peer.h2.increment_flow_control_window(2**30, event.stream_id)
            peer.h2.send_headers(event.stream_id, [(b":status", b"103")])
            peer.flush()
            assert reads_on.wait(PATIENCE_S)

    with backend(speaks(read_later)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        hanging = opened(w, w.get(method=b"PUT", end_stream=False))
        assert hanging.request is not None
        assert hanging.request.send_data(bytes(WINDOW_BYTES + 1), True, Owed()) == WINDOW_BYTES
        other = opened(w, w.get(path=b"/other", method=b"PUT", end_stream=False))
        assert other.request is not None
        w.until(lambda: bool(other.interim))
        while other.request.send_data(bytes(MIB), False, Owed()):
            w.turns(1)
        progress = hanging.request.progress_of(Owed()), other.request.progress_of(Owed())
        reads_on.set()
        w.until(lambda: other.is_writable_told == 1)
        hanging.request.cancel()
        other.request.cancel()

        assert progress[0] is None
        assert progress[1] is not None
        assert peer.connections == 1


@pytest.mark.parametrize("others_bytes", [MIB, MIB + WINDOW_BYTES], ids=["a window is left", "no window is left"])
def test_an_upload_behind_others_makes_progress_as_long_as_they_are_read(others_bytes: int) -> None:
    """Its turn comes when the backend has read them, however slowly, and whatever they leave of the connection's
    window."""
    permits, taken = threading.Semaphore(0), [0]

    def read_slowly(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived) and dict(event.headers)[b":path"] == b"/others":
            peer.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            peer.h2.increment_flow_control_window(MIB)
            peer.h2.increment_flow_control_window(2 * MIB, event.stream_id)
            peer.h2.send_headers(event.stream_id, [(b":status", b"103")])
        elif isinstance(event, h2.events.DataReceived):
            assert permits.acquire(timeout=PATIENCE_S)
            taken[0] += 1
        elif isinstance(event, h2.events.StreamEnded):
            peer.answer(event.stream_id)

    with backend(speaks(read_slowly)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        waiting = opened(w, w.get(method=b"PUT", end_stream=False))
        others = opened(w, w.get(path=b"/others", method=b"PUT", end_stream=False))
        assert waiting.request is not None
        assert others.request is not None
        link = others.request.link
        assert isinstance(link, H2Link)
        # The kernel takes little, so what waits for the socket gets less by small steps.
        link._transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        w.until(lambda: bool(others.interim))
        assert others.request.send_data(bytes(others_bytes), False, Owed()) == others_bytes
        w.turns(1)
        assert waiting.request.send_data(b"x", True, Owed()) == 0
        progress, released = [waiting.request.progress_of(Owed())], 0
        while link._transport.queued_bytes > 192 * 1024:
            permits.release()
            released += 1
            w.until(lambda released=released: taken[0] == released)  # type: ignore[misc]
        progress.append(waiting.request.progress_of(Owed()))
        assert link._transport.queued_bytes
        permits.release(others_bytes)
        w.until(lambda: waiting.is_writable_told == 1 or not link._transport.queued_bytes)
        waiting.request.cancel()
        others.request.cancel()

        assert progress[0] is not None
        assert progress[1] is not None
        assert progress[0] < progress[1]
        assert peer.connections == 1
