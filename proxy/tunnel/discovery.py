"""Edge discovery: which names are looked up in the DNS, and what the answers mean.

SRV records name the hosts of two regions and the port to dial, the same for all transports. Each host has addresses.
If the resolver gives no answer, only the SRV lookup is repeated, over DNS-over-TLS. The lookups themselves are done
elsewhere. Pure.
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
"""The name in the edge's certificate for HTTP/2, whatever address is dialled."""


class DnsOverTls(msgspec.Struct, frozen=True):
    ip: str = "1.1.1.1"
    port: int = 853
    server_name: str = "cloudflare-dns.com"
    timeout_s: float = 15.0


class SrvTarget(msgspec.Struct, frozen=True):
    """One SRV answer; answers are in the order of RFC 2782."""

    host: str
    port: int


class DiscoveryFailed(Exception):
    """No edge was found through the DNS; a later attempt may find one."""


def srv_name(endpoint: str) -> str:
    """The SRV name to look up. `endpoint` is the token's region; empty for the global edge."""
    return f"_{endpoint.lower() + '-' if endpoint else ''}{SERVICE}._tcp.{DOMAIN}"


def region_targets(name: str, answers: Sequence[SrvTarget]) -> tuple[SrvTarget, ...]:
    """One target per region, whose addresses are to be looked up. Raises DiscoveryFailed.

    A single target is enough to serve, though not to spread connections; of more than two, the first two count. The
    root as host means that there is no target (RFC 2782).
    """
    targets = tuple(answer for answer in answers if answer.host)[:REGIONS]
    if not targets:
        raise DiscoveryFailed(f"SRV {name} names no host, want {REGIONS}; alternatively, set addresses with --edge")
    return targets


def resolved_regions(
    targets: Sequence[SrvTarget], addresses: Mapping[str, Sequence[str]]
) -> tuple[tuple[EdgeAddress, ...], ...]:
    """The addresses by region; `addresses` has those of each host in the resolver's order.

    Raises DiscoveryFailed if no region has any.
    """
    regions = tuple(tuple(EdgeAddress(ip, target.port) for ip in addresses.get(target.host, ())) for target in targets)
    if not any(regions):
        hosts = ", ".join(target.host for target in targets)
        raise DiscoveryFailed(f"no address for {hosts}; alternatively, set addresses with --edge")
    return regions


def check_version(regions: Sequence[Sequence[EdgeAddress]], version: IpVersion, source: str = "") -> None:
    """Raises DiscoveryFailed if none of the addresses may be dialled. `source` is the fixed source address, if any."""
    if not any(Region(addresses, version).active for addresses in regions):
        found = ", ".join(str(address) for addresses in regions for address in addresses)
        asking = f"--edge-bind-address {source}" if source else f"--edge-ip-version {version}"
        raise DiscoveryFailed(f"no IPv{version} address among the edge's {found[:_MAX_SHOWN]}, which {asking} asks for")
