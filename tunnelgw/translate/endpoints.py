"""The addresses behind a port of a Service, from its EndpointSlices.

A Service may have several slices: for the two address families, or with different port numbers if pods give the named
port different ones. Selectors and cluster IPs play no part, so headless Services and Services with manually created
slices are treated alike. Slices of type FQDN and Services of type ExternalName are not followed: anyone who may write a
slice could make the proxy look up any name.
"""

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from tunnelgw.model.core import Endpoint, EndpointSlice
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.queries import View

_FAMILIES = ("IPv4", "IPv6")
PORTS = range(1, 65536)
"""Manifests in a folder may have other numbers, with which the proxy would refuse the whole document."""


class ServicePortName(NamedTuple):
    """A port of a Service by its name, which may be empty if the Service has only one port."""

    service: Key
    port: str


def service_addresses(view: View, port: ServicePortName) -> tuple[str, ...]:
    """The addresses to send requests to, each once, sorted: ready endpoints, or if none is ready, terminating ones that
    still serve."""
    ready: set[str] = set()
    ending: set[str] = set()
    for item in view.bucket(Index.SLICES_BY_SERVICE, port.service):
        if isinstance(item, EndpointSlice) and item.address_type in _FAMILIES:
            numbers = _port_numbers(item, port.port)
            for endpoint in item.endpoints or ():
                if _is_ready(endpoint):
                    ready.update(_addresses(endpoint, numbers))
                elif _is_ending(endpoint):
                    ending.update(_addresses(endpoint, numbers))
    return tuple(sorted(ready or ending))


def _port_numbers(item: EndpointSlice, name: str) -> tuple[int, ...]:
    return tuple(
        port.port
        for port in item.ports or ()
        if port.port and port.port in PORTS and (port.name or "") == name and (port.protocol or "TCP") == "TCP"
    )


def _is_ready(endpoint: Endpoint) -> bool:
    return endpoint.conditions.ready is not False


def _is_ending(endpoint: Endpoint) -> bool:
    """Whether it is terminating but still serves. (A ready endpoint is not terminating, unless its Service publishes it
    regardless.)"""
    return bool(endpoint.conditions.terminating and endpoint.conditions.serving)


def _addresses(endpoint: Endpoint, ports: tuple[int, ...]) -> Iterator[str]:
    """The first address only: an endpoint's addresses all lead to the same place."""
    for text in endpoint.addresses[:1]:
        try:
            host = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (isinstance(host, ipaddress.IPv6Address) and host.scope_id):
            yield from (address_of(str(host), port) for port in ports)


def address_of(host: str, port: int) -> str:
    """In the document's notation."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
