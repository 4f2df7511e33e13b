"""Fast access to the API server: several threads with a connection each, so that only the server limits a burst."""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from tests.kube.kubeenv import Environment

THREADS = 8
JSON, JSON_PATCH = "application/json", "application/json-patch+json"
_TIMEOUT_S = 60.0
_PATIENCE = 5
T = TypeVar("T")


class Admin:
    """Any thread may call."""

    def __init__(self, environment: Environment) -> None:
        self._server = urlsplit(environment.server)
        admin = environment.pki.pair("admin")
        self._context = ssl.create_default_context(cafile=str(environment.pki.authority))
        self._context.load_cert_chain(admin.certificate, admin.key)
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(THREADS, "admin")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def call(self, method: str, path: str, document: object = None, content_type: str = JSON) -> bytes:
        """Returns the response body. Raises RuntimeError if the server refuses."""
        body = None if document is None else msgspec.json.encode(document)
        for attempt in range(_PATIENCE):
            connection = self._connection()
            try:
                connection.request(method, path, body, {"Content-Type": content_type})
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if attempt + 1 == _PATIENCE:
                    raise
                continue
            if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                time.sleep(float(answer.headers.get("Retry-After", "1")))
                continue
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
            return content
        raise RuntimeError(f"{method} {path}: the API server is too busy")

    def get(self, path: str) -> Any:
        return msgspec.json.decode(self.call("GET", path))

    def replace(self, path: str, place: str, value: object) -> None:
        """Replace one value within an object."""
        self.call("PATCH", path, [{"op": "replace", "path": place, "value": value}], JSON_PATCH)

    def side_by_side(self, call: Callable[[T], object], items: Iterable[T]) -> None:
        """Call in parallel; returns when all calls are done."""
        for _ in self._pool.map(call, items):
            pass

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._server.hostname or "", self._server.port, context=self._context, timeout=_TIMEOUT_S
            )
            self._own.connection = connection
        return connection
