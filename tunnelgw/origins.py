"""Where objects come from, where their statuses go, and who knows the proxies' token: an API server, or a folder."""

import errno
import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from daemonkit.secret import Secret
from tunnelgw.authsecret import shared_token
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.options import DIRECTORY, Options
from tunnelgw.report.events import Recorder
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.kubernetes.events import EventRecorder
from tunnelgw.sources.kubernetes.lease import Leadership
from tunnelgw.sources.kubernetes.reach import Reach
from tunnelgw.sources.kubernetes.server import ApiServer, edition, load_configuration
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

    @property
    def recorder(self) -> Recorder | None:
        """Of Events; None where there are none."""

    def leads(self) -> bool:
        """Whether we may write, as other controllers do not; `on_leading` is told when that changes."""

    def threads(self) -> Threads: ...

    def token(self) -> Secret | None:
        """Of the shared proxies' config APIs; may wait, and make it. Raises NoToken."""

    def drain(self, deadline_s: float) -> None: ...

    def give_way(self) -> None:
        """Nothing of ours is under way any more: another controller may write from `stop` on."""

    def stop(self) -> None: ...


class Listeners(NamedTuple):
    """What an origin tells, from threads of its own."""

    on_restart: Callable[[Kind], None]
    """A watch began again after a failure."""
    on_leading: Callable[[], None]
    """Another controller leads now, or we do."""


def origin_of(options: Options, store: Store, stop: threading.Event, listeners: Listeners) -> Origin:
    """Raises OSError when a folder cannot be used, or the kubeconfig cannot be read."""
    if options.source == DIRECTORY:
        return FolderOrigin(options, store, stop)
    return ApiServerOrigin(options, store, stop, listeners)


class ApiServerOrigin:
    def __init__(self, options: Options, store: Store, stop: threading.Event, listeners: Listeners) -> None:
        _require_kubeconfig(options)
        self._options = options
        self._stop = stop
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._reach = Reach()
        self.server = self._server()
        self.writer: Writer = StatusWriter(self.server)
        self.recorder: Recorder | None = EventRecorder(self.server, options.controller_name, identity, stop)
        self._source = KubernetesSource(
            self.server, store, stop, on_restart=lambda kind, _cause, _error: listeners.on_restart(kind)
        )
        # The Lease is renewed until nothing is under way any more, over connections that still work then.
        self._is_over = threading.Event()
        self._gives_way = threading.Event()
        self._lease_server = self._server()
        self._leadership = Leadership(
            self._lease_server,
            Key(options.namespace, options.controller_id),
            identity,
            self._is_over,
            lambda _is_held: listeners.on_leading(),
            may_give_back=self._gives_way.is_set,
        )

    def leads(self) -> bool:
        return self._leadership.is_held() if self._options.leader_elect else True

    def threads(self) -> Threads:
        election = [("leader-election", self._leadership.run)] if self._options.leader_elect else []
        events = [("events", self.recorder.run)] if isinstance(self.recorder, EventRecorder) else []
        return [*self._source.threads(), *events, *election]

    def token(self) -> Secret | None:
        options = self._options
        if options.proxy_auth_token is not None or options.dry_run:
            return options.proxy_auth_token  # in a dry run no proxy is asked, and no Secret made
        return shared_token(
            self.server, options.auth_secret_key, self._stop, is_managed=options.proxy_auth_secret_managed
        )

    def drain(self, deadline_s: float) -> None:
        self._source.drain(deadline_s)

    def give_way(self) -> None:
        self._gives_way.set()

    def stop(self) -> None:
        self._is_over.set()
        self._source.stop()

    def _server(self) -> ApiServer:
        kubeconfig = self._options.kubeconfig or ""
        return ApiServer(lambda: load_configuration(kubeconfig), lambda: edition(kubeconfig), reach=self._reach)


class FolderOrigin:
    def __init__(self, options: Options, store: Store, stop: threading.Event) -> None:
        _require_manifests(options)
        if not options.dry_run:
            _require_writable(options)
        self.recorder: Recorder | None = None
        self._token = options.proxy_auth_token
        self._source = DirectorySource(
            options.manifests_path, options.status_path, store, stop, is_dry_run=options.dry_run
        )
        self.writer: Writer = self._source.writer()

    def threads(self) -> Threads:
        return [self._source.thread()]

    def leads(self) -> bool:
        return True

    def token(self) -> Secret | None:
        return self._token

    def drain(self, deadline_s: float) -> None:
        """Nothing is under way longer than a look at the folder."""

    def give_way(self) -> None:
        """Nobody waits."""

    def stop(self) -> None:
        """Nothing is open."""


def _require_kubeconfig(options: Options) -> None:
    """A name that is misspelt would be tried for ever. What the file says may become true later.

    Of several, as kubectl takes them, some may be missing.
    """
    failure: OSError | None = None
    for name in filter(None, (options.kubeconfig or "").split(os.pathsep)):
        try:
            Path(name).expanduser().open("rb").close()
        except OSError as error:
            reason = f"{error.strerror}: want a kubeconfig, see --kubeconfig and KUBECONFIG"
            failure = OSError(error.errno, reason, name)
        else:
            return
    if failure is not None:
        raise failure


def _require_manifests(options: Options) -> None:
    """A folder that is misspelt must not be made: an empty one takes away all that is served."""
    path = options.manifests_path
    try:
        os.scandir(path).close()
    except OSError as error:
        reason = f"{error.strerror}: want the folder with the manifests, see --manifests"
        raise OSError(error.errno, reason, str(path)) from error


def _require_writable(options: Options) -> None:
    """Statuses, generations and times of creation are kept there: without them nothing is true after a restart."""
    path = options.status_path
    remedy = "statuses are written here; choose another place with --status-dir"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(error.errno, f"{reason}: {remedy}", str(path)) from error
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, f"read-only file system: {remedy}", str(path))
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"permission denied: {remedy}", str(path))
