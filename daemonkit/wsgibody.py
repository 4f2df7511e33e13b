"""Reads a request's body as an app needs it: in one piece, and never longer than allowed."""

from typing import Any

from werkzeug.wrappers import Request

from daemonkit.wsgistreams import BodyError

_READ_BYTES = 256 * 1024


class BodyTooLarge(Exception):
    """The body was read in part or not at all, so the connection cannot be reused."""

    def __init__(self, seen: str, max_bytes: int) -> None:
        super().__init__(f"body of {seen}, want at most {max_bytes} bytes")


def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge, before reading anything if the size is announced, and BodyError."""
    announced = request.content_length
    if announced is not None and announced > max_bytes:
        raise BodyTooLarge(f"{announced} bytes", max_bytes)
    stream: Any = request.environ["wsgi.input"]
    chunks: list[bytes] = []
    size = 0
    while announced is None or size < announced:
        chunk = stream.read(_READ_BYTES if announced is None else min(_READ_BYTES, announced - size))
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise BodyTooLarge(f"more than {max_bytes} bytes", max_bytes)
    if announced is not None and size < announced:
        # Our own server raises an error itself; others return what has arrived.
        raise BodyError(400, f"body ended after {size} bytes, want the announced {announced}")
    return b"".join(chunks)
