"""Turns a verdict into the status of its object: those fields that are ours, or None if they already say so. Pure.

Each field replaces the stored one, so lists are complete, including all entries of others. Fields that are not ours are
not in the patch, and so they stay.

`Programmed` depends on proxies. It becomes true when one proxy holds the document of this generation, and then stays
true for that generation whatever happens to proxies, which `tunnelgw.dev/Delivered` reports. That condition also names
the controller that wrote the status, since these statuses have no field for that. If it is missing, or names another
controller, `Programmed` was written by the controller that had the class before us, and is ignored.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tunnelgw.model.conditions import Condition, ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import Gateway, GatewayAddress, ListenerSet, RouteGroupKind
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParentRef
from tunnelgw.status.conditions import merge_conditions
from tunnelgw.status.entries import ANCESTORS, PARENTS, Entry, Writer, conditions_json, merge
from tunnelgw.translate.verdicts import (
    ClassVerdict,
    GatewayVerdict,
    ListenerSetVerdict,
    ListenerVerdict,
    OrphanVerdict,
    ParentVerdict,
    RouteVerdict,
)

Patch: TypeAlias = dict[str, Any]

MAX_FEATURES = 64
_T = ConditionType
CLASS_CONDITIONS = frozenset({_T.ACCEPTED, _T.SUPPORTED_VERSION, _T.SETTINGS_LEFT_OUT})
GATEWAY_CONDITIONS = frozenset(
    {
        _T.ACCEPTED,
        _T.PROGRAMMED,
        _T.RESOLVED_REFS,
        _T.INSECURE_FRONTEND_VALIDATION_MODE,
        _T.SETTINGS_LEFT_OUT,
        _T.DELIVERED,
    }
)
LISTENER_CONDITIONS = frozenset(
    {_T.ACCEPTED, _T.PROGRAMMED, _T.RESOLVED_REFS, _T.CONFLICTED, _T.OVERLAPPING_TLS_CONFIG, _T.PARTLY_UNREACHABLE}
)
LISTENER_SET_CONDITIONS = frozenset({_T.ACCEPTED, _T.PROGRAMMED, _T.DELIVERED})


class Delivery(msgspec.Struct, frozen=True):
    """What is known about the deliveries for the Gateways of one data plane, to its proxies and to the provider."""

    is_held: bool
    """Whether at least one proxy holds the document that was made from this snapshot."""
    finding: Finding | None = None
    """`tunnelgw.dev/Delivered`; None while nothing is known."""
    unbound: Mapping[str, str] = {}
    """Why ports cannot be bound, by the listener's name in the status; for one Gateway or ListenerSet."""


class _Listener(Part, frozen=True):
    name: str
    supported_kinds: tuple[RouteGroupKind, ...] = ()
    attached_routes: int = -1
    conditions: tuple[Condition, ...] = ()


class _Class(Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    supported_features: tuple[Any, ...] = ()


class _Gateway(Part, frozen=True):
    addresses: tuple[GatewayAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    listeners: tuple[_Listener, ...] = ()
    attached_listener_sets: int = 0


class _Left(Part, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _ListenerSet(Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    listeners: tuple[_Listener, ...] = ()


class _Route(Part, frozen=True):
    parents: tuple[msgspec.Raw, ...] = ()


class _Policy(Part, frozen=True):
    ancestors: tuple[msgspec.Raw, ...] = ()


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_decode_class = msgspec.json.Decoder(_Class).decode
_decode_gateway = msgspec.json.Decoder(_Gateway).decode
_decode_left = msgspec.json.Decoder(_Left).decode
_decode_listener_set = msgspec.json.Decoder(_ListenerSet).decode
_decode_route = msgspec.json.Decoder(_Route).decode
_decode_policy = msgspec.json.Decoder(_Policy).decode


def class_status(stored: msgspec.Raw, verdict: ClassVerdict, features: Sequence[str], writer: Writer) -> Patch | None:
    """`features`: the names of all served features, in alphabetical order. Raises Outdated.

    For an unknown release of Gateway API the stored features stay as they are: the field may have another shape there,
    as it had in v1.1, and the API server would refuse the whole status.
    """
    current = _decode_class(stored)
    conditions = merge_conditions(current.conditions, verdict.findings, CLASS_CONDITIONS, writer.generation, writer.now)
    is_known = not any(finding.reason is Reason.UNSUPPORTED_VERSION for finding in verdict.findings)
    named = tuple({"name": feature} for feature in features[:MAX_FEATURES]) if is_known else current.supported_features
    if (conditions, named) == (current.conditions, current.supported_features):
        return None
    claimed = {"supportedFeatures": list(named)} if is_known else {}
    return {"conditions": conditions_json(conditions), **claimed}


def gateway_status(stored: msgspec.Raw, verdict: GatewayVerdict, delivery: Delivery, writer: Writer) -> Patch | None:
    """Raises Outdated."""
    current = _decode_gateway(stored)
    is_ours = _are_ours(current.conditions, writer)
    findings = _with_deliveries(verdict.findings, current.conditions if is_ours else (), delivery, writer)
    new = _Gateway(
        verdict.addresses,
        merge_conditions(current.conditions, findings, GATEWAY_CONDITIONS, writer.generation, writer.now),
        _listeners(current.listeners, verdict.listeners, delivery, writer, is_ours=is_ours),
        verdict.attached_listener_sets,
    )
    if new == current:
        return None
    return {
        "addresses": [{"type": address.type, "value": address.value} for address in new.addresses],
        "conditions": conditions_json(new.conditions),
        "listeners": [_listener_json(listener) for listener in new.listeners],
        "attachedListenerSets": new.attached_listener_sets,
    }


def listener_set_status(
    stored: msgspec.Raw, verdict: ListenerSetVerdict, delivery: Delivery, writer: Writer
) -> Patch | None:
    """Raises Outdated."""
    current = _decode_listener_set(stored)
    is_ours = _are_ours(current.conditions, writer)
    findings = _with_deliveries(verdict.findings, current.conditions if is_ours else (), delivery, writer)
    new = _ListenerSet(
        merge_conditions(current.conditions, findings, LISTENER_SET_CONDITIONS, writer.generation, writer.now),
        _listeners(current.listeners, verdict.listeners, delivery, writer, is_ours=is_ours),
    )
    if new == current:
        return None
    return {
        "conditions": conditions_json(new.conditions),
        "listeners": [_listener_json(listener) for listener in new.listeners],
    }


def orphan_status(item: Gateway | ListenerSet, verdict: OrphanVerdict, writer: Writer) -> Patch | None:
    """For a Gateway without a class, or a ListenerSet without a Gateway. Also None if this controller did not write the
    stored status: another controller may have, if it saw that class or Gateway before us. Raises Outdated.
    """
    current = _decode_left(item.status)
    if not any(_is_signed(condition, writer) for condition in current.conditions):
        return None
    owned, rest = LISTENER_SET_CONDITIONS, {}
    if isinstance(item, Gateway):
        owned, rest = GATEWAY_CONDITIONS, {"addresses": [], "attachedListenerSets": 0}
    conditions = merge_conditions(current.conditions, verdict.findings, owned, writer.generation, writer.now)
    return {"conditions": conditions_json(conditions), "listeners": [], **rest}


def left_status(stored: msgspec.Raw, writer: Writer) -> Patch | None:
    """For a Gateway whose class is another controller's, perhaps only now, or a ListenerSet of such a Gateway:
    removes our `Delivered`. The rest stays, since it does not show which controller wrote it."""
    current = _decode_left(stored)
    kept = tuple(condition for condition in current.conditions if not _is_signed(condition, writer))
    return None if kept == current.conditions else {"conditions": conditions_json(kept)}


def _with_deliveries(
    findings: Sequence[Finding], stored: Sequence[Condition], delivery: Delivery, writer: Writer
) -> list[Finding]:
    """The findings about a Gateway or ListenerSet with `Programmed` and, signed with our name, `Delivered`."""
    found = _with_programmed(findings, stored, delivery, writer)
    if delivery.finding is not None:
        message = f"{_signature(writer)}{delivery.finding.message}"
        found.append(msgspec.structs.replace(delivery.finding, message=message))
    return found


def _signature(writer: Writer) -> str:
    return f"{writer.controller_name}: "


def _are_ours(conditions: Sequence[Condition], writer: Writer) -> bool:
    """Whether we wrote them for this generation: on Gateways and ListenerSets we always add our signed `Delivered`."""
    return any(_is_signed(each, writer) and each.observed_generation == writer.generation for each in conditions)


def _is_signed(condition: Condition, writer: Writer) -> bool:
    return condition.type == ConditionType.DELIVERED and condition.message.startswith(_signature(writer))


def route_status(
    stored: msgspec.Raw,
    verdict: RouteVerdict,
    writer: Writer,
    left_alone: Collection[ParentRef] = (),
    unheard: Collection[str] = (),
) -> tuple[Patch | None, tuple[ParentRef, ...]]:
    """The patch, and the parents for which there was no room. `unheard`: tunnels about which nothing is known yet.
    Raises Outdated.
    """
    current = _decode_route(stored)
    ours = [Entry(parent.parent_ref, parent.findings, _unknown(parent, unheard)) for parent in verdict.parents]
    parents, left_out = merge(PARENTS, current.parents, ours, writer, left_alone)
    return None if _same(parents, current.parents) else {"parents": list(parents)}, left_out


def _unknown(parent: ParentVerdict, unheard: Collection[str]) -> frozenset[ConditionType]:
    return frozenset({_T.DELIVERED} if any(host.tunnel in unheard for host in parent.hosts) else ())


def policy_status(
    stored: msgspec.Raw, ancestors: Sequence[Entry], writer: Writer, left_alone: Collection[ParentRef] = ()
) -> tuple[Patch | None, tuple[ParentRef, ...]]:
    """The patch, and the ancestors for which there was no room. Raises Outdated."""
    current = _decode_policy(stored)
    merged, left_out = merge(ANCESTORS, current.ancestors, ancestors, writer, left_alone)
    return None if _same(merged, current.ancestors) else {"ancestors": list(merged)}, left_out


def _same(one: Sequence[msgspec.Raw], other: Sequence[msgspec.Raw]) -> bool:
    return [bytes(entry) for entry in one] == [bytes(entry) for entry in other]


def _listeners(
    current: Sequence[_Listener],
    verdicts: Sequence[ListenerVerdict],
    delivery: Delivery,
    writer: Writer,
    *,
    is_ours: bool,
) -> tuple[_Listener, ...]:
    """One entry for each listener of the spec, in order, and no others. `is_ours`: we wrote the stored status."""
    stored = {listener.name: listener.conditions for listener in current}
    merged = []
    for verdict in verdicts:
        before = stored.get(verdict.name, ())
        findings = _with_programmed(verdict.findings, before if is_ours else (), delivery, writer)
        if verdict.name in delivery.unbound:
            findings = _unbound(findings, delivery.unbound[verdict.name])
        merged.append(
            _Listener(
                verdict.name,
                verdict.supported_kinds,
                verdict.attached_routes,
                merge_conditions(before, findings, LISTENER_CONDITIONS, writer.generation, writer.now),
            )
        )
    return tuple(merged)


def _with_programmed(
    findings: Sequence[Finding], stored: Sequence[Condition], delivery: Delivery, writer: Writer
) -> list[Finding]:
    """The findings with `Programmed`, in its usual place after `Accepted`."""
    if any(finding.type is ConditionType.PROGRAMMED for finding in findings):
        return list(findings)
    was_held = any(
        (condition.type, condition.status, condition.observed_generation)
        == (ConditionType.PROGRAMMED, Status.TRUE, writer.generation)
        for condition in stored
    )
    if delivery.is_held or was_held:
        programmed = Finding(ConditionType.PROGRAMMED, Status.TRUE, Reason.PROGRAMMED)
    else:
        programmed = Finding(
            ConditionType.PROGRAMMED, Status.FALSE, Reason.PENDING, "no proxy has acknowledged this generation yet"
        )
    return [*findings[:1], programmed, *findings[1:]]


def _unbound(findings: Sequence[Finding], reason: str) -> list[Finding]:
    programmed = Finding(ConditionType.PROGRAMMED, Status.FALSE, Reason.PORT_UNAVAILABLE, reason)
    return [
        programmed if (finding.type, finding.status) == (ConditionType.PROGRAMMED, Status.TRUE) else finding
        for finding in findings
    ]


def _listener_json(listener: _Listener) -> dict[str, Any]:
    return {
        "name": listener.name,
        "supportedKinds": [{"group": kind.group, "kind": kind.kind} for kind in listener.supported_kinds],
        "attachedRoutes": listener.attached_routes,
        "conditions": conditions_json(listener.conditions),
    }
