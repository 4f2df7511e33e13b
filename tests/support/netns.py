"""A network namespace for a probe: loopback and one more address, nothing else, and no port in use.

    python -m tests.support.netns ADDRESS COMMAND [ARGUMENT ...]

runs COMMAND in it. Exit code 77 means that this machine does not allow it. Only Linux has namespaces; if the caller is
not root, a user namespace is created as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

NOT_ALLOWED = 77

CLONE_NEWUSER = 0x10000000  # linux/sched.h
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914  # linux/sockios.h
SIOCSIFADDR = 0x8916
IFF_UP = 0x1


def enter() -> None:
    """Move this process, which must have only one thread, into a new namespace; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare: no network namespace can be made here")


def set_up(address: str) -> None:
    """Bring loopback up, with `address` (IPv4) as a second address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
        there = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(control, SIOCSIFADDR, struct.pack("16s16s", b"lo:1", there))


def main() -> None:
    address, *command = sys.argv[1:]
    try:
        enter()
        set_up(address)
    except (OSError, AttributeError) as error:
        print(f"no network namespace: {error}", file=sys.stderr)
        sys.exit(NOT_ALLOWED)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
