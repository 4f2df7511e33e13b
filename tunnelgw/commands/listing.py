"""The objects of an API server, listed once. A separate module: importing it takes longer than reading a folder."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping

from tunnelgw.commands.inputs import CannotAnswer, Inputs
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.admission import Problem
from tunnelgw.sources.kubernetes.failures import ApiServerError
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.scope import Part
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

_LISTING_S = 60.0


def from_api_server(kubeconfig: str, namespace: str, secret_namespaces: Collection[str] = ()) -> Inputs:
    """Raises CannotAnswer."""
    stop = threading.Event()
    server = ApiServer(lambda: load_configuration(kubeconfig))
    try:
        server.request("GET", "/version")
    except ApiServerError as error:
        raise CannotAnswer(f"{error}; see --kubeconfig (KUBECONFIG) and --manifests (TUNNELGW_MANIFESTS)") from error
    store = Store(home=namespace, secret_namespaces=secret_namespaces)
    failures: dict[Kind, ApiServerError] = {}
    forbidden: list[Kind] = []

    def note(part: Part, cause: Restart, error: ApiServerError) -> None:
        kind, _ = part
        failures[kind] = error
        if cause is Restart.FORBIDDEN and not store.is_listed(part):  # otherwise only watching is forbidden
            forbidden.append(kind)
            store.wake()

    source = KubernetesSource(server, store, stop, on_restart=note)
    threads = [threading.Thread(target=target, name=name, daemon=True) for name, target in source.threads()]
    for thread in threads:
        thread.start()
    try:
        deadline_s = time.monotonic() + _LISTING_S
        while not store.wait(deadline_s):
            if forbidden:
                raise CannotAnswer(f"{forbidden[0]} may not be listed: {failures[forbidden[0]]}")
            if time.monotonic() >= deadline_s:
                missing = sorted(store.unlisted)
                reasons = sorted({str(failures[kind]) for kind in missing if kind in failures})
                what = ", ".join(missing) or "referenced Secrets"
                raise CannotAnswer(": ".join((f"{what} could not be listed within {_LISTING_S:.0f} s", *reasons)))
        change = store.take()
        return Inputs(change.snapshot, tuple(_problems(change.unreadable)))
    finally:
        stop.set()
        source.drain()
        for thread in threads:
            thread.join(1.0)
        source.stop()


def _problems(unreadable: Mapping[Entry, Unreadable]) -> Iterator[Problem]:
    """Objects that the controller leaves out too, with a log line and an Event."""
    for entry, found in sorted(unreadable.items()):
        yield Problem("", 0, f"cannot be read and is left out: {found.reason}", entry)
