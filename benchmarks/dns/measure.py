"""The measurements: each takes running webhooks in turns and gives one `Row` per webhook and case.

Turns rather than blocks, so that other load on the machine affects all webhooks alike. CPU is that of the webhook's
process alone, over all calls of a case, because the kernel counts in ticks of 10 ms.
"""

import statistics
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import procfs
from benchmarks.dns import data
from benchmarks.dns.appliance import Appliance, Findings
from benchmarks.dns.webhooks import Candidate, Webhook
from benchmarks.httpcall import Answer, CallFailed, Connection

AT_ONCE = 10
UNCHANGED, CHANGED = "listing, unchanged", "listing, one row changed"
SLOW_CALL_S = 5.0
"""A webhook that takes this long for an apply is not called again."""


class Row(msgspec.Struct, frozen=True):
    case: str
    webhook: str
    values: dict[str, float]


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    sets: int
    writes: int
    listings: int
    adjusts: int
    applies: int
    starts: int
    latencies_s: tuple[float, ...] = (0.0, 0.005)


class Samples:
    """Calls of one webhook in one case."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._durations_s: list[float] = []
        self._cpu_s = 0.0
        self._calls = 0
        self.body_bytes = 0

    def take(self, calls: Callable[[], Sequence[Answer]]) -> None:
        before_s = procfs.cpu_s(self._webhook.pid)
        answers = calls()
        self._cpu_s += procfs.cpu_s(self._webhook.pid) - before_s
        self._calls += len(answers)
        for answer in answers:
            if answer.status_code != 200:
                text = answer.body[:300].decode("utf-8", "replace")
                raise RuntimeError(f"{self._webhook.name} answered {answer.status_code}: {text}")
            self._durations_s.append(answer.duration_s)
            self.body_bytes = len(answer.body)

    @property
    def values(self) -> dict[str, float]:
        durations_s = sorted(self._durations_s)
        last = len(durations_s) - 1
        return {
            "p50_ms": statistics.median(durations_s) * 1000,
            "p99_ms": durations_s[round(last * 0.99)] * 1000,
            "cpu_ms": self._cpu_s / self._calls * 1000,
            "body_bytes": self.body_bytes,
            "calls": self._calls,
        }


def start_up(candidates: Sequence[Candidate], plan: Plan) -> list[Row]:
    """From the start of the process until `/readyz` responds with 200."""
    times_s: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for _ in range(plan.starts):
        for candidate in candidates:
            with tempfile.TemporaryDirectory() as state, candidate.start(Path(state)) as webhook:
                times_s[candidate.name].append(webhook.startup_s)
    return [
        Row("start to ready", name, {"p50_ms": statistics.median(times) * 1000, "max_ms": max(times) * 1000})
        for name, times in times_s.items()
    ]


def memory(webhooks: Sequence[Webhook], plan: Plan, change: Callable[[Webhook], None]) -> list[Row]:
    """For fresh processes. Half of the listings find a changed row, so that cached data gets replaced."""
    rows = []
    for webhook in webhooks:
        idle = procfs.rss_bytes(webhook.pid)
        for number in range(plan.listings):
            if number % 2:
                change(webhook)
            webhook.listing()
        listed = procfs.rss_bytes(webhook.pid)
        procfs.forget_peak_rss(webhook.pid)
        change(webhook)
        at_once(webhook)
        peak = procfs.peak_rss_bytes(webhook.pid)
        rows.append(Row("memory", webhook.name, {"idle_bytes": idle, "listed_bytes": listed, "peak_bytes": peak}))
    return rows


def listings(webhooks: Sequence[Webhook], plan: Plan, change: Callable[[Webhook], None]) -> list[Row]:
    """Listings one at a time with nothing changed, one at a time with a row changed before each, and ten at once."""
    cases = (
        (UNCHANGED, plan.listings, _nothing, one_listing),
        (CHANGED, plan.listings, change, one_listing),
        (f"{AT_ONCE} listings at once", plan.applies, _nothing, at_once),
    )
    rows = []
    for case, runs, prepare, call in cases:
        samples = {webhook.name: Samples(webhook) for webhook in webhooks}
        for _ in range(runs):
            for webhook in webhooks:
                prepare(webhook)
                samples[webhook.name].take(partial(call, webhook))
        rows += [Row(case, name, taken.values) for name, taken in samples.items()]
    return rows


def _nothing(_webhook: Webhook) -> None:
    """Used between listings that find everything unchanged."""


def one_listing(webhook: Webhook) -> list[Answer]:
    return [webhook.listing()]


def at_once(webhook: Webhook) -> list[Answer]:
    answers: list[Answer] = []
    barrier = threading.Barrier(AT_ONCE)

    def list_once() -> None:
        connection = Connection(webhook.api_address)
        barrier.wait()
        answers.append(webhook.listing(connection))
        connection.close()

    threads = [threading.Thread(target=list_once) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(answers) != AT_ONCE:
        raise RuntimeError(f"{webhook.name} answered {len(answers)} of {AT_ONCE} listings at once")
    return answers


def adjusts(webhooks: Sequence[Webhook], plan: Plan) -> list[Row]:
    """Endpoints never seen before, the same bytes again, and the same endpoints in another order."""
    cases = ("adjust, first time", "adjust, repeated", "adjust, reordered")
    samples = {(case, webhook.name): Samples(webhook) for case in cases for webhook in webhooks}
    for generation in range(plan.adjusts):
        first = data.wanted_body(plan.sets, generation)
        reordered = data.wanted_body(plan.sets, generation, seed=generation)
        for case, body in zip(cases, (first, first, reordered), strict=True):
            for webhook in webhooks:
                samples[case, webhook.name].take(partial(_one_adjust, webhook, body))
    return [Row(case, name, taken.values) for (case, name), taken in samples.items()]


def _one_adjust(webhook: Webhook, body: bytes) -> list[Answer]:
    return [webhook.adjust(body)]


def applies(webhooks: Sequence[Webhook], plan: Plan, appliance: Appliance, latency_s: float) -> list[Row]:
    """Create, update and delete names that were not there before; afterwards everything is as it was."""
    first, second = data.changing_sets(plan.writes, 0), data.changing_sets(plan.writes, 1)
    bodies = {
        "creates": data.changes(create=first),
        "updates": data.changes(updateOld=first, updateNew=second),
        "deletes": data.changes(delete=second),
    }
    appliance.set_latency(latency_s)
    taken: dict[tuple[str, str], list[dict[str, float]]] = {
        (verb, webhook.name): [] for verb in bodies for webhook in webhooks
    }
    too_slow: set[str] = set()
    try:
        for _ in range(plan.applies):
            for webhook in webhooks:
                if webhook.name in too_slow:
                    continue
                for verb, body in bodies.items():
                    values = _apply_once(webhook, body, appliance)
                    taken[verb, webhook.name].append(values)
                    if values["wall_s"] > SLOW_CALL_S:
                        too_slow.add(webhook.name)
    finally:
        appliance.set_latency(0.0)
    return [
        Row(f"{plan.writes} {verb}, {latency_s * 1000:g} ms", name, _medians(values))
        for (verb, name), values in taken.items()
    ]


def _apply_once(webhook: Webhook, body: bytes, appliance: Appliance) -> dict[str, float]:
    appliance.forget_findings()
    before_s = procfs.cpu_s(webhook.pid)
    try:
        answer = webhook.apply(body)
    except CallFailed as error:
        raise RuntimeError(f"{webhook.name}: {error}") from error
    cpu_s = procfs.cpu_s(webhook.pid) - before_s
    if answer.status_code // 100 != 2:
        raise RuntimeError(f"{webhook.name} answered {answer.status_code} to an apply: {answer.body[:300]!r}")
    found: Findings = appliance.findings()
    return {
        "wall_s": answer.duration_s,
        "cpu_s": cpu_s,
        "controller_calls": found.calls,
        "writes": found.writes,
        "gap_s": found.longest_gap_s,
        "emptied": found.names_ever_empty,
    }


def _medians(values: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in values) for key in values[0]}
