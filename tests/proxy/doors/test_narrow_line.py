"""An HTTP/2 client on a link slower than its streams: each gets its turn, and small responses overtake."""

import socket
from collections.abc import Iterator
from functools import partial

import pytest
from h2.settings import SettingCodes

from proxy.doors.h2connection import H2Connection
from proxy.exchange.exchange import Exchange
from tests.proxy.doors.chain import LEAPS, PROTOCOLS, UNTIL_A_LOOK_S, Chain, Proxy, chain_over, streams_with_data
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import WAIT_S

KIB = 1024
MIB = 1024 * KIB
WIDEST = 2**31 - 1
DOWNLOADS = 8
BEHIND_BYTES = MIB
"""What an answer may have before it: two rounds, what the kernel holds unsent, and what is under way."""


@pytest.fixture(params=PROTOCOLS)
def chain(request: pytest.FixtureRequest) -> Iterator[Chain]:
    with chain_over(request.param) as made:
        yield made


class Reader(H2Client):
    """Takes little at a time, with windows so wide that they hold nothing back, and counts what it has taken."""

    def __init__(self, proxy: Proxy) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * KIB)
        sock.settimeout(WAIT_S)
        sock.connect(("127.0.0.1", proxy.port))
        super().__init__(sock, gives_credit=False)
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WIDEST})
        self.h2.increment_flow_control_window(WIDEST - 65_535)
        self.get("/hello")

    def taken_bytes(self) -> int:
        return sum(len(answer.body) for answer in self.answers.values())

    def take(self, size_bytes: int) -> None:
        enough_bytes = self.taken_bytes() + size_bytes
        self.read_until(lambda: self.taken_bytes() >= enough_bytes)

    def begin_downloads(self, count: int = DOWNLOADS) -> list[int]:
        """Returns when the first burst is over."""
        streams = [self.ask(f"/bulk/{50 * MIB}") for _ in range(count)]
        self.take(count * MIB)
        return streams


def connection_of(proxy: Proxy) -> H2Connection:
    (connection,) = proxy.call(lambda: [*proxy.doors._registry])
    assert isinstance(connection, H2Connection)
    return connection


def test_a_small_response_waits_for_one_round_and_not_for_all_data_of_downloads(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        client.begin_downloads()
        waiting = connection_of(proxy).turns.waiting
        for answered in range(2, 7):
            client.take(256 * KIB)
            stream = client.ask("/hello")

            def is_under_way(stream: int = stream, answered: int = answered) -> bool:
                # It waits when downloads without a share of the round so far came first.
                return len(proxy.records) == answered or stream in waiting

            proxy.wait_for(is_under_way, "an answer on its way")
            before_bytes = client.taken_bytes()
            assert b"hello\n" == client.answer(stream).body
            assert client.taken_bytes() - before_bytes < BEHIND_BYTES


def test_an_event_on_a_mostly_silent_stream_waits_for_one_round_only(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        stream = client.ask("/echo", method="POST", has_body=True)
        client.begin_downloads()
        talk = connection_of(proxy)._streams[stream].exchange
        assert isinstance(talk, Exchange)
        for count in range(1, 6):
            client.take(256 * KIB)
            client.send(stream, b"event")
            proxy.wait_for(partial(lambda count: talk._response_bytes == 5 * count, count), "an event on its way")
            before_bytes = client.taken_bytes()
            client.read_until(partial(lambda wanted: client.answers[stream].body == wanted, count * b"event"))
            assert client.taken_bytes() - before_bytes < BEHIND_BYTES


def test_downloads_complete_when_others_are_cancelled_while_they_wait(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        streams = [client.ask(f"/bulk/{size}") for size in DOWNLOADS // 2 * (50 * MIB, 3 * MIB)]
        client.take(DOWNLOADS * MIB)
        for stream in streams[::2]:
            client.h2.reset_stream(stream)
        client.flush()
        for stream in streams[1::2]:
            assert 3 * MIB == len(client.answer(stream).body)
        proxy.wait_for(lambda: len(proxy.records) == 1 + DOWNLOADS, "a record of each")
        assert DOWNLOADS // 2 == sum(record.reason == "client_gone" for record in proxy.records)


def test_a_download_makes_progress_beside_endless_small_responses(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        turns = connection_of(proxy).turns
        streams = {client.ask(f"/bulk/{15 * KIB}") for _ in range(60)}
        download = client.answers[client.ask(f"/bulk/{128 * KIB}")]
        while not download.has_ended:
            # So the socket is always full. All that the backend lets go of the download may be on its way.
            least = len(client.answers) - 1
            proxy.wait_for(partial(lambda least: len(proxy.records) + len(turns.waiting) >= least, least), "answers")
            client.take(64 * KIB)
            ended = {stream for stream in streams if client.answers[stream].has_ended}
            streams = streams - ended | {client.ask(f"/bulk/{15 * KIB}") for _ in ended}
            assert len(client.answers) < 1_500
        assert 128 * KIB == len(download.body)


def test_a_link_is_no_longer_narrow_when_its_downloads_have_ended(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        streams = [client.ask(f"/bulk/{2 * MIB}") for _ in range(DOWNLOADS)]
        turns = connection_of(proxy).turns
        proxy.wait_for(lambda: turns.is_narrow, "a narrow line")
        for stream in streams:
            client.answer(stream)

        proxy.wait_for(lambda: not turns.is_narrow, "a wide line")


# HTTP/2 to the backend has PINGs, which cannot be answered when time leaps.
@pytest.mark.parametrize("chain", ["http"], indirect=True)
def test_a_download_waiting_for_its_turn_is_not_idle_while_the_client_reads(chain: Chain) -> None:
    proxy, _ = chain
    with Reader(proxy) as client:
        client.begin_downloads(4 * DOWNLOADS)
        connection = connection_of(proxy)
        output = connection._transport._output
        for _ in range(LEAPS):
            before_bytes = proxy.call(lambda: output.acknowledged_bytes)
            while proxy.call(lambda: output.acknowledged_bytes) <= before_bytes:
                client.sock.recv(4 * KIB)
            # A backend that comes late would be idle itself.
            proxy.wait_for(lambda: len(streams_with_data(connection)) == 4 * DOWNLOADS, "data of each download")
            proxy.pass_time(UNTIL_A_LOOK_S)
        assert [] == [record.reason for record in proxy.records if record.reason]
        for _ in range(4):
            proxy.pass_time(12)

        proxy.wait_for(lambda: len(proxy.records) == 1 + 4 * DOWNLOADS, "the end of all")


def test_downloads_that_end_in_their_turn_do_not_block_those_after_them(chain: Chain) -> None:
    with Reader(chain[0]) as client:
        sizes = [*range(16 * KIB, 64 * KIB, 509)]
        for _ in range(5):
            streams = [client.ask(f"/bulk/{size}") for size in sizes]
            assert sizes == [len(client.answer(stream).body) for stream in streams]
