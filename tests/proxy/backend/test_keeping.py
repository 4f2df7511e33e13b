"""Which connections to backends are kept, and for how long."""

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.backend.keeping import SILENCE_S, Keeping, Sign, usable_s


def looks(keeping: Keeping, *, is_used: bool, count: int, after: int = 0) -> list[Sign]:
    """So many of them, `after` earlier ones."""
    places = range(after + 1, after + count + 1)
    return [keeping.look(place * SILENCE_S, is_used=is_used, idle_timeout_s=0.0) for place in places]


def test_a_silent_connection_with_requests_is_pinged_and_then_dead() -> None:
    assert [Sign.ALIVE, Sign.SILENT, Sign.DEAD] == looks(Keeping(0.0), is_used=True, count=3)


def test_a_connection_that_acknowledges_pings_stays_alive() -> None:
    keeping = Keeping(0.0)
    for place in range(5):
        assert looks(keeping, is_used=True, count=2, after=2 * place)[-1] is Sign.SILENT
        keeping.is_heard = keeping.has_answered = True


@pytest.mark.parametrize("look_s", [1.0, SILENCE_S])
def test_a_connection_that_only_acknowledges_pings_is_pinged_rarely_and_stays_alive(look_s: float) -> None:
    keeping = Keeping(0.0)
    pinged_s = []
    for place in range(1, int(3600 / look_s)):
        sign = keeping.look(place * look_s, is_used=True, idle_timeout_s=look_s)
        assert sign is not Sign.DEAD
        if sign is Sign.SILENT:
            pinged_s.append(place * look_s)
            keeping.is_heard = True

    assert pinged_s[0] == look_s + SILENCE_S
    assert len(pinged_s) > 10
    assert all(GRPC_MIN_S < after - before < GRPC_MIN_S + 30.0 for before, after in pairwise(pinged_s))


def test_a_connection_that_goes_silent_is_soon_dead_for_new_requests() -> None:
    keeping = Keeping(0.0)
    assert Sign.SILENT is looks(keeping, is_used=True, count=2)[-1]
    keeping.is_heard = True
    assert {Sign.ALIVE} == set(looks(keeping, is_used=True, count=3, after=2))
    keeping.has_asked = True

    assert [Sign.SILENT, Sign.DEAD] == looks(keeping, is_used=True, count=2, after=5)


GRPC_MIN_S = 300.0


class Strict:
    """How a gRPC server with nothing set counts PINGs: grpc-go, and the others alike."""

    def __init__(self) -> None:
        self._last_s = -math.inf
        self.strikes = 0

    def answers(self) -> None:
        self._last_s, self.strikes = -math.inf, 0

    def is_pinged(self, now_s: float) -> None:
        if now_s < self._last_s + GRPC_MIN_S:
            self.strikes += 1
        self._last_s = now_s


WAITS_S = st.sampled_from([2.0, SILENCE_S])


@given(st.lists(st.tuples(WAITS_S, st.booleans(), st.booleans(), st.booleans()), max_size=150))
@example([(SILENCE_S, True, False, place == 1) for place in range(20)])
def test_no_grpc_server_gets_too_many_pings(steps: list[tuple[float, bool, bool, bool]]) -> None:
    keeping, server, now_s = Keeping(0.0), Strict(), 0.0
    for wait_s, is_asked, is_answered, crosses in steps:
        now_s += wait_s
        keeping.has_asked = keeping.has_asked or is_asked
        if is_answered:
            keeping.is_heard = keeping.has_answered = True
            server.answers()
        sign = keeping.look(now_s, is_used=True, idle_timeout_s=wait_s)
        assert sign is not Sign.DEAD
        if sign is Sign.SILENT:
            keeping.is_heard = True
            if crosses:
                keeping.has_answered = True
                server.answers()
            server.is_pinged(now_s)
            assert server.strikes <= 2


def test_a_connection_without_requests_may_be_silent() -> None:
    assert {Sign.ALIVE} == set(looks(Keeping(0.0), is_used=False, count=10))


def test_silence_before_the_first_request_does_not_count() -> None:
    keeping = Keeping(0.0)
    looks(keeping, is_used=False, count=3)

    assert looks(keeping, is_used=True, count=2, after=3) == [Sign.SILENT, Sign.DEAD]


def test_a_short_idle_timeout_does_not_make_a_backend_dead_sooner() -> None:
    """Otherwise a garbage collection of some seconds in the backend would fail all requests."""
    keeping = Keeping(0.0)
    looked_s = [2.0 * place for place in range(1, 18)]
    signs = {now_s: keeping.look(now_s, is_used=True, idle_timeout_s=2.0) for now_s in looked_s}

    # The first check sees the activity before it.
    assert {18.0: Sign.SILENT, 34.0: Sign.DEAD} == {s: sign for s, sign in signs.items() if sign is not Sign.ALIVE}


@pytest.mark.parametrize(("now_s", "expected"), [(129.9, Sign.ALIVE), (130.0, Sign.UNUSED)])
def test_an_unused_connection_expires_after_the_idle_timeout(now_s: float, expected: Sign) -> None:
    keeping = Keeping(0.0)
    keeping.unused_since_s = 100.0

    assert keeping.look(now_s, is_used=False, idle_timeout_s=30.0) is expected


@pytest.mark.parametrize(("idle_timeout_s", "after_s"), [(0.0, SILENCE_S), (2.0, 2.0), (60.0, SILENCE_S)])
def test_a_connection_is_checked_often_enough_for_a_short_idle_timeout(idle_timeout_s: float, after_s: float) -> None:
    assert Keeping.next_look_s(10.0, idle_timeout_s) == 10.0 + after_s


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (5, 4.0), (75, 74.0)])
def test_a_connection_is_reused_for_less_than_the_keep_alive_timeout(timeout_s: int, expected_s: float) -> None:
    assert expected_s == usable_s(timeout_s)


def test_a_connection_that_was_never_used_expires_after_the_idle_timeout() -> None:
    keeping = Keeping(100.0)

    assert [keeping.look(now_s, is_used=False, idle_timeout_s=10.0) for now_s in (109.0, 110.0)] == [
        Sign.ALIVE,
        Sign.UNUSED,
    ]
