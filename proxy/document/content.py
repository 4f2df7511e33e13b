"""What a document says, in pieces that are known again: routes and backends that did not change stay the same objects.

So the difference between two documents is found by comparing numbers, and whoever serves the one needs to be told no
more than the difference to serve the other.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proxy.document.model import Document, Outline, Settings, Version
from proxy.document.part import Unset
from proxy.document.routes import Route
from proxy.document.targets import Backend, BackendTLS
from proxy.document.tlsparts import TLSPart, placed_tls_parts, targets_of, tls_parts_of

_encode = msgspec.json.Encoder().encode
_HASH_BYTES: Final = 4
"""Enough to tell documents apart, and too little to tell anything of the secrets in one."""


class KnownRoute(msgspec.Struct, frozen=True, gc=False):
    """A route that was checked."""

    number: int
    """No other route of the same reader ever has it; equal numbers, equal routes."""
    place: int
    """In the document, of a route without a name, which it is known and ranked by; -1 of others."""
    route: Route
    text: msgspec.Raw
    """Canonical JSON."""
    backends: tuple[str, ...]
    """Names of the backends that it refers to."""
    tls: tuple[tuple[str, BackendTLS], ...]
    """Of targets that it describes itself, with the path in the route."""


def known_route(number: int, place: int, route: Route) -> KnownRoute:
    """Remember a route; `place` counts only when it has no name."""
    targets = targets_of(route)
    return KnownRoute(
        number,
        -1 if route.name else place,
        route,
        msgspec.Raw(_encode(route)),
        tuple({target.backend for target in targets if target.backend}),
        tuple(tls_parts_of(route)) if any(target.tls for target in targets) else (),
    )


@dataclass(frozen=True, eq=False, slots=True)
class Content:
    """A checked document without its version."""

    settings: Settings
    backends: dict[str, Backend]
    """By name, in the order of the document."""
    routes: dict[int, KnownRoute]
    """By number, in the order of the document."""

    def says_the_same_as(self, other: "Content") -> bool:
        """Compared as canonical JSON: white space and the order of keys do not count."""
        return (
            self.settings == other.settings
            and [*self.backends.values()] == [*other.backends.values()]
            and (
                [*self.routes] == [*other.routes]
                or [route.text for route in self.routes.values()] == [route.text for route in other.routes.values()]
            )
        )

    def tls_parts(self) -> Iterator[tuple[str, TLSPart]]:
        """All that speaks of TLS, each with the path of its field."""
        of_routes = (route.tls for route in self.routes.values())
        return placed_tls_parts(self.settings.listeners, self.backends.values(), of_routes)

    def document(self, version: Version | Unset) -> Document:
        """The whole document again."""
        routes = tuple(known.route for known in self.routes.values())
        return Document(**self._settings(version), backends=tuple(self.backends.values()), routes=routes)

    def encode(self, version: Version | Unset) -> bytes:
        """The whole document in bytes, private keys included. Contents that say the same have the same bytes."""
        backends = tuple(msgspec.Raw(_encode(backend)) for backend in self.backends.values())
        routes = tuple(known.text for known in self.routes.values())
        return _encode(Outline(**self._settings(version), backends=backends, routes=routes))

    def hash(self) -> int:
        """The same for the same content, also in another process."""
        return int.from_bytes(hashlib.sha256(self.encode(msgspec.UNSET)).digest()[:_HASH_BYTES])

    def _settings(self, version: Version | Unset) -> dict[str, Any]:
        return {**{name: getattr(self.settings, name) for name in Settings.__struct_fields__}, "version": version}
