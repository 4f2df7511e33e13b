"""The SRV lookup: by the host's resolvers, and if they fail, by a public one over TLS.

Home routers tend to drop SRV records. This is a separate module because dnspython takes a tenth of a second to import,
and only the thread that does the lookup needs it.
"""

import random
from collections.abc import Sequence
from typing import Final

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.resolver

from daemonkit.clienttls import trusting
from daemonkit.logs import get_logger
from proxy.tunnel.discovery import DiscoveryFailed, DnsOverTls, SrvTarget

log = get_logger(__name__)

_TIMEOUT_S: Final = 5.0


def targets_of(name: str, fallback: DnsOverTls) -> list[SrvTarget]:
    """The SRV targets, in the order to try them. Raises DiscoveryFailed."""
    try:
        # A new resolver each time: the default one reads /etc/resolv.conf only once, and it may change.
        return _ordered(dns.resolver.Resolver().resolve(name, "SRV", lifetime=_TIMEOUT_S))
    except (dns.exception.DNSException, OSError, ValueError) as error:  # ValueError: from /etc/resolv.conf
        first = f"SRV {name}: {error}"
    try:
        return _ask_over_tls(name, fallback)
    except (dns.exception.DNSException, OSError, EOFError, ValueError) as error:
        log.debug("no answer over TLS either", error=error, server=fallback.server_name)
        raise DiscoveryFailed(f"{first}; alternatively, set addresses with --edge") from error


def _ask_over_tls(name: str, fallback: DnsOverTls) -> list[SrvTarget]:
    response = dns.query.tls(
        dns.message.make_query(name, dns.rdatatype.SRV),
        fallback.ip,
        timeout=fallback.timeout_s,
        port=fallback.port,
        ssl_context=trusting(),
        server_hostname=fallback.server_name,
    )
    return _ordered([record for answer in response.answer if answer.rdtype == dns.rdatatype.SRV for record in answer])


def _ordered(records: "Sequence[object] | dns.resolver.Answer") -> list[SrvTarget]:
    """By priority; among equal ones at random, in proportion to their weights (RFC 2782)."""

    def rank(record: object) -> tuple[int, float]:
        weight: int = record.weight  # type: ignore[attr-defined]
        return record.priority, -(random.random() ** (1.0 / weight)) if weight else 0.0  # type: ignore[attr-defined]

    ordered = sorted(records, key=rank)
    return [SrvTarget(str(record.target).rstrip("."), record.port) for record in ordered]
