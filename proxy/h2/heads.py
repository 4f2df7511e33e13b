"""Heads: what a request or response starts with, the same shape received and sent (RFC 9113, 8.3).

Fields are a list of (name, value) byte pairs in wire order, names in lower case; pseudo-header fields are attributes.
The tuples are shared between requests through the field cache, so a list may be changed, a field is replaced.
"""

Field = tuple[bytes, bytes]
Fields = list[Field]

NONE_NEVER_INDEXED: frozenset[bytes] = frozenset()


class RequestHead:
    """`authority` is `:authority`, else the `host` field, else empty; a received head has no field `host`.

    An ordinary CONNECT has empty `scheme` and `path`. `protocol` is set for an extended CONNECT (RFC 8441).
    `never_indexed` names the fields that no hop may put into a compression table (RFC 7541, 7.1.3): pass it on.
    """

    __slots__ = ("authority", "fields", "method", "never_indexed", "path", "protocol", "scheme")

    def __init__(
        self,
        method: bytes,
        scheme: bytes,
        authority: bytes,
        path: bytes,
        fields: Fields,
        protocol: bytes | None = None,
        never_indexed: frozenset[bytes] = NONE_NEVER_INDEXED,
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.path = path
        self.fields = fields
        self.protocol = protocol
        self.never_indexed = never_indexed

    def __repr__(self) -> str:
        # Values may be secrets, the query too: only what a log line may carry.
        path = self.path.partition(b"?")[0]
        return f"RequestHead({self.method!r}, {self.authority!r}, {path!r}, {len(self.fields)} fields)"


class ResponseHead:
    """`status_code` below 200 makes it informational."""

    __slots__ = ("fields", "never_indexed", "status_code")

    def __init__(self, status_code: int, fields: Fields, never_indexed: frozenset[bytes] = NONE_NEVER_INDEXED) -> None:
        self.status_code = status_code
        self.fields = fields
        self.never_indexed = never_indexed

    def __repr__(self) -> str:
        return f"ResponseHead({self.status_code}, {len(self.fields)} fields)"
