"""Where the edge is: asked of the DNS, or named by the operator. May take long, so it has a thread of its own.

The SRV question goes to the host's resolvers; where those fail, to a public one over TLS, since SRV records are what
home routers drop. Names of hosts are resolved as every program of the host resolves them.
"""

import random
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.resolver

from daemonkit.addresses import ListenAddress
from daemonkit.logs import get_logger
from proxy.tunnel.addresses import EdgeAddress, static_regions
from proxy.tunnel.discovery import (
    DiscoveryFailed,
    DnsOverTls,
    SrvTarget,
    region_targets,
    resolved_regions,
    srv_name,
)

log = get_logger(__name__)

_SRV_TIMEOUT_S: Final = 5.0

Regions = Sequence[Sequence[EdgeAddress]]


class EdgeFinder(Protocol):
    @property
    def name(self) -> str:
        """Of the edge as a whole, for the log."""

    def find(self) -> Regions:
        """Raises DiscoveryFailed."""


class NamedEdge:
    """The operator's addresses, each of which is one address of the edge."""

    def __init__(self, addresses: Sequence[ListenAddress]) -> None:
        self._addresses = addresses

    @property
    def name(self) -> str:
        return ",".join(map(str, self._addresses))

    def find(self) -> Regions:
        found: list[EdgeAddress] = []
        errors: list[str] = []
        for address in self._addresses:
            try:
                ip = _addresses_of(address.host, address.port)[0]
            except OSError as error:
                errors.append(f"{address.host}: no such host ({error.strerror or error})")
            else:
                found.append(EdgeAddress(ip, address.port))
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

    def find(self) -> Regions:
        targets = region_targets(self._srv, self._targets())
        addresses: dict[str, list[str]] = {}
        for target in targets:
            try:
                addresses[target.host] = _addresses_of(target.host, target.port)
            except OSError as error:
                log.warning("no address for a region of the edge", error=error, host=target.host)
        return resolved_regions(targets, addresses)

    def _targets(self) -> list[SrvTarget]:
        try:
            answer = dns.resolver.resolve(self._srv, "SRV", lifetime=_SRV_TIMEOUT_S)
            return _ordered(answer)
        except (dns.exception.DNSException, OSError) as error:
            first = f"SRV {self._srv}: {error}"
        try:
            return self._ask_over_tls()
        except (dns.exception.DNSException, OSError, ValueError) as error:
            log.debug("no answer over TLS either", error=error, server=self._fallback.server_name)
            raise DiscoveryFailed(f"{first}; name addresses with --edge if need be") from error

    def _ask_over_tls(self) -> list[SrvTarget]:
        fallback = self._fallback
        response = dns.query.tls(
            dns.message.make_query(self._srv, dns.rdatatype.SRV),
            fallback.ip,
            timeout=fallback.timeout_s,
            port=fallback.port,
            ssl_context=ssl.create_default_context(),
            server_hostname=fallback.server_name,
        )
        return _ordered(
            [record for answer in response.answer if answer.rdtype == dns.rdatatype.SRV for record in answer]
        )


def _ordered(records: "Sequence[object] | dns.resolver.Answer") -> list[SrvTarget]:
    """By priority, and among equal ones by chance in proportion to their weights (RFC 2782)."""

    def rank(record: object) -> tuple[int, float]:
        weight: int = record.weight  # type: ignore[attr-defined]
        return record.priority, -(random.random() ** (1.0 / weight)) if weight else 0.0  # type: ignore[attr-defined]

    ordered = sorted(records, key=rank)
    return [SrvTarget(str(record.target).rstrip("."), record.port) for record in ordered]


def _addresses_of(host: str, port: int) -> list[str]:
    """As the resolver orders them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
