"""Requests and responses as values, between the HTTP server and the simulated APIs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

JSON = "application/json;charset=utf-8"
HTML = "text/html; charset=utf-8"

encode_json = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    wait: Callable[[int | None, float | None, bool], bool]
    """`wait(fd, timeout_s, watches_peer)`: pause this connection; False if the peer has left or the server stops."""


class Delivery(Enum):
    """What happens to a response on its way out."""

    WHOLE = "sent, connection kept"
    TRUNCATED = "half of the body is sent under its full length, then the connection closes"
    RESET = "nothing is sent, the connection is reset (RST)"
    CLOSED = "nothing is sent, the connection closes"


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    delivery: Delivery = Delivery.WHOLE

    def with_headers(self, *headers: tuple[str, str]) -> Answer:
        return msgspec.structs.replace(self, headers=(*self.headers, *headers))

    def delivered(self, delivery: Delivery) -> Answer:
        return msgspec.structs.replace(self, delivery=delivery)


def json_answer(status: int, content: Any) -> Answer:
    return Answer(status, encode_json(content), JSON)


def html_answer(status: int, title: str) -> Answer:
    """The web server's own page, as for a path or method that no application handles."""
    head = f"<head><title>{status} {title}</title></head>"
    page = f"<!doctype html>\n<html>{head}<body><h1>{status} {title}</h1></body></html>\n"
    return Answer(status, page.encode(), HTML)


NOT_FOUND_PAGE = html_answer(404, "Not Found")
METHOD_NOT_ALLOWED_PAGE = html_answer(405, "Method Not Allowed")


def v2_error(status: int, code: str, message: str, invalid_fields: tuple[str, ...] = ()) -> Answer:
    details = {"invalid_fields": invalid_fields} if invalid_fields else {}
    return json_answer(status, {"code": code, "message": message, "errorCode": status, "details": details})


def classic_error(status: int, code: str) -> Answer:
    """The format of the application's older part; some firmware sends it with status 200."""
    return json_answer(status, {"meta": {"rc": "error", "msg": code}, "data": []})


def front_end_error(status: int, message: str) -> Answer:
    """The format of the UniFi OS proxy in front of the application."""
    return json_answer(status, {"error": {"code": status, "message": message}})


def login_error(status: int, code: str, message: str) -> Answer:
    return json_answer(status, {"code": code, "message": message, "level": "debug"})


_STATUS_NAMES = {400: "BAD_REQUEST", 401: "UNAUTHORIZED", 404: "NOT_FOUND", 429: "TOO_MANY_REQUESTS"}


def integration_error(status: int, code: str, message: str, path: str) -> Answer:
    """The error format of the integration API."""
    return json_answer(
        status,
        {
            "statusCode": status,
            "statusName": _STATUS_NAMES[status],
            "code": code,
            "message": message,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "requestPath": path,
            "requestId": "3fa85f64-5717-4562-b3fc-2c963f66afa6",
        },
    )
