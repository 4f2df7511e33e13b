"""The matches of one hostname, indexed by path: exact paths and prefixes are dict keys.

Every prefix of the request's path is looked up, longest first, so other paths cost nothing. Matches under the same key
differ only in their other conditions, and are kept in order of rank, as tuples that copies of an index share.
"""

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TypeAlias, TypeVar

from proxy.routing.asked import Asked
from proxy.routing.head import Head
from proxy.routing.match import CallKind, GrpcMatch, HttpMatch, Match, PathKind

_by_rank = attrgetter("rank")
_M = TypeVar("_M", bound=Match)
_Change: TypeAlias = Callable[[tuple[_M, ...], _M], tuple[_M, ...]]


class PathIndex:
    """The matches of one hostname."""

    __slots__ = ("_exact", "_longest", "_patterns", "_prefixes", "_root", "calls")

    def __init__(self) -> None:
        self.calls: CallIndex | None = None
        self._exact: dict[bytes, tuple[HttpMatch, ...]] = {}
        self._patterns: tuple[HttpMatch, ...] = ()
        self._prefixes: dict[bytes, tuple[HttpMatch, ...]] = {}
        self._longest = 0
        """Length of the longest prefix or more, so that longer prefixes of a long path are not looked up. `remove` does
        not lower it, since finding the longest again after each of thousands of removals would take seconds; `copy`
        does."""
        self._root: tuple[HttpMatch, ...] = ()

    def copy(self) -> "PathIndex":
        index = PathIndex()
        index.calls = None if self.calls is None else self.calls.copy()
        index._exact = self._exact.copy()
        index._patterns = self._patterns
        index._prefixes = self._prefixes.copy()
        index._longest = max(map(len, self._prefixes), default=0)
        index._root = self._root
        return index

    @property
    def is_empty(self) -> bool:
        return not (self._exact or self._patterns or self._prefixes or self._root or self.calls is not None)

    def add(self, match: Match) -> None:
        if isinstance(match, GrpcMatch):
            self.calls = self.calls or CallIndex()
            self.calls.add(match)
        elif isinstance(match, HttpMatch):
            self._change(match, _with)
            if match.kind is PathKind.PREFIX:
                self._longest = max(self._longest, len(match.path))

    def remove(self, match: Match) -> None:
        """One that was added."""
        if isinstance(match, GrpcMatch):
            if self.calls is not None:
                self.calls.remove(match)
                self.calls = None if self.calls.is_empty else self.calls
        elif isinstance(match, HttpMatch):
            self._change(match, _without)

    def _change(self, match: HttpMatch, change: "_Change[HttpMatch]") -> None:
        if match.kind is PathKind.EXACT:
            _change_under(self._exact, match, change)
        elif match.kind is PathKind.PATTERN:
            self._patterns = change(self._patterns, match)
        elif match.path:
            _change_under(self._prefixes, match, change)
        else:
            self._root = change(self._root, match)

    def find(self, path: bytes, query: bytes, head: Head, asked: Asked | None = None) -> HttpMatch | Asked | None:
        """The best match of a request with a normalised path.

        Without a match, the `Asked` to pass to the next index, so that what is known about the request is kept; None
        if none was needed. Raises TooMuchToFit.
        """
        for match in self._exact.get(path, ()):
            if match.is_open or match.accepts(asked := asked or Asked(query, head)):
                return match
        if self._patterns:
            asked = asked or Asked(query, head)
            for match in self._patterns:
                if match.accepts_path(path, asked) and (match.is_open or match.accepts(asked)):
                    return match
        longest = self._longest
        if longest:
            end = len(path)
            if end > longest:
                end = path.rfind(b"/", 0, longest + 1)
            prefixes = self._prefixes
            while end > 0:
                for match in prefixes.get(path[:end], ()):
                    if match.is_open or match.accepts(asked := asked or Asked(query, head)):
                        return match
                end = path.rfind(b"/", 0, end)
        for match in self._root:
            if match.is_open or match.accepts(asked := asked or Asked(query, head)):
                return match
        return asked

    def __iter__(self) -> Iterator[Match]:
        for matches in (*self._exact.values(), self._patterns, *self._prefixes.values(), self._root):
            yield from matches
        if self.calls is not None:
            yield from self.calls


class CallIndex:
    """The gRPC matches of one hostname."""

    __slots__ = ("_exact", "_others", "_services")

    def __init__(self) -> None:
        self._exact: dict[bytes, tuple[GrpcMatch, ...]] = {}
        self._services: dict[bytes, tuple[GrpcMatch, ...]] = {}
        self._others: tuple[GrpcMatch, ...] = ()

    def copy(self) -> "CallIndex":
        index = CallIndex()
        index._exact = self._exact.copy()
        index._services = self._services.copy()
        index._others = self._others
        return index

    @property
    def is_empty(self) -> bool:
        return not (self._exact or self._services or self._others)

    def add(self, match: GrpcMatch) -> None:
        self._change(match, _with)

    def remove(self, match: GrpcMatch) -> None:
        """One that was added."""
        self._change(match, _without)

    def _change(self, match: GrpcMatch, change: "_Change[GrpcMatch]") -> None:
        if match.kind is CallKind.EXACT:
            _change_under(self._exact, match, change)
        elif match.kind is CallKind.SERVICE:
            _change_under(self._services, match, change)
        else:
            self._others = change(self._others, match)

    def find(self, path: bytes, asked: Asked) -> GrpcMatch | None:
        """The best match of a gRPC request; `path` is /service/method. Raises TooMuchToFit."""
        cut = path.rfind(b"/")
        service = path[:cut]
        for matches in (self._exact.get(path, ()), self._services.get(service, ())):
            for match in matches:
                if match.is_open or match.accepts(asked):
                    return match
        for match in self._others:
            if match.accepts_call(service[1:], path[cut + 1 :], asked) and match.accepts(asked):
                return match
        return None

    def __iter__(self) -> Iterator[Match]:
        for matches in (*self._exact.values(), *self._services.values(), self._others):
            yield from matches


def _with(matches: tuple[_M, ...], match: _M) -> tuple[_M, ...]:
    """`matches` with `match` inserted in order of rank. Ranks are distinct, so the order of calls does not matter."""
    place = bisect(matches, match.rank, key=_by_rank)
    return (*matches[:place], match, *matches[place:])


def _without(matches: tuple[_M, ...], match: _M) -> tuple[_M, ...]:
    place = bisect_left(matches, match.rank, key=_by_rank)
    return (*matches[:place], *matches[place + 1 :])


def _change_under(group: dict[bytes, tuple[_M, ...]], match: _M, change: _Change[_M]) -> None:
    matches = change(group.get(match.path, ()), match)
    if matches:
        group[match.path] = matches
    else:
        del group[match.path]
