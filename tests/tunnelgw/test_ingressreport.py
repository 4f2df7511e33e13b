"""What people are told of ingress documents."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from tunnelgw.ingressreport import IngressReport
from tunnelgw.metrics import Metrics
from tunnelgw.provider.ingress import Revision
from tunnelgw.provider.tunnel import Pass


def test_rules_of_others_are_told_when_they_come_change_and_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tunnelgw")
    report = IngressReport(Metrics(CollectorRegistry()))

    for version, foreign in enumerate(((), ("a.example",), ("a.example",), ("b.example",), (), ())):
        report.note("tunnel", Pass(version, False, Revision({}, False, foreign=foreign)))

    kept = "ingress document has rules of somebody else, which are kept"
    gone = "ingress document has no rules of somebody else any more"
    assert [record.getMessage() for record in caplog.records] == [kept, kept, gone]
