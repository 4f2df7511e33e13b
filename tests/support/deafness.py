"""Sockets that silently drop incoming packets, as if the network had lost them; no privileges required.

A client that receives nothing: its handshake stays half done, as it normally does for the time of a round trip. A peer
that receives no data: the other side sends it again and again, as when packets of full size are lost on the way.
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
"""Format as in linux/filter.h."""
_MOST_HEADER_BYTES: Final = 60
_SYN_RECV: Final = "03"


def deaf_socket() -> socket.socket:
    """An IPv4 socket; incoming packets are dropped before TCP sees them."""
    sock = socket.socket()
    _filter(sock, _DROP_ALL)
    return sock


def lose_data(sock: socket.socket) -> None:
    """Drop all segments with data from now on, including repeats; acknowledgements still arrive."""
    lose_large(sock, _MOST_HEADER_BYTES)


def lose_large(sock: socket.socket, most_bytes: int) -> None:
    """Drop segments that are larger than this, headers included: a hop that silently drops packets of full size."""
    steps = (
        struct.pack("HBBI", 0x80, 0, 0, 0),  # length of the segment, including its header
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
    """Wait until the kernel has responded to a client of this port whose acknowledgement is outstanding."""
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        if any(state == _SYN_RECV for state, _ in _connections(port)):
            return
    raise AssertionError(f"no handshake is under way on port {port}")


def wait_for_repeats(port: int, times: int) -> None:
    """Wait until the kernel has retransmitted the same data from this port this often in a row."""
    _wait_for_repeats(port, times, is_near=True)


def wait_for_repeats_to(port: int, times: int) -> None:
    """The same for data sent to this port."""
    _wait_for_repeats(port, times, is_near=False)


def _wait_for_repeats(port: int, times: int, *, is_near: bool) -> None:
    end_s = time.monotonic() + _WAIT_S
    while time.monotonic() < end_s:
        if any(repeats >= times for _, repeats in _connections(port, is_near=is_near)):
            return
    raise AssertionError(f"nothing is repeated from or to port {port}")


def _connections(port: int, *, is_near: bool = True) -> Iterator[tuple[str, int]]:
    """State and retransmissions of connections with this local or remote port (proc(5), /proc/net/tcp)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, near, far, state, _, _, repeats, *_ = line.split()
        if int((near if is_near else far).rpartition(":")[2], 16) == port:
            yield state, int(repeats, 16)
