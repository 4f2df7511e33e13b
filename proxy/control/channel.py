"""Packets with descriptors over AF_UNIX SOCK_SEQPACKET."""

import array
import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

R = TypeVar("R")

MAX_DESCRIPTORS: Final = 200
"""In one packet; the kernel's limit is 253."""
_MAX_PACKET_BYTES: Final = 64 * 1024
_DESCRIPTOR_BYTES: Final = array.array("i").itemsize


class Incomplete(OSError):
    """A message arrived without its descriptors, for which this process has no room; they are closed."""

    def __init__(self, message: object) -> None:
        super().__init__("a message of the control channel arrived incomplete: raise the limit of open files")
        self.message = message


class Channel(Generic[R]):
    """One end, which receives messages of type R. One thread may receive while others send, one at a time."""

    def __init__(self, sock: socket.socket, received_type: object) -> None:
        self._sock = sock
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(received_type).decode

    @property
    def sock(self) -> socket.socket:
        """Only for waiting on it."""
        return self._sock

    def limit_sending(self, timeout_s: float) -> None:
        """Make `send` fail if the peer takes nothing for this time; `receive` still waits without limit."""
        whole_s = int(timeout_s)
        limit = struct.pack("ll", whole_s, int((timeout_s - whole_s) * 1_000_000))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """The peer gets duplicates of the descriptors; ours stay open. Raises OSError (BlockingIOError if full)."""
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self._sock.sendmsg([self._encode(message)], passed, socket.MSG_NOSIGNAL)

    def receive(self) -> tuple[R, list[int]] | None:
        """A message and the descriptors that came with it, which the caller owns; None if the peer is gone.

        Raises Incomplete, and OSError if nothing can be received.
        """
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                _MAX_PACKET_BYTES, socket.CMSG_SPACE(MAX_DESCRIPTORS * _DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return None
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % _DESCRIPTOR_BYTES])
        if not data:
            return None
        if flags & socket.MSG_CTRUNC:
            for descriptor in descriptors:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            raise Incomplete(self._decode(data))
        if flags & socket.MSG_TRUNC:
            raise OSError("a message of the control channel is too long")
        return self._decode(data), list(descriptors)

    def hang_up(self) -> None:
        """Make `receive` return None on both sides; any thread may call this."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


def channel_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
