"""Deadlines against a plain list that is searched from end to end."""

from dataclasses import dataclass
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.loop.deadlines import Deadline, Deadlines

times = st.integers(0, 20)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 4), times),
        st.tuples(st.just("clear"), st.integers(0, 4), times),
        st.tuples(st.just("cancel"), st.integers(0, 4), times),
        st.tuples(st.just("pass"), st.integers(0, 4), times),
    ),
    max_size=60,
)


@dataclass
class Plain:
    """A deadline as one would write it without thinking of cost."""

    at_s: float | None = None
    is_cancelled: bool = False


@given(deeds)
@settings(deadline=None, max_examples=400)
def test_due_deadlines_are_those_that_a_plain_list_gives(history: list[tuple[str, int, int]]) -> None:
    deadlines = Deadlines()
    called: list[int] = []
    real = [Deadline(deadlines, partial(called.append, number)) for number in range(5)]
    plain = [Plain() for _ in range(5)]
    now_s = 0
    for deed, number, amount in history:
        if deed == "set":
            real[number].set(now_s + amount)
            if not plain[number].is_cancelled:
                plain[number].at_s = now_s + amount
        elif deed == "clear":
            real[number].clear()
            plain[number].at_s = None
        elif deed == "cancel":
            real[number].cancel()
            plain[number] = Plain(is_cancelled=True)
        else:
            now_s += amount
            due = [n for n in range(5) if (at_s := plain[n].at_s) is not None and at_s <= now_s]
            for n in due:
                plain[n].at_s = None
            called.clear()
            for call in deadlines.due(now_s):
                call()

            assert sorted(called) == due
        waiting = [p.at_s for p in plain if p.at_s is not None]
        next_s = deadlines.next_s()
        assert not waiting or (next_s is not None and next_s <= min(waiting)), "woken too late"


def test_calls_come_in_the_order_of_their_times() -> None:
    deadlines = Deadlines()
    called: list[int] = []
    for at_s in (3, 1, 2):
        Deadline(deadlines, partial(called.append, at_s)).set(at_s)
    for call in deadlines.due(5):
        call()

    assert called == [1, 2, 3]


def test_a_deadline_that_an_earlier_one_cancels_or_clears_is_not_called() -> None:
    deadlines = Deadlines()
    called: list[str] = []

    def first() -> None:
        called.append("first")
        second.cancel()
        third.clear()

    Deadline(deadlines, first).set(1)
    second = Deadline(deadlines, lambda: called.append("second"))
    third = Deadline(deadlines, lambda: called.append("third"))
    second.set(2)
    third.set(2)
    for call in deadlines.due(5):
        call()

    assert called == ["first"]


def test_a_deadline_that_sets_itself_to_the_past_waits_for_the_next_round() -> None:
    deadlines = Deadlines()
    called: list[int] = []

    def again() -> None:
        called.append(1)
        deadline.set(0)

    deadline = Deadline(deadlines, again)
    deadline.set(1)
    for call in deadlines.due(5):
        call()
    assert called == [1]
    for call in deadlines.due(5):
        call()

    assert called == [1, 1]


def test_repeated_setting_and_cancelling_does_not_fill_the_heap_which_is_rarely_cleaned() -> None:
    deadlines = Deadlines()
    cleanings = 0
    deadline = Deadline(deadlines, lambda: None)
    for turn in range(10_000):
        deadline.set(1_000_000 - turn)
    for _ in range(5_000):
        passing = Deadline(deadlines, lambda: None)
        passing.set(2_000_000)
        heap = deadlines._heap
        passing.cancel()
        cleanings += deadlines._heap is not heap

    assert len(deadlines._heap) < 3_000
    assert cleanings < 10
