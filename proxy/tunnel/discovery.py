"""How the edge is found: what is asked of the DNS, and what is made of the answers.

A SRV record names the hosts of two regions and the port; each host has addresses. The port of the record is used, the
same for all transports. Where the resolver has no answer, the SRV question alone is asked again over DNS-over-TLS. The
questions themselves are sent elsewhere. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from proxy.tunnel.addresses import EdgeAddress, IpVersion, Region

DOMAIN: Final = "argotunnel.com"
SERVICE: Final = "v2-origintunneld"
REGIONS: Final = 2
_MAX_SHOWN: Final = 256
SERVER_NAME: Final = "h2.cftunnel.com"
"""Of the edge's certificate, over HTTP/2, whatever address is dialled."""


class DnsOverTls(msgspec.Struct, frozen=True):
    ip: str = "1.1.1.1"
    port: int = 853
    server_name: str = "cloudflare-dns.com"
    timeout_s: float = 15.0


class SrvTarget(msgspec.Struct, frozen=True):
    """One answer, in the order that RFC 2782 asks for."""

    host: str
    port: int


class DiscoveryFailed(Exception):
    """The DNS does not lead to an edge; it may do so later."""


def srv_name(endpoint: str) -> str:
    """`endpoint` is the region of the token or the option; empty for the global edge."""
    return f"_{endpoint.lower() + '-' if endpoint else ''}{SERVICE}._tcp.{DOMAIN}"


def region_targets(name: str, answers: Sequence[SrvTarget]) -> tuple[SrvTarget, ...]:
    """One per region, for which addresses are to be looked up. Raises DiscoveryFailed.

    A single one is enough to serve, if not to spread; of more than two the first two count. The root as host says that
    there is none (RFC 2782).
    """
    targets = tuple(answer for answer in answers if answer.host)[:REGIONS]
    if not targets:
        raise DiscoveryFailed(f"SRV {name} names no host, want {REGIONS}; if need be, give addresses with --edge")
    return targets


def resolved_regions(
    targets: Sequence[SrvTarget], addresses: Mapping[str, Sequence[str]]
) -> tuple[tuple[EdgeAddress, ...], ...]:
    """The addresses by region; `addresses` has those of each host as the resolver ordered them.

    Raises DiscoveryFailed when no region has any.
    """
    regions = tuple(tuple(EdgeAddress(ip, target.port) for ip in addresses.get(target.host, ())) for target in targets)
    if not any(regions):
        hosts = ", ".join(target.host for target in targets)
        raise DiscoveryFailed(f"no address for {hosts}; if need be, give addresses with --edge")
    return regions


def check_version(regions: Sequence[Sequence[EdgeAddress]], version: IpVersion, source: str = "") -> None:
    """Raises DiscoveryFailed when none of the addresses is to be dialled. `source`: from where, if that is fixed."""
    if not any(Region(addresses, version).active for addresses in regions):
        found = ", ".join(str(address) for addresses in regions for address in addresses)
        asking = f"--edge-bind-address {source}" if source else f"--edge-ip-version {version}"
        raise DiscoveryFailed(f"no IPv{version} address among the edge's {found[:_MAX_SHOWN]}, which {asking} asks for")
