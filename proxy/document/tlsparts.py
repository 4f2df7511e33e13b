"""Finds the TLS settings of a document: in listeners, in named backends, and in targets described inside routes."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from proxy.document.listeners import Listener, ListenerTLS
from proxy.document.model import Document
from proxy.document.routes import BackendRef, Route
from proxy.document.targets import Backend, BackendTarget, BackendTLS

TLSPart: TypeAlias = ListenerTLS | BackendTLS


def tls_parts(document: Document) -> Iterator[tuple[str, TLSPart]]:
    """All TLS settings of a document, each with the path of its field."""
    return placed_tls_parts(document.listeners, document.backends, map(tls_parts_of, document.routes))


def placed_tls_parts(
    listeners: Iterable[Listener], backends: Iterable[Backend], of_routes: Iterable[Iterable[tuple[str, BackendTLS]]]
) -> Iterator[tuple[str, TLSPart]]:
    """Like `tls_parts`, for a document in pieces. `of_routes` has what `tls_parts_of` found in each route."""
    for place, listener in enumerate(listeners):
        if listener.tls:
            yield f"listeners[{place}].tls", listener.tls
    for place, backend in enumerate(backends):
        if backend.tls:
            yield f"backends[{place}].tls", backend.tls
    for place, parts in enumerate(of_routes):
        for path, tls in parts:
            yield f"routes[{place}].{path}", tls


def tls_parts_of(route: Route) -> Iterator[tuple[str, BackendTLS]]:
    """The TLS settings in a route, each with its path relative to the route."""
    for path, target in _placed_targets(route):
        if target.tls:
            yield f"{path}.tls", target.tls


def targets_of(route: Route) -> list[BackendTarget]:
    """Every target of a route: backends, mirrors and authorization servers."""
    references = [*route.backends]
    targets: list[BackendTarget] = []
    for rule in route.rules:
        references += rule.backends
        targets += [mirror.backend for mirror in rule.filters.request_mirrors]
        if rule.filters.external_auth:
            targets.append(rule.filters.external_auth.backend)
    targets += references
    targets += [mirror.backend for reference in references for mirror in reference.filters.request_mirrors]
    return targets


def _placed_targets(route: Route) -> Iterator[tuple[str, BackendTarget]]:
    yield from _targets_of(route.backends, "")
    for place, rule in enumerate(route.rules):
        at = f"rules[{place}]."
        for number, mirror in enumerate(rule.filters.request_mirrors):
            yield f"{at}filters.requestMirrors[{number}].backend", mirror.backend
        if rule.filters.external_auth:
            yield f"{at}filters.externalAuth.backend", rule.filters.external_auth.backend
        yield from _targets_of(rule.backends, at)


def _targets_of(backends: tuple[BackendRef, ...], at: str) -> Iterator[tuple[str, BackendTarget]]:
    for place, backend in enumerate(backends):
        yield f"{at}backends[{place}]", backend
        for number, mirror in enumerate(backend.filters.request_mirrors):
            yield f"{at}backends[{place}].filters.requestMirrors[{number}].backend", mirror.backend
