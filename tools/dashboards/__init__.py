"""Dashboards for Grafana 10.1 and newer: each panel is a few lines here, from which Grafana's JSON is generated."""

from pathlib import Path

from tools.dashboards.controller import make_controller
from tools.dashboards.dnswebhook import make_dnswebhook
from tools.dashboards.proxy import make_proxy

CHART = Path("helm") / "tunnelgw" / "files"
EXAMPLES = Path("examples")


def make_dashboards(root: Path) -> dict[Path, str]:
    """The text of each file; reads the alerts."""
    chart, examples = root / CHART, root / EXAMPLES
    return {
        chart / "dashboards" / "proxy.json": make_proxy(chart / "alerts" / "proxy.yaml"),
        chart / "dashboards" / "controller.json": make_controller(chart / "alerts" / "controller.yaml"),
        examples / "dashboards" / "dnswebhook.json": make_dnswebhook(examples / "alerts" / "dnswebhook.yaml"),
    }
