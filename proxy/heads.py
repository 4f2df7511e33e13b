"""Request and response heads, received and sent, for both versions of HTTP (RFC 9113, 8.3).

Fields are a list of (name, value) byte pairs in wire order, names in lower case; pseudo-header fields are attributes.
The field cache shares the pairs between requests: change the list, but replace a pair rather than change it.
"""

import re

import msgspec

Field = tuple[bytes, bytes]
Fields = list[Field]

NONE_NEVER_INDEXED: frozenset[bytes] = frozenset()

# Fields that are new in every request: caching them would only evict others.
UNREPEATED_NAMES = frozenset(
    b"cf-ray sec-websocket-key traceparent x-amzn-trace-id x-b3-spanid x-b3-traceid x-request-id".split()
)

# Fields with which somebody could impersonate the client: no cache keeps them beyond their message.
CREDENTIAL_NAMES = frozenset(b"authorization cf-access-jwt-assertion proxy-authorization set-cookie".split())
UNCACHED_NAMES = UNREPEATED_NAMES | CREDENTIAL_NAMES
MAX_KEPT_NAME_BYTES = 64
"""No cache of field names keeps longer ones: those in use are shorter, and others could take much memory."""
BODILESS_STATUS_CODES = frozenset((204, 304))
WEBSOCKET = b"websocket"
"""As in `RequestHead.protocol`, whatever case the client uses."""

# Methods, field names and protocol names (RFC 9110, 5.6.2).
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# A content-length. The same for both versions of HTTP: what one accepts, the other must be able to send. Longer numbers
# than 18 digits are never honest, and these fit into the integers of all programs on the way.
LENGTH = re.compile(rb"[0-9]{1,18}")
# Bytes that no field value may hold: a line break would make two fields of one.
CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})


_OF_CONNECTIONS = re.compile(rb"(?i:ntlm|negotiate|nego2|kerberos|credssp)\b")
"""`authorization` schemes that authenticate a connection, contrary to RFC 9110, 11.6.2 (RFC 4559, 6). The last two are
those of Windows remote management."""


def authenticates_connection(fields: Fields) -> bool:
    """Whether this request may make a server attribute everything on the connection to this client."""
    for name, value in fields:  # noqa: SIM110 - a third of the steps, which each request to a TLS backend takes
        if name == b"authorization" and _OF_CONNECTIONS.match(value):
            return True
    return False


# Letters and digits stand for themselves.
_AS_VARIABLES = bytes(byte if bytes((byte,)).isalnum() else 0x2D for byte in range(256))


def plain_name(name: bytes) -> bytes:
    """One spelling for all names that a backend may read as the same.

    Backends of the CGI family turn fields into variables: some read `x_real_ip` as X-Real-IP, PHP also `x.real.ip`, and
    lighttpd any character in place of the hyphen.
    """
    return name.translate(_AS_VARIABLES)


class NeverIndexedField(tuple[bytes, bytes]):
    """A field of trailers that no hop may put into a compression table (RFC 7541, 7.1.3): pass it on.

    Equal to a plain tuple, so code that filters or queues trailers need not know the difference.
    """

    __slots__ = ()


class RequestHead(msgspec.Struct, eq=False):
    """`authority` is `:authority`, else the `host` field, else empty; a received head has no field `host`.

    An ordinary CONNECT has empty `scheme` and `path`. `protocol` is set for an extended CONNECT (RFC 8441), and if an
    HTTP/1.1 request asks to switch to it.
    `never_indexed` names the fields that no hop may put into a compression table (RFC 7541, 7.1.3): pass it on. In
    trailers, each such field is a `NeverIndexedField`.
    """

    method: bytes
    scheme: bytes
    authority: bytes
    path: bytes
    fields: Fields
    protocol: bytes | None = None
    never_indexed: frozenset[bytes] = NONE_NEVER_INDEXED

    def __repr__(self) -> str:
        # Only what a log line may hold: values may be secrets, and so may the query.
        path = self.path.partition(b"?")[0]
        return f"RequestHead({self.method!r}, {self.authority!r}, {path!r}, {len(self.fields)} fields)"


class ResponseHead(msgspec.Struct, eq=False):
    """`status_code` below 200 makes it informational.

    Equal heads from backends may be one object, which keeps its encoded forms: such a head must not be changed.
    """

    status_code: int
    fields: Fields
    never_indexed: frozenset[bytes] = NONE_NEVER_INDEXED
    block: bytes | None = None
    """Encoded for HTTP/2."""
    lines: tuple[bytes, int | None] | None = None
    """Encoded for HTTP/1.1, and the content-length in it."""
    onward: "ResponseHead | None" = None
    """The head as it is passed on, without the fields that belong to the backend's connection. In that head, this is
    what the tunnel's edge is sent."""
    is_failure: bool = False
    """Our own response, for a backend that has not answered."""

    def __repr__(self) -> str:
        return f"ResponseHead({self.status_code}, {len(self.fields)} fields)"
