"""The dashboard of dnswebhook."""

from pathlib import Path

from tools.dashboards.page import page
from tools.dashboards.panels import Query, Row, above, below, graph, not_well, number
from tools.dashboards.process import process
from tools.dashboards.queries import or_zero, quantile, rate, rise, series, total

KNOWN_BY = "dnswebhook_build_info"
READY = series("dnswebhook_store_ready")
RECORDS = series("external_dns_unifi_dns_records_managed")
OPERATIONS = series("dnswebhook_operations_total")
ASKED = "dnswebhook_http_request_duration_seconds"
STORE = "dnswebhook_store_request_duration_seconds"


def make_dnswebhook(alerts: Path) -> str:
    return page(
        "dnswebhook",
        "dnswebhook",
        "What external-dns asks of the webhook, and how its store answers.",
        [well(alerts), records(), calls(), process(KNOWN_BY)],
        known_by=KNOWN_BY,
    )


def well(alerts: Path) -> Row:
    failed = series("dnswebhook_operations_total", 'outcome=~"failed|left_out|not_tried"')
    return Row(
        title="Is it well, and if not, where?",
        panels=[
            not_well(alerts),
            number(
                "Stores that are ready",
                "Webhooks whose store answered the last probe. 0: GET /readyz says why, and `dnswebhook check` tries "
                "each step.",
                or_zero(total(READY)),
                steps=below(1),
            ),
            number(
                "Records",
                "Record sets in the last listing, those of others included.",
                total(RECORDS),
            ),
            number(
                "Since the last listing",
                "External-dns lists at each pass. Much longer than its --interval: it does not run, or cannot reach "
                "the webhook.",
                f"time() - max({series('dnswebhook_last_listing_timestamp_seconds')} > 0)",
                unit="s",
                steps=above(300, 600),
                none="never",
            ),
            number(
                "Since the last apply",
                "Since changes were last applied completely. Long where nothing changes.",
                f"time() - max({series('dnswebhook_last_apply_timestamp_seconds')} > 0)",
                unit="s",
                none="never",
            ),
            number(
                "Writes that failed",
                "In this time range, with those that were not tried for that. External-dns comes again at its next "
                "pass.",
                or_zero(f"sum(increase({failed}[$__range]))"),
                steps=above(1),
            ),
            number(
                "Delete guard",
                "How often in this time range external-dns wanted to delete too large a share of all records, and "
                "was refused.",
                or_zero(f"sum(increase({series('dnswebhook_delete_guard_trips_total')}[$__range]))"),
                steps=above(None, 1),
            ),
        ],
    )


def records() -> Row:
    return Row(
        title="Records",
        panels=[
            graph(
                "Records by type",
                "Record sets in the last listing. A step that nobody made is worth a look.",
                Query(f"{total(RECORDS, 'record_type')} > 0", "{{record_type}}"),
                stacked=True,
            ),
            graph(
                "Writes",
                "What applies asked for, and what became of it. The same ones at each pass: the controller does not "
                "keep what it was told.",
                Query(f"{rise(OPERATIONS, 'operation, outcome')} > 0", "{{operation}} {{outcome}}"),
                stacked=True,
                events=True,
            ),
            graph(
                "Refused, skipped, dropped",
                "Changes that could not be planned, were left alone on purpose, or that the store can never hold, by "
                "reason. The log names the records; the manual has what to do for each.",
                *(
                    Query(f"{rise(series(f'dnswebhook_{what}_total'), 'reason')} > 0", f"{word}: {{{{reason}}}}")
                    for word, what in (
                        ("refused", "refused_changes"),
                        ("skipped", "skipped_changes"),
                        ("dropped", "dropped_endpoints"),
                    )
                ),
                events=True,
            ),
        ],
    )


def calls() -> Row:
    return Row(
        title="Calls",
        panels=[
            graph(
                "Calls of external-dns",
                "By what was asked, and the status code. 503 and 504: the store did not answer in time.",
                Query(f"{rate(series(f'{ASKED}_count'), 'route, status_code')} > 0", "{{route}} {{status_code}}"),
                unit="reqps",
                stacked=True,
                width=12,
            ),
            graph(
                "Duration of calls of external-dns",
                "95 % are quicker. External-dns gives up after 15 s.",
                Query(quantile(0.95, series(f"{ASKED}_bucket"), "route"), "{{route}}"),
                unit="s",
                limit=12,
                width=12,
            ),
            graph(
                "Calls to the store that fail",
                "By operation and kind of failure: the controller refuses, or cannot be reached.",
                Query(
                    f"{rise(series(f'{STORE}_count', _NOT_OK), 'operation, outcome')} > 0",
                    "{{operation}}: {{outcome}}",
                ),
                stacked=True,
                events=True,
            ),
            graph(
                "Duration of calls to the store",
                "95 % are quicker. A call may take 5 s by default.",
                Query(quantile(0.95, series(f"{STORE}_bucket"), "operation"), "{{operation}}"),
                unit="s",
            ),
            graph(
                "Answers 429 of the controller",
                "The controller is asked too often. Lower DNSWEBHOOK_WRITE_PARALLELISM, or have external-dns pass "
                "less often.",
                Query(rise(series("dnswebhook_store_rate_limit_hits_total"), "instance"), "{{instance}}"),
                events=True,
            ),
        ],
    )


_NOT_OK = 'outcome!="ok"'
