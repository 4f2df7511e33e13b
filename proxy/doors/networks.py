"""Sets of peer addresses: those trusted to say who their clients are, and those that send a PROXY header. Pure."""

import ipaddress
from bisect import bisect
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4 addresses as dual-stack sockets, and tools that list them, show them. Peers have plain addresses here."""


class Networks:
    """Sorted for a fast lookup: clouds list thousands of networks, and each connection asks."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Addresses and networks as the document has them."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for text in networks:
            network = _plain(ipaddress.ip_network(text, strict=False))
            ends = int(network.network_address), int(network.broadcast_address)
            ranges.setdefault(network.version, []).append(ends)
        self._bounds = {version: _bounds_of(found) for version, found in ranges.items()}
        """By IP version, in ascending order: the first address of a range, the first after it, and so on."""

    def contain(self, address: str) -> bool:
        """`address` is a peer's, without port. One that is no IP address is in no network."""
        if not self._bounds:
            return False
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return bisect(self._bounds.get(peer.version, ()), int(peer)) % 2 == 1


def plain_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An IPv4 client has one spelling, whichever address family it, or its balancer, connected to."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


@lru_cache(maxsize=4)
def networks_of(networks: tuple[str, ...]) -> Networks:
    """The same object again if the document has not changed them, which is the usual case."""
    return Networks(networks)


def _bounds_of(ranges: list[tuple[int, int]]) -> tuple[int, ...]:
    """Bounds of ranges given by first and last address, which may overlap or adjoin."""
    bounds: list[int] = []
    for first, last in sorted(ranges):
        if not bounds or first > bounds[-1]:
            bounds += (first, last + 1)
        else:
            bounds[-1] = max(bounds[-1], last + 1)
    return tuple(bounds)


def _plain(network: Network) -> Network:
    if network.version == 4 or not network.subnet_of(_MAPPED):
        return network
    return ipaddress.IPv4Network((network.network_address.packed[-4:], network.prefixlen - _MAPPED.prefixlen))
