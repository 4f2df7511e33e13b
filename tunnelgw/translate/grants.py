"""ReferenceGrants: which objects may refer to objects in other namespaces."""

from collections.abc import Mapping
from typing import NamedTuple

from tunnelgw.model.meta import Key
from tunnelgw.model.policies import GrantTo, ReferenceGrant
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.queries import View


class ReferenceFrom(NamedTuple):
    """The referrer. Its kind matters: what a Gateway may use, its ListenerSets may not."""

    group: str
    kind: str
    namespace: str


class ReferenceTo(NamedTuple):
    group: str
    kind: str
    namespace: str
    name: str


def is_permitted(view: View, referrer: ReferenceFrom, target: ReferenceTo) -> bool:
    """Always true within one namespace; otherwise a grant in the target's namespace must allow it.

    Must be checked before looking for the target: a referrer without permission must not learn whether it exists.
    """
    if referrer.namespace == target.namespace:
        return True
    granted = view.ask(granted_in, target.namespace).get(referrer, frozenset())
    return GrantTo(target.group, target.kind) in granted or GrantTo(target.group, target.kind, target.name) in granted


def granted_in(view: View, namespace: str) -> Mapping[ReferenceFrom, frozenset[GrantTo]]:
    """A query: what the grants of a namespace permit, by referrer, so that references need not search grants."""
    found: dict[ReferenceFrom, set[GrantTo]] = {}
    for grant in view.bucket(Index.GRANTS_BY_NAMESPACE, Key(namespace, "")):
        if isinstance(grant, ReferenceGrant):
            for entry in grant.spec.from_:
                found.setdefault(ReferenceFrom(entry.group, entry.kind, entry.namespace), set()).update(grant.spec.to)
    return {referrer: frozenset(targets) for referrer, targets in found.items()}


def not_permitted(referrer: ReferenceFrom, target: ReferenceTo) -> str:
    """A message for people: which grant is missing, and where."""
    return (
        f"no ReferenceGrant in namespace {target.namespace} lets {referrer.kind} of namespace {referrer.namespace} "
        f"refer to {target.kind} {target.name}"
    )
