"""A request's body in one piece, within its limit."""

import io

import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from daemonkit.wsgibody import BodyTooLarge, read_body
from daemonkit.wsgistreams import BodyError


class Unread(io.RawIOBase):
    """Fails the test that reads it."""

    def read(self, _size: int = -1) -> bytes:
        raise AssertionError("read, although it is known to be too large")


def request_with(stream: io.RawIOBase | io.BytesIO, announced: int | None) -> Request:
    environ = EnvironBuilder(method="PUT").get_environ()
    environ["wsgi.input"] = stream
    environ.pop("CONTENT_LENGTH", None)
    if announced is not None:
        environ["CONTENT_LENGTH"] = str(announced)
    else:
        environ["HTTP_TRANSFER_ENCODING"] = "chunked"
    return Request(environ)


@pytest.mark.parametrize("announced", [5, None])
def test_a_body_at_the_limit_is_read_whole(announced: int | None) -> None:
    assert read_body(request_with(io.BytesIO(b"12345"), announced), 5) == b"12345"


def test_an_announced_body_beyond_the_limit_is_not_read() -> None:
    with pytest.raises(BodyTooLarge, match="body of 6 bytes, want at most 5 bytes"):
        read_body(request_with(Unread(), 6), 5)


def test_a_chunked_body_is_refused_as_soon_as_it_passes_the_limit() -> None:
    with pytest.raises(BodyTooLarge, match="body of more than 5 bytes, want at most 5 bytes"):
        read_body(request_with(io.BytesIO(b"123456"), None), 5)


def test_a_body_shorter_than_its_content_length_is_an_error() -> None:
    with pytest.raises(BodyError, match="ended after 3 bytes, want the announced 5") as cut:
        read_body(request_with(io.BytesIO(b"123"), 5), 10)
    assert cut.value.status_code == 400
