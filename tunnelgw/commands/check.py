"""`tunnelgw check`: which objects in manifests would be accepted or refused, and why, without any cluster."""

from collections.abc import Iterator, Sequence

import msgspec

from tunnelgw.commands import show
from tunnelgw.commands.inputs import Inputs
from tunnelgw.commands.judge import Grade, Row, judge
from tunnelgw.model.conditions import Reason
from tunnelgw.model.core import LoadBalancerIngress, LoadBalancerStatus, Service, ServiceStatus
from tunnelgw.model.gateways import Gateway, is_ip_address
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.sources.directory.admission import NAMELESS
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.verdicts import ObjectId

_STYLES = {
    Grade.ACCEPTED.value: "green",
    Grade.WARNING.value: "yellow",
    Grade.REFUSED.value: "bold red",
    Grade.IGNORED.value: "dim",
}

_ABSENT = " does not exist"
_NOT_FOUND = "secret not found: "
"""How messages say that an object is missing."""
_WITHOUT_ADDRESS = (Reason.ADDRESS_NOT_ASSIGNED, Reason.ADDRESS_NOT_USABLE)


def check(inputs: Inputs, controller_name: str, home_namespace: str, *, as_json: bool, wants_all: bool) -> bool:
    """Returns whether nothing is refused."""
    judged = (_told_of_refused(row, inputs) for row in _judged(inputs, controller_name, home_namespace))
    rows = [*_unreadable(inputs), *judged]
    if as_json:
        show.as_json(rows)
    else:
        _draw(rows, wants_all=wants_all)
    return not any(row.grade is Grade.REFUSED for row in rows)


def _unreadable(inputs: Inputs) -> list[Row]:
    return [
        Row(grade, problem.subject, message=problem.reason, where=problem.where)
        for grade, problems in ((Grade.REFUSED, inputs.problems), (Grade.WARNING, inputs.skipped))
        for problem in problems
    ]


def _told_of_refused(row: Row, inputs: Inputs) -> Row:
    """For translation, objects that were refused do not exist."""
    message = row.message
    if _ABSENT not in message and _NOT_FOUND not in message:
        return row
    for problem in inputs.problems:
        if problem.entry is not None:
            refused = f"{problem.subject} is itself refused"
            message = message.replace(f"{problem.subject}{_ABSENT}, or cannot be read", refused)
            message = message.replace(f"{problem.subject}{_ABSENT}", refused)
            if problem.entry.table is Kind.SECRET:
                message = message.replace(f"{_NOT_FOUND}{problem.entry.key} (", f"{refused} (")
    return msgspec.structs.replace(row, message=message)


def _as_in_a_cluster(snapshot: Snapshot) -> Snapshot:
    """Services get the addresses that files lack, since a cluster assigns them; those that Gateways request, if any."""
    gateways = (item for item in snapshot.all(Kind.GATEWAY).values() if isinstance(item, Gateway))
    requested = [address for item in gateways for address in item.spec.addresses if address.value]
    ips = tuple(dict.fromkeys(address.value for address in requested if is_ip_address(address.value)))
    hostnames = tuple(dict.fromkeys(address.value for address in requested if not is_ip_address(address.value)))
    return Snapshot.of(
        (kind, _with_addresses(item, ips, hostnames) if isinstance(item, Service) else item)
        for kind in Kind
        for item in snapshot.all(kind).values()
    )


def _with_addresses(service: Service, ips: tuple[str, ...], hostnames: tuple[str, ...]) -> Service:
    spec, status = service.spec, service.status
    some = ips or ("192.0.2.1",)  # for documentation, RFC 5737
    if spec.cluster_ips is None:
        spec = msgspec.structs.replace(spec, cluster_ips=some)
    if not status.load_balancer.ingress:
        by_ip, by_name = [LoadBalancerIngress(ip) for ip in some], [LoadBalancerIngress("", name) for name in hostnames]
        status = ServiceStatus(LoadBalancerStatus((*by_ip, *by_name)))
    return msgspec.structs.replace(service, spec=spec, status=status)


def _judged(inputs: Inputs, controller_name: str, home_namespace: str) -> Iterator[Row]:
    def rows(snapshot: Snapshot) -> Iterator[Row]:
        translation = Translation(snapshot, controller_name, home_namespace)
        return judge(translation, has_all_secrets=inputs.has_all_secrets)

    places = {str(ObjectId(Kind(entry.table), entry.key)): place for entry, place in inputs.places.items()}
    waiting = {row.object: row for row in rows(inputs.snapshot) if row.reason in _WITHOUT_ADDRESS}
    for row in rows(_as_in_a_cluster(inputs.snapshot)):
        found = row
        if row.grade is Grade.ACCEPTED and row.object in waiting:
            found = msgspec.structs.replace(waiting[row.object], grade=Grade.WARNING)
        yield msgspec.structs.replace(found, where=places.get(row.object, ""))


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
