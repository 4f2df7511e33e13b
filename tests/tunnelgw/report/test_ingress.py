"""What is logged and measured of ingress documents."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from tunnelgw.metrics import Metrics
from tunnelgw.provider.ingress import Revision
from tunnelgw.provider.tunnel import Pass
from tunnelgw.report.ingress import IngressReport


def test_foreign_rules_are_logged_when_they_appear_change_and_disappear(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tunnelgw")
    report = IngressReport(Metrics(CollectorRegistry()))
    report.keep({"tunnel"})

    for version, foreign in enumerate(((), ("a.example",), ("a.example",), ("b.example",), (), ())):
        report.note("tunnel", Pass(version, False, Revision({}, False, foreign=foreign)))

    kept = "ingress document has rules of somebody else, which are kept"
    gone = "ingress document has no rules of somebody else any more"
    assert [record.getMessage() for record in caplog.records] == [kept, kept, gone]


def test_a_document_is_logged_as_written_only_after_a_write(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tunnelgw")
    report = IngressReport(Metrics(CollectorRegistry()))
    report.keep({"tunnel"})

    for was_written in (False, True, False):
        report.note("tunnel", Pass(2, was_written, Revision({}, was_written, added=("a.example",))))

    assert [record.getMessage() for record in caplog.records] == ["ingress document written"]


def test_foreign_edits_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    report = IngressReport(Metrics(registry))
    report.keep({"tunnel"})

    for edits in (2, 0, 3):
        report.note("tunnel", Pass(9, False, Revision({}, False), foreign_edits=edits))

    assert registry.get_sample_value("tunnelgw_ingress_foreign_edits_total", {"tunnel": "tunnel"}) == 5
    assert len(caplog.records) == 2


def test_the_series_of_a_removed_tunnel_are_gone_and_a_late_report_does_not_restore_them() -> None:
    registry = CollectorRegistry()
    report = IngressReport(Metrics(registry))
    found = Pass(2, False, Revision({}, False, foreign=("a.example",)), foreign_edits=1)
    report.keep({"old", "other"})
    for tunnel in ("old", "other"):
        report.note(tunnel, found)

    report.keep({"other", "new"})
    report.note("old", found)
    report.keep({"other", "new"})

    series = {
        sample.labels["tunnel"]
        for metric in registry.collect()
        for sample in metric.samples
        if "tunnel" in sample.labels
    }
    assert series == {"other"}
    assert registry.get_sample_value("tunnelgw_ingress_foreign_rules", {"tunnel": "other"}) == 1
