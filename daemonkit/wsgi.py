"""A threaded HTTP/1.1 server for WSGI apps, as a Service of a daemon's lifecycle.

    server = HttpServer("api", ListenAddress.parse("127.0.0.1:8888"), app, log=log, limits=ServerLimits(threads=8))
    daemon.serve(server)

Threads, connections and waiting requests are limited; beyond that the answer is 503. Head, body and response each have
a timeout for the whole, and head and chunked body a size limit. Errors of the server itself are small JSON objects.
While the server drains, running requests finish, idle connections close at once, and responses carry
`Connection: close`. In the app's environ, `daemonkit.client_gone` is a callable that tells whether the client has
disconnected. Most of the work is done by cheroot.
"""

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from daemonkit.addresses import ListenAddress
from daemonkit.lifecycle import StartFailed, no_thread, start_thread
from daemonkit.listening import bound_address, close_listener, open_listener
from daemonkit.logs import Logger
from daemonkit.wsgiengine import Engine, ServerLimits
from daemonkit.wsgitls import UnusablePair

__all__ = ["HttpServer", "ServerLimits"]

_START_TIMEOUT_S = 30.0
_LAST_JOIN_S = 1.0  # how long closing takes when no request is running any more


class HttpServer:
    """One listening address with its app. `start`, `drain` and `stop` must be called from one thread."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        app: Callable[..., Any],
        *,
        log: Logger,
        limits: ServerLimits | None = None,
        tls: tuple[str, str] | None = None,
        on_certificate: Callable[[bytes], None] | None = None,
    ) -> None:
        """`tls`: paths of certificate chain and private key, which are read again when they change.

        `on_certificate` is called with the certificate in use, and with each one that replaces it, in DER.
        """
        self._name = name
        self._address = address
        self._app = app
        self._log = log.bind(server=name)
        self._tls = tls
        self._on_certificate = on_certificate
        self._limits = limits or ServerLimits()
        self._listener: socket.socket | None = None
        self._engine: Engine | None = None
        self._stopping: threading.Thread | None = None
        self._bound: ListenAddress | None = None

    @property
    def bound_address(self) -> ListenAddress:
        """The listening address, with the port that the kernel chose; only after `bind` or `start`."""
        if self._bound is None:
            raise RuntimeError(f"server {self._name} has not started")
        return self._bound

    def bind(self) -> socket.socket:
        """Bind before anything else, for callers that must do nothing else if the address is in use.

        Clients that connect before `start` wait for it. Raises OSError.
        """
        if self._listener is None:
            self._listener = open_listener(self._address)
            self._bound = bound_address(self._listener, self._address)
        return self._listener

    def start(self) -> None:
        """Bind and serve; raises OSError (address in use) or StartFailed (unusable certificate, no threads)."""
        listener = self.bind()
        try:
            engine = Engine(self._name, listener, self._app, self._limits, self._tls, self._log, self._on_certificate)
        except UnusablePair as error:
            raise StartFailed(f"server {self._name}: {error}") from error
        prepared: queue.SimpleQueue[OSError | RuntimeError | None] = queue.SimpleQueue()

        def serve() -> None:
            try:
                engine.prepare()
            except (OSError, RuntimeError) as error:
                prepared.put(error)
                return
            prepared.put(None)
            engine.serve()

        # Workers inherit `daemon` from this thread: a hanging app must not keep the process from exiting.
        start_thread(threading.Thread(target=serve, name=f"{self._name}-connections", daemon=True))
        try:
            lack = prepared.get(timeout=_START_TIMEOUT_S)
        except queue.Empty:
            raise StartFailed(f"server {self._name}: no worker threads within {_START_TIMEOUT_S} s") from None
        if isinstance(lack, RuntimeError):
            raise no_thread(lack) from lack
        if lack is not None:
            raise lack
        self._engine = engine
        self._log.info("listening", address=self._bound)

    def drain(self, deadline_s: float) -> None:
        """Finish running requests, by `deadline_s` (monotonic clock) at the latest."""
        if self._engine is None or self._stopping is not None:
            return
        remaining_s = max(0.0, deadline_s - time.monotonic())
        self._engine.shutdown_timeout = remaining_s
        stopping = threading.Thread(target=self._engine.stop, name=f"{self._name}-stop", daemon=True)
        try:
            start_thread(stopping)
        except StartFailed:
            self._engine.stop()  # may take a little longer than the deadline
            return
        self._stopping = stopping
        stopping.join(remaining_s)

    def stop(self) -> None:
        """Close everything; requests that are still running are cut off."""
        self.drain(time.monotonic())
        if self._stopping is not None:
            self._stopping.join(_LAST_JOIN_S)
        if self._stopping is not None and self._stopping.is_alive():
            self._log.warning("requests still running, cut off")
        if self._listener is not None and self._bound is not None:
            close_listener(self._listener, self._bound)
            self._listener = None
