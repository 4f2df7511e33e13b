"""`tunnelgw status`: Gateways, listeners and routes with their stored statuses, as tables."""

from collections.abc import Collection, Iterator

import msgspec

from tunnelgw.commands import show
from tunnelgw.commands.inputs import Inputs
from tunnelgw.commands.judge import absent_parents, foreign
from tunnelgw.model.conditions import BAD_WHEN_TRUE, WORTH_KNOWING, Condition, is_partial
from tunnelgw.model.gateways import Gateway, GatewayClass, ListenerSet
from tunnelgw.model.kinds import STATUS_KINDS, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.model.snapshot import Entry
from tunnelgw.model.statuses import AnyStatus
from tunnelgw.sources.directory.admission import Problem
from tunnelgw.translate.classes import controllers_instead

_STYLES = {"well": "green", "not well": "bold red", "warning": "yellow", "old": "yellow", "pending": "yellow"}


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    grade: str
    """`well`, `warning`, `not well`, `old` (about a former generation), `pending` (no status was written yet)."""
    object: str
    part: str = ""
    detail: str = ""
    problems: tuple[str, ...] = ()


def status(inputs: Inputs, controller_name: str, *, as_json: bool) -> bool:
    """Returns whether all is well, except for warnings."""
    rows = [_refused("not well", problem) for problem in inputs.problems]
    rows += [_refused("warning", problem) for problem in inputs.skipped]
    unreadable = {problem.entry for problem in inputs.problems if problem.entry is not None}
    for kind in STATUS_KINDS:
        for key in sorted(inputs.snapshot.all(kind)):
            rows += _rows(inputs, kind, key, unreadable)
    if controllers_instead(inputs.snapshot, controller_name):
        rows = [*_lost(inputs), *rows]
    if as_json:
        show.as_json(rows)
    else:
        lines = [(row.grade, row.object, row.part, row.detail, "; ".join(row.problems)) for row in rows]
        show.rows(("", "object", "part", "", "problems"), lines, _STYLES)
    return all(row.grade in ("well", "warning") for row in rows)


def _refused(grade: str, problem: Problem) -> Row:
    return Row(grade, problem.subject, "manifest" if problem.where else "object", problem.where, (problem.reason,))


def _lost(inputs: Inputs) -> Iterator[Row]:
    """Rows for all classes, if none is ours: then the statuses of their Gateways may be outdated."""
    for key, item in sorted(inputs.snapshot.all(Kind.GATEWAY_CLASS).items()):
        if isinstance(item, GatewayClass):
            yield Row("not well", f"{Kind.GATEWAY_CLASS} {key}", "controller", problems=(foreign(item, is_only=True),))


def _rows(inputs: Inputs, kind: Kind, key: Key, unreadable: Collection[Entry]) -> Iterator[Row]:
    item = inputs.snapshot.all(kind)[key]
    if not isinstance(item, GatewayClass | Gateway | ListenerSet | HttpRoute | GrpcRoute | BackendTlsPolicy):
        return
    name = f"{kind} {key}"
    try:
        found = msgspec.json.decode(item.status, type=AnyStatus)
    except msgspec.DecodeError as error:
        yield Row("not well", name, problems=(f"the status cannot be read: {error}",))
        return
    absent = absent_parents(item, inputs.snapshot, unreadable)
    if found.conditions or not (found.parents or found.ancestors):
        addresses = ", ".join(address.value for address in found.addresses)
        row = _row(item, name, "", addresses, found.conditions)
        grade = "not well" if absent and row.grade != "pending" else row.grade
        yield msgspec.structs.replace(row, grade=grade, problems=(*row.problems, *absent))
    elif absent:
        yield Row("not well", name, problems=absent)
    for listener in found.listeners:
        yield _row(item, name, f"listener {listener.name}", _routes(listener.attached_routes), listener.conditions)
    for entry in (*found.parents, *found.ancestors):
        ref = entry.parent_ref or entry.ancestor_ref or ParentRef("?")
        yield _row(item, name, str(ref), entry.controller_name, entry.conditions)


def _routes(number: int | None) -> str:
    return "" if number is None else f"{number} route{'' if number == 1 else 's'}"


def _row(item: Object, name: str, part: str, detail: str, conditions: tuple[Condition, ...]) -> Row:
    bad = [each for each in conditions if each.status != ("False" if each.type in BAD_WHEN_TRUE else "True")]
    told = [each for each in conditions if each in bad or is_partial(each)]
    problems = tuple(
        f"{each.type} {each.status} {each.reason}{f': {each.message}' if each.message else ''}" for each in told
    )
    if not conditions or all(each.status == "Unknown" for each in conditions):
        return Row("pending", name, part, detail, problems)
    if any(each.type not in WORTH_KNOWING for each in bad):
        return Row("not well", name, part, detail, problems)
    if told:
        return Row("warning", name, part, detail, problems)
    is_old = any(each.observed_generation < item.metadata.generation for each in conditions)
    return Row("old" if is_old else "well", name, part, detail)
