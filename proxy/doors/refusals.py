"""Answers to requests that never become an exchange: malformed, too large, too late, or on the wrong connection.

A line of plain text says what was seen and what was wanted. The codecs' reasons hold no field values, so a client
learns nothing that it has not sent. They have a Date as every other response (RFC 9110, 6.6.1).
"""

from http import HTTPStatus
from typing import Final

from proxy.exchange.answers import http_date
from proxy.heads import Field, ResponseHead

MISDIRECTED: Final = "this connection was not set up for the listener that has this host now; use a new connection"
OUTDATED: Final = "the listener's requirements have changed since this connection was set up"
CONTENT_TYPE: Final = (b"content-type", b"text/plain; charset=utf-8")


def refusal(status_code: int, detail: str, wall_s: float) -> tuple[ResponseHead, bytes]:
    """Head and body. `wall_s`: now, in seconds since 1970."""
    phrase = HTTPStatus(status_code).phrase.lower()
    body = f"{status_code} {phrase}: {detail}\n".encode()
    length = (b"content-length", b"%d" % len(body))
    return ResponseHead(status_code, [CONTENT_TYPE, _date(wall_s), length]), body


def silent_refusal(status_code: int, wall_s: float) -> ResponseHead:
    """The head of a refusal without the text."""
    return ResponseHead(status_code, [_date(wall_s)])


def _date(wall_s: float) -> Field:
    return b"date", http_date(int(wall_s))
