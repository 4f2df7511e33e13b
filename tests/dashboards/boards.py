"""The dashboards as the files that Grafana imports, and what they show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.process import REPOSITORY

CHART_DASHBOARDS = REPOSITORY / "helm" / "tunnelgw" / "files" / "dashboards"
FILES = (
    CHART_DASHBOARDS / "proxy.json",
    CHART_DASHBOARDS / "controller.json",
    REPOSITORY / "examples" / "dashboards" / "dnswebhook.json",
)
FILLED_IN = {"__rate_interval": "5s", "__range": "5m"}
"""Variables that Grafana itself fills in."""
EVERYTHING = ".+"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a panel."""

    board: str
    panel: str
    expression: str

    @property
    def filled_in(self) -> str:
        """As Prometheus gets it while every variable selects everything."""
        return re.sub(r"\$(\w+)", lambda found: FILLED_IN.get(found[1], EVERYTHING), self.expression)

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}"


def boards() -> dict[str, Json]:
    """By their file names."""
    return {file.stem: json.loads(file.read_text()) for file in FILES}


def panels(board: Json) -> list[Json]:
    """Without row headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def asked() -> Iterator[Asked]:
    for name, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield Asked(name, panel["title"], target["expr"])
