"""Listen addresses as a person writes them: `127.0.0.1:8888`, `[::1]:8888`, `:8080`, `unix:/run/x.sock` (pure).

`:port` listens on every address of the host, IPv4 and IPv6 on one socket. With port 0, the kernel chooses.
"""

import ipaddress
import re
from dataclasses import dataclass

_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")  # a trailing dot: no search domains
_MAX_UNIX_PATH_OCTETS = 107  # sun_path of unix(7), less its final NUL


@dataclass(frozen=True)
class ListenAddress:
    """Either `path` (a unix socket), or `host` and `port`; an empty `host` means every address of the host."""

    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        text = text.strip()
        wanted = "want host:port, [IPv6]:port, :port (every address) or unix:/path"
        if text.startswith("unix:"):
            return cls("", 0, _unix_path(text))
        if "://" in text:
            raise ValueError(f"seen {text!r}, which is a URL, {wanted}")
        host, colon, port_text = text.rpartition(":")
        if not colon or text.endswith("]"):
            raise ValueError(f"seen {text!r} without a port, {wanted}")
        if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 0xFFFF):
            raise ValueError(f"seen port {port_text!r} in {text!r}, want 0 to 65535")
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            raise ValueError(f"seen {text!r}, want an IPv6 address in brackets, such as [::1]:8080")
        if host == "*":
            raise ValueError(f"seen {text!r}, want :{port_text} for every address")
        return cls(_host(host, text, wanted), int(port_text))

    @property
    def is_unix(self) -> bool:
        return bool(self.path)

    @property
    def is_loopback(self) -> bool:
        """Reachable only from this host, as a unix socket always is."""
        if self.is_unix or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _unix_path(text: str) -> str:
    path = text.removeprefix("unix:")
    if not path.startswith("/") or path.endswith("/") or not path.isprintable():
        raise ValueError(f"seen {text!r}, want an absolute path of a socket, such as unix:/run/daemon.sock")
    if len(path.encode()) > _MAX_UNIX_PATH_OCTETS:
        raise ValueError(f"seen a path of {len(path.encode())} bytes, want at most {_MAX_UNIX_PATH_OCTETS}: {text!r}")
    return path


def _host(host: str, text: str, wanted: str) -> str:
    if not host:
        return ""
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"seen {host!r} in {text!r}, want an IPv6 address in brackets") from None
        if address.is_link_local and not address.scope_id:
            raise ValueError(f"seen {text!r}, want the interface of a link-local address too, as in [{address}%eth0]")
        # Listening on it as IPv6 would need a socket for both families.
        return str(address.ipv4_mapped or address)
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        pass
    # Digits and dots only: a mistyped address, never a name.
    if not _HOST_NAME.fullmatch(host) or re.fullmatch(r"[0-9.]+", host):
        raise ValueError(f"seen {text!r}, {wanted}")
    return host
