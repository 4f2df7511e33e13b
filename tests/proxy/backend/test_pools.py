"""Choice of addresses, limits, and passive health."""

import random
import threading
from functools import partial

import msgspec
import pytest

from proxy import document
from proxy.backend.connectionpool import ConnectionPool
from proxy.backend.stream import Reason, Wish
from proxy.routing import fingerprint
from tests.proxy.backend.servers import OK, UNAVAILABLE, Conn, backend, dead_port, of
from tests.proxy.backend.world import PATIENCE_S, Answer, World, address_of, world
from tests.support.counting import calls_of
from tests.support.limits import out_of_descriptors


def all_over(answers: list[Answer]) -> bool:
    return all(answer.is_over for answer in answers)


# -- choice ------------------------------------------------------------------------------------------------------------


def test_addresses_take_turns() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other))
        seen = [address_of(w.fetch()) for _ in range(6)]

        assert seen[:3] != seen[1:4]
        assert (seen.count(one.address), seen.count(other.address)) == (3, 3)


def test_a_busy_address_gets_fewer_requests() -> None:
    with backend(Conn.wait_for_end) as slow, backend() as fast, world(draw=lambda: 0.5) as w:
        w.use(of(slow, fast))
        seen = [address_of(w.get()) for _ in range(2)]
        assert sorted(seen) == sorted([slow.address, fast.address])
        w.until(lambda: w.backend().in_flight == 1)

        assert [address_of(w.fetch()) for _ in range(5)] == [fast.address] * 5


def test_retries_of_a_failing_address_are_spread_over_all_others() -> None:
    """For sequential requests and one dead address of three, one of the others used to get all retries, and the other
    none."""
    draw = random.Random(1).random
    with backend() as one, backend() as other, world(draw=draw) as w:
        nobody = f"127.0.0.1:{dead_port()}"
        spec = of(one, other)
        w.use(msgspec.structs.replace(spec, addresses=(nobody, *spec.addresses)))
        seen = []
        for _ in range(90):
            answer = w.fetch()
            if address_of(answer) == nobody:
                answer = w.fetch(wish=Wish(avoid=(nobody,)))
            seen.append(address_of(answer))

        assert min(seen.count(one.address), seen.count(other.address)) >= 35


def test_a_session_uses_its_own_address_unless_that_is_to_be_avoided() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other))
        pin = Wish(session_address=fingerprint(other.address))
        assert {address_of(w.fetch(wish=pin)) for _ in range(4)} == {other.address}
        elsewhere = Wish(session_address=fingerprint(other.address), avoid=(other.address,))

        assert address_of(w.fetch(wish=elsewhere)) == one.address


def test_an_address_to_avoid_is_used_only_when_there_is_no_other() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other))
        assert {address_of(w.fetch(wish=Wish(avoid=(one.address,)))) for _ in range(4)} == {other.address}

        assert w.fetch(wish=Wish(avoid=(one.address, other.address))).status_code == 200


def test_when_all_addresses_have_failed_the_latest_one_is_avoided() -> None:
    """A dead address has the fewest running requests, so it would be chosen again."""
    with backend(lambda conn: conn.wait_for_end()) as one, world() as w:
        nobody = f"127.0.0.1:{dead_port()}"
        w.use(of(one, nobody))
        for _ in range(3):
            w.get(wish=Wish(avoid=(nobody,)))

        assert {address_of(w.get(wish=Wish(avoid=(one.address, nobody)))) for _ in range(4)} == {one.address}
        assert address_of(w.get(wish=Wish(avoid=(nobody, one.address)))) == nobody


def test_a_backend_without_addresses_fails_at_once() -> None:
    with world() as w:
        w.use(of())
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.UNHEALTHY, True)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_requests_over_the_limit_are_refused_unsent() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_requests=2)))
        running = [w.get(), w.get()]
        refused = w.get()
        assert not refused.is_over
        w.until(lambda: refused.is_over)

        assert refused.failure is not None
        assert (refused.failure.reason, refused.failure.is_unprocessed) == (Reason.OVERLOAD, True)
        assert w.backend().failures == {"overload": 1}
        assert running[0].request is not None
        running[0].request.cancel()
        assert not w.get().is_over
        assert w.backend().in_flight == 2
        refused = w.get()
        w.until(lambda: refused.is_over)
        assert w.backend().failures == {"overload": 2}


def test_requests_over_the_limit_of_connections_wait_in_order() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        ended: list[int] = []
        answers = [w.get() for _ in range(5)]
        for place, answer in enumerate(answers):
            answer.on_end = partial(ended.append, place)
        w.until(lambda: all_over(answers))

        assert ended == [0, 1, 2, 3, 4]
        assert peer.connections == 1


def test_a_request_that_waits_for_a_new_connection_does_not_get_a_kept_one() -> None:
    """It may be as stale as the one on which an earlier attempt failed."""
    with backend() as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        first = w.get()
        second = w.get(wish=Wish(needs_new_connection=True))
        w.until(lambda: all_over([first, second]))

        assert (first.status_code, second.status_code) == (200, 200)
        assert (w.backend().connections, w.backend().connections_opened) == (1, 2)


def test_requests_over_max_pending_are_refused() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1, max_pending=2)))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: answers[2].is_over)

        assert answers[2].failure is not None
        assert answers[2].failure.reason is Reason.OVERLOAD
        assert "2 requests wait for a connection, which is the limit" in answers[2].failure.detail
        assert not answers[1].is_over


def test_a_request_waits_at_the_limit_of_connections_no_longer_than_the_connect_timeout() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)), connect_timeout="3s")
        first = w.get()
        w.until(lambda: first.is_open_told == 1)
        second = w.get()
        w.pass_time(4)

        assert second.failure is not None
        assert (second.failure.reason, second.failure.is_unprocessed) == (Reason.OVERLOAD, True)
        assert not first.is_over


def test_a_request_that_timed_out_waiting_frees_its_pending_slot() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1, max_pending=1)), connect_timeout="3s")
        running = w.get()
        w.until(lambda: running.is_open_told == 1)
        gone = w.get()
        w.pass_time(4)
        assert gone.is_over
        second = w.get()
        w.turns()

        assert not second.is_over
        assert running.request is not None
        running.request.cancel()
        w.until(lambda: second.is_open_told == 1)


def test_the_time_to_wait_for_a_connection_ends_when_the_request_gets_one(caplog: pytest.LogCaptureFixture) -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer), connect_timeout="3s")
        running = w.get()
        w.until(lambda: running.is_open_told == 1)
        w.pass_time(4)

        assert (running.is_over, caplog.messages) == (False, [])


def test_as_many_connections_are_opened_at_once_as_requests_wait() -> None:
    """They are not opened one by one, each a round trip later."""
    all_there = threading.Barrier(4)

    def meet(conn: Conn) -> None:
        all_there.wait(PATIENCE_S)
        conn.serve()

    with backend(meet) as peer, world() as w:
        w.use(of(peer))
        answers = [w.get() for _ in range(3)]
        w.turns(1)
        all_there.wait(PATIENCE_S)
        w.until(lambda: all_over(answers))

        assert [answer.status_code for answer in answers] == [200, 200, 200]


def test_a_connection_that_becomes_free_makes_room_for_one_to_another_address() -> None:
    go_on = threading.Event()

    def answer_later(conn: Conn) -> None:
        while conn.request() is not None:
            assert go_on.wait(PATIENCE_S)
            conn.send(OK)

    with backend(answer_later) as one, backend(answer_later) as other, world() as w:
        w.use(of(one, other, circuit=document.Circuit(max_connections=1)))
        first = w.get()
        w.until(lambda: first.is_open_told == 1)
        second = w.get()
        assert address_of(first) != address_of(second)
        go_on.set()
        w.until(lambda: second.is_over)

        assert (first.status_code, second.status_code) == (200, 200)


def test_a_bug_in_opening_a_connection_does_not_block_waiting_requests_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()

    def answer_later(conn: Conn) -> None:
        while conn.request() is not None:
            assert go_on.wait(PATIENCE_S)
            conn.send(OK)

    def stumble(_: ConnectionPool) -> None:
        raise ZeroDivisionError

    with backend(answer_later) as one, backend(answer_later) as other, world() as w:
        w.use(of(one, other, circuit=document.Circuit(max_connections=1)))
        first = w.get()
        w.until(lambda: first.is_open_told == 1)
        second = w.get()
        (balancer,) = w.pools._balancers.values()
        with monkeypatch.context() as patch:
            patch.setattr(ConnectionPool, "open_as_needed", stumble)
            with pytest.raises(ZeroDivisionError):
                balancer.on_room()
        go_on.set()
        w.until(lambda: second.is_over)

        assert (first.status_code, second.status_code) == (200, 200)


def test_a_failed_connection_attempt_makes_room_for_one_to_another_address() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer, f"127.0.0.1:{dead_port()}", circuit=document.Circuit(max_connections=1)))
        dead, alive = w.get(), w.get()
        assert address_of(alive) == peer.address
        w.until(lambda: all_over([dead, alive]))

        assert dead.failure is not None
        assert alive.status_code == 200


def test_an_unused_connection_makes_room_for_one_to_another_address() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other, circuit=document.Circuit(max_connections=1)))
        seen = [address_of(w.fetch()) for _ in range(4)]

        assert set(seen) == {one.address, other.address}
        assert w.backend().connections == 1


def test_a_failed_connection_makes_room_for_the_next() -> None:
    def reset(conn: Conn) -> None:
        conn.request()
        if conn.place < 2:
            conn.reset()
        else:
            conn.send(OK)

    with backend(reset) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: all_over(answers))

        assert [a.failure is None for a in answers] == [False, False, True]


def test_a_lack_of_descriptors_does_not_count_against_an_address() -> None:
    with backend() as peer, world() as w:
        policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
        w.use(of(peer, passive_health=policy))
        with out_of_descriptors():
            failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.OVERLOAD, True)
        assert w.fetch().status_code == 200


# -- passive health ----------------------------------------------------------------------------------------------------


def test_the_cost_of_an_ejection_does_not_grow_with_the_number_of_ejected_addresses() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    port = dead_port()

    def calls_for_each(count: int) -> float:
        with world() as w:
            addresses = tuple(f"127.0.1.{number}:{port}" for number in range(1, count + 1))
            w.use(document.Backend(name="b", addresses=addresses, passive_health=policy))
            calls = calls_of(lambda: [w.fetch() for _ in range(count)])
            assert w.backend().ejected == count
            return calls / count

    assert calls_for_each(200) < 1.5 * calls_for_each(20)


@pytest.mark.parametrize("kind", ["refused", "status"])
def test_an_address_that_keeps_failing_is_ejected_temporarily(kind: str) -> None:
    policy = document.PassiveHealth(consecutive_failures=2, ejection_time="10s")
    with backend() as good, backend(lambda conn: conn.serve(UNAVAILABLE)) as bad, world() as w:
        address = bad.address if kind == "status" else f"127.0.0.1:{dead_port()}"
        w.use(of(good, address, passive_health=policy))
        for _ in range(4):
            w.fetch()
        assert (w.backend().ejected, w.backend().ejections) == (1, 1)
        assert {address_of(w.fetch()) for _ in range(4)} == {good.address}
        w.pass_time(11)
        assert w.backend().ejected == 0
        # On trial: one failure more, and it is ejected again.
        assert address in {address_of(w.fetch()) for _ in range(2)}
        assert (w.backend().ejected, w.backend().ejections) == (1, 2)


def test_a_success_in_between_resets_the_failure_count() -> None:
    def alternately(conn: Conn) -> None:
        while conn.request() is not None:
            conn.send(UNAVAILABLE)
            if conn.request() is None:
                return
            conn.send(OK)

    policy = document.PassiveHealth(consecutive_failures=2, max_ejected_percent=100)
    with backend(alternately) as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        for _ in range(10):
            w.fetch()

        assert w.backend().ejections == 0


def test_timeouts_count_as_failures_and_stale_kept_connections_do_not() -> None:
    def once(conn: Conn) -> None:
        conn.request()
        conn.send(OK)
        conn.request()

    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend(once) as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        w.fetch()
        stale = w.fetch().failure
        assert stale is not None
        assert stale.was_reused
        assert w.backend().ejected == 0
        slow = w.get()
        w.until(lambda: slow.is_open_told == 1)
        assert slow.request is not None
        slow.request.cancel(timed_out=True)
        assert w.backend().ejected == 1
        failure = w.fetch().failure

        assert failure is not None
        assert failure.reason is Reason.UNHEALTHY


def test_a_request_that_times_out_at_the_limit_of_connections_counts_against_no_address() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    circuit = document.Circuit(max_connections=1)
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, passive_health=policy, circuit=circuit))
        running = w.get()
        w.until(lambda: running.is_open_told == 1)
        waiting = w.get()
        assert waiting.request is not None
        waiting.request.cancel(timed_out=True)

        assert w.backend().ejected == 0
        assert w.backend().failures == {"overload": 1}


def test_a_request_that_times_out_before_its_connection_is_open_counts() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend() as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        waiting = w.get()
        assert waiting.request is not None
        waiting.request.cancel(timed_out=True)

        assert w.backend().ejected == 1
        assert w.backend().failures == {"timeout": 1}


def test_a_higher_limit_of_connections_applies_to_requests_already_waiting() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        running = w.get()
        w.until(lambda: running.is_open_told == 1)
        waiting = w.get()
        w.turns()
        assert waiting.is_open_told == 0
        w.use(of(peer, circuit=document.Circuit(max_connections=2)))

        w.until(lambda: waiting.is_open_told == 1)


def test_requests_that_cannot_be_sent_count_against_no_address() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend() as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        failure = w.fetch(fields=[(b"bad name", b"x")]).failure

        assert failure is not None
        assert failure.reason is Reason.UNSENDABLE
        assert w.backend().ejected == 0


def test_no_more_than_the_maximum_share_is_ejected() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=50)
    with world() as w:
        w.use(of(*(f"127.0.0.1:{dead_port()}" for _ in range(3)), passive_health=policy))
        for _ in range(10):
            assert w.fetch().failure is not None

        assert w.backend().ejected == 1


def test_no_more_than_the_maximum_share_stays_ejected_when_addresses_leave() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=50)
    bad = [f"127.0.0.1:{dead_port()}" for _ in range(2)]
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other, *bad, passive_health=policy))
        for _ in range(8):
            w.fetch()
        assert w.backend().ejected == 2
        w.use(of(*bad, passive_health=policy))
        assert [w.fetch().failure is None for _ in range(4)] == [False] * 4
        assert (w.backend().ejected, w.backend().failures) == (1, {"refused": 6})

        w.use(of(bad[0], passive_health=policy))
        w.fetch()
        assert (w.backend().ejected, w.backend().failures) == (0, {"refused": 7})


def many(w: World, count: int) -> list[Answer]:
    return [w.get() for _ in range(count)]


def test_many_concurrent_requests_are_all_served_and_counted_correctly() -> None:
    with backend() as one, backend() as other, world() as w:
        w.use(of(one, other, circuit=document.Circuit(max_connections=7)))
        answers = many(w, 300)
        for answer in answers[::7]:
            assert answer.request is not None
            answer.request.cancel()
        rest = [answer for place, answer in enumerate(answers) if place % 7]
        w.until(lambda: all_over(rest))

        assert {a.status_code for a in rest} == {200}
        stats = w.backend()
        assert (stats.requests, stats.in_flight) == (300, 0)
        assert stats.connections <= 7
