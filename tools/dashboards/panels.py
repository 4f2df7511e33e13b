"""The kinds of panels in our dashboards, with what all panels of a kind have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphDrawStyle,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.dashboards.problems import ADVICE, problems

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
GOOD, WARN, BAD = "green", "orange", "red"
NEVER_WRONG: Sequence[Threshold] = ()
PLAIN = "text"
PLACES = ("instance", "route", "backend", "listener", "worker", "target", "kind", "reason")
"""Labels that say where something is wrong, in the order of their columns; other labels come last."""
SEVERITIES = {"critical": BAD, "warning": WARN}


class Query(NamedTuple):
    expression: str
    legend: str = ""


class Column(NamedTuple):
    """A column of a table: its name, and the expression for its values, by the label that the table is about."""

    name: str
    expression: str
    unit: str = "short"
    steps: Sequence[Threshold] = NEVER_WRONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: Sequence[Builder[dashboard.Panel]]


def above(warn: float | None, bad: float | None = None) -> Sequence[Threshold]:
    """Good below the limits, worse from each limit upwards."""
    steps = [Threshold(color=GOOD), Threshold(warn, WARN), Threshold(bad, BAD)]
    return [steps[0], *(step for step in steps[1:] if step.value is not None)]


def below(limit: float) -> Sequence[Threshold]:
    """Bad below the limit, good from there upwards."""
    return [Threshold(color=BAD), Threshold(limit, GOOD)]


def exactly(count: int) -> Sequence[Threshold]:
    """Good at this number only."""
    return [*below(count), Threshold(count + 1, BAD)]


def between(warn: float, good: float) -> Sequence[Threshold]:
    """Bad at first, better from each limit upwards."""
    return [Threshold(color=BAD), Threshold(warn, WARN), Threshold(good, GOOD)]


def number(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    steps: Sequence[Threshold] = NEVER_WRONG,
    none: str = "none",
) -> Builder[dashboard.Panel]:
    """One large number, with its history behind it. `none`: the text without a value."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .with_target(_query(0, Query(expression, title)))
        .unit(unit)
        .no_value(none)
        .thresholds(_thresholds(steps))
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .span(4)
        .height(4)
    )


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    events: bool = False,
    limit: float | None = None,
    colors: Mapping[str, str] | None = None,
    width: int = 8,
) -> Builder[dashboard.Panel]:
    """Lines, stacked areas, or bars for occasional events.

    `limit`: red above it; `colors`: by legend.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .no_value("nothing in this time")
        .show_points(VisibilityMode.NEVER)
        .fill_opacity(30 if stacked else 5)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .span(width)
        .height(8)
    )
    if events:  # increase() extrapolates beyond the first and the last sample, so that 1 may come out as 1.2
        panel = panel.draw_style(GraphDrawStyle.BARS).fill_opacity(60).decimals(0)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if limit is not None:
        panel = panel.thresholds(_thresholds(above(None, limit))).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        )
    for place, query in enumerate(queries):
        panel = panel.with_target(_query(place, query))
    for legend, color in (colors or {}).items():
        panel = panel.override_by_name(legend, [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})])
    return panel


def ranking(
    title: str, description: str, about: str, columns: Sequence[Column], *, worst: str
) -> Builder[dashboard.Panel]:
    """A row for each value of label `about`, sorted by column `worst`, highest first."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .no_value("nothing to tell of")
        .sort_by([common.TableSortByFieldState().display_name(worst).desc(True)])
        .span(24)
        .height(9)
    )
    names = {about: about}
    for place, column in enumerate(columns):
        panel = panel.with_target(_instant(place, column.expression))
        # This is how Grafana names the values of several queries.
        names[f"Value #{_letter(place)}"] = column.name
        properties = [DynamicConfigValue("unit", column.unit)]
        if column.steps:
            properties += [
                DynamicConfigValue("thresholds", _thresholds(column.steps).build()),
                DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
            ]
        panel = panel.override_by_name(column.name, properties)
    panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(_columns(names, hidden=["Time"]))


def not_well(alerts: Path) -> Builder[dashboard.Panel]:
    """The conditions of these alerts that are true now."""
    colors = {text: ValueMappingResult(text=text, color=color) for text, color in SEVERITIES.items()}
    severity = [
        DynamicConfigValue("mappings", [ValueMap(colors)]),
        DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
        DynamicConfigValue("custom.width", 90),
    ]
    names = {"severity": "severity", "alert": "alert", **dict(zip(PLACES, PLACES, strict=True))}
    names |= {"Value": "value", ADVICE: "what to do"}
    return (
        table.Panel()
        .title("Not well now")
        .description(
            "Each condition of the alerts that holds at this moment, with what to do. "
            "The alert itself waits until it has lasted for a while."
        )
        .datasource(SOURCE)
        .no_value("All is well: none of the conditions of the alerts holds.")
        .with_target(_instant(0, problems(alerts)))
        .with_transformation(_columns(names, hidden=["Time", "__name__"]))
        .override_by_name("severity", severity)
        .override_by_name("alert", [DynamicConfigValue("custom.width", 270)])
        .override_by_name("what to do", [DynamicConfigValue("custom.width", 760)])
        .sort_by([common.TableSortByFieldState().display_name("severity")])
        .span(24)
        .height(6)
    )


def _thresholds(steps: Sequence[Threshold]) -> ThresholdsConfig:
    return ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(list(steps) or [Threshold(color=PLAIN)])


def _columns(names: Mapping[str, str], hidden: Sequence[str]) -> DataTransformerConfig:
    """Columns in this order, followed by all others."""
    return DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": dict.fromkeys(hidden, True),
            "indexByName": {name: place for place, name in enumerate(names)},
            "renameByName": dict(names),
        },
    )


def _query(place: int, query: Query) -> prometheus.Dataquery:
    return _asked(place, query.expression).range().legend_format(query.legend)


def _instant(place: int, expression: str) -> prometheus.Dataquery:
    return _asked(place, expression).instant().format(PromQueryFormat.TABLE)


def _asked(place: int, expression: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(_letter(place)).datasource(SOURCE).expr(expression)


def _letter(place: int) -> str:
    return chr(ord("A") + place)
