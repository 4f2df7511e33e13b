"""What conditions ask of a request: header fields and query parameters, each looked up once per request.

However many conditions there are, header fields are searched a few times at most, query parameters are split once and
each is decoded once, and all regular expressions together read at most MAX_FITTED_BYTES. Otherwise a single request
with thousands of fields or parameters, or with a very long one, would keep a worker busy for seconds.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.pattern import Automaton
from proxy.routing.cors import REQUEST_HEADERS, REQUEST_METHOD
from proxy.routing.head import Head, header, joined_values

MAX_FITTED_BYTES: Final = 1024 * 1024
"""Takes about 10 ms, and is many times what ordinary requests need."""
_FEW_NAMES: Final = 4
"""Searching for so many names one by one is cheaper than grouping all fields by name."""


class TooMuchToFit(Exception):
    """The regular expressions would have to read more than MAX_FITTED_BYTES to find the request's rule."""


class Asked:
    """What has been looked up of one request; `query` is the part of its path after the `?`."""

    __slots__ = (
        "_announced",
        "_by_name",
        "_head",
        "_headers",
        "_left_bytes",
        "_parameters",
        "_query",
        "_values",
        "method",
    )

    def __init__(self, query: bytes, head: Head, max_fitted_bytes: int = MAX_FITTED_BYTES) -> None:
        self.method = head.method
        self._left_bytes = max_fitted_bytes
        self._query = query
        self._head = head
        self._headers: dict[bytes, bytes | None] = {}
        self._by_name: dict[bytes, list[bytes]] | None = None
        self._parameters: Mapping[bytes, bytes] | None = None
        self._values: dict[bytes, bytes | None] = {}
        """Decoded values of query parameters that were asked for; None: absent."""
        self._announced: frozenset[bytes] | None = None

    def fits(self, expression: Automaton, value: bytes) -> bool:
        """Whether `expression` matches the whole value. Raises TooMuchToFit."""
        is_fit, read_bytes = expression.read(value)
        self._left_bytes -= read_bytes
        if self._left_bytes < 0:
            raise TooMuchToFit
        return is_fit

    def header(self, name: bytes) -> bytes | None:
        """See `head.header`."""
        headers = self._headers
        if name not in headers:
            headers[name] = self._found(name)
        return headers[name]

    def _found(self, name: bytes) -> bytes | None:
        if len(self._headers) < _FEW_NAMES:
            return header(self._head, name)
        if self._by_name is None:
            self._by_name = {}
            for key, value in self._head.fields:
                self._by_name.setdefault(key, []).append(value)
        return joined_values(self._head, name, self._by_name.get(name, ()))

    @property
    def announced_method(self) -> bytes | None:
        """The method that a preflight announces; None if this is not a preflight, see `cors.is_preflight`."""
        if self.method != b"OPTIONS" or self.header(b"origin") is None:
            return None
        return self.header(REQUEST_METHOD)

    def announces(self, name: bytes) -> bool:
        """Whether this is a preflight for a request with a header field of this name, whatever its value."""
        if self.announced_method is None:
            return False
        if self._announced is None:
            names = self.header(REQUEST_HEADERS) or b""
            self._announced = frozenset(listed.strip() for listed in names.lower().split(b","))
        return name in self._announced

    def parameter(self, name: bytes) -> bytes | None:
        """The first value of a query parameter, decoded as an HTML form (`+` is a space); None if it is absent."""
        values = self._values
        if name not in values:
            if self._parameters is None:
                self._parameters = _parameters_of(self._query)
            value = self._parameters.get(name)
            values[name] = _decoded(value) if value is not None and _is_encoded(value) else value
        return values[name]


def _parameters_of(query: bytes) -> dict[bytes, bytes]:
    """The first value of each parameter, not decoded; a name that is encoded is listed in both forms."""
    # In reverse, so that the first overwrites the others.
    pairs = [pair.partition(b"=") for pair in reversed(query.split(b"&")) if pair]
    if not _is_encoded(query):
        return {name: value for name, _, value in pairs}
    found: dict[bytes, bytes] = {}
    for name, _, value in pairs:
        found[name] = value
        if _is_encoded(name):
            found[_decoded(name)] = value
    return found


def _is_encoded(text: bytes) -> bool:
    return b"%" in text or b"+" in text


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))
