"""Peers by their addresses: whose word about their clients is believed, and who begins with a PROXY header. Pure."""

import ipaddress
from collections.abc import Iterable


class Networks:
    def __init__(self, networks: Iterable[str]) -> None:
        """Addresses and networks as the document has them."""
        self._networks = [ipaddress.ip_network(network, strict=False) for network in networks]

    def contain(self, address: str) -> bool:
        """`address` is a peer's, without port; one that is no IP address is in none."""
        if not self._networks:
            return False
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(peer in network for network in self._networks)
