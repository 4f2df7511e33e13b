"""What conditions besides the path are about: header fields and query parameters, looked for once a request.

However many conditions there are, a request is read through a few times for names of header fields, and once for all
query parameters, of which each is decoded once; and all regular expressions together read no more of it than
MAX_FITTED_BYTES: else one request with thousands of either, or with a long one, would keep a worker for seconds.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from proxy.pattern import Automaton
from proxy.routing.cors import REQUEST_HEADERS, REQUEST_METHOD
from proxy.routing.head import Head, header, joined_values

MAX_FITTED_BYTES: Final = 1024 * 1024
"""Which takes some 10 ms: many times what requests in use need."""
_FEW_NAMES: Final = 4
"""To look for so many one by one costs less than to sort all fields by name."""


class TooMuchToFit(Exception):
    """Which rule takes the request cannot be told in the time that a request may have."""


class Asked:
    """Of one request; `query` is the part of its path behind `?`."""

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
        """Of them, decoded."""
        self._announced: frozenset[bytes] | None = None

    def fits(self, expression: Automaton, value: bytes) -> bool:
        """Raises TooMuchToFit."""
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
        """Of the request that a preflight asks leave for; None if this is no preflight, see `cors.is_preflight`."""
        if self.method != b"OPTIONS" or self.header(b"origin") is None:
            return None
        return self.header(REQUEST_METHOD)

    def announces(self, name: bytes) -> bool:
        """Whether this is a preflight of a request with a header field of that name, whatever its value."""
        if self.announced_method is None:
            return False
        if self._announced is None:
            names = self.header(REQUEST_HEADERS) or b""
            self._announced = frozenset(listed.strip() for listed in names.lower().split(b","))
        return name in self._announced

    def parameter(self, name: bytes) -> bytes | None:
        """The first value of a query parameter, decoded as browsers encode forms; None when it is absent."""
        values = self._values
        if name not in values:
            if self._parameters is None:
                self._parameters = _parameters_of(self._query)
            value = self._parameters.get(name)
            values[name] = _decoded(value) if value is not None and _is_encoded(value) else value
        return values[name]


def _parameters_of(query: bytes) -> dict[bytes, bytes]:
    """The first value of each name, as sent and decoded; values are as sent."""
    # From the last to the first, which so overwrites the others.
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
