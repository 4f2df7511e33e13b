"""The engine of incremental translation, on ConfigMaps that hold numbers and name each other."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting import calls_of
from tests.tunnelgw.translate.world import queries_of
from tunnelgw.model.core import ConfigMap
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, ObjectMeta
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.translate.queries import Question, View

NAMES = "abcdef"


def cell(name: str, number: int = 0, adds: str = "") -> ConfigMap:
    return ConfigMap(ObjectMeta(name, "ns"), data={"number": str(number), "adds": adds})


def sheet(*cells: ConfigMap) -> Snapshot:
    return Snapshot.of((Kind.CONFIG_MAP, item) for item in cells)


def entries(names: Iterable[str]) -> list[Entry]:
    return [Entry(Kind.CONFIG_MAP, Key("ns", name)) for name in names]


def total(view: View, name: str) -> int:
    """The cell's number, and the totals of the cells after it in the alphabet that it names."""
    found = view.get(Kind.CONFIG_MAP, Key("ns", name))
    if not isinstance(found, ConfigMap) or found.data is None:
        return -1
    return int(found.data["number"]) + sum(view.ask(total, other) for other in found.data["adds"] if other > name)


def sign(view: View, name: str) -> bool:
    return view.ask(total, name) >= 0


def praise(view: View, name: str) -> str:
    return f"{name} is {'fine' if view.ask(sign, name) else 'low'}"


def spread(view: View, name: str) -> tuple[int, int, bool]:
    """Asks low and high queries alike, and what it asks depends on the answers."""
    first = view.ask(total, name)
    other = NAMES[first % len(NAMES)]
    return first, view.ask(total, other), view.ask(sign, other)


def test_an_answer_is_computed_once() -> None:
    queries = queries_of(sheet(cell("a", 1, "b"), cell("b", 2)))

    assert [queries.keep(total, "a"), queries.keep(total, "a"), queries.keep(total, "b")] == [3, 3, 2]
    assert queries.evaluations == 2


def test_a_change_that_no_query_read_costs_nothing() -> None:
    queries = queries_of(sheet(cell("a", 1)))
    queries.keep(total, "a")

    assert queries.update(sheet(cell("a", 1), cell("b", 1)), entries("b")) == set()
    assert queries.evaluations == 1


def test_an_object_that_was_absent_is_noticed_when_it_is_created() -> None:
    queries = queries_of(sheet(cell("a", 1, "b")))

    assert queries.keep(total, "a") == 0
    assert queries.update(sheet(cell("a", 1, "b"), cell("b", 5)), entries("b")) == {(total, "a")}
    assert queries.keep(total, "a") == 6


def test_an_equal_answer_does_not_evaluate_dependent_queries() -> None:
    queries = queries_of(sheet(cell("a", 1)))
    queries.keep(praise, "a")

    assert queries.update(sheet(cell("a", 2)), entries("a")) == set()
    assert queries.evaluations == 5  # praise was not asked again


def test_an_equal_answer_stays_the_same_object() -> None:
    queries = queries_of(sheet(cell("a", 1)))
    first = queries.keep(praise, "a")
    queries.update(sheet(cell("a", -1)), entries("a"))
    queries.update(sheet(cell("a", 1)), entries("a"))
    second = queries.keep(praise, "a")
    queries.update(sheet(cell("a", 3)), entries("a"))

    assert first == second
    assert queries.keep(praise, "a") is second


def test_an_answer_that_was_let_go_is_forgotten() -> None:
    queries = queries_of(sheet(cell("a", 1, "b"), cell("b", 2)))
    queries.keep(total, "a")
    queries.let_go(total, "a")
    queries.update(sheet(cell("a", 1, "b"), cell("b", 3)), entries("b"))

    assert queries.evaluations == 2
    assert queries.ask(total, "a") == 4


def test_an_answer_that_another_query_needs_survives_being_let_go() -> None:
    queries = queries_of(sheet(cell("a", 1, "b"), cell("b", 2)))
    queries.keep(total, "b")
    queries.keep(total, "a")
    queries.let_go(total, "b")

    assert queries.update(sheet(cell("a", 1, "b"), cell("b", 3)), entries("b")) == {(total, "a")}


def test_work_does_not_grow_with_the_number_of_answers() -> None:
    def evaluations(count: int) -> int:
        names = [f"n{number}" for number in range(count)]
        queries = queries_of(sheet(*(cell(name, 1) for name in names)))
        for name in names:
            queries.keep(praise, name)
        before = queries.evaluations
        queries.update(sheet(*(cell(name, -1 if name == "n3" else 1) for name in names)), entries(["n3"]))
        return queries.evaluations - before

    assert evaluations(10) == evaluations(1000) == 3


def test_an_update_evaluates_each_query_once_however_many_paths_lead_to_it() -> None:
    names = "abcdefghijkl"
    cells = [cell(name, 1, names) for name in names]
    queries = queries_of(sheet(*cells))
    for name in names:
        queries.keep(total, name)
    before = queries.evaluations

    queries.update(sheet(*[cell(name, 2, names) for name in names]), entries(names))

    assert queries.evaluations - before == len(names)
    assert queries.keep(total, "a") == 2 * 2 ** (len(names) - 1)


def test_new_dependencies_of_a_low_query_are_traversed_once_however_many_paths_lead_through_them() -> None:
    def late(view: View, name: str) -> int:
        return view.ask(total, name) if view.ask(total, "gate") else 0

    def calls(names: str) -> int:
        def state(number: int) -> list[ConfigMap]:
            return [cell("gate", number), *[cell(name, number, names) for name in names]]

        queries = queries_of(sheet(*state(0)))
        queries.keep(total, names[0])
        queries.keep(late, names[0])
        after, changed = sheet(*state(1)), entries(["gate", *names])
        taken = calls_of(lambda: queries.update(after, changed))
        assert queries.keep(late, names[0]) == 2 ** (len(names) - 1)
        return taken

    assert calls("abcdefghijklmnop") < 16 * calls("abcdefgh")


def test_a_query_sees_no_answer_from_before_the_change_that_made_it_ask() -> None:
    seen: list[int] = []

    def watched(view: View, name: str) -> int:
        answer = view.ask(total, "b") if view.ask(total, "a") else 0  # "b" is higher than the query is until it asks
        seen.append(answer)
        return answer

    queries = queries_of(sheet(cell("a", 0), cell("b", 1, "c"), cell("c", 1, "d"), cell("d", 1)))
    queries.keep(total, "b")
    queries.keep(watched, "")

    queries.update(sheet(cell("a", 1), cell("b", 1, "c"), cell("c", 1, "d"), cell("d", 5)), entries("ad"))

    assert seen == [0, 7]


def test_a_query_that_asks_for_itself_raises_an_error_that_says_so() -> None:
    def circle(view: View, name: str) -> int:
        return view.ask(circle, name) + 1

    with pytest.raises(RuntimeError, match="circle of a asks for itself"):
        queries_of(sheet()).ask(circle, "a")


def test_a_query_that_raised_is_tried_again() -> None:
    queries = queries_of(sheet(cell("a", 1)))
    queries.keep(total, "a")
    broken = Snapshot.of([(Kind.CONFIG_MAP, ConfigMap(ObjectMeta("a", "ns"), data={"number": "x", "adds": ""}))])
    with pytest.raises(ValueError, match="x"):
        queries.update(broken, entries("a"))

    assert queries.update(sheet(cell("a", 2)), ()) == {(total, "a")}
    assert queries.keep(total, "a") == 2


cells = st.builds(cell, st.sampled_from(NAMES), st.integers(-9, 9), st.text(NAMES, max_size=3))
sheets = st.lists(cells, max_size=6, unique_by=lambda item: item.metadata.name)
questions = st.tuples(st.sampled_from([total, sign, praise, spread]), st.sampled_from(NAMES))


@settings(deadline=None)
@given(st.lists(st.tuples(sheets, st.sets(questions), st.sets(questions)), min_size=2, max_size=6))
def test_answers_after_any_edits_equal_those_computed_afresh(
    steps: list[tuple[list[ConfigMap], set[Question], set[Question]]],
) -> None:
    queries = queries_of(sheet())
    old: dict[str, ConfigMap] = {}
    kept: dict[Question, object] = {}
    for items, keeps, drops in steps:
        new = {item.metadata.name: item for item in items}
        told = queries.update(sheet(*items), entries(name for name in NAMES if old.get(name) != new.get(name)))
        fresh = queries_of(sheet(*items))

        assert told == {question for question, answer in kept.items() if fresh.ask(*question) != answer}
        for question in keeps:
            assert queries.keep(*question) == fresh.ask(*question)
        kept = {question: fresh.ask(*question) for question in {*kept, *keeps} - drops}
        for question in drops:
            queries.let_go(*question)
        old = new

    assert {question: queries.ask(*question) for question in kept} == kept


@settings(deadline=None)
@given(st.lists(sheets, min_size=1, max_size=4))
def test_nothing_is_evaluated_after_all_answers_were_let_go(steps: list[list[ConfigMap]]) -> None:
    queries = queries_of(sheet())
    for items in steps:
        queries.update(sheet(*items), entries(NAMES))
        for name in NAMES:
            queries.keep(spread, name)
    for name in NAMES:
        queries.let_go(spread, name)
    before = queries.evaluations
    queries.update(sheet(), entries(NAMES))

    assert queries.evaluations == before
