"""The webhook's HTTP interface: routes, media types and bodies in, status codes out.

The status code of every error is decided here and nowhere else, by one rule: external-dns exits on any status but 200,
204 and 500 to 510, so conditions that may pass get one of those; 4xx are for requests that the real client cannot make.
Each request gets a `Deadline` below the client's own 15 s.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterable
from threading import Event
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from daemonkit.wsgibody import BodyTooLarge, read_body
from daemonkit.wsgistreams import BodyError
from dnswebhook import wire
from dnswebhook.deadline import Deadline
from dnswebhook.errors import (
    CapabilitiesUnknown,
    CredentialsRefused,
    RateLimited,
    StoreError,
    StoreFailed,
    StoreTimeout,
)
from dnswebhook.mediatypes import MEDIA_TYPE, PLAIN_MEDIA_TYPE, is_acceptable, is_supported_content_type, prefers_bare
from dnswebhook.metrics import Metrics
from dnswebhook.provider import ApplyFailed, CallerGone, DeleteGuardTripped, Provider

log = get_logger(__name__)

_ROUTES = Map(
    [
        Rule("/", endpoint="negotiate", methods=["GET"]),
        Rule("/records", endpoint="records", methods=["GET"]),
        Rule("/records", endpoint="apply", methods=["POST"]),
        Rule("/adjustendpoints", endpoint="adjust", methods=["POST"]),
    ],
    merge_slashes=False,
)
_WRITE_CHUNK_BYTES = 131072
_RETRY_SOON_S = 5
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_ADDRESS = re.compile(r"([0-9.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


class Limits(msgspec.Struct, frozen=True):
    max_body_bytes: int
    call_deadline_s: float


class _Refused(Exception):
    """A response that reports an error."""

    def __init__(self, status_code: int, category: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.category = category
        self.remedy = ""
        """For the log, since external-dns shows only the status."""
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class WebhookApp:
    """A WSGI app for any number of threads. `on_store_error` is called for every call that failed in the store."""

    def __init__(
        self,
        provider: Provider,
        limits: Limits,
        metrics: Metrics,
        stop: Event,
        on_store_error: Callable[[StoreError], None],
    ) -> None:
        self._provider = provider
        self._limits = limits
        self._metrics = metrics
        self._stop = stop
        self._on_store_error = on_store_error
        self._handlers: dict[str, Callable[[Request, Deadline], Response]] = {
            "negotiate": self._negotiate,
            "records": self._records,
            "apply": self._apply,
            "adjust": self._adjust,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        began_s = time.monotonic()
        request = Request(environ, populate_request=False)
        request_id = uuid.uuid4().hex[:12]
        route = "none"
        deadline = Deadline.after(self._limits.call_deadline_s, self._stop)
        try:
            route, _ = _ROUTES.bind_to_environ(environ).match(request.path)  # never empty: that would be redirected
            _require_own_name(request)
            response = self._handlers[route](request, deadline)
        except Exception as error:
            refused = self._refusal(error, deadline)
            if refused is None:
                raise  # a bug: the server logs it with its stack and responds with 500
            response = _error_response(refused)
            self._log_refusal(error, refused, request, request_id)
            forget_frames(error)
        response.headers["X-Request-Id"] = request_id
        duration_s = time.monotonic() - began_s
        self._metrics.requests.labels(route, str(response.status_code)).observe(duration_s)
        log.debug(
            "request served",
            route=route,
            method=request.method,
            status_code=response.status_code,
            duration_ms=round(duration_s * 1000, 1),
            request_id=request_id,
        )
        return response(environ, start_response)

    def _negotiate(self, request: Request, _deadline: Deadline) -> Response:
        _require_acceptable(request)
        return _answer(self._provider.negotiate(), request)

    def _records(self, request: Request, deadline: Deadline) -> Response:
        _require_acceptable(request)
        is_wrapped = not prefers_bare(request.headers.get("Accept"))
        return _answer(self._provider.records(deadline, is_wrapped=is_wrapped), request)

    def _adjust(self, request: Request, _deadline: Deadline) -> Response:
        _require_acceptable(request)
        return _answer(self._provider.adjust(self._body(request)), request)

    def _apply(self, request: Request, deadline: Deadline) -> Response:
        changes = wire.decode_changes(self._body(request))
        is_caller_gone: Callable[[], bool] = request.environ.get("daemonkit.client_gone", lambda: False)
        self._provider.apply(changes, deadline, is_caller_gone)
        response = Response(status=204)
        del response.headers["Content-Type"]  # there is no content to have a type
        return response

    def _body(self, request: Request) -> bytes:
        origin = request.headers.get("Origin")
        if origin is not None:
            # Browsers send `Origin` with every POST, and let any page send a POST here if it has no content type.
            message = f"sent by a web page, of origin {origin[:100]!r}; only external-dns may change records"
            raise _Refused(403, "forbidden", message)
        content_type = request.headers.get("Content-Type")
        if not is_supported_content_type(content_type):
            raise _Refused(415, "unsupported media type", f"body is {content_type!r}, want {MEDIA_TYPE!r}")
        return read_body(request, self._limits.max_body_bytes)

    def _refusal(self, error: Exception, deadline: Deadline) -> _Refused | None:
        match error:
            case _Refused():
                return error
            case NotFound():
                return _Refused(
                    404, "not found", "want one of GET /, GET /records, POST /records, POST /adjustendpoints"
                )
            case MethodNotAllowed():
                allowed = ", ".join(sorted(error.valid_methods or ()))
                return _Refused(405, "method not allowed", f"this path allows {allowed}", Allow=allowed)
            case HTTPException():
                return _Refused(error.code or 400, "bad request", error.description or error.name)
            case wire.WireError():
                return _Refused(400, error.category, str(error))
            case BodyTooLarge():
                return _too_large(error)
            case BodyError(status_code=408):
                return self._cut_short(str(error))
            case BodyError():
                return _Refused(error.status_code, wire.MALFORMED, str(error))
            case DeleteGuardTripped():
                return _Refused(500, "delete guard", str(error))
            case CallerGone():
                return _Refused(503, "caller gone", "the client hung up before its turn came")
            case ApplyFailed():
                return self._apply_refusal(error)
            case StoreError():
                self._on_store_error(error)
                if deadline.is_stopping:
                    return self._cut_short(str(error))
                if deadline.has_passed:
                    return self._no_listing(error)
                return _store_refusal(error, str(error))
        return None

    def _apply_refusal(self, failed: ApplyFailed) -> _Refused:
        if failed.error is not None:
            self._on_store_error(failed.error)
        if failed.was_cut_short:
            return self._cut_short(str(failed))
        if failed.error is not None and not failed.is_partial:
            return _store_refusal(failed.error, str(failed))
        return _Refused(500, "partial failure", str(failed))

    def _cut_short(self, message: str, outlook: str = "the next pass goes on") -> _Refused:
        category = "stopping" if self._stop.is_set() else "deadline passed"
        return _Refused(503, category, f"{message}; {outlook}", Retry_After=str(_RETRY_SOON_S))

    def _no_listing(self, error: StoreError) -> _Refused:
        """No part of a listing is kept, so one that takes too long does so on every pass."""
        refused = self._cut_short(str(error), "nothing was written, the next pass lists anew")
        refused.remedy = (
            f"if the store needs more than {self._limits.call_deadline_s:g} s for a listing, raise "
            "DNSWEBHOOK_CALL_DEADLINE together with --webhook-provider-read-timeout of external-dns"
        )
        return refused

    @staticmethod
    def _log_refusal(error: Exception, refused: _Refused, request: Request, request_id: str) -> None:
        say = log.warning if refused.status_code >= 500 else log.info
        fields = {"remedy": refused.remedy} if refused.remedy else {}
        say(
            "request refused",
            answer=refused.category,  # the manual's name for it, which external-dns does not show
            # For a store error, type and causes matter; the client was told everything else.
            error=str(refused) if isinstance(error, _Refused | HTTPException) else error,
            method=request.method,
            path=request.path[:256],
            status_code=refused.status_code,
            request_id=request_id,
            **fields,
        )


def _require_own_name(request: Request) -> None:
    """On loopback, refuse a browser that asks for a name that may be anybody's. Its owner may have pointed it here (DNS
    rebinding), so that a web page of theirs could read the records. Browsers send no `Origin` with such a GET, but
    always `Accept-Language`; external-dns does not, also behind a proxy that keeps the name."""
    client, host = request.remote_addr or "", request.headers.get("Host", "")
    if "Accept-Language" not in request.headers or not client.startswith(_LOOPBACK):
        return
    if "." in host and not _ADDRESS.fullmatch(host):
        message = f"a browser asks for {host[:100]!r}, a name that a web page may have; want localhost or an IP address"
        raise _Refused(403, "forbidden", message)


def _require_acceptable(request: Request) -> None:
    accept = request.headers.get("Accept")
    if not is_acceptable(accept):
        raise _Refused(406, "not acceptable", f"`Accept: {accept}` names no JSON type, want {MEDIA_TYPE!r}")


def _answer(body: bytes, request: Request) -> Response:
    """A response with the webhook's media type, or plain JSON if the client asks for that instead."""
    accept = request.headers.get("Accept") or ""
    plain = PLAIN_MEDIA_TYPE in accept.lower() and not prefers_bare(accept)
    response = Response(_slices(body))
    response.content_length = len(body)
    response.headers["Content-Type"] = PLAIN_MEDIA_TYPE if plain else MEDIA_TYPE
    response.headers["Vary"] = "Accept"
    return response


def _slices(body: bytes) -> Iterable[bytes]:
    """Small pieces: whenever the socket accepts part of a piece, the server copies the rest of it."""
    return (body[start : start + _WRITE_CHUNK_BYTES] for start in range(0, len(body), _WRITE_CHUNK_BYTES))


def _error_response(refused: _Refused) -> Response:
    response = Response(wire.encode_error(refused.category, str(refused)), refused.status_code, refused.headers)
    response.headers["Content-Type"] = PLAIN_MEDIA_TYPE
    return response


def _too_large(error: BodyTooLarge) -> _Refused:
    return _Refused(
        413,
        "body too large",
        f"{error}; raise --max-body for a larger installation",
        # The unread rest of the body would be parsed as the next request.
        Connection="close",
    )


def _store_refusal(error: StoreError, message: str) -> _Refused:
    match error:
        case RateLimited():
            retry_after_s = str(max(1, round(error.retry_after_s)))
            return _Refused(503, "rate limited", message, Retry_After=retry_after_s)
        case CapabilitiesUnknown():
            return _Refused(503, "controller unknown", message, Retry_After=str(_RETRY_SOON_S))
        case StoreTimeout():
            return _Refused(504, "store timed out", message)
        case CredentialsRefused():
            return _Refused(502, "credentials refused", message)
        case StoreFailed():
            return _Refused(500, "store failed", message)
    return _Refused(502, "store unreachable", message)
