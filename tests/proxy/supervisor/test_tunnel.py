"""The tunnel's decisions, with real workers and a simulated edge: searches that fail, hang or change."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace

import msgspec
import pytest

from daemonkit.lifecycle import StartFailed
from daemonkit.logformat import line_of
from daemonkit.secret import Secret
from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, OfEdge, TakeDocument, Taken, ToEdge
from proxy.document import Reader
from proxy.supervisor import edgesearch
from proxy.supervisor import tunnel as rules
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.edgefinder import Regions
from proxy.supervisor.edgetrust import TrustUnavailable
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.slot import Slot, State
from proxy.supervisor.tunnel import Tunnel, TunnelSettings
from proxy.supervisor.tunnelmetrics import TunnelCollector
from proxy.tunnel import retry
from proxy.tunnel.addresses import EdgeAddress, IpVersion
from proxy.tunnel.discovery import DiscoveryFailed
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Dial, EdgeOrder, Ended, Registered, Withdraw
from proxy.tunnel.packetsize import BlackHole
from tests.proxy.supervisor.playedworker import PlayedWorker, fleet_of
from tests.support.edge.behaviour import DUPLICATE, Behaviour, Hang, busy
from tests.support.edge.edge import Edge
from tests.support.edge.tunnels import new_tunnel
from tests.support.limits import no_memory_files

WAIT_S = 30.0
BOOTSTRAP_LINE = "tunnel bootstrap dial failed, retrying"


class Searches:
    """Finder and trust: each search has the next of these outcomes, the last one for ever."""

    def __init__(self, edge: Edge, *outcomes: Callable[[], Regions], name: str = "the edge of this test") -> None:
        self.name = name
        self._edge = edge
        self._outcomes = outcomes
        self.count = 0
        self.of_endpoints: dict[str, Searches] = {}

    def at(self, endpoint: str) -> Searches:
        return self.of_endpoints.get(endpoint, self)

    def find(self) -> Regions:
        outcome = self._outcomes[min(self.count, len(self._outcomes) - 1)]
        self.count += 1
        return outcome()

    def roots(self) -> str:
        return self._edge.authority.pem.decode()


def failing(error: Exception) -> Callable[[], Regions]:
    def fail() -> Regions:
        raise error

    return fail


def found(addresses: Sequence[str]) -> Callable[[], Regions]:
    split = [address.rpartition(":") for address in addresses]
    return lambda: [[EdgeAddress(host, int(port)) for host, _, port in split]]


@contextlib.contextmanager
def tunnel_of(
    edge: Edge, searches: Searches, workers: int = 1, connections: int = 1, registers: bool = True
) -> Iterator[Tunnel]:
    """Running, and registering without a document unless it only looks at the edge."""
    stop = threading.Event()
    access_log = AccessLogSettings("off", 1.0)
    fleet = Fleet([Begin(index, "error", "json", access_log) for index in range(workers)])
    settings = TunnelSettings(connections, IpVersion.AUTO, registers)
    tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
    threads = [threading.Thread(target=slot.run, daemon=True) for slot in fleet.slots]
    for thread in threads:
        thread.start()
    try:
        fleet.start()  # first, as in the daemon: some tests end workers with the first order
        threads.append(threading.Thread(target=tunnel.run, daemon=True))
        threads[-1].start()
        yield tunnel
    finally:
        tunnel.stop_is_near()
        stop.set()
        fleet.stop()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def until(is_there: Callable[[], bool], what: str) -> None:
    tick, left = threading.Event(), int(WAIT_S / 0.02)
    while not is_there():
        left -= 1
        assert left, f"never came: {what}"
        tick.wait(0.02)


def lines_of(caplog: pytest.LogCaptureFixture, msg: str) -> list[dict[str, object]]:
    return [line for line in map(line_of, caplog.records) if line["msg"] == msg]


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge() as edge:
        yield edge


def test_an_edge_that_is_probed_repeatedly_is_logged_once(
    edge: Edge, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "PROBE_PERIOD_S", 0.01)
    with caplog.at_level("INFO"), tunnel_of(edge, Searches(edge, found(edge.addresses)), registers=False) as tunnel:
        edge.wait_for_attempts(4, WAIT_S)
        assert tunnel.problem() == "no edge connection is registered yet"
    assert len(lines_of(caplog, "edge reachable, waiting for the first configuration")) == 1


@pytest.mark.parametrize(
    "error",
    [DiscoveryFailed("SRV: no answer"), TrustUnavailable("cannot fetch the roots"), RuntimeError("a bug")],
    ids=["no address", "no authorities", "bug"],
)
def test_a_failed_search_is_a_failed_attempt_and_is_retried(
    edge: Edge, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    has_looked = threading.Event()

    def find() -> Regions:
        assert has_looked.wait(WAIT_S)
        return found(edge.addresses)()

    searches = Searches(edge, failing(error), failing(error), find)
    with tunnel_of(edge, searches) as tunnel:
        assert tunnel.problem() == "no edge connection is registered yet"
        has_looked.set()
        edge.wait_for_registered(1, WAIT_S)
        assert searches.count == 3
    lines = lines_of(caplog, BOOTSTRAP_LINE)
    assert [(line["attempt"], line["edge"], str(line["error"])) for line in lines] == [
        (1, searches.name, str(error)),
        (2, searches.name, str(error)),
    ]
    bugs = lines_of(caplog, "bug in the search for the edge")
    assert len(bugs) == (2 if isinstance(error, RuntimeError) else 0)


def test_a_search_whose_thread_cannot_start_is_a_failed_attempt_and_is_retried(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lack = StartFailed("can't start new thread")
    outcomes = iter([failing(lack)])

    def start_second(thread: threading.Thread) -> None:
        next(outcomes, thread.start)()

    monkeypatch.setattr(edgesearch, "start_thread", start_second)
    searches = Searches(edge, found(edge.addresses))
    with tunnel_of(edge, searches):
        edge.wait_for_registered(1, WAIT_S)
    (line,) = lines_of(caplog, BOOTSTRAP_LINE)
    assert (line["attempt"], str(line["error"])) == (1, str(lack))


def test_a_dial_without_memory_for_its_order_is_a_failed_attempt_and_is_retried(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = threading.Event()

    def find() -> Regions:
        assert is_full.wait(WAIT_S)
        return found(edge.addresses)()

    with tunnel_of(edge, Searches(edge, find)):
        with no_memory_files():
            is_full.set()
            until(lambda: bool(lines_of(caplog, BOOTSTRAP_LINE)), "a failed attempt")
        edge.wait_for_registered(1, WAIT_S)
    assert "cannot hand it to a worker" in str(lines_of(caplog, BOOTSTRAP_LINE)[0]["error"])


def test_a_push_is_acknowledged_though_no_memory_file_can_be_made(edge: Edge) -> None:
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        edge.wait_for_registered(1, WAIT_S)
        assert edge.push(3, {}).last_applied_version == 3
        pid = tunnel.places[0].pid
        assert pid is not None
        with no_memory_files(pid):
            assert edge.push(4, {}).last_applied_version == 4


def test_addresses_that_all_fail_are_looked_for_again(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    gone, here = edge.addresses
    edge.refuse(gone)
    searches = Searches(edge, found([gone]), found([here]))
    with tunnel_of(edge, searches) as tunnel:
        (record,) = edge.wait_for_registered(1, WAIT_S)
        assert (record.address, searches.count) == (here, 2)
        assert tunnel.places[0].failures == {"dial": 1}


def test_a_new_search_does_not_reassign_an_address_that_is_being_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    # Always the first address that is free, and no waits.
    monkeypatch.setattr(random, "randrange", lambda _count: 0)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    with Edge(["127.0.0.1:0"] * 3) as edge:
        gone, stuck, free = edge.addresses
        searches = Searches(edge, found([gone, stuck]), found([stuck, free]))
        with tunnel_of(edge, searches, connections=2):
            first, second = sorted(edge.wait_for_registered(2, WAIT_S), key=lambda record: record.number)
            assert (first.address, second.address) == (gone, stuck)
            edge.behave(Behaviour(hang=Hang.BEFORE_TLS))
            edge.drop(second)
            (*_, hanging) = edge.wait_for_attempts(3, WAIT_S)
            assert hanging.address == stuck
            edge.behave()
            edge.refuse(gone)
            edge.drop(first)

            (record,) = edge.wait_for_registered(1, WAIT_S)
            assert record.address == free


def test_a_search_is_not_repeated_soon_after_failed_attempts(edge: Edge) -> None:
    edge.refuse()
    searches = Searches(edge, found(edge.addresses))
    with tunnel_of(edge, searches) as tunnel:
        place = tunnel.places[0]
        until(lambda: place.waits.attempts >= 2, "two failed attempts")
        edge.admit()
        edge.wait_for_registered(1, WAIT_S)
        assert searches.count == 1


def test_an_attempt_that_becomes_due_just_before_the_wait_is_made(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is delayed before it waits, and nothing else happens that would wake it."""
    passed_s = 0.0
    monkeypatch.setattr(rules, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    wait_s = Tunnel._wait_s

    def late(tunnel: Tunnel, looked_at_s: float) -> float | None:
        nonlocal passed_s
        place = tunnel.places[0]
        if place.waits.attempts == 1 and not place.number:
            passed_s = 60.0
        return wait_s(tunnel, looked_at_s)

    monkeypatch.setattr(Tunnel, "_wait_s", late)
    edge.plan(Behaviour(refusal=busy()))
    with tunnel_of(edge, Searches(edge, found(edge.addresses))):
        edge.wait_for_registered(1, WAIT_S)


def test_a_stop_does_not_wait_for_a_search(edge: Edge) -> None:
    searching, over = threading.Event(), threading.Event()

    def hang() -> Regions:
        searching.set()
        over.wait(4 * WAIT_S)
        return []

    with tunnel_of(edge, Searches(edge, hang)):
        assert searching.wait(WAIT_S)
    over.set()


def test_an_order_that_reaches_the_successor_of_its_worker_is_carried_out(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies between the choice and the order."""
    obeyed = Slot.order

    def order(slot: Slot, what: EdgeOrder, content: bytes | None = None) -> int | None:
        monkeypatch.setattr(Slot, "order", obeyed)
        before = slot.pid
        slot.kill(before)
        until(lambda: slot.pid not in (None, before) and slot.state is State.RUNNING, "the next worker")
        return slot.order(what, content)

    monkeypatch.setattr(Slot, "order", order)
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        edge.wait_for_registered(1, WAIT_S)
        until(lambda: tunnel.registered == 1, "word of it")
        assert not tunnel.places[0].failures
        assert len(edge.ledger.records) == 1


def test_an_order_to_a_worker_that_has_died_waits_for_another(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    obeyed = Slot.order
    dead = threading.Event()

    def order(slot: Slot, what: EdgeOrder, content: bytes | None = None) -> int | None:
        if not dead.is_set():
            before = slot.pid
            slot.kill(before)
            until(lambda: slot.pid != before, "its death")
            dead.set()
        return obeyed(slot, what, content)

    monkeypatch.setattr(Slot, "order", order)
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        edge.wait_for_registered(1, WAIT_S)
        until(lambda: tunnel.registered == 1, "word of it")
        assert not tunnel.places[0].failures


def test_a_new_token_is_tried_at_once_however_long_the_delay_was(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MAX_CAP_S", 3600.0)
    other = new_tunnel()
    edge.tunnels.add(other)
    edge.behave(Behaviour(refusal=busy(3600.0)))
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        place = tunnel.places[0]
        until(lambda: place.waits.attempts == 1 and not place.number, "a failed attempt")
        edge.behave()
        tunnel.use_token(Secret(other.token))
        edge.wait_for_registered(1, WAIT_S)


def test_a_new_token_before_the_first_registration_lets_no_other_connection_be_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "MAX_CAP_S", 3600.0)
    other = new_tunnel()
    with Edge(["127.0.0.1:0"] * 2) as edge:
        edge.tunnels.add(other)
        edge.behave(Behaviour(refusal=busy(3600.0)))
        with tunnel_of(edge, Searches(edge, found(edge.addresses)), connections=2) as tunnel:
            first, second = tunnel.places
            until(lambda: first.failures.total() == 1 and not first.number, "a failed attempt")
            tunnel.use_token(Secret(other.token))
            until(lambda: first.failures.total() == 2, "another")
            assert (second.number, second.failures.total()) == (0, 0)


def test_a_token_of_another_region_is_used_with_the_edge_of_that_region_only() -> None:
    with Edge(["127.0.0.1:0"] * 4) as edge:
        here, there = sorted(edge.addresses[:2]), sorted(edge.addresses[2:])
        everywhere = Searches(edge, found(here))
        everywhere.of_endpoints["fed"] = Searches(edge, found(there), name="the other edge")
        with tunnel_of(edge, everywhere, connections=2) as tunnel:
            edge.wait_for_registered(2, WAIT_S)
            moved = msgspec.structs.replace(edge.tunnel, endpoint="fed")
            tunnel.use_token(Secret(moved.token))
            edge.wait_for(
                lambda: sorted(record.address for record in edge.ledger.registered) == there, "both there", WAIT_S
            )
            until(lambda: tunnel.registered == 2, "word of it")
            assert not any(place.failures for place in tunnel.places)
            assert len(edge.ledger.records) == 4


def test_a_failed_search_in_the_region_of_a_previous_token_causes_neither_delay_nor_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_asked_elsewhere = threading.Event()

    class Leaving(Searches):
        def at(self, endpoint: str) -> Searches:
            is_asked_elsewhere.set()
            return super().at(endpoint)

    def nobody_answers() -> Regions:
        assert is_asked_elsewhere.wait(WAIT_S)
        raise DiscoveryFailed("no answer here")

    with Edge() as edge:
        here = Leaving(edge, nobody_answers)
        here.of_endpoints["fed"] = Searches(edge, found(edge.addresses), name="the other edge")
        with tunnel_of(edge, here) as tunnel:
            until(lambda: here.count == 1, "the search here")
            tunnel.use_token(Secret(msgspec.structs.replace(edge.tunnel, endpoint="fed").token))
            edge.wait_for_registered(1, WAIT_S)
            assert not tunnel.places[0].failures
        assert not lines_of(caplog, BOOTSTRAP_LINE)


def test_known_addresses_stay_in_use_while_searches_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an outage of the Internet connection, the host's resolver does not work yet."""
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    with Edge(["127.0.0.1:0"]) as edge:
        edge.refuse()
        searches = Searches(edge, found(edge.addresses), failing(DiscoveryFailed("SRV: no answer")))
        with tunnel_of(edge, searches) as tunnel:
            until(lambda: searches.count >= 2, "a search that fails")
            edge.admit()
            edge.wait_for_registered(1, WAIT_S)
            assert tunnel.places[0].address is not None
    told = lines_of(caplog, "cannot look up the edge again, its known addresses stay in use")
    assert (str(told[0]["error"]), told[0]["edge"]) == ("SRV: no answer", searches.name)


def test_known_addresses_are_dialled_again_while_a_search_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an outage of the Internet connection, the host's resolver has not timed out yet."""
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    monkeypatch.setattr(edgesearch, "SEARCH_PATIENCE_S", 0.1)
    searching, over = threading.Event(), threading.Event()

    def hang() -> Regions:
        searching.set()
        over.wait(4 * WAIT_S)
        raise DiscoveryFailed("SRV: no answer")

    with Edge(["127.0.0.1:0"]) as edge:
        edge.refuse()
        with tunnel_of(edge, Searches(edge, found(edge.addresses), hang)):
            assert searching.wait(WAIT_S)
            edge.admit()
            edge.wait_for_registered(1, WAIT_S)
            assert not over.is_set()
    over.set()


def test_one_search_runs_at_a_time_however_often_addresses_fail_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver may take minutes to fail, and each search is a thread."""
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    monkeypatch.setattr(edgesearch, "SEARCH_PATIENCE_S", 0.01)
    monkeypatch.setattr(random, "random", lambda: 0.02)
    over = threading.Event()

    def hang() -> Regions:
        over.wait(4 * WAIT_S)
        raise DiscoveryFailed("SRV: no answer")

    with Edge(["127.0.0.1:0"]) as edge:
        edge.refuse()
        searches = Searches(edge, found(edge.addresses), hang)
        with tunnel_of(edge, searches) as tunnel:
            until(lambda: tunnel.places[0].failures["dial"] >= 4, "four failed attempts")
            assert searches.count == 2
            over.set()


def test_dialling_waits_a_moment_for_the_search_that_may_find_better_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    monkeypatch.setattr(edgesearch, "SEARCH_PATIENCE_S", 4 * WAIT_S)
    monkeypatch.setattr(random, "random", lambda: 0.02)
    tunnels: list[Tunnel] = []
    with Edge(["127.0.0.1:0"] * 2) as edge:
        gone, here = edge.addresses
        edge.refuse(gone)

        def find_slowly() -> Regions:
            until(lambda: bool(tunnels), "the tunnel runs")
            (place,) = tunnels[0].places
            until(lambda: time.monotonic() > place.due_s + 0.2, "the next attempt has been due for a while")
            return found([here])()

        with tunnel_of(edge, Searches(edge, found([gone]), find_slowly)) as tunnel:
            tunnels.append(tunnel)
            (record,) = edge.wait_for_registered(1, WAIT_S)
            assert (record.address, tunnel.places[0].failures) == (here, {"dial": 1})


def test_a_search_is_repeated_if_it_found_too_few_addresses(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    monkeypatch.setattr(rules, "_NO_ADDRESS_S", 0.01)
    searches = Searches(edge, found(edge.addresses[:1]), failing(DiscoveryFailed("")), found(edge.addresses))
    with tunnel_of(edge, searches, connections=2) as tunnel:
        edge.wait_for_registered(2, WAIT_S)
        assert not any(place.failures for place in tunnel.places)


def test_failing_addresses_are_searched_again_while_another_connection_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edgesearch, "SEARCH_AGAIN_S", 0.0)
    monkeypatch.setattr(rules, "_NO_ADDRESS_S", 0.01)
    with Edge(["127.0.0.1:0"] * 3) as edge:
        good, gone, new = edge.addresses
        edge.refuse(gone)
        searches = Searches(edge, found([good]), found([good, gone]), found([good, new]))
        with tunnel_of(edge, searches, connections=2):
            records = edge.wait_for_registered(2, WAIT_S)
            assert sorted(record.address for record in records) == sorted([good, new])


def test_a_duplicate_does_not_switch_back_to_the_unreachable_family(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)
    with tunnel_of(edge, Searches(edge, found(["::1:1", *edge.addresses]))) as tunnel:
        (first,) = edge.wait_for_registered(1, WAIT_S)
        edge.plan(Behaviour(refusal=DUPLICATE))
        edge.drop(first)
        edge.wait_for_attempts(3, WAIT_S)
        (second,) = edge.wait_for_registered(1, WAIT_S)
        assert second.address != first.address
        assert tunnel.places[0].failures == {"dial": 1, "lost": 1, "duplicate": 1}


def test_a_dial_that_fails_with_a_previous_token_counts_as_the_first_failure(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the new token would inherit the long delay of the previous one."""
    monkeypatch.setattr(retry, "MAX_CAP_S", 3600.0)
    other = new_tunnel()
    edge.tunnels.add(other)
    edge.behave(Behaviour(hang=Hang.BEFORE_REGISTRATION))
    chances = iter([0.0] * 12)
    monkeypatch.setattr(random, "random", lambda: next(chances, 0.1))
    edge.plan(*[Behaviour(refusal=busy(0.0))] * 12)
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        place = tunnel.places[0]
        until(lambda: place.waits.attempts == 12 and bool(place.number), "a dial that is not answered")
        (*_, hanging) = edge.wait_for_attempts(13, WAIT_S)
        tunnel.use_token(Secret(other.token))
        edge.behave()
        edge.drop(hanging)
        until(lambda: place.waits.attempts == 1, "its failure")
        edge.wait_for_registered(1, WAIT_S)


def test_a_connection_moved_to_another_token_starts_with_no_previous_attempts(edge: Edge) -> None:
    other = new_tunnel()
    edge.tunnels.add(other)
    edge.plan(Behaviour(refusal=busy(0.0)), Behaviour(refusal=busy(0.0)))
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        edge.wait_for_registered(1, WAIT_S)
        tunnel.use_token(Secret(other.token))
        edge.wait_for(lambda: len(edge.ledger.records) == 4 and bool(edge.ledger.registered), "the other", WAIT_S)
        asked = [record.registration.options.previous_attempts for record in edge.ledger.records if record.registration]
        assert asked == [0, 1, 2, 0]


def test_a_connection_lost_after_a_good_while_starts_anew_with_a_quick_attempt(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "GOOD_PERIOD_S", 0.0)
    monkeypatch.setattr(retry, "QUICK_CAP_S", 0.0)
    edge.plan(Behaviour(refusal=busy(0.0)), Behaviour(refusal=busy(0.0)))
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        edge.wait_for_registered(1, WAIT_S)
        edge.plan(Behaviour(refusal=busy(0.0)))
        edge.drop()
        edge.wait_for(lambda: len(edge.ledger.records) == 5 and bool(edge.ledger.registered), "again", WAIT_S)
        asked = [record.registration.options.previous_attempts for record in edge.ledger.records if record.registration]
        assert asked == [0, 1, 2, 1, 2]
        assert tunnel.places[0].waits.attempts == 2


def test_during_a_stop_pushes_are_answered_and_a_closed_connection_is_not_a_failure(edge: Edge) -> None:
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        (record,) = edge.wait_for_registered(1, WAIT_S)
        until(lambda: tunnel.registered == 1, "word of it")
        tunnel.stop_is_near()
        assert edge.push(7, {}).last_applied_version == 7
        edge.close_connection(record)
        until(lambda: not tunnel.registered, "word of its end")
        assert not tunnel.places[0].failures
        assert len(edge.ledger.records) == 1


def counts_of(tunnel: Tunnel) -> list[int]:
    """Registered connections of each worker, fewest first."""
    slots = [place.slot.index for place in tunnel.places if place.is_registered and place.slot is not None]
    return sorted(slots.count(index) for index in range(2))


def test_connections_are_redistributed_when_a_worker_has_been_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rules, "SETTLED_S", 0.2)
    returned = threading.Event()
    begin = Slot._live

    def late(slot: Slot) -> str:
        if slot.restarts:
            assert returned.wait(WAIT_S)
        return begin(slot)

    monkeypatch.setattr(Slot, "_live", late)
    with Edge(["127.0.0.1:0"] * 4) as edge:
        searches = Searches(edge, found(edge.addresses))
        with caplog.at_level("INFO"), tunnel_of(edge, searches, workers=2, connections=4) as tunnel:
            until(lambda: counts_of(tunnel) == [2, 2], "two for each worker")
            moved = len(lines_of(caplog, "moving an edge connection to another worker"))
            (killed,) = {place.slot for place in tunnel.places if place.slot is not None and place.slot.index == 1}
            killed.kill(killed.pid)
            until(lambda: counts_of(tunnel) == [0, 4], "all in the worker that is left")
            returned.set()
            until(lambda: counts_of(tunnel) == [2, 2], "two for each worker again")
            assert sum(place.failures["lost"] for place in tunnel.places) == 2
            assert sum(place.failures.total() for place in tunnel.places) == 2
    assert len(lines_of(caplog, "moving an edge connection to another worker")) == moved + 2


def test_connections_that_are_spread_as_evenly_as_they_can_be_stay_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "SETTLED_S", 0.2)
    with Edge(["127.0.0.1:0"] * 3) as edge:
        searches = Searches(edge, found(edge.addresses))
        with tunnel_of(edge, searches, workers=2, connections=3) as tunnel:

            def is_settled() -> bool:
                is_calm = tunnel._spread_at_s == math.inf and not any(place.is_moving for place in tunnel.places)
                return is_calm and sorted(counts_of(tunnel)) == [1, 2]

            until(is_settled, "no further move")


def test_no_connection_is_said_to_move_to_another_worker_while_another_one_moves(
    edge: Edge, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0
    monkeypatch.setattr(rules, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    stop, full, free = threading.Event(), PlayedWorker(), PlayedWorker()

    def registers(worker: PlayedWorker) -> None:
        dial = worker.hears(ToEdge).order
        assert isinstance(dial, Dial)
        worker.says(OfEdge(Registered(dial.number, "id", "LIS")))

    searches = Searches(edge, found(edge.addresses))
    with caplog.at_level("INFO"), fleet_of(full, free) as fleet:
        settings = TunnelSettings(2, IpVersion.AUTO, registers_without_configuration=False)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        full.says(Taken(1))
        until(lambda: fleet.slots[0].taken == 1, "word of it")
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        registers(full)
        registers(full)
        free.says(Taken(1))
        until(lambda: fleet.slots[1].taken == 1, "word of it")
        tunnel.use_token(Secret(new_tunnel().token))
        assert full.hears(ToEdge).order == Withdraw(1)
        for passed_s in (60.0, 120.0):  # noqa: B007 - the clock reads it; the second is after any event before
            looked = threading.Event()
            for event in (lambda: None, looked.set):
                tunnel._events.put(event)
            assert looked.wait(WAIT_S)
        told = lines_of(caplog, "moving an edge connection to another worker")
        full.says(OfEdge(Ended(1, FailureCause.LOST, "unregistered", 0.0, 60.0)))
        registers(free)
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert told == []


def test_connections_are_dialled_with_small_packets_once_full_ones_do_not_reach_the_edge(
    edge: Edge, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is already registered is moved."""
    monkeypatch.setattr(random, "random", lambda: 0.0)
    stop, worker = threading.Event(), PlayedWorker()

    def hears_dial() -> Dial:
        order = worker.hears(ToEdge).order
        assert isinstance(order, Dial)
        return order

    def registers(dial: Dial) -> None:
        worker.says(OfEdge(Registered(dial.number, "id", "LIS")))

    def ends(dial: Dial, black_hole: BlackHole) -> None:
        worker.says(OfEdge(Ended(dial.number, FailureCause.LOST, "gone", 0.0, 60.0, black_hole)))

    searches = Searches(edge, found(edge.addresses))
    with caplog.at_level("INFO"), fleet_of(worker) as fleet:
        settings = TunnelSettings(2, IpVersion.AUTO, True)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        registers(first := hears_dial())
        registers(second := hears_dial())
        ends(first, BlackHole.NO)
        registers(again := hears_dial())
        ends(again, BlackHole.YES)
        registers(small := hears_dial())
        assert worker.hears(ToEdge).order == Withdraw(second.number)
        ends(second, BlackHole.NO)
        registers(moved := hears_dial())
        ends(small, BlackHole.YES)
        not_helped = hears_dial()
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    dials = [first, second, again, small, moved, not_helped]
    assert [dial.is_small for dial in dials] == [False, False, False, True, True, False]
    told = lines_of(caplog, "full-size packets to the edge seem to be lost, sending smaller ones")
    assert len(told) == 1


@pytest.mark.parametrize("is_good", [True, False])
def test_a_connection_that_loses_its_address_keeps_the_rest_from_a_new_token_only_until_that_has_proved_good(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, is_good: bool
) -> None:
    """There are more connections than addresses, so the one that was to move first does not come back."""
    passed_s = 0.0
    monkeypatch.setattr(rules, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    monkeypatch.setattr(rules, "_NO_ADDRESS_S", 0.01)
    monkeypatch.setattr(retry, "FIRST_CAP_S", 3600.0)
    monkeypatch.setattr(retry, "MAX_CAP_S", 3600.0)
    monkeypatch.setattr(random, "random", lambda: 1.0)
    stop, worker = threading.Event(), PlayedWorker()

    def hears_dial(conn_index: int) -> Dial:
        order = worker.hears(ToEdge).order
        assert isinstance(order, Dial)
        assert order.conn_index == conn_index
        return order

    def registers(dial: Dial) -> Dial:
        worker.says(OfEdge(Registered(dial.number, "id", "LIS")))
        return dial

    searches = Searches(edge, found(edge.addresses))
    with fleet_of(worker) as fleet:
        settings = TunnelSettings(3, IpVersion.AUTO, registers_without_configuration=True)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        first = registers(hears_dial(0))
        second = registers(hears_dial(1))
        until(lambda: tunnel.registered == 2, "both")
        tunnel.use_token(Secret(new_tunnel().token))
        assert worker.hears(ToEdge).order == Withdraw(first.number)
        worker.says(OfEdge(Ended(first.number, FailureCause.LOST, "unregistered", 0.0, 60.0)))
        worker.says(OfEdge(Ended(hears_dial(0).number, FailureCause.DIAL, "refused", 0.0, 0.0)))
        third = hears_dial(2)
        if is_good:
            registers(third)
        passed_s = 7200.0
        tunnel._events.put(lambda: None)
        if is_good:
            assert worker.hears(ToEdge).order == Withdraw(second.number)
        else:
            worker.says(OfEdge(Ended(third.number, FailureCause.REFUSED, "no such tunnel", 0.0, 0.0)))
            hears_dial(0)
            assert tunnel.registered == 1, "the second"
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_connections_are_registered_by_workers_that_serve_the_document_only(edge: Edge) -> None:
    """Another one, such as a successor that has just started, could answer their requests with errors only."""
    stop, without, serving = threading.Event(), PlayedWorker(), PlayedWorker()
    searches = Searches(edge, found(edge.addresses))

    def registers(worker: PlayedWorker) -> int:
        dial = worker.hears(ToEdge).order
        assert isinstance(dial, Dial)
        assert dial.registers
        worker.says(OfEdge(Registered(dial.number, "id", "LIS")))
        return dial.conn_index

    with fleet_of(without, serving) as fleet:
        settings = TunnelSettings(2, IpVersion.AUTO, registers_without_configuration=False)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        serving.says(Taken(1))
        until(lambda: fleet.slots[1].taken == 1, "word of it")
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        indexes = [registers(serving), registers(serving)]
        without.says(Taken(1))
        until(lambda: fleet.slots[0].taken == 1, "word of it")
        serving.says(OfEdge(Ended(2, FailureCause.LOST, "gone", 0.0, 60.0)))
        indexes.append(registers(without))
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert indexes == [0, 1, 1]


def test_a_worker_that_is_about_to_serve_its_first_document_is_waited_for(edge: Edge) -> None:
    """The edge is not looked at before: that would take a connection and a TLS handshake from the start."""
    stop, worker = threading.Event(), PlayedWorker()
    searches = Searches(edge, found(edge.addresses))
    with fleet_of(worker) as fleet:
        settings = TunnelSettings(1, IpVersion.AUTO, registers_without_configuration=False)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        fleet.deploy(Deployment(1, 1, Reader().read(b"{}").content, {}))
        worker.hears(TakeDocument)
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        until(lambda: tunnel._search.addresses is not None, "addresses")
        # After the first of two events it has had the occasion to dial.
        for _ in range(2):
            seen = threading.Event()
            tunnel._events.put(seen.set)
            assert seen.wait(WAIT_S)
        worker.says(Taken(1))
        order = worker.hears(ToEdge).order
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert isinstance(order, Dial)
    assert order.registers


def test_connections_are_dialled_from_all_workers_in_turn() -> None:
    """Those that are still being dialled count, too."""
    stop, workers = threading.Event(), (PlayedWorker(), PlayedWorker())
    with Edge(["127.0.0.1:0"] * 4) as edge, fleet_of(*workers) as fleet:
        searches = Searches(edge, found(edge.addresses))
        settings = TunnelSettings(4, IpVersion.AUTO, registers_without_configuration=True)
        tunnel = Tunnel(settings, Secret(edge.tunnel.token), fleet.slots, searches, searches, stop)
        thread = threading.Thread(target=tunnel.run, daemon=True)
        thread.start()
        first = workers[0].hears(ToEdge).order
        assert isinstance(first, Dial)
        workers[0].says(OfEdge(Registered(first.number, "id", "LIS")))
        others = [workers[turn].hears(ToEdge).order for turn in (1, 0, 1)]
        tunnel.stop_is_near()
        stop.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert [1, 2, 3] == [order.conn_index for order in others if isinstance(order, Dial)]


def test_a_scrape_at_any_moment_shows_where_a_registered_connection_is(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []
    collectors: list[TunnelCollector] = []
    is_begun = threading.Event()

    def scraping() -> float:
        assert is_begun.wait(WAIT_S)
        for collector in collectors:
            samples = (sample for family in collector.collect() for sample in family.samples)
            seen.extend(each.labels for each in samples if each.name == "tunnelgw_proxy_tunnel_connection_info")
        return time.monotonic()

    monkeypatch.setattr(rules, "time", SimpleNamespace(monotonic=scraping))
    with tunnel_of(edge, Searches(edge, found(edge.addresses))) as tunnel:
        collectors.append(TunnelCollector(Fleet([]), tunnel))
        is_begun.set()
        until(lambda: tunnel.registered == 1, "the connection")
        until(lambda: bool(seen), "a scrape after that")

    assert [labels for labels in seen if not labels["location"]] == []
