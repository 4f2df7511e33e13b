"""One HTTP exchange with the controller: request out, whole reply in, or a typed reason why there is none.

Redirects are not followed here or anywhere: a redirect is a reply like any other, and `replies` treats it as an error.
Unlike in requests, the environment has no effect (`HTTPS_PROXY`, `.netrc`, `REQUESTS_CA_BUNDLE`): a proxy variable
meant for the Internet must not send credentials for an appliance out of the LAN. A pooled connection that the
controller has closed is detected and replaced before use. May be called from any thread.
"""

import re
import ssl
from collections.abc import Mapping
from functools import partial

import msgspec
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError

from daemonkit.causes import causes_of, forget_frames
from daemonkit.secret import text_without, without
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError, StoreRestarting, StoreTimeout, StoreUnreachable, excerpt
from dnswebhook.stores.unifi import connections, sockets, tls
from dnswebhook.stores.unifi.replyreader import ReplyTooLong
from dnswebhook.stores.unifi.settings import UnifiSettings

_ABOUT_NAMES = "does DNS on this machine know it, is UNIFI_HOST right?"
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MAX_QUOTED_BYTES = 64 * 1024
_MIN_SESSION_CHARACTERS = 16
_SPARE_CONNECTIONS = 6
"""In the pool, in addition to parallel writes: for pages of a listing, a probe, a login."""


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Below the base URL, query included."""
    body: bytes = b""
    wants_array: bool = False
    secrets: tuple[str, ...] = ()
    """Texts in the body that nobody else may see."""
    timeout_factor: float = 1.0
    """Multiplies `request_timeout_s`, since listings may take longer than single calls."""

    @property
    def is_idempotent(self) -> bool:
        return self.method != "POST"


class Reply(msgspec.Struct, frozen=True):
    request: Request
    status_code: int
    content_type: str
    """Without parameters, lower case; empty if absent."""
    headers: urllib3.HTTPHeaderDict
    body: bytes
    credentials: Mapping[str, str] = {}
    """The header fields that the request was authorised with."""

    @property
    def quotable(self) -> bytes:
        """The beginning of the body, without the secrets that the request contained."""
        return without(self.body[:_MAX_QUOTED_BYTES], self._secrets())

    def quote_text(self, part: str) -> str:
        """A decoded part of the body, or an error about it, without the secrets that the request contained."""
        return text_without(part, self._secrets())

    def _secrets(self) -> tuple[str, ...]:
        cookies = _cookie_values(self.credentials.get("Cookie", ""))
        return (*self.request.secrets, *self.credentials.values(), *cookies)

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that this reply sets, as they are to be sent back, without empty or invalid ones.

        Attributes are ignored: the standard library drops a cookie with an unknown attribute.
        """
        lines = (line.partition(";")[0] for line in self.headers.getlist("Set-Cookie"))
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition("=") for line in lines)]
        return {name: value for name, value in pairs if value.strip('"') and _COOKIE_NAME.fullmatch(name)}

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300


class NoReply(Exception):
    """There is no complete reply; `error` is raised to the store's caller if nothing better is known."""

    def __init__(self, error: StoreError, *, was_sent: bool, is_repeatable: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent
        """False: the controller certainly did not see the request."""
        self.is_repeatable = is_repeatable
        """False: it would fail again in the same way, or the time is used up."""


class NoTimeLeft(NoReply):
    """The deadline had passed before anything was sent."""

    def __init__(self, request: Request) -> None:
        late = StoreTimeout(f"no time left for {request.method} {request.path}")
        super().__init__(late, was_sent=False, is_repeatable=False)


class Transport:
    def __init__(self, settings: UnifiSettings) -> None:
        """Raises ValueError if the CA file cannot be used."""
        self._settings = settings
        self._base_url = settings.address.base_url
        self._prefix = settings.address.prefix
        self._pool = _pool(settings)

    def exchange(self, request: Request, headers: Mapping[str, str], deadline: Deadline) -> Reply:
        """Raises NoReply; replies with an error status are returned."""
        timeout_s = min(self._settings.request_timeout_s * request.timeout_factor, deadline.remaining_s)
        if timeout_s <= 0:
            raise NoTimeLeft(request)
        try:
            reply = self._pool.exchange(
                request.method, self._prefix + request.path, _fields(request, headers), request.body, timeout_s
            )
        except ReplyTooLong:
            limit = self._settings.max_response_bytes
            message = f"{request.method} {request.path}: the reply is longer than the limit of {limit} bytes"
            raise NoReply(StoreUnreachable(message), was_sent=True, is_repeatable=False) from None
        except (HTTPError, OSError) as error:
            forget_frames(error)
            raise self._no_reply(request, error, timeout_s, deadline) from error
        return Reply(
            request=request,
            status_code=reply.status,
            content_type=reply.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            headers=reply.headers,
            body=reply.data,
            credentials=headers,
        )

    def close(self) -> None:
        self._pool.close()

    def _no_reply(self, request: Request, error: Exception, timeout_s: float, deadline: Deadline) -> NoReply:
        causes = list(causes_of(error))
        where = f"{request.method} {self._base_url}{request.path}"
        if any(_is_certificate_refused(cause) for cause in causes):
            left_s = min(timeout_s, deadline.remaining_s)
            message = tls.verification_failure(self._settings, _certificate_cause(causes), left_s)
            return NoReply(StoreUnreachable(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, NameResolutionError) for cause in causes):
            message = f"{where}: the name cannot be resolved: {_deepest(causes)}; {_ABOUT_NAMES}"
            return NoReply(StoreUnreachable(message), was_sent=False, is_repeatable=True)
        if any(isinstance(cause, sockets.NameTimeout) for cause in causes):
            message = f"{where}: the name was not resolved within {timeout_s:.1f} s; {_ABOUT_NAMES}"
            return NoReply(StoreTimeout(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, NewConnectionError) for cause in causes):
            message = f"{where}: cannot connect: {_deepest(causes)}; is the controller up, and is the address right?"
            return NoReply(StoreUnreachable(message), was_sent=False, is_repeatable=True)
        if any(isinstance(cause, ConnectTimeoutError) for cause in causes):
            message = f"{where}: no connection within {timeout_s:.1f} s; is the address right, does a firewall drop it?"
            return NoReply(StoreTimeout(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, TimeoutError) and "handshake" in str(cause) for cause in causes):
            message = f"{where}: no TLS handshake within {timeout_s:.1f} s; does this port speak https?"
            return NoReply(StoreTimeout(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError) for cause in causes):
            message = f"{where}: no complete answer within {timeout_s:.1f} s"
            return NoReply(StoreTimeout(message), was_sent=True, is_repeatable=False)
        if any(isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError) for cause in causes):
            message = f"{where}: TLS failed: {_deepest(causes)}; does this port speak https?"
            return NoReply(StoreUnreachable(message), was_sent=True, is_repeatable=True)
        message = f"{where}: the connection broke: {_deepest(causes)}; the controller may be restarting"
        return NoReply(StoreRestarting(message), was_sent=True, is_repeatable=True)


def _pool(settings: UnifiSettings) -> connections.Pool:
    host, port = settings.address.host, settings.address.port
    if settings.address.scheme == "http":
        open_one = partial(connections.http, host, port)
    else:
        open_one = partial(connections.https, host, port, tls.context_for(settings), settings.tls_fingerprint)
    return connections.Pool(open_one, settings.parallel_calls + _SPARE_CONNECTIONS, settings.max_response_bytes)


def _cookie_values(field: str) -> list[str]:
    """Those that are long enough for a session."""
    values = (pair.partition("=")[2] for pair in field.split("; "))
    return [value for value in values if len(value) >= _MIN_SESSION_CHARACTERS]


def _fields(request: Request, credentials: Mapping[str, str]) -> dict[str, str]:
    fields = {"Accept": "application/json", "User-Agent": "dnswebhook", **credentials}
    if request.body:
        fields["Content-Type"] = "application/json"
    return fields


def _is_certificate_refused(cause: BaseException) -> bool:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return True
    return isinstance(cause, urllib3.exceptions.SSLError) and "ingerprint" in str(cause)


def _certificate_cause(causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message or "verification failed"
    return "its fingerprint is not the pinned one"


def _deepest(causes: list[BaseException]) -> str:
    """The original error of the operating system or the peer, without the libraries' wrapping."""
    return excerpt(str(causes[-1]) or type(causes[-1]).__name__)
