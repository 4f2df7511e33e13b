"""The decisions of translation, as rows for people. Pure."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

import msgspec

from tunnelgw.deliver.credentials import lacks, other_tunnel
from tunnelgw.model.conditions import BAD_WHEN_TRUE, WORTH_KNOWING, Finding, Status, is_partial
from tunnelgw.model.gateways import Gateway, GatewayClass, ListenerSet
from tunnelgw.model.kinds import STATUS_KINDS, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.own import GatewayClassConfig, GatewayConfig
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.references import parameters
from tunnelgw.translate.classes import config_problem, controllers_instead, left_out
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.policies import PolicyVerdict
from tunnelgw.translate.verdicts import ClassVerdict, GatewayVerdict, ListenerSetVerdict, ObjectId, RouteVerdict


class Grade(StrEnum):
    ACCEPTED = "accepted"
    WARNING = "warning"
    REFUSED = "refused"
    IGNORED = "ignored"
    """Not ours to judge: it has no class or parent of ours."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    grade: Grade
    object: str
    """For example `HTTPRoute default/shop`."""
    part: str = ""
    """A listener, parent or ancestor of the object."""
    condition: str = ""
    reason: str = ""
    message: str = ""
    where: str = ""
    """File and line, if the object came from a file."""


def judge(translation: Translation, *, has_all_secrets: bool = False) -> Iterator[Row]:
    """At least one row for each object that has a status, and one for each configuration that nothing names.

    `has_all_secrets`: a Secret with a token that is missing is reported, since the controller finds none elsewhere.
    """
    snapshot = translation.snapshot
    for kind in STATUS_KINDS:
        for key in sorted(snapshot.all(kind)):
            yield from _object(ObjectId(kind, key), translation, has_all_secrets=has_all_secrets)
    naming = (*snapshot.all(Kind.GATEWAY_CLASS).values(), *snapshot.all(Kind.GATEWAY).values())
    named = {parameters(item) for item in naming}
    for kind in (Kind.GATEWAY_CLASS_CONFIG, Kind.GATEWAY_CONFIG):
        for key, item in sorted(snapshot.all(kind).items()):
            if isinstance(item, GatewayClassConfig | GatewayConfig) and Entry(kind, key) not in named:
                yield _unnamed(ObjectId(kind, key), item, snapshot)


def absent_parents(
    item: Object | None, snapshot: Snapshot, unreadable: Collection[Entry] = frozenset()
) -> tuple[str, ...]:
    """For each class, parent or target that an object names but that is missing: `Gateway infra/web does not exist`, or
    `cannot be read`, if it is among `unreadable`.

    Whether it would be ours does not matter: what does not exist serves nobody. Parents of other kinds, such as the
    Services of a mesh, are not checked.
    """
    named = dict.fromkeys(_parents(item))  # a route may name several listeners of one Gateway
    return tuple(
        f"{kind} {key} {'cannot be read' if Entry(kind, key) in unreadable else 'does not exist'}"
        for kind, key in named
        if key not in snapshot.all(kind)
    )


def _parents(item: Object | None) -> Iterator[tuple[Kind, Key]]:
    match item:
        case Gateway():
            yield Kind.GATEWAY_CLASS, Key("", item.spec.gateway_class_name)
        case ListenerSet():
            ref = item.spec.parent_ref
            if ref.group == GATEWAY_API and ref.kind == Kind.GATEWAY:
                yield Kind.GATEWAY, Key(ref.namespace or item.metadata.namespace, ref.name)
        case HttpRoute() | GrpcRoute():
            for ref in item.spec.parent_refs:
                if ref.group == GATEWAY_API and ref.kind in (Kind.GATEWAY, Kind.LISTENER_SET):
                    yield Kind(ref.kind), Key(ref.namespace or item.metadata.namespace, ref.name)
        case BackendTlsPolicy():
            for target in item.spec.target_refs:
                if not target.group and target.kind == Kind.SERVICE:
                    yield Kind.SERVICE, Key(item.metadata.namespace, target.name)


def _unnamed(id_: ObjectId, config: GatewayClassConfig | GatewayConfig, snapshot: Snapshot) -> Row:
    """A row for a configuration that nothing names, with its own problems, since no status reports them."""
    by = "GatewayClass" if id_.kind is Kind.GATEWAY_CLASS_CONFIG else "Gateway of its namespace"
    faults = [config_problem(config.spec), *(finding.message for finding in left_out(config.spec.proxy))]
    faults += [_misled(config, snapshot)]
    message = "; ".join([f"no {by} names it", *filter(None, faults)])
    return Row(Grade.WARNING, str(id_), message=message)


def _misled(config: object, snapshot: Snapshot) -> str:
    """Why the proxy of a configuration opens another tunnel than the one named there; empty: nothing says that it
    does."""
    if not isinstance(config, GatewayConfig):
        return ""
    return other_tunnel(snapshot, config.spec, config.metadata.namespace)


def _without_tokens(named: Entry | None, translation: Translation, *, has_all_secrets: bool) -> Iterator[str]:
    """What is wrong with the Secrets that a configuration names: one that is there lacks its token, or is not there,
    which counts only if none is kept elsewhere."""
    config = translation.snapshot.read(named) if named else None
    if named and isinstance(config, GatewayClassConfig | GatewayConfig):
        for lack in lacks(translation.snapshot, config.spec, named.key.namespace or translation.home_namespace):
            if has_all_secrets or not lack.is_without_secret:
                yield f"{named.table} {named.key}: {lack.problem}"


def _object(id_: ObjectId, translation: Translation, *, has_all_secrets: bool) -> Iterator[Row]:
    item = translation.snapshot.all(id_.kind).get(id_.key)
    rows = [*_verdict(id_, translation, has_all_secrets=has_all_secrets)]
    told = "; ".join(row.message for row in rows)
    absent = [each for each in absent_parents(item, translation.snapshot) if each not in told]
    rows += [Row(Grade.WARNING, str(id_), message=each) for each in absent]
    yield from rows or [_unjudged(id_, item, translation)]


def _verdict(id_: ObjectId, translation: Translation, *, has_all_secrets: bool) -> Iterator[Row]:
    """No rows: the object is not ours to judge."""
    match verdict := translation.verdict(id_):
        case ClassVerdict() | GatewayVerdict() | ListenerSetVerdict():
            snapshot = translation.snapshot
            bad = [*_rows(id_, "", verdict.findings, only_bad=True)]
            named = parameters(snapshot.all(id_.kind)[id_.key])
            if misled := _misled(snapshot.read(named) if named else None, snapshot):
                bad.append(Row(Grade.WARNING, str(id_), message=misled))
            for lack in _without_tokens(named, translation, has_all_secrets=has_all_secrets):
                bad.append(Row(Grade.WARNING, str(id_), message=lack))
            for listener in () if isinstance(verdict, ClassVerdict) else verdict.listeners:
                bad += _rows(id_, f"listener {listener.name}", listener.findings, only_bad=True)
            yield from bad or _rows(id_, "", verdict.findings)
        case RouteVerdict():
            for parent in verdict.parents:
                yield from _rows(id_, str(parent.parent_ref), parent.findings)
        case PolicyVerdict():
            for ancestor in verdict.ancestors:
                yield from _rows(id_, f"Gateway {ancestor.gateway}", ancestor.findings)


def _unjudged(id_: ObjectId, item: Object | None, translation: Translation) -> Row:
    if isinstance(item, GatewayClass):
        is_lost = bool(controllers_instead(translation.snapshot, translation.controller_name))
        return Row(Grade.WARNING if is_lost else Grade.IGNORED, str(id_), message=foreign(item, is_only=is_lost))
    return Row(Grade.IGNORED, str(id_), message="it leads to no GatewayClass of this controller")


def foreign(gateway_class: GatewayClass, *, is_only: bool) -> str:
    """Why a class is not ours. `is_only`: no other class is ours either, which is rarely intended."""
    message = f"its controllerName is {gateway_class.spec.controller_name}, see --controller-name"
    return f"{message}: no GatewayClass is ours" if is_only else message


def _rows(id_: ObjectId, part: str, findings: Iterable[Finding], *, only_bad: bool = False) -> Iterator[Row]:
    bad = [finding for finding in findings if _is_bad(finding) or is_partial(finding)]
    for finding in bad:
        is_served = finding.type in WORTH_KNOWING or is_partial(finding)
        grade = Grade.WARNING if is_served else Grade.REFUSED
        yield Row(grade, str(id_), part, finding.type, finding.reason, finding.message)
    if not bad and not only_bad:
        yield Row(Grade.ACCEPTED, str(id_), part)


def _is_bad(finding: Finding) -> bool:
    return finding.status is (Status.TRUE if finding.type in BAD_WHEN_TRUE else Status.FALSE)
