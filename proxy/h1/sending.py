"""What both roles do alike when they send: field lines, body framing, and the queue of what goes out.

Body data is never copied: the queue keeps the very buffers that were given. A call that breaks the rules raises
`LocalProtocolError` and queues nothing. Entering a field into the cache is also the check that it may be sent at all:
no line break can get out through a name or a value.
"""

from functools import lru_cache
from typing import Final

from proxy.h1.caches import MAX_LINE_BYTES, ORDINARY, UNCACHED_NAMES, Caches, SentLine
from proxy.h1.errors import LocalProtocolError
from proxy.h1.grammar import LENGTH, TOKEN, VALUE, is_forbidden_trailer
from proxy.h2.heads import Field, Fields

LENGTH_LINE: Final = 1

# The codec writes these itself, from the head's attributes and the state of the connection.
_OWN_FIELDS: Final = frozenset(b"connection host keep-alive proxy-connection transfer-encoding upgrade".split())


_MAX_KEPT_NAME_BYTES: Final = 64


class Framing:
    """How the body that is being sent ends. No enum: naming a member of one costs a function call in Python 3.11."""

    NOTHING: Final = "no body; data is dropped, as for HEAD"
    LENGTH: Final = "by its announced length"
    CHUNKED: Final = "by a chunk of size 0"
    CLOSE: Final = "with the connection"


class Sending:
    """State and calls of the sending half; the roles add the heads and the receiving half."""

    def __init__(self, caches: Caches) -> None:
        self._cache = caches.sent
        self._find = caches.sent.young.get
        self._output: list[bytes | memoryview] = []
        self._is_sending_body = False
        self._framing: str = Framing.NOTHING
        self._left_bytes = 0

    # -- the third door ----------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything queued, in one piece; empty when there is nothing."""
        return b"".join(self.buffers_to_send())

    def buffers_to_send(self) -> list[bytes | memoryview]:
        """Everything queued, as it lies: for `sendmsg`, or one join over several connections."""
        output, self._output = self._output, []
        return output

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    # -- bodies ------------------------------------------------------------------------------------------------------

    def send_data(self, data: bytes | memoryview, end_stream: bool = False) -> None:
        """Queue a piece of the body. A caller who cannot keep an announced length has to close the connection."""
        if not self._is_sending_body:
            raise LocalProtocolError("data outside a body")
        size_bytes = len(data)
        framing = self._framing
        if framing == Framing.LENGTH:
            left_bytes = self._left_bytes - size_bytes
            if left_bytes < 0 or (end_stream and left_bytes):
                raise LocalProtocolError(
                    f"body of {size_bytes} more bytes, want {self._left_bytes} to reach the announced length"
                )
            self._left_bytes = left_bytes
        if size_bytes and framing == Framing.CHUNKED:
            self._output += (b"%x\r\n" % size_bytes, data, b"\r\n")
        elif size_bytes and framing != Framing.NOTHING:
            self._output.append(data)
        if end_stream:
            self._end_body(b"0\r\n\r\n")

    def send_trailers(self, fields: Fields) -> None:
        """End the body. The fields are dropped where the framing has no place for trailers (RFC 9110, 6.5.2)."""
        if not self._is_sending_body:
            raise LocalProtocolError("trailers outside a body")
        if self._framing == Framing.LENGTH and self._left_bytes:
            raise LocalProtocolError(f"body ended {self._left_bytes} bytes short of the announced length")
        for name, _ in fields:
            if is_forbidden_trailer(name):
                raise LocalProtocolError(f"field {name[:64]!r} cannot be sent as a trailer")
        lines = [self._line(field)[1] for field in fields]
        self._end_body(b"".join((b"0\r\n", *lines, b"\r\n")))

    def end_stream(self) -> None:
        """End the message without further data."""
        self.send_data(b"", True)

    def _end_body(self, last_chunk: bytes) -> None:
        if self._framing == Framing.CHUNKED:
            self._output.append(last_chunk)
        self._is_sending_body = False
        self._sent_all()

    def _sent_all(self) -> None:
        """The message is queued to its end."""
        raise NotImplementedError

    # -- field lines -------------------------------------------------------------------------------------------------

    def _lines(self, lines: list[bytes], fields: Fields) -> int | None:
        """Append a line for each field; the announced body length, None when there is none."""
        length_bytes = None
        find = self._find
        for field in fields:
            kind, line = find(field) or self._line(field)
            lines.append(line)
            if kind:
                if length_bytes is not None:
                    raise LocalProtocolError("content-length twice in a head")
                length_bytes = int(field[1])
        return length_bytes

    def _line(self, field: Field) -> SentLine:
        name, value = field
        if name in UNCACHED_NAMES:
            return _encode_field(name, value)
        size_bytes = 2 * (len(name) + len(value))
        if size_bytes > 2 * MAX_LINE_BYTES:
            return _encode_field(name, value)
        entry = self._cache.young.get(field) or self._cache.revive(field, size_bytes)
        if entry is None:
            entry = _encode_field(name, value)
            self._cache.offer(field, entry, size_bytes)
        return entry


def _encode_field(name: bytes, value: bytes) -> SentLine:
    start = _start_of(name) if len(name) <= _MAX_KEPT_NAME_BYTES else _start_of.__wrapped__(name)
    if not VALUE.fullmatch(value):
        raise LocalProtocolError(f"field {name[:64]!r} cannot be sent: control characters in its value")
    kind = ORDINARY
    if name == b"content-length":
        if not LENGTH.fullmatch(value):
            raise LocalProtocolError("content-length is not a number of at most 18 digits")
        kind = LENGTH_LINE
    return kind, start + value + b"\r\n"


@lru_cache(maxsize=1024)
def _start_of(name: bytes) -> bytes:
    """A line up to its value. Fields that are new in each message still have one of few names."""
    if not TOKEN.fullmatch(name) or name in _OWN_FIELDS:
        raise LocalProtocolError(f"field {name[:64]!r} cannot be sent: not a token, or left to the codec")
    return name + b": "
