"""Rewrites desired endpoints into exactly the form in which the store will list them (pure).

external-dns replaces its desired state with this response. Whatever differs from a later listing would be written again
on every pass, and whatever is left out counts as not desired: an existing record of that name that external-dns owns is
then deleted. Idempotent: adjusting the result again changes nothing.

An endpoint's result depends on that endpoint alone, and external-dns sends all of them on every pass, so callers may
cache results (`dnswebhook.adjuster` does, by the endpoint's bytes). There are two exceptions. What a limit of the store
forbids depends on the listing too: it stays if it is already served. And endpoints that differ only in their
`setIdentifier` have to be merged afterwards: `merge_identified`.
"""

from collections.abc import Callable, Sequence

import msgspec

from dnswebhook.canonical import DropReason
from dnswebhook.fit import Drop, Fitted, fit
from dnswebhook.model import Capabilities, Endpoint
from dnswebhook.ownership import OWNED_RECORD_LABEL, is_heritage
from dnswebhook.served import Served


class Adjusted(msgspec.Struct, frozen=True, gc=False):
    """`endpoint` is None if the store can hold no part of it."""

    endpoint: Endpoint | None
    drops: tuple[Drop, ...] = ()
    limit: str = ""
    """As in `Fitted`, like the next field."""
    is_by_limit: bool = False


def adjust(
    endpoint: Endpoint,
    capabilities: Capabilities,
    is_protected: Callable[[str], bool],
    served: Served,
) -> Adjusted:
    """Make name and targets canonical, and the TTL one that the store keeps.

    setIdentifier and properties are dropped, labels are kept. `providerSpecific` properties are not stored, so each
    would cause an update on every pass (external-dns #4951). The label `ownedRecord` is dropped: external-dns sets it
    after adjusting, on its ownership records, and on any other it would make the record pass for one.
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
    if fitted.type == "TXT" and any(map(is_heritage, fitted.values)):
        fitted = _without_ownership_texts(fitted)
    if fitted.values and is_protected(fitted.name):
        drop = Drop(DropReason.PROTECTED, fitted.name, fitted.type, "", "the name is protected by --protect")
        return Adjusted(None, (drop,))
    if not fitted.values:
        return Adjusted(None, fitted.drops, is_by_limit=fitted.is_by_limit)
    labels = endpoint.labels
    if OWNED_RECORD_LABEL in labels:
        labels = {name: value for name, value in labels.items() if name != OWNED_RECORD_LABEL}
    kept = Endpoint(fitted.name, fitted.type, fitted.values, fitted.ttl_s, labels=labels)
    return Adjusted(kept, fitted.drops, fitted.limit, fitted.is_by_limit)


def _without_ownership_texts(fitted: Fitted) -> Fitted:
    """external-dns writes its ownership texts after adjusting, so one that is desired comes from a source.

    Written, it would make external-dns take for its own what somebody else has on another name, and remove that.
    """
    texts = [value for value in fitted.values if is_heritage(value)]
    kept = tuple(value for value in fitted.values if not is_heritage(value))
    named = texts[0] if len(texts) == 1 else ""
    detail = "an ownership text, want only external-dns itself to write those: it would claim records of others"
    drops = [*fitted.drops, Drop(DropReason.OWNERSHIP_TEXT, fitted.name, "TXT", named, detail, len(texts))]
    if not kept:
        drops.append(Drop(DropReason.NO_TARGETS, fitted.name, "TXT", "", "no target is left that can be held"))
    return msgspec.structs.replace(fitted, values=kept, drops=tuple(drops))


def merge_identified(endpoints: Sequence[Endpoint]) -> Endpoint:
    """Merge endpoints of one name and type; all in one call, since merging 10,000 one by one would take seconds.

    They were distinguished by `setIdentifier`, which no store here can hold; external-dns would keep one of them and
    drop the others' targets. The targets are united (a CNAME keeps the lowest), the smallest configured TTL wins, and
    the first endpoint's labels are kept.
    """
    first = endpoints[0]
    targets = tuple(sorted({target for endpoint in endpoints for target in endpoint.targets}))
    if first.record_type in ("CNAME", "DNAME"):
        targets = targets[:1]
    ttl_s = min((endpoint.ttl_s for endpoint in endpoints if endpoint.ttl_s), default=0)
    return Endpoint(first.dns_name, first.record_type, targets, ttl_s, labels=first.labels)
