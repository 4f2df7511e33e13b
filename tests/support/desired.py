"""Sixty record sets as people write them into DNSEndpoint objects, and what each store must hold of them.

They cover every type that external-dns knows, awkward spellings, and the limits. `Wanted.values` are the canonical
spellings, written by hand rather than computed. `stores` names the stores that can hold the set; the others drop it in
adjust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dnswebhook.model import Endpoint

ZONE = "example.org"
EMBEDDED = "embedded"
V2 = "unifi v2"
INTEGRATION = "unifi integration"
ALL_STORES = frozenset({EMBEDDED, V2, INTEGRATION})
ONLY_EMBEDDED = frozenset({EMBEDDED})
NOT_V2 = frozenset({EMBEDDED, INTEGRATION})
NOT_INTEGRATION = frozenset({EMBEDDED, V2})

# The largest TTL in seconds that a store keeps; a type that is absent has none there.
MAX_TTL_S: Mapping[str, Mapping[str, int]] = {
    V2: {"A": 86_400, "AAAA": 86_400, "CNAME": 86_400},
    INTEGRATION: {"A": 86_400, "AAAA": 86_400, "CNAME": 604_800},
}


class HeldRow(NamedTuple):
    """One row of a store in canonical spelling."""

    name: str
    type: str
    value: str
    ttl_s: int = 0
    kind: str = "user"
    """`user`, `disabled` (kept but not served) or `derived` (created by the controller itself)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One desired record set with the expected outcome."""

    endpoint: Endpoint
    name: str
    values: tuple[str, ...]
    stores: frozenset[str] = ALL_STORES

    @property
    def type(self) -> str:
        return self.endpoint.record_type

    def ttl_s(self, store: str) -> int:
        """The TTL that `store` keeps; with 0, the store chooses."""
        limits = MAX_TTL_S.get(store)
        return self.endpoint.ttl_s if limits is None else min(self.endpoint.ttl_s, limits.get(self.type, 0))

    @property
    def ownership_name(self) -> str:
        return f"{self.type.lower()}-{self.name}"


def wanted(
    record_type: str,
    name: str,
    targets: Sequence[str],
    *,
    ttl_s: int = 0,
    set_identifier: str = "",
    properties: tuple[tuple[str, str], ...] = (),
    held_name: str = "",
    held: Sequence[str] = (),
    stores: frozenset[str] = ALL_STORES,
) -> Wanted:
    """`held_name` and `held` are given where the store's spelling differs from the desired one."""
    endpoint = Endpoint(
        dns_name=name,
        record_type=record_type,
        targets=tuple(targets),
        ttl_s=ttl_s,
        set_identifier=set_identifier,
        provider_specific=properties,
    )
    return Wanted(endpoint, held_name or name, tuple(held or targets), stores)


LABEL_61 = "l" * 61  # `a-` in front makes 63, the maximum length of a label
NAME_118 = f"{'n' * 50}.{'o' * 50}.lim.{ZONE}"
NAME_240 = f"{'n' * 60}.{'o' * 60}.{'p' * 60}.{'q' * 41}.lim.{ZONE}"
TEXT_300 = "x" * 150 + " " + "y" * 149
TEXT_800 = "z" * 400 + "," + "w" * 399
DKIM = "v=DKIM1; k=rsa; p=" + "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQ" * 4

ADDRESSES = {
    "a-one": wanted("A", "one.example.org", ["192.0.2.1"]),
    "a-three": wanted("A", "three.example.org", ["192.0.2.13", "192.0.2.11", "192.0.2.12"]),
    "a-ttl": wanted("A", "ttl.example.org", ["192.0.2.2"], ttl_s=300),
    "a-ttl-one": wanted("A", "ttl-one.example.org", ["192.0.2.3"], ttl_s=1),
    "a-ttl-high": wanted("A", "ttl-high.example.org", ["192.0.2.4"], ttl_s=1_000_000),
    "a-apex": wanted("A", "example.org", ["192.0.2.5"]),
    "a-upper": wanted("A", "Upper.Example.ORG", ["192.0.2.6"], held_name="upper.example.org"),
    "a-dot": wanted("A", "dot.example.org.", ["192.0.2.7"], held_name="dot.example.org"),
    "a-underscore": wanted("A", "under_score.example.org", ["192.0.2.8"]),
    "a-deep": wanted("A", "a.b.c.d.e.f.deep.example.org", ["192.0.2.9"]),
    "a-digits": wanted("A", "123.example.org", ["192.0.2.10"]),
    "a-like-ownership": wanted("A", "a-team.example.org", ["192.0.2.14"]),
    "a-wildcard": wanted("A", "*.wild.example.org", ["192.0.2.15"]),
    "a-wildcard-two": wanted("A", "*.two.example.org", ["192.0.2.16", "192.0.2.17"], ttl_s=60),
    "a-idn": wanted("A", "münchen.example.org", ["192.0.2.18"], held_name="xn--mnchen-3ya.example.org"),
    "a-idn-upper": wanted("A", "BÜCHER.example.org", ["192.0.2.19"], held_name="xn--bcher-kva.example.org"),
    "a-punycode": wanted("A", "xn--caf-dma.example.org", ["192.0.2.20"]),
    "a-set-identifier": wanted("A", "weighted.example.org", ["192.0.2.21"], set_identifier="blue"),
    "a-foreign-property": wanted("A", "foreign.example.org", ["192.0.2.22"], properties=(("aws/weight", "10"),)),
    "a-webhook-property": wanted("A", "property.example.org", ["192.0.2.23"], properties=(("webhook/colour", "red"),)),
    "a-long-label": wanted("A", f"{LABEL_61}.example.org", ["192.0.2.24"]),
    "a-long-name": wanted("A", NAME_118, ["192.0.2.25"]),
    "a-longest-name": wanted("A", NAME_240, ["192.0.2.26"], stores=NOT_INTEGRATION),
    "dual-a": wanted("A", "dual.example.org", ["192.0.2.27"]),
    "dual-aaaa": wanted("AAAA", "dual.example.org", ["2001:db8::27"]),
    "aaaa-one": wanted("AAAA", "six.example.org", ["2001:db8::1"]),
    "aaaa-odd": wanted("AAAA", "odd.example.org", ["2001:0DB8:0:0:00A:0:0:2"], held=["2001:db8::a:0:0:2"]),
    "aaaa-odd-two": wanted(
        "AAAA",
        "odd-two.example.org",
        ["2001:DB8::0:4", "2001:db8:0000::0003"],
        held=["2001:db8::3", "2001:db8::4"],
        ttl_s=120,
    ),
    "aaaa-dotted": wanted("AAAA", "dotted.example.org", ["2001:db8::192.0.2.33"], held=["2001:db8::c000:221"]),
    "aaaa-wildcard": wanted("AAAA", "*.wild6.example.org", ["2001:db8::5"]),
}

ALIASES = {
    "cname-one": wanted("CNAME", "alias.example.org", ["target.example.net"]),
    "cname-dot": wanted("CNAME", "alias-dot.example.org", ["target.example.net."], held=["target.example.net"]),
    "cname-upper": wanted("CNAME", "alias-upper.example.org", ["Target.Example.NET"], held=["target.example.net"]),
    "cname-several": wanted(
        "CNAME", "several.example.org", ["c.example.net", "a.example.net", "b.example.net"], held=["a.example.net"]
    ),
    "cname-wildcard": wanted("CNAME", "*.aliases.example.org", ["target.example.net"], stores=ONLY_EMBEDDED),
    "cname-ttl": wanted("CNAME", "alias-ttl.example.org", ["target.example.net"], ttl_s=600),
    "cname-ttl-high": wanted("CNAME", "alias-ttl-high.example.org", ["target.example.net"], ttl_s=1_000_000),
    "cname-idn": wanted(
        "CNAME",
        "straße.example.org",
        ["bücher.example.net"],
        held_name="xn--strae-oqa.example.org",
        held=["xn--bcher-kva.example.net"],
    ),
}

TEXTS = {
    "txt-word": wanted("TXT", "word.example.org", ["plain"]),
    "txt-spaces": wanted("TXT", "spf.example.org", ["v=spf1 mx -all"], held=['"v=spf1 mx -all"']),
    "txt-quoted": wanted("TXT", "quoted.example.org", ['"already quoted"']),
    "txt-quoted-word": wanted("TXT", "quoted-word.example.org", ['"plain"'], held=["plain"]),
    "txt-comma": wanted("TXT", "comma.example.org", ["one,two"], held=['"one,two"']),
    "txt-300": wanted("TXT", "text-300.example.org", [TEXT_300], held=[f'"{TEXT_300}"'], stores=NOT_V2),
    "txt-800": wanted("TXT", "text-800.example.org", [TEXT_800], held=[f'"{TEXT_800}"'], stores=NOT_V2),
    "txt-strings": wanted(
        "TXT", "strings.example.org", ['"first half, " "second half"'], held=['"first half, second half"']
    ),
    "txt-dkim": wanted("TXT", "sel._domainkey.example.org", [DKIM], held=[f'"{DKIM}"']),
    "txt-two": wanted("TXT", "_acme-challenge.example.org", ["token-one", "token-two"]),
    "txt-ttl": wanted("TXT", "text-ttl.example.org", ["short-lived"], ttl_s=300),
}

SERVICES = {
    "mx-one": wanted("MX", "mail.example.org", ["10 mx.example.org"]),
    "mx-two": wanted("MX", "mail-two.example.org", ["20 mx2.example.org", "10 mx1.example.org"]),
    "mx-odd": wanted("MX", "mail-odd.example.org", ["010 MX.Example.ORG."], held=["10 mx.example.org"], ttl_s=300),
    # external-dns 0.21's crd source refuses SRV targets that end in a dot, and its next step refuses those whose host
    # does not. A blank after the dot gets a target past both.
    "srv-one": wanted(
        "SRV", "_sip._tcp.example.org", ["1 2 5060 sip.example.org. "], held=["1 2 5060 sip.example.org."]
    ),
    "srv-two": wanted(
        "SRV",
        "_ldap._tcp.example.org",
        ["0 50 389 ldap1.example.org. ", "0 50 389 LDAP2.example.org. "],
        held=["0 50 389 ldap1.example.org.", "0 50 389 ldap2.example.org."],
    ),
    "srv-ttl": wanted(
        "SRV", "_https._udp.example.org", ["0 0 443 www.example.org. "], held=["0 0 443 www.example.org."], ttl_s=300
    ),
}

DELEGATIONS = {
    "ns-two": wanted("NS", "sub.example.org", ["ns1.example.net", "ns2.example.net"], stores=ONLY_EMBEDDED),
    "ns-ttl": wanted("NS", "other.example.org", ["ns1.example.net"], ttl_s=3600, stores=ONLY_EMBEDDED),
    "ptr": wanted("PTR", "1.2.0.192.in-addr.arpa", ["one.example.org"], stores=ONLY_EMBEDDED),
    "naptr": wanted(
        "NAPTR",
        "sip.example.org",
        ['100 10 "u" "E2U+sip" "!^.*$!sip:info@example.org!" .'],
        stores=ONLY_EMBEDDED,
    ),
    "naptr-two": wanted(
        "NAPTR",
        "enum.example.org",
        ['100 10 "s" "SIP+D2U" "" _sip._udp.example.org.', '100 20 "s" "SIP+D2T" "" _sip._tcp.example.org.'],
        stores=ONLY_EMBEDDED,
    ),
}

DESIRED: Mapping[str, Wanted] = {**ADDRESSES, **ALIASES, **TEXTS, **SERVICES, **DELEGATIONS}
"""By the name of the DNSEndpoint object."""


def heritage(owner_id: str, namespace: str, object_name: str) -> str:
    """The text of the ownership record of a DNSEndpoint object."""
    resource = f"crd/{namespace}/{object_name}"
    return f'"heritage=external-dns,external-dns/owner={owner_id},external-dns/resource={resource}"'


def rows_of(desired: Mapping[str, Wanted], store: str) -> set[HeldRow]:
    """The rows that `store` must hold for these sets, without ownership records."""
    return {
        HeldRow(each.name, each.type, value, each.ttl_s(store))
        for each in desired.values()
        if store in each.stores
        for value in each.values
    }


def ownership_rows_of(desired: Mapping[str, Wanted], store: str, owner_id: str, namespace: str) -> set[HeldRow]:
    return {
        HeldRow(each.ownership_name, "TXT", heritage(owner_id, namespace, object_name))
        for object_name, each in desired.items()
        if store in each.stores
    }
