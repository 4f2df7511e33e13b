"""Peers by their addresses: whose word about their clients is believed, and who begins with a PROXY header. Pure."""

import ipaddress
from bisect import bisect
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4, as sockets of both families show it, and so do tools that list them. A peer has its plain address here."""


class Networks:
    """Clouds list thousands of theirs, and each connection asks: so they are sorted, and an address is looked up."""

    def __init__(self, networks: Iterable[str]) -> None:
        """Addresses and networks as the document has them."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for text in networks:
            network = _plain(ipaddress.ip_network(text, strict=False))
            ends = int(network.network_address), int(network.broadcast_address)
            ranges.setdefault(network.version, []).append(ends)
        self._bounds = {version: _bounds_of(found) for version, found in ranges.items()}
        """By version of IP, in ascending order: the first address of a range, the first behind it, and so on."""

    def contain(self, address: str) -> bool:
        """`address` is a peer's, without port; one that is no IP address is in none."""
        if not self._bounds:
            return False
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return bisect(self._bounds.get(peer.version, ()), int(peer)) % 2 == 1


@lru_cache(maxsize=4)
def networks_of(networks: tuple[str, ...]) -> Networks:
    """The same for a document like the one before, which is the usual case."""
    return Networks(networks)


def _bounds_of(ranges: list[tuple[int, int]]) -> tuple[int, ...]:
    """Of first and last addresses; ranges may lie in each other, or side by side."""
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
