"""The thread that looks at the folder, and when it does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.routes import HttpRoute
from tunnelgw.sources.directory import source
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.store import Change

DEADLINE_S = 30.0


@contextmanager
def threaded(site: Site) -> Iterator[Callable[[Callable[[Change], bool]], Change]]:
    stop = threading.Event()
    source = DirectorySource(site.root, site.status, site.store, stop)
    name, target = source.thread()
    thread = threading.Thread(target=target, name=name)
    thread.start()

    def until(is_so: Callable[[Change], bool]) -> Change:
        deadline_s = time.monotonic() + DEADLINE_S
        while site.store.wait(deadline_s):
            change = site.store.take()
            if is_so(change):
                return change
        raise AssertionError("not seen in time")

    try:
        yield until
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_the_thread_picks_up_what_an_editor_writes(site: Site) -> None:
    def hostnames(item: Object | None) -> tuple[str, ...]:
        return item.spec.hostnames if isinstance(item, HttpRoute) else ()

    with threaded(site) as until:
        (site.root / "web.yaml").write_text(route())
        until(lambda change: hostnames(change.snapshot.all(Kind.HTTP_ROUTE).get(WEB)) == ("a.example.org",))
        (site.root / "web.yaml").write_text(route(hostname="b.example.org"))
        until(lambda change: hostnames(change.snapshot.all(Kind.HTTP_ROUTE).get(WEB)) == ("b.example.org",))
        (site.root / "web.yaml").unlink()
        until(lambda change: WEB not in change.snapshot.all(Kind.HTTP_ROUTE))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives hints")
def test_a_large_folder_that_is_read_rarely_is_read_after_an_edit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LONGEST_PERIOD_S", 3600.0)
    monkeypatch.setattr(source, "_IDLE_SHARE", 1e-9)
    (site.root / "below").mkdir()

    with threaded(site) as until:
        for name in ("one", "two"):
            (site.root / "below" / f"{name}.yaml").write_text(route(name))
            key = Key("default", name)
            until(lambda change, key=key: key in change.snapshot.all(Kind.HTTP_ROUTE))  # type: ignore[misc]
