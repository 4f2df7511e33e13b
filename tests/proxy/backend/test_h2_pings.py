"""PINGs to a backend that answers them and says nothing else, as gRPC servers do while calls wait for news."""

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
    """Answers what asks for it now. With its first PING, if told so, it begins an answer to the first request."""

    def __init__(self, part: Callable[[H2Peer], object] | None = None, *, begins: bool = False) -> None:
        self.pings = self._acks = 0
        self._part = part
        self._begins = begins

    def __call__(self, peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingReceived):
            self.pings += 1
            if self._part is not None and self.pings == 1:
                self._part(peer)
            # Acknowledged when all before it has been read, the answer to the PING included.
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
    """With all come that the backend has to say of the connection itself: later that would be a sign of life."""
    opened(w, call)
    assert w.fetch(path=NOW[1]).status_code == 200
    return call


def wait_for_news(w: World, quiet: Quiet, pings: int) -> None:
    """Until it is noticed that nothing comes, which is noticed when nothing had to come before it."""
    w.pass_time(SILENCE_S)
    w.pass_time(SILENCE_S)
    w.until(lambda: quiet.has_been_heard(pings))


def count_pings(w: World, quiet: Quiet) -> int:
    """All that were sent."""
    assert w.fetch(path=NOW[1]).status_code == 200
    return quiet.pings


def test_a_call_that_waits_for_news_is_pinged_seldom() -> None:
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
def test_another_comes_soon_where_something_is_asked_meanwhile(ask: Callable[[World, Answer], None]) -> None:
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


PARTS: dict[str, Callable[[H2Peer], object]] = {
    "a head": lambda peer: peer.h2.send_headers(1, ANSWER),
    "an interim head": lambda peer: peer.h2.send_headers(1, [(b":status", b"103")]),
    "some of a body": lambda peer: peer.h2.send_data(1, b"news"),
    "trailers": lambda peer: peer.h2.send_headers(1, [(b"grpc-status", b"0")], end_stream=True),
}


@pytest.mark.parametrize("part", PARTS)
def test_they_begin_anew_with_anything_of_an_answer(part: str) -> None:
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
