"""The document of a data plane, kept as encoded parts in the order of their names.

A changed part is encoded alone. The document's bytes are joined from the parts, and are those that msgspec makes of the
same `Document`: equal parts give equal bytes, however they came.
"""

import hashlib

import msgspec

from proxy import document
from tunnelgw.model.meta import Key
from tunnelgw.model.own import ProxySettings
from tunnelgw.translate.classes import class_setup, settings_class
from tunnelgw.translate.encodedparts import EncodedParts
from tunnelgw.translate.gateways import SHARED, gateway_setup, gateways_of
from tunnelgw.translate.listeners import gateway_documents
from tunnelgw.translate.queries import View
from tunnelgw.translate.settings import fit

_encode = msgspec.json.Encoder().encode


def plane_settings(view: View, data_plane: str) -> document.Settings:
    """A query: all of a document but backends and routes; of its listeners the oldest Gateway's come first."""
    gateways: tuple[Key, ...] = view.ask(gateways_of, data_plane)
    listeners = tuple(listener for key in gateways for listener in view.ask(gateway_documents, key))
    return msgspec.structs.replace(fit(_wanted_settings(view, data_plane)).settings, listeners=listeners)


def _wanted_settings(view: View, data_plane: str) -> ProxySettings | None:
    """A class or a Gateway whose parameters have a problem has none."""
    if data_plane != SHARED:
        own = view.ask(gateway_setup, Key(*data_plane.split("/", 1)))
        return own.proxy if own else None
    name = view.ask(settings_class, "")
    shared = view.ask(class_setup, name) if name else None
    return shared.config.proxy if shared else None


class DataPlaneDocument:
    """What a data plane is to serve."""

    def __init__(self) -> None:
        self.settings = document.Settings()
        self._backends = EncodedParts()
        self._routes = EncodedParts()

    def put_route(self, route: document.Route) -> None:
        """Add it, or replace the one of its kind and name."""
        self._routes.put(_route_name(route), _encode(route))

    def remove_route(self, route: document.Route) -> None:
        self._routes.remove(_route_name(route))

    def put_backend(self, backend: document.Backend) -> None:
        """Add it, or replace the one of its name."""
        self._backends.put(backend.name, _encode(backend))

    def remove_backend(self, name: str) -> None:
        self._backends.remove(name)

    def encode(self, version: int) -> bytes:
        """The whole document, for `PUT /config`."""
        return b"".join((b'{"version":%d' % version, *self.tail()))

    def tail(self) -> tuple[bytes, ...]:
        """What follows the version in it, in pieces; those that no edit has touched are the same objects again."""
        chunks = []
        settings = _encode(self.settings)
        if settings != b"{}":
            chunks += [b",", settings[1:-1]]
        for name, parts in ((b',"backends":[', self._backends), (b',"routes":[', self._routes)):
            if parts:
                chunks += [name, *parts.chunks(), b"]"]
        chunks.append(b"}")
        return tuple(chunks)

    def digest(self) -> str:
        """Equal digests, equal tails."""
        # What an edit leaves alone is not hashed again. Each part has a fixed length, so none runs into the next.
        settings = hashlib.sha256(_encode(self.settings)).digest()
        return hashlib.sha256(settings + self._backends.digest() + self._routes.digest()).hexdigest()


def _route_name(route: document.Route) -> str:
    return f"{route.name} {route.kind}"
