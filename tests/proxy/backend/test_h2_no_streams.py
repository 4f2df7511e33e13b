"""Backends that speak HTTP/2 and let nobody open a stream, for a while or for good."""

import threading

from h2.events import Event, RemoteSettingsChanged, SettingsAcknowledged
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.stream import Reason
from tests.proxy.backend.h2peer import H2Peer, answers, speaks
from tests.proxy.backend.servers import backend
from tests.proxy.backend.world import world


def h2c(address: str) -> document.Backend:
    circuit = document.Circuit(max_connections=20)
    return document.Backend(name="b", addresses=(address,), protocol="h2c", circuit=circuit)


def test_no_further_connection_is_opened_to_a_backend_that_takes_no_stream() -> None:
    knows = threading.Event()

    def watch(_: H2Peer, event: Event) -> None:
        if isinstance(event, SettingsAcknowledged):
            knows.set()

    with backend(speaks(watch, {SettingCodes.MAX_CONCURRENT_STREAMS: 0})) as peer, world() as w:
        w.use(h2c(peer.address))
        first = w.get()
        w.until(knows.is_set)
        second = w.get()
        w.pass_time(6)
        w.until(lambda: first.is_over and second.is_over)

        assert first.failure is not None
        assert (first.failure.reason, first.failure.is_unprocessed) == (Reason.OVERLOAD, True)
        assert peer.connections == 1


def test_who_waits_is_served_when_the_backend_takes_streams() -> None:
    opened: list[Event] = []

    def opens_later(peer: H2Peer, event: Event) -> None:
        if isinstance(event, RemoteSettingsChanged) and not opened:
            opened.append(event)
            peer.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 5})
        answers(peer, event)

    settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 0}
    with backend(speaks(opens_later, settings)) as peer, world() as w:
        w.use(h2c(peer.address))

        assert w.fetch().status_code == 200
