"""Where the controller is: the base URL as people type it, and the paths below it (pure).

Accepted are `192.168.1.1`, `unifi.lan:8443`, `https://unifi.lan/`, a sub-path of a reverse proxy, and an address copied
from an API description such as `https://unifi.lan/proxy/network/integration/v1`, which is cut off at `/proxy/network`.
The scheme is https unless http is given.

A controller comes in two flavours. On `os` (consoles, UniFi OS Server), the Network application is below
`/proxy/network` and logins go to the console; `classic` is the self-hosted application itself.
"""

import unicodedata
from enum import StrEnum
from urllib.parse import quote

import msgspec

from daemonkit.hostnames import has_dns_lengths
from daemonkit.ipv4 import MISTYPED_IPV4, is_mistyped_ipv4
from daemonkit.urls import lacks_interface, split_url

_APPLICATION_PATH = "/proxy/network"
_DEFAULT_PORTS = {"https": 443, "http": 80}


class Flavour(StrEnum):
    OS = "os"
    CLASSIC = "classic"


class ControllerAddress(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    """Name or address; an IPv6 address has no brackets."""
    port: int
    prefix: str = ""
    """Path of a reverse proxy in front of the controller, without trailing slash; usually empty."""
    names_application: bool = False
    """Whether the text contained `/proxy/network`, so that the flavour is certain."""

    @property
    def tls_name(self) -> str:
        """The name in its certificate: without the zone of a link-local address, which only this host knows."""
        return self.host.partition("%")[0]

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def base_url(self) -> str:
        return self.origin + self.prefix


def parse_address(text: str) -> ControllerAddress:
    """Raises ValueError that says what is wrong with `text`."""
    typed = text.strip()
    if not typed:
        raise ValueError("UNIFI_HOST is empty, want for example https://192.168.1.1")
    if typed[0] in "\"'":  # Docker's env files keep them
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} is in quotes, which are part of it: write it without them")
    try:
        parts = split_url(typed if "://" in typed else f"https://{typed}")
        host, port = (parts.hostname or "").removesuffix("."), parts.port  # certificates never have the trailing dot
    except ValueError as error:
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} is not a URL: {error}") from error
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} has scheme {scheme!r}, want https or http")
    if parts.username is not None or parts.password is not None:
        raise ValueError("UNIFI_HOST contains a user name, want user and password in their own options")
    if not host or " " in typed or not typed.isprintable():  # such characters come along with text copied from a page
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} has no host, want for example https://192.168.1.1")
    if "://" not in typed and host in _DEFAULT_PORTS:  # https:/192.168.1.1
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} lacks `://`, want for example https://192.168.1.1")
    if ":" not in host and not _is_name(host):
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} has host {host!r}, want one name or address")
    if is_mistyped_ipv4(host):
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} is {MISTYPED_IPV4}")
    if ":" not in host and not has_dns_lengths(host):
        raise ValueError(
            f"UNIFI_HOST {_shown(typed)!r} has a host that is too long for DNS, or a label of it is empty or too long"
        )
    if lacks_interface(host):
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} is link-local, want its interface too, as in [{host}%eth0]")
    if parts.query or parts.fragment:
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} has a query or fragment, want scheme and host")
    if port == 0:
        raise ValueError(f"UNIFI_HOST {_shown(typed)!r} has port 0, which no server has, want 1 to 65535")
    prefix, marker, _ = parts.path.partition(_APPLICATION_PATH)
    chosen_port = _DEFAULT_PORTS[scheme] if port is None else port
    return ControllerAddress(scheme, host, chosen_port, prefix.rstrip("/"), names_application=bool(marker))


def _is_name(host: str) -> bool:
    """Letters and digits of other scripts too, with their marks, which IDNA encodes; underscores are in names of
    containers."""
    return all(char in ".-_" or unicodedata.category(char)[0] in "LMN" for char in host)


def _shown(typed: str) -> str:
    """`typed` without the part that may be a password."""
    return typed.rpartition("@")[2][:200]


def _application_path(flavour: Flavour) -> str:
    """The prefix of the Network application's own paths."""
    return _APPLICATION_PATH if flavour is Flavour.OS else ""


def login_path(flavour: Flavour) -> str:
    return "/api/auth/login" if flavour is Flavour.OS else "/api/login"


def v2_path(flavour: Flavour, site: str) -> str:
    return f"{_application_path(flavour)}/v2/api/site/{quote(site, safe='')}/static-dns"


INTEGRATION_PATH = f"{_APPLICATION_PATH}/integration/v1"
