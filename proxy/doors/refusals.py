"""Answers to requests that never become an exchange: malformed, too large, too late, or on the wrong connection.

A line of plain text says what was seen and what was wanted. The codecs' reasons hold no field values, so a client
learns nothing that it has not sent.
"""

from http import HTTPStatus
from typing import Final

from proxy.heads import ResponseHead

MISDIRECTED: Final = "this connection was not set up for the listener that has this host now; use a new connection"
CONTENT_TYPE: Final = (b"content-type", b"text/plain; charset=utf-8")


def refusal(status_code: int, detail: str) -> tuple[ResponseHead, bytes]:
    """Head and body."""
    phrase = HTTPStatus(status_code).phrase.lower()
    body = f"{status_code} {phrase}: {detail}\n".encode()
    return ResponseHead(status_code, [CONTENT_TYPE, (b"content-length", b"%d" % len(body))]), body
