"""A client of a proxy's config API: `PUT /config`, `HEAD` for the loaded version, and `GET` for the loaded document.

Speaks http, https (verified with the system's authorities or a CA file), or HTTP over a unix socket. Keeps one
connection open, and replaces it if the proxy has closed it. Only one thread may call.
"""

import errno
import http.client
import re
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from daemonkit.clienttls import distrust_hint, scheme_hint, trusting
from daemonkit.ipv4 import MISTYPED_IPV4, is_mistyped_ipv4
from daemonkit.secret import Secret, text_without, without
from daemonkit.timedresponse import response_within
from daemonkit.unixhttp import UnixHTTPConnection
from daemonkit.urls import split_url
from tunnelgw.deliver.courier import Undelivered

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 40.0
"""Time limit for the whole answer. The proxy itself waits for its workers for up to 30 s."""
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
_MAX_ANSWER_BYTES = 64 * 1024
_PACKET_BYTES = 96 * 1024
"""How many bytes are sent at once. The C library reuses a buffer of this size, but requests a larger one from the
system each time."""
_MAX_TEXT = 512
_MAX_SHOWN_PROBLEMS = 5
_HOST = re.compile(r"[!-~]+")
_VERSION = re.compile(r"[0-9]{1,30}")
_VERSION_FIELD = "Configuration-Version"
# RecursionError: nested too deeply.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class VersionConflict(Exception):
    def __init__(self, loaded: int) -> None:
        super().__init__(f"version {loaded} is loaded")
        self.loaded = loaded


class Problem(msgspec.Struct, frozen=True):
    path: str = ""
    message: str = ""


class Loaded(msgspec.Struct, frozen=True):
    version: int
    has_problems: bool = False
    """Whether some ports cannot be bound now; the answer to a `put` says which."""


class PutAnswer(msgspec.Struct, frozen=True):
    version: int
    changed: bool = False
    problems: tuple[Problem, ...] = ()


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: str = ""
    message: str = ""
    problems: tuple[Problem, ...] = ()
    loaded: int = 0


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_decode_answer = msgspec.json.Decoder(PutAnswer).decode
_decode_error = msgspec.json.Decoder(_ErrorAnswer).decode


class ConfigEndpoint(msgspec.Struct, frozen=True):
    """`url` is `http://host:port`, `https://host:port` or `unix:/path`."""

    url: str
    ca_file: str = ""
    """Empty: the system's authorities."""
    server_name: str = ""
    """The name that the certificate must have if the URL has an IP address; empty: the URL's host."""

    @property
    def is_by_name(self) -> bool:
        """Whether the next connection may lead to another proxy, as with a Service."""
        if self.url.startswith("unix:"):
            return False
        try:
            ip_address(urlsplit(self.url).hostname or "")
        except ValueError:
            return True
        return False


class _TlsConnection(http.client.HTTPConnection):
    """Unlike HTTPSConnection, the name that is verified may differ from the address that is dialled."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, ca_file: str, server_name: str) -> None:
        """Raises OSError for a CA file that cannot be used."""
        super().__init__(host, port, timeout=CONNECT_TIMEOUT_S)
        self._ca_file = ca_file
        self._context = trusting(ca_file or None)
        self._server_name = server_name

    def connect(self) -> None:
        super().connect()
        if self._ca_file:  # the authority may have been renewed; if the file cannot be used, nothing changes
            with suppress(OSError):
                self._context = trusting(self._ca_file)
        try:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._server_name)
        except BaseException:
            self.sock.close()
            raise


class ConfigClient:
    def __init__(
        self,
        endpoint: ConfigEndpoint,
        token: Secret | None,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        before_call: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises ValueError for a URL of an unknown form, or a CA file that cannot be used.

        `before_call` may raise to prevent a call.
        """
        self._before_call = before_call
        self._answer_timeout_s = answer_timeout_s
        self._token = token.reveal() if token is not None else ""
        self._headers = {"Authorization": f"Bearer {self._token}"} if token is not None else {}
        self._connection = _connection(endpoint)
        self._connection.response_class = response_within(answer_timeout_s)

    def close(self) -> None:
        self._connection.close()

    def loaded(self) -> Loaded | None:
        """None: nothing is loaded. Raises Undelivered."""
        status_code, headers, _ = self._exchange("HEAD")
        if status_code == HTTPStatus.NOT_FOUND:
            return None
        if status_code != HTTPStatus.OK:
            raise self._undelivered("HEAD", status_code, b"")
        version = headers.get(_VERSION_FIELD, "")
        if not _VERSION.fullmatch(version):
            seen = f"it answered 200 to HEAD /config with {_VERSION_FIELD} {version[:64]!r}"
            raise Undelivered(f"not a tunnelgw-proxy: {seen}, want a number")
        return Loaded(int(version), "Configuration-Problems" in headers)

    def document(self) -> bytes | None:
        """The loaded document, without its private keys; None: nothing is loaded. Raises Undelivered."""
        status_code, _, body = self._exchange("GET", most_bytes=MAX_DOCUMENT_BYTES)
        if status_code == HTTPStatus.NOT_FOUND and _error_in(body).error:
            return None
        if status_code == HTTPStatus.NOT_FOUND:
            raise Undelivered(
                "not a tunnelgw-proxy: it answered 404 to GET /config, but not as a proxy without a document does"
            )
        if status_code != HTTPStatus.OK:
            raise self._undelivered("GET", status_code, body)
        return body

    def put(self, *document: bytes) -> PutAnswer:
        """`document`: in pieces of any size. Raises VersionConflict and Undelivered."""
        status_code, _, body = self._exchange("PUT", document)
        if status_code == HTTPStatus.CONFLICT and (loaded := _error_in(body).loaded):
            raise VersionConflict(loaded)
        if status_code != HTTPStatus.OK:
            raise self._undelivered("PUT", status_code, body)
        try:
            answer = _decode_answer(body)
        except _UNREADABLE as error:
            raise Undelivered(f"not a tunnelgw-proxy: its answer to PUT /config: {error}") from error
        # A path is not quoted; it tells which listener it is.
        problems = (Problem(each.path, self._quotable(each.message)) for each in answer.problems)
        return msgspec.structs.replace(answer, problems=tuple(problems))

    def _exchange(
        self, method: str, body: tuple[bytes, ...] = (), most_bytes: int = _MAX_ANSWER_BYTES
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Retries once on a new connection if the proxy has closed the one that was kept open."""
        was_kept = self._connection.sock is not None
        try:
            return self._once(method, body, most_bytes)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if not (was_kept and isinstance(error, ConnectionError)):
                raise self._unreachable(error) from None
        return self._exchange(method, body, most_bytes)

    def _once(
        self, method: str, body: tuple[bytes, ...], most_bytes: int
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        self._before_call()
        headers = dict(self._headers)
        if body:
            headers |= {"Content-Type": "application/json", "Content-Length": str(sum(map(len, body)))}
        connection = self._connection
        if connection.sock is None:
            connection.connect()
        if connection.sock is not None:
            connection.sock.settimeout(self._answer_timeout_s)
        connection.request(method, "/config", body=_packets(body) if body else None, headers=headers)
        response = connection.getresponse()
        content = response.read(most_bytes)
        if not response.isclosed():
            connection.close()  # the answer is cut off, or longer than a proxy's can be
        if response.length and len(content) < most_bytes:
            cut = f"its answer to {method} /config ended after {len(content)} of {len(content) + response.length} bytes"
            raise Undelivered(f"{cut}: was the proxy stopped meanwhile?")
        return response.status, response.headers, content

    def _undelivered(self, method: str, status_code: int, body: bytes) -> Undelivered:
        said = _error_in(without(body, (self._token,)))
        seen = f"answered {status_code} to {method} /config"
        if status_code == HTTPStatus.UNAUTHORIZED and not self._headers:
            return Undelivered(
                f"{seen}: it wants a token, and we have none: name its Secret in the GatewayConfig's authSecretRef, or "
                "for a shared proxy give PROXY_AUTH_TOKEN",
                is_refusal=True,
            )
        if status_code == HTTPStatus.UNAUTHORIZED:
            return Undelivered(
                f"{seen}: it was started with another token than ours: restart it if the token has changed since; "
                "or, for a shared proxy, the controller, which reads the token of those once, at its start",
                is_refusal=True,
            )
        problems = "; ".join(f"{each.path}: {each.message}" for each in said.problems[:_MAX_SHOWN_PROBLEMS])
        detail = (problems or said.message)[:_MAX_TEXT]
        is_refusal = 400 <= status_code < 500
        return Undelivered(f"{seen}{f': {detail}' if detail else ''}", is_refusal=is_refusal)

    def _unreachable(self, error: Exception) -> Undelivered:
        # What is no HTTP is part of the error.
        reason = self._quotable(str(error))[:_MAX_TEXT] or type(error).__name__
        is_absent = isinstance(error, ConnectionRefusedError | FileNotFoundError)
        is_absent |= isinstance(error, OSError) and error.errno == errno.EHOSTUNREACH
        return Undelivered(f"no answer: {reason}{_hint(error)}", is_absent=is_absent)

    def _quotable(self, text: str) -> str:
        return text_without(text, (self._token,))


def _packets(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer pieces; pieces that are already large stay as they are."""
    packet: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        if packet and size_bytes + len(piece) > _PACKET_BYTES:
            yield b"".join(packet)
            packet, size_bytes = [], 0
        packet.append(piece)
        size_bytes += len(piece)
    yield b"".join(packet)


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return distrust_hint(error, "--proxy-ca-file")
    # Something answered, so the address is not the problem.
    is_there = isinstance(error, ssl.SSLError | http.client.RemoteDisconnected)
    return scheme_hint(error) if is_there else "; is the proxy up, and is the address right?"


def _connection(endpoint: ConfigEndpoint) -> http.client.HTTPConnection:
    if endpoint.url.startswith("unix:"):
        return UnixHTTPConnection(endpoint.url.removeprefix("unix:"), CONNECT_TIMEOUT_S)
    want = f"config API {endpoint.url!r}, want http://host:port, https://host:port or unix:/path"
    try:
        parts = split_url(endpoint.url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"{want} ({error})") from error
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or parts.path not in ("", "/") or port == 0:
        raise ValueError(want)
    if port is None:
        port = http.client.HTTPS_PORT if parts.scheme == "https" else http.client.HTTP_PORT
    if is_mistyped_ipv4(host):
        raise ValueError(f"config API {endpoint.url!r}, whose host is {MISTYPED_IPV4}")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
    server_name = host if endpoint.is_by_name else endpoint.server_name or host
    try:
        return _TlsConnection(host, port, endpoint.ca_file, server_name)
    except OSError as error:
        raise ValueError(f"CA file {endpoint.ca_file}: {error}") from error


def _error_in(body: bytes) -> _ErrorAnswer:
    try:
        return _decode_error(body)
    except _UNREADABLE:
        return _ErrorAnswer(message=" ".join(body[:_MAX_TEXT].decode("utf-8", "replace").split()))
