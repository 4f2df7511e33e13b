"""Where the edge is: asked of the DNS, or named by the operator. May take long, so it has a thread of its own.

Names of hosts are resolved as every program of the host resolves them.
"""

import socket
from collections.abc import Sequence
from typing import Protocol

from daemonkit.addresses import ListenAddress
from daemonkit.logs import get_logger
from proxy.tunnel.addresses import EdgeAddress, IpVersion, Region, static_regions
from proxy.tunnel.discovery import (
    DiscoveryFailed,
    DnsOverTls,
    region_targets,
    resolved_regions,
    srv_name,
)

log = get_logger(__name__)

Regions = Sequence[Sequence[EdgeAddress]]


class EdgeFinder(Protocol):
    @property
    def name(self) -> str:
        """Of the edge as a whole, for the log."""

    def at(self, endpoint: str) -> "EdgeFinder":
        """The one for tokens of this region; of the same name where that makes no difference."""

    def find(self) -> Regions:
        """Raises DiscoveryFailed."""


class NamedEdge:
    """The operator's addresses, each of which is one address of the edge."""

    def __init__(self, addresses: Sequence[ListenAddress], version: IpVersion = IpVersion.AUTO) -> None:
        """`version`: which one a name with several stands for, where it has one of that kind."""
        self._addresses = addresses
        self._version = version

    @property
    def name(self) -> str:
        return ",".join(map(str, self._addresses))

    def at(self, _endpoint: str) -> "NamedEdge":
        return self

    def find(self) -> Regions:
        found: list[EdgeAddress] = []
        errors: list[str] = []
        for address in self._addresses:
            try:
                ips = _addresses_of(address.host, address.port)
            except OSError as error:
                errors.append(f"{address.host}: no such host ({error.strerror or error})")
            else:
                candidates = [EdgeAddress(ip, address.port) for ip in ips]
                found.append(next(iter(Region(candidates, self._version).active), candidates[0]))
        if not found:
            raise DiscoveryFailed(f"no address of the edge: {'; '.join(errors)}")
        for reason in errors:
            log.warning("edge address left out", error=reason)
        return static_regions(found)


class DiscoveredEdge:
    """The provider's; `endpoint` is the token's region."""

    def __init__(self, endpoint: str, fallback: DnsOverTls | None = None) -> None:
        self._srv = srv_name(endpoint)
        self._fallback = fallback or DnsOverTls()

    @property
    def name(self) -> str:
        return self._srv

    def at(self, endpoint: str) -> "DiscoveredEdge":
        return DiscoveredEdge(endpoint, self._fallback)

    def find(self) -> Regions:
        # Here, not above: in the thread that searches.
        from proxy.supervisor.srvquestions import targets_of

        targets = region_targets(self._srv, targets_of(self._srv, self._fallback))
        addresses: dict[str, list[str]] = {}
        for target in targets:
            try:
                addresses[target.host] = _addresses_of(target.host, target.port)
            except OSError as error:
                log.warning("no address for a region of the edge", error=error, host=target.host)
        return resolved_regions(targets, addresses)


def edge_finder(named: Sequence[ListenAddress], version: IpVersion, endpoint: str) -> EdgeFinder:
    """`named` are the operator's addresses, if there are any; `endpoint` is the token's region."""
    return NamedEdge(named, version) if named else DiscoveredEdge(endpoint)


def _addresses_of(host: str, port: int) -> list[str]:
    """As the resolver orders them. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # Not even a question: a label is empty or too long.
        raise OSError(str(error)) from error
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
