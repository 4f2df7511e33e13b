"""The header of the PROXY protocol, in which a connection-level load balancer says who its client is. Pure.

Version 1 is a line of text, version 2 is binary: https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt. A
receiver expects the header on all connections of a peer, and must not guess whether there is one (section 2).
"""

import ipaddress
import re
from typing import Final

import msgspec

from proxy.doors.networks import plain_address

MAX_BYTES: Final = 4096
"""The longest header that is accepted. Up to its addresses it has at most 232 bytes; what follows them is skipped."""

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD_BYTES: Final = 16
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_ADDRESS_BYTES: Final = {_UNSPECIFIED: 0, _TCP4: 12, _TCP6: 36, _UNIX: 216}

_LINE: Final = b"PROXY "
_MAX_LINE_BYTES: Final = 107
_PORT: Final = rb"(?:0|[1-9][0-9]{0,4})"
_TCP_LINE: Final = re.compile(rb"TCP([46]) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) (%b) (%b)" % (_PORT, _PORT))


class NotProxyHeader(Exception):
    """Why this is no PROXY header, for the log."""


class ProxyHeader(msgspec.Struct, frozen=True):
    size_bytes: int
    source: str | None
    """The client's address. None: the peer speaks for itself, as in a health check, or does not know."""


def parse_proxy_header(received: bytes) -> ProxyHeader | int:
    """The header that `received` begins with, or how many bytes have to be there before another look.

    Raises NotProxyHeader.
    """
    if received.startswith(_LINE[: len(received)]):
        return _parse_line(received)
    if received.startswith(_SIGNATURE[: len(received)]):
        return _parse_binary(received)
    raise NotProxyHeader("no PROXY header")


def _parse_line(received: bytes) -> ProxyHeader | int:
    end = received.find(b"\r\n", 0, _MAX_LINE_BYTES)
    if end < 0:
        if len(received) >= _MAX_LINE_BYTES:
            raise NotProxyHeader(f"PROXY line longer than {_MAX_LINE_BYTES} bytes")
        return len(received) + 1
    line = received[len(_LINE) : end]
    if line == b"UNKNOWN" or line.startswith(b"UNKNOWN "):
        return ProxyHeader(end + 2, None)
    match = _TCP_LINE.fullmatch(line)
    if match is None or max(int(match[4]), int(match[5])) > 0xFFFF:
        raise NotProxyHeader("malformed PROXY line")
    try:
        source, target = (ipaddress.ip_address(match[group].decode()) for group in (2, 3))
    except ValueError:
        raise NotProxyHeader("PROXY line with a malformed address") from None
    if not source.version == target.version == int(match[1]):
        raise NotProxyHeader("PROXY line with addresses of another family")
    return ProxyHeader(end + 2, plain_address(source))


def _parse_binary(received: bytes) -> ProxyHeader | int:
    if len(received) < _HEAD_BYTES:
        return _HEAD_BYTES
    command, family = received[12], received[13]
    length_bytes = int.from_bytes(received[14:_HEAD_BYTES], "big")
    size_bytes = _HEAD_BYTES + length_bytes
    if command not in (_LOCAL, _PROXY):
        raise NotProxyHeader(f"PROXY header with version and command {command:#04x}, want 0x20 or 0x21")
    if size_bytes > MAX_BYTES:
        raise NotProxyHeader(f"PROXY header of {size_bytes} bytes, want at most {MAX_BYTES}")
    if command == _PROXY:
        fewest_bytes = _ADDRESS_BYTES.get(family)
        if fewest_bytes is None:
            raise NotProxyHeader(f"PROXY header with address family {family:#04x}, want TCP over IPv4 or IPv6, or unix")
        if length_bytes < fewest_bytes:
            raise NotProxyHeader(f"PROXY header with {length_bytes} bytes of addresses, want at least {fewest_bytes}")
    if len(received) < size_bytes:
        return size_bytes
    addresses = received[_HEAD_BYTES:size_bytes]
    if command == _PROXY and family == _TCP4:
        return ProxyHeader(size_bytes, plain_address(ipaddress.IPv4Address(addresses[:4])))
    if command == _PROXY and family == _TCP6:
        return ProxyHeader(size_bytes, plain_address(ipaddress.IPv6Address(addresses[:16])))
    return ProxyHeader(size_bytes, None)
