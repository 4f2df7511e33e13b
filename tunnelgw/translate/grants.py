"""ReferenceGrants: who may refer to an object of another namespace."""

from typing import NamedTuple

from tunnelgw.model.meta import Key
from tunnelgw.model.policies import GrantFrom, GrantTo, ReferenceGrant
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.queries import View


class ReferenceFrom(NamedTuple):
    """Who refers. The kind counts: what a Gateway may use, its ListenerSets may not."""

    group: str
    kind: str
    namespace: str


class ReferenceTo(NamedTuple):
    group: str
    kind: str
    namespace: str
    name: str


def is_permitted(view: View, referrer: ReferenceFrom, target: ReferenceTo) -> bool:
    """Within one namespace always, else when a grant in the namespace of the target says so.

    Ask it before looking for the target: whether that exists is not the referrer's to know.
    """
    if referrer.namespace == target.namespace:
        return True
    grants = view.bucket(Index.GRANTS_BY_NAMESPACE, Key(target.namespace, ""))
    return any(isinstance(grant, ReferenceGrant) and _permits(grant, referrer, target) for grant in grants)


def not_permitted(referrer: ReferenceFrom, target: ReferenceTo) -> str:
    """A message for people: what is missing, and where."""
    return (
        f"no ReferenceGrant in namespace {target.namespace} lets {referrer.kind} of namespace {referrer.namespace} "
        f"refer to {target.kind} {target.name}"
    )


def _permits(grant: ReferenceGrant, referrer: ReferenceFrom, target: ReferenceTo) -> bool:
    return any(_is_from(entry, referrer) for entry in grant.spec.from_) and any(
        _is_to(entry, target) for entry in grant.spec.to
    )


def _is_from(entry: GrantFrom, referrer: ReferenceFrom) -> bool:
    return (entry.group, entry.kind, entry.namespace) == referrer


def _is_to(entry: GrantTo, target: ReferenceTo) -> bool:
    return (entry.group, entry.kind) == (target.group, target.kind) and entry.name in ("", target.name)
