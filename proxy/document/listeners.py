"""Listeners: where requests come in, on a port of this host or through the tunnel."""

import ipaddress
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from proxy.document.part import UNSET, Certificate, Hostname, Name, Part, Pem, Port, Timestamp, Unset

TUNNEL_PORTS: Final = (80, 443)
"""The public ports of the tunnel: for http and for https requests."""
_MAX_KEPT: Final = 64
"""Characters: more than any address has, with its zone."""


class ClientValidation(Part, frozen=True):
    """Ask clients for a certificate."""

    ca: Pem
    """The certificate authorities whose clients are accepted."""
    mode: Literal["AllowValidOnly", "AllowInsecureFallback"] = "AllowValidOnly"
    """`AllowInsecureFallback` also serves clients without a certificate, or with one that does not verify."""


class ListenerTLS(Part, frozen=True):
    """TLS of a listener with protocol HTTPS. Several certificates: the one whose names fit the client's SNI is used."""

    certificates: Annotated[tuple[Certificate, ...], msgspec.Meta(min_length=1, max_length=64)]
    client_validation: ClientValidation | Unset = UNSET
    alpn: Annotated[tuple[Literal["h2", "http/1.1"], ...], msgspec.Meta(min_length=1)] = ("h2", "http/1.1")
    """Protocols offered to clients, preferred first."""


class Listener(Part, frozen=True):
    """One entrance. Requests on a port go to the listener whose hostname fits best, and to its routes only."""

    name: Name
    """Unique; routes name their listeners by it."""
    gateway: str = ""
    """Listeners of one Gateway share this word; it matters for the tunnel alone, see `tunnel`."""
    created_at: Timestamp | Unset = UNSET
    """When the Gateway was made. Where two Gateways want the same name on the tunnel, the older one gets it; one
    without a time comes last, then `gateway` in alphabetical order decides, then the order here."""
    address: str = ""
    """Address to bind, IPv4 or IPv6; empty binds all addresses of both families."""
    port: Port | Unset = UNSET
    """Port to bind. Absent: nothing is bound, the listener is reached through the tunnel only."""
    public_port: Port | Unset = UNSET
    """Port that clients see, for redirects and X-Forwarded-Port. Default: `port`, else 443 for HTTPS, 80 for HTTP."""
    protocol: Literal["HTTP", "HTTPS"] = "HTTP"
    hostname: Hostname | Unset = UNSET
    """Absent: every host. More specific listeners of the same port take their hosts away from this one."""
    tls: ListenerTLS | Unset = UNSET
    """Needed when protocol is HTTPS and a port is bound; through the tunnel the provider's edge ends TLS."""
    tunnel: bool = False
    """Serve requests of the tunnel too: https requests go to public port 443, http requests to 80; a Gateway that has
    only one of the two gets both."""

    @property
    def visible_port(self) -> int:
        """The port that clients see."""
        return self.public_port or self.port or (443 if self.protocol == "HTTPS" else 80)


def canonical_address(address: str) -> str:
    """The one spelling of an IP address, since IPv6 has many; what is none stays as it is."""
    return _canonical(address) if len(address) <= _MAX_KEPT else address


@lru_cache(maxsize=256)
def _canonical(address: str) -> str:
    """Thousands of listeners have few addresses, and are gone through with each change."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
