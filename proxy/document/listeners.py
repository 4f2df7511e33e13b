"""Listeners: where requests enter, on a port of this host or through the tunnel."""

import ipaddress
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from proxy.document.part import UNSET, Certificate, Hostname, Name, Part, Pem, Port, Timestamp, Unset

TUNNEL_PORTS: Final = (80, 443)
"""The tunnel's public ports, for http and https requests."""
_MAX_KEPT: Final = 64
"""Characters: longer than any IP address with its zone, so nothing longer is cached."""


class ClientValidation(Part, frozen=True):
    """Ask clients for a certificate."""

    ca: Pem
    """The certificate authorities whose client certificates are accepted."""
    mode: Literal["AllowValidOnly", "AllowInsecureFallback"] = "AllowValidOnly"
    """`AllowInsecureFallback` serves all clients, and asks none for a certificate."""


class ListenerTLS(Part, frozen=True):
    """TLS of a listener with protocol HTTPS. Of several certificates, the one that covers the client's SNI is used."""

    certificates: Annotated[tuple[Certificate, ...], msgspec.Meta(min_length=1, max_length=64)]
    client_validation: ClientValidation | Unset = UNSET
    alpn: Annotated[tuple[Literal["h2", "http/1.1"], ...], msgspec.Meta(min_length=1)] = ("h2", "http/1.1")
    """Protocols to negotiate with clients, most preferred first."""


class Listener(Part, frozen=True):
    """A port, the tunnel, or both, for some hostnames. A request on a port belongs to the listener whose hostname fits
    most closely, and only that listener's routes may match it."""

    name: Name
    """Unique. Routes refer to listeners by it."""
    gateway: str = ""
    """The Gateway that this listener belongs to, as any text; only the tunnel uses it, see `tunnel`."""
    created_at: Timestamp | Unset = UNSET
    """When the Gateway was created. When two Gateways want the same hostname on the tunnel, the older one gets it. A
    Gateway without a time counts as the youngest; ties are decided by `gateway` in alphabetical order, then by the
    order of the listeners."""
    address: str = ""
    """IPv4 or IPv6 address to bind. Empty: all addresses of both families."""
    port: Port | Unset = UNSET
    """Port to bind. Absent: nothing is bound, and only the tunnel reaches the listener."""
    public_port: Port | Unset = UNSET
    """Port that clients connect to, used in redirects and X-Forwarded-Port. Default: `port`, else 443 for HTTPS and 80
    for HTTP."""
    protocol: Literal["HTTP", "HTTPS"] = "HTTP"
    hostname: Hostname | Unset = UNSET
    """Absent: every host. Hosts that a more specific listener of the same port covers belong to that one."""
    tls: ListenerTLS | Unset = UNSET
    """Needed when protocol is HTTPS and a port is bound; for the tunnel, the provider's edge terminates TLS."""
    tunnel: bool = False
    """Also serve requests that come through the tunnel: https requests go to listeners with public port 443, http
    requests to those with 80. A Gateway that has listeners for only one of the two gets both kinds."""

    @property
    def visible_port(self) -> int:
        """The port that clients connect to, with its default filled in."""
        return self.public_port or self.port or (443 if self.protocol == "HTTPS" else 80)


def canonical_address(address: str) -> str:
    """An IP address in canonical spelling, since IPv6 allows many, even of IPv4 addresses; anything else is returned
    unchanged."""
    return _canonical(address) if len(address) <= _MAX_KEPT else address


@lru_cache(maxsize=256)
def _canonical(address: str) -> str:
    # Cached: there may be thousands of listeners with few addresses, and every change goes through all of them.
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
