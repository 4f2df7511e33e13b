"""Normalises hosts and paths, and rewrites paths.

Requests are matched and forwarded in the same normal form, so a client cannot bypass a rule by spelling a path in
another way that means the same to the backend. The normal form of a path:

1. Percent-encoded unreserved characters are decoded (`%61` is `a`); all other `%` sequences stay, in upper case, so an
   encoded slash stays `%2F` and never separates elements. Characters that a path must not contain literally, such as
   `{` and anything outside ASCII, are encoded. A `%` without two hexadecimal digits, and `%00`, are refused.
2. Repeated slashes become one, unless the document says `mergeSlashes` false.
3. `.` and `..` elements are resolved; a path that climbs above the root is refused. So are elements such as `..;x`,
   which servlet containers treat like `..`, and `..%2Fx`, which servers that decode paths before they resolve them do,
   such as nginx; to others they are names.
4. `\\` and `#`, which no path may contain and which backends interpret differently, are refused.

Everything else, and the whole query, passes byte for byte.
"""

import re
from functools import lru_cache

MAX_HOST_BYTES = 253 + len(".:65535")

_UNRESERVED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
_PLAIN = _UNRESERVED + b"!$&'()*+,;=:@/"
"""Characters that stand for themselves in a path (RFC 3986, 3.3)."""
_SPELLED = tuple(bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in range(256))
"""Maps each byte of a path to itself or its percent-encoding."""
_DIGITS = b"0123456789ABCDEFabcdef"
_SEQUENCES = {
    bytes((high, low)): bytes((byte,)) if byte in _UNRESERVED else b"%%%02X" % byte
    for high in _DIGITS
    for low in _DIGITS
    if (byte := int(bytes((high, low)), 16))
}
"""Maps the two digits after a `%` to the normal form of the sequence; 00 is missing, since it is refused."""
_SEQUENCE = re.compile(rb"(%[0-9A-Fa-f]{2})")
_SLASHES = re.compile(rb"/{2,}")
_HIDDEN_SLASH = re.compile(rb"%2F|%5C")
"""In a spelled path; what some servers decode to a slash, or treat as one, before they resolve dot segments."""
_NORMAL = re.compile(rb"(?:/(?![/.])[A-Za-z0-9\-._~!$&'()*+,;=:@]*)+")


class UnusablePath(ValueError):
    """The path has no normal form."""


def host_of(authority: bytes) -> bytes:
    """The host of an authority in lower case, without port and final dot; empty if it is too long for a host name."""
    return _host_of(authority) if len(authority) <= MAX_HOST_BYTES else b""


@lru_cache(maxsize=4096)
def _host_of(authority: bytes) -> bytes:
    host = authority.lower()
    if host.startswith(b"["):
        return host.partition(b"]")[0] + b"]"
    host = host.partition(b":")[0]
    return host[:-1] if host.endswith(b".") else host


def is_normal(path: bytes) -> bool:
    """A fast check whether `normalise` would not change the path; may say False though it would not."""
    return _NORMAL.fullmatch(path) is not None


def normalise(path: bytes, *, merge_slashes: bool) -> bytes:
    """The normal form of a request path. Raises UnusablePath."""
    if path[:1] != b"/" or b"\\" in path or b"#" in path:
        raise UnusablePath
    path = _spelled(path)
    if merge_slashes:
        path = _SLASHES.sub(b"/", path)
    if b"/." in path:
        path = _resolved(path)
    if _HIDDEN_SLASH.search(path) and _has_dot_segments(_HIDDEN_SLASH.sub(b"/", path)):
        raise UnusablePath
    return path


def _has_dot_segments(path: bytes) -> bool:
    return b"/." in path and any(element.partition(b";")[0] in (b".", b"..") for element in path.split(b"/"))


def _spelled(path: bytes) -> bytes:
    # With look-up tables, since a path may consist of `%` sequences only and other requests wait meanwhile.
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
    """A replacement path from the document as bytes; characters that a path must not contain are percent-encoded."""
    return b"".join(
        piece if _SEQUENCE.fullmatch(piece) else _encoded(piece) for piece in _SEQUENCE.split(text.encode())
    )


def rule_path(text: str) -> bytes:
    """An Exact or PathPrefix value from the document, in the normal form of requests."""
    path = text.encode()
    return path if is_normal(path) else normalise(path, merge_slashes=False)


def with_full_path(replacement: bytes) -> bytes:
    return b"/" + replacement.lstrip(b"/")


def with_prefix(path: bytes, prefix: bytes, replacement: bytes) -> bytes:
    """`path` with its leading elements `prefix` replaced. Slashes around `replacement` do not matter.

    `prefix` must have no trailing slash, so it is empty for `/`; the rest of the path keeps its trailing slash.
    """
    replacement = replacement.strip(b"/")
    rest = path[len(prefix) :]
    if not replacement:
        return rest or b"/"
    return b"/" + replacement + rest
