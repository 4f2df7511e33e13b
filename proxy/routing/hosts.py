"""Finds the best match for a host and path without looking at the matches of other hosts and paths.

A `RouteSet` holds the routes of one listener. Exact hosts are looked up in a dict, then wildcards label by label, the
longest first; each hostname has a `PathIndex`. A request thus meets matches in exactly their order of precedence, and
the first that accepts it wins.

Matches can be added and removed in small steps, each of which leaves the set consistent, so a table can be built in
slices. The next table begins with copies of the previous table's sets. A copy shares the index of each hostname until
it changes that one: so the cost of a change depends on its size alone, and a table in use is never modified.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from proxy.routing.asked import Asked
from proxy.routing.head import Head, header
from proxy.routing.indexes import PathIndex
from proxy.routing.match import HttpMatch, Match


class RouteSet:
    """The routes of one listener."""

    __slots__ = ("_any", "_call_hosts", "_own", "_replaced", "_wildcards", "exact")

    def __init__(self, replaced: list[object] | None = None) -> None:
        """`replaced` collects the indexes that this set no longer shares with the set that it was copied from."""
        self.exact: dict[bytes, PathIndex] = {}
        """By host in lower case."""
        self._wildcards: dict[bytes, PathIndex] = {}
        """By the part after the star, such as b".example.com"."""
        self._any: PathIndex | None = None
        self._call_hosts = 0
        """Number of hostnames with gRPC matches."""
        self._own: set[bytes] = set()
        """Hostnames whose index belongs to this set alone, so may be changed."""
        self._replaced: list[object] = [] if replaced is None else replaced

    def copy(self, replaced: list[object]) -> "RouteSet":
        """A copy that may be changed while this set is in use. An index is copied only when it is first changed."""
        routes = RouteSet(replaced)
        routes.exact = self.exact.copy()
        routes._wildcards = self._wildcards.copy()
        routes._any = self._any
        routes._call_hosts = self._call_hosts
        return routes

    def add(self, hostname: str, matches: Iterable[Match]) -> None:
        """Add matches of a route under one of its hostnames; an empty hostname means every host."""
        index = self._owned(hostname.encode())
        had_calls = index.calls is not None
        for match in matches:
            index.add(match)
        self._call_hosts += (index.calls is not None) - had_calls

    def remove(self, hostname: str, matches: Iterable[Match]) -> None:
        """Remove matches that were added under this hostname."""
        key = hostname.encode()
        index = self._owned(key)
        had_calls = index.calls is not None
        for match in matches:
            index.remove(match)
        self._call_hosts += (index.calls is not None) - had_calls
        if index.is_empty:
            self._put(key, None)

    def seal(self) -> None:
        """The set is complete. From now on its indexes may be shared, so they must not be changed."""
        self._own = set()
        self._replaced = []

    def _owned(self, hostname: bytes) -> PathIndex:
        index = self._get(hostname)
        if index is None or hostname not in self._own:
            if index is None:
                index = PathIndex()
            else:
                self._replaced.append(index)
                index = index.copy()
            self._put(hostname, index)
            self._own.add(hostname)
        return index

    def _get(self, hostname: bytes) -> PathIndex | None:
        if not hostname:
            return self._any
        if hostname.startswith(b"*."):
            return self._wildcards.get(hostname[1:])
        return self.exact.get(hostname)

    def _put(self, hostname: bytes, index: PathIndex | None) -> None:
        if not hostname:
            self._any = index
            return
        group, key = (self._wildcards, hostname[1:]) if hostname.startswith(b"*.") else (self.exact, hostname)
        if index is not None:
            group[key] = index
        else:
            del group[key]

    def find(self, host: bytes, path: bytes, query: bytes, head: Head) -> Match | None:
        """The best match. The most specific hostname goes first, the others are tried if nothing under it accepts.

        Raises TooMuchToFit.
        """
        if self._call_hosts and is_grpc(head):
            return self._find_call(host, path, query, head)
        asked: Asked | None = None
        index = self.exact.get(host)
        if index is not None:
            found = index.find(path, query, head)
            if isinstance(found, HttpMatch):
                return found
            asked = found
        if self._wildcards:
            for index in self._covering(host):
                found = index.find(path, query, head, asked)
                if isinstance(found, HttpMatch):
                    return found
                asked = found
        if self._any is None:
            return None
        found = self._any.find(path, query, head, asked)
        return found if isinstance(found, HttpMatch) else None

    def _find_call(self, host: bytes, path: bytes, query: bytes, head: Head) -> Match | None:
        asked = Asked(query, head)
        for _, index in self.indexes_of(host):
            call = None if index.calls is None else index.calls.find(path, asked)
            if call is not None:
                return call
            found = index.find(path, query, head, asked)
            if isinstance(found, HttpMatch):
                return found
        return None

    def clear(self) -> None:
        """Drop all indexes at once. Cheap only while others still hold them."""
        self.exact.clear()
        self._wildcards.clear()
        self._any = None

    def let_go(self, step: int) -> Iterator[None]:
        """Drop indexes that nobody else holds, `step` of them at a time, since freeing them takes long."""
        yield from emptied(self.exact, step)
        yield from emptied(self._wildcards, step)
        self._any = None

    def indexes_of(self, host: bytes) -> Iterator[tuple[str, PathIndex]]:
        """The hostnames that cover `host`, with their indexes, most specific first."""
        if host in self.exact:
            yield host.decode("latin-1"), self.exact[host]
        dot = host.find(b".")
        while dot >= 0:
            suffix = host[dot:]
            if suffix in self._wildcards:
                yield "*" + suffix.decode("latin-1"), self._wildcards[suffix]
            dot = host.find(b".", dot + 1)
        if self._any is not None:
            yield "", self._any

    def _covering(self, host: bytes) -> Iterator[PathIndex]:
        dot = host.find(b".")
        while dot >= 0:
            index = self._wildcards.get(host[dot:])
            if index is not None:
                yield index
            dot = host.find(b".", dot + 1)

    def __iter__(self) -> Iterator[tuple[str, Match]]:
        """All matches, each with its hostname, in no particular order."""
        for host, index in self.exact.items():
            yield from ((host.decode(), match) for match in index)
        for suffix, index in self._wildcards.items():
            yield from (("*" + suffix.decode(), match) for match in index)
        if self._any is not None:
            yield from (("", match) for match in self._any)


def emptied(group: dict[Any, Any], step: int) -> Iterator[None]:
    """Empty `group`, `step` entries at a time."""
    while group:
        for _ in range(min(step, len(group))):
            group.popitem()
        yield


def is_grpc(head: Head) -> bool:
    """Whether this is a gRPC call. gRPC-Web, whose content type begins the same way, counts as plain HTTP."""
    content_type = header(head, b"content-type")
    return (
        content_type is not None
        and content_type.startswith(b"application/grpc")
        and content_type[16:17] in (b"", b"+", b";")
    )
