"""A small world for the rules of routes: objects in, document and findings out, and what becomes of requests then.

Listeners and the attachment of routes play no part: every route is served by one listener, or by those a case names.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from proxy import document, routing
from tunnelgw.model.conditions import Finding
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.model.snapshot import SERVICE_NAME_LABEL, Snapshot
from tunnelgw.options import DEFAULT_CONTROLLER, DEFAULT_NAMESPACE
from tunnelgw.translate.backends import BackendId, backend
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.queries import Queries
from tunnelgw.translate.rules import RouteContent, RouteId, route_content

NAMESPACE = "apps"
ROUTE_KINDS = {Kind.HTTP_ROUTE: "http", Kind.GRPC_ROUTE: "grpc"}
WEB = {"name": "web", "port": 80}
CERTIFICATE = {
    "certificate": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
    "privateKey": "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n",
}
"""A form that the document takes; these listeners are never opened."""

_CLUSTER_KINDS = frozenset(kind for kind, resource in RESOURCES.items() if not resource.is_namespaced)


def object_of(plain: dict[str, Any]) -> tuple[Kind, Object]:
    """An object as its author writes it; in namespace `apps` unless it says otherwise."""
    kind = Kind(plain["kind"])
    metadata = dict(plain["metadata"])
    if kind not in _CLUSTER_KINDS:
        metadata.setdefault("namespace", NAMESPACE)
    return kind, msgspec.json.decode(msgspec.json.encode({**plain, "metadata": metadata}), type=RESOURCES[kind].struct)


def service(name: str, addresses: Iterable[str] = (), namespace: str = NAMESPACE, **port: Any) -> list[dict[str, Any]]:
    """A Service with port 80, and its EndpointSlice with port 8080."""
    return [
        {
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"port": 80, **port}]},
        },
        {
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": namespace, "labels": {SERVICE_NAME_LABEL: name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]} for address in addresses],
            "ports": [{"port": 8080, "name": port.get("name", "")}],
        },
    ]


def queries_of(snapshot: Snapshot) -> Queries:
    return Queries(snapshot, DEFAULT_CONTROLLER, DEFAULT_NAMESPACE)


def translation_of(snapshot: Snapshot) -> Translation:
    return Translation(snapshot, DEFAULT_CONTROLLER, DEFAULT_NAMESPACE)


class World:
    """The objects with all that is derived from them."""

    def __init__(self, items: Iterable[tuple[Kind, Object]]) -> None:
        self.snapshot = Snapshot.of(items)
        self.queries = queries_of(self.snapshot)

    def content(self, kind: Kind, key: Key) -> RouteContent:
        return self.queries.ask(route_content, RouteId(kind, key, self._gateway_of(kind, key)))

    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """By kind and key of the route."""
        return {f"{kind} {key}": self.content(kind, key).findings for kind, key, _ in self._routes()}

    def document(self, listeners: Sequence[dict[str, Any]] = (WEB,)) -> document.Document:
        """All routes and their backends, through the proxy's own reader: what it refuses is an error here."""
        used: dict[BackendId, None] = {}
        routes: list[document.Route] = []
        for kind, key, route in self._routes():
            content = self.content(kind, key)
            used |= dict.fromkeys(content.backends)
            if content.rules:
                created_at = route.metadata.creation_timestamp or document.UNSET
                sections = tuple(ref.section_name for ref in route.spec.parent_refs if ref.section_name)
                kind_word: Literal["grpc", "http"] = "grpc" if kind is Kind.GRPC_ROUTE else "http"
                routes.append(
                    document.Route(str(key), kind_word, created_at, route.spec.hostnames, sections, rules=content.rules)
                )
        return document.decode(
            msgspec.json.encode(
                {
                    "listeners": listeners,
                    "backends": [self.queries.ask(backend, id_) for id_ in used],
                    "routes": routes,
                }
            )
        )

    def route_ids(self) -> list[tuple[Kind, Key]]:
        return [(kind, key) for kind, key, _ in self._routes()]

    def _routes(self) -> Iterable[tuple[Kind, Key, HttpRoute | GrpcRoute]]:
        for kind in ROUTE_KINDS:
            for key, route in sorted(self.snapshot.all(kind).items()):
                assert isinstance(route, HttpRoute | GrpcRoute)
                yield kind, key, route

    def _gateway_of(self, kind: Kind, key: Key) -> Key:
        route = self.snapshot.all(kind)[key]
        assert isinstance(route, HttpRoute | GrpcRoute)
        refs = route.spec.parent_refs
        return Key(refs[0].namespace or key.namespace, refs[0].name) if refs else Key(NAMESPACE, "gw")


def in_words(findings: Iterable[Finding]) -> list[str]:
    """As golden cases say it: `ResolvedRefs False BackendNotFound: what was seen and wanted`."""
    return [
        f"{finding.type} {finding.status} {finding.reason}{f': {finding.message}' if finding.message else ''}"
        for finding in findings
    ]


def outcome(table: routing.Table, door: str, head: routing.PlainHead, chance: float) -> dict[str, Any]:
    """What becomes of a request, in the words of golden cases."""
    decision = routing.decide(table, door, head, lambda: chance)
    match decision:
        case routing.Forward():
            return {
                "to": decision.backend.key,
                "path": decision.path.decode(),
                "host": decision.authority.decode(),
                "mirrors": sorted(mirror.key for mirror in decision.mirrors),
                "leave": f"{inquiry.plan.backend.key} {inquiry.path.decode()}" if (inquiry := decision.inquiry) else "",
            }
        case routing.Redirect():
            return {"to": decision.status_code, "location": decision.location.decode()}
    return {"to": decision.status_code, "grpc": decision.grpc_status}
