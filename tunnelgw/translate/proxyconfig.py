"""The document of a data plane, kept as encoded parts in the order of their names.

A changed part is encoded alone. The document's bytes are joined from the parts, and are those that
`proxy.document.encode` makes of the same document: equal parts give equal bytes, however they came.
"""

import bisect

import msgspec

from proxy import document
from tunnelgw.model.meta import Key
from tunnelgw.translate.gateways import gateways_of
from tunnelgw.translate.listeners import reports
from tunnelgw.translate.queries import View

_encode = msgspec.json.Encoder().encode


def plane_listeners(view: View, data_plane: str) -> tuple[document.Listener, ...]:
    """A query: the listeners of a document, the oldest Gateway's first."""
    gateways: tuple[Key, ...] = view.ask(gateways_of, data_plane)
    return tuple(listener for key in gateways for report in view.ask(reports, key) for listener in report.documents)


class _Parts:
    """Encoded parts by name, joined in the order of their names."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._encoded: dict[str, bytes] = {}

    def put(self, name: str, part: document.Route | document.Backend) -> None:
        if name not in self._encoded:
            bisect.insort(self._names, name)
        self._encoded[name] = _encode(part)

    def remove(self, name: str) -> None:
        if self._encoded.pop(name, None) is not None:
            del self._names[bisect.bisect_left(self._names, name)]

    def joined(self) -> bytes:
        return b",".join(map(self._encoded.__getitem__, self._names))

    def __len__(self) -> int:
        return len(self._names)


class DataPlaneDocument:
    """What a data plane is to serve."""

    def __init__(self) -> None:
        self.listeners: tuple[document.Listener, ...] = ()
        self._backends = _Parts()
        self._routes = _Parts()

    def put_route(self, route: document.Route) -> None:
        """Add it, or replace the one of its kind and name."""
        self._routes.put(_route_name(route), route)

    def remove_route(self, route: document.Route) -> None:
        self._routes.remove(_route_name(route))

    def put_backend(self, backend: document.Backend) -> None:
        """Add it, or replace the one of its name."""
        self._backends.put(backend.name, backend)

    def remove_backend(self, name: str) -> None:
        self._backends.remove(name)

    @property
    def route_count(self) -> int:
        return len(self._routes)

    def encode(self, version: int) -> bytes:
        """The whole document, for `PUT /config`."""
        fields = [b'"version":%d' % version]
        if self.listeners:
            fields.append(b'"listeners":' + _encode(self.listeners))
        for name, parts in ((b'"backends":[', self._backends), (b'"routes":[', self._routes)):
            if len(parts):
                fields.append(name + parts.joined() + b"]")
        return b"{" + b",".join(fields) + b"}"


def _route_name(route: document.Route) -> str:
    return f"{route.name} {route.kind}"
