"""Where the time goes: the main cases once more, with the daemon under the profiler.

The profiler's shares of CPU time by stage are applied to the CPU time of the same case without it. The rest of the wall
time is waiting, mostly for the controller.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from benchmarks.dns import data, stages
from benchmarks.dns.measure import CHANGED, UNCHANGED, Plan, Row
from benchmarks.dns.webhooks import OurWebhook, ProfiledDaemon

SNAPSHOT_TIMEOUT_S = 30.0
_POLL_S = 0.005

_decoder = msgspec.json.Decoder(dict[str, float])


class Profiled:
    """A profiled daemon; `shares_of` gives the cost of one action by stage."""

    def __init__(self, store: str, controller_url: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        place = Path(self._directory.name)
        self._snapshots = place / "snapshots"
        self._snapshots.mkdir()
        self._taken = 0
        daemon = ProfiledDaemon(store, controller_url, place / "state", self._snapshots)
        self.webhook = OurWebhook(store, daemon)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.webhook.__exit__()
        self._directory.cleanup()

    def shares_of(self, action: Callable[[], object]) -> dict[str, float]:
        before = self._snapshot()
        action()
        after = self._snapshot()
        spent = {name: max(0.0, after[name] - before[name]) for name in stages.NAMES}
        total = sum(spent.values()) or 1.0
        return {name: seconds / total for name, seconds in spent.items()}

    def _snapshot(self) -> dict[str, float]:
        os.kill(self.webhook.pid, signal.SIGUSR1)
        self._taken += 1
        path = self._snapshots / f"{self._taken}.json"
        until = time.monotonic() + SNAPSHOT_TIMEOUT_S
        while not path.exists():
            if time.monotonic() > until:
                log = self.webhook.process.tail
                raise RuntimeError(f"no profile of {self.webhook.name} in {SNAPSHOT_TIMEOUT_S:g} s; its log:\n{log}")
            time.sleep(_POLL_S)
        return _decoder.decode(path.read_bytes())


def breakdown(
    store: str,
    controller_url: str,
    plan: Plan,
    stored: list[data.Endpoint],
    change: Callable[[OurWebhook], None],
    measured: list[Row],
) -> list[Row]:
    """`measured` are the rows of the same store without the profiler."""
    rows = []
    with Profiled(store, controller_url) as profiled:
        webhook = profiled.webhook
        if store == "embedded":
            webhook.fill(stored)
        webhook.listing()
        first = data.wanted_body(plan.sets, 1)
        old, new = data.changing_sets(plan.writes, 0), data.changing_sets(plan.writes, 1)

        def changed_listing() -> None:
            change(webhook)
            webhook.listing()

        actions: dict[str, Callable[[], object]] = {
            UNCHANGED: webhook.listing,
            CHANGED: changed_listing,
            "adjust, first time": lambda: webhook.adjust(first),
            "adjust, repeated": lambda: webhook.adjust(first),
            f"{plan.writes} creates, 0 ms": lambda: webhook.apply(data.changes(create=old)),
            f"{plan.writes} updates, 0 ms": lambda: webhook.apply(data.changes(updateOld=old, updateNew=new)),
            f"{plan.writes} deletes, 0 ms": lambda: webhook.apply(data.changes(delete=new)),
        }
        for case, action in actions.items():
            shares = profiled.shares_of(action)
            plain = next(row.values for row in measured if row.case == case and row.webhook == store)
            rows.append(Row(case, store, _scaled(shares, plain)))
    return rows


def _scaled(shares: dict[str, float], plain: dict[str, float]) -> dict[str, float]:
    cpu_ms = plain["cpu_ms"] if "cpu_ms" in plain else plain["cpu_s"] * 1000
    wall_ms = plain["p50_ms"] if "p50_ms" in plain else plain["wall_s"] * 1000
    by_stage = {name: share * cpu_ms for name, share in shares.items()}
    return {"wall_ms": wall_ms, "waiting_ms": max(0.0, wall_ms - cpu_ms), **by_stage}
