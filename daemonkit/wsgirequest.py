"""One connection and one request, as cheroot runs them in a worker thread, made strict and given our error format.

cheroot parses the request line and builds the WSGI environ and the response head. This module replaces header parsing
(RFC 9112 sections 5 and 6: no folding, no space before the colon, one Host, one body length), bodies, `Expect`, every
error response of the server itself, and the handling of exceptions raised by the app. A target in absolute form is
shown to cheroot, and so to the app, as a path, and its authority as Host (RFC 9112, 3.2.2). The WSGI environ has two
additions: `wsgi.input` always ends by itself, and `daemonkit.client_gone` is a callable that tells whether the client
has closed its side, so that an app can drop work that nobody waits for. A client that has closed only its sending side
counts as gone, since the server cannot tell the difference.
"""

import contextlib
import io
import re
import select
import socket
import ssl
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from cheroot.server import HeaderReader, HTTPConnection, HTTPRequest
from cheroot.wsgi import Gateway_10

from daemonkit.causes import empty_frames
from daemonkit.httperrors import error_body
from daemonkit.tlssocket import TlsSocket
from daemonkit.wsgistreams import (
    BodyError,
    ChunkedBody,
    ClientGone,
    Head,
    Input,
    LengthBody,
    Output,
    RequestBody,
    comes_within,
)

_BODY_BUFFER_BYTES = 64 * 1024
# Up to this size, the unread rest of a body is read and dropped; beyond it, the connection is closed instead.
_MAX_SKIPPED_BYTES = 64 * 1024
_SKIP_TIMEOUT_S = 1.0
# How long we read from a client that is still sending when it is refused: closing at once would reset the connection,
# and the client would never read the response.
_LINGER_S = 2.0
_MAX_LINGER_BYTES = 16 * 1024 * 1024

_FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(rb"[^\x00\r\n]*")
_TARGET = re.compile(rb"[!-~]+")
_VERSION = re.compile(rb"HTTP/[0-9]\.[0-9]")
_HOST = re.compile(rb"(?:[\w.~!$&'()*+;=%-]*|\[[\w.:~%-]+\])(?::[0-9]*)?")
"""RFC 3986, 3.2.2 and 3.2.3, without commas: they join several."""
_ABSOLUTE = re.compile(rb"([^ ]+) ((?i:https?))://([^/?# ]*)((?:[/?][^# ]*)?) ([^ ]*\r\n)")
"""A request line with a target in absolute form: method, scheme, authority, path with query, version.

Each part ends at a character that it cannot have: else a long line that does not match would take minutes.
"""
_SINGLE = frozenset({b"Host", b"Content-Length", b"Transfer-Encoding", b"Content-Type", b"Authorization"})


class StrictHeaderReader(HeaderReader):
    """Parses header fields into a dict; raises ValueError with the text of the 400 response."""

    def __call__(self, rfile: Any, hdict: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
        fields = {} if hdict is None else hdict
        while (line := rfile.readline()) != b"\r\n":
            name, value = _field(line)
            if b"_" in name:
                # X_Name and X-Name are the same in a WSGI environ: a client could override what a proxy has set.
                continue
            if name not in fields:
                fields[name] = value
            elif name in _SINGLE:
                raise ValueError(f"header field {name.decode()} more than once")
            else:
                fields[name] += b", " + value
        _check_framing(fields)
        _normalise_connection(fields)
        if b"Expect" in fields:
            # Never as cheroot spells it, which would ask for the body at once, even in HTTP/1.0.
            fields[b"Expect"] = fields[b"Expect"].title()
        return fields


def _field(line: bytes) -> tuple[bytes, bytes]:
    if not line.endswith(b"\r\n"):
        raise ValueError("header line without CRLF at its end")
    name, colon, value = line[:-2].partition(b":")
    value = value.strip(b" \t")
    if not colon or not _FIELD_NAME.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
        raise ValueError("malformed header line, want `name: value`")
    return name.title(), value


def _check_framing(fields: dict[bytes, bytes]) -> None:
    length = fields.get(b"Content-Length")
    if length is not None and not re.fullmatch(rb"[0-9]{1,18}", length):
        raise ValueError("malformed Content-Length, want digits")
    if length is not None and b"Transfer-Encoding" in fields:
        # RFC 9112, 6.3: if two parties interpret such a message differently, requests can be smuggled.
        raise ValueError("both Content-Length and Transfer-Encoding")
    codings = [word.strip(b" \t").lower() for word in fields.get(b"Transfer-Encoding", b"chunked").split(b",")]
    if any(coding != coding.strip() for coding in codings):
        # RFC 9110, 5.6.3: no whitespace. cheroot takes it off, and would read a body that others do not see.
        raise ValueError("control character in Transfer-Encoding")
    if codings.count(b"chunked") != 1 and set(codings) <= {b"", b"chunked"}:
        raise ValueError("Transfer-Encoding without chunked, or with more than one")


def _members(value: bytes) -> set[bytes]:
    """The members of a list (RFC 9110, 5.6.1) in lower case."""
    return {member.strip().lower() for member in value.split(b",")}


def _normalise_connection(fields: dict[bytes, bytes]) -> None:
    """Simplify `Connection` for cheroot, which compares the whole field: `Connection: Close, TE` must close."""
    options = _members(fields.get(b"Connection", b""))
    if b"close" in options:
        fields[b"Connection"] = b"close"
    elif b"keep-alive" in options:
        fields[b"Connection"] = b"Keep-Alive"


class _OriginForm:
    """The lines of a head, for cheroot, which refuses the absolute form: its target as a path.

    If the authority is malformed or names no host (RFC 9110, 4.2.1 and 4.2.4), the line stays and is refused.
    """

    def __init__(self, lines: Any) -> None:
        self._lines = lines
        self.scheme = self.authority = b""
        """Empty unless the target is in absolute form."""

    def readline(self) -> bytes:
        line: bytes = self._lines.readline()
        match = _ABSOLUTE.fullmatch(line)
        if match is None:
            return line
        method, scheme, authority, path, version = match.groups()
        if not _HOST.fullmatch(authority) or authority[:1] in (b"", b":"):
            return line
        self.scheme, self.authority = scheme.lower(), authority
        if not path and method == b"OPTIONS":
            path = b"*"  # RFC 9112, 3.2.4
        elif not path.startswith(b"/"):
            path = b"/" + path
        return b"%s %s %s" % (method, path, version)


class Request(HTTPRequest):
    """One request and its response."""

    header_reader = StrictHeaderReader()
    method = b""
    """Empty until the request line has been read."""
    body: RequestBody | None = None
    _named_host = b""
    """The authority of a target in absolute form."""

    def read_request_line(self) -> bool:
        lines = self.rfile
        self.rfile = shown = _OriginForm(lines)
        try:
            if not super().read_request_line():  # type: ignore[no-untyped-call]
                return False
        except ValueError:
            self.simple_response("400 Bad Request", "malformed request target")
            return False
        finally:
            self.rfile = lines
        self._named_host = shown.authority
        # RFC 9112, 3. In between cheroot has removed tabs and carriage returns from the path.
        if not _FIELD_NAME.fullmatch(self.method):
            self.simple_response("400 Bad Request", "malformed method")
        elif not _TARGET.fullmatch(self.uri) or not self._is_path_or_asterisk():
            self.simple_response("400 Bad Request", "malformed request target")
        elif shown.scheme == b"https" and self.scheme != b"https":
            # RFC 9110, 7.4. A gateway that ends TLS in front of this server sends a path (RFC 9112, 3.2.1).
            self.simple_response("421 Misdirected Request", "https in the request target, and no TLS here")
        elif not _VERSION.fullmatch(self.request_protocol):
            self.simple_response("400 Bad Request", "malformed HTTP version")
        else:
            return True
        return False

    def _is_path_or_asterisk(self) -> bool:
        """cheroot checks it for methods other than OPTIONS only, and takes `//a/b` for an authority and a path."""
        return self.uri == b"*" or (self.uri.startswith(b"/") and not self.authority)

    def read_request_headers(self) -> bool:
        if not super().read_request_headers():  # type: ignore[no-untyped-call]
            return False
        is_http_1_1 = self.response_protocol == "HTTP/1.1"
        if is_http_1_1 and b"Host" not in self.inheaders:
            self.simple_response("400 Bad Request", "header field Host is missing")
            return False
        if not _HOST.fullmatch(self.inheaders.get(b"Host", b"")):
            self.simple_response("400 Bad Request", "malformed header field Host")
            return False
        if not is_http_1_1 and b"Transfer-Encoding" in self.inheaders:
            self.simple_response("400 Bad Request", "Transfer-Encoding in HTTP/1.0")
            return False
        if self._named_host:
            # RFC 9112, 3.2.2. Whoever checks names against DNS rebinding sees this one.
            self.inheaders[b"Host"] = self._named_host
        return True

    def respond(self) -> None:
        source: Input = self.conn.rfile
        source.deadline_s = time.monotonic() + self.server.body_timeout_s
        source.before_wait = self._ask_for_body if self._is_body_held_back() else None
        if self.chunked_read:
            self.body = ChunkedBody(source, self.server.max_body_bytes)
        else:
            self.body = LengthBody(source, int(self.inheaders.get(b"Content-Length", 0)))
        self.rfile = io.BufferedReader(self.body, _BODY_BUFFER_BYTES)
        self.server.gateway(self).respond()
        source.before_wait = None
        if self.chunked_write:
            self.conn.wfile.write(b"0\r\n\r\n")

    def _is_body_held_back(self) -> bool:
        """RFC 9110, 10.1.1; until the app reads, since it may refuse the body."""
        return self.response_protocol == "HTTP/1.1" and b"100-continue" in _members(self.inheaders.get(b"Expect", b""))

    def _ask_for_body(self) -> None:
        self.conn.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def send_headers(self) -> None:
        body = self.body
        if body is not None and not body.is_consumed and not self._can_go_on_after(body):
            # The unread rest would be parsed as the next request.
            self.close_connection = True
            self.conn.must_linger = True
        super().send_headers()

    def _can_go_on_after(self, body: RequestBody) -> bool:
        """Whether the part of the body that the app did not read is small and arrives soon."""
        source: Input = self.conn.rfile
        if source.before_wait is not None:
            # Nobody has asked for it, and the client may send it or not. Nor can the app ask once its response begins.
            source.before_wait = None
            return False
        if self.close_connection or (b"connection", b"close") in (
            (name.lower(), value.lower()) for name, value in self.outheaders
        ):
            return False
        with self.server.patience() as is_allowed:
            return is_allowed and body.skip(_MAX_SKIPPED_BYTES, _SKIP_TIMEOUT_S)

    def simple_response(self, status: str, msg: str = "") -> None:
        """The responses that cheroot sends itself when it cannot go on, in our format."""
        status_code = int(status[:3])
        if status_code in (413, 414):
            # cheroot's codes for a head that is too large. It never refuses a body, since we set no limit there.
            status_code, msg = 431, f"the request's head is larger than {self.server.max_request_header_size} bytes"
        elif status_code == 405:  # for CONNECT alone, and without Allow (RFC 9110, 15.5.6)
            status_code, msg = 501, "this is no proxy for CONNECT"
        elif status_code == 505:
            msg = "want HTTP/1.1 or HTTP/1.0"
        elif msg.startswith("Absolute URI"):  # cheroot's words would say that none is taken
            msg = "malformed request target"
        self.refuse(status_code, msg or _SIMPLE_MESSAGES.get(status_code, status[4:]))

    def refuse(self, status_code: int, message: str) -> None:
        """Send one small JSON response; the connection closes after it."""
        self.close_connection = True
        self.sent_headers = True
        self.conn.must_linger = True
        content = error_body(status_code, message)
        response = _closing_response(status_code, content, is_to_head=self.method == b"HEAD")
        with contextlib.suppress(OSError):
            self.conn.wfile.write(response)


_SIMPLE_MESSAGES = {
    408: "the request did not arrive in time",
    500: "bug in the server, see its log",
    501: "unknown transfer coding, want chunked",
    503: "too many requests at once, try again",
}


def _closing_response(status_code: int, content: bytes, *, is_to_head: bool = False) -> bytes:
    """A whole response after which the connection closes; only its head if the request's method is HEAD."""
    reason = HTTPStatus(status_code).phrase
    retry = "Retry-After: 1\r\n" if status_code == 503 else ""
    head = (
        f"HTTP/1.1 {status_code} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        f"Date: {formatdate(usegmt=True)}\r\n{retry}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if is_to_head else content)


class Gateway(Gateway_10):
    """Calls the app; every exception becomes a response, a log line, or both."""

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]
        environ: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]
        environ["wsgi.input_terminated"] = True
        environ["daemonkit.client_gone"] = self.req.conn.is_client_gone
        return environ

    def respond(self) -> None:
        try:
            self._call_app()
        except BodyError as error:
            self._answer(error.status_code, error.message)
        except ClientGone as error:
            self._cut_off()
            self._log().debug("client gone before it was answered", error)
        except BaseException as error:
            # Even a SystemExit raised by an app must not end the worker thread. A MemoryError would, as what filled the
            # memory is still held by the calls that failed, so that there is none left to log and answer.
            empty_frames(error)
            self._log().exception("request failed", error)
            self._answer(500, _SIMPLE_MESSAGES[500])

    def _call_app(self) -> None:
        chunks = self.req.server.wsgi_app(self.env, self.start_response)
        try:
            for chunk in chunks:
                if chunk:
                    self.write(chunk)
            self.req.ensure_headers_sent()
        finally:
            if hasattr(chunks, "close"):
                chunks.close()

    def _answer(self, status_code: int, message: str) -> None:
        if self.req.sent_headers:
            self._cut_off()
        else:
            self.req.refuse(status_code, message)

    def _cut_off(self) -> None:
        """A response that has begun ends without its last chunk or its full length, so that the client sees the
        failure."""
        self.req.close_connection = True
        self.req.chunked_write = False
        self.req.conn.is_cut_off = True

    def _log(self) -> Any:
        path = self.env["PATH_INFO"][:200]
        return self.req.server.log.bind(method=self.env["REQUEST_METHOD"], path=path)


class Connection(HTTPConnection):
    """A client's connection, between and during requests."""

    RequestHandlerClass = Request
    must_linger = False
    is_cut_off = False
    """True if the last response is incomplete."""
    is_new = True
    """True until a request has been handed to a worker."""

    def __init__(self, server: Any, sock: socket.socket, _makefile: object = None) -> None:
        def open_stream(sock: socket.socket, mode: str, _bufsize: int) -> Input | Output:
            if "r" in mode:
                return Input(sock, server.max_request_header_size, server.lacks_threads)
            return Output(sock, server.send_timeout_s, server.needs_threads_back)

        super().__init__(server, sock, open_stream)
        # Cached bound methods that nobody uses: they form a cycle, which would keep thousands of connections in memory
        # until the garbage collector runs.
        for cached in ("resolve_peer_creds", "get_peer_creds"):
            vars(self).pop(cached, None)
        server.open_connections.add(self)
        self.waits_until_s = time.monotonic() + server.header_timeout_s
        """When to close the connection if it is idle or slow (monotonic clock)."""
        self._has_begun = False

    def gather_head(self) -> Head:
        """Read what has arrived; the timeout for a head starts with its first byte."""
        head: Head = self.rfile.gather_head()
        if head is Head.PARTIAL and not self._has_begun:
            self._has_begun = True
            self.waits_until_s = time.monotonic() + self.server.header_timeout_s
        elif head is Head.COMPLETE:
            self._has_begun = self.is_new = False
            # The head is complete: a reader that wants more of it nevertheless must not wait.
            self.rfile.deadline_s = time.monotonic() + self.server.header_timeout_s
        return head

    def wait_for_next(self) -> None:
        """Between two requests, the idle timeout starts now."""
        self.waits_until_s = time.monotonic() + self.server.idle_timeout_s

    def is_client_gone(self) -> bool:
        """Whether the client has closed the connection or its sending side; reads nothing."""
        return self._polls(select.POLLRDHUP)

    def has_news(self) -> bool:
        """Whether data has arrived or the client has gone; reads nothing."""
        return self._polls(select.POLLIN | select.POLLRDHUP)

    def _polls(self, events: int) -> bool:
        poll = select.poll()
        try:
            poll.register(self.socket, events)
        except (OSError, ValueError):
            return True
        return bool(poll.poll(0))

    def expire(self) -> None:
        """The timeout has passed: a client that has begun a request gets a response, an idle one does not."""
        if self._has_begun:
            self.refuse(408)
        else:
            self.close()

    def give_way(self) -> None:
        """Make room for another connection. A client that has begun a request, or sent none yet, gets a response."""
        if self.is_new or self._has_begun:
            self.refuse(503)
        else:
            self.close()

    def refuse(self, status_code: int) -> None:
        """Respond without a worker and without blocking, then close."""
        self.socket.settimeout(0)
        content = error_body(status_code, _SIMPLE_MESSAGES[status_code])
        with contextlib.suppress(OSError, ValueError):
            self.socket.send(_closing_response(status_code, content))
            # Read what has arrived, so that closing does not reset the connection before the client has read the
            # response.
            self.socket.recv(_BODY_BUFFER_BYTES)
        self.close()

    def close(self) -> None:
        """May be called again."""
        if self.must_linger:
            self.must_linger = False
            with self.server.patience() as is_allowed:
                if is_allowed:
                    self._linger()
        self._notify_of_end()
        self.server.open_connections.discard(self)
        self.rfile.close()
        with contextlib.suppress(OSError, ValueError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _notify_of_end(self) -> None:
        """RFC 9112, 9.8: without it, a client cannot tell the end of a response from a cut."""
        if isinstance(self.socket, TlsSocket) and self.socket.fileno() >= 0 and not self.is_cut_off:
            self.socket.settimeout(0)
            with contextlib.suppress(OSError, ValueError):
                self.socket.unwrap()

    def _linger(self) -> None:
        deadline_s = time.monotonic() + _LINGER_S
        taken_bytes = 0
        with contextlib.suppress(OSError, ValueError):
            self._notify_of_end()
            self.socket.shutdown(socket.SHUT_WR)
            while taken_bytes < _MAX_LINGER_BYTES and (remaining_s := deadline_s - time.monotonic()) > 0:
                if not comes_within(remaining_s, self.socket):
                    return
                try:
                    data = self.socket.recv(_BODY_BUFFER_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError):
                    # A TLS record in pieces, or one without data.
                    continue
                if not data:
                    return
                taken_bytes += len(data)
