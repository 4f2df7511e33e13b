"""`tunnelgw check`: which objects in manifests would be accepted or refused, and why, without any cluster."""

from collections.abc import Sequence

import msgspec

from tunnelgw.commands import show
from tunnelgw.commands.judge import Grade, Row, judge
from tunnelgw.commands.world import World
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.admission import NAMELESS
from tunnelgw.translate.pipeline import Translation

_STYLES = {
    Grade.ACCEPTED.value: "green",
    Grade.WARNING.value: "yellow",
    Grade.REFUSED.value: "bold red",
    Grade.IGNORED.value: "dim",
}


def check(world: World, controller_name: str, home_namespace: str, *, as_json: bool, wants_all: bool) -> bool:
    """Returns whether nothing is refused."""
    rows = [*_unreadable(world), *_judged(world, Translation(world.snapshot, controller_name, home_namespace))]
    if as_json:
        show.as_json(rows)
    else:
        _draw(rows, wants_all=wants_all)
    return not any(row.grade is Grade.REFUSED for row in rows)


def _unreadable(world: World) -> list[Row]:
    return [
        Row(grade, problem.subject, message=problem.reason, where=problem.where)
        for grade, problems in ((Grade.REFUSED, world.problems), (Grade.WARNING, world.skipped))
        for problem in problems
    ]


def _judged(world: World, translation: Translation) -> list[Row]:
    return [
        msgspec.structs.replace(row, where=world.places.get(_entry(row), ""))
        for row in judge(world.snapshot, translation)
    ]


def _entry(row: Row) -> Entry:
    kind, _, name = row.object.partition(" ")
    namespace, _, name = name.rpartition("/")
    return Entry(Kind(kind), Key(namespace, name))


def _draw(rows: Sequence[Row], *, wants_all: bool) -> None:
    shown = [row for row in rows if wants_all or row.grade in (Grade.REFUSED, Grade.WARNING)]
    lines = [
        (row.grade.value, row.object, row.part, f"{row.condition} {row.reason}".strip(), row.message, row.where)
        for row in shown
    ]
    if lines:
        show.rows(("", "object", "part", "condition", "message", "where"), lines, _STYLES)
    count = {grade: len({_subject(row) for row in rows if row.grade is grade}) for grade in Grade}
    note = ", ".join(f"{number} {grade.value}" for grade, number in count.items() if number) or "nothing to judge"
    show.note(f"{note} (--all says why)" if count[Grade.IGNORED] and not wants_all else note)


def _subject(row: Row) -> str:
    """What to count once: an object, or the place of a document whose object cannot be determined."""
    return row.where if row.object == NAMELESS else row.object
