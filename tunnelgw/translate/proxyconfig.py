"""The document of a data plane, kept as encoded parts, sorted by name.

Only changed parts are encoded again. The bytes of the document are joined from the parts, and equal msgspec's encoding
of the same `Document`: equal parts give equal bytes, whatever the order of the changes was.
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
    """A query: all of a document except backends and routes. The oldest Gateway's listeners come first."""
    gateways: tuple[Key, ...] = view.ask(gateways_of, data_plane)
    listeners = tuple(listener for key in gateways for listener in view.ask(gateway_documents, key))
    return msgspec.structs.replace(fit(_wanted_settings(view, data_plane)).settings, listeners=listeners)


def _wanted_settings(view: View, data_plane: str) -> ProxySettings | None:
    """None: there are none, or the parameters of the class or Gateway have a problem."""
    if data_plane != SHARED:
        own = view.ask(gateway_setup, Key(*data_plane.split("/", 1)))
        return own.proxy if own else None
    name = view.ask(settings_class, "")
    shared = view.ask(class_setup, name) if name else None
    return shared.config.proxy if shared else None


class DataPlaneDocument:
    """What a data plane must serve."""

    def __init__(self) -> None:
        self.settings = document.Settings()
        self._backends = EncodedParts()
        self._routes = EncodedParts()

    def put_route(self, route: document.Route) -> None:
        """Add a route, or replace the one with its kind and name."""
        self._routes.put(_route_name(route), _encode(route))

    def remove_route(self, route: document.Route) -> None:
        self._routes.remove(_route_name(route))

    def put_backend(self, backend: document.Backend) -> None:
        """Add a backend, or replace the one with its name."""
        self._backends.put(backend.name, _encode(backend))

    def remove_backend(self, name: str) -> None:
        self._backends.remove(name)

    def encode(self, version: int) -> bytes:
        """The whole document, for `PUT /config`."""
        return b"".join((b'{"version":%d' % version, *self.tail()))

    def tail(self) -> tuple[bytes, ...]:
        """What follows the version in the document, in pieces. Pieces that no change has touched are the same objects
        as before."""
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
        """Equal digests mean equal tails."""
        # Unchanged parts are not hashed again. All digests have the same length, so they can be joined without
        # separators.
        settings = hashlib.sha256(_encode(self.settings)).digest()
        return hashlib.sha256(settings + self._backends.digest() + self._routes.digest()).hexdigest()


def _route_name(route: document.Route) -> str:
    return f"{route.name} {route.kind}"
