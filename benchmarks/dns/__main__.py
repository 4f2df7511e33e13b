"""`make bench-dns`: measure the DNS webhook on each of its stores, beside the peers that are installed.

Prints tables and writes the same figures to benchmarks/results/. Nothing is judged here; docs/performance.md says what
the numbers mean and what the goals are.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.dns import data, measure, phases, tables
from benchmarks.dns.appliance import Appliance
from benchmarks.dns.measure import Plan, Row
from benchmarks.dns.tables import Tables
from benchmarks.dns.webhooks import Candidate, Webhook, installed_peers, named_peer, ours

STORES = ("embedded", "v2", "integration")
FULL = Plan(sets=25_000, writes=1000, listings=20, adjusts=6, applies=3, starts=5)
QUICK = Plan(sets=2500, writes=100, listings=5, adjusts=2, applies=1, starts=1)
RESULTS = Path(__file__).resolve().parents[1] / "results"


class Session:
    """One run: everything measured in it, and the tables so far."""

    def __init__(
        self, plan: Plan, stores: Sequence[str], writers: int, peers: Sequence[Candidate], appliance: Appliance
    ) -> None:
        self._plan = plan
        self._stores = stores
        self._appliance = appliance
        self._candidates = [ours(store, appliance.url, writers) for store in stores] + list(peers)
        self._tables = Tables([peer.name for peer in peers])
        self._stored = data.stored_sets(plan.sets)
        self._embedded_version = 0
        self.rows: dict[str, list[Row]] = {}

    def run(self) -> None:
        plan = self._plan
        self._add("Start-up", tables.START, measure.start_up(self._candidates, plan))
        with ExitStack() as stack:
            webhooks = [self._started(candidate, stack) for candidate in self._candidates]
            self._add("Memory", tables.MEMORY, measure.memory(webhooks, plan, self._change_one_row))
            listed = measure.listings(webhooks, plan, self._change_one_row)
            self._add(f"GET /records, {plan.sets:,} rows", tables.CALLS, listed)
            self._add(f"POST /adjustendpoints, {plan.sets:,} endpoints", tables.CALLS, measure.adjusts(webhooks, plan))
            applied = []
            for latency_s in plan.latencies_s:
                # The embedded store has no controller whose latency could matter.
                concerned = [one for one in webhooks if one.name != "embedded" or not latency_s]
                applied += measure.applies(concerned, plan, self._appliance, latency_s)
            self._add(f"POST /records, {plan.writes:,} record sets of {plan.sets:,}", tables.APPLIES, applied)
        self._add("Where the time goes", tables.PHASES, self._breakdown())

    def _started(self, candidate: Candidate, stack: ExitStack) -> Webhook:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        webhook = candidate.start(Path(state))
        stack.enter_context(webhook)
        if not candidate.uses_controller:
            webhook.fill(self._stored)
            # Memory left over from filling is not part of the store's idle state.
            webhook.__exit__()
            webhook = candidate.start(Path(state))
            stack.enter_context(webhook)
        return webhook

    def _change_one_row(self, webhook: Webhook) -> None:
        if webhook.name != "embedded":
            self._appliance.change_one_row()
            return
        middle = next(one for one in self._stored[len(self._stored) // 2 :] if one["recordType"] == "A")
        self._embedded_version += 1
        old, new = (
            {**middle, "targets": [data.address((1 << 22) + version)]}
            for version in (self._embedded_version - 1, self._embedded_version)
        )
        webhook.apply(data.changes(updateOld=[middle, old], updateNew=[new, new]))

    def _breakdown(self) -> list[Row]:
        measured = [row for rows in self.rows.values() for row in rows]
        found: list[Row] = []
        for store in self._stores:
            found += phases.breakdown(
                store, self._appliance.url, self._plan, self._stored, self._change_one_row, measured
            )
        return found

    def _add(self, title: str, columns: Sequence[tables.Column], rows: list[Row]) -> None:
        self.rows[title] = rows
        self._tables.show(title, columns, rows)


def main() -> None:
    options = _parser().parse_args()
    plan = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as directory:
        presets = Path(directory) / "rows.json"
        presets.write_bytes(data.preset_rows(data.stored_sets(plan.sets)))
        with Appliance(presets) as appliance:
            try:
                peers = [] if options.no_peers else installed_peers(appliance.url)
                peers += [named_peer(peer, appliance.url) for peer in options.peer]
            except ValueError as error:
                sys.exit(f"benchmarks.dns: {error}")
            names = ", ".join(peer.name for peer in peers) or "none (none found on the PATH, none given with --peer)"
            print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}; peers: {names}\n", flush=True)
            session = Session(plan, options.store or STORES, options.writers, peers, appliance)
            session.run()
    print(f"written: {_write(session.rows, plan)}")


def _write(rows: dict[str, list[Row]], plan: Plan) -> Path:
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"dns-{now:%Y%m%dT%H%M%SZ}.json"
    content = {"at": now, "cpus": os.cpu_count(), "python": platform.python_version(), "plan": plan, "tables": rows}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dns", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, fewer runs: does it work at all?")
    parser.add_argument("--store", action="append", choices=STORES, help="only this store; may be repeated")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="another webhook to compare with; {api_port} and {health_port} in COMMAND are replaced; may be repeated",
    )
    parser.add_argument("--writers", type=int, default=5, help="--write-parallelism of ours (default %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="ignore peers that are on the PATH")
    return parser


if __name__ == "__main__":
    main()
