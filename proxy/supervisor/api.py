"""The config API: `PUT /config` and `GET /config`; the ops app serves health and metrics on the same address.

Requests are checked in the order token, headers, size; only then is a body read. Errors are
`{"error": "<short category>", "message": "<detail>"}`; that for a bad document also has its `problems` by path, a 409
the `loaded` version.
"""

import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.wrappers import Request, Response

from daemonkit.httperrors import category, from_http_exception
from daemonkit.logs import get_logger
from daemonkit.secret import Secret
from daemonkit.wsgibody import BodyTooLarge, read_body
from daemonkit.wsgistreams import BodyError
from proxy import document
from proxy.document import DocumentError, Problem
from proxy.supervisor.configuration import Configuration, NotServed, Stopping, VersionConflict, WantedOtherwise
from proxy.tunnel.remoteconfig import NO_VERSION

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = get_logger(__name__)

PATH = "/config"
VERSION = "Configuration-Version"
"""The version of the loaded document. `HEAD` is for clients that need only this, since it encodes no document."""
PROBLEMS = "Configuration-Problems"
"""How many ports of the loaded document cannot be bound; absent if none. The response to its `PUT` names them."""
REMOTE_VERSION = "Remote-Configuration-Version"
"""The version of the configuration that the tunnel's provider has pushed; not used for routing."""
MAX_TAKING: Final = 4
"""How many documents may be loading at once. If clients, the disk or workers are slow, they must not use up all
threads, which health probes need too."""
_METHODS = ("GET", "HEAD", "PUT")
_REFUSALS_EVERY_S = 10.0
_CLOSE = ("Connection", "close")
"""The rest of an unread body would be taken for the next request."""
_MAX_LOGGED_PROBLEMS = 3
_OWN_HOST = re.compile(r"(?i:localhost)(:[0-9]*)?|([0-9.]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to a successful PUT."""

    version: int
    changed: bool
    problems: tuple[Problem, ...] = ()


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    error: str
    message: str
    problems: tuple[Problem, ...] = ()
    loaded: int | None = None


class Refused(Exception):
    """An error response."""

    def __init__(
        self,
        status_code: int,
        message: str,
        *,
        error: str = "",
        headers: Iterable[tuple[str, str]] = (),
        problems: tuple[Problem, ...] = (),
        loaded: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.headers = [*headers]
        self.body = ErrorAnswer(error or category(status_code), message, problems, loaded)


class ConfigApi:
    """A thread-safe WSGI app. `token` None: requests are refused, or with `is_open` accepted without a token."""

    def __init__(
        self,
        configuration: Configuration,
        ops: Callable[..., Iterable[bytes]],
        *,
        token: Secret | None,
        is_open: bool,
        max_document_bytes: int,
        is_stopping: Callable[[], bool],
        remote_version: Callable[[], int] | None = None,
    ) -> None:
        self._configuration = configuration
        self._ops = ops
        self._token = token
        self._is_open = is_open
        self._max_document_bytes = max_document_bytes
        self._is_stopping = is_stopping
        self._remote_version = remote_version
        self._rare_log = log.every(_REFUSALS_EVERY_S)
        self._taking = threading.BoundedSemaphore(MAX_TAKING)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            return self._ops(environ, start_response)
        request = Request(environ, populate_request=False)
        try:
            response = self._respond(request)
        except HTTPException as exception:
            response = from_http_exception(exception)
        except Refused as refused:
            response = _json(refused.body, refused.status_code)
            response.headers.extend(refused.headers)
        response.headers["Cache-Control"] = "no-store"
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        if request.method not in _METHODS:
            raise MethodNotAllowed(_METHODS, f"method {request.method[:20]!r}, want GET, HEAD or PUT")
        self._authorize(request)
        return self._put(request) if request.method == "PUT" else self._get(is_head=request.method == "HEAD")

    # -- authorization -----------------------------------------------------------------------------------------------

    def _authorize(self, request: Request) -> None:
        if self._token is None and self._is_open:
            if not _is_called_as_itself(request):
                message = (
                    "without a token, only requests to an IP address or localhost are accepted, not to "
                    f"{request.headers['Host'][:100]!r}: a web page could point a name of its own at this proxy; "
                    "want PROXY_AUTH_TOKEN"
                )
                self._tell(request, message)
                raise Refused(403, message, headers=(_CLOSE,))
            return
        if self._token is None:
            message = "this proxy takes no configuration: set PROXY_AUTH_TOKEN, or --allow-unauthenticated-config"
        else:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() == "bearer" and self._token.matches(given.strip()):
                return
            message = "want `Authorization: Bearer <token>` with the token of PROXY_AUTH_TOKEN"
            if given and scheme.lower() == "bearer":
                message = "the token is not that of PROXY_AUTH_TOKEN; it is read once, when the proxy starts"
        self._tell(request, message)
        raise Refused(401, message, headers=(("WWW-Authenticate", 'Bearer realm="tunnelgw-proxy"'), _CLOSE))

    def _tell(self, request: Request, message: str) -> None:
        self._rare_log.warning(
            "config request refused", error=message, method=request.method, client=request.remote_addr or "unix socket"
        )

    # -- methods -----------------------------------------------------------------------------------------------------

    def _get(self, *, is_head: bool) -> Response:
        loaded = self._configuration.loaded
        if loaded is None:
            raise Refused(404, f"no configuration is loaded yet; send one with PUT {PATH}")
        body = b"" if is_head else document.encode_redacted(loaded.content.document(loaded.version)) + b"\n"
        response = Response(body, content_type="application/json")
        response.headers[VERSION] = str(loaded.version)
        problems = self._configuration.problems
        if problems:
            response.headers[PROBLEMS] = str(len(problems))
        if is_head:
            # It may be omitted if computing it takes the content (RFC 9110, 9.3.2); 0 would be wrong.
            del response.headers["Content-Length"]
            response.automatically_set_content_length = False
        remote_version = NO_VERSION if self._remote_version is None else self._remote_version()
        if remote_version != NO_VERSION:
            # Not in the document, so that a client can send back what it has read.
            response.headers[REMOTE_VERSION] = str(remote_version)
        return response

    def _put(self, request: Request) -> Response:
        if self._is_stopping():
            raise Refused(503, "this proxy is stopping", headers=(_CLOSE,))
        if not self._taking.acquire(blocking=False):
            headers = (_CLOSE, ("Retry-After", "1"))
            raise Refused(503, f"{MAX_TAKING} other documents are still being loaded, try again", headers=headers)
        try:
            return self._take(self._body(request), _wants_loaded(request))
        finally:
            self._taking.release()

    def _take(self, data: bytes, wants_loaded: bool | None) -> Response:
        try:
            outcome = self._configuration.put(data, wants_loaded=wants_loaded)
        except DocumentError as error:
            shown = "; ".join(map(str, error.problems[:_MAX_LOGGED_PROBLEMS]))
            log.warning("document refused", error=shown, problems=len(error.problems))
            raise Refused(400, str(error.problems[0]), error="bad document", problems=error.problems) from error
        except VersionConflict as conflict:
            log.warning("document refused", error=conflict, loaded=conflict.loaded)
            raise Refused(409, str(conflict), error="version conflict", loaded=conflict.loaded) from conflict
        except WantedOtherwise as error:
            asked = "If-Match" if wants_loaded else "If-None-Match"
            raise Refused(412, f"{asked} is '*', and {error}") from error
        except Stopping as error:
            raise Refused(503, str(error), headers=(_CLOSE,)) from error
        except NotServed as error:
            log.error("document loaded, but not served by every worker", error=error)
            raise Refused(503, str(error), error="not served", headers=(("Retry-After", "5"),)) from error
        return _json(Answer(outcome.version, outcome.changed, outcome.problems), 200)

    def _body(self, request: Request) -> bytes:
        _require_json(request)
        _require_no_coding(request)
        _require_the_whole(request)
        _require_no_tag(request)
        try:
            return read_body(request, self._max_document_bytes)
        except BodyTooLarge as error:
            message = f"{error}; --max-document raises the limit"
            raise Refused(413, message, headers=(_CLOSE,)) from error
        except BodyError as error:
            raise Refused(error.status_code, str(error), headers=(_CLOSE,)) from error


def _is_called_as_itself(request: Request) -> bool:
    """Whether Host is an IP address or localhost. The owner of any other name may have pointed it at this proxy (DNS
    rebinding), so that a web page of theirs could send requests here."""
    host = request.headers.get("Host", "")
    return not request.remote_addr or not host or _OWN_HOST.fullmatch(host) is not None


def _require_json(request: Request) -> None:
    """Accept requests without a Content-Type too, as `curl -T` sends them."""
    given = request.headers.get("Content-Type", "")
    media_type = given.partition(";")[0].strip().lower()
    if media_type in ("", "application/json", "text/json") or media_type.endswith("+json"):
        return
    message = f"Content-Type is {given[:100]!r}, want 'application/json'"
    if media_type == "application/x-www-form-urlencoded":
        message += " (curl: add -H 'Content-Type: application/json', or send the file with -T)"
    raise Refused(415, message, headers=(_CLOSE, ("Accept", "application/json")))


def _require_no_coding(request: Request) -> None:
    given = request.headers.get("Content-Encoding", "")
    if given.strip().lower() in ("", "identity"):
        return
    message = f"Content-Encoding is {given[:100]!r}, want the document as plain JSON"
    raise Refused(415, message, headers=(_CLOSE, ("Accept-Encoding", "identity")))


def _require_the_whole(request: Request) -> None:
    """Refuse partial content, as sent by `curl -C`: it would be taken for the whole document (RFC 9110, 14.5)."""
    given = request.headers.get("Content-Range")
    if given is not None:
        message = f"Content-Range is {given[:100]!r}, want the whole document"
        raise Refused(400, message, headers=(_CLOSE,))


def _require_no_tag(request: Request) -> None:
    """Refuse If-Match with a tag: documents have no entity tags, so none would match (RFC 9110, 13.1.1)."""
    given = request.headers.get("If-Match", "*").strip()
    if given != "*":
        message = (
            f"If-Match is {given[:100]!r}, but documents have no entity tags; to replace only the document that you "
            "have read, put its `version` plus one into the new one"
        )
        raise Refused(412, message, headers=(_CLOSE,))


def _wants_loaded(request: Request) -> bool | None:
    """True for `If-Match: *`: a document must be loaded. False for `If-None-Match: *`: none may be (RFC 9110, 13.1).
    None: either.

    Other tags in `If-None-Match` match no document, so its condition holds.
    """
    if "If-Match" in request.headers:
        return True
    return False if request.headers.get("If-None-Match", "").strip() == "*" else None


def _json(body: Answer | ErrorAnswer, status_code: int) -> Response:
    return Response(msgspec.json.encode(body) + b"\n", status=status_code, content_type="application/json")
