"""From host and path to the best match, without looking at the matches of other hosts and paths.

A `RouteSet` holds the routes of one listener. Hosts are looked up in a dict, wildcards label by label, the longest
first. Each hostname has a `PathIndex`: exact paths and prefixes are dict keys, and a path is asked for its own
prefixes, longest first, so siblings cost nothing. A list under one key holds the matches that differ in conditions
only, in order of rank. A request thus meets matches in exactly the order of their precedence, and the first that
accepts it wins.

Matches are added one at a time and each addition leaves the set complete, so a table can be built in small slices.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TypeVar

from proxy.routing.head import Head, header
from proxy.routing.match import CallKind, GrpcMatch, HttpMatch, Match, PathKind

_by_rank = attrgetter("rank")
_M = TypeVar("_M", bound=Match)


class PathIndex:
    """The matches of one hostname."""

    __slots__ = ("_exact", "_longest", "_patterns", "_prefixes", "_root", "calls")

    def __init__(self) -> None:
        self.calls: CallIndex | None = None
        self._exact: dict[bytes, list[HttpMatch]] = {}
        self._patterns: list[HttpMatch] = []
        self._prefixes: dict[bytes, list[HttpMatch]] = {}
        self._longest = 0
        """Length of the longest prefix, so that long paths are not asked for prefixes that nobody has."""
        self._root: list[HttpMatch] = []

    def add(self, match: Match) -> None:
        if isinstance(match, HttpMatch):
            self._add_http(match)
        elif isinstance(match, GrpcMatch):
            self.calls = self.calls or CallIndex()
            self.calls.add(match)

    def _add_http(self, match: HttpMatch) -> None:
        if match.kind is PathKind.EXACT:
            _add(self._exact, match)
        elif match.kind is PathKind.PATTERN:
            insort(self._patterns, match, key=_by_rank)
        elif match.path:
            _add(self._prefixes, match)
            self._longest = max(self._longest, len(match.path))
        else:
            insort(self._root, match, key=_by_rank)

    def find(self, path: bytes, query: bytes, head: Head) -> HttpMatch | None:
        """The best match of a request whose path is in normal form."""
        for match in self._exact.get(path, ()):
            if match.is_open or match.accepts(query, head):
                return match
        for match in self._patterns:
            if match.pattern.matches(path) and (match.is_open or match.accepts(query, head)):  # type: ignore[union-attr]
                return match
        longest = self._longest
        if longest:
            end = len(path)
            if end > longest:
                end = path.rfind(b"/", 0, longest + 1)
            prefixes = self._prefixes
            while end > 0:
                for match in prefixes.get(path[:end], ()):
                    if match.is_open or match.accepts(query, head):
                        return match
                end = path.rfind(b"/", 0, end)
        for match in self._root:
            if match.is_open or match.accepts(query, head):
                return match
        return None

    def __iter__(self) -> Iterator[Match]:
        for matches in (*self._exact.values(), self._patterns, *self._prefixes.values(), self._root):
            yield from matches
        if self.calls is not None:
            yield from self.calls


class CallIndex:
    """The gRPC matches of one hostname."""

    __slots__ = ("_exact", "_others", "_services")

    def __init__(self) -> None:
        self._exact: dict[bytes, list[GrpcMatch]] = {}
        self._services: dict[bytes, list[GrpcMatch]] = {}
        self._others: list[GrpcMatch] = []

    def add(self, match: GrpcMatch) -> None:
        if match.kind is CallKind.EXACT:
            _add(self._exact, match)
        elif match.kind is CallKind.SERVICE:
            _add(self._services, match)
        else:
            insort(self._others, match, key=_by_rank)

    def find(self, path: bytes, head: Head) -> GrpcMatch | None:
        """The best match of a gRPC request for `path`, /service/method."""
        cut = path.rfind(b"/")
        service = path[:cut]
        for matches in (self._exact.get(path, ()), self._services.get(service, ())):
            for match in matches:
                if match.is_open or match.accepts(b"", head):
                    return match
        for match in self._others:
            if match.accepts_call(service[1:], path[cut + 1 :]) and match.accepts(b"", head):
                return match
        return None

    def __iter__(self) -> Iterator[Match]:
        for matches in (*self._exact.values(), *self._services.values(), self._others):
            yield from matches


class RouteSet:
    """The routes of one listener."""

    __slots__ = ("_any", "_wildcards", "exact", "has_grpc")

    def __init__(self) -> None:
        self.exact: dict[bytes, PathIndex] = {}
        """By host in lower case."""
        self._wildcards: dict[bytes, PathIndex] = {}
        """By the part behind the star, such as b".example.com"."""
        self._any: PathIndex | None = None
        self.has_grpc = False

    def add(self, hostname: str, matches: Iterable[Match]) -> None:
        """Add the matches of a route under one of its hostnames; an empty one stands for every host."""
        index = self._index(hostname.encode())
        for match in matches:
            index.add(match)
        self.has_grpc = self.has_grpc or index.calls is not None

    def _index(self, hostname: bytes) -> PathIndex:
        if not hostname:
            self._any = self._any or PathIndex()
            return self._any
        group, key = (self._wildcards, hostname[1:]) if hostname.startswith(b"*.") else (self.exact, hostname)
        index = group.get(key)
        if index is None:
            index = group[key] = PathIndex()
        return index

    def find(self, host: bytes, path: bytes, query: bytes, head: Head) -> Match | None:
        """The best match; a better hostname always wins, and worse ones are tried when nothing under it accepts."""
        if self.has_grpc and is_grpc(head):
            return self._find_call(host, path, query, head)
        index = self.exact.get(host)
        if index is not None:
            found = index.find(path, query, head)
            if found is not None:
                return found
        if self._wildcards:
            for index in self._covering(host):
                found = index.find(path, query, head)
                if found is not None:
                    return found
        return None if self._any is None else self._any.find(path, query, head)

    def _find_call(self, host: bytes, path: bytes, query: bytes, head: Head) -> Match | None:
        for _, index in self.indexes_of(host):
            found = index.calls.find(path, head) if index.calls is not None else None
            found_http = found or index.find(path, query, head)
            if found_http is not None:
                return found_http
        return None

    def dismantle(self, step: int) -> Iterator[None]:
        """Let go of what the set holds, `step` hostnames at a time; it must not be asked any more."""
        for group in (self.exact, self._wildcards):
            while group:
                for _ in range(min(step, len(group))):
                    group.popitem()
                yield
        self._any = None

    def indexes_of(self, host: bytes) -> Iterator[tuple[str, PathIndex]]:
        """The hostnames that cover `host` with their indexes, best first."""
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
        """All matches with the hostname they stand under, in no special order."""
        for host, index in self.exact.items():
            yield from ((host.decode(), match) for match in index)
        for suffix, index in self._wildcards.items():
            yield from (("*" + suffix.decode(), match) for match in index)
        if self._any is not None:
            yield from (("", match) for match in self._any)


def is_grpc(head: Head) -> bool:
    """Whether this is a gRPC call; gRPC-Web, whose content type begins alike, is plain HTTP to us."""
    content_type = header(head, b"content-type")
    return (
        content_type is not None
        and content_type.startswith(b"application/grpc")
        and content_type[16:17] in (b"", b"+", b";")
    )


def _add(group: dict[bytes, list[_M]], match: _M) -> None:
    matches = group.get(match.path)
    if matches is None:
        group[match.path] = [match]
    else:
        insort(matches, match, key=_by_rank)
