"""Where the edge is: asked of the DNS, or named by the operator. May take long, so it has a thread of its own.

Names of hosts are resolved as every program of the host resolves them; those of the DNS are whole, though.
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
"""What DNS filters answer for names that they block. Dialled, it is this host."""


class EdgeFinder(Protocol):
    @property
    def name(self) -> str:
        """Of the edge as a whole, for the log."""

    def at(self, endpoint: str) -> "EdgeFinder":
        """The one for tokens of this region; of the same name where that makes no difference."""

    def find(self) -> Regions:
        """Raises DiscoveryFailed."""


class _Hosts:
    """Their addresses, and those that they had: a resolver may fail for one name alone, and for a moment."""

    def __init__(self) -> None:
        self._before: dict[str, list[str]] = {}

    def addresses_of(self, host: str, port: int, *, is_whole: bool = False) -> list[str]:
        """As the resolver orders them. `is_whole`: no search domain is to be added. Raises OSError."""
        try:
            found = socket.getaddrinfo(whole_name(host) if is_whole else host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            # Not even a question: a label is empty or too long.
            raise OSError(str(error)) from error
        ips = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        addresses = [ip for ip in ips if ip not in _NOWHERE or ip == host]
        if not addresses:
            raise OSError(f"the answer is {' and '.join(ips)}, so a DNS filter blocks this name: exempt it there")
        self._before[host] = addresses
        return addresses

    def still_of(self, host: str, error: OSError) -> list[str]:
        """What is left after this error of `addresses_of`: nothing where the answer is that there is nothing."""
        if error.errno in _GONE:
            self._before.pop(host, None)
        return self._before.get(host, [])


class NamedEdge:
    """The operator's addresses, each of which is one address of the edge."""

    def __init__(self, addresses: Sequence[ListenAddress], version: IpVersion = IpVersion.AUTO) -> None:
        """`version`: which one a name with several stands for, where it has one of that kind."""
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
    """The provider's; `endpoint` is the token's region."""

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
        # Here, not above: in the thread that searches.
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
    """`named` are the operator's addresses, if there are any; `endpoint` is the token's region."""
    return NamedEdge(named, version) if named else DiscoveredEdge(endpoint)
