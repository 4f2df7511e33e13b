"""Secrets and ConfigMaps that were listed before anything referred to them, and cannot be fetched."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.tunnelgw.sources.kubernetes.running import DEADLINE_S
from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi
from tests.tunnelgw.sources.objects import gateway, secret
from tunnelgw.model.core import Secret
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

NAMES = ("a", "b", "c")
FORBIDDEN = 403, {"code": 403, "reason": "Forbidden", "message": "no"}


def test_several_failed_fetches_are_logged_once_and_tried_until_they_succeed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The account may list them, but not get them."""
    store, stop = Store(()), threading.Event()
    for name in NAMES:
        store.upsert(Kind.SECRET, secret(name))
        store.upsert(Kind.GATEWAY, gateway(name, name))
    with ScriptedApi() as api:
        paths = {name: f"/api/v1/namespaces/default/secrets/{name}" for name in NAMES}
        api.refusals = dict.fromkeys(paths.values(), FORBIDDEN)
        server = ApiServer(lambda: load_configuration(str(api.kubeconfig(tmp_path))))
        fetch = dict(KubernetesSource(server, store, stop).threads())["fetch-named"]
        thread = threading.Thread(target=fetch)
        thread.start()
        try:
            assert store.wait(time.monotonic() + DEADLINE_S), "a Secret that cannot be fetched delays all changes"
            store.take()
            assert caplog.messages == ["named object could not be read, retrying"]

            for name, path in paths.items():
                metadata = {"name": name, "namespace": "default"}
                api.refusals[path] = (200, {"metadata": metadata, "data": {"tls.key": "cHJpdmF0ZQ=="}})

            found: set[str] = set()
            while found != {*NAMES}:
                assert store.wait(time.monotonic() + DEADLINE_S), f"fetched so far: {found}"
                secrets = store.take().snapshot.all(Kind.SECRET).values()
                found = {item.metadata.name for item in secrets if isinstance(item, Secret) and item.data}
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            server.close()
        assert not thread.is_alive()


def test_a_fetched_object_that_cannot_be_read_does_not_replace_what_a_watch_has_shown_meanwhile(
    tmp_path: Path,
) -> None:
    """The next event of the watch might be days away."""
    stop = threading.Event()
    unreadable = {"metadata": {"name": "a", "namespace": "default"}, "data": 1}
    newer = secret("a", key="bmV3")

    class Overtaken(Store):
        """The watch shows a newer version of the Secret while the fetch is under way."""

        def wait_unread(self, timeout_s: float) -> tuple[Entry, ...]:
            asked = super().wait_unread(timeout_s)
            if asked:
                self.upsert(Kind.SECRET, newer)
            return asked

        def fill(self, entry: Entry, found: Object | Unreadable | None) -> None:
            super().fill(entry, found)
            stop.set()

    store = Overtaken(())
    store.upsert(Kind.SECRET, secret("a"))
    store.upsert(Kind.GATEWAY, gateway("a", "a"))
    with ScriptedApi() as api:
        api.refusals = {"/api/v1/namespaces/default/secrets/a": (200, unreadable)}
        server = ApiServer(lambda: load_configuration(str(api.kubeconfig(tmp_path))))
        dict(KubernetesSource(server, store, stop).threads())["fetch-named"]()
        server.close()

    change = store.take()
    assert change.unreadable == {}
    assert change.snapshot.read(Entry(Kind.SECRET, newer.key)) == newer
