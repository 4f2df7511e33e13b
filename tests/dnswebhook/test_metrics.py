"""Every series exists from the start, at zero, with labels from closed sets; and the right ones count."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dnswebhook.apply import Outcome
from dnswebhook.canonical import KNOWN_TYPES, DropReason
from dnswebhook.metrics import ROUTES, STORE_OPERATIONS, Metrics
from dnswebhook.model import Record
from dnswebhook.wishes import RefusalReason, SkipReason
from tests.support.webhook_site import ENDPOINT, NEW, ROW, BuildSite

KNOWN_SERIES = [
    *(("external_dns_unifi_dns_records_managed", {"record_type": kind}) for kind in sorted(KNOWN_TYPES)),
    *(
        ("dnswebhook_operations_total", {"operation": verb, "outcome": outcome.value})
        for verb in ("create", "update", "delete")
        for outcome in Outcome
    ),
    *(("dnswebhook_dropped_endpoints_total", {"reason": reason.value}) for reason in DropReason),
    *(("dnswebhook_refused_changes_total", {"reason": reason.value}) for reason in RefusalReason),
    *(("dnswebhook_skipped_changes_total", {"reason": reason.value}) for reason in SkipReason),
    *(
        ("dnswebhook_store_request_duration_seconds_count", {"operation": operation, "outcome": "ok"})
        for operation in STORE_OPERATIONS
    ),
    *(
        (
            "dnswebhook_http_request_duration_seconds_count",
            {"route": route, "status_code": "204" if route == "apply" else "200"},
        )
        for route in ROUTES
    ),
    ("dnswebhook_delete_guard_trips_total", {}),
    ("dnswebhook_store_rate_limit_hits_total", {}),
    ("dnswebhook_last_listing_timestamp_seconds", {}),
    ("dnswebhook_last_apply_timestamp_seconds", {}),
    ("dnswebhook_store_ready", {}),
]


@pytest.mark.parametrize(("name", "labels"), KNOWN_SERIES)
def test_a_known_series_starts_at_zero(name: str, labels: dict[str, str]) -> None:
    registry = CollectorRegistry()
    Metrics(registry)

    assert 0 == registry.get_sample_value(name, labels)


def test_the_page_describes_each_metric() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    page = generate_latest(registry).decode()

    families = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE") and "_created" not in line}
    described = {line.split()[2] for line in page.splitlines() if line.startswith("# HELP") and line.split()[3:]}
    assert families <= described


def rows(**counts: int) -> list[Record]:
    return [
        Record(f"{kind}{n}", f"host-{n}.example.com", kind, "192.0.2.1" if kind == "A" else "text")
        for kind, count in counts.items()
        for n in range(count)
    ]


def test_the_records_gauge_counts_record_sets_of_the_last_listing_by_type(site: BuildSite) -> None:
    here = site(*rows(A=3, TXT=2))
    here.get("/records")
    gauge = "external_dns_unifi_dns_records_managed"
    assert (3, 2, 0) == tuple(here.metric(gauge, record_type=kind) for kind in ("A", "TXT", "CNAME"))

    deletions = [{"dnsName": f"host-{n}.example.com", "recordType": "TXT", "targets": ["text"]} for n in range(2)]
    here.post("/records", {"delete": deletions})
    here.get("/records")

    assert (3, 0) == tuple(here.metric(gauge, record_type=kind) for kind in ("A", "TXT"))


def test_writes_are_counted_by_operation_and_outcome(site: BuildSite) -> None:
    here = site(ROW)
    new_target = {**ENDPOINT, "targets": ["192.0.2.9"]}

    here.post("/records", {"create": [NEW], "updateOld": [ENDPOINT], "updateNew": [new_target]})
    here.post("/records", {"delete": [NEW]})

    counted = {
        (verb, outcome.value): here.metric("dnswebhook_operations_total", operation=verb, outcome=outcome.value)
        for verb in ("create", "update", "delete")
        for outcome in Outcome
    }
    assert {(verb, "applied"): 1 for verb in ("create", "update", "delete")} == {
        key: count for key, count in counted.items() if count
    }


def test_dropped_endpoints_are_counted_by_reason_on_every_pass(site: BuildSite) -> None:
    here = site()
    wanted: list[dict[str, Any]] = [
        {"dnsName": "x.example.com", "recordType": "LOC", "targets": ["here"]},
        {"dnsName": "x.example.com", "recordType": "A", "targets": ["nonsense", "192.0.2.1"]},
        {"dnsName": "y.example.com", "recordType": "AAAA", "targets": [*["nonsense"] * 50, "2001:db8::1"]},
    ]

    for _ in range(2):
        here.post("/adjustendpoints", wanted)

    assert 2 == here.metric("dnswebhook_dropped_endpoints_total", reason="unsupported_type")
    assert 2 * 51 == here.metric("dnswebhook_dropped_endpoints_total", reason="invalid_target")
    assert 0 == here.metric("dnswebhook_dropped_endpoints_total", reason="no_targets")


def test_the_times_of_the_last_listing_and_apply_are_set_only_by_successes(site: BuildSite) -> None:
    here = site()
    impossible = {"dnsName": "x.example.com", "recordType": "A", "targets": ["nonsense"]}
    before = time.time()

    here.get("/records")
    here.post("/records", {"create": [impossible]})

    listed = here.metric("dnswebhook_last_listing_timestamp_seconds")
    assert listed is not None
    assert before <= listed <= time.time()
    assert 0 == here.metric("dnswebhook_last_apply_timestamp_seconds")

    here.post("/records", {"create": [NEW]})
    applied = here.metric("dnswebhook_last_apply_timestamp_seconds")
    assert applied is not None
    assert applied >= before
