"""Rewrite wanted endpoints into exactly the form in which the store will list them (pure).

external-dns replaces its desired state by what this answers, so whatever differs from a later listing would be
written again on every pass, and whatever is left out is not wanted (an owned, existing record of that name is then
deleted). Idempotent: adjusting the result again changes nothing.

An endpoint's result depends on nothing but that endpoint, and external-dns sends all of them on every pass: callers
may remember results (`dnswebhook.adjuster` does, by the endpoint's bytes). Only what a limit of the store forbids
depends on the listing too: where it is served, it stays. And endpoints that differed by their `setIdentifier` alone
need a second look together: `merge_identified`.
"""

from collections.abc import Callable, Sequence

import msgspec

from dnswebhook.canonical import DropReason
from dnswebhook.fit import Drop, fit
from dnswebhook.model import Capabilities, Endpoint
from dnswebhook.served import Served


class Adjusted(msgspec.Struct, frozen=True, gc=False):
    """`endpoint` is None when nothing of it can be held."""

    endpoint: Endpoint | None
    drops: tuple[Drop, ...] = ()
    limit: str = ""
    """As in `Fitted`, like the next."""
    is_by_limit: bool = False


def adjust(
    endpoint: Endpoint,
    capabilities: Capabilities,
    is_protected: Callable[[str], bool],
    served: Served,
) -> Adjusted:
    """Canonical name and targets, a TTL that the store keeps, no setIdentifier and no foreign properties; labels stay.

    No property of `providerSpecific` is stored, so each would cause an update on every pass (external-dns #4951).
    """
    fitted = fit(
        endpoint.dns_name,
        endpoint.record_type,
        endpoint.targets,
        endpoint.ttl_s,
        capabilities,
        served,
        capabilities.reserved_name_octets,
    )
    if fitted.values and is_protected(fitted.name):
        drop = Drop(DropReason.PROTECTED, fitted.name, fitted.type, "", "the name is protected by --protect")
        return Adjusted(None, (drop,))
    if not fitted.values:
        return Adjusted(None, fitted.drops, is_by_limit=fitted.is_by_limit)
    kept = Endpoint(fitted.name, fitted.type, fitted.values, fitted.ttl_s, labels=endpoint.labels)
    return Adjusted(kept, fitted.drops, fitted.limit, fitted.is_by_limit)


def merge_identified(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Endpoints of one name and type as one; all at once, since 10,000 would take seconds one after the other.

    They were told apart by a `setIdentifier`, which no store here can remember; external-dns would keep one of them
    and drop the others' targets. Targets are united (a CNAME keeps the lowest), the smallest configured TTL wins, and
    the first endpoint's labels stay.
    """
    first = endpoints[0]
    targets = tuple(sorted({target for endpoint in endpoints for target in endpoint.targets}))
    if first.record_type in ("CNAME", "DNAME"):
        targets = targets[:1]
    ttl_s = min((endpoint.ttl_s for endpoint in endpoints if endpoint.ttl_s), default=0)
    return Endpoint(first.dns_name, first.record_type, targets, ttl_s, labels=first.labels)
