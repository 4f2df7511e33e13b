"""The grammar that both roles share: field lines, authorities, trailers (RFC 9110, 5; RFC 9112, 5 and 6; RFC 3986).

Each element is matched as a whole and is either taken or refused with a reason; nothing is repaired.
"""

import re

from proxy.h1.errors import RemoteProtocolError
from proxy.heads import TOKEN, WEBSOCKET, Field, Fields

# With or without a version (RFC 9110, 7.8).
_PROTOCOL = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")
# No control character but the tab. Bytes above 0x7f are obs-text: opaque, passed on unchanged.
VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
# No byte may match two parts: a long value that ends with a control character would be tried in every division.
FIELD_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
# Letters, digits, and only those other characters that names in use have; RFC 3986 would pass `,` and `;` to backends.
AUTHORITY = re.compile(rb"(?:[A-Za-z0-9\-._~%]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{0,5}))?")
_MAX_PORT = 65535
_SWITCHING_METHODS = frozenset((b"GET", b"POST"))

_OF_HTTP = (b"h2", b"http", b"tls")

# Fields that frame, route, authenticate or describe a message, which a trailer must not change after the fact
# (RFC 9110, 6.5.1), and hop-by-hop fields. Conditional fields are recognised by their prefix `if-`.
_FORBIDDEN_TRAILERS = frozenset(
    b"authorization cache-control connection content-encoding content-length content-range content-type cookie expect"
    b" host keep-alive max-forwards pragma proxy-authenticate proxy-authorization proxy-connection range realm"
    b" set-cookie te trailer transfer-encoding upgrade www-authenticate".split()
)
# A request that repeats these in its trailers hopes that some recipient believes them.
_DECEITFUL_TRAILERS = frozenset((b"content-length", b"host", b"transfer-encoding"))
_BAD_REQUEST = 400


def switchable(method: bytes, offer: bytes, *, has_body: bool) -> bytes | None:
    """The protocol that a client offers, if a backend may be asked to switch to it; WebSocket's name in lower case.

    Clients in use ask with GET or POST, Docker's with a body. A switch to TLS or another version of HTTP is not passed
    on: the backend would get requests that no route has seen.
    """
    name = offer.lower()
    if name == WEBSOCKET:
        return name if method == b"GET" and not has_body else None
    is_switch = method in _SWITCHING_METHODS and not name.startswith(_OF_HTTP) and _PROTOCOL.fullmatch(offer)
    return offer if is_switch else None


def is_authority(value: bytes) -> bool:
    """A host with an optional port, without user information."""
    match = AUTHORITY.fullmatch(value)
    return match is not None and int(match[1] or b"0") <= _MAX_PORT


def decode_field_line(line: bytes, status_code: int) -> Field:
    """Decode a line without its CRLF; the name in lower case. Raises RemoteProtocolError with `status_code`."""
    match = FIELD_LINE.fullmatch(line)
    if match is None:
        raise RemoteProtocolError(status_code, _flaw_of(line))
    return match[1].lower(), match[2].strip(b" \t")


def _flaw_of(line: bytes) -> str:
    name, colon, _ = line.partition(b":")
    if line[:1] in (b" ", b"\t"):
        return "folded field line, want each field on one line"
    if not colon:
        return "field line without a colon"
    if not TOKEN.fullmatch(name):
        return f"field name {name[:64]!r}, want a token right before the colon"
    return f"value of field {name[:64]!r} contains a control character"


def decode_trailers(section: bytes, status_code: int) -> Fields:
    """The fields that may be passed on, of the section after the last chunk, which includes the final empty line.

    Others are dropped, but a request whose trailers frame or route it once more is refused.
    """
    fields = [decode_field_line(line, status_code) for line in section[:-4].split(b"\r\n")]
    if status_code == _BAD_REQUEST:
        for name, _ in fields:
            if name in _DECEITFUL_TRAILERS:
                raise RemoteProtocolError(status_code, f"field {name.decode()} among the trailers")
    return permitted_trailers(fields)


def permitted_trailers(fields: Fields) -> Fields:
    """`fields` without those that a recipient must not believe (RFC 9110, 6.5.1)."""
    return [field for field in fields if not is_forbidden_trailer(field[0])]


def is_forbidden_trailer(name: bytes) -> bool:
    return name in _FORBIDDEN_TRAILERS or name.startswith(b"if-")


def options_of(values: list[bytes]) -> set[bytes]:
    """The members of a comma-separated list that may be spread over several fields, in lower case."""
    if len(values) == 1 and b"," not in values[0]:
        return {values[0].lower()}
    return {member.strip(b" \t") for value in values for member in value.lower().split(b",")} - {b""}
