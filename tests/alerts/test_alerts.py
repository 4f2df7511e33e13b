"""Alerts fire when they should and not before, according to promtool, and query series that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from proxy.stats import GRPC_SERVER_ERRORS
from tests.support.process import REPOSITORY
from tests.support.programs import program, run

CHART_ALERTS = REPOSITORY / "helm" / "tunnelgw" / "files" / "alerts"
FILES = (
    CHART_ALERTS / "proxy.yaml",
    CHART_ALERTS / "controller.yaml",
    REPOSITORY / "examples" / "alerts" / "dnswebhook.yaml",
)
MANUALS = ("proxy-metrics.md", "controller-reference.md", "dnswebhook-reference.md")
SEVERITIES = {"warning", "critical"}
ADDED_BY_SCRAPES = {"job", "instance"}
ADDED_BY_PLATFORMS = {"cluster", "namespace"}
"""Only series of several clusters, or of Pods, have these."""
P, Q = 'job="j",instance="p"', 'job="j",instance="q"'
"""Labels of two proxies, which are scraped twice a minute."""

EVERY_REPLICAS = ("tunnelgw_objects", "tunnelgw_proxy_certificate")
"""Series that all replicas have with the same values begin like these."""

Series = Mapping[str, str]
"""Values by series, in promtool's words: `1+0x10` stays at 1, `0+1x10` rises."""

WELL: Series = {
    f"tunnelgw_proxy_config_version{{{P}}}": "7+0x240",
    f"tunnelgw_proxy_config_version{{{Q}}}": "2+0x240",
    f"tunnelgw_proxy_config_hash{{{P}}}": "12345+0x240",
    f"tunnelgw_proxy_config_hash{{{Q}}}": "12345+0x240",
    f'tunnelgw_proxy_worker_up{{{P},worker="0"}}': "1+0x240",
    f'tunnelgw_proxy_worker_restarts_total{{{P},worker="0"}}': "0+0x100 1+0x140",
    f"tunnelgw_proxy_config_problems{{{P}}}": "0+0x240",
    f"tunnelgw_proxy_config_refused_total{{{P}}}": "3+0x240",
    f"tunnelgw_proxy_config_kept{{{P}}}": "1+0x240",
    f'tunnelgw_proxy_requests_total{{{P},route="r",status_class="2xx"}}': "0+100x240",
    f'tunnelgw_proxy_requests_total{{{P},route="r",status_class="5xx"}}': "0+4x240",
    f'tunnelgw_proxy_grpc_calls_total{{{P},route="r",grpc_status="0"}}': "0+90x240",
    f'tunnelgw_proxy_grpc_calls_total{{{P},route="r",grpc_status="5"}}': "0+10x240",
    f'tunnelgw_proxy_grpc_calls_total{{{P},route="r",grpc_status="14"}}': "0+4x240",
    f'tunnelgw_proxy_backend_addresses_ejected{{{P},backend="b"}}': "0 1 1 0+0x237",
    f'tunnelgw_proxy_certificate_not_after_timestamp_seconds{{{P},listener="l"}}': "700000+0x240",
    f'tunnelgw_proxy_certificate_not_before_timestamp_seconds{{{P},listener="l"}}': "-7000000+0x240",
    f'tunnelgw_proxy_certificate_not_after_timestamp_seconds{{{P},listener="of six days"}}': "260000+0x240",
    f'tunnelgw_proxy_certificate_not_before_timestamp_seconds{{{P},listener="of six days"}}': "-260000+0x240",
    f"tunnelgw_proxy_config_certificate_not_after_timestamp_seconds{{{P}}}": "30000+0x240",
    f"tunnelgw_proxy_config_certificate_not_before_timestamp_seconds{{{P}}}": "-56000+0x240",
    f"tunnelgw_proxy_tunnel_connections_registered{{{P}}}": "4 4 0 4+0x237",
    f"tunnelgw_proxy_tunnel_connections_wanted{{{P}}}": "4+0x240",
    f"tunnelgw_is_leader{{{P}}}": "1+0x240",
    f"tunnelgw_is_leader{{{Q}}}": "0+0x240",
    f'tunnelgw_objects{{{P},kind="Gateway",validity="read"}}': "3+0x240",
    f'tunnelgw_objects{{{P},kind="Gateway",validity="unreadable"}}': "0+0x240",
    f'tunnelgw_delivered{{{P},target="t"}}': "1 0 0 1+0x237",
    f"tunnelgw_status_queue_depth{{{P}}}": "0 9 9 0+0x237",
    f"dnswebhook_store_ready{{{P}}}": "1 0 0 1+0x237",
    f"dnswebhook_delete_guard_trips_total{{{P}}}": "2+0x240",
    f'dnswebhook_refused_changes_total{{{P},reason="r"}}': "0 1 2+0x238",
    f'dnswebhook_operations_total{{{P},operation="create",outcome="failed"}}': "0+1x240",  # the next pass succeeds
    f"dnswebhook_last_apply_timestamp_seconds{{{P}}}": "0+30x240",
    f"dnswebhook_last_listing_timestamp_seconds{{{P}}}": "0+30x240",
}

CASES: Mapping[str, tuple[Series, str, str]] = {
    # Alert: the series that differ from WELL, when it is still quiet, when it fires.
    "TunnelgwProxyWithoutDocument": ({f"tunnelgw_proxy_config_version{{{P}}}": "0+0x240"}, "4m", "6m"),
    "TunnelgwProxyWorkerDown": ({f'tunnelgw_proxy_worker_up{{{P},worker="0"}}': "0+0x240"}, "1m", "3m"),
    "TunnelgwProxyWorkersRestart": (
        {f'tunnelgw_proxy_worker_restarts_total{{{P},worker="0"}}': "0+0x20 1 2 3 4 5+0x200"},
        "10m",
        "13m",
    ),
    "TunnelgwProxyPortsNotBound": ({f"tunnelgw_proxy_config_problems{{{P}}}": "1+0x240"}, "1m", "3m"),
    "TunnelgwProxyDocumentRefused": ({f"tunnelgw_proxy_config_refused_total{{{P}}}": "3+0x20 4+0x220"}, "10m", "12m"),
    "TunnelgwProxyDocumentNotKept": ({f"tunnelgw_proxy_config_kept{{{P}}}": "0+0x240"}, "4m", "6m"),
    "TunnelgwProxyErrors": (
        {f'tunnelgw_proxy_requests_total{{{P},route="r",status_class="5xx"}}': "0+10x240"},
        "9m",
        "12m",
    ),
    "TunnelgwProxyCallsFail": (
        {f'tunnelgw_proxy_grpc_calls_total{{{P},route="r",grpc_status="14"}}': "0+10x240"},
        "9m",
        "12m",
    ),
    "TunnelgwProxyBackendAddressesOut": (
        {f'tunnelgw_proxy_backend_addresses_ejected{{{P},backend="b"}}': "1+0x240"},
        "9m",
        "11m",
    ),
    "TunnelgwProxyCertificateExpires": (
        {f'tunnelgw_proxy_certificate_not_after_timestamp_seconds{{{P},listener="l"}}': "606600+0x240"},
        "25m",
        "35m",
    ),
    "TunnelgwProxyConfigCertificateExpires": (
        {f"tunnelgw_proxy_config_certificate_not_after_timestamp_seconds{{{P}}}": "16250+0x240"},
        "25m",
        "35m",
    ),
    "TunnelgwProxyReplicasDiffer": ({f"tunnelgw_proxy_config_hash{{{Q}}}": "54321+0x240"}, "9m", "11m"),
    "TunnelgwTunnelDown": ({f"tunnelgw_proxy_tunnel_connections_registered{{{P}}}": "0+0x240"}, "1m", "3m"),
    "TunnelgwTunnelConnectionsMissing": (
        {f"tunnelgw_proxy_tunnel_connections_registered{{{P}}}": "3+0x240"},
        "14m",
        "16m",
    ),
    "TunnelgwWithoutLeader": ({f"tunnelgw_is_leader{{{P}}}": "0+0x240"}, "1m", "3m"),
    "TunnelgwObjectsUnreadable": (
        {f'tunnelgw_objects{{{P},kind="Gateway",validity="unreadable"}}': "1+0x240"},
        "4m",
        "6m",
    ),
    "TunnelgwDeliveriesFail": ({f'tunnelgw_delivered{{{P},target="t"}}': "1+0x20 0+0x220"}, "14m", "17m"),
    "TunnelgwStatusesWait": ({f"tunnelgw_status_queue_depth{{{P}}}": "0+0x10 1+0x230"}, "14m", "17m"),
    "DnsWebhookStoreNotReady": ({f"dnswebhook_store_ready{{{P}}}": "0+0x240"}, "9m", "11m"),
    "DnsWebhookDeleteGuardTripped": ({f"dnswebhook_delete_guard_trips_total{{{P}}}": "2+0x20 3+0x220"}, "10m", "12m"),
    "DnsWebhookChangesRefused": (
        {f'dnswebhook_refused_changes_total{{{P},reason="r"}}': "0+1x240"},
        "29m",
        "32m",
    ),
    "DnsWebhookWritesFail": ({f"dnswebhook_last_apply_timestamp_seconds{{{P}}}": "0+0x240"}, "34m", "37m"),
    "DnsWebhookNotAsked": ({f"dnswebhook_last_listing_timestamp_seconds{{{P}}}": "0+0x240"}, "14m", "17m"),
}


def test_prometheus_accepts_the_rules() -> None:
    done = run([program("promtool", "prometheus"), "check", "rules", *map(str, FILES)], timeout_s=30)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_not_before(alert: str, tmp_path: Path) -> None:
    changes, quiet_at, firing_at = CASES[alert]
    assert changes.keys() <= WELL.keys()

    evaluate(tmp_path, {**WELL, **changes}, {quiet_at: set(), firing_at: {alert}})


@pytest.mark.parametrize("file", ["helm/tunnelgw/files/alerts/proxy.yaml", "docs/monitoring.md"])
def test_calls_that_fail_are_those_that_the_proxy_takes_for_errors_of_the_server(file: str) -> None:
    found = re.findall(r'grpc_status=~"([^"]*)"', (REPOSITORY / file).read_text())

    assert found == ["|".join(map(str, GRPC_SERVER_ERRORS))]


def test_alerts_are_quiet_while_all_is_well(tmp_path: Path) -> None:
    evaluate(tmp_path, WELL, {f"{minute}m": set() for minute in range(1, 120)})


def test_a_missing_leader_is_reported_even_if_no_controller_runs(tmp_path: Path) -> None:
    alone = {series: values for series, values in WELL.items() if not series.startswith("tunnelgw_is_leader")}

    evaluate(tmp_path, alone, {"1m": set(), "3m": {"TunnelgwWithoutLeader"}})


@pytest.mark.parametrize("alert", ["TunnelgwObjectsUnreadable", "TunnelgwProxyCertificateExpires"])
def test_what_every_replica_reports_is_one_alert(alert: str, tmp_path: Path) -> None:
    """An object that no controller can read, and a certificate that all proxies present."""
    changes, _, firing_at = CASES[alert]
    here = {**WELL, **changes}
    elsewhere = {name.replace(P, Q): values for name, values in here.items() if name.startswith(EVERY_REPLICAS)}

    evaluate(tmp_path, {**here, **elsewhere}, {firing_at: {alert}})


def test_new_instances_and_targets_cause_no_alert_at_first(tmp_path: Path) -> None:
    """A proxy whose image is still being pulled, and a controller that begins by writing statuses."""
    new = {
        f'tunnelgw_delivered{{{P},target="new"}}': "_x40 0x7 1+0x190",
        'tunnelgw_status_queue_depth{job="j",instance="new"}': "_x40 9x7 0+0x190",
    }

    evaluate(tmp_path, {**WELL, **new}, {f"{minute}m": set() for minute in range(18, 40)})


def test_an_idle_webhook_whose_last_apply_was_long_ago_causes_no_alert(tmp_path: Path) -> None:
    idle = {
        f'dnswebhook_operations_total{{{P},operation="create",outcome="failed"}}': "3+0x240",
        f"dnswebhook_last_apply_timestamp_seconds{{{P}}}": "0+0x240",
    }

    evaluate(tmp_path, {**WELL, **idle}, {"60m": set(), "119m": set()})


FAILED = f'dnswebhook_operations_total{{{P},operation="create",outcome="failed"}}'
REFUSED = f'dnswebhook_refused_changes_total{{{P},reason="r"}}'
APPLIED = f"dnswebhook_last_apply_timestamp_seconds{{{P}}}"
LED = {f"tunnelgw_is_leader{{{P}}}": "1+0x1000"}
"""Without it, an alert fires."""
SELDOM_MIN = (16, 30, 75)
FAILURES = {"DnsWebhookWritesFail": FAILED, "DnsWebhookChangesRefused": REFUSED}


def held(*values: tuple[float, int]) -> str:
    """Each value for so many minutes."""
    return " ".join(f"{value}+0x{2 * minutes - 1}" for value, minutes in values)


@pytest.mark.parametrize("minutes", SELDOM_MIN)
@pytest.mark.parametrize("alert", FAILURES)
def test_what_fails_at_each_pass_is_reported_where_passes_are_seldom(alert: str, minutes: int, tmp_path: Path) -> None:
    each_pass = held((0, 20), *((passes, minutes) for passes in range(1, 600 // minutes)))
    series = {**LED, FAILURES[alert]: each_pass, APPLIED: "0+0x1000"}

    evaluate(tmp_path, series, {"20m": set()} | {f"{minute}m": {alert} for minute in range(200, 400, 7)})


@pytest.mark.parametrize("minutes", SELDOM_MIN)
@pytest.mark.parametrize("alert", FAILURES)
def test_what_the_next_pass_makes_up_for_is_not_reported_where_passes_are_seldom(
    alert: str, minutes: int, tmp_path: Path
) -> None:
    done_s = (200 + minutes) * 60
    series = {**LED, FAILURES[alert]: held((0, 200), (1, 300)), APPLIED: held((0, 200 + minutes), (done_s, 220))}

    evaluate(tmp_path, series, {f"{minute}m": set() for minute in range(1, 400, 3)})


@pytest.mark.parametrize("alert", FAILURES)
def test_a_failure_of_something_that_is_no_longer_wanted_is_not_reported(alert: str, tmp_path: Path) -> None:
    """No apply follows, since there is nothing left to do."""
    series = {**LED, FAILURES[alert]: held((0, 200), (1, 2), (2, 300)), APPLIED: "0+0x1000"}

    evaluate(tmp_path, series, {f"{minute}m": set() for minute in range(1, 400, 3)})


@pytest.mark.parametrize("label", ["cluster", "namespace"])
def test_clusters_and_namespaces_are_evaluated_separately(label: str, tmp_path: Path) -> None:
    """Proxies there have another document, and a leader here does not lead the controllers there."""
    there = {
        f'tunnelgw_proxy_config_hash{{{P},{label}="there"}}': "2+0x240",
        f'tunnelgw_is_leader{{{P},{label}="there"}}': "1+0x60 0+0x180",
    }

    evaluate(tmp_path, {**WELL, **there}, {"25m": set(), "40m": {"TunnelgwWithoutLeader"}})


def evaluate(folder: Path, series: Series, firing: Mapping[str, set[str]]) -> None:
    """`firing`: alerts by the time since the start of `series`, which is the Unix epoch."""
    tests = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": time,
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
            }
            for time, alerts in firing.items()
        ],
    }
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [*map(str, FILES)], "evaluation_interval": "30s", "tests": [tests]}))
    done = run([program("promtool", "prometheus"), "test", "rules", str(file)], timeout_s=60)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


# -- the files -------------------------------------------------------------------------------------------------------


def rules() -> list[dict[str, object]]:
    groups = [group for file in FILES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def manual_series() -> dict[str, set[str]]:
    """Labels of each series of the manuals, by its name."""
    found = {}
    for manual in MANUALS:
        for row in (REPOSITORY / "docs" / manual).read_text().splitlines():
            if match := re.match(r"\| `((?:tunnelgw|dnswebhook)_\w+)` \| (?:counter|gauge) \|([^|]*)\|", row):
                found[match[1]] = {*re.findall(r"`(\w+)`", match[2])}
    return found


def test_each_alert_has_a_case() -> None:
    assert [rule["alert"] for rule in rules()] == [*CASES]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_existing_series_and_labels_and_has_a_description(rule: dict[str, object]) -> None:
    annotations = rule["annotations"]
    assert isinstance(annotations, dict)
    assert annotations.keys() == {"summary", "description"}
    labels = rule["labels"]
    assert isinstance(labels, dict)
    assert labels["severity"] in SEVERITIES

    known = manual_series()
    expression = str(rule["expr"])
    asked = {*re.findall(r"\b(?:tunnelgw|dnswebhook)_\w+", expression)}
    assert asked
    assert asked <= known.keys()
    labels_known = (ADDED_BY_SCRAPES | ADDED_BY_PLATFORMS).union(*(known[name] for name in asked))
    matched = {*re.findall(r"(\w+)=~?\"", expression), *re.findall(r"\$labels\.(\w+)", str(annotations))}
    grouped = {name for group in re.findall(r"\b(?:by|on) \(([\w, ]+)\)", expression) for name in group.split(", ")}
    assert matched | grouped <= labels_known
