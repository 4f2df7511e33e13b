"""A source at work in its threads, and the world that its store shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.kubernetes.watch import Timing
from tunnelgw.sources.store import Change, Store

DEADLINE_S = 60.0
TURN_S = 0.2
QUICK = Timing(first_wait_s=0.05, longest_wait_s=0.5, poll_s=1.0, forbidden_s=0.0)


class World:
    """What the reconciler would see, as it goes on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.restarts: list[tuple[Kind, Restart]] = []
        self.change: Change | None = None
        self.changed: set[Entry] = set()
        self.touched: set[Entry] = set()

    def until(self, is_so: Callable[[Change], bool], what: str) -> Change:
        """The first change after which `is_so`; fails after a deadline."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self.change is None or not is_so(self.change):
            # In turns, as the reconciler waits: nothing tells that the patience with a broken watch is over.
            if self.store.wait(time.monotonic() + TURN_S):
                self.change = self.store.take()
                self.changed |= self.change.changed
                self.touched |= self.change.touched
            elif time.monotonic() > deadline_s:
                waiting = f"; still not listed: {sorted(self.store.unlisted)}; restarts: {self.restarts[-5:]}"
                raise AssertionError(f"not seen within {DEADLINE_S:g} s: {what}{waiting}")
        return self.change

    def until_here(self, kind: Kind, key: Key) -> Object:
        change = self.until(lambda change: key in change.snapshot.all(kind), f"{kind} {key}")
        return change.snapshot.all(kind)[key]

    def until_gone(self, kind: Kind, key: Key) -> None:
        self.until(lambda change: key not in change.snapshot.all(kind), f"end of {kind} {key}")


@contextmanager
def running(kubeconfig: Path, timing: Timing = QUICK, store: Store | None = None) -> Iterator[World]:
    """The source until the end of the block; then all its threads end soon."""
    stop = threading.Event()
    world = World(store or Store())
    server = ApiServer(lambda: load_configuration(str(kubeconfig)))
    source = KubernetesSource(
        server, world.store, stop, timing, on_restart=lambda part, cause, _: world.restarts.append((part[0], cause))
    )
    threads = [threading.Thread(target=target, name=name, daemon=True) for name, target in source.threads()]
    for thread in threads:
        thread.start()
    try:
        yield world
    finally:
        stop.set()
        source.drain()
        for thread in threads:
            thread.join(DEADLINE_S)
        source.stop()
        assert not [thread.name for thread in threads if thread.is_alive()]


def let_one_kind_alone_come_back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the API server was away: of each kind but Services the second wait is long, unless it is cut short."""

    def chance(cap_s: float) -> float:
        is_soon = cap_s == QUICK.first_wait_s or threading.current_thread().name == "watch-services"
        return 0.1 if is_soon else 3600.0

    monkeypatch.setattr("backoff.full_jitter", chance)
