"""The sending half that both roles share: field lines, body framing, and the output queue.

Body data is never copied: the queue keeps the very buffers that were given. A call that breaks the rules raises
`LocalProtocolError` and queues nothing. Any field that is not cached is checked before it is sent: no line break can
get out through a name or a value.
"""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Final

from proxy.h1.caches import MAX_LINE_BYTES, UNCACHED_NAMES, Caches
from proxy.h1.errors import LocalProtocolError
from proxy.h1.grammar import VALUE, is_forbidden_trailer
from proxy.heads import CONTROLS, LENGTH, MAX_KEPT_NAME_BYTES, TOKEN, Fields

_LENGTH: Final = b"content-length"
_CAPITALS: Final = b"CDN CH DAV DNT DPoP ETag MD5 NEL OData P3P SOAPAction UA WWW WebSocket XSS".split()
_WORDS: Final = {word.lower(): word for word in _CAPITALS}
# Since SHOUTcast, fields in which servers describe a radio stream are in lower case; the one that players send is not.
_OF_RADIO: Final = (b"icy-", b"ice-")
_FOR_RADIO: Final = b"Icy-MetaData"
# Object stores write these in lower case. The end of a name may be a key of the user's metadata, which libraries give
# to the application in that spelling, as boto3 does.
_OF_STORES: Final = (b"x-amz-", b"x-goog-meta-", b"x-ms-meta-")

# The codec writes these itself, from the head's attributes and the state of the connection.
_OWN_FIELDS: Final = frozenset(b"connection host keep-alive proxy-connection transfer-encoding upgrade".split())


class Framing:
    """How the body being sent ends. No enum: naming a member of one costs a function call in Python 3.11."""

    NOTHING: Final = "no body; data is dropped, as for HEAD"
    LENGTH: Final = "by its announced length"
    CHUNKED: Final = "by a chunk of size 0"
    CLOSE: Final = "with the connection"


class Sending(ABC):
    """State and calls of the sending half; the roles add the heads and the receiving half."""

    def __init__(self, caches: Caches) -> None:
        self._cache = caches.sent
        self._find = caches.sent.young.get
        self._output: list[bytes | memoryview] = []
        self._is_sending_body = False
        self._framing: str = Framing.NOTHING
        self._left_bytes = 0

    # -- output ------------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything queued, in one piece; empty when there is nothing."""
        return b"".join(self.buffers_to_send())

    def buffers_to_send(self) -> list[bytes | memoryview]:
        """Everything queued, in its original pieces: for `sendmsg`, or to be joined with other output."""
        output, self._output = self._output, []
        return output

    # -- bodies ------------------------------------------------------------------------------------------------------

    def send_data(self, data: bytes | memoryview, end_stream: bool = False) -> None:
        """Queue a piece of the body. A caller that cannot keep an announced length has to close the connection."""
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
        lines = [b"0\r\n"]
        self._lines(lines, fields)
        self._end_body(b"".join((*lines, b"\r\n")))

    @property
    def is_length_reached(self) -> bool:
        """The body has reached its announced length, but has not been ended."""
        return self._is_sending_body and self._framing == Framing.LENGTH and not self._left_bytes

    def _end_body(self, last_chunk: bytes) -> None:
        if self._framing == Framing.CHUNKED:
            self._output.append(last_chunk)
        self._is_sending_body = False
        self._sent_all()

    @abstractmethod
    def _sent_all(self) -> None:
        """Called when the whole message is queued."""

    # -- field lines -------------------------------------------------------------------------------------------------

    def _lines(self, lines: list[bytes], fields: Fields) -> int | None:
        """Append a line for each field. Returns the announced body length, or None."""
        length_bytes = None
        find = self._find
        unseen: Fields = []
        values: list[bytes] = []
        for field in fields:
            line = find(field)
            if line is not None:
                lines.append(line)
                continue
            name, value = field
            if name == _LENGTH:
                if length_bytes is not None:
                    raise LocalProtocolError("content-length twice in a head")
                length_bytes = _length_of(value)
                lines.append(b"Content-Length: %b\r\n" % value)
                continue
            start, is_kept = _start(name) if len(name) <= MAX_KEPT_NAME_BYTES else _start.__wrapped__(name)
            lines.append(start)
            lines.append(value)
            lines.append(b"\r\n")
            values.append(value)
            if is_kept:
                unseen.append(field)
        if values:
            text = b"".join(values)
            if len(text.translate(None, CONTROLS)) != len(text):
                raise _unsendable(fields)
            if unseen:
                self._remember(unseen)
        return length_bytes

    def _remember(self, unseen: Fields) -> None:
        """Cache the lines of fields that were sent before."""
        for field in self._cache.met_before(unseen):
            name, value = field
            size_bytes = 2 * (len(name) + len(value))
            if size_bytes <= 2 * MAX_LINE_BYTES:
                self._cache.add(field, _start(name)[0] + value + b"\r\n", size_bytes)


def _unsendable(fields: Fields) -> LocalProtocolError:
    name = next(name for name, value in fields if not VALUE.fullmatch(value))
    return LocalProtocolError(f"field {name[:64]!r} cannot be sent: control characters in its value")


def _length_of(value: bytes) -> int:
    if not LENGTH.fullmatch(value):
        raise LocalProtocolError("content-length is not a number of at most 18 digits")
    return int(value)


@lru_cache(maxsize=1024)
def _start(name: bytes) -> tuple[bytes, bool]:
    """A line up to its value, and whether the line may be cached.

    Names are capitalised as is usual in HTTP/1.1: programs on some devices compare them case-sensitively.
    """
    if not TOKEN.fullmatch(name) or name in _OWN_FIELDS:
        raise LocalProtocolError(f"field {name[:64]!r} cannot be sent: not a token, or set by the codec itself")
    if name == b"te":
        # TE concerns the next hop only, and its sender has to say so (RFC 9110, 10.1.4).
        return b"Connection: te\r\nTE: ", True
    return _written(name) + b": ", name not in UNCACHED_NAMES and len(name) <= MAX_KEPT_NAME_BYTES


def _written(name: bytes) -> bytes:
    if name.startswith(_OF_RADIO):
        return _FOR_RADIO if name == _FOR_RADIO.lower() else name
    if name.startswith(_OF_STORES):
        return name
    return b"-".join(_WORDS.get(word) or word.capitalize() for word in name.split(b"-"))
