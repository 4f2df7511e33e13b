"""The dashboard of the controller, `tunnelgw`."""

from pathlib import Path

from tools.dashboards.page import page
from tools.dashboards.panels import Column, Query, Row, above, exactly, graph, not_well, number, ranking
from tools.dashboards.process import process
from tools.dashboards.queries import or_zero, quantile, rate, rise, series, total

KNOWN_BY = "tunnelgw_build_info"
DELIVERED = series("tunnelgw_delivered")
DELIVERIES = series("tunnelgw_deliveries_total")
SAID = series("tunnelgw_delivered_timestamp_seconds")
RECONCILES = "tunnelgw_reconcile_duration_seconds"
CALLS = "tunnelgw_provider_call_duration_seconds"
STATUSES = series("tunnelgw_status_writes_total")
QUEUE = series("tunnelgw_status_queue_depth")


def make_controller(alerts: Path) -> str:
    return page(
        "tunnelgw controller",
        "tunnelgw-controller",
        "What the controller reads, decides, and hands to proxies, tunnels and statuses.",
        [well(alerts), deliveries(), reconciles(), provider(), process(KNOWN_BY)],
        known_by=KNOWN_BY,
    )


def well(alerts: Path) -> Row:
    unreadable = series("tunnelgw_objects", 'validity="unreadable"')
    refused = series("tunnelgw_provider_call_duration_seconds_count", 'outcome!="ok"')
    return Row(
        title="Is it well, and if not, where?",
        panels=[
            not_well(alerts),
            number(
                "Leaders",
                "One controller writes. With none, nothing that you change takes effect; more than one for long: they "
                "do not see the same lease.",
                or_zero(f"sum({series('tunnelgw_is_leader')})"),
                steps=exactly(1),
            ),
            number(
                "Targets that miss something",
                "Proxies and tunnels that do not hold what they should. The condition tunnelgw.dev/Delivered of their "
                "Gateways says why.",
                or_zero(f"count({DELIVERED} == 0)"),
                steps=above(None, 1),
            ),
            number(
                "Unreadable objects",
                "Objects that are left out, because they are not what their kind wants. The log names each.",
                or_zero(total(unreadable)),
                steps=above(1),
            ),
            number(
                "Statuses that wait",
                "Statuses to be written. If they stay, the API server is slow or refuses them.",
                total(QUEUE),
                steps=above(100),
            ),
            number(
                "Since the last reconcile",
                "Since changes were last taken up with success. Long where nothing changes; look at the failed ones "
                "below.",
                f"time() - max({series('tunnelgw_last_reconcile_timestamp_seconds')} > 0)",
                unit="s",
                none="never",
            ),
            number(
                "Provider calls that fail",
                "Calls to the tunnel provider's API in this time range that did not succeed.",
                or_zero(f"sum(increase({refused}[$__range]))"),
                steps=above(1),
            ),
        ],
    )


def deliveries() -> Row:
    return Row(
        title="Deliveries",
        panels=[
            ranking(
                "Targets",
                "Each proxy and tunnel. The one that does not hold what it should is first.",
                "target",
                [
                    Column("misses something", f"1 - min by (target) ({DELIVERED})", "bool", above(None, 1)),
                    Column("last held all", f"time() - max by (target) ({SAID} > 0)", "s"),
                    Column("failed", _over_the_range("failed"), steps=above(1)),
                    Column("refused", _over_the_range("refused"), steps=above(None, 1)),
                ],
                worst="misses something",
            ),
            graph(
                "Changes of what targets hold",
                "`held`: a target has taken what it should have. `failed`: it could not be reached. `refused`: it "
                "does not want it; its own log says which field.",
                Query(rise(DELIVERIES, "outcome"), "{{outcome}}"),
                stacked=True,
                events=True,
                colors={"held": "green", "failed": "orange", "refused": "red"},
                width=12,
            ),
            graph(
                "Size of documents",
                "What one proxy is sent. A proxy takes 64 MiB by default, see --max-document.",
                Query(f"max by (data_plane) ({series('tunnelgw_document_bytes')})", "{{data_plane}}"),
                unit="bytes",
                width=12,
            ),
        ],
    )


def _over_the_range(outcome: str) -> str:
    changes = series("tunnelgw_deliveries_total", f'outcome="{outcome}"')
    return f"sum by (target) (increase({changes}[$__range]))"


def reconciles() -> Row:
    return Row(
        title="Reconciles and watches",
        panels=[
            graph(
                "Reconciles",
                "Passes over what has changed. A failed one is a bug, whose stack is in the log.",
                Query(rise(series(f"{RECONCILES}_count"), "outcome"), "{{outcome}}"),
                stacked=True,
                events=True,
                colors={"ok": "green", "failed": "red"},
            ),
            graph(
                "Duration of reconciles",
                "Time from taking changes to handing out the results. It grows with what has changed, not with what "
                "there is.",
                *(Query(quantile(part / 100, series(f"{RECONCILES}_bucket")), f"p{part}") for part in (50, 95)),
                unit="s",
            ),
            graph(
                "Watches that began again",
                "After a failure, by kind. One kind: a right or its definition is missing. All of them: the API "
                "server, or the way to it.",
                Query(rise(series("tunnelgw_watch_restarts_total"), "kind"), "{{kind}}"),
                events=True,
            ),
            graph(
                "Objects",
                "Objects that are read, by kind. A step down that nobody made is worth a look.",
                Query(f"max by (kind) ({series('tunnelgw_objects', _READ)})", "{{kind}}"),
            ),
            graph(
                "Statuses",
                "Written, unchanged, or to be tried again. Many that are written while nothing changes: two "
                "controllers write the same ones.",
                Query(rate(STATUSES, "outcome"), "{{outcome}}"),
                unit="wps",
                stacked=True,
                colors={"written": "green", "unchanged": "blue", "conflict": "yellow", "failed": "red"},
            ),
            graph(
                "Statuses that wait",
                "By controller. It rises with a large change, and falls as fast as the API server takes them.",
                Query(QUEUE, "{{instance}}"),
            ),
        ],
    )


_READ = 'validity="read"'


def provider() -> Row:
    return Row(
        title="Provider",
        panels=[
            graph(
                "Calls to the provider",
                "By what was asked and what became of it.",
                Query(rise(series(f"{CALLS}_count"), "call, outcome"), "{{call}}: {{outcome}}"),
                stacked=True,
                events=True,
            ),
            graph(
                "Duration of calls",
                "95 % of the calls are quicker.",
                Query(quantile(0.95, series(f"{CALLS}_bucket"), "call"), "{{call}}"),
                unit="s",
            ),
            graph(
                "Rules and edits of others",
                "Rules in a tunnel's ingress document that are not ours, and how often somebody else has changed it. "
                "Edits that go on: another controller has the same tunnel.",
                Query(f"max by (tunnel) ({series('tunnelgw_ingress_foreign_rules')})", "rules: {{tunnel}}"),
                Query(rise(series("tunnelgw_ingress_foreign_edits_total"), "tunnel"), "edits: {{tunnel}}"),
            ),
        ],
    )
