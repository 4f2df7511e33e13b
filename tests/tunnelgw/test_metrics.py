"""Series known in advance exist from the start, at zero, so that the first failure shows as an increase."""

import pytest
from prometheus_client import CollectorRegistry

from tunnelgw.metrics import PASS_OUTCOMES, PROVIDER_CALLS, STATUS_OUTCOMES, Metrics
from tunnelgw.model.kinds import STATUS_KINDS, Kind
from tunnelgw.report.statusqueue import UNCHANGED
from tunnelgw.sources.writing import Outcome

KNOWN_SERIES = [
    *(("tunnelgw_reconcile_duration_seconds_count", {"outcome": outcome}) for outcome in PASS_OUTCOMES),
    *(
        ("tunnelgw_status_writes_total", {"kind": kind, "outcome": outcome})
        for kind in sorted(STATUS_KINDS)
        for outcome in (*Outcome, UNCHANGED)
    ),
    *(("tunnelgw_watch_restarts_total", {"kind": kind}) for kind in Kind),
    *(
        ("tunnelgw_objects", {"kind": kind, "validity": validity})
        for kind in Kind
        for validity in ("read", "unreadable")
    ),
    *(("tunnelgw_provider_call_duration_seconds_count", {"call": call, "outcome": "ok"}) for call in PROVIDER_CALLS),
]


@pytest.mark.parametrize(("name", "labels"), KNOWN_SERIES)
def test_a_known_series_starts_at_zero(name: str, labels: dict[str, str]) -> None:
    registry = CollectorRegistry()
    Metrics(registry)

    assert 0 == registry.get_sample_value(name, labels)


def test_the_outcomes_of_status_writes_are_complete() -> None:
    assert {*Outcome, UNCHANGED} == {*STATUS_OUTCOMES}
