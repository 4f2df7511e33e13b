"""Peers by their addresses: whose word about their clients is believed, and who begins with a PROXY header. Pure."""

import ipaddress
from collections.abc import Iterable
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4, as sockets of both families show it, and so do tools that list them. A peer has its plain address here."""


class Networks:
    def __init__(self, networks: Iterable[str]) -> None:
        """Addresses and networks as the document has them."""
        self._networks = [_plain(ipaddress.ip_network(network, strict=False)) for network in networks]

    def contain(self, address: str) -> bool:
        """`address` is a peer's, without port; one that is no IP address is in none."""
        if not self._networks:
            return False
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(peer in network for network in self._networks)


def _plain(network: Network) -> Network:
    if network.version == 4 or not network.subnet_of(_MAPPED):
        return network
    return ipaddress.IPv4Network((network.network_address.packed[-4:], network.prefixlen - _MAPPED.prefixlen))
