"""The data that is listed, adjusted and applied: as external-dns produces it, the same for every webhook.

A host is a record and its ownership TXT record, as the registry `txt` writes them. Names and values are spelled as
every webhook here keeps them. Types that a peer cannot list (MX, SRV) occur only in what is adjusted, since adjusting
stores nothing.
"""

import random
from collections.abc import Sequence
from typing import Any

import msgspec

DOMAIN = "bench.example.com"
TTL_S = 300

Endpoint = dict[str, Any]
"""external-dns's own object, as JSON."""


def address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def heritage(number: int) -> str:
    return (
        '"heritage=external-dns,external-dns/owner=default,'
        f'external-dns/resource=ingress/apps-{number % 40}/app-{number:05d}"'
    )


def stored_sets(count: int) -> list[Endpoint]:
    """`count` record sets of one value each: hosts (8 of 10 an A, then AAAA, CNAME), each with its ownership TXT."""
    sets: list[Endpoint] = []
    for number in range((count + 1) // 2):
        record_type, target = _host_target(number)
        sets.append(_endpoint(f"host-{number:05d}.{DOMAIN}", record_type, target))
        owner_name = f"{record_type.lower()}-host-{number:05d}.{DOMAIN}"
        sets.append(_endpoint(owner_name, "TXT", heritage(number), ttl_s=0))
    return sets[:count]


def _host_target(number: int) -> tuple[str, str]:
    match number % 10:
        case 8:
            return "AAAA", f"2001:db8::{number + 1:x}"
        case 9:
            return "CNAME", f"node-{number % 50}.{DOMAIN}"
    return "A", address(number)


def preset_rows(sets: Sequence[Endpoint]) -> bytes:
    """`sets` in the format that the simulated controller reads from a file."""
    rows = [
        {"key": one["dnsName"], "type": one["recordType"], "value": one["targets"][0], "ttl_s": one.get("recordTTL", 0)}
        for one in sets
    ]
    return msgspec.json.encode(rows)


def wanted_body(count: int, generation: int, *, seed: int | None = None) -> bytes:
    """`count` endpoints in a request to adjust; different generations have no endpoint in common.

    With `seed`, the same endpoints in another order.
    """
    wanted = [_wanted(number, generation) for number in range(count)]
    if seed is not None:
        random.Random(seed).shuffle(wanted)
    return msgspec.json.encode(wanted)


def _wanted(number: int, generation: int) -> Endpoint:
    """In every 100: 70 A, 10 AAAA, 14 CNAME, 4 TXT, 1 MX, 1 SRV."""
    name = f"w{generation}-{number:05d}.{DOMAIN}"
    kind = number % 100
    match kind:
        case _ if kind < 70:
            one = _endpoint(name, "A", address(number))
        case _ if kind < 80:
            one = _endpoint(name, "AAAA", f"2001:db8::{number + 1:x}")
        case _ if kind < 94:
            one = _endpoint(name, "CNAME", f"node-{number % 50}.{DOMAIN}")
        case _ if kind < 98:
            one = _endpoint(name, "TXT", f"verification={number:x}", ttl_s=0)
        case 98:
            one = _endpoint(name, "MX", f"10 mail-{number % 9}.{DOMAIN}", ttl_s=0)
        case _:
            one = _endpoint(f"_sip._tcp.{name}", "SRV", f"10 5 5060 sip-{number % 9}.{DOMAIN}.", ttl_s=0)
    return one | {"labels": {"resource": f"ingress/apps-{number % 40}/app-{number:05d}"}}


def changing_sets(count: int, version: int) -> list[Endpoint]:
    """`count` A sets with names that are not stored; each version has other addresses."""
    return [
        _endpoint(f"changing-{number:05d}.{DOMAIN}", "A", address(number + (version << 16))) for number in range(count)
    ]


def changes(**lists: Sequence[Endpoint]) -> bytes:
    """The body of `POST /records`; keyword arguments are its lists: `create`, `updateOld`, `updateNew`, `delete`."""
    return msgspec.json.encode({key: lists.get(key, []) for key in ("create", "updateOld", "updateNew", "delete")})


def _endpoint(name: str, record_type: str, target: str, ttl_s: int = TTL_S) -> Endpoint:
    one: Endpoint = {"dnsName": name, "targets": [target], "recordType": record_type}
    return one | {"recordTTL": ttl_s} if ttl_s else one
