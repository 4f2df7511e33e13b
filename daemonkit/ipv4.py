"""Hosts that look like an IPv4 address but are not one (pure, also for modules that use nothing else of daemonkit)."""

import re
from ipaddress import IPv4Address
from typing import Final

_NUMBER = re.compile(r"\d*|0[xX][0-9A-Fa-f]*")
_DOT = re.compile("[.\u3002\uff0e\uff61]")
"""Digits and dots of other scripts count as well: IDNA maps some of them to those of ASCII (UTS 46)."""

MISTYPED_IPV4: Final = (
    "neither an IPv4 address nor a name, want four numbers such as 192.168.1.1, without zeros in front"
)


def is_mistyped_ipv4(host: str) -> bool:
    """Whether `host` consists of numbers but is not an IPv4 address.

    The resolver would accept most of these as a different address (inet_aton): `192.168.010.1` as 192.168.8.1.
    """
    try:
        IPv4Address(host)
    except ValueError:
        return all(map(_NUMBER.fullmatch, _DOT.split(host)))
    return False
