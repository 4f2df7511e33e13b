"""Has urllib3 connect over IPv6 whenever the host can.

urllib3 tries once, when it is imported, whether ::1 can be bound. If it cannot, because loopback is not up yet or has
no IPv6, urllib3 asks the resolver for IPv4 addresses only, for as long as the process runs: a server with IPv6 alone
is then never reached.
"""

import socket

from urllib3.util import connection


def try_both() -> None:
    """Addresses of either family are tried from now on. An unreachable one fails at once, and the next one follows."""
    connection.HAS_IPV6 = socket.has_ipv6
