"""The one spelling of hosts and paths, and what becomes of a path that is rewritten.

Requests are matched and forwarded in the same normal form, so no spelling slips past a rule and then means to the
backend what the rule was about. The normal form of a path:

1. `%` sequences of unreserved characters are decoded (`%61` is `a`), all others keep their encoding, in upper case:
   an encoded slash stays `%2F` and never separates elements. What a path may hold in no other way gets it: `{`, and
   the bytes of what is not ASCII. A `%` without two hexadecimal digits, and `%00`, are refused.
2. Several slashes in a row become one, unless the document says `mergeSlashes` false.
3. `.` and `..` elements are resolved; a path that climbs above the root is refused. So is `..;x`, which to servers of
   servlets is one more such element, and to others a name.
4. `\\` and `#`, which no path may contain and which backends read in different ways, are refused.

Everything else, and all of the query, passes byte for byte.
"""

import re
from functools import lru_cache

MAX_HOST_BYTES = 253 + len(".:65535")

_UNRESERVED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
_PLAIN = _UNRESERVED + b"!$&'()*+,;=:@/"
"""Characters that stand for themselves in a path (RFC 3986, 3.3)."""
_SPELLED = tuple(bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in range(256))
"""Each byte as a path holds it."""
_DIGITS = b"0123456789ABCDEFabcdef"
_SEQUENCES = {
    bytes((high, low)): bytes((byte,)) if byte in _UNRESERVED else b"%%%02X" % byte
    for high in _DIGITS
    for low in _DIGITS
    if (byte := int(bytes((high, low)), 16))
}
"""What follows a `%`, by what it is then; not that of NUL."""
_SLASHES = re.compile(rb"/{2,}")
_NORMAL = re.compile(rb"(?:/(?![/.])[A-Za-z0-9\-._~!$&'()*+,;=:@]*)+")


class UnusablePath(ValueError):
    """The path has no normal form."""


def host_of(authority: bytes) -> bytes:
    """The host in lower case without port and final dot; empty for what is too long to be a name."""
    return _host_of(authority) if len(authority) <= MAX_HOST_BYTES else b""


@lru_cache(maxsize=4096)
def _host_of(authority: bytes) -> bytes:
    host = authority.lower()
    if host.startswith(b"["):
        return host.partition(b"]")[0] + b"]"
    host = host.partition(b":")[0]
    return host[:-1] if host.endswith(b".") else host


def is_normal(path: bytes) -> bool:
    """Whether `normalise` would certainly leave the path as it is. This is what nearly all requests ask for."""
    return _NORMAL.fullmatch(path) is not None


def normalise(path: bytes, *, merge_slashes: bool) -> bytes:
    """The normal form of a request path. Raises UnusablePath."""
    if path[:1] != b"/" or b"\\" in path or b"#" in path:
        raise UnusablePath
    path = _spelled(path)
    if merge_slashes:
        path = _SLASHES.sub(b"/", path)
    return _resolved(path) if b"/." in path else path


def _spelled(path: bytes) -> bytes:
    """By tables: a path may consist of nothing but sequences, and others wait meanwhile."""
    if b"\0" in path:
        raise UnusablePath
    first, *others = path.split(b"%")
    pieces = [_encoded(first)]
    try:
        for other in others:
            pieces.append(_SEQUENCES[other[:2]])
            pieces.append(_encoded(other[2:]))
    except KeyError:
        raise UnusablePath from None
    return b"".join(pieces)


def _encoded(text: bytes) -> bytes:
    return b"".join(map(_SPELLED.__getitem__, text)) if text.translate(None, _PLAIN) else text


def _resolved(path: bytes) -> bytes:
    """`path` without its dot segments (RFC 3986, 5.2.4)."""
    elements = path.split(b"/")[1:]
    if elements[-1] in (b".", b".."):
        elements.append(b"")
    kept: list[bytes] = []
    for element in elements:
        if element == b"..":
            if not kept:
                raise UnusablePath
            kept.pop()
        elif element.startswith((b".;", b"..;")):
            raise UnusablePath
        elif element != b".":
            kept.append(element)
    return b"/" + b"/".join(kept)


def encoded(text: str) -> bytes:
    """A replacement of the document as bytes: what no path may hold is percent-encoded."""
    return b"".join(b"%%%02X" % byte if byte > 126 or byte <= 32 else bytes((byte,)) for byte in text.encode())


def rule_path(text: str) -> bytes:
    """An Exact or PathPrefix value of the document in the normal form of requests."""
    path = text.encode()
    return path if is_normal(path) else normalise(path, merge_slashes=False)


def with_full_path(replacement: bytes) -> bytes:
    return b"/" + replacement.lstrip(b"/")


def with_prefix(path: bytes, prefix: bytes, replacement: bytes) -> bytes:
    """`path` with its leading elements `prefix` exchanged; neither prefix nor result depend on trailing slashes.

    `prefix` has no trailing slash, so it is empty for `/`; the rest of the path keeps its own.
    """
    replacement = replacement.strip(b"/")
    rest = path[len(prefix) :]
    if not replacement:
        return rest or b"/"
    return b"/" + replacement + rest
