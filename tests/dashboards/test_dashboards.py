"""Dashboards query series that our daemons expose, and are valid for Grafana."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from tests.alerts.test_alerts import ADDED_BY_PLATFORMS, ADDED_BY_SCRAPES
from tests.alerts.test_alerts import FILES as ALERTS
from tests.dashboards.boards import FILLED_IN, Asked, Json, asked, boards, panels
from tests.support.process import REPOSITORY
from tests.support.programs import program, run

MANUALS = ("proxy-metrics.md", "controller-reference.md", "dnswebhook-reference.md")
OF_SCRAPES = ADDED_BY_SCRAPES | ADDED_BY_PLATFORMS
OF_HISTOGRAMS = {"_bucket": {"le"}, "_count": set[str](), "_sum": set[str]()}
OF_PROCESSES = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_max_fds"}
CHOSEN = '{job=~"$job",instance=~"$instance"'
GRID_COLUMNS = 24
AT_THE_END = {"eval_time": "20s", "exp_samples": [{"labels": "{}", "value": 1}]}

QUERIES = [*asked()]
BOARDS = boards()
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def known_series() -> dict[str, set[str]]:
    """Labels by series name, from the manuals, which other tests compare with the daemons."""
    found: dict[str, set[str]] = {name: set() for name in OF_PROCESSES}
    pattern = r"\| `((?:tunnelgw|dnswebhook|external_dns)_\w+)` \| (\w+) \|([^|]*)\|"
    for manual in MANUALS:
        for name, kind, labels in re.findall(pattern, (REPOSITORY / "docs" / manual).read_text()):
            named = {*re.findall(r"`(\w+)`", labels)}
            endings = OF_HISTOGRAMS if kind == "histogram" else {"": set[str]()}
            found |= {name + ending: named | more for ending, more in endings.items()}
    return found


def series_of(expression: str) -> set[str]:
    return {*re.findall(r"([a-z_]\w+)\{", expression)}


def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"q{number}", "expr": query.filled_in} for number, query in enumerate(QUERIES)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = run([program("promtool", "prometheus"), "check", "rules", str(file)], timeout_s=30)

    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("label", sorted(ADDED_BY_PLATFORMS))
def test_every_expression_can_be_evaluated_where_jobs_and_instances_of_two_places_have_the_same_names(
    label: str, tmp_path: Path
) -> None:
    """As in a store of the metrics of several clusters, whose Pods may have the same addresses."""
    rules = [{"record": f"q{number}", "expr": query.filled_in} for number, query in enumerate(QUERIES)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    names = {name for query in QUERIES for name in series_of(query.expression)}
    series = []
    for name, own in known_series().items():
        labels = ",".join(f'{each}="1"' for each in sorted(own | ADDED_BY_SCRAPES) if each.isidentifier())
        if name in names:
            for place in ("here", "there"):
                series.append({"series": f'{name}{{{labels},{label}="{place}"}}', "values": "0+1x20"})
    tests = [{"interval": "1s", "input_series": series, "promql_expr_test": [{"expr": "vector(1)", **AT_THE_END}]}]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "10s", "tests": tests}))

    done = run([program("promtool", "prometheus"), "test", "rules", str(file)], timeout_s=30)

    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_an_expression_uses_existing_series_and_labels_and_filters_by_the_variables(query: Asked) -> None:
    known = known_series()
    code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', query.expression)
    legends = [target.get("legendFormat", "") for target in targets(BOARDS[query.board]) if asks(target, query)]

    names = series_of(query.expression)
    assert names
    assert names <= known.keys()
    assert query.expression.count("{") == query.expression.count(CHOSEN)
    labels = OF_SCRAPES.union(*(known[name] for name in names))
    matched = {*re.findall(r"(\w+)(?:=~?|!=|!~)\"", code)}
    grouped = {
        name for group in re.findall(r"\b(?:by|on|group_left) \(([\w, ]+)\)", code) for name in group.split(", ")
    }
    shown = {*re.findall(r"{{(\w+)}}", " ".join(legends))}
    assert matched | grouped | shown <= labels
    if " by (" in code:
        assert shown <= grouped


def targets(board: Json) -> Iterable[Json]:
    return (target for panel in panels(board) for target in panel["targets"])


def asks(target: Json, query: Asked) -> bool:
    return bool(target["expr"] == query.expression)


@every_board
def test_a_panel_has_a_title_a_description_a_unit_and_legends(board: Json) -> None:
    for panel in panels(board):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["noValue"]
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert all(target["legendFormat"] for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@every_board
def test_panels_fill_the_grid_without_overlap(board: Json) -> None:
    taken = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in board["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert {*taken.values()} == {1}
    assert {x for x, _ in taken} == {*range(GRID_COLUMNS)}
    assert len(taken) == GRID_COLUMNS * (1 + max(y for _, y in taken))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@every_board
def test_expressions_use_exactly_the_defined_variables(board: Json) -> None:
    own = {variable["name"] for variable in board["templating"]["list"]}
    named = {name for target in targets(board) for name in re.findall(r"\$(\w+)", target["expr"])}

    assert named - FILLED_IN.keys() == own - {"datasource"}
    for each in (*panels(board), *targets(board)):
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("alerts", ALERTS, ids=lambda file: str(file.stem))
def test_the_first_table_has_the_condition_of_every_alert(alerts: Path) -> None:
    (query,) = (each for each in QUERIES if each.board == alerts.stem and each.panel == "Not well now")
    rules = [rule for group in yaml.safe_load(alerts.read_text())["groups"] for rule in group["rules"]]

    assert re.findall(r'"alert", "(\w+)"', query.expression) == [rule["alert"] for rule in rules]


def test_dashboards_have_unique_uids() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
