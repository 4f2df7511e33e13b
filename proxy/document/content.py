"""The content of a document, in pieces that are recognised again: unchanged routes and backends stay the same objects.

The difference between two documents is thus found by comparing route numbers, and a worker that serves one document
needs only the difference to serve the next.
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
"""Enough to tell documents apart, but too few to reveal anything about the secrets in one."""


class KnownRoute(msgspec.Struct, frozen=True, gc=False):
    """A route that has been checked, with what is derived from it."""

    number: int
    """Given by the reader and never reused by it, so routes with the same number are the same."""
    place: int
    """Index in the document's `routes`, which names and ranks a route without a name; -1 for routes that have one."""
    route: Route
    text: msgspec.Raw
    """Canonical JSON."""
    backends: tuple[str, ...]
    """Names of the entries in `backends` that it refers to."""
    tls: tuple[tuple[str, BackendTLS], ...]
    """TLS settings of targets that are described inside the route, with their paths relative to it."""


def known_route(number: int, place: int, route: Route) -> KnownRoute:
    """Derive a KnownRoute; `place` is ignored if the route has a name."""
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
        """Whether both are the same as canonical JSON: white space and the order of keys do not matter."""
        return (
            self.settings == other.settings
            and [*self.backends.values()] == [*other.backends.values()]
            and (
                [*self.routes] == [*other.routes]
                or [route.text for route in self.routes.values()] == [route.text for route in other.routes.values()]
            )
        )

    def tls_parts(self) -> Iterator[tuple[str, TLSPart]]:
        """All TLS settings, each with the path of its field."""
        of_routes = (route.tls for route in self.routes.values())
        return placed_tls_parts(self.settings.listeners, self.backends.values(), of_routes)

    def document(self, version: Version | Unset) -> Document:
        """The document as one struct."""
        routes = tuple(known.route for known in self.routes.values())
        return Document(**self._settings(version), backends=tuple(self.backends.values()), routes=routes)

    def encode(self, version: Version | Unset) -> bytes:
        """The document as JSON, private keys included. Equal contents give equal bytes."""
        backends = tuple(msgspec.Raw(_encode(backend)) for backend in self.backends.values())
        routes = tuple(known.text for known in self.routes.values())
        return _encode(Outline(**self._settings(version), backends=backends, routes=routes))

    def hash(self) -> int:
        """A 32-bit hash of the content, equal in every process."""
        return int.from_bytes(hashlib.sha256(self.encode(msgspec.UNSET)).digest()[:_HASH_BYTES])

    def _settings(self, version: Version | Unset) -> dict[str, Any]:
        return {**{name: getattr(self.settings, name) for name in Settings.__struct_fields__}, "version": version}
