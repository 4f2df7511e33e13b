"""A whole dashboard: variables at the top, rows of panels below, as the JSON that Grafana imports."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from tools.dashboards.panels import SOURCE, Row
from tools.dashboards.queries import series

TAG = "tunnelgw"
EVERYTHING = ".+"


def data_source() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").id("datasource").label("Data source").type("prometheus")


def choices(name: str, within: str) -> builders.QueryVariable:
    """A variable with the values of a label; several may be chosen, and at first all are."""
    return (
        builders.QueryVariable(name)
        .id(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query({"query": f"label_values({within}, {name})", "refId": name})
        .multi(True)
        .include_all(True)
        .all_value(EVERYTHING)
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )


def page(
    title: str,
    uid: str,
    description: str,
    rows: Sequence[Row],
    *,
    known_by: str,
    more: Sequence[builders.QueryVariable] = (),
) -> str:
    """`known_by`: a metric that every daemon of this kind has, through which jobs and instances are found."""
    board = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .with_variable(data_source())
        .with_variable(choices("job", known_by))
        .with_variable(choices("instance", f'{known_by}{{job=~"$job"}}'))
        .link(
            builders.DashboardLink("tunnelgw")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
        )
    )
    for variable in more:
        board = board.with_variable(variable)
    for row in rows:
        board = board.with_row(builders.Row(row.title))
        for panel in row.panels:
            board = board.with_panel(panel)
    return JSONEncoder(indent=1).encode(_tidy(board.build())) + "\n"


def labels_of(name: str, label: str) -> builders.QueryVariable:
    """Values of `label` among the chosen jobs and instances."""
    return choices(label, series(name))


def _tidy(board: Dashboard) -> Dashboard:
    """Numbers the panels, since links to a panel use its number, and clears fields that the builders set needlessly."""
    for number, panel in enumerate(board.panels or (), start=1):
        panel.id_val = number
        if isinstance(panel, Panel):
            panel.repeat_direction = None
    for variable in (board.templating and board.templating.list_val) or ():
        variable.auto = variable.auto_min = variable.auto_count = None
    return board
