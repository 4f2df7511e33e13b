"""What the proxy counts of its tunnel."""

from __future__ import annotations

import re
import signal

import requests
from prometheus_client.parser import text_string_to_metric_families

from proxy.tunnel.failures import FailureCause
from tests.e2e.tunnel.connector import REGISTERED_LINE, Connector
from tests.proxy.site import eventually
from tests.support.edge.behaviour import Behaviour, unauthorized
from tests.support.edge.edge import Edge
from tests.support.process import REPOSITORY

FIXED = {"name": "fixed", "rules": [{"respond": {"statusCode": 200}}]}


def test_the_manual_names_every_metric_of_the_tunnel_with_its_type() -> None:
    manual = (REPOSITORY / "docs" / "proxy-metrics.md").read_text(encoding="utf-8").partition("## With a tunnel")[2]
    documented = dict(re.findall(r"^\| `(tunnelgw_proxy_tunnel_\w+)` \| (\w+) \|", manual, re.M))
    with Edge() as edge, Connector(edge) as proxy:
        page = requests.get(f"{proxy.api}/metrics", timeout=10).text
    families = [f for f in text_string_to_metric_families(page) if f.name.startswith("tunnelgw_proxy_tunnel_")]
    assert {f"{f.name}_total" if f.type == "counter" else f.name: f.type for f in families} == documented


def test_registrations_failures_and_requests_are_counted_by_connection() -> None:
    with Edge() as edge:
        edge.plan(Behaviour(refusal=unauthorized()))
        with Connector(edge, arguments=["--register-without-config"]) as proxy:
            proxy.put(proxy.document(FIXED, listeners=[]))
            proxy.wait_for_message(REGISTERED_LINE)
            assert proxy.ask().status_code == 200
            failures = "tunnelgw_proxy_tunnel_connection_failures_total"
            assert proxy.metric(failures, conn_index="0", cause="unauthorized") == 1
            assert causes_counted(proxy, failures) == set(FailureCause)
            assert proxy.metric("tunnelgw_proxy_tunnel_registrations_total", conn_index="0") == 1
            assert proxy.metric("tunnelgw_proxy_tunnel_connections_registered") == 1
            assert proxy.metric("tunnelgw_proxy_tunnel_requests_total", conn_index="0") == 1
            assert proxy.metric("tunnelgw_proxy_tunnel_sent_bytes_total", conn_index="0") > 0
            round_trip = "tunnelgw_proxy_tunnel_round_trip_seconds"
            eventually(lambda: proxy.metric(round_trip) > 0, "the answer to a PING")
            assert proxy.metric(round_trip) < 5


def test_a_stopping_proxy_reports_no_missing_connections() -> None:
    # However long a scrape takes; the signal at the end of the block ends the delay at once.
    with Edge() as edge, Connector(edge, arguments=["--shutdown-delay", "10m"]) as proxy:
        proxy.put(proxy.document(FIXED, listeners=[]))
        proxy.wait_for_message(REGISTERED_LINE)
        eventually(lambda: connections_told(proxy) == {("registered", 1), ("wanted", 1)}, "all are registered")

        proxy.send_signal(signal.SIGTERM)

        eventually(lambda: connections_told(proxy) == set(), "it stops")


def connections_told(proxy: Connector) -> set[tuple[str, float]]:
    page = requests.get(f"{proxy.api}/metrics", timeout=10).text
    return {
        (what, float(value))
        for what, value in re.findall(r"^tunnelgw_proxy_tunnel_connections_(\w+) (.+)$", page, re.M)
    }


def causes_counted(proxy: Connector, failures: str) -> set[str]:
    """Present from the start, so that the first of each is seen as an increase."""
    page = requests.get(f"{proxy.api}/metrics", timeout=10).text
    return {*re.findall(rf'^{failures}{{[^}}]*cause="(\w+)"', page, re.M)}
