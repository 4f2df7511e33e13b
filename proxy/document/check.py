"""Checks that span several fields: names that must be unique or known, fields that exclude or need each other."""

import ipaddress
import re
from collections.abc import Iterable, Set
from typing import TypeAlias

from proxy.document.checkfilters import UNTOUCHABLE
from proxy.document.checkroutes import Patterns, RouteChecker
from proxy.document.checktargets import check_active_health, check_addresses, check_certificate, check_pem, check_tls
from proxy.document.listeners import TUNNEL_PORTS, Listener, canonical_address
from proxy.document.model import Document, Forwarding, Settings
from proxy.document.problems import Findings
from proxy.document.routes import Route
from proxy.document.targets import Backend

_TAKEN = UNTOUCHABLE | {
    *("authorization", "client-cert", "client-cert-chain", "cookie", "expect", "forwarded", "host", "proxy", "via"),
    *("true-client-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-real-ip"),
}
"""Request header fields with a meaning of their own, which therefore cannot carry the request id."""
_ZONE = re.compile(r"[!-~]{1,15}")
"""A zone: the name or number of an interface. `ipaddress` accepts any text here, even what no system call accepts."""

Names: TypeAlias = tuple[Set[str], Set[str]]
"""The names of listeners, and of backends."""


def check(document: Document) -> None:
    """Check a whole document. Raises DocumentError with the first MAX_PROBLEMS problems."""
    findings = Findings()
    check_settings(document, findings)
    check_backends(document.backends, findings)
    check_backend_names(document.backends, findings)
    check_routes(document.routes, names_of(document, {backend.name for backend in document.backends}), findings)
    check_route_names(document.routes, findings)
    findings.raise_if_any()


def names_of(settings: Settings, backends: Set[str]) -> Names:
    """The names that routes may refer to."""
    return {listener.name for listener in settings.listeners}, backends


def check_settings(settings: Settings, findings: Findings) -> None:
    """Check everything except backends and routes."""
    _check_listeners(settings.listeners, findings)
    _check_forwarding(settings.forwarding, findings)


def check_backends(backends: Iterable[Backend], findings: Findings) -> None:
    """Check each backend on its own."""
    for place, backend in enumerate(backends):
        at = f"backends[{place}]"
        check_addresses(backend.addresses, f"{at}.addresses", findings)
        check_tls(backend.protocol, backend.tls, at, findings)
        if backend.active_health:
            check_active_health(backend.active_health, f"{at}.activeHealth", findings)
        if "://" in backend.name:
            findings.add(
                f"{at}.name", f"`{backend.name}` contains `://`, which is reserved for backends without a name"
            )


def check_backend_names(backends: Iterable[Backend], findings: Findings) -> None:
    """Check that names are unique."""
    _check_unique("backends", (backend.name for backend in backends), findings)


def check_routes(routes: Iterable[Route], names: Names, findings: Findings, patterns: Patterns | None = None) -> None:
    """Check each route on its own. `patterns` caches what is known about regular expressions, and limits their cost."""
    checker = RouteChecker(*names, findings, patterns)
    for place, route in enumerate(routes):
        if findings.is_full:
            break
        checker.check(route, f"routes[{place}]")


def check_route_names(routes: Iterable[Route], findings: Findings) -> None:
    """Check that names are unique among routes of one kind; routes without a name are skipped."""
    seen: dict[tuple[str, str], int] = {}
    for place, route in enumerate(routes):
        if route.name:
            first = seen.setdefault((route.kind, route.name), place)
            if first != place:
                at = f"routes[{place}].name"
                findings.add(at, f"`{route.name}` is the name of routes[{first}] too, want unique names")


def _check_unique(group: str, names: Iterable[str], findings: Findings) -> None:
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        first = seen.setdefault(name, place)
        if first != place:
            findings.add(f"{group}[{place}].name", f"`{name}` is the name of {group}[{first}] too, want unique names")


def _check_listeners(listeners: tuple[Listener, ...], findings: Findings) -> None:
    _check_unique("listeners", (listener.name for listener in listeners), findings)
    sockets: dict[tuple[str, ...], tuple[str, Listener]] = {}
    for place, listener in enumerate(listeners):
        at = f"listeners[{place}]"
        _check_listener(listener, at, findings)
        for key in _entrances(listener):
            protocol_at, other = sockets.setdefault(key, (at, listener))
            if other.protocol != listener.protocol:
                findings.add(
                    f"{at}.protocol", f"{listener.protocol}, but {protocol_at} has {other.protocol} on the same port"
                )
            hostname_at, other = sockets.setdefault((*key, listener.hostname or ""), (at, listener))
            if other is not listener:
                findings.add(f"{at}.hostname", f"{hostname_at} has the same hostname on the same port")


def _entrances(listener: Listener) -> Iterable[tuple[str, ...]]:
    """Keys for the places where requests can reach this listener. Listeners that share one need different hostnames."""
    if listener.port:
        yield "socket", canonical_address(listener.address), str(listener.port)
    if listener.tunnel:
        yield "tunnel", listener.gateway, str(listener.visible_port)


def _check_listener(listener: Listener, at: str, findings: Findings) -> None:
    if listener.address and not _is_ip_address(listener.address):
        findings.add(f"{at}.address", f"{listener.address!r} is not an IP address; leave it out to bind all addresses")
    if not listener.port and not listener.tunnel:
        findings.add(at, "nothing can reach this listener: give it a `port` to bind, or `tunnel` true")
    if listener.tunnel and listener.visible_port not in TUNNEL_PORTS:
        findings.add(
            f"{at}.tunnel",
            f"the tunnel serves ports 80 and 443 only, and clients see port {listener.visible_port} here; "
            "`publicPort` says which of the two they see",
        )
    if listener.protocol == "HTTP" and listener.tls:
        findings.add(f"{at}.tls", "protocol is HTTP, which has no TLS; want protocol HTTPS or no `tls`")
    if listener.protocol == "HTTPS" and listener.port and not listener.tls:
        findings.add(at, "field `tls` is missing, which protocol HTTPS needs on a bound port")
    if listener.tls:
        for place, certificate in enumerate(listener.tls.certificates):
            check_certificate(certificate, f"{at}.tls.certificates[{place}]", findings)
        if listener.tls.client_validation:
            check_pem(listener.tls.client_validation.ca, "CERTIFICATE", f"{at}.tls.clientValidation.ca", findings)


def _check_forwarding(forwarding: Forwarding, findings: Findings) -> None:
    _check_networks(forwarding.trusted_proxies, "forwarding.trustedProxies", findings)
    _check_networks(forwarding.proxy_protocol, "forwarding.proxyProtocol", findings)
    name = forwarding.request_id_header
    # CGI and its relatives cannot tell `-` from `_` in field names.
    if name.lower().replace("_", "-") in _TAKEN:
        findings.add("forwarding.requestIdHeader", f"`{name}` has a meaning of its own, want X-Request-Id or the like")


def _check_networks(networks: tuple[str, ...], at: str, findings: Findings) -> None:
    for place, network in enumerate(networks):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            findings.add(f"{at}[{place}]", f"{error}; want an address, or a network as 10.0.0.0/8")
        else:
            if "%" in network:
                findings.add(f"{at}[{place}]", f"{network!r} has a zone, want it without: it counts on every interface")


def _is_ip_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    zone = address.scope_id if isinstance(address, ipaddress.IPv6Address) else None
    return zone is None or _ZONE.fullmatch(zone) is not None
