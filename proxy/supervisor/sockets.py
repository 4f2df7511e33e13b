"""The listening sockets of the document: one SO_REUSEPORT socket per worker for each address and port.

The supervisor binds them, so that it knows when the document arrives whether a port cannot be bound, and so that the
queue of a dead worker waits for its successor. A port that cannot be bound affects nothing else: it becomes a `Problem`
and is retried later. Sockets that are no longer needed are closed only by `release`, whether or not the workers have
closed theirs: a queued connection is lost only when every copy of its socket is closed.
"""

import errno
import os
import resource
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from daemonkit.logs import get_logger
from proxy.document import Listener, Problem, canonical_address
from proxy.routing import socket_door

log = get_logger(__name__)

BACKLOG: Final = 1024
SPARE_DESCRIPTORS: Final = 64
"""Descriptors kept free for the config API and for messages of workers: without them nothing could be repaired."""

_REMEDIES: Final = {
    errno.EADDRINUSE: "stop the program that listens there, or choose another port",
    errno.EADDRNOTAVAIL: "choose an address of this host",
    errno.EMFILE: "raise the limit of open files (systemd: LimitNOFILE=)",
    errno.EAFNOSUPPORT: "this host has no such addresses: choose one of the other family",
    errno.ENODEV: "name an interface of this host after the %",
    errno.EINVAL: "a link-local address needs its interface, as in fe80::1%eth0",
}
_PRIVILEGED: Final = (
    "ports below 1024 need a permission: AmbientCapabilities=CAP_NET_BIND_SERVICE (systemd), capability "
    "NET_BIND_SERVICE (Kubernetes), sysctl net.ipv4.ip_unprivileged_port_start, or choose a higher port"
)

Group = tuple[socket.socket, ...]


class ListeningSockets:
    """Not thread-safe; the configuration's lock guards it."""

    def __init__(self, worker_count: int) -> None:
        self._worker_count = worker_count
        self._groups: dict[str, Group] = {}
        self._wanted: dict[str, tuple[int, Listener]] = {}
        self._problems: dict[str, Problem] = {}

    @property
    def groups(self) -> Mapping[str, Group]:
        """The sockets of wanted doors that could be bound."""
        return {door: group for door, group in self._groups.items() if door in self._wanted}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """One for each door that could not be bound."""
        return tuple(self._problems.values())

    def use(self, listeners: Iterable[Listener]) -> None:
        """Bind the ports of these listeners that are not bound yet."""
        wanted: dict[str, tuple[int, Listener]] = {}
        for index, listener in enumerate(listeners):
            if listener.port:
                wanted.setdefault(socket_door(listener.address, listener.port), (index, listener))
        self._wanted = wanted
        self._problems = {door: problem for door, problem in self._problems.items() if door in wanted}
        self.retry()

    def retry(self) -> bool:
        """Try again to bind the missing doors. Returns whether any could be bound."""
        is_better = False
        for door, (index, listener) in self._wanted.items():
            if door in self._groups:
                continue
            try:
                self._groups[door] = self._bind(listener)
            except OSError as error:
                self._fail(door, f"listeners[{index}].port", error, listener.port or 0)
            else:
                is_better = True
                self._problems.pop(door, None)
                log.info("listening", server="listener", address=door)
        return is_better

    def withdraw(self, index: int) -> None:
        """This worker accepts no connections for now: replace its sockets by new ones, which do not listen yet.

        Connections in its queues are reset; new connections go to the other workers.
        """
        for door, group in self._groups.items():
            if door not in self._wanted:
                continue
            listener = self._wanted[door][1]
            try:
                fresh = _bound_socket(listener.address, listener.port or 0)
            except OSError as error:
                log.warning(
                    "cannot withdraw the socket of a missing worker, its connections wait", error=error, address=door
                )
                continue
            group[index].close()
            self._groups[door] = (*group[:index], fresh, *group[index + 1 :])

    def release(self) -> None:
        """Close our copies of sockets that are no longer wanted."""
        for door in [door for door in self._groups if door not in self._wanted]:
            _close(self._groups.pop(door))
            log.info("stopped listening", address=door)

    def close(self) -> None:
        self._wanted = {}
        self._problems = {}
        self.release()

    def _bind(self, listener: Listener) -> Group:
        bound: list[socket.socket] = []
        try:
            for _ in range(self._worker_count):
                bound.append(_bound_socket(listener.address, listener.port or 0))
                # At once, so that there is a queue as soon as the port is ours.
                bound[-1].listen(BACKLOG)
        except OSError:
            _close(bound)
            raise
        return tuple(bound)

    def _fail(self, door: str, path: str, error: OSError, port: int) -> None:
        problem = Problem(path, f"cannot listen on {door}: {_reason(error, port)}; tried again every few seconds")
        if door not in self._problems:
            log.error("cannot listen", error=problem.message, address=door, path=path)
        self._problems[door] = problem


def _bound_socket(address: str, port: int) -> socket.socket:
    address = canonical_address(address)
    is_everywhere = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_everywhere or ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sock.fileno() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_everywhere else 1)
        sock.bind(_sockaddr(address or ("::" if is_everywhere else "0.0.0.0"), port))  # noqa: S104 - asked for
    except OSError:
        sock.close()
        raise
    return sock


def _sockaddr(address: str, port: int) -> tuple[object, ...]:
    """The sockaddr of an IP address. A link-local one names its interface after a %; the kernel wants its index."""
    ip, _, interface = address.partition("%")
    if not interface:
        return ip, port
    try:
        return ip, port, 0, int(interface) if interface.isdecimal() else socket.if_nametoindex(interface)
    except OSError as error:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from error


def _reason(error: OSError, port: int) -> str:
    said = os.strerror(error.errno) if error.errno else str(error)
    is_privileged = error.errno in (errno.EACCES, errno.EPERM) and port < 1024
    remedy = _PRIVILEGED if is_privileged else _REMEDIES.get(error.errno or 0, "")
    return f"{said}; {remedy}" if remedy else said


def _close(group: Iterable[socket.socket]) -> None:
    for sock in group:
        sock.close()
