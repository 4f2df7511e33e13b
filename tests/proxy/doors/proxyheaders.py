"""Headers of the PROXY protocol, version 2, as balancers make them."""

import ipaddress

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21
UNSPECIFIED, TCP4, TCP6, UNIX = 0x00, 0x11, 0x21, 0x31


def binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2, "big") + rest


def proxied(source: str, more: bytes = b"") -> bytes:
    """From `source` to some address of its family; `more` stands behind the addresses."""
    address = ipaddress.ip_address(source)
    family = TCP4 if address.version == 4 else TCP6
    return binary(PROXY, family, address.packed * 2 + (40000).to_bytes(2, "big") + (443).to_bytes(2, "big") + more)
