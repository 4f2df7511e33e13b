"""Names, several addresses, and the time to connect."""

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import document
from proxy.backend import resolver
from proxy.backend.connecting import Connecting
from proxy.backend.eyeballs import Race, alternate
from proxy.backend.resolver import Address
from proxy.backend.stream import Reason, Wish
from proxy.loop import Transport
from tests.proxy.backend.h2peer import speaks
from tests.proxy.backend.names import V4, V6, Names, named
from tests.proxy.backend.servers import backend, dead_port, of
from tests.proxy.backend.world import Owed, World, world
from tests.support.descriptors import open_descriptors
from tests.support.lettinggo import uncollected
from tests.support.watches import watches_refused

NOWHERE = "255.255.255.255"
"""The kernel refuses to connect to it at once, as to an address that it has no route to."""


def close_kept(w: World) -> None:
    """Let the idle timeout expire."""
    w.pass_time(5)
    w.until(lambda: w.backend().connections == 0)


def test_a_name_is_resolved_off_the_loop() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        names.may_answer.clear()
        with world(names) as w:
            w.use(named())
            answer = w.get()
            w.until(lambda: names.asked == 1)
            w.turns()
            assert not answer.is_over
            names.may_answer.set()
            w.until(lambda: answer.is_over)

            assert answer.status_code == 200
            assert answer.request is not None
            assert answer.request.address == "backend.example:80"


def test_a_dead_address_is_skipped_for_a_live_one() -> None:
    with backend() as peer, world(Names(("127.0.0.1", dead_port()), (peer.host, peer.port))) as w:
        w.clock.stop()
        w.use(named(), backend_idle_timeout="1s")
        for _ in range(3):
            assert w.fetch().status_code == 200
            close_kept(w)


@contextmanager
def silent_port() -> Iterator[int]:
    """A full accept queue drops new connections, as a firewall would."""
    with socket.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def test_the_next_address_is_tried_after_a_quarter_of_a_second_of_silence() -> None:
    with silent_port() as port, backend() as peer, world(Names((peer.host, peer.port), ("127.0.0.1", port))) as w:
        w.clock.stop()
        w.use(named())
        # The second address is tried first.
        answer = w.get()
        w.until(lambda: w.told == 1)
        w.turns(10)
        assert not answer.is_over
        assert peer.connections == 0
        w.pass_time(0.3)
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200


def test_the_last_address_gets_the_whole_connect_timeout() -> None:
    """Even if the one before it has failed within its quarter of a second."""
    with silent_port() as port, world(Names(("127.0.0.1", port), ("127.0.0.1", dead_port()))) as w:
        w.clock.stop()
        w.use(named(), connect_timeout="3s")
        answer = w.get()
        w.until(lambda: w.told == 1)
        w.turns(10)
        for passed_s in (0.3, 2.6):
            w.pass_time(passed_s)
            w.turns()
            assert not answer.is_over
        w.pass_time(0.2)
        w.until(lambda: answer.is_over)

        assert answer.failure is not None
        assert answer.failure.reason is Reason.CONNECT_TIMEOUT


def test_a_silent_address_gets_the_whole_connect_timeout_when_the_others_have_failed() -> None:
    with silent_port() as port, world(Names(("127.0.0.1", dead_port()), ("127.0.0.1", port))) as w:
        w.clock.stop()
        w.use(named(), connect_timeout="3s")
        answer = w.get()
        w.until(lambda: w.told == 1)
        for _ in range(2):
            w.turns(10)
            assert not answer.is_over
            w.pass_time(0.3)
        w.turns(10)
        assert not answer.is_over
        w.pass_time(3)
        w.until(lambda: answer.is_over)

        assert answer.failure is not None
        assert answer.failure.reason is Reason.CONNECT_TIMEOUT


def test_an_address_without_a_network_route_is_skipped_at_once() -> None:
    with backend() as peer, world(Names((peer.host, peer.port), (NOWHERE, 80))) as w:
        w.clock.stop()
        w.use(named())

        assert w.fetch().status_code == 200


def test_a_backend_without_a_network_route_is_unreachable() -> None:
    with world() as w:
        w.clock.stop()
        w.use(document.Backend(name="b", addresses=(f"{NOWHERE}:80",)))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.UNREACHABLE, True)
        assert NOWHERE in failure.detail


def test_both_address_families_are_tried() -> None:
    with backend(host="::1") as peer, world(Names(("127.0.0.1", dead_port()), ("::1", peer.port))) as w:
        w.use(named())

        assert w.fetch().status_code == 200


def test_an_ipv6_address_in_brackets_is_dialled() -> None:
    with backend(host="::1") as peer, world() as w:
        w.use(document.Backend(name="b", addresses=(peer.address,)))

        assert w.fetch().status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_ip_address_needs_no_resolver(host: str) -> None:
    names = Names()
    with backend(host=host) as peer, world(names) as w:
        w.use(document.Backend(name="b", addresses=(peer.address,)))

        assert w.fetch().status_code == 200
        assert names.asked == 0


def test_connections_are_spread_over_the_addresses_of_a_name() -> None:
    with backend() as one, backend() as other, world(Names((one.host, one.port), (other.host, other.port))) as w:
        w.use(named(), backend_idle_timeout="1s")
        for _ in range(4):
            w.fetch()
            close_kept(w)

        assert (one.connections, other.connections) == (2, 2)


@pytest.mark.parametrize(
    ("addresses", "why"),
    [(None, "gaierror: [Errno -2] no such host backend.example"), ((), "the name has no address")],
    ids=["that does not exist", "that exists"],
)
def test_a_name_without_addresses_fails_with_the_reason(addresses: tuple[()] | None, why: str) -> None:
    names = Names()
    names.addresses = addresses
    with world(names) as w:
        w.use(named())
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.RESOLVE, True)
        assert failure.detail.endswith(why)


def test_a_failed_lookup_is_not_repeated_at_once_but_soon() -> None:
    names = Names()
    names.addresses = None
    with backend() as peer, world(names) as w:
        w.clock.stop()
        w.use(named())
        for _ in range(3):
            assert w.fetch().failure is not None
        assert names.asked == 1
        names.addresses = ((peer.host, peer.port),)
        w.pass_time(1.5)

        assert w.fetch().status_code == 200


def test_a_request_during_a_repeated_lookup_waits_for_its_result() -> None:
    with backend() as peer:
        names = Names()
        with world(names) as w:
            w.use(named())
            assert w.fetch().failure is not None
            w.pass_time(resolver.RETRY_S)
            names.may_answer.clear()
            answers = [w.get()]
            w.until(lambda: names.asked == 2)
            answers.append(w.get())
            w.turns(10)
            assert not any(answer.is_over for answer in answers)
            names.addresses = ((peer.host, peer.port),)
            names.may_answer.set()
            w.until(lambda: all(answer.is_over for answer in answers))

            assert [answer.status_code for answer in answers] == [200, 200]


def test_an_address_is_shown_in_the_usual_notation() -> None:
    assert [str(Address(V4, "192.0.2.1", 80)), str(Address(V6, "::1", 80))] == ["192.0.2.1:80", "[::1]:80"]
    assert Address(V6, "fe80::1", 80, 3).sockaddr == ("fe80::1", 80, 0, 3)


def test_a_name_in_use_is_resolved_again_and_keeps_its_last_addresses_on_failure() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        with world(names) as w:
            w.use(named(), backend_idle_timeout="1s")
            w.fetch()
            names.addresses = None
            w.pass_time(31)
            w.until(lambda: w.told == 2)
            w.turns()
            assert w.fetch().status_code == 200
            with backend() as moved:
                names.addresses = ((moved.host, moved.port),)
                w.pass_time(6)
                w.until(lambda: names.asked == 3)
                w.until(
                    lambda: w.fetch(wish=Wish(needs_new_connection=True)).status_code == 200 and moved.connections > 0
                )


@pytest.mark.parametrize(
    ("fault", "is_kept"),
    [(socket.EAI_NONAME, False), (socket.EAI_NODATA, False), (socket.EAI_AGAIN, True), (socket.EAI_FAIL, True)],
)
def test_addresses_are_dropped_after_repeated_negative_answers_and_kept_when_the_resolver_fails(
    fault: int, is_kept: bool
) -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        with world(names) as w:
            w.use(named(), backend_idle_timeout="1s")
            w.fetch()
            names.addresses, names.fault = None, fault
            w.pass_time(31)
            for asked in range(2, 8):
                w.until(lambda asked=asked: w.told == asked)  # type: ignore[misc]
                assert w.fetch().status_code == 200
                w.pass_time(5.1)
            w.until(lambda: w.told == 8)
            w.turns()

            assert (w.fetch().failure is None) is is_kept
            names.addresses = ((peer.host, peer.port),)
            w.pass_time(5.1)
            assert w.fetch().status_code == 200

            # A later denial is the first one again.
            w.until(lambda: w.told == 9)
            names.addresses = None
            w.pass_time(31)
            w.until(lambda: w.told == 10)
            w.turns()
            assert w.fetch().status_code == 200


def test_a_name_out_of_use_is_forgotten() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        with world(names) as w:
            w.use(named(), backend_idle_timeout="1s")
            w.fetch()
            w.pass_time(31)
            w.until(lambda: w.told == 2)
            w.fetch()
            w.pass_time(301)
            for _ in range(3):
                w.pass_time(31)
            assert names.asked == 2
            w.fetch()

            assert names.asked == 3


def test_the_connect_timeout_includes_name_resolution() -> None:
    names = Names()
    names.may_answer.clear()
    with world(names) as w:
        w.use(named(), connect_timeout="3s")
        answer = w.get()
        w.until(lambda: names.asked == 1)
        w.pass_time(4)
        w.until(lambda: answer.is_over)
        names.may_answer.set()

        assert answer.failure is not None
        assert answer.failure.reason is Reason.CONNECT_TIMEOUT
        assert "resolving the name" in answer.failure.detail


def test_a_lookup_that_ends_after_the_connect_timeout_opens_no_connection() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        names.may_answer.clear()
        with world(names) as w:
            w.use(named(), connect_timeout="3s")
            answer = w.get()
            w.until(lambda: names.asked == 1)
            w.pass_time(4)
            w.until(lambda: answer.is_over)
            names.may_answer.set()
            w.until(lambda: w.told == 1)
            w.turns(10)

            assert (peer.connections, w.backend().connections) == (0, 0)


def test_attempts_that_are_given_up_while_a_lookup_hangs_are_not_kept_until_it_ends() -> None:
    """Resolvers that are down may hang for minutes, and those with many names for longer."""
    names = Names()
    names.may_answer.clear()
    with world(names) as w:
        w.use(named(), connect_timeout="3s")
        gc.collect()
        before = attempts()
        for _ in range(5):
            answer = w.get()
            w.turns()
            w.pass_time(4)
            w.until(lambda answer=answer: answer.is_over)  # type: ignore[misc]
        left = attempts() - before
        names.may_answer.set()

        assert left == 0


def attempts() -> int:
    """How many there are."""
    return sum(isinstance(one, Connecting) for one in gc.get_objects())


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_closing_pools_leaves_no_connection_attempt(turns: int) -> None:
    with silent_port() as port, world() as w:
        w.use(document.Backend(name="b", addresses=(f"127.0.0.1:{port}",)))
        before = sockets()
        w.get()
        w.turns(turns)
        w.pools.close()
        w.turns(10)

        assert sockets() == before


def test_a_connection_attempt_is_closed_after_the_connect_timeout() -> None:
    with silent_port() as port, world() as w:
        w.use(document.Backend(name="b", addresses=(f"127.0.0.1:{port}",)), connect_timeout="3s")
        before = sockets()
        answer = w.get()
        w.turns(10)
        assert len(sockets() - before) == 1
        w.pass_time(4)
        w.until(lambda: answer.is_over)

        assert sockets() == before


def sockets() -> set[str]:
    """Of this process, by what the kernel calls them."""
    return {name for name in open_descriptors(os.getpid()) if name.startswith("socket:")}


@contextmanager
def beside(silent: Names, found: Names, count: int) -> Iterator[tuple[World, list[str]]]:
    """Backend `b`, whose name is looked up by `found`, and the keys of `count` others, looked up by `silent`."""

    def getaddrinfo(host: str, port: int, **options: Any) -> list[tuple[Any, ...]]:
        return (found if host == "new.example" else silent)(host, port, **options)

    keys = [f"silent-{number}" for number in range(count)]
    with world(getaddrinfo) as w:
        w.use(
            *(document.Backend(name=key, addresses=(f"{key}.example:80",)) for key in keys),
            document.Backend(name="b", addresses=("new.example:80",)),
        )
        yield w, keys


def test_slow_lookups_of_new_names_do_not_block_others() -> None:
    silent, found = Names(), Names(("127.0.0.1", dead_port()))
    silent.may_answer.clear()
    with beside(silent, found, 10) as (w, keys):
        for key in keys:
            w.get(key)

        assert w.fetch().failure is not None
        assert (found.answered, silent.answered) == (1, 0)
        silent.may_answer.set()


def test_slow_repeated_lookups_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "SLOW_S", 0.0)
    silent, found = Names(), Names(("127.0.0.1", dead_port()))
    silent.addresses, silent.fault = None, socket.EAI_AGAIN
    with beside(silent, found, 6) as (w, keys):
        for key in keys:
            assert w.fetch(key).failure is not None
        silent.may_answer.clear()
        w.pass_time(resolver.RETRY_S)
        for key in keys:
            w.get(key)
        w.until(lambda: silent.asked >= len(keys) + 4)

        assert w.fetch().failure is not None
        assert (found.answered, silent.answered) == (1, len(keys))
        silent.may_answer.set()


def test_a_cancelled_waiting_request_gets_no_callback_and_its_connection_serves_the_next() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        names.may_answer.clear()
        with world(names) as w:
            w.use(named())
            answer = w.get()
            assert answer.request is not None
            answer.request.cancel()
            names.may_answer.set()
            w.until(lambda: w.backend().connections == 1)

            assert w.fetch().status_code == 200
            assert not answer.is_over
            assert peer.connections == 1


def test_all_calls_on_a_request_that_waits_for_a_connection_are_allowed() -> None:
    with backend() as peer:
        names = Names((peer.host, peer.port))
        names.may_answer.clear()
        with world(names) as w:
            w.use(named())
            request, owed = w.get(method=b"POST", end_stream=False).request, Owed()
            assert request is not None
            assert request.send_data(b"early", False, owed) == 0
            assert request.progress_of(owed) is None
            request.send_trailers([])
            request.release(1)
            assert w.backend().in_flight == 1

            for _ in range(2):
                request.cancel()
            assert w.backend().in_flight == 0
            assert request.send_data(b"late", True, owed) == owed.released_bytes == 4
            request.send_trailers([])
            names.may_answer.set()
            assert w.fetch().status_code == 200


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("ip", ["127.0.0.1", NOWHERE])
def test_a_cancelled_race_leaves_no_socket_open(ip: str, place: int) -> None:
    with world() as w:
        addresses = tuple(Address(V4, ip, dead_port()) for _ in range(3))
        ended: list[object] = []
        race = Race(w.loop, addresses, lambda sock, _: ended.append(sock), ended.append)
        race.start()
        w.turns(place)
        if not ended:
            race.cancel()
            w.turns()
            assert not ended


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=8, unique=True), st.integers(0, 20))
def test_the_order_keeps_every_address_and_alternates_families(raw: list[tuple[bool, int]], turn: int) -> None:
    addresses = tuple(Address(V6 if is_v6 else V4, str(number), 1) for is_v6, number in raw)
    order = alternate(addresses, turn)

    assert sorted(map(str, order)) == sorted(map(str, addresses))
    families = [address.family for address in order]
    fewer = min(families.count(V4), families.count(V6))
    assert all(families[2 * n] is not families[2 * n + 1] for n in range(fewer))
    assert not addresses or families[0] is addresses[0].family


@pytest.mark.parametrize("protocol", ["http", "h2c"])
def test_a_connection_that_the_kernel_does_not_watch_takes_no_place_for_ever(protocol: str) -> None:
    with backend(*([speaks()] if protocol == "h2c" else [])) as peer, world() as w:
        w.use(of(peer, protocol=protocol, circuit=document.Circuit(max_connections=1)), connect_timeout="1s")
        with watches_refused(Transport, 3):
            failures = [w.fetch().failure for _ in range(3)]

        assert [failure and failure.is_unprocessed for failure in failures] == [True] * 3
        assert w.fetch().status_code == 200
        assert w.backend().connections == 1


def test_an_attempt_that_the_kernel_does_not_watch_fails_at_once_for_lack_of_resources() -> None:
    with backend() as peer, world() as w:
        w.clock.stop()
        w.use(of(peer))
        with watches_refused(object):
            answer = w.fetch()

        assert answer.failure is not None
        assert answer.failure.reason is Reason.OVERLOAD
        assert w.fetch().status_code == 200


def test_an_attempt_that_the_kernel_does_not_watch_leaves_no_reference_cycle() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer))
        with uncollected() as garbage_of, watches_refused(object):
            assert w.fetch().failure is not None
            w.turns()

            assert [one for one in garbage_of("proxy") if isinstance(one, Race)] == []
