"""The loop: sockets, calls, threads, sliced work, and bugs of handlers."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from proxy.loop import Loop
from tests.proxy.loop.sides import Clock, loop_of, turns, until


class Watcher:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reads = 0
        self.bugs = 0
        self.fails = False

    def on_readable(self) -> None:
        if self.fails:
            raise ZeroDivisionError("a bug")
        self.reads += 1
        self.sock.recv(10)

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        self.bugs += 1


def hundred_slices(done: list[int]) -> Iterator[None]:
    for step in range(100):
        done.append(step)
        yield


@pytest.fixture
def loop() -> Iterator[Loop]:
    with loop_of() as made:
        yield made


def test_a_thread_wakes_the_loop_and_its_call_is_made_in_the_loops_thread(loop: Loop) -> None:
    seen: list[threading.Thread] = []

    def call() -> None:
        seen.append(threading.current_thread())
        loop.stop()

    thread = threading.Thread(target=lambda: loop.call_from_thread(call))
    thread.start()
    loop.run()
    thread.join()

    assert seen == [threading.current_thread()]


def test_calls_from_many_threads_are_all_made(loop: Loop) -> None:
    seen: list[int] = []

    def call_often() -> None:
        for _ in range(500):
            loop.call_from_thread(lambda: seen.append(1))

    threads = [threading.Thread(target=call_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(loop, lambda: len(seen) == 4000)
    for thread in threads:
        thread.join()


def test_a_call_from_a_thread_to_a_closed_loop_does_not_raise() -> None:
    with loop_of() as loop:
        pass
    loop.call_from_thread(lambda: None)


@pytest.mark.usefixtures("with_an_error")
def test_a_handler_that_raises_is_notified_and_others_go_on(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    watchers = [Watcher(ours) for ours, _ in pairs]
    watchers[0].fails = True
    for (ours, theirs), watcher in zip(pairs, watchers, strict=True):
        loop.watch(ours, watcher)
        theirs.send(b"x")
    until(loop, lambda: bool(watchers[1].reads))

    assert watchers[0].bugs
    assert "bug in the handler of a socket" in caplog.text
    for ours, theirs in pairs:
        loop.unwatch(ours)
        ours.close()
        theirs.close()


@pytest.mark.usefixtures("with_an_error")
def test_a_call_that_raises_does_not_prevent_the_next(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    loop.call_soon(lambda: seen.remove(5))
    loop.call_soon(lambda: seen.append(1))
    loop.turn()

    assert seen == [1]
    assert "bug in a call of the loop" in caplog.text


@pytest.mark.usefixtures("with_an_error")
def test_a_sender_that_raises_is_notified(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    class Sender:
        bugs = 0

        def flush(self) -> None:
            raise ZeroDivisionError("a bug")

        def on_bug(self) -> None:
            self.bugs += 1

    sender = Sender()
    loop.flush_later(sender)
    loop.turn()

    assert sender.bugs == 1
    assert "bug while sending" in caplog.text


def test_sliced_work_is_done_in_order_and_sockets_are_served_between_slices() -> None:
    clock = Clock()
    with loop_of(clock) as loop:
        done: list[str] = []
        turn_of: dict[str, int] = {}
        turn = 0

        def work(name: str) -> Iterator[None]:
            for step in range(4):
                # Each slice takes longer than a turn may work.
                clock.passed_s += 1
                done.append(f"{name}{step}")
                turn_of[done[-1]] = turn
                yield

        loop.work_through(work("a"))
        loop.work_through(work("b"))
        while len(done) < 8:
            turn += 1
            loop.turn()

        assert done == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]
        assert len(set(turn_of.values())) == 8


def test_short_slices_share_a_turn(loop: Loop) -> None:
    done: list[int] = []
    # The clock stands still while they run.
    loop._clock = lambda: loop.now_s

    loop.work_through(hundred_slices(done))
    loop.turn()

    assert done == list(range(100))


def test_only_one_slice_of_work_runs_in_a_turn_that_served_a_socket(loop: Loop) -> None:
    done: list[int] = []
    # No turn takes long.
    loop._clock = lambda: loop.now_s

    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.watch(ours, Watcher(ours))
        loop.work_through(hundred_slices(done))
        for turn in range(1, 4):
            theirs.send(b"x")
            loop.turn()
            assert len(done) == turn
        loop.unwatch(ours)


def test_the_cpu_is_yielded_after_each_turn_that_only_did_sliced_work(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    loop._clock = clock
    yielded: list[float] = []
    monkeypatch.setattr("os.sched_yield", lambda: yielded.append(clock.passed_s))

    def work() -> Iterator[None]:
        for _ in range(3):
            clock.passed_s += 1
            yield

    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.watch(ours, Watcher(ours))
        loop.work_through(work())
        loop.turn()
        theirs.send(b"x")
        loop.turn()
        loop.turn()
        loop.unwatch(ours)

    assert yielded == [1, 3], "and not after the second turn, which had somebody to serve"


def test_the_loop_sleeps_briefly_between_slices_soon_after_it_served_a_socket(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    loop._clock = clock
    given: list[str] = []
    monkeypatch.setattr("os.sched_yield", lambda: given.append("yielded"))
    monkeypatch.setattr("time.sleep", lambda pause_s: given.append("slept" if 0 < pause_s < 0.001 else "too long"))

    def work() -> Iterator[None]:
        while True:
            clock.passed_s += 0.04
            yield

    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.watch(ours, Watcher(ours))
        loop.work_through(work())
        loop.turn()
        theirs.send(b"x")
        for _ in range(4):
            loop.turn()
        loop.unwatch(ours)

    assert given == ["yielded", "slept", "slept", "yielded"], "the second turn had somebody to serve"


@pytest.mark.parametrize(("turn_s", "slices"), [(0.003, 1), (0.04, 5), (0.4, 50)])
def test_sliced_work_gets_a_share_of_long_turns_so_that_it_ends_under_any_load(turn_s: float, slices: int) -> None:
    now_s = 100.0
    done: list[int] = []

    class Busy(Watcher):
        def on_readable(self) -> None:
            nonlocal now_s
            now_s += turn_s
            super().on_readable()

    def work() -> Iterator[None]:
        nonlocal now_s
        for step in range(100):
            now_s += 0.00101
            done.append(step)
            yield

    ours, theirs = socket.socketpair()
    with loop_of(lambda: now_s) as loop, ours, theirs:
        loop.watch(ours, Busy(ours))
        loop.work_through(work())
        theirs.send(b"x")
        loop.turn()
        loop.unwatch(ours)

    assert len(done) == slices


@pytest.mark.usefixtures("with_an_error")
def test_work_that_raises_is_dropped_and_the_next_is_done(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def broken() -> Iterator[None]:
        yield
        raise ZeroDivisionError("a bug")

    def whole() -> Iterator[None]:
        done.append(1)
        yield

    loop.work_through(broken())
    loop.work_through(whole())
    turns(loop)

    assert done == [1]
    assert "bug in sliced work" in caplog.text


def test_a_deadline_beyond_the_longest_wait_of_the_kernel_is_still_called() -> None:
    """Its limit is 2^31 ms, 25 days; a document may say 99999h."""
    clock = Clock()
    calls: list[float] = []
    inner, outer = socket.socketpair()
    with loop_of(clock) as loop, inner, outer:
        year_s = 365 * 86_400.0
        loop.deadline(lambda: calls.append(loop.now_s)).set(loop.now_s + year_s)
        watcher = Watcher(inner)
        loop.watch(inner, watcher)
        outer.send(b"x")
        loop.turn()
        assert (watcher.reads, calls) == (1, [])
        clock.passed_s += year_s
        until(loop, lambda: bool(calls))


def test_a_deadline_is_called_when_its_time_has_come_and_not_before() -> None:
    clock = Clock()
    with loop_of(clock) as loop:
        called: list[float] = []
        loop.deadline(lambda: called.append(loop.now_s)).set(loop.now_s + 1000)
        turns(loop)
        assert not called
        clock.passed_s += 1001
        turns(loop)

        assert len(called) == 1


@pytest.mark.parametrize("look", [2, 3, 4])
def test_input_before_a_deadline_is_read_first_even_when_the_process_was_stalled(look: int) -> None:
    ours, theirs = socket.socketpair()
    time_itself = Clock()
    looks = 0

    def clock() -> float:
        """Before this reading of it the process stalls for 10 s, and input arrives early in that time."""
        nonlocal looks
        looks += 1
        if looks == look:
            theirs.send(b"x")
            time_itself.passed_s += 10
        return time_itself()

    with loop_of(clock) as loop, ours, theirs:
        watcher = Watcher(ours)
        loop.watch(ours, watcher)
        reads_before: list[int] = []
        loop.deadline(lambda: reads_before.append(watcher.reads)).set(loop.now_s + 5)
        turns(loop)

        assert reads_before == [1]


class Slow(Watcher):
    """Takes 40 ms for each call."""

    def __init__(self, sock: socket.socket, clock: Clock, order: list["Slow"]) -> None:
        super().__init__(sock)
        self._clock = clock
        self._order = order

    def on_readable(self) -> None:
        self._clock.passed_s += 0.04
        self._order.append(self)


class Crowd(contextlib.ExitStack):
    """Six sockets with something to read at all times, of which a turn can serve two."""

    def __init__(self) -> None:
        super().__init__()
        # Only handlers advance it.
        self.clock = Clock(stands_still=True)
        self.loop = self.enter_context(loop_of(self.clock))
        self.order: list[Slow] = []
        self.all = [self.add() for _ in range(6)]

    def add(self, *, is_urgent: bool = False) -> Slow:
        ours, theirs = (self.enter_context(sock) for sock in socket.socketpair())
        theirs.send(b"x")
        made = Slow(ours, self.clock, self.order)
        self.loop.watch(ours, made, is_urgent=is_urgent)
        return made


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with Crowd() as made:
        yield made


def test_under_load_output_is_flushed_in_each_turn_and_sockets_are_served_round_robin(
    crowd: Crowd,
) -> None:
    flushed: list[int] = []

    class Sender:
        def flush(self) -> None:
            flushed.append(len(crowd.order))

        def on_bug(self) -> None:
            raise AssertionError

    for _ in range(6):
        crowd.loop.flush_later(Sender())
        crowd.loop.turn()

    assert flushed == [2, 4, 6, 8, 10, 12]
    assert set(crowd.order[:6]) == set(crowd.order[6:]) == set(crowd.all)


def test_an_urgent_socket_is_served_in_each_turn(crowd: Crowd) -> None:
    urgent = crowd.add(is_urgent=True)
    heard = []
    for _ in range(6):
        crowd.loop.turn()
        heard.append(crowd.order.count(urgent))

    assert heard == [1, 2, 3, 4, 5, 6]
    assert set(crowd.order) == {urgent, *crowd.all}


def test_deadlines_wait_until_all_sockets_ready_before_them_have_been_served(crowd: Crowd) -> None:
    heard_before: list[int] = []
    crowd.loop.deadline(lambda: heard_before.append(len(set(crowd.order)))).set(crowd.loop.now_s - 1)
    for _ in range(3):
        assert not heard_before
        crowd.loop.turn()

    assert heard_before == [6]


def test_a_new_socket_is_served_before_those_just_served(crowd: Crowd) -> None:
    crowd.loop.turn()
    new = crowd.add()
    for _ in range(3):
        crowd.loop.turn()

    assert crowd.order.index(new) < 7


def test_a_socket_rewatched_without_events_is_not_read_and_can_be_watched_again(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    watcher = Watcher(ours)
    loop.watch(ours, watcher)
    loop.rewatch(ours, watcher, reads=False, writes=False)
    theirs.send(b"x")
    turns(loop)
    assert watcher.reads == 0
    loop.rewatch(ours, watcher, reads=True, writes=False)
    until(loop, lambda: watcher.reads == 1)
    loop.unwatch(ours)
    loop.unwatch(ours)
    ours.close()
    theirs.close()
