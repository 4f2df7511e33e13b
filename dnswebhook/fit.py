"""Which part of a desired record set a store can hold, and in which spelling (pure).

`adjust` uses it to respond to external-dns before anything is planned, and `plan` uses it again on what arrives for
writing, because ownership TXT records are made after adjusting, and requests made by hand skip adjusting. So plan never
refuses the form of a set that adjust has accepted.

A firmware upgrade may bring an API with tighter limits. What they forbid although the store already serves it needs no
write, so it is kept as it is.
"""

from collections.abc import Sequence

import msgspec

from dnswebhook.canonical import (
    DropReason,
    Unacceptable,
    canonical_name,
    canonical_value,
    host_of,
    is_wildcard,
    stored_name,
    stored_value,
)
from dnswebhook.model import Capabilities
from dnswebhook.served import Served

MAX_NAMED_DROPS = 20
"""Per set: one user's annotation can hold 50,000 targets, each of which would be an object and a log line."""


_LIMITS = frozenset({DropReason.NAME_TOO_LONG, DropReason.UNSUPPORTED_WILDCARD, DropReason.TARGET_TOO_LONG})
"""Another API of the same controller may accept these."""


class Drop(msgspec.Struct, frozen=True, gc=False):
    """A set (`target` empty) or one of its targets that cannot be held."""

    reason: DropReason
    name: str
    type: str
    target: str
    detail: str
    count: int = 1
    """How many targets it stands for."""


class Fitted(msgspec.Struct, frozen=True, gc=False):
    """What can be held of a set. `values` are canonical, sorted and distinct; empty if the whole set is dropped."""

    name: str
    type: str
    values: tuple[str, ...]
    ttl_s: int
    drops: tuple[Drop, ...] = ()
    limit: str = ""
    """Why the store would not accept it if it were not served already. The TTL is then 0: setting it needs a write."""
    is_by_limit: bool = False
    """Whether a limit played a part, so that another listing may lead to another result."""


def fit(
    name: str,
    record_type: str,
    targets: Sequence[str],
    ttl_s: int,
    capabilities: Capabilities,
    served: Served,
    reserved_octets: int = 0,
) -> Fitted:
    """Rewrite a desired set to fit `capabilities`; `reserved_octets` reduces the maximum name length."""
    try:
        owner = _fitting_name(name, record_type, capabilities, reserved_octets)
    except Unacceptable as error:
        return _as_served(name, record_type, targets, served, error)
    kept, drops, limit = _fitting_values(owner, record_type, targets, capabilities, served)
    if record_type in ("CNAME", "DNAME") and len(kept) > 1:
        # A second CNAME stops dnsmasq, and DHCP with it. The lowest is kept, so that every pass chooses the same one.
        detail = f"a name can have only one {record_type}; kept {kept[0]!r}"
        for value in kept[1:]:
            _add(drops, Drop(DropReason.SURPLUS_CNAME_TARGET, owner, record_type, value, detail))
        kept = kept[:1]
    if not kept:
        drops.append(Drop(DropReason.NO_TARGETS, owner, record_type, "", "no target is left that can be held"))
    ttl_limit_s = capabilities.max_ttl_s[record_type]
    if not 0 <= ttl_s <= ttl_limit_s:
        ttl_s = 0 if ttl_s < 0 else ttl_limit_s
    if not (limit or drops):  # the usual case
        return Fitted(owner, record_type, kept, ttl_s)
    is_by_limit = bool(limit) or any(drop.reason in _LIMITS for drop in drops)
    return Fitted(owner, record_type, kept, 0 if limit else ttl_s, tuple(drops), limit, is_by_limit)


def _as_served(name: str, record_type: str, targets: Sequence[str], served: Served, error: Unacceptable) -> Fitted:
    """What remains of a set whose name the store would not accept: the values that it already serves."""
    owner = stored_name(name)
    is_by_limit = error.reason in _LIMITS
    values = [stored_value(record_type, target) for target in targets] if is_by_limit else []
    kept = tuple(sorted(served.among(owner, record_type, values)))
    if not kept:
        drop = Drop(error.reason, name, record_type, "", str(error))
        return Fitted(name, record_type, (), 0, (drop,), is_by_limit=is_by_limit)
    drops: list[Drop] = []
    for target in targets:
        if stored_value(record_type, target) not in kept:
            _add(drops, Drop(error.reason, owner, record_type, target, str(error)))
    return Fitted(owner, record_type, kept, 0, tuple(drops), str(error), is_by_limit=True)


def _fitting_values(
    owner: str, record_type: str, targets: Sequence[str], capabilities: Capabilities, served: Served
) -> tuple[tuple[str, ...], list[Drop], str]:
    """The values, sorted and distinct; what does not fit; why one that stays nevertheless does not (`Fitted.limit`)."""
    values: list[str] = []
    drops: list[Drop] = []
    limit = ""
    for target in targets:
        try:
            values.append(_fitting_value(owner, record_type, target, capabilities))
        except Unacceptable as error:
            value = stored_value(record_type, target)
            if error.reason is DropReason.TARGET_TOO_LONG and served.among(owner, record_type, (value,)):
                values.append(value)
                limit = limit or str(error)
            else:
                _add(drops, Drop(error.reason, owner, record_type, target, str(error)))
    return tuple(values if len(values) < 2 else sorted(set(values))), drops, limit


def _add(drops: list[Drop], drop: Drop) -> None:
    """List a dropped target, or count it with others of the same reason if many are listed already."""
    for index in range(MAX_NAMED_DROPS, len(drops)):
        known = drops[index]
        if known.reason is drop.reason:
            count = known.count + 1
            drops[index] = Drop(known.reason, known.name, known.type, "", f"{count} more targets", count)
            return
    drops.append(drop)


def _fitting_name(name: str, record_type: str, capabilities: Capabilities, reserved_octets: int) -> str:
    if record_type not in capabilities.max_ttl_s:
        held = ", ".join(capabilities.max_ttl_s)
        raise Unacceptable(
            DropReason.UNSUPPORTED_TYPE, f"{capabilities.store} cannot hold type {record_type[:20]!r}, only {held}"
        )
    owner = canonical_name(name)
    limit = capabilities.max_name_octets - reserved_octets
    if len(owner) > limit:
        reserve = f" ({reserved_octets} are kept free for the ownership record's name)" if reserved_octets else ""
        raise Unacceptable(
            DropReason.NAME_TOO_LONG,
            f"name of {len(owner)} octets, {capabilities.store} holds at most {limit}{reserve}",
        )
    if "*" in owner:
        _require_fitting_star(owner, record_type, capabilities)
    if record_type == "SRV" and not (owner.count(".") >= 2 and all(part[0] == "_" for part in owner.split(".")[:2])):
        raise Unacceptable(DropReason.INVALID_NAME, f"SRV name {owner!r}, want `_service._protocol.domain`")
    return owner


def _require_fitting_star(owner: str, record_type: str, capabilities: Capabilities) -> None:
    if owner == "*":  # dnsmasq would answer for the whole Internet with it
        raise Unacceptable(DropReason.UNSUPPORTED_WILDCARD, "name '*' stands for every name, want a domain after it")
    if is_wildcard(owner) and record_type not in capabilities.wildcard_types:
        raise Unacceptable(
            DropReason.UNSUPPORTED_WILDCARD, f"{capabilities.store} refuses a wildcard name for type {record_type}"
        )
    if not is_wildcard(owner) and record_type != "TXT":
        raise Unacceptable(DropReason.INVALID_NAME, f"name {owner!r}, want the wildcard `*` alone in its label")


def _fitting_value(owner: str, record_type: str, target: str, capabilities: Capabilities) -> str:
    value = canonical_value(record_type, target)
    if record_type in ("A", "AAAA"):
        return value
    if record_type == "TXT":
        octets = len(value.encode())
        if octets > capabilities.max_text_octets:
            raise Unacceptable(
                DropReason.TARGET_TOO_LONG,
                f"text of {octets} octets, {capabilities.store} holds at most {capabilities.max_text_octets}",
            )
        return value
    host = host_of(record_type, value)
    if len(host) > capabilities.max_target_octets:
        raise Unacceptable(
            DropReason.TARGET_TOO_LONG,
            f"target of {len(host)} octets, {capabilities.store} holds at most {capabilities.max_target_octets}",
        )
    if record_type in ("CNAME", "DNAME") and host == owner:
        raise Unacceptable(DropReason.INVALID_TARGET, f"{record_type} target {host!r} is the name itself")
    return value
