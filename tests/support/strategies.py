"""Hypothesis strategies for DNS data as external-dns sends it, and for what people and controllers spell differently.

`spellings` are texts with the canonical text they stand for; `targets` mixes those with slightly damaged ones;
`endpoints` builds whole record sets of every type. Names and values are few, so that they collide.
"""

from functools import cache

from hypothesis import strategies as st

from dnswebhook.model import Endpoint

HERITAGE = '"heritage=external-dns,external-dns/owner=default,external-dns/resource=ingress/default/app"'

SPELLINGS: dict[str, dict[str, str]] = {
    "A": {
        "192.0.2.1": "192.0.2.1",
        " 192.0.2.10 ": "192.0.2.10",
        "0.0.0.0": "0.0.0.0",
        "255.255.255.255": "255.255.255.255",
    },
    "AAAA": {
        "2001:db8::1": "2001:db8::1",
        "2001:DB8::1": "2001:db8::1",
        "2001:0db8:0000:0000:0000:0000:0000:0001": "2001:db8::1",
        "2001:db8:0:0:1:0:0:1": "2001:db8::1:0:0:1",
        "::": "::",
        "fe80::1": "fe80::1",
        "64:ff9b::192.0.2.33": "64:ff9b::c000:221",
    },
    "CNAME": {
        "host.example.net": "host.example.net",
        "Host.Example.NET.": "host.example.net",
        " host.example.net ": "host.example.net",
        "bücher.example": "xn--bcher-kva.example",
        "_dmarc.example.net": "_dmarc.example.net",
        "localhost": "localhost",
    },
    "TXT": {
        "plain": "plain",
        '"plain"': "plain",
        "two words": '"two words"',
        '"two words"': '"two words"',
        "v=spf1 include:example.com -all": '"v=spf1 include:example.com -all"',
        "a,b": '"a,b"',
        "it's": '"it\'s"',
        "semi;colon": '"semi;colon"',
        "#hash": '"#hash"',
        "": '""',
        '""': '""',
        '"one " "two"': '"one two"',
        "grüße": '"grüße"',
        HERITAGE: HERITAGE,
    },
    "MX": {
        "10 mail.example.com": "10 mail.example.com",
        "010  Mail.Example.com.": "10 mail.example.com",
        "\t0 mail.example.com": "0 mail.example.com",
        "65535 mail.example.com": "65535 mail.example.com",
    },
    "SRV": {
        "1 2 443 host.example.com.": "1 2 443 host.example.com.",
        "1 2 443 Host.example.com": "1 2 443 host.example.com.",
        "01 002 0443 host.example.com": "1 2 443 host.example.com.",
        "0 0 0 host": "0 0 0 host.",
    },
    "NS": {"ns1.example.com": "ns1.example.com", "NS1.example.com.": "ns1.example.com"},
    "PTR": {"app.example.com": "app.example.com", "App.Example.com.": "app.example.com"},
    "NAPTR": {
        '100 10 "u" "E2U+sip" "!^.*$!sip:info@example.com!" .': '100 10 "u" "E2U+sip" "!^.*$!sip:info@example.com!" .',
        '100  010 "s" "SIP+D2U" "" _sip._udp.Example.com': '100 10 "s" "SIP+D2U" "" _sip._udp.example.com.',
        '1 1 "u" "E2U+sip" "!^(\\d+)$!sip:\\1@x!" .': '1 1 "u" "E2U+sip" "!^(\\d+)$!sip:\\1@x!" .',
    },
    "DNAME": {"other.example.org": "other.example.org", "Other.Example.ORG.": "other.example.org"},
}
"""By record type: the text as written, and the canonical text."""

RECORD_TYPES = tuple(SPELLINGS)

IMPOSSIBLE: dict[str, tuple[str, ...]] = {
    "A": ("192.0.2.256", "192.0.2", "2001:db8::1", "host.example.com", "192.0.2.01", "", "192.0.2.1/32"),
    "AAAA": ("192.0.2.1", "fe80::1%eth0", "::ffff:192.0.2.1", "2001:db8::g", "", "1:2:3:4:5:6:7:8:9"),
    "CNAME": ("*.example.com", "a..b", "", ".", "has space.example", "x" * 64 + ".example", "a.b," + "c.example"),
    "TXT": ("line\nbreak", "tab\tbed", "nul\0", 'in"side', "back\\slash", '"half', "\x7f", '"'),
    "MX": (
        "mail.example.com",
        "65536 mail.example.com",
        "-1 mail.example.com",
        "+1 a.b",
        "10 a b",
        "10 .",
        "ten mail.example",
    ),
    "SRV": ("1 2 host.example.com.", "1 2 65536 host.example.com.", "1 2 443 .", "1 2 443 *.example.com.", "１ 2 3 h."),
    "NS": ("", "*.example.com", "two words"),
    "PTR": ("", "*.example.com", "a..b"),
    "NAPTR": ("", '1 1 "u" "s"', '70000 1 "" "" "" .', '1 1 "a"b" "s" "" .', '1 1 "" "" "\n" .'),
    "DNAME": ("", "*.example.org", "a\\b.example"),
}
"""By record type: texts that must never reach a store."""

_LABELS = ("app", "App", "a", "cname", "_dmarc", "bücher", "xn--bcher-kva", "x" * 60, "9")
_ZONES = ("example.com", "Example.COM.", "srv.example.org", "münchen.example", "lan")


@st.composite
def names(draw: st.DrawFn) -> str:
    """Owner names, valid and invalid, including wildcards and long ones."""
    kind = draw(st.integers(0, 9))
    zone = draw(st.sampled_from(_ZONES))
    if kind == 0:
        return f"*.{zone}"
    if kind == 1:
        return ".".join(["long" * 12] * draw(st.integers(2, 5)) + [zone])
    if kind == 2:
        return draw(st.sampled_from(["", ".", "a..b", "sp ace.example.com", f"x.*.{zone}", f"a-*.{zone}"]))
    return ".".join([*draw(st.lists(st.sampled_from(_LABELS), min_size=0, max_size=2)), zone])


@cache
def targets(record_type: str) -> st.SearchStrategy[str]:
    """Mostly valid targets of `record_type`, mixed with texts that cannot be held and with noise."""
    good = st.sampled_from(sorted(SPELLINGS.get(record_type, {"anything": ""})))
    bad = st.sampled_from(IMPOSSIBLE.get(record_type, ("x",)))
    long_text = st.integers(1, 1100).map(lambda length: "t" * length)
    others = [long_text] if record_type == "TXT" else []
    return st.one_of(good, good, good, bad, st.text(max_size=12), *others)


@st.composite
def endpoints(draw: st.DrawFn) -> Endpoint:
    """Record sets of every type that external-dns knows, and of one that it does not."""
    record_type = draw(st.sampled_from((*RECORD_TYPES, "LOC")))
    name = draw(names())
    if record_type == "SRV" and draw(st.booleans()):
        name = f"_sip._udp.{name}"
    return Endpoint(
        dns_name=name,
        record_type=record_type,
        targets=tuple(draw(st.lists(targets(record_type), max_size=4))),
        ttl_s=draw(st.sampled_from([0, 1, 300, 86400, 604801, 2**31 - 1, 2**40])),
        set_identifier=draw(st.sampled_from(["", "fake", "blue"])),
        labels=draw(st.sampled_from([{}, {"owner": "default"}, {"owner": "x", "resource": "ingress/a/b"}])),
        provider_specific=draw(st.sampled_from([(), (("alias", "true"),), (("webhook/x", "1"), ("aws/y", "2"))])),
    )
