"""Lists that several controllers share: the parents of a route, the ancestors of a policy.

An entry is ours when it carries our controller name. Entries of others survive byte for byte and in their place; ours
are found again by what they refer to, with the API's defaults applied; those that nothing refers to any more go.
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
    """Of an entry: whom it is about."""
    most: int
    """Entries that the API takes."""
    owned: frozenset[ConditionType]


PARENTS = SharedList("parentRef", 32, frozenset({_T.ACCEPTED, _T.RESOLVED_REFS, _T.PARTIALLY_INVALID, _T.DELIVERED}))
"""`status.parents` of a route."""
ANCESTORS = SharedList("ancestorRef", 16, frozenset({_T.ACCEPTED, _T.RESOLVED_REFS}))
"""`status.ancestors` of a policy."""


class Entry(msgspec.Struct, frozen=True):
    """What we have to say about one parent or ancestor. `ref` as the spec has it."""

    ref: ParentRef
    findings: tuple[Finding, ...]


class Writer(msgspec.Struct, frozen=True):
    """Who writes, about which generation, when."""

    controller_name: str
    namespace: str
    """Of the object: the default of a reference's namespace."""
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

    `left_alone`, with their namespaces: of them stays what was said, and nothing is added.
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
    """Spelled out, where it is the default."""
    return ref if ref.namespace else msgspec.structs.replace(ref, namespace=namespace)


def _updated(raw: msgspec.Raw | None, stored: _Stored, entry: Entry, shared: SharedList, writer: Writer) -> msgspec.Raw:
    """The very bytes that were stored when they say the same."""
    conditions = merge_conditions(stored.conditions, entry.findings, shared.owned, writer.generation, writer.now)
    if raw is not None and conditions == stored.conditions:
        return raw
    content: Mapping[str, object] = {
        shared.field: reference(entry.ref),
        "controllerName": writer.controller_name,
        "conditions": conditions_json(conditions),
    }
    return msgspec.Raw(_encoder.encode(content))


def reference(ref: ParentRef) -> dict[str, object]:
    """A reference with group and kind spelled out, as the API server's defaults would."""
    optional = {"namespace": ref.namespace, "sectionName": ref.section_name, "port": ref.port}
    return {
        "group": ref.group,
        "kind": ref.kind,
        "name": ref.name,
        **{name: value for name, value in optional.items() if value},
    }


def conditions_json(conditions: Sequence[Condition]) -> list[dict[str, object]]:
    """Every field is spelled out: the API requires those that a struct would leave out as defaults."""
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
