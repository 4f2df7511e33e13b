"""An API server as the origin: objects, statuses, Events, the Lease, and the Secret with the proxies' token."""

import os
import socket
import threading
import uuid
from pathlib import Path

from daemonkit.filereading import read_regular
from daemonkit.secret import Secret
from tunnelgw.model.meta import Key
from tunnelgw.options import Options
from tunnelgw.origins.authsecret import shared_token
from tunnelgw.origins.origin import Listeners, Threads
from tunnelgw.report.events import Recorder
from tunnelgw.sources.kubernetes.events import EventRecorder
from tunnelgw.sources.kubernetes.kubeconfig import edition, load_configuration
from tunnelgw.sources.kubernetes.lease import Leadership
from tunnelgw.sources.kubernetes.reach import Reach
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.kubernetes.statuses import StatusWriter
from tunnelgw.sources.store import Store
from tunnelgw.sources.writing import Writer

_MAX_KUBECONFIG_BYTES = 16 * 1024 * 1024


class ApiServerOrigin:
    def __init__(self, options: Options, store: Store, stop: threading.Event, listeners: Listeners) -> None:
        _require_kubeconfig(options)
        self._options = options
        # A dry run must not take the lead from a controller that writes.
        self._is_elected = options.leader_elect and not options.dry_run
        self._stop = stop
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._reach = Reach()
        self._server = self._new_server()
        self.writer: Writer = StatusWriter(self._server)
        self.recorder: Recorder | None = EventRecorder(self._server, options.controller_name, identity, stop)
        self._source = KubernetesSource(
            self._server, store, stop, on_restart=lambda part, _cause, _error: listeners.on_restart(part[0])
        )
        # The Lease is renewed until nothing is in progress any more, so it needs connections that still work then.
        self._is_over = threading.Event()
        self._gives_way = threading.Event()
        self._leadership = Leadership(
            self._new_server(),
            Key(options.namespace, options.controller_id),
            identity,
            self._is_over,
            lambda _is_held: listeners.on_leading(),
            may_give_back=self._gives_way.is_set,
        )

    def leads(self) -> bool:
        return self._leadership.is_held() if self._is_elected else True

    def threads(self) -> Threads:
        election = [("leader-election", self._leadership.run)] if self._is_elected else []
        events = [("events", self.recorder.run)] if isinstance(self.recorder, EventRecorder) else []
        return [*self._source.threads(), *events, *election]

    def token(self) -> Secret | None:
        options = self._options
        if options.proxy_auth_token is not None or options.dry_run:
            return options.proxy_auth_token  # a dry run calls no proxy, and creates no Secret
        return shared_token(
            self._server, options.auth_secret_key, self._stop, is_managed=options.proxy_auth_secret_managed
        )

    def drain(self) -> None:
        self._source.drain()

    def give_way(self) -> None:
        self._gives_way.set()

    def stop(self) -> None:
        self._is_over.set()
        self._source.stop()

    def _new_server(self) -> ApiServer:
        kubeconfig = self._options.kubeconfig or ""
        return ApiServer(lambda: load_configuration(kubeconfig), lambda: edition(kubeconfig), reach=self._reach)


def _require_kubeconfig(options: Options) -> None:
    """Raises OSError if there is no such file: a misspelt name would be retried for ever. Its content may be wrong,
    since that may be corrected later.

    If several files are named, as for kubectl, some may be missing.
    """
    failure: OSError | None = None
    for name in filter(None, (options.kubeconfig or "").split(os.pathsep)):
        try:
            read_regular(Path(name).expanduser(), _MAX_KUBECONFIG_BYTES)
        except OSError as error:
            reason = f"{error.strerror}: want a kubeconfig, see --kubeconfig and KUBECONFIG"
            failure = OSError(error.errno, reason, name)
        else:
            return
    if failure is not None:
        raise failure
