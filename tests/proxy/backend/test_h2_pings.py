"""PINGs to a backend that sends only acknowledgements, like gRPC servers while calls wait for messages."""

from collections.abc import Callable

import h2.events
import pytest
from h2.settings import SettingCodes

from proxy.backend.keeping import PINGS_APART_S, SILENCE_S
from tests.proxy.backend.h2peer import H2Peer, h2c, opened, speaks
from tests.proxy.backend.servers import backend
from tests.proxy.backend.world import Answer, Owed, World, world

NOW = (b":path", b"/now")
ANSWER = [(b":status", b"200")]


class Quiet:
    """Responds to `/now` only. `part` is sent at its first PING; `begins`: it sends a head to the first request."""

    def __init__(self, part: Callable[[H2Peer], object] | None = None, *, begins: bool = False) -> None:
        self.pings = self._acks = 0
        self._part = part
        self._begins = begins

    def __call__(self, peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingReceived):
            self.pings += 1
            if self._part is not None and self.pings == 1:
                self._part(peer)
            # Acknowledged when all before it has been read, including the PING acknowledgement.
            peer.h2.update_settings({SettingCodes.MAX_FRAME_SIZE: 16384 + self.pings})
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self._acks += 1
        elif isinstance(event, h2.events.RequestReceived):
            if NOW in event.headers:
                peer.answer(event.stream_id)
            elif self._begins and event.stream_id == 1:
                peer.h2.send_headers(1, ANSWER)

    def has_been_heard(self, pings: int) -> bool:
        return self.pings == pings and self._acks == 1 + pings


def begun(w: World, call: Answer) -> Answer:
    """After all that the backend sends about the connection itself: later it would count as activity."""
    opened(w, call)
    assert w.fetch(path=NOW[1]).status_code == 200
    return call


def wait_for_news(w: World, quiet: Quiet, pings: int) -> None:
    """Until silence is noticed: at the second check, as something may have arrived before the first."""
    w.pass_time(SILENCE_S)
    w.pass_time(SILENCE_S)
    w.until(lambda: quiet.has_been_heard(pings))


def count_pings(w: World, quiet: Quiet) -> int:
    """All that were sent."""
    assert w.fetch(path=NOW[1]).status_code == 200
    return quiet.pings


def test_a_call_that_waits_for_messages_is_pinged_rarely() -> None:
    quiet = Quiet()
    with backend(speaks(quiet)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        call = begun(w, w.get())
        wait_for_news(w, quiet, 1)
        for _ in range(int(PINGS_APART_S / SILENCE_S) - 1):
            w.pass_time(SILENCE_S)
        wait_for_news(w, quiet, 2)

        assert (count_pings(w, quiet), call.is_over, peer.connections) == (2, False, 1)


def ask_again(w: World, _: Answer) -> None:
    w.get()


def send_more(_: World, call: Answer) -> None:
    assert call.request is not None
    call.request.send_data(b"more", False, Owed())


@pytest.mark.parametrize("ask", [ask_again, send_more])
def test_another_ping_is_sent_soon_after_new_request_data(ask: Callable[[World, Answer], None]) -> None:
    quiet = Quiet()
    with backend(speaks(quiet)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        call = begun(w, w.get(method=b"POST", end_stream=False))
        for pings in (1, 2):
            wait_for_news(w, quiet, pings)
            ask(w, call)
        for _ in range(3):
            w.pass_time(SILENCE_S)

        assert (count_pings(w, quiet), call.is_over) == (2, False)


def test_a_body_that_waits_for_a_window_brings_no_other_ping() -> None:
    """Nothing of it was sent, so nothing that the backend could have missed."""
    quiet = Quiet()
    with backend(speaks(quiet)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        call = begun(w, w.get(method=b"POST", end_stream=False))
        assert call.request is not None
        assert call.request.send_data(bytes(65_535), False, Owed()) == 65_535
        wait_for_news(w, quiet, 1)
        assert call.request.send_data(b"more", False, Owed()) == 0
        for _ in range(3):
            w.pass_time(SILENCE_S)

        assert (count_pings(w, quiet), call.is_over) == (1, False)


PARTS: dict[str, Callable[[H2Peer], object]] = {
    "a head": lambda peer: peer.h2.send_headers(1, ANSWER),
    "an interim head": lambda peer: peer.h2.send_headers(1, [(b":status", b"103")]),
    "some of a body": lambda peer: peer.h2.send_data(1, b"news"),
    "trailers": lambda peer: peer.h2.send_headers(1, [(b"grpc-status", b"0")], end_stream=True),
}


@pytest.mark.parametrize("part", PARTS)
def test_pings_start_anew_after_any_part_of_a_response(part: str) -> None:
    has_head = part in ("some of a body", "trailers")
    quiet = Quiet(PARTS[part], begins=has_head)
    with backend(speaks(quiet)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        calls = [begun(w, w.get()) for _ in range(2)]
        w.until(lambda: not has_head or calls[0].head is not None)
        for pings in (1, 2):
            wait_for_news(w, quiet, pings)

        assert [call.is_over for call in calls] == [part == "trailers", False]
