"""What is not well now: the conditions of our alerts, as one table.

It shows what is true at this moment, whether or not an alert's waiting time is over, or Prometheus has the rules at
all.
"""

import json
import re
from pathlib import Path
from typing import TypedDict

import yaml

from tools.dashboards.queries import CHOSEN

ADVICE = "what_to_do"


class Rule(TypedDict):
    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def problems(alerts: Path) -> str:
    """One row for each condition of these alerts that is true."""
    groups = yaml.safe_load(alerts.read_text(encoding="utf-8"))["groups"]
    rules: list[Rule] = [rule for group in groups for rule in group["rules"]]
    return "\nor ".join(map(_row, rules))


def _row(rule: Rule) -> str:
    row = _narrowed(" ".join(rule["expr"].split()))
    said = {
        "alert": rule["alert"],
        "severity": rule["labels"]["severity"],
        ADVICE: rule["annotations"]["description"],
    }
    for label, text in said.items():
        row = f'label_replace({row}, "{label}", {json.dumps(text)}, "", "")'
    return row


def _narrowed(expression: str) -> str:
    """Restricts all series to the chosen jobs and instances."""

    def narrowed(found: re.Match[str]) -> str:
        own = found[2] or ""
        return f"{found[1]}{{{CHOSEN}{own and ','}{own}}}"

    return re.sub(r"\b((?:tunnelgw|dnswebhook)_\w+)(?:\{([^}]*)\})?", narrowed, expression)
