"""Reads one document after another, and decodes and checks only what has changed since the last.

A document with ten thousand routes usually differs from the previous one in a single route. Splitting it without
decoding its parts is cheap, and a part whose bytes have not changed is still valid, as long as the names that it refers
to still exist.
"""

from collections.abc import Iterable, Sequence
from itertools import count

import msgspec

from proxy.document.check import (
    Names,
    check_backend_names,
    check_backends,
    check_route_names,
    check_routes,
    check_settings,
    names_of,
)
from proxy.document.codec import decode, decode_backend, decode_outline, decode_route, settings_of
from proxy.document.content import Content, KnownRoute, known_route
from proxy.document.model import Settings, Version
from proxy.document.part import UNSET, Unset
from proxy.document.problems import DocumentError, Findings
from proxy.document.repeats import LONGEST_BY_HAND_BYTES, find_repeated_fields
from proxy.document.routes import Route
from proxy.document.targets import Backend

_RouteName = tuple[str, str]
"""Kind and name."""


class Reading(msgspec.Struct, frozen=True):
    """A document that was read."""

    version: Version | Unset
    content: Content


class Reader:
    """Accepts and refuses the same documents as `decode`, except for repeated fields, which it does not look for in
    documents over LONGEST_BY_HAND_BYTES.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._content = Content(Settings(), {}, {})
        """The last valid content; the attributes below belong to it."""
        self._backends: dict[bytes, Backend] = {}
        """By their bytes as received."""
        self._raws: tuple[msgspec.Raw, ...] = ()
        """The bytes of its routes as received, in the order of the document."""
        self._route_names: set[_RouteName] = set()

    def read(self, data: bytes) -> Reading:
        """Decode and check a document. Raises DocumentError with up to MAX_PROBLEMS problems."""
        try:
            return self._read(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DocumentError):
            # Rare. `decode` reports all problems, with the paths that they have in the whole document.
            decode(data)
            raise

    def _read(self, data: bytes) -> Reading:
        outline = decode_outline(data)
        findings = Findings()
        settings = msgspec.structs.replace(settings_of(outline), version=UNSET)
        if settings == self._content.settings:
            settings = self._content.settings
        else:
            check_settings(settings, findings)
        backends = self._read_backends(outline.backends, findings)
        by_name = {backend.name: backend for backend in backends.values()}
        if len(by_name) != len(outline.backends):
            check_backend_names(map(decode_backend, outline.backends), findings)
        routes, fresh = self._read_routes(outline.routes)
        content = Content(settings, by_name, {known.number: known for known in routes})
        check_routes(fresh, _names(content), findings)
        self._check_kept(content, findings)
        left, come = self._check_route_names(content, routes, findings)
        if len(data) <= LONGEST_BY_HAND_BYTES:
            find_repeated_fields(data, findings)
        findings.raise_if_any()
        self._content = content
        self._backends = backends
        self._raws = outline.routes
        self._route_names -= left
        self._route_names |= come
        return Reading(outline.version, content)

    def _read_backends(self, raws: Iterable[msgspec.Raw], findings: Findings) -> dict[bytes, Backend]:
        backends: dict[bytes, Backend] = {}
        fresh: list[Backend] = []
        for raw in raws:
            text = bytes(raw)
            backend = self._backends.get(text)
            if backend is None:
                backend = decode_backend(raw)
                fresh.append(backend)
            backends[text] = backend
        check_backends(fresh, findings)
        return backends

    def _read_routes(self, raws: tuple[msgspec.Raw, ...]) -> tuple[list[KnownRoute], list[Route]]:
        """All routes, and those of them that have to be checked.

        Routes at the beginning and the end have usually not changed, and comparing in order costs less than look-ups.
        """
        before = [*self._content.routes.values()]
        head = _equal(raws, self._raws)
        tail = _equal(raws[head:][::-1], self._raws[head:][::-1])
        last, last_before = len(raws) - tail, len(before) - tail
        moved = dict(zip(map(bytes, self._raws[head:last_before]), before[head:last_before], strict=True))
        routes = before[:head]
        fresh: list[Route] = []
        for place in range(head, len(raws)):
            raw = raws[place]
            known = before[place - last + last_before] if place >= last else moved.get(bytes(raw))
            if known is None:
                route = decode_route(raw)
                fresh.append(route)
                known = known_route(next(self._numbers), place, route)
            elif known.place not in (-1, place):
                # A route without a name is identified by its place, so this counts as another route.
                known = msgspec.structs.replace(known, number=next(self._numbers), place=place)
            routes.append(known)
        return routes, fresh

    def _check_kept(self, content: Content, findings: Findings) -> None:
        """Check unchanged routes that refer to listeners or backends which no longer exist."""
        before, now = _names(self._content), _names(content)
        lost_listeners, lost_backends = before[0] - now[0], before[1] - now[1]
        if not lost_listeners and not lost_backends:
            return
        stale = [
            known.route
            for known in content.routes.values()
            if not (lost_listeners.isdisjoint(known.route.listeners) and lost_backends.isdisjoint(known.backends))
        ]
        check_routes(stale, now, findings)

    def _check_route_names(
        self, content: Content, routes: list[KnownRoute], findings: Findings
    ) -> tuple[set[_RouteName], set[_RouteName]]:
        """Check that names are unique. Returns the names that were removed and those that were added."""
        before, now = self._content.routes, content.routes
        left = {_name_of(before[number]) for number in before.keys() - now.keys() if before[number].place < 0}
        newcomers = [_name_of(now[number]) for number in now.keys() - before.keys() if now[number].place < 0]
        come = set(newcomers)
        is_unique = len(come) == len(newcomers) and (come & self._route_names) <= left
        if not is_unique or len(now) != len(routes):
            check_route_names((known.route for known in routes), findings)
        return left, come


def _equal(some: Sequence[msgspec.Raw], others: Sequence[msgspec.Raw]) -> int:
    """The length of the common prefix."""
    return next(
        (place for place, (one, other) in enumerate(zip(some, others, strict=False)) if one != other),
        min(len(some), len(others)),
    )


def _name_of(known: KnownRoute) -> _RouteName:
    return known.route.kind, known.route.name or ""


def _names(content: Content) -> Names:
    return names_of(content.settings, content.backends.keys())
