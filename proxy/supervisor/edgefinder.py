"""Finds the edge: through the DNS, or from the operator's addresses. It may take long, so it runs in its own thread.

Host names are resolved by the system's resolver. Those from SRV records are fully qualified: no search domain is tried.
"""

import socket
from collections.abc import Sequence
from typing import Final, Protocol

from daemonkit.addresses import ListenAddress
from daemonkit.logs import get_logger
from daemonkit.wholenames import whole_name
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
_STAYS: Final = "cannot look up a host of the edge again, its known addresses stay in use"
_GONE: Final = (socket.EAI_NONAME, socket.EAI_NODATA)
_NOWHERE: Final = frozenset(("0.0.0.0", "::"))  # noqa: S104  # nothing is bound
"""What DNS filters answer for names that they block. Dialling these would reach this host."""


class EdgeFinder(Protocol):
    @property
    def name(self) -> str:
        """Names the edge as a whole, for the log."""

    def at(self, endpoint: str) -> "EdgeFinder":
        """The finder for tokens of this region; it has the same name if the region makes no difference."""

    def find(self) -> Regions:
        """Look the edge up. Raises DiscoveryFailed."""


class _Hosts:
    """The addresses of hosts. Keeps the last known ones, as a resolver may fail for a single name, or for a moment."""

    def __init__(self) -> None:
        self._before: dict[str, list[str]] = {}

    def addresses_of(self, host: str, port: int, *, is_whole: bool = False) -> list[str]:
        """In the resolver's order. `is_whole`: the name is fully qualified, try no search domains. Raises OSError."""
        try:
            found = socket.getaddrinfo(whole_name(host) if is_whole else host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            # Not a valid query: a label is empty or too long.
            raise OSError(str(error)) from error
        ips = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        addresses = [ip for ip in ips if ip not in _NOWHERE or ip == host]
        if not addresses:
            raise OSError(f"the answer is {' and '.join(ips)}, so a DNS filter blocks this name: exempt it there")
        self._before[host] = addresses
        return addresses

    def still_of(self, host: str, error: OSError) -> list[str]:
        """The addresses to use after an error of `addresses_of`: none if the name has no addresses any more."""
        if error.errno in _GONE:
            self._before.pop(host, None)
        return self._before.get(host, [])


class NamedEdge:
    """The operator's addresses, each of which counts as one address of the edge."""

    def __init__(self, addresses: Sequence[ListenAddress], version: IpVersion = IpVersion.AUTO) -> None:
        """`version` selects the address of a name that has several, if one matches."""
        self._addresses = addresses
        self._version = version
        self._hosts = _Hosts()

    @property
    def name(self) -> str:
        return ",".join(map(str, self._addresses))

    def at(self, _endpoint: str) -> "NamedEdge":
        return self

    def find(self) -> Regions:
        found: list[EdgeAddress] = []
        failed: list[tuple[str, str]] = []
        for address in self._addresses:
            try:
                ips = self._hosts.addresses_of(address.host, address.port)
            except OSError as error:
                ips = self._hosts.still_of(address.host, error)
                reason = f"{address.host}: no such host ({error.strerror or error})"
                failed.append((_STAYS if ips else "edge address left out", reason))
            candidates = [EdgeAddress(ip, address.port) for ip in ips]
            found += list(Region(candidates, self._version).active[:1]) or candidates[:1]
        if len(failed) == len(self._addresses):
            raise DiscoveryFailed(f"no address of the edge: {'; '.join(reason for _, reason in failed)}")
        for msg, reason in failed:
            log.warning(msg, error=reason)
        return static_regions(found)


class DiscoveredEdge:
    """The provider's edge, found through SRV records; `endpoint` is the token's region."""

    def __init__(self, endpoint: str, fallback: DnsOverTls | None = None) -> None:
        self._srv = srv_name(endpoint)
        self._fallback = fallback or DnsOverTls()
        self._hosts = _Hosts()

    @property
    def name(self) -> str:
        return self._srv

    def at(self, endpoint: str) -> "DiscoveredEdge":
        return DiscoveredEdge(endpoint, self._fallback)

    def find(self) -> Regions:
        # Imported here, in the thread that searches.
        from proxy.supervisor.srvquestions import targets_of

        targets = region_targets(self._srv, targets_of(self._srv, self._fallback))
        addresses: dict[str, list[str]] = {}
        failed: dict[str, OSError] = {}
        for host, port in {target.host: target.port for target in targets}.items():
            try:
                addresses[host] = self._hosts.addresses_of(host, port, is_whole=True)
            except OSError as error:
                failed[host] = error
        if addresses:
            addresses |= {host: self._hosts.still_of(host, reason) for host, reason in failed.items()}
        for host, reason in failed.items():
            msg = _STAYS if addresses.get(host) else "no address for a region of the edge"
            log.warning(msg, error=reason, host=host)
        return resolved_regions(targets, addresses)


def edge_finder(named: Sequence[ListenAddress], version: IpVersion, endpoint: str) -> EdgeFinder:
    """`named` are the operator's addresses, if any; `endpoint` is the token's region."""
    return NamedEdge(named, version) if named else DiscoveredEdge(endpoint)
