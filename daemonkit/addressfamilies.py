"""Has urllib3 connect over IPv6 whenever the host can.

urllib3 tries once, when it is imported, whether ::1 can be bound. If it cannot, because loopback is not up yet or has
no IPv6, urllib3 asks the resolver for IPv4 addresses only, for as long as the process runs: a server with IPv6 alone
is then never reached.
"""

import socket
from pathlib import Path
from typing import Final

from urllib3.util import connection

_ADDRESSES: Final = Path("/proc/net/if_inet6")
"""This host's IPv6 addresses, of loopback too (proc_net(5))."""


def try_usable(addresses: Path = _ADDRESSES) -> None:
    """Call before each connection: addresses of either family are tried, but of IPv6 only if this host has one itself.

    Else all attempts would end with an IPv6 address, and urllib3 tells only the last error: that there is no IPv6.
    """
    connection.HAS_IPV6 = socket.has_ipv6 and _are_some(addresses)


def _are_some(addresses: Path) -> bool:
    try:
        return bool(addresses.read_bytes())
    except OSError:  # the kernel has no IPv6, or does not tell
        return _has_sockets()


def _has_sockets() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True
