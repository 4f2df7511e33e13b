"""Sockets that do not hear what comes for them, as though the network had lost it: without a word, and without rights.

A client that hears nothing: its handshake stays half done, as one does for the time of a round trip. A peer that hears
no data: the other side sends it again and again, as where packets of full size are lost on the way.
"""

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_WAIT_S: Final = 10.0
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""As in linux/filter.h."""
_MOST_HEADER_BYTES: Final = 60
_SYN_RECV: Final = "03"


def deaf_socket() -> socket.socket:
    """For IPv4; whatever comes is dropped before TCP sees it."""
    sock = socket.socket()
    _filter(sock, _DROP_ALL)
    return sock


def lose_data(sock: socket.socket) -> None:
    """All of some bytes that comes from now on, however often; what acknowledges something is heard."""
    lose_large(sock, _MOST_HEADER_BYTES)


def lose_large(sock: socket.socket, most_bytes: int) -> None:
    """All segments that are larger, with their headers: a hop that passes no packets of full size, and says nothing."""
    steps = (
        struct.pack("HBBI", 0x80, 0, 0, 0),  # the segment's length, its header included
        struct.pack("HBBI", 0x25, 1, 0, most_bytes),
        struct.pack("HBBI", 0x06, 0, 0, 0xFFFF_FFFF),
        _DROP_ALL,
    )
    _filter(sock, b"".join(steps))


def _filter(sock: socket.socket, steps: bytes) -> None:
    code = ctypes.create_string_buffer(steps)
    given = struct.pack("HP", len(steps) // len(_DROP_ALL), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


def hear_again(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def wait_for_handshake(port: int) -> None:
    """Until the kernel has answered a client of this port that has not acknowledged it."""
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        if any(state == _SYN_RECV for state, _ in _connections(port)):
            return
    raise AssertionError(f"no handshake is under way on port {port}")


def wait_for_repeats(port: int, times: int) -> None:
    """Until the kernel has sent the same from this port again so often, one time after the other."""
    _wait_for_repeats(port, times, is_near=True)


def wait_for_repeats_to(port: int, times: int) -> None:
    """The same, of what is sent to this port."""
    _wait_for_repeats(port, times, is_near=False)


def _wait_for_repeats(port: int, times: int, *, is_near: bool) -> None:
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        if any(repeats >= times for _, repeats in _connections(port, is_near=is_near)):
            return
    raise AssertionError(f"nothing is repeated from or to port {port}")


def _connections(port: int, *, is_near: bool = True) -> Iterator[tuple[str, int]]:
    """State and repeats of those that have this port, or whose peers have (proc(5), /proc/net/tcp)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, near, far, state, _, _, repeats, *_ = line.split()
        if int((near if is_near else far).rpartition(":")[2], 16) == port:
            yield state, int(repeats, 16)
