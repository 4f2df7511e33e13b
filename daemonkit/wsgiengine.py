"""cheroot's server with bounded waiting: one thread watches all connections, a fixed pool of workers runs requests.

A connection reaches a worker only with a complete head, so slow and idle clients cost a file descriptor but no thread.
Everything that can pile up is limited: connections, and complete requests that wait for a worker; beyond either limit,
the answer is 503. When idle connections use up the limit, a new one replaces the one that has been idle longest. So a
client that leaves many connections open locks out nobody, least of all health probes. A client that does not read its
responses, or does not send the body that it has announced, is cut off when others wait for its thread. TLS handshakes
run in small steps in the watching thread, and never block other connections.
"""

import contextlib
import logging
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cheroot.connections import ConnectionManager
from cheroot.workers.threadpool import ThreadPool
from cheroot.wsgi import Server

from daemonkit.logs import Logger
from daemonkit.openfiles import open_files_limits
from daemonkit.wsgirequest import Connection, Gateway
from daemonkit.wsgistreams import Head
from daemonkit.wsgitls import Tls

# The longest delay before an expired connection is noticed, or before stopping begins.
_TURN_S = 0.2
_MAX_ACCEPTED_AT_STOP = 1024
_PAUSE_AFTER_FAILURE_S = 0.05
_STOP_PATIENCE_S = 1.5
"""Applies to a client that takes nothing of its response while we stop; one that keeps reading has the grace period."""


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """How many resources a client may use, and for how long."""

    threads: int = 16
    request_queue: int = 256
    """Complete requests that may wait for a thread."""
    max_connections: int = 512
    """Additionally limited to a quarter of the files that the process may open: other parts of it need some too."""
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    idle_timeout_s: float = 120.0
    """Longer than the 90 s of Go's HTTP client: the side that sends the next request should be the one that closes."""
    send_timeout_s: float = 30.0
    max_header_bytes: int = 65536
    max_body_bytes: int | None = None
    """For chunked bodies; apps check the Content-Length themselves."""


def _within_quarter_of_files(count: int) -> int:
    open_files, _ = open_files_limits()
    return count if open_files == resource.RLIM_INFINITY else min(count, open_files // 4)


class _Connections(ConnectionManager):
    """All connections that wait for data."""

    _selector: Any
    _stop_requested: bool

    def _run(self, expiration_interval: float) -> None:
        """Until `stop` is called. cheroot's own goes by the wall clock, so nothing expires for long once that is set
        back."""
        expired_s = time.monotonic()
        while not self._stop_requested:
            self._hand_on(expiration_interval, most_accepted=1)
            if time.monotonic() - expired_s > expiration_interval:
                self._expire_overdue()
                expired_s = time.monotonic()

    def _hand_on(self, timeout_s: float, *, most_accepted: int) -> None:
        """Wait for data and new connections, and pass on what has arrived."""
        for fd, conn in list(self._selector.select(timeout=timeout_s)):
            if conn is not self.server:
                self._selector.unregister(fd)
                self.server.process_conn(conn)
                continue
            for _ in range(most_accepted):
                accepted = self._from_server_socket(self.server.socket)
                if accepted is None:
                    break
                self.server.process_conn(accepted)

    def _expire_overdue(self) -> None:
        now_s = time.monotonic()
        waiting = [(fd, conn) for fd, conn in self._selector.connections if conn is not self.server]
        for fd, conn in waiting:
            if conn.waits_until_s >= now_s:
                continue
            self._selector.unregister(fd)
            # Read what has arrived first: if the process was frozen (SIGSTOP, a container), epoll has not reported it
            # yet.
            if conn.gather_head() is Head.COMPLETE or conn.waits_until_s >= now_s:
                self.server.process_conn(conn)
            else:
                conn.expire()

    def most_idle(self) -> Connection | None:
        """Remove and return the connection to give up: preferably one that has not sent its first request, else one
        that is idle between requests."""
        waiting = [(fd, conn) for fd, conn in self._selector.connections if conn is not self.server]
        for fd, conn in sorted(waiting, key=lambda each: (not each[1].is_new, each[1].waits_until_s)):
            if not conn.has_news():  # otherwise it may be on this turn's list
                self._selector.unregister(fd)
                found: Connection = conn
                return found
        return None

    def _from_server_socket(self, server_socket: socket.socket) -> Connection | None:
        try:
            conn: Connection | None = super()._from_server_socket(server_socket)  # type: ignore[misc]
        except OSError as error:
            # Out of descriptors or memory: the listener stays readable, so this would be a busy loop without a pause.
            self.server.rare_log.warning("cannot accept a connection", error)
            time.sleep(_PAUSE_AFTER_FAILURE_S)
            return None
        return conn

    def put(self, conn: Connection) -> None:
        """Any thread."""
        try:
            super().put(conn)
        except OSError as error:
            # A limit of watches, no memory. cheroot would take an error here for a reason to end the server.
            self.server.rare_log.warning("cannot watch a connection, closing it", error)
            conn.close()

    def finish(self) -> None:
        """After the last turn: hand on everything that has arrived, including connections in the listen queue."""
        self._hand_on(0.0, most_accepted=_MAX_ACCEPTED_AT_STOP)


class _Threads(ThreadPool):
    """The workers. cheroot's own go by the wall clock when they are to end: they cut off requests at once if it is set
    forward, and late if it is set back."""

    _deadline_s = 0.0

    def stop(self, timeout: float = 0.0) -> None:
        self._deadline_s = time.monotonic() + timeout
        super().stop(0)

    def _clear_threads(self) -> Iterator[threading.Thread]:
        """The threads, all of which were told to end; cheroot cuts off each that has not when it is yielded."""
        for thread in super()._clear_threads():  # type: ignore[misc]
            thread.join(max(0.0, self._deadline_s - time.monotonic()))
            yield thread


class Engine(Server):
    """Serves one listening socket, which its owner opens and closes."""

    ConnectionClass = Connection
    expiration_interval = _TURN_S

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        app: Callable[..., Any],
        limits: ServerLimits,
        tls: tuple[str, str] | None,
        log: Logger,
        on_certificate: Callable[[bytes], None] | None,
    ) -> None:
        where = listener.getsockname()
        super().__init__(
            where if isinstance(where, str) else where[:2],
            app,
            server_name=name,
            shutdown_timeout=0,  # whoever stops it sets how long requests may run on
        )
        self.requests = _Threads(self, limits.threads, limits.threads, limits.request_queue, 0)
        self.log = log
        self.rare_log = log.every(10.0)
        self.gateway = Gateway
        self.software = name
        self.timeout = int(limits.idle_timeout_s)
        self._max_connections = self.keep_alive_conn_limit = _within_quarter_of_files(limits.max_connections)
        self.max_request_header_size = limits.max_header_bytes
        self.header_timeout_s = limits.header_timeout_s
        self.body_timeout_s = limits.body_timeout_s
        self.idle_timeout_s = limits.idle_timeout_s
        self.send_timeout_s = limits.send_timeout_s
        self.max_body_bytes = limits.max_body_bytes
        self.open_connections: set[Connection] = set()
        """From accept to close, whether with the watching thread, in the queue or with a worker. Any thread adds and
        discards; both are atomic."""
        self._patient_threads = threading.BoundedSemaphore(max(1, limits.threads // 4))
        self._turn_to_keep = threading.Lock()
        """Held while a connection is handed back, and while `ready` is cleared: none may be handed back once all idle
        connections are closed."""
        self.socket = listener
        if tls is not None:
            self.ssl_adapter = Tls(*tls, log, on_certificate)

    @contextlib.contextmanager
    def patience(self) -> Iterator[bool]:
        """Whether this thread may wait for unwanted data that a client is still sending.

        Only a quarter of the threads may: otherwise such clients could keep all others waiting.
        """
        is_allowed = self._patient_threads.acquire(blocking=False)
        try:
            yield is_allowed
        finally:
            if is_allowed:
                self._patient_threads.release()

    def lacks_threads(self) -> bool:
        """Whether complete requests wait while no thread is free: a client that sends nothing is then cut off."""
        # When stopping, the queue also holds one item per thread that tells the thread to end.
        orders = 0 if self.ready else self.requests.max
        are_missing: bool = self.requests.qsize > orders and self.requests.idle == 0
        return are_missing

    def needs_threads_back(self, deaf_s: float) -> bool:
        """Whether to cut off a client that has taken nothing for `deaf_s`.

        True if complete requests wait while no thread is free, or if all threads are to end.
        """
        return self.lacks_threads() or (not self.ready and deaf_s > _STOP_PATIENCE_S)

    def prepare(self) -> None:
        """Start the workers. cheroot's own would open a socket, ignoring modes, stale files and systemd's variables."""
        self.socket.setblocking(False)
        self._connections = _Connections(self)
        self.requests.start()
        self.ready = True

    def serve(self) -> None:
        """Watch connections until `stop`."""
        while self.ready:
            try:
                self._connections.run(self.expiration_interval)
            except Exception as error:
                self.log.exception("watching connections failed", error=error)
                time.sleep(_PAUSE_AFTER_FAILURE_S)  # a failure that recurs at once must not fill the log

    def process_conn(self, conn: Connection) -> None:
        """Handle a connection that is new or readable, or that already has its next request. Never blocks."""
        if conn.is_new and len(self.open_connections) > self._max_connections:
            idle = self._connections.most_idle()
            if idle is None:
                self._overloaded(conn)
                return
            self.rare_log.warning("too many connections, closing the longest idle one", client=idle.remote_addr)
            idle.give_way()
        head = conn.gather_head()
        if head is Head.COMPLETE:
            try:
                self.requests.put(conn)
            except queue.Full:
                self._overloaded(conn)
        elif head is Head.GONE or not self.ready:
            conn.close()
        else:
            self._connections.put(conn)

    def _overloaded(self, conn: Connection) -> None:
        self.rare_log.warning("overloaded, answering 503", client=conn.remote_addr)
        conn.refuse(503)

    def put_conn(self, conn: Connection) -> None:
        """Called when a worker has finished a request and the connection stays open."""
        conn.wait_for_next()
        with self._turn_to_keep:
            super().put_conn(conn)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:  # noqa: ARG002 - cheroot's
        if traceback:
            self.log.exception("server error", detail=msg)
        else:
            self.log.debug("client error", detail=msg)

    def stop(self) -> None:
        """Accept no new connections, close idle ones, and let requests finish within `shutdown_timeout` seconds."""
        if not self.ready:
            return
        # From here on responses carry `Connection: close`, and connections are not kept.
        with self._turn_to_keep:
            self.ready = False
        self._connections.stop()
        self._connections.finish()
        self.socket.close()
        self._connections.close()
        self.requests.stop(self.shutdown_timeout)
