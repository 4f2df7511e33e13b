"""The common format of HTTP errors: `{"error": "<short category>", "message": "<detail>"}`.

Apps, the server itself and the ops app all use it; the category depends only on the status code.
"""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

_CATEGORIES: Final = {413: "content too large", 431: "request header too large", 500: "internal error"}
"""Where the standard phrase is longer than it helps, or differs between versions of Python, as that of 413 does."""


def category(status_code: int) -> str:
    """The short category of a status code: `not found`, `method not allowed`, `internal error`."""
    if status_code in _CATEGORIES:
        return _CATEGORIES[status_code]
    try:
        return HTTPStatus(status_code).phrase.lower()
    except ValueError:
        return "error"


def error_body(status_code: int, message: str) -> bytes:
    """The JSON text, with a trailing newline for people who read it in a terminal."""
    return json.dumps({"error": category(status_code), "message": message}).encode() + b"\n"


def error_response(status_code: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> Response:
    response = Response(
        error_body(status_code, message), status=status_code, content_type="application/json", headers=[*headers]
    )
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def from_http_exception(exception: HTTPException) -> Response:
    """Werkzeug's exception (404, 405 with `Allow`, 413 ...) in our format."""
    status_code = exception.code or 500
    names = ("allow", "www-authenticate", "retry-after")
    kept = [(name, value) for name, value in exception.get_headers() if name.lower() in names]
    return error_response(status_code, exception.description or category(status_code), headers=kept)
