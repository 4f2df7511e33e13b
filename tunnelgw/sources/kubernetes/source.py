"""The API server as a source: a thread per kind, and one that fetches Secrets and ConfigMaps that are named only later.

If Secrets are read only in some namespaces, each of these has its own thread.
"""

import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus

from daemonkit.logs import get_logger
from daemonkit.waits import doubling
from tunnelgw.model.core import Secret
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.kubernetes.decode import ObjectDecoder, Rejected
from tunnelgw.sources.kubernetes.discovery import Bell
from tunnelgw.sources.kubernetes.failures import ApiServerError, Refused
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.watch import LEFT_OUT_SECRETS, OnRestart, Shared, Timing, Watch
from tunnelgw.sources.references import WITH_DATA
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

_IDLE_S = 1.0
_LONGEST_RETRY_S = 5.0
_FETCH_S = 5.0
"""The time limit for fetching one object; the others wait meanwhile."""

_log = get_logger("tunnelgw.sources.kubernetes")


class KubernetesSource:
    def __init__(
        self,
        server: ApiServer,
        store: Store,
        stop: threading.Event,
        timing: Timing = Timing(),  # noqa: B008  # frozen
        on_restart: OnRestart = lambda _part, _cause, _error: None,
    ) -> None:
        self._server = server
        self._store = store
        self._stop = stop
        self._bell = Bell()
        self._limited = _log.every(60.0)
        shared = Shared(server, store, self._bell, stop, timing, on_restart, self._limited)
        self._watches: dict[str, Watch] = {}
        """By thread name."""
        for kind, resource in RESOURCES.items():
            namespaces = sorted(store.secret_namespaces) if kind is Kind.SECRET else []
            for namespace in namespaces or [""]:
                name = "-".join(filter(None, ("watch", resource.plural, namespace)))
                self._watches[name] = Watch(resource, shared, namespace)
        self._decoders = {kind: ObjectDecoder(RESOURCES[kind]) for kind in WITH_DATA}

    def threads(self) -> Sequence[tuple[str, Callable[[], None]]]:
        """Thread names and targets; each runs until `stop` is set."""
        return [*((name, watch.run) for name, watch in self._watches.items()), ("fetch-named", self._fetch_named)]

    def drain(self) -> None:
        """End everything that waits on a socket, after `stop` was set."""
        self._server.interrupt()
        self._bell.ring()

    def stop(self) -> None:
        self._server.close()

    def _fetch_named(self) -> None:
        wait_s, waits = _IDLE_S, doubling(_IDLE_S, _LONGEST_RETRY_S)
        while not self._stop.is_set():
            results = [self._fetch(entry) for entry in self._store.wait_unread(wait_s) if not self._stop.is_set()]
            if all(results):
                wait_s, waits = _IDLE_S, doubling(_IDLE_S, _LONGEST_RETRY_S)
            else:
                wait_s = next(waits)

    def _fetch(self, entry: Entry) -> bool:
        """Returns False if it has to be tried again."""
        try:
            self._store.fill(entry, self._read(entry))
        except ApiServerError as error:
            fields = {"kind": str(entry.table), "name": str(entry.key)}
            self._limited.warning("named object could not be read, retrying", error, **fields)
            self._store.give_up(entry)
            return False
        return True

    def _read(self, entry: Entry) -> Object | Unreadable | None:
        kind = Kind(entry.table)
        resource = RESOURCES[kind]
        path = f"{resource.path}/namespaces/{entry.key.namespace}/{resource.plural}/{entry.key.name}"
        try:
            item = self._decoders[kind].object(self._server.request("GET", path, timeout_s=_FETCH_S))
        except Refused as refusal:
            if refusal.status_code == HTTPStatus.NOT_FOUND:
                return None
            raise
        if isinstance(item, Rejected):
            return item.problem
        if isinstance(item, Secret) and item.type in LEFT_OUT_SECRETS:  # lists leave it out, so it must not exist here
            return None
        return item
