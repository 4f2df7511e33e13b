"""Exchanges, pools and links as one, over real sockets: whatever clients and backends do, in whatever order, also in
one turn of the loop.

Chance plays both sides, from a seed that a failure names; time passes only here. What must hold is asked after every
step: an exchange ends once, what is counted is what there is, nobody waits beside room, no byte is lost, doubled or
somebody else's, nothing gets to a backend without leave where that is wanted, and no handler raises. At the end both
sides fall silent: then all ends by itself, all credit has come back, and nothing is kept.
"""

import logging
from random import Random
from typing import Any

import msgspec
import pytest

from proxy import document
from proxy.backend.balancer import Balancer
from proxy.backend.pools import Pools
from proxy.exchange.record import Record
from proxy.exchange.services import Services
from proxy.h2 import frames
from proxy.loop import Loop
from proxy.routing import compile_table
from proxy.stats import Stats
from tests.proxy.exchange.sides import UNLIMITED, MemoryClient, arrived, asked
from tests.proxy.exchange.socketpeers import Asked, H1Peer, H2Peer, Peer, Site

STEPS = 120
SEEDS = 15
RULES: list[dict[str, Any]] = [
    {},
    {
        "timeouts": {"request": "9s", "backendRequest": "2s"},
        "retry": {"attempts": 2, "codes": [503, 504], "connectionErrors": True, "maxBodyBytes": 12},
    },
    {
        "sessionPersistence": {"sessionName": "s"},
        "retry": {"attempts": 1, "codes": [503], "connectionErrors": True},
    },
]
CIRCUITS = [{}, {}, {}, {"maxConnections": 1}, {"maxConnections": 2, "maxPending": 2}, {"maxRequests": 2}]
HEALTH: list[dict[str, Any]] = [
    {},
    {},
    {"passiveHealth": {"consecutiveFailures": 2}},
    {"activeHealth": {"interval": "10s", "unhealthyThreshold": 1}},
]
LEAVE: list[str | None] = [None, None, "auth", "b"]
"""The backend that is asked for it; the one that gets the request has connections, and limits, in common with it."""
LIMITS = {"streamIdleTimeout": "20s", "backendIdleTimeout": "4s"}
STREAMS, WINDOW = 3, 4
SETTINGS = [[], [(STREAMS, 100)], [(STREAMS, 1)], [(STREAMS, 0)], [(WINDOW, 3)], [(STREAMS, 2), (WINDOW, 0)]]


class Client(MemoryClient):
    def __init__(self, path: bytes, *, is_complete: bool) -> None:
        super().__init__(arrived())
        self.path = path
        self.sent = b""
        self.is_complete = is_complete
        self.needs_leave = False

    @property
    def may_send(self) -> bool:
        return not (self.is_over or self.is_complete or self.is_request_stopped)


class Play:
    """Both sides, and a worker between them."""

    def __init__(self, seed: int, protocol: str) -> None:
        self.chance = Random(seed)
        self.now_s = 100.0
        self.loop = Loop(clock=lambda: self.now_s)
        self.stats = Stats()
        self.records: list[Record] = []
        self.pools = Pools(self.loop, self.stats, draw=self.chance.random)
        self.services = Services(
            loop=self.loop,
            pools=self.pools,
            stats=self.stats,
            access_log=self.records.append,
            draw=self.chance.random,
            wall_clock_s=lambda: self.now_s,
        )
        self.protocol = protocol
        self.mirrors = self.chance.choice([{}, {}, {"requestMirrors": [{"backend": {"backend": "b"}}]}])
        self.haste = self.chance.choice([0.3, 0.6, 0.9])
        """How often the loop turns between two steps."""
        self.malice = self.chance.choice([0.2, 1.0, 3.0])
        self.leave = self.chance.choice(LEAVE)
        self.greeting: list[tuple[int, int]] | None = []
        self.sites = [Site(), Site()]
        self.peers: list[Peer] = []
        self.clients: list[Client] = []
        self.change_document()

    # -- steps

    def step(self) -> None:
        steps = {
            self.ask: 6.0,
            self.send: 8.0,
            self.answer: 10.0,
            self.answer_on: 6.0,
            self.do_nothing: 3.0,
            self.pass_time: 2.0,
            self.client_takes: 2.0,
            self.change_windows: 1.5,
            self.client_leaves: self.malice,
            self.reset_streams: self.malice,
            self.end_a_connection: self.malice,
            self.change_document: 0.3,
            self.change_the_network: 0.2 * self.malice,
        }
        self.chance.choices(list(steps), list(steps.values()))[0]()
        if self.chance.random() < self.haste:
            self.turn()

    def do_nothing(self) -> None:
        """The loop may turn."""

    def ask(self) -> None:
        method = self.chance.choice([b"GET", b"HEAD", b"PUT", b"PUT", b"POST"])
        is_complete = method in (b"GET", b"HEAD") or self.chance.random() < 0.4
        client = Client(b"/exchange/%04d" % len(self.clients), is_complete=is_complete)
        client.taken.window_bytes = self.chance.choice([0, 3, UNLIMITED, UNLIMITED])
        client.needs_leave = self.leave is not None
        self.clients.append(client)
        client.exchange = self.services.begin(client, asked(method, client.path), is_complete)

    def send(self) -> None:
        client = self.one_of([client for client in self.clients if client.may_send])
        if client is None:
            return
        client.is_complete = self.chance.random() < 0.4
        if client.is_complete and self.chance.random() < 0.3:
            client.exchange.on_request_trailers([(b"x-sum", b"1")])
            return
        piece = self.chance.choice([b"", b"a", b"bcd", b"e" * 30, b"f" * 70_000])
        client.sent += piece
        client.send(piece, client.is_complete)

    def client_takes(self) -> None:
        client = self.one_of([client for client in self.clients if client.head is not None and not client.is_over])
        if client is not None:
            client.widen(self.chance.choice([2, 9, UNLIMITED]))
            client.taken.drain()

    def client_leaves(self) -> None:
        client = self.one_of([client for client in self.clients if not client.is_over])
        if client is not None:
            client.leave()

    def answer(self) -> None:
        found = self.one_request(is_begun=False)
        if found is None:
            return
        peer, request = found
        kind = self.chance.choice(["interim", "head", "nothing", "whole", "whole"])
        if kind == "interim":
            peer.interim(request)
        else:
            body = {"head": None, "nothing": b"", "whole": b"all of it"}[kind]
            peer.answer(request, self.chance.choice([b"200", b"200", b"403", b"503"]), body)

    def answer_on(self) -> None:
        found = self.one_request(is_begun=True)
        if found is None:
            return
        peer, request = found
        if self.chance.random() < 0.2:
            peer.send_trailers(request)
        else:
            piece = self.chance.choice([b"", b"d", b"efgh", b"i" * 5_000])
            peer.send(request, piece, end_stream=self.chance.random() < 0.4)

    def reset_streams(self) -> None:
        peer, request = self.one_request(is_begun=self.chance.random() < 0.3) or (self.one_of(self.live_peers), None)
        if isinstance(peer, H2Peer) and request is not None and self.chance.random() < 0.7:
            peer.reset(request, self.chance.choice([0, 2, 7, 7, 8]))
        elif isinstance(peer, H2Peer):
            peer.leave(self.chance.randrange(4))

    def change_windows(self) -> None:
        self.greeting = self.chance.choice([[], [], None, *SETTINGS])
        peer = self.one_of(self.live_peers)
        if isinstance(peer, H2Peer) and self.chance.random() < 0.3:
            peer.say(frames.encode_settings(self.chance.choice(SETTINGS)))
        elif isinstance(peer, H2Peer):
            stream_id = self.chance.choice([0, *(request.stream_id for request in peer.asked)])
            peer.say(frames.encode_window_update(stream_id, self.chance.choice([1, 100, 70_000])))

    def end_a_connection(self) -> None:
        peer = self.one_of(self.live_peers)
        if peer is None:
            return
        if self.chance.random() < 0.2:
            peer.say(self.chance.choice([b"nonsense\r\n\r\n", bytes(9)]))
        else:
            peer.end(resets=self.chance.random() < 0.5)

    def change_the_network(self) -> None:
        self.chance.choice(self.sites).toggle()

    def change_document(self) -> None:
        addresses = [site.address for site in self.sites][: self.chance.choice([0, 1, 2, 2, 2, 2, 2, 2])]
        backend = {"name": "b", "addresses": addresses, "protocol": self.protocol, **self.chance.choice(HEALTH)}
        self.leave = self.leave if self.chance.random() < 0.7 else self.chance.choice(LEAVE)
        filters: dict[str, Any] = {**self.mirrors}
        if self.leave is not None:
            filters["externalAuth"] = {"backend": {"backend": self.leave}, "path": "/ask"}
        rule = {**self.chance.choice(RULES), "filters": filters, "backends": [{"backend": "b"}]}
        auth = {**backend, "name": "auth", "circuit": self.chance.choice(CIRCUITS)}
        self.use(
            {
                "listeners": [{"name": "web", "port": 80}],
                "limits": LIMITS,
                "backends": [{**backend, "circuit": self.chance.choice(CIRCUITS)}, auth],
                "routes": [{"name": "shop", "rules": [rule]}],
            }
        )

    def pass_time(self) -> None:
        self.now_s += self.chance.choice([0.0, 0.05, 0.05, 1.0, 1.0, 3.0, 6.0, 16.0, 61.0])

    def use(self, content: dict[str, Any]) -> None:
        table = compile_table(document.decode(msgspec.json.encode(content)))
        self.services.use(table)
        self.pools.use(table)

    # -- the participants

    def one_of(self, those: list[Any]) -> Any:
        return self.chance.choice(those) if those else None

    @property
    def live_peers(self) -> list[Peer]:
        return [peer for peer in self.peers if not peer.is_gone]

    def one_request(self, *, is_begun: bool) -> tuple[Peer, Asked] | None:
        """With an answer that is to begin, or to go on."""
        found: list[tuple[Peer, Asked]] = []
        for peer in self.live_peers:
            peer.read()
            found += [(peer, one) for one in peer.asked if one.is_begun is is_begun and not one.is_over]
        return self.chance.choice(found) if found else None

    def turn(self) -> None:
        """All that comes of what has happened, but for what takes time."""
        for _ in range(3):
            self.loop.call_soon(lambda: None)
            self.loop.turn()
            for site in self.sites:
                while (sock := site.accept()) is not None:
                    self.peers.append(H2Peer(sock, self.greeting) if self.protocol == "h2c" else H1Peer(sock))
            for peer in self.peers:
                peer.read()

    # -- what must hold

    def look(self) -> None:
        self.look_at_numbers()
        self.look_at_bodies()
        for balancer in self.pools._balancers.values():
            self.look_at_waiting(balancer)

    def look_at_numbers(self) -> None:
        over = sum(client.is_over for client in self.clients)
        assert len(self.records) == over
        assert sum(route.in_flight for route in self.stats.routes.values()) == len(self.clients) - over

    def look_at_bodies(self) -> None:
        everything = [request for peer in self.peers for request in peer.asked]
        questions = [request for request in everything if request.is_question]
        requests = [request for request in everything if not request.is_question]
        allowed = {question.path for question in questions if question.status == b"200"}
        assert not any(question.body for question in questions)
        records = {record.path: record for record in self.records}
        for client in self.clients:
            received = [request for request in requests if request.path == client.path]
            for request in received:
                assert client.sent.startswith(request.body)
                assert not request.has_ended or request.body == client.sent
            assert not received or not client.needs_leave or client.path in allowed
            if client.is_ended and records[client.path].reason == "denied":
                assert (client.body, client.needs_leave, received) in [
                    (question.sent if records[client.path].method != b"HEAD" else b"", True, [])
                    for question in questions
                    if question.path == client.path and (question.is_over or records[client.path].method == b"HEAD")
                ]
            if client.is_ended and not records[client.path].reason and records[client.path].method != b"HEAD":
                assert client.body in [request.sent for request in received if request.is_over]

    @staticmethod
    def look_at_waiting(balancer: Balancer) -> None:
        circuit = balancer._circuit
        pools = [pool for destination in balancer._all_destinations for pool in destination.pools]
        links = [link for pool in pools for link in pool._multiplexed]
        waiting = [pool for pool in pools if pool.is_waited_for]
        assert circuit.connections == sum(len(pool._links.keys() | pool._connecting) for pool in pools)
        assert circuit.pending == sum(len(pool._waiting) for pool in pools)
        assert circuit.running == sum(destination.running for destination in balancer._all_destinations)
        for pool in waiting:
            assert not pool._idle
            if any(link.has_room for link in pool._multiplexed):
                # Uploads alone, for another window than they would share with others.
                assert not any(request.end_stream for request in pool._waiting)
                assert pool._connecting
            if not pool._connecting and not any(link.takes_none for link in pool._multiplexed):
                assert not circuit.has_connection_left
                assert not any(other._idle for other in pools)
                assert not any(link.is_idle and not link.takes_none for link in links)

    def end(self) -> None:
        """Nothing more is sent by either side."""
        for _ in range(30):
            for client in self.clients:
                client.taken.drain()
            self.now_s += 5
            self.turn()
        assert [client.path for client in self.clients if not client.is_over] == []
        assert [client.owed_bytes for client in self.clients if client.owed_bytes] == []
        assert not self.services.running
        assert sum(stats.in_flight for stats in self.stats.backends.values()) == 0
        self.look()
        self.use({})
        for _ in range(5):
            self.now_s += 61
            self.turn()
        assert not self.pools.serves("b")
        assert not self.pools.serves("auth")
        assert sum(stats.connections for stats in self.stats.backends.values()) == 0

    def close(self) -> None:
        self.pools.close()
        self.loop.close()
        for peer in self.peers:
            peer.end()
        for site in self.sites:
            site.close()


@pytest.mark.parametrize("protocol", ["http", "h2c"])
@pytest.mark.parametrize("first", range(0, 4 * SEEDS, SEEDS))
def test_invariants_hold_for_events_in_any_order(first: int, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(first, first + SEEDS):
        play = Play(seed, protocol)
        try:
            for _ in range(STEPS):
                play.step()
                play.look()
            play.end()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            play.close()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [], seed
