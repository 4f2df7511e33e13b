"""What new tables change for backends and addresses, and what exchanges of earlier tables still get."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from proxy import document
from proxy.backend.destination import Destination
from proxy.backend.stream import Reason
from proxy.routing import Backend
from tests.proxy.backend.h2peer import speaks
from tests.proxy.backend.servers import OK, UNAVAILABLE, Conn, backend, of
from tests.proxy.backend.world import PATIENCE_S, address_of, world


def test_unchanged_backends_keep_their_connections_through_a_hundred_tables() -> None:
    with backend() as peer, world() as w:
        for _ in range(100):
            w.use(of(peer))
            assert w.fetch().status_code == 200

        assert peer.connections == 1


def test_a_changed_backend_takes_effect_with_the_next_request_and_keeps_remaining_connections() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one))
        w.fetch()
        w.use(of(other))
        assert address_of(w.fetch()) == other.address
        assert w.backend().connections == 1
        w.use(of(one, other))
        assert {address_of(w.fetch()) for _ in range(2)} == {one.address, other.address}

        assert (one.connections, other.connections) == (2, 1)


def test_an_address_that_is_listed_twice_keeps_its_connection_when_others_come() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, one))
        w.fetch()
        w.use(of(one, one, other))
        assert {address_of(w.fetch()) for _ in range(2)} == {one.address, other.address}

        assert one.connections == 1


def test_a_request_that_waits_for_a_removed_address_is_still_served_there() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other, circuit=document.Circuit(max_connections=1)))
        answers = [w.get(), w.get()]
        w.use(of("127.0.0.1:1", circuit=document.Circuit(max_connections=1)))
        w.until(lambda: all(answer.is_over for answer in answers))

        assert {address_of(answer) for answer in answers} == {one.address, other.address}
        assert [answer.status_code for answer in answers] == [200, 200]


def test_failures_count_from_the_table_that_enables_passive_health() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend(lambda conn: conn.serve(UNAVAILABLE)) as peer, world() as w:
        w.use(of(peer))
        assert w.fetch().status_code == 503
        w.use(of(peer, passive_health=policy))
        assert w.fetch().status_code == 503

        assert w.backend().ejected == 1


def test_addresses_removed_together_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked again for each of them, thousands with running requests blocked the loop for a second."""
    count = 100
    is_idle: Callable[[Destination], bool] = vars(Destination)["is_idle"].fget
    looks: list[Destination] = []
    is_over = threading.Event()

    def look(destination: Destination) -> bool:
        looks.append(destination)
        return is_idle(destination)

    def never(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        is_over.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(Destination, "is_idle", property(look))
    with world(never) as w:
        w.use(document.Backend(name="b", addresses=tuple(f"{place}.test:80" for place in range(count))))
        asked = {address_of(w.get()) for _ in range(count)}
        w.use(document.Backend(name="b", addresses=("next.test:80",)))

        assert address_of(w.get()) == "next.test:80"
        assert len(asked) == count
        assert len(looks) <= count
        is_over.set()


def test_a_removed_backend_finishes_its_requests_and_then_closes() -> None:
    go_on = threading.Event()

    def slow(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhalf"[:-2])
        assert go_on.wait(10)
        conn.send(b"lf")
        conn.wait_for_end()

    with backend(slow) as peer, world() as w:
        w.use(of(peer))
        answer = w.get()
        w.until(lambda: bytes(answer.body) == b"ha")
        for _ in range(100):
            w.use()
        w.turns()
        go_on.set()
        w.until(lambda: answer.is_over)

        assert bytes(answer.body) == b"half"
        w.until(lambda: w.backend().connections == 0)


def test_a_request_may_outlast_its_backend_by_hours() -> None:
    go_on = threading.Event()

    def slow(conn: Conn) -> None:
        conn.request()
        assert go_on.wait(PATIENCE_S)
        conn.send(OK)
        conn.wait_for_end()

    with backend(slow) as peer, world() as w:
        w.use(of(peer))
        answer = w.get()
        w.until(lambda: answer.is_open_told == 1)
        w.use()
        for _ in range(10):
            w.pass_time(600)
        go_on.set()
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200
        w.until(lambda: w.backend().connections == 0)


def test_exchanges_of_an_earlier_table_still_reach_a_removed_backend_however_late() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer))
        w.fetch()
        w.use()
        w.until(lambda: w.backend().connections == 0)
        assert w.fetch().status_code == 200
        w.until(lambda: w.backend().connections == 0)
        w.pass_time(61)
        assert not w.pools.serves("b")
        assert w.fetch().status_code == 200

        w.until(lambda: w.backend().connections == 0)
        w.pass_time(61)
        assert not w.pools.serves("b")


def test_a_backend_that_left_before_its_first_request_still_gets_those_of_an_earlier_table() -> None:
    """An authorization server may take longer to answer than a document stays."""
    asked: list[bytes] = []

    def note(conn: Conn) -> None:
        while request := conn.request():
            asked.append(request.split()[1])
            conn.send(OK)

    probed = document.ActiveHealth(path="/health", interval="1s")
    with backend(note) as peer, world(draw=lambda: 0.9) as w:
        w.use(of(peer), of(peer, name="c"))
        earlier = w.table.backends["b"]  # type: ignore[union-attr]
        probed_before = Backend("c", of(peer, name="c", active_health=probed))
        w.use()
        answers = [w.fetch(of_table=earlier), w.fetch(of_table=earlier), w.fetch("c", of_table=probed_before)]
        w.until(lambda: not w.backend().connections + w.backend("c").connections)
        w.pass_time(5)

    assert [200] * 3 == [answer.status_code for answer in answers]
    assert [b"/"] * 3 == asked


def test_an_exchange_of_the_table_before_the_last_uses_the_protocol_of_that_table() -> None:
    with backend() as first, backend(speaks()) as second, backend() as third, world() as w:
        w.use(of(first))
        w.fetch()
        (earlier,) = w.table.backends.values()  # type: ignore[union-attr]
        w.use(of(second, protocol="h2c"))
        w.fetch()
        w.use(of(third, protocol="https", tls=document.BackendTLS(server_name="b.example")))
        w.get()
        late = w.get(of_table=earlier)
        w.until(lambda: late.is_over)

        assert (late.status_code, address_of(late)) == (200, first.address)


def test_ejections_are_still_shown_when_an_exchange_of_an_earlier_table_needs_the_backend_as_it_was() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, ejection_time="10s")
    refusing = backend(lambda conn: conn.serve(UNAVAILABLE))
    with backend() as good, refusing as bad, backend(speaks()) as before, world() as w:
        w.use(of(before, protocol="h2c"))
        (earlier,) = w.table.backends.values()  # type: ignore[union-attr]
        w.use(of(good, bad, passive_health=policy))
        w.fetch()
        w.fetch()
        assert w.backend().ejected == 1
        late = w.get(of_table=earlier)
        w.until(lambda: late.is_over)

        assert late.status_code == 200
        assert w.backend().ejected == 1


def test_an_ejected_address_is_used_again_by_exchanges_of_an_earlier_table() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, ejection_time="10s")
    with backend() as good, backend(lambda conn: conn.serve(UNAVAILABLE)) as bad, world() as w:
        w.use(of(good, bad, passive_health=policy))
        for _ in range(2):
            w.fetch()
        w.use()
        w.turns()
        assert {address_of(w.fetch()) for _ in range(4)} == {good.address}
        w.pass_time(11)

        assert bad.address in {address_of(w.fetch()) for _ in range(2)}


def test_ejections_of_a_removed_backend_are_not_shown() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, ejection_time="10s")
    with backend() as good, backend(lambda conn: conn.serve(UNAVAILABLE)) as bad, world() as w:
        w.use(of(good, bad, passive_health=policy))
        slow = w.get()
        w.fetch()
        w.until(lambda: slow.is_over and w.backend().ejected == 1)
        w.use()
        w.turns()
        assert w.backend().ejected == 0
        for _ in range(4):
            w.pass_time(11)
            w.fetch()
            assert w.backend().ejected == 0

        assert w.backend().ejections > 1


def test_a_changed_protocol_means_another_pool() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer))
        w.fetch()
        w.use(of(peer, protocol="h2c"))
        answer = w.fetch()
        assert answer.failure is not None
        w.use(of(peer))

        assert w.fetch().status_code == 200


def test_an_exchange_of_an_earlier_table_uses_the_protocol_of_that_table() -> None:
    """Its request is built for that protocol."""
    with backend() as peer, backend(speaks()) as successor, world() as w:
        w.use(of(peer))
        w.fetch()
        (earlier,) = w.table.backends.values()  # type: ignore[union-attr]
        w.use(of(successor, protocol="h2c"))
        assert w.fetch().status_code == 200
        late = w.get(of_table=earlier)
        w.until(lambda: late.is_over)

        assert (late.status_code, address_of(late)) == (200, peer.address)
        w.pass_time(61)
        later = w.get(of_table=earlier)
        w.until(lambda: later.is_over)

        assert (later.status_code, address_of(later)) == (200, peer.address)


def test_an_exchange_of_an_earlier_table_uses_the_addresses_that_its_backend_has_by_now() -> None:
    """The ones that it had may be gone, as those of a replaced Pod are."""
    with backend() as one, backend() as other, world() as w:
        w.use(of(one))
        w.fetch()
        (earlier,) = w.table.backends.values()  # type: ignore[union-attr]
        w.use(of(other))
        w.fetch()
        late = w.fetch(of_table=earlier)

        assert (late.status_code, address_of(late)) == (200, other.address)
        assert other.connections == 1


def test_a_request_to_a_backend_that_has_left_is_refused_unsent_once_the_worker_stops() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer))
        (earlier,) = w.table.backends.values()  # type: ignore[union-attr]
        w.use()
        w.pools.close()
        failure = w.fetch(of_table=earlier).failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.STOPPING, True)
        assert peer.connections == 0


def test_limits_of_a_new_table_apply_to_existing_connections() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer), backend_idle_timeout="60s")
        w.fetch()
        w.use(of(peer), backend_idle_timeout="5s")
        w.fetch()
        w.pass_time(6)
        # It must not wait for the deadline set for the longer timeout.
        assert w.backend().connections == 0


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_lower_limit_of_connections_ends_those_beyond_it_unused_ones_first(is_busy: bool) -> None:
    """Under load, connections are never unused for long, and would be kept until they are too old."""
    begun, release = threading.Semaphore(0), threading.Event()

    def serve(conn: Conn) -> None:
        while conn.request() is not None:
            begun.release()
            assert release.wait(PATIENCE_S)
            conn.send(OK)

    with backend(serve) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=3)))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: w.backend().connections == 3)
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE_S)
        if not is_busy:
            release.set()
            w.until(lambda: all(answer.is_over for answer in answers))
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        w.turns()
        assert w.backend().connections == (3 if is_busy else 1)
        release.set()
        w.until(lambda: all(answer.is_over for answer in answers))
        w.turns()

        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert w.backend().connections == 1
        assert w.fetch().status_code == 200
        assert peer.connections == 3


def test_draining_finishes_running_requests_and_keeps_no_connection() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer))
        w.fetch()
        w.pools.drain()
        w.until(lambda: w.backend().connections == 0)
        assert w.fetch().status_code == 200
        w.until(lambda: w.backend().connections == 0)
        with backend() as other:
            w.use(of(other), of(other, name="late"))
            assert w.fetch().status_code == 200
            w.until(lambda: w.backend().connections == 0)
            assert w.fetch("late").status_code == 200
            w.until(lambda: w.backend("late").connections == 0)
