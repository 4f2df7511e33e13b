"""Blocking work runs in threads, and its outcome is delivered even if none can be started."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from proxy.backend.threadpool import ThreadPool
from proxy.loop import Loop

WAIT_S = 30.0
Outcome = tuple[int | None, Exception | None]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@contextmanager
def no_threads() -> Iterator[None]:
    """None can be started: no address space has room for such a stack."""
    usual = threading.stack_size(1 << 60)
    try:
        yield
    finally:
        threading.stack_size(usual)


def until(loop: Loop, outcomes: list[Outcome], count: int) -> list[Outcome]:
    end_s = time.monotonic() + WAIT_S
    while len(outcomes) < count:
        assert time.monotonic() < end_s, f"{len(outcomes)} of {count} outcomes"
        # A finished thread wakes the loop; the deadline keeps it from waiting forever.
        loop.deadline(lambda: None).set(loop.now_s + 1.0)
        loop.turn()
    return outcomes


def test_work_fails_if_no_thread_can_be_started_and_later_work_succeeds(loop: Loop) -> None:
    threads = ThreadPool(loop, "test", threads=2)
    outcomes: list[Outcome] = []

    def note(result: int | None, error: Exception | None) -> None:
        outcomes.append((result, error))

    with no_threads():
        threads.run(lambda: 1, note)
        assert not outcomes
        ((result, error),) = until(loop, outcomes, 1)
    threads.run(lambda: 2, note)

    assert (result, isinstance(error, OSError)) == (None, True)
    assert until(loop, outcomes, 2)[1] == (2, None)
    threads.close()


def test_work_waits_for_existing_threads_if_no_other_can_be_started(loop: Loop) -> None:
    threads = ThreadPool(loop, "test", threads=2)
    outcomes: list[Outcome] = []
    may_go_on = threading.Event()

    def first() -> int:
        assert may_go_on.wait(WAIT_S)
        return 1

    def note(result: int | None, error: Exception | None) -> None:
        outcomes.append((result, error))

    threads.run(first, note)
    with no_threads():
        threads.run(lambda: 2, note)
    may_go_on.set()

    assert until(loop, outcomes, 2) == [(1, None), (2, None)]
    threads.close()


def test_slow_work_gets_a_substitute_thread_that_exits_when_it_has_ended(loop: Loop) -> None:
    threads = ThreadPool(loop, "substituted", threads=1, patience_s=0.01, substitutes=2)
    outcomes: list[Outcome] = []
    may_go_on = threading.Event()

    def slow() -> int:
        assert may_go_on.wait(WAIT_S)
        return 0

    def note(result: int | None, error: Exception | None) -> None:
        outcomes.append((result, error))

    for _ in range(2):
        threads.run(slow, note)
    threads.run(lambda: 1, note)
    assert until(loop, outcomes, 1) == [(1, None)]
    for _ in range(2):
        threads.run(slow, note)
    threads.run(lambda: 2, note)
    loop.deadline(lambda: None).set(loop.now_s + 0.1)
    loop.turn()
    assert threads_of("substituted") == 3
    may_go_on.set()
    assert sorted(result or 0 for result, _ in until(loop, outcomes, 6)) == [0, 0, 0, 0, 1, 2]

    turn_until(loop, lambda: threads_of("substituted") == 1)
    threads.run(lambda: 3, note)
    assert until(loop, outcomes, 7)[-1] == (3, None)
    threads.close()


def test_work_that_is_not_slow_yet_gets_no_substitute_thread(loop: Loop) -> None:
    threads = ThreadPool(loop, "patient", threads=1, patience_s=2 * WAIT_S, substitutes=2)
    outcomes: list[Outcome] = []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def quick() -> int:
        has_begun.set()
        assert may_go_on.wait(WAIT_S)
        return 0

    def note(result: int | None, error: Exception | None) -> None:
        outcomes.append((result, error))

    threads.run(quick, note)
    assert has_begun.wait(WAIT_S)
    threads.run(lambda: 1, note)
    threads.run(lambda: 2, note)
    assert threads_of("patient") == 1
    may_go_on.set()

    assert until(loop, outcomes, 3) == [(0, None), (1, None), (2, None)]
    threads.close()


def test_substitute_threads_are_bounded_while_slow_work_ends_and_more_waits(loop: Loop) -> None:
    threads = ThreadPool(loop, "bounded", threads=1, patience_s=0.01, substitutes=2)
    outcomes: list[Outcome] = []
    may_end = threading.Semaphore(0)

    def slow() -> int:
        assert may_end.acquire(timeout=WAIT_S)
        return 0

    def note(result: int | None, error: Exception | None) -> None:
        outcomes.append((result, error))

    for _ in range(40):
        threads.run(slow, note)
    for count in (3, 6):
        turn_until(loop, lambda: threads_of("bounded") >= 3)
        may_end.release(3)
        until(loop, outcomes, count)
    turn_until(loop, lambda: threads_of("bounded") >= 3)
    passed: list[bool] = []
    loop.deadline(lambda: passed.append(True)).set(loop.now_s + 0.1)
    turn_until(loop, lambda: bool(passed))
    # One that has ended its task may end late, and its substitute begin late; one too many would stay.
    turn_until(loop, lambda: threads_of("bounded") == 3)
    threads.close()
    may_end.release(40)


def turn_until(loop: Loop, is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s
        loop.deadline(lambda: None).set(loop.now_s + 0.01)
        loop.turn()


def threads_of(pool: str) -> int:
    return sum(thread.name.startswith(pool) for thread in threading.enumerate())
