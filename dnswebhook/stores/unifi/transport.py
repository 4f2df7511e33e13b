"""One HTTP exchange with the controller: request out, whole reply in, or a typed reason why there is none.

Redirects are not followed here or anywhere: a redirect is a reply like any other, and `replies` calls it an error. The
requests adapter is used without a requests session, because a session would consult the environment at each call
(`HTTPS_PROXY`, `.netrc`, `REQUESTS_CA_BUNDLE`) and keep cookies of its own: the controller is an appliance on the LAN,
a proxy variable meant for the Internet must not redirect our credentials. Connections are pooled; one that the
controller closed meanwhile is noticed and replaced before use. May be called from any thread.
"""

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError, StoreTimeout, StoreUnreachable, excerpt
from dnswebhook.stores.unifi import sockets, tls
from dnswebhook.stores.unifi.settings import UnifiSettings

_CHUNK_BYTES = 1024 * 1024
_SPARE_CONNECTIONS = 6
"""Pooled beyond the parallel writes: pages of a listing, a probe, a login."""


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Below the base URL, query included."""
    body: bytes = b""
    wants_array: bool = False
    timeout_factor: float = 1.0
    """Listings may take longer than single calls: multiplies `request_timeout_s`."""

    @property
    def is_idempotent(self) -> bool:
        return self.method != "POST"


class Reply(msgspec.Struct, frozen=True):
    request: Request
    status_code: int
    content_type: str
    """Without parameters, lower case; empty when absent."""
    headers: Mapping[str, str]
    """Case-insensitive."""
    cookies: dict[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300


class NoReply(Exception):
    """There is no complete reply; `error` is what the caller of the store shall see if nothing better is known."""

    def __init__(self, error: StoreError, *, was_sent: bool, is_repeatable: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_sent = was_sent
        """False: the controller certainly did not see the request."""
        self.is_repeatable = is_repeatable
        """False: the same would happen again, or the time is used up."""


class _Adapter(HTTPAdapter):
    """Adapter whose connections end in time and share one TLS context."""

    def __init__(self, context: ssl.SSLContext, fingerprint: str, pool_size: int) -> None:
        self._tls = {"ssl_context": context, "assert_fingerprint": fingerprint or None}
        super().__init__(pool_connections=1, pool_maxsize=pool_size)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **self._tls, **kwargs)
        pools = {"http": sockets.PromptHttpPool, "https": sockets.PromptHttpsPool}
        self.poolmanager.pool_classes_by_scheme = pools

    def build_connection_pool_key_attributes(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> Any:
        """Without what requests' `verify` would add: the TLS context decides."""
        host, _tls = super().build_connection_pool_key_attributes(request, True)
        return host, {}

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Would make each new connection load requests' authorities into our context."""


class Transport:
    def __init__(self, settings: UnifiSettings) -> None:
        """Raises ValueError when the CA file cannot be used."""
        if settings.skip_tls_verify:
            # Said once by our own log line instead of once per request.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._settings = settings
        self._base_url = settings.address.base_url
        pool_size = settings.parallel_calls + _SPARE_CONNECTIONS
        self._adapter = _Adapter(tls.context_for(settings), settings.tls_fingerprint, pool_size)

    def exchange(self, request: Request, headers: Mapping[str, str], deadline: Deadline) -> Reply:
        """Raises NoReply; replies with an error status are returned."""
        timeout_s = min(self._settings.request_timeout_s * request.timeout_factor, deadline.remaining_s)
        if timeout_s <= 0:
            late = StoreTimeout(f"no time left for {request.method} {request.path}")
            raise NoReply(late, was_sent=False, is_repeatable=False)
        try:
            # requests passes urllib3's own kind of timeout on, which its annotations do not know.
            total: Any = urllib3.Timeout(total=timeout_s)
            response = self._adapter.send(self._prepared(request, headers), stream=True, timeout=total)
            try:
                return self._read(request, response)
            finally:
                response.close()
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._no_reply(request, error, timeout_s) from error

    def close(self) -> None:
        self._adapter.close()

    def _prepared(self, request: Request, headers: Mapping[str, str]) -> requests.PreparedRequest:
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "dnswebhook", **headers}
        if request.body:
            sent["Content-Type"] = "application/json"
        return requests.Request(
            request.method, self._base_url + request.path, headers=sent, data=request.body or None
        ).prepare()

    def _read(self, request: Request, response: requests.Response) -> Reply:
        return Reply(
            request=request,
            status_code=response.status_code,
            content_type=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            headers=response.headers,
            cookies=dict(response.cookies),
            body=self._read_body(request, response),
        )

    def _read_body(self, request: Request, response: requests.Response) -> bytes:
        limit = self._settings.max_response_bytes
        announced = response.headers.get("Content-Length", "")
        chunks: list[bytes] = []
        size = int(announced) if announced.isdecimal() else 0
        if size <= limit:
            size = 0
            while chunk := response.raw.read(_CHUNK_BYTES, decode_content=True):
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    break
        if size > limit:
            message = f"{request.method} {request.path}: the reply is longer than the limit of {limit} bytes"
            raise NoReply(StoreUnreachable(message), was_sent=True, is_repeatable=False)
        return b"".join(chunks)

    def _no_reply(self, request: Request, error: Exception, timeout_s: float) -> NoReply:
        causes = list(_causes(error))
        where = f"{request.method} {self._base_url}{request.path}"
        if any(_is_certificate_refused(cause) for cause in causes):
            message = tls.verification_failure(self._settings, _certificate_cause(causes), timeout_s)
            return NoReply(StoreUnreachable(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, ConnectTimeoutError) for cause in causes):
            message = f"{where}: no connection within {timeout_s:.1f} s; is the address right, does a firewall drop it?"
            return NoReply(StoreTimeout(message), was_sent=False, is_repeatable=False)
        if any(isinstance(cause, NewConnectionError) for cause in causes):
            message = f"{where}: cannot connect: {_deepest(causes)}; is the controller up, and is the address right?"
            return NoReply(StoreUnreachable(message), was_sent=False, is_repeatable=True)
        if any(isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError) for cause in causes):
            message = f"{where}: no complete answer within {timeout_s:.1f} s"
            return NoReply(StoreTimeout(message), was_sent=True, is_repeatable=False)
        if any(isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError) for cause in causes):
            message = f"{where}: TLS failed: {_deepest(causes)}; does this port speak https?"
            return NoReply(StoreUnreachable(message), was_sent=True, is_repeatable=True)
        message = f"{where}: the connection broke: {_deepest(causes)}; the controller may be restarting"
        return NoReply(StoreUnreachable(message), was_sent=True, is_repeatable=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and everything wrapped in it; both libraries wrap by argument, by `reason` and by chaining."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        wrapped = (getattr(cause, "reason", None), cause.__cause__, *cause.args)
        waiting.extend(inner for inner in wrapped if isinstance(inner, BaseException))


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
    """The cause that the operating system or the peer gave, without the libraries' wrapping."""
    return excerpt(str(causes[-1]) or type(causes[-1]).__name__)
