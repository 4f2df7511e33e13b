"""PROXY protocol headers are parsed exactly, and all other input is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.doors.proxyheader import MAX_BYTES, NotProxyHeader, ProxyHeader, parse_proxy_header
from tests.proxy.doors.proxyheaders import LOCAL, PROXY, SIGNATURE, TCP4, TCP6, UNIX, UNSPECIFIED, binary, proxied

LINE = b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 443\r\n"
SOUND = [
    (LINE, "203.0.113.9"),
    (b"PROXY TCP6 2001:DB8::9 2001:db8::1 0 65535\r\n", "2001:db8::9"),
    (b"PROXY TCP6 ::ffff:203.0.113.9 ::ffff:192.0.2.1 1 2\r\n", "203.0.113.9"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", None),
    (proxied("203.0.113.9"), "203.0.113.9"),
    (proxied("2001:db8::9"), "2001:db8::9"),
    (proxied("::ffff:203.0.113.9"), "203.0.113.9"),
    (proxied("203.0.113.9", b"\x04\x00\x02ab"), "203.0.113.9"),
    (proxied("203.0.113.9", b"x" * (MAX_BYTES - 28)), "203.0.113.9"),
    (binary(LOCAL, UNSPECIFIED, b""), None),
    (binary(LOCAL, TCP4, bytes(12)), None),
    (binary(LOCAL, TCP6, bytes(36)), None),
    (binary(LOCAL, TCP6, b""), None),
    (binary(LOCAL, 0xFF, b"whatever"), None),
    (binary(PROXY, UNSPECIFIED, b""), None),
    (binary(PROXY, UNIX, bytes(216)), None),
]
UNSOUND = [
    (b"GET / HTTP/1.1\r\n", "no PROXY header"),
    (b"\x16\x03\x01", "no PROXY header"),
    (b"proxy TCP4", "no PROXY header"),
    (b"\r\n\r\n\x00\r\nQUIT\r", "no PROXY header"),
    (b"PROXY TCP4 203.0.113.9 192.0.2.1 40000\r\n", "malformed PROXY line"),
    (b"PROXY TCP4  203.0.113.9 192.0.2.1 40000 443\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 65536\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.9 192.0.2.1 65536 443\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.9 192.0.2.1 040 443\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.9 192.0.2.1 -1 443\r\n", "malformed PROXY line"),
    (b"PROXY TCP5 203.0.113.9 192.0.2.1 1 443\r\n", "malformed PROXY line"),
    (b"PROXY UDP4 203.0.113.9 192.0.2.1 1 443\r\n", "malformed PROXY line"),
    (b"PROXY UNKNOWNS\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.9\n192.0.2.1 1 443\r\n", "malformed PROXY line"),
    (b"PROXY TCP4 203.0.113.256 192.0.2.1 1 443\r\n", "malformed address"),
    (b"PROXY TCP4 203.0.113.9 :: 1 443\r\n", "another family"),
    (b"PROXY TCP6 203.0.113.9 192.0.2.1 1 443\r\n", "another family"),
    (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "longer than 107 bytes"),
    (binary(0x11, TCP4, bytes(12)), "version and command 0x11"),
    (binary(0x22, TCP4, bytes(12)), "version and command 0x22"),
    (binary(PROXY, 0x12, bytes(12)), "address family 0x12"),
    (binary(PROXY, TCP4, bytes(11)), "11 bytes of addresses, want at least 12"),
    (binary(PROXY, TCP6, bytes(35)), "35 bytes of addresses, want at least 36"),
    (binary(PROXY, UNIX, bytes(215)), "215 bytes of addresses, want at least 216"),
    (binary(LOCAL, UNSPECIFIED, bytes(MAX_BYTES - 15)), f"of {MAX_BYTES + 1} bytes"),
]


@pytest.mark.parametrize(("header", "source"), SOUND)
def test_a_header_gives_its_length_and_the_client(header: bytes, source: str | None) -> None:
    wanted = ProxyHeader(len(header), source)

    assert parse_proxy_header(header) == wanted
    assert parse_proxy_header(header + b"GET / HTTP/1.1\r\n\r\n") == wanted


@pytest.mark.parametrize("header", [header for header, _ in SOUND])
def test_an_incomplete_header_needs_more_bytes_but_never_beyond_its_end(header: bytes) -> None:
    for size_bytes in range(len(header)):
        wanted_bytes = parse_proxy_header(header[:size_bytes])
        assert isinstance(wanted_bytes, int)
        assert size_bytes < wanted_bytes <= len(header)


@pytest.mark.parametrize(("header", "reason"), UNSOUND)
def test_input_that_is_not_a_header_is_refused(header: bytes, reason: str) -> None:
    with pytest.raises(NotProxyHeader, match=reason):
        parse_proxy_header(header)


@given(st.one_of(st.binary(), st.binary().map(SIGNATURE.__add__), st.binary().map(b"PROXY TCP4 ".__add__)))
def test_arbitrary_bytes_are_a_header_or_an_incomplete_one_or_refused(received: bytes) -> None:
    with contextlib.suppress(NotProxyHeader):
        found = parse_proxy_header(received)
        size_bytes = found if isinstance(found, int) else found.size_bytes
        assert (size_bytes > len(received)) == isinstance(found, int)
        assert size_bytes <= MAX_BYTES
