"""Dashboards for Grafana 10.1 and newer: a panel is a few lines here, and Grafana's JSON is made of them."""

from pathlib import Path

from tools.dashboards.controller import make_controller
from tools.dashboards.dnswebhook import make_dnswebhook
from tools.dashboards.proxy import make_proxy

CHART = Path("helm") / "tunnelgw" / "files"
EXAMPLES = Path("examples")


def make_dashboards(root: Path) -> dict[Path, str]:
    """Each file with its text; the alerts beside them are read."""
    chart, examples = root / CHART, root / EXAMPLES
    return {
        chart / "dashboards" / "proxy.json": make_proxy(chart / "alerts" / "proxy.yaml"),
        chart / "dashboards" / "controller.json": make_controller(chart / "alerts" / "controller.yaml"),
        examples / "dashboards" / "dnswebhook.json": make_dnswebhook(examples / "alerts" / "dnswebhook.yaml"),
    }
