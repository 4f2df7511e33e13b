"""Lists in statuses that several controllers share: the parents of a route, the ancestors of a policy.

An entry is ours if it has our controller name. Others' entries stay, byte for byte, and in their place. Ours are
matched by their reference, with the API's defaults applied; those that are no longer wanted are removed.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tunnelgw.model.conditions import Condition, ConditionType, Finding
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParentRef
from tunnelgw.status.conditions import merge_conditions

_T = ConditionType


class SharedList(msgspec.Struct, frozen=True):
    field: str
    """The field of an entry that holds the reference to what it is about."""
    most: int
    """How many entries the API allows."""
    owned: frozenset[ConditionType]


PARENTS = SharedList("parentRef", 32, frozenset({_T.ACCEPTED, _T.RESOLVED_REFS, _T.PARTIALLY_INVALID, _T.DELIVERED}))
"""`status.parents` of a route."""
ANCESTORS = SharedList("ancestorRef", 16, frozenset({_T.ACCEPTED, _T.RESOLVED_REFS}))
"""`status.ancestors` of a policy."""


class Entry(msgspec.Struct, frozen=True):
    """What we write about one parent or ancestor. `ref`: as in the spec."""

    ref: ParentRef
    findings: tuple[Finding, ...]
    unknown: frozenset[ConditionType] = frozenset()
    """Condition types about which nothing is known now: without a finding, the stored condition stays."""


class Writer(msgspec.Struct, frozen=True):
    """The author, generation and time of what is written."""

    controller_name: str
    namespace: str
    """The object's namespace, the default for references."""
    generation: int
    now: str
    """RFC 3339 to the second."""


class _Stored(Part, frozen=True):
    controller_name: str = ""
    parent_ref: ParentRef | None = None
    ancestor_ref: ParentRef | None = None
    conditions: tuple[Condition, ...] = ()


_decoder = msgspec.json.Decoder(_Stored)
_encoder = msgspec.json.Encoder()


def merge(
    shared: SharedList,
    current: Sequence[msgspec.Raw],
    ours: Sequence[Entry],
    writer: Writer,
    left_alone: Collection[ParentRef] = (),
) -> tuple[tuple[msgspec.Raw, ...], tuple[ParentRef, ...]]:
    """The list as it should be, and the references for which there was no room. Raises Outdated.

    `left_alone`: references, with their namespaces, whose stored entries stay, but for which none is added.
    """
    wanted: dict[ParentRef, Entry] = {}
    for entry in ours:
        wanted.setdefault(with_namespace(entry.ref, writer.namespace), entry)
    merged: list[msgspec.Raw] = []
    for raw in current:
        stored = _decoder.decode(raw)
        if stored.controller_name != writer.controller_name:
            merged.append(raw)
            continue
        ref = stored.parent_ref or stored.ancestor_ref
        full = with_namespace(ref, writer.namespace) if ref is not None else None
        found = wanted.pop(full, None) if full is not None else None
        if found is not None:
            merged.append(_updated(raw, stored, found, shared, writer))
        elif full in left_alone:
            merged.append(raw)
    added = [_updated(None, _Stored(), entry, shared, writer) for entry in wanted.values()]
    room = max(0, shared.most - len(merged))
    left_out = tuple(entry.ref for entry in list(wanted.values())[room:])
    return (*merged, *added[:room]), left_out


def with_namespace(ref: ParentRef, namespace: str) -> ParentRef:
    """The reference with the default namespace filled in if it names none."""
    return ref if ref.namespace else msgspec.structs.replace(ref, namespace=namespace)


def _updated(raw: msgspec.Raw | None, stored: _Stored, entry: Entry, shared: SharedList, writer: Writer) -> msgspec.Raw:
    """The entry with its new conditions; the stored bytes if nothing has changed."""
    owned = shared.owned - entry.unknown
    conditions = merge_conditions(stored.conditions, entry.findings, owned, writer.generation, writer.now)
    if raw is not None and conditions == stored.conditions:
        return raw
    content: Mapping[str, object] = {
        shared.field: reference(entry.ref),
        "controllerName": writer.controller_name,
        "conditions": conditions_json(conditions),
    }
    return msgspec.Raw(_encoder.encode(content))


def reference(ref: ParentRef) -> dict[str, object]:
    """The reference with group and kind spelled out, as the API server's defaults would do."""
    optional = {"namespace": ref.namespace, "sectionName": ref.section_name, "port": ref.port}
    return {
        "group": ref.group,
        "kind": ref.kind,
        "name": ref.name,
        **{name: value for name, value in optional.items() if value},
    }


def conditions_json(conditions: Sequence[Condition]) -> list[dict[str, object]]:
    """Writes every field: the API requires some that a struct would omit because they have their default values."""
    return [
        {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
            "observedGeneration": condition.observed_generation,
        }
        for condition in conditions
    ]
