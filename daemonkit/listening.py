"""Listening sockets: dual stack, IPv4, IPv6, unix.

A stale unix socket file, on which nothing listens any more, is replaced; one in use is an error, and so is any other
file at that path. The socket's mode is 0660: its group decides who may connect.
"""

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from daemonkit.addresses import ListenAddress

UNIX_SOCKET_MODE = 0o660
_BACKLOG = 512

_REMEDIES = {
    errno.EADDRINUSE: "; stop the process that listens there, or choose another address",
    errno.EADDRNOTAVAIL: "; choose an address of this machine",
    errno.EEXIST: "; remove it, or choose another path",
    errno.EACCES: "; choose a port above 1023, or a directory that this user may write to",
    errno.ENOENT: "; create its directory first, or choose another path",
    errno.ENOTDIR: "; choose a path in a directory",
    socket.EAI_NONAME: "; choose an address of this machine",
    socket.EAI_AGAIN: "; choose an address of this machine, not a name",
}


def open_listener(address: ListenAddress) -> socket.socket:
    """A bound and listening socket; raises OSError whose text names `address`."""
    try:
        return _open_unix(address.path) if address.is_unix else _open_tcp(address)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise OSError(error.errno or errno.EADDRNOTAVAIL, f"cannot listen on {address}: {reason}{remedy}") from error


def bound_address(listener: socket.socket, address: ListenAddress) -> ListenAddress:
    """`address` with the port that the kernel chose when 0 was asked for."""
    if address.is_unix:
        return address
    return ListenAddress(address.host, int(listener.getsockname()[1]))


def close_listener(listener: socket.socket, address: ListenAddress) -> None:
    """Close the socket, and remove its file if it is a unix socket, unless a successor already listens there."""
    listener.close()
    if address.is_unix:
        with contextlib.suppress(OSError):
            _remove_stale(address.path)


def _open_tcp(address: ListenAddress) -> socket.socket:
    if not address.host:
        if socket.has_dualstack_ipv6():
            return _bound(socket.AF_INET6, ("::", address.port), is_dual_stack=True)
        return _bound(socket.AF_INET, ("0.0.0.0", address.port))  # noqa: S104 - every address was asked for
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    return _bound(family, where)


def _bound(family: int, where: tuple[object, ...], is_dual_stack: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted daemon must not wait until its predecessor's connections time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        if is_dual_stack:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _open_unix(path: str) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before bind, so that the mode is never wider; and after it, because the umask may have made it narrower.
        os.fchmod(listener.fileno(), UNIX_SOCKET_MODE)
        listener.bind(path)
        Path(path).chmod(UNIX_SOCKET_MODE)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: str) -> None:
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "a file that is not a socket exists there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except FileNotFoundError:  # removed meanwhile
            return
        except PermissionError:
            # Whether anything listens there remains unknown.
            raise FileExistsError(errno.EEXIST, "a socket of another user exists there") from None
        except OSError:
            # So busy that it accepts nobody now, or a socket of another type.
            pass
    raise OSError(errno.EADDRINUSE, "another process listens there")
