"""Cross-origin resource sharing (the CORS protocol of the Fetch standard), as the `cors` filter configures it.

Preflights are answered here and never forwarded. Other requests are forwarded whatever their origin. CORS fields that
the backend wrote are removed from the response, since the rule decides; if the origin is allowed, the rule's are added.
If the response depends on the origin, `Vary: Origin` keeps caches from mixing them up. In the answer to a preflight it
also names the fields that are echoed, and is the same if the origin is denied: responses to OPTIONS are not cacheable
(RFC 9110, 9.3.7), but some caches can be told to keep them.
"""

import re

from proxy import document
from proxy.heads import Field
from proxy.routing.edits import HeaderEdits
from proxy.routing.head import Head, header

REQUEST_METHOD = b"access-control-request-method"
REQUEST_HEADERS = b"access-control-request-headers"
_ALLOW_ORIGIN = b"access-control-allow-origin"
_ALLOW_CREDENTIALS = b"access-control-allow-credentials"
_ALLOW_METHODS = b"access-control-allow-methods"
_ALLOW_HEADERS = b"access-control-allow-headers"
_EXPOSE_HEADERS = b"access-control-expose-headers"
_MAX_AGE = b"access-control-max-age"
_OURS = frozenset({_ALLOW_ORIGIN, _ALLOW_CREDENTIALS, _EXPOSE_HEADERS})
# Host of an Origin that a wildcard may cover: neither a path nor a list of origins.
_NAME = re.compile(rb"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_DEFAULT_PORTS = {b"http": b"80", b"https": b"443"}


def is_preflight(head: Head) -> bool:
    return (
        head.method == b"OPTIONS" and header(head, b"origin") is not None and header(head, REQUEST_METHOD) is not None
    )


class CorsPolicy:
    """A compiled `cors` filter."""

    __slots__ = (
        "_any_origin",
        "_credentials",
        "_expose",
        "_foreign_edits",
        "_headers",
        "_max_age",
        "_methods",
        "_origins",
        "_preflight_vary",
        "_suffixes",
        "_vary",
    )

    def __init__(self, spec: document.Cors) -> None:
        self._any_origin = "*" in spec.allow_origins
        self._origins: set[bytes] = set()
        self._suffixes: list[tuple[bytes, bytes, bytes]] = []
        """Origins with a wildcard: scheme, what the host must end in, port."""
        for text in spec.allow_origins:
            if text != "*":
                self._add_origin(text.encode())
        self._credentials = spec.allow_credentials
        self._methods = ", ".join(spec.allow_methods).encode()
        self._headers = ", ".join(spec.allow_headers).encode()
        self._expose = ", ".join(spec.expose_headers).encode()
        self._max_age = b"%d" % spec.max_age
        self._vary: tuple[Field, ...] = ()
        self._preflight_vary: tuple[Field, ...] = ()
        if not self._is_same_for_all:
            echoed = [b"Access-Control-Request-Method"] if self._is_echoed(self._methods) else []
            echoed += [b"Access-Control-Request-Headers"] if self._is_echoed(self._headers) else []
            self._vary = ((b"vary", b"Origin"),)
            self._preflight_vary = ((b"vary", b", ".join((b"Origin", *echoed))),)
        self._foreign_edits = HeaderEdits(_OURS, self._vary)

    @property
    def _is_same_for_all(self) -> bool:
        return self._any_origin and not self._credentials

    def _add_origin(self, text: bytes) -> None:
        scheme, host, port = _parts(text)
        if host == b"*":
            self._suffixes.append((scheme, b"", port))
        elif host.startswith(b"*."):
            self._suffixes.append((scheme, host[1:], port))
        else:
            self._origins.add(b"%s://%s:%s" % (scheme, host, port))

    def allows(self, origin: bytes) -> bool:
        if self._any_origin:
            return True
        scheme, host, port = _parts(origin)
        if b"%s://%s:%s" % (scheme, host, port) in self._origins:
            return True
        return _NAME.fullmatch(host) is not None and any(
            scheme == wanted_scheme and port == wanted_port and host.endswith(suffix) and len(host) > len(suffix)
            for wanted_scheme, suffix, wanted_port in self._suffixes
        )

    def preflight_answer(self, head: Head) -> tuple[int, tuple[Field, ...]]:
        """Status code and header fields of the answer to a preflight; 403 if its origin is not allowed."""
        origin = header(head, b"origin") or b""
        if not self.allows(origin):
            return 403, self._preflight_vary
        fields = self._shared_fields(origin, self._preflight_vary)
        method = self._or_requested(self._methods, header(head, REQUEST_METHOD))
        if method:
            fields.append((_ALLOW_METHODS, method))
        headers = self._or_requested(self._headers, header(head, REQUEST_HEADERS))
        if headers:
            fields.append((_ALLOW_HEADERS, headers))
        fields.append((_MAX_AGE, self._max_age))
        return 204, tuple(fields)

    def response_edits(self, head: Head) -> HeaderEdits | None:
        """The changes to the response of a request other than a preflight; None: no change."""
        origin = header(head, b"origin")
        if origin is None:
            return HeaderEdits(append=self._vary) if self._vary else None
        if not self.allows(origin):
            return self._foreign_edits
        return HeaderEdits(_OURS, tuple(self._shared_fields(origin, self._vary)))

    def _shared_fields(self, origin: bytes, vary: tuple[Field, ...]) -> list[Field]:
        fields = [(_ALLOW_ORIGIN, b"*" if self._is_same_for_all else origin), *vary]
        if self._credentials:
            fields.append((_ALLOW_CREDENTIALS, b"true"))
        # With credentials, browsers take `*` for the name of a header, so it is left out.
        if self._expose and not (self._expose == b"*" and self._credentials):
            fields.append((_EXPOSE_HEADERS, self._expose))
        return fields

    def _or_requested(self, configured: bytes, requested: bytes | None) -> bytes | None:
        """The methods or headers to allow."""
        return requested if self._is_echoed(configured) else configured

    def _is_echoed(self, configured: bytes) -> bool:
        """With credentials, browsers take `*` literally, so what the preflight asks for is echoed."""
        return configured == b"*" and self._credentials


def _parts(origin: bytes) -> tuple[bytes, bytes, bytes]:
    """Scheme, host and port of an origin, in lower case; an absent port is the scheme's default."""
    scheme, _, rest = origin.lower().partition(b"://")
    host, colon, port = rest.rpartition(b":")
    if not colon or not port.isdigit():
        host, port = rest, _DEFAULT_PORTS.get(scheme, b"")
    return scheme, host, port
