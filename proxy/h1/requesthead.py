"""Decode a complete request head: llhttp checks the grammar, and this module what llhttp leaves open.

llhttp (through httptools, no leniency set) refuses bad names and values, folding, and spaces where none belong. In
addition, the request line is matched as a whole, targets and authorities have to be what RFC 9112, 3.2 says, and a
request has one body length or none. Where the RFC lets a recipient repair or ignore something, the request is refused:
the next hop might repair it differently (RFC 9112, 11.2). Decisions beyond the letter of the RFCs:

1. Content-Length twice is 400 even if all values agree (9112, 6.3 allows merging them).
2. Transfer-Encoding beside Content-Length is 400 (6.1 lets it win), and so is any with HTTP/1.0.
3. Transfer-Encoding is `chunked` alone, once. Known codings before it are 501, anything else is 400.
4. `content_length` and `transfer_encoding` are 400: gateways of the CGI family read them as the real fields.
5. The authority of an absolute-form target replaces Host, which must be valid all the same (3.2.2).
6. Any token but CONNECT is a method (9110, 9.1). llhttp knows only a list of them, so it is shown one of those.
"""

import re
from typing import Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.h1.bodies import CHUNKED
from proxy.h1.errors import FIELDS_TOO_LARGE, NOT_HTTP, RemoteProtocolError
from proxy.h1.grammar import is_authority, options_of, switchable
from proxy.h1.headbuffer import BARE_LINE_END
from proxy.h1.limits import Limits
from proxy.heads import LENGTH, WEBSOCKET, Fields, RequestHead

# Visible ASCII includes some bytes that no URI has: servers in use accept them, and they cannot split a line.
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
# Words without a path or version, as clients of mail servers send them.
_OTHER_LANGUAGE = re.compile(rb"[A-Za-z]+( [!-)+-.0-~]+)*\r\n")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^#]*)")
# Shown to llhttp as they are: the usual ones, and PRI of the HTTP/2 preface, which it refuses. Others become POST.
_SHOWN_METHODS: Final = frozenset(b"GET HEAD PUT DELETE PATCH OPTIONS PRI POST".split())
_CODINGS = frozenset((b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"chunked"))

_SPECIAL: Final = frozenset(
    b"content-length transfer-encoding connection upgrade expect content_length transfer_encoding".split()
)
_SLASH: Final = 0x2F


class Request(msgspec.Struct, eq=False):
    """A request head and what the connection has to know about it; `length_bytes` is CHUNKED for a chunked body."""

    head: RequestHead
    length_bytes: int
    is_http_10: bool
    keeps_alive: bool


class _Sink:
    """llhttp's callbacks; not methods of the decoder, so that no reference cycle keeps closed connections alive."""

    __slots__ = ("fields", "hosts", "special")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.fields: Fields = []
        self.hosts: list[bytes] = []
        self.special: Fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        value = value.rstrip(b" \t")
        if name == b"host":
            self.hosts.append(value)
            return
        field = (name, value)
        self.fields.append(field)
        if name in _SPECIAL:
            self.special.append(field)


class RequestHeadDecoder:
    """One for each connection; decodes one head after another."""

    __slots__ = ("_known_host", "_limits", "_parser", "_scheme", "_sink")

    def __init__(self, limits: Limits, scheme: bytes) -> None:
        self._limits = limits
        self._scheme = scheme
        self._sink = _Sink()
        self._parser: HttpRequestParser | None = None
        # The last valid Host: it seldom changes on a connection.
        self._known_host = b""

    def decode(self, head: bytes) -> Request:
        """`head` ends with its empty line. Raises RemoteProtocolError with the status code to answer with."""
        try:
            return self._decode(head)
        except RemoteProtocolError as error:
            # Reported before other flaws, as for a head that arrives in pieces. llhttp refuses bare line ends anywhere.
            if BARE_LINE_END.search(head):
                raise RemoteProtocolError(400, "line ends with a bare CR or LF, want CRLF") from error
            raise

    def _decode(self, head: bytes) -> Request:
        line = _REQUEST_LINE.match(head)
        if line is None:
            raise RemoteProtocolError(NOT_HTTP if _OTHER_LANGUAGE.match(head) else 400, "malformed request line")
        method, target, major, minor = line.groups()
        if major != b"1" or minor > b"1":
            raise RemoteProtocolError(505, f"HTTP version {major.decode()}.{minor.decode()}, want 1.0 or 1.1")
        if method == b"CONNECT":
            raise RemoteProtocolError(501, "method CONNECT, which this proxy does not support")
        self._judge(head if method in _SHOWN_METHODS else b"POST" + head[len(method) :])
        count, max_count = len(self._sink.fields) + len(self._sink.hosts), self._limits.max_fields
        if count > max_count:
            raise RemoteProtocolError(FIELDS_TOO_LARGE, f"{count} fields, want at most {max_count}")
        return self._request(method, target, minor == b"0")

    def _judge(self, head: bytes) -> None:
        """Let llhttp fill the sink. The parser is used again unless a body follows, which it is never given."""
        self._sink.clear()
        parser, self._parser = self._parser, None
        if parser is None:
            parser = HttpRequestParser(self._sink)
        try:
            parser.feed_data(head)
        except HttpParserUpgrade:
            return
        except HttpParserError as error:
            raise RemoteProtocolError(400, f"malformed head: {error}") from error
        self._parser = parser

    def _request(self, method: bytes, target: bytes, is_http_10: bool) -> Request:
        sink = self._sink
        authority = self._authority(sink.hosts, is_http_10)
        path = target
        if target[0] != _SLASH:
            authority, path = _other_form(method, target, authority)
        elif target.find(b"#") >= 0:
            raise RemoteProtocolError(400, "request target with a fragment")
        head = RequestHead(method, self._scheme, authority, path, sink.fields)
        if not sink.special:
            return Request(head, 0, is_http_10, not is_http_10)
        values: dict[bytes, list[bytes]] = {}
        for name, value in sink.special:
            values.setdefault(name, []).append(value)
        length_bytes = _length(values, is_http_10)
        if length_bytes:
            # llhttp waits for the body, which it is never given.
            self._parser = None
        options = options_of(values.get(b"connection", []))
        keeps_alive = b"close" not in options and (not is_http_10 or b"keep-alive" in options)
        expects_continue = _expects_continue(values.get(b"expect", []), is_http_10)
        upgrades = values.get(b"upgrade")
        if upgrades and length_bytes != CHUNKED and not is_http_10 and not (length_bytes and expects_continue):
            head.protocol = _protocol(method, options, upgrades, has_body=length_bytes != 0)
        return Request(head, length_bytes, is_http_10, keeps_alive)

    def _authority(self, hosts: list[bytes], is_http_10: bool) -> bytes:
        """RFC 9112, 3.2. An empty Host is refused with RFC 9110, 4.2.1: a URI without a host is invalid."""
        if len(hosts) == 1:
            host = hosts[0]
            if host != self._known_host or not host:
                if not is_authority(host):
                    raise RemoteProtocolError(400, "malformed Host")
                self._known_host = host
            return host
        if hosts:
            raise RemoteProtocolError(400, f"{len(hosts)} Host fields, want one")
        if not is_http_10:
            raise RemoteProtocolError(400, "no Host")
        return b""


def _other_form(method: bytes, target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Authority and origin-form path of a target in another form (RFC 9112, 3.2.2 to 3.2.4)."""
    if target == b"*":
        if method != b"OPTIONS":
            raise RemoteProtocolError(400, "request target * with a method other than OPTIONS")
        return host, target
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise RemoteProtocolError(400, "request target is neither a path nor an http or https URI")
    authority, path = match.groups()
    if not is_authority(authority):
        raise RemoteProtocolError(400, "malformed authority in the request target")
    if path.startswith(b"/"):
        return authority, path
    if not path and method == b"OPTIONS":
        return authority, b"*"
    return authority, b"/" + path


def _length(values: dict[bytes, list[bytes]], is_http_10: bool) -> int:
    """Bytes of the body, or CHUNKED; 0 without a body (RFC 9112, 6.3)."""
    if b"content_length" in values or b"transfer_encoding" in values:
        raise RemoteProtocolError(400, "framing field spelled with an underscore")
    lengths = values.get(b"content-length", ())
    codings = values.get(b"transfer-encoding", ())
    if codings:
        if is_http_10:
            raise RemoteProtocolError(400, "Transfer-Encoding in an HTTP/1.0 request")
        if lengths:
            raise RemoteProtocolError(400, "both Transfer-Encoding and Content-Length")
        _check_codings(list(codings))
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or not LENGTH.fullmatch(lengths[0]):
        raise RemoteProtocolError(400, "Content-Length is not one number of at most 18 digits")
    return int(lengths[0])


def _check_codings(values: list[bytes]) -> None:
    if len(values) == 1 and values[0].lower() == b"chunked":
        return
    members = [member.strip(b" \t").lower() for value in values for member in value.split(b",")]
    if members.count(b"chunked") == 1 and members[-1] == b"chunked" and _CODINGS.issuperset(members):
        raise RemoteProtocolError(501, "transfer coding other than chunked")
    raise RemoteProtocolError(400, "Transfer-Encoding is not exactly chunked")


def _protocol(method: bytes, options: set[bytes], upgrades: list[bytes], *, has_body: bool) -> bytes | None:
    """The protocol offered. Of several only WebSocket counts; others are ignored, as RFC 9110, 7.8 allows."""
    if b"upgrade" not in options:
        return None
    if len(upgrades) == 1 and b"," not in upgrades[0]:
        return switchable(method, upgrades[0], has_body=has_body)
    return switchable(method, WEBSOCKET, has_body=has_body) if WEBSOCKET in options_of(upgrades) else None


def _expects_continue(expectations: list[bytes], is_http_10: bool) -> bool:
    """RFC 9110, 10.1.1: HTTP/1.0 clients cannot mean it; expectations other than 100-continue do not exist.

    Some clients that do not want to wait send an empty value.
    """
    expectations = [value for value in expectations if value]
    if not expectations or is_http_10:
        return False
    if len(expectations) > 1 or expectations[0].lower() != b"100-continue":
        raise RemoteProtocolError(417, "expectation other than 100-continue")
    return True
