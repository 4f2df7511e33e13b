"""Where objects come from, where their statuses go, and who knows the proxies' token: an API server, or a folder."""

import errno
import os
import threading
from collections.abc import Callable
from typing import Protocol

from daemonkit.secret import Secret
from tunnelgw.authsecret import shared_token
from tunnelgw.model.kinds import Kind
from tunnelgw.options import DIRECTORY, Options
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.kubernetes.server import ApiServer, load_configuration
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.kubernetes.statuses import StatusWriter
from tunnelgw.sources.store import Store
from tunnelgw.sources.writing import Writer

Threads = list[tuple[str, Callable[[], None]]]


class Origin(Protocol):
    """A part of the daemon; its threads run until the daemon's `stop` is set."""

    @property
    def writer(self) -> Writer:
        """Of statuses."""

    def threads(self) -> Threads: ...

    def token(self) -> Secret | None:
        """Of the shared proxies' config APIs; may wait, and make it. Raises NoToken."""

    def drain(self, deadline_s: float) -> None: ...

    def stop(self) -> None: ...


def origin_of(options: Options, store: Store, stop: threading.Event, on_restart: Callable[[Kind], None]) -> Origin:
    """Raises OSError when a folder cannot be used."""
    if options.source == DIRECTORY:
        return FolderOrigin(options, store, stop)
    return ApiServerOrigin(options, store, stop, on_restart)


class ApiServerOrigin:
    def __init__(
        self, options: Options, store: Store, stop: threading.Event, on_restart: Callable[[Kind], None]
    ) -> None:
        self._options = options
        self._stop = stop
        self.server = ApiServer(lambda: load_configuration(options.kubeconfig or ""))
        self.writer: Writer = StatusWriter(self.server)
        self._source = KubernetesSource(self.server, store, stop, on_restart=lambda kind, _cause: on_restart(kind))

    def threads(self) -> Threads:
        return [*self._source.threads()]

    def token(self) -> Secret | None:
        options = self._options
        if options.proxy_auth_token is not None or options.dry_run:
            return options.proxy_auth_token  # in a dry run no proxy is asked, and no Secret made
        return shared_token(
            self.server, options.auth_secret_key, self._stop, is_managed=options.proxy_auth_secret_managed
        )

    def drain(self, deadline_s: float) -> None:
        self._source.drain(deadline_s)

    def stop(self) -> None:
        self._source.stop()


class FolderOrigin:
    def __init__(self, options: Options, store: Store, stop: threading.Event) -> None:
        _require_writable(options)
        self._token = options.proxy_auth_token
        self._source = DirectorySource(options.manifests_path, options.status_path, store, stop)
        self.writer: Writer = self._source.writer()

    def threads(self) -> Threads:
        return [self._source.thread()]

    def token(self) -> Secret | None:
        return self._token

    def drain(self, deadline_s: float) -> None:
        """Nothing is under way longer than a look at the folder."""

    def stop(self) -> None:
        """Nothing is open."""


def _require_writable(options: Options) -> None:
    """Statuses, generations and times of creation are kept there: without them nothing is true after a restart."""
    path = options.status_path
    remedy = "statuses are written here; choose another place with --status-dir"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise OSError(errno.EROFS, f"read-only file system: {remedy}", str(path)) from error
        raise
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, f"read-only file system: {remedy}", str(path))
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"permission denied: {remedy}", str(path))
