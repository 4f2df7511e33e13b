"""Listeners of the compiled table, and which of them gets a request.

A door is a place where requests come in: a bound socket, or one scheme of the tunnel. Several listeners may share a
door. A request belongs to the one whose hostname fits its host most closely, and only that one's routes may match it.
"""

from collections.abc import Iterable, Iterator

import msgspec

from proxy import document
from proxy.routing.hosts import RouteSet
from proxy.routing.match import UNDATED

TUNNEL_HTTP = "tunnel-http"
TUNNEL_HTTPS = "tunnel-https"

_TUNNEL_DOORS = ((TUNNEL_HTTP, b"http", 80, 443), (TUNNEL_HTTPS, b"https", 443, 80))


def socket_door(address: str, port: int) -> str:
    """The name of the door behind a bound socket; `address` and `port` are as in the document.

    Different spellings of an address give the same name. With two sockets on one address, the kernel would distribute
    clients between them at random.
    """
    address = document.canonical_address(address)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Listener(msgspec.Struct, frozen=True, gc=False):
    """A listener as seen through one of its doors."""

    name: str
    hostname: str
    """Empty: every host."""
    scheme: bytes
    """The scheme that the client uses, b"http" or b"https"."""
    public_port: int
    """The port that the client connects to, see `document.Listener.public_port`."""
    routes: RouteSet


class Door:
    """The listeners that share a place where requests come in."""

    __slots__ = ("_any", "_exact", "_wildcards", "only")

    def __init__(self, listeners: Iterable[Listener]) -> None:
        """Of listeners with equal hostnames, the first gets the requests."""
        self._exact: dict[bytes, Listener] = {}
        self._wildcards: dict[bytes, Listener] = {}
        self._any: Listener | None = None
        for listener in listeners:
            hostname = listener.hostname.encode()
            if not hostname:
                self._any = self._any or listener
            elif hostname.startswith(b"*."):
                self._wildcards.setdefault(hostname[1:], listener)
            else:
                self._exact.setdefault(hostname, listener)
        self.only = None if self._exact or self._wildcards else self._any
        """The door's listener, if there is just one and it takes every host, which is the usual case; else None."""

    def listener_for(self, host: bytes) -> Listener | None:
        """The listener for a host, which is as `host_of` returns it."""
        found = self._exact.get(host)
        if found is not None or not self._wildcards:
            return found or self._any
        dot = host.find(b".")
        while dot >= 0:
            found = self._wildcards.get(host[dot:])
            if found is not None:
                return found
            dot = host.find(b".", dot + 1)
        return self._any

    def __iter__(self) -> Iterator[Listener]:
        yield from self._exact.values()
        yield from self._wildcards.values()
        if self._any is not None:
            yield self._any


def make_doors(listeners: tuple[document.Listener, ...], routes: dict[str, RouteSet]) -> dict[str, Door]:
    """All doors by name. `routes` has the route set of each listener by name; under "" if there are no listeners."""
    if not listeners:
        return {
            name: Door([Listener(scheme.decode(), "", scheme, port, routes[""])])
            for name, scheme, port, _ in _TUNNEL_DOORS
        }
    behind: dict[str, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            door = socket_door(listener.address, listener.port)
            scheme = listener.protocol.lower().encode()
            behind.setdefault(door, []).append(_seen(listener, scheme, listener.visible_port, routes))
    for name, scheme, port, other_port in _TUNNEL_DOORS:
        chosen = _tunnel_listeners(listeners, port, other_port)
        if chosen:
            behind[name] = [_seen(listener, scheme, port, routes) for listener in chosen]
    return {name: Door(found) for name, found in behind.items()}


def _seen(listener: document.Listener, scheme: bytes, port: int, routes: dict[str, RouteSet]) -> Listener:
    return Listener(listener.name, listener.hostname or "", scheme, port, routes[listener.name])


def _tunnel_listeners(listeners: tuple[document.Listener, ...], port: int, other_port: int) -> list[document.Listener]:
    """The listeners that serve the tunnel's requests to `port`: of each Gateway those with that port, else the other.

    Listeners of the oldest Gateway come first, so it gets hosts that several Gateways want. Listeners without a
    creation time come last, whatever the others of their Gateway have.
    """
    gateways: dict[str, list[document.Listener]] = {}
    for listener in listeners:
        if listener.tunnel:
            gateways.setdefault(listener.gateway, []).append(listener)
    chosen: list[document.Listener] = []
    for group in gateways.values():
        fitting = [listener for listener in group if listener.visible_port == port]
        chosen += fitting or [listener for listener in group if listener.visible_port == other_port]
    return sorted(chosen, key=_age)


def _age(listener: document.Listener) -> tuple[str, str]:
    return listener.created_at or UNDATED, listener.gateway
