"""The app behind a daemon's health address: `/healthz`, `/readyz`, `/metrics`, and an index at `/`.

Health answers are JSON: `{"status": "ok", "message": "alive"}` with 200, or status `error` with 503 and a fixed text
that names the missing part; details appear only in the log. Metrics come from an explicit registry, in the text format
or OpenMetrics, as the client requests. Any thread may call the app.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.wrappers import Request, Response

from daemonkit.httperrors import error_response, from_http_exception

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

Health = Callable[[], "str | None"]
"""None if healthy; otherwise a fixed text that names the missing part."""

_METHODS = ("GET", "HEAD")
MAX_SCRAPES: Final = 4
"""How many scrapes may run or wait at once. With thousands of series, one takes most of a second and 25 MiB: anybody
who asks often enough could otherwise use up all threads, which health probes need too, and much memory."""


class OpsApp:
    """A WSGI app; a daemon that serves health and metrics on two addresses uses two instances.

    `parts`: parts with a readiness of their own, by name, served at `/readyz/<name>`. `beside`: paths that another app
    serves on the same address; the index lists them too.
    """

    def __init__(
        self,
        liveness: Health,
        readiness: Health,
        registry: CollectorRegistry | None = None,
        *,
        parts: Mapping[str, Health] = MappingProxyType({}),
        beside: tuple[str, ...] = (),
    ) -> None:
        self._routes: dict[str, Callable[[Request], Response]] = {
            "/": self._index,
            "/healthz": partial(_health, liveness, "alive"),
            "/readyz": partial(_health, readiness, "ready"),
            **{f"/readyz/{name}": partial(_health, check, "ready") for name, check in parts.items()},
        }
        if registry is not None:
            self._routes["/metrics"] = _Scrapes(registry).respond
        self._paths = ("/", *beside, *(path for path in self._routes if path != "/"))

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ, populate_request=False)
        try:
            response = self._respond(request)
        except HTTPException as exception:
            response = from_http_exception(exception)
        response.headers["Cache-Control"] = "no-store"
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        handle = self._routes.get(request.path)
        if handle is None:
            return error_response(404, f"nothing at {request.path[:200]!r}, want one of {', '.join(self._paths)}")
        if request.method not in _METHODS:
            raise MethodNotAllowed(_METHODS, f"method {request.method[:20]!r}, want GET")
        return handle(request)

    def _index(self, _request: Request) -> Response:
        return _json({"paths": self._paths[1:]}, 200)


def _health(check: Health, when_fine: str, _request: Request) -> Response:
    missing = check()
    if missing is None:
        return _json({"status": "ok", "message": when_fine}, 200)
    return _json({"status": "error", "message": missing}, 503)


def _json(content: object, status_code: int) -> Response:
    return Response(json.dumps(content) + "\n", status=status_code, content_type="application/json")


class _Scrapes:
    """Answers one scrape after the other, since encoding several at once takes longer for each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._places = threading.BoundedSemaphore(MAX_SCRAPES)
        self._turn = threading.Lock()

    def respond(self, request: Request) -> Response:
        encode, content_type = _chosen_encoder(request.headers.get("Accept", ""))
        if not self._places.acquire(blocking=False):
            return error_response(503, f"{MAX_SCRAPES} other scrapes are running, try again", [("Retry-After", "1")])
        try:
            with self._turn:
                text = encode(self._registry)
        finally:
            self._places.release()
        return Response(text, content_type=content_type)


def _chosen_encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """`choose_encoder` wants a version without quotes, and raises TypeError if it is no number."""
    try:
        return choose_encoder(accept.replace('"', ""))
    except TypeError:
        return choose_encoder("")


def process_metrics(registry: CollectorRegistry, daemon: str, version: str) -> None:
    """Register the metrics of every daemon: `<daemon>_build_info`, the process, Python and its garbage collector."""
    Info(f"{daemon}_build", "Version of the daemon", registry=registry).info({"version": version})
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
