"""Backends at the other end of real sockets, driven by the test itself: they do what it says, and nothing else.

They read only when they are told to, and never block, so that all that happens does in the order of the test's calls.
"""

import socket
import struct
from abc import ABC, abstractmethod
from contextlib import suppress

from proxy.h2 import frames
from tests.proxy.h2.wire import data, headers
from tests.support.ports import ReservedPort

_RESET = struct.pack("ii", 1, 0)
_PATH_BYTES = len(b"/exchange/0000")
_QUESTION = b"/ask"
"""Before the path that is asked about."""


class Asked:
    """A request that a backend has received, and how far its answer is."""

    def __init__(self, path: bytes, stream_id: int, *, is_question: bool = False) -> None:
        self.path = path
        self.stream_id = stream_id
        self.is_question = is_question
        """Whether another may leave."""
        self.status = b""
        self.body = b""
        self.has_ended = False
        self.sent = b""
        """Of the body of its answer."""
        self.is_begun = False
        """The head of its answer was sent."""
        self.is_over = False


class Peer(ABC):
    """One connection, seen from the backend."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.asked: list[Asked] = []
        self.is_gone = False
        self._sock = sock
        self._unread = b""

    def read(self) -> None:
        """All that has come."""
        with suppress(BlockingIOError):
            while not self.is_gone:
                try:
                    received = self._sock.recv(65536)
                except ConnectionError:
                    received = b""
                self._unread += received
                if not received:
                    self.end()
        while self._take_one():
            pass

    def say(self, raw: bytes) -> None:
        """Whatever it is."""
        if not self.is_gone:
            try:
                self._sock.sendall(raw)
            except OSError:
                self.end()

    def end(self, *, resets: bool = False) -> None:
        if not self.is_gone:
            self.is_gone = True
            if resets:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._sock.close()

    @abstractmethod
    def interim(self, asked: Asked) -> None: ...

    @abstractmethod
    def answer(self, asked: Asked, status: bytes, body: bytes | None = None) -> None:
        """The head of an answer, and with `body` all of it."""

    @abstractmethod
    def send(self, asked: Asked, piece: bytes, *, end_stream: bool) -> None: ...

    @abstractmethod
    def send_trailers(self, asked: Asked) -> None: ...

    @abstractmethod
    def _take_one(self) -> bool:
        """Something whole of what has come; False: there is nothing."""


class H1Peer(Peer):
    _answers_head = False

    def interim(self, asked: Asked) -> None:
        self.say(b"HTTP/1.1 103 Early Hints\r\n\r\n")

    def answer(self, asked: Asked, status: bytes, body: bytes | None = None) -> None:
        asked.is_begun = True
        asked.status = status
        asked.is_over = body is not None or self._answers_head
        asked.sent = b"" if self._answers_head else body or b""
        framing = b"transfer-encoding: chunked" if body is None else b"content-length: %d" % len(body)
        self.say(b"HTTP/1.1 %b Some\r\n%b\r\n\r\n%b" % (status, framing, asked.sent))

    def send(self, asked: Asked, piece: bytes, *, end_stream: bool) -> None:
        asked.sent += piece
        asked.is_over = end_stream
        chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        self.say(chunk + (b"0\r\n\r\n" if end_stream else b""))

    def send_trailers(self, asked: Asked) -> None:
        asked.is_over = True
        self.say(b"0\r\nx-sum: 1\r\n\r\n")

    def _take_one(self) -> bool:
        if not self.asked or self.asked[-1].has_ended:
            head, ending, rest = self._unread.partition(b"\r\n\r\n")
            if not ending:
                return False
            assert all(before.is_over for before in self.asked), "a request before the answer to the last"
            path = head.split(b" ")[1]
            is_question = path.startswith(_QUESTION)
            self.asked.append(Asked(path.removeprefix(_QUESTION), 0, is_question=is_question))
            self.asked[-1].has_ended = b"\r\nTransfer-Encoding: chunked" not in head
            self._answers_head = head.startswith(b"HEAD ")
            self._unread = rest
            return True
        size, ending, rest = self._unread.partition(b"\r\n")
        if not ending or b"\r\n" not in rest[(size_bytes := int(size, 16)) :]:
            return False
        if size_bytes:
            self.asked[-1].body += rest[:size_bytes]
            self._unread = rest[size_bytes + 2 :]
        else:
            # Trailers are lines as well, and the last one is empty.
            _, ending, rest = self._unread.partition(b"\r\n\r\n")
            if not ending:
                return False
            self.asked[-1].has_ended = True
            self._unread = rest
        return True


class H2Peer(Peer):
    def __init__(self, sock: socket.socket, settings: list[tuple[int, int]] | None) -> None:
        """Without `settings` it says nothing yet."""
        super().__init__(sock)
        self._is_greeted = False
        self._last_id = frames.MAX_STREAM_ID
        if settings is not None:
            self.say(frames.encode_settings(settings))

    def interim(self, asked: Asked) -> None:
        self.say(headers(asked.stream_id, [(b":status", b"103")], frames.END_HEADERS))

    def answer(self, asked: Asked, status: bytes, body: bytes | None = None) -> None:
        asked.is_begun = True
        asked.status = status
        asked.is_over = body is not None
        asked.sent = body or b""
        end = frames.END_STREAM if body == b"" else 0
        self.say(headers(asked.stream_id, [(b":status", status)], frames.END_HEADERS | end))
        if body:
            self.say(data(asked.stream_id, body, frames.END_STREAM))

    def send(self, asked: Asked, piece: bytes, *, end_stream: bool) -> None:
        asked.sent += piece
        asked.is_over = end_stream
        self.say(data(asked.stream_id, piece, frames.END_STREAM if end_stream else 0))

    def send_trailers(self, asked: Asked) -> None:
        asked.is_over = True
        self.say(headers(asked.stream_id, [(b"grpc-status", b"0")]))

    def reset(self, asked: Asked, code: int) -> None:
        asked.is_begun = asked.is_over = True
        self.say(frames.encode_rst_stream(asked.stream_id, code))

    def leave(self, unprocessed: int) -> None:
        """GOAWAY, without the last so many requests."""
        last_id = max((asked.stream_id for asked in self.asked), default=0)
        self._last_id = min(self._last_id, max(0, last_id - 2 * unprocessed))
        self.say(frames.encode_goaway(self._last_id, 0, b""))

    def _take_one(self) -> bool:
        if not self._is_greeted and len(self._unread) >= len(frames.PREFACE):
            assert self._unread.startswith(frames.PREFACE)
            self._unread = self._unread.removeprefix(frames.PREFACE)
            self._is_greeted = True
        end = frames.HEAD_BYTES + int.from_bytes(self._unread[:3], "big")
        if not self._is_greeted or len(self._unread) < max(end, frames.HEAD_BYTES):
            return False
        frame, self._unread = self._unread[:end], self._unread[end:]
        kind, flags, payload = frame[3], frame[4], frame[frames.HEAD_BYTES :]
        stream_id = int.from_bytes(frame[5:9], "big")
        asked = next((one for one in self.asked if one.stream_id == stream_id), None)
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self.say(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.HEADERS and asked is None:
            start = payload.find(b"/exchange/")
            is_question = payload[:start].endswith(_QUESTION)
            asked = Asked(payload[start : start + _PATH_BYTES], stream_id, is_question=is_question)
            self.asked.append(asked)
        elif kind == frames.RST_STREAM and asked is not None:
            asked.is_begun = asked.is_over = True
        if kind in (frames.DATA, frames.HEADERS) and asked is not None:
            assert not asked.has_ended
            asked.body += payload if kind == frames.DATA else b""
            asked.has_ended = bool(flags & frames.END_STREAM)
        return True


class Site:
    """An address where a backend listens, or does not; nobody else does then."""

    def __init__(self) -> None:
        self._port = ReservedPort()
        self._listening: socket.socket | None = None
        self.toggle()

    @property
    def address(self) -> str:
        return self._port.address

    def toggle(self) -> None:
        """Listen, or stop that."""
        if self._listening is None:
            self._listening = socket.create_server(("127.0.0.1", self._port.number), reuse_port=True)
            self._listening.setblocking(False)
        else:
            self._listening.close()
            self._listening = None

    def accept(self) -> socket.socket | None:
        try:
            return None if self._listening is None else self._listening.accept()[0]
        except BlockingIOError:
            return None

    def close(self) -> None:
        if self._listening is not None:
            self.toggle()
        self._port.close()
