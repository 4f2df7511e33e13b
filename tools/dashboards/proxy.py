"""The dashboard of tunnelgw-proxy."""

from pathlib import Path

from proxy.stats import GRPC_SERVER_ERRORS
from tools.dashboards.page import labels_of, page
from tools.dashboards.panels import Column, Query, Row, above, below, between, graph, not_well, number, ranking
from tools.dashboards.queries import PROCESS, WINDOW, most, or_zero, quantile, rate, rise, series, share, total

ROUTE, BACKEND = 'route=~"$route"', 'backend=~"$backend"'
REQUESTS = series("tunnelgw_proxy_requests_total", ROUTE)
FAILED = series("tunnelgw_proxy_requests_total", ROUTE, 'status_class="5xx"')
CALLS = series("tunnelgw_proxy_grpc_calls_total", ROUTE)
SERVER_ERRORS = "|".join(map(str, GRPC_SERVER_ERRORS))
CALLS_FAILED = series("tunnelgw_proxy_grpc_calls_total", ROUTE, f'grpc_status=~"{SERVER_ERRORS}"')
DURATIONS = series("tunnelgw_proxy_request_duration_seconds_bucket", ROUTE)
IN_FLIGHT = series("tunnelgw_proxy_requests_in_flight", ROUTE)
RECEIVED = series("tunnelgw_proxy_request_body_bytes_total", ROUTE)
SENT = series("tunnelgw_proxy_response_body_bytes_total", ROUTE)
RETRIES = series("tunnelgw_proxy_retries_total", ROUTE)
BACKEND_REQUESTS = series("tunnelgw_proxy_backend_requests_total", BACKEND)
BACKEND_RESPONSES = series("tunnelgw_proxy_backend_responses_total", BACKEND)
BACKEND_FAILED = series("tunnelgw_proxy_backend_responses_total", BACKEND, 'status_class="5xx"')
BACKEND_DURATIONS = series("tunnelgw_proxy_backend_response_duration_seconds_bucket", BACKEND)
BACKEND_FAILURES = series("tunnelgw_proxy_backend_failures_total", BACKEND)
BACKEND_OPENED = series("tunnelgw_proxy_backend_connections_opened_total", BACKEND)
BACKEND_OPEN = series("tunnelgw_proxy_backend_connections", BACKEND)
BACKEND_IN_FLIGHT = series("tunnelgw_proxy_backend_requests_in_flight", BACKEND)
EJECTIONS = series("tunnelgw_proxy_backend_ejections_total", BACKEND)
EJECTED = series("tunnelgw_proxy_backend_addresses_ejected", BACKEND)
VERSION = series("tunnelgw_proxy_config_version")
CERTIFICATES = series("tunnelgw_proxy_certificate_not_after_timestamp_seconds")
REGISTERED = series("tunnelgw_proxy_tunnel_connections_registered")
WANTED = series("tunnelgw_proxy_tunnel_connections_wanted")

ERROR_SHARE = above(0.01, 0.05)
CLASS_COLORS = {"2xx": "green", "3xx": "blue", "4xx": "yellow", "5xx": "red", "none": "purple"}


def make_proxy(alerts: Path) -> str:
    return page(
        "tunnelgw proxy",
        "tunnelgw-proxy",
        "Requests, backends, the tunnel and the workers of tunnelgw-proxy.",
        [well(alerts), requests(), backends(), connections(), workers()],
        known_by="tunnelgw_proxy_build_info",
        more=[
            labels_of("tunnelgw_proxy_requests_total", "route"),
            labels_of("tunnelgw_proxy_backend_requests_total", "backend"),
        ],
    )


def well(alerts: Path) -> Row:
    return Row(
        title="Is it well, and if not, where?",
        panels=[
            not_well(alerts),
            number(
                "Proxies that serve",
                "Proxies that have a document. Fewer than you run: one does not answer Prometheus, or has no document "
                "yet. Ask its /readyz.",
                or_zero(f"count({VERSION} > 0)"),
                steps=below(1),
            ),
            number(
                "Requests",
                "Requests that end, by the routes chosen above.",
                rate(REQUESTS),
                unit="reqps",
            ),
            number(
                "Answered 5xx",
                "Share of requests that are answered 5xx, by backends or by the proxy itself. The tables below say "
                "which route and which backend; the access log has `reason`.",
                share(rate(FAILED), rate(REQUESTS)),
                unit="percentunit",
                steps=ERROR_SHARE,
                none="no requests",
            ),
            number(
                "p95 duration",
                "From a request's head to the end of its response. Long downloads and streams count, too.",
                quantile(0.95, DURATIONS),
                unit="s",
                none="no requests",
            ),
            number(
                "Tunnel connections",
                "Connections to the tunnel's edge, as a share of those that are wanted. With some missing requests "
                "still come; with none they do not. `tunnelgw-proxy tunnel-check` tries each step.",
                f"{total(REGISTERED)} / {total(WANTED)}",
                unit="percentunit",
                steps=between(0.5, 1),
                none="no tunnel",
            ),
            number(
                "Next certificate expires in",
                "The first certificate of all listeners. Whoever renews it should do so before it turns red, a week "
                "before the end. Those that live for days alone are always red.",
                f"min({CERTIFICATES}) - time()",
                unit="s",
                steps=below(7 * 86400),
                none="no certificate",
            ),
        ],
    )


def requests() -> Row:
    return Row(
        title="Requests",
        panels=[
            graph(
                "Requests by answer",
                "`none`: ended without a response, mostly because the client went away.",
                Query(rate(REQUESTS, "status_class"), "{{status_class}}"),
                unit="reqps",
                stacked=True,
                colors=CLASS_COLORS,
            ),
            graph(
                "Duration",
                "So many percent of the requests take no longer. If only the highest rises, look for one route or "
                "backend; if all do, look at the CPU of the workers.",
                *(Query(quantile(percent / 100, DURATIONS), f"p{percent}") for percent in (50, 95, 99)),
                unit="s",
            ),
            graph(
                "In flight",
                "Requests under way. They pile up where a backend has stopped to answer.",
                Query(total(IN_FLIGHT, "instance"), "{{instance}}"),
                stacked=True,
            ),
            ranking(
                "Routes",
                "Each route now, those with the largest share of errors first. `(none)`: no route took the request.",
                "route",
                [
                    Column("requests", rate(REQUESTS, "route"), "reqps"),
                    Column("5xx", share(rate(FAILED, "route"), rate(REQUESTS, "route")), "percentunit", ERROR_SHARE),
                    Column("p95 duration", quantile(0.95, DURATIONS, "route"), "s"),
                    Column("in flight", total(IN_FLIGHT, "route")),
                    Column("retries", rate(RETRIES, "route"), "reqps"),
                    Column("from clients", rate(RECEIVED, "route"), "Bps"),
                    Column("to clients", rate(SENT, "route"), "Bps"),
                ],
                worst="5xx",
            ),
            graph(
                "5xx by route",
                "Since when, and which: the ten with the most.",
                Query(most(rate(FAILED, "route")), "{{route}}"),
                unit="reqps",
                width=12,
            ),
            graph(
                "p95 duration by route",
                "The ten slowest. Streams and long polls are slow by nature.",
                Query(most(quantile(0.95, DURATIONS, "route")), "{{route}}"),
                unit="s",
                width=12,
            ),
            graph(
                "gRPC calls by status",
                "Most of them are 2xx above, whatever their status. 0 is OK, 1 CANCELLED; 2, 4, 12, 13, 14 and 15 are "
                "errors of the server. `none`: broke off, or the client went away.",
                Query(rate(CALLS, "grpc_status"), "{{grpc_status}}"),
                unit="reqps",
                stacked=True,
                width=12,
            ),
            graph(
                "gRPC calls that fail, by route",
                "Errors of the server only: the ten with the most.",
                Query(most(rate(CALLS_FAILED, "route")), "{{route}}"),
                unit="reqps",
                width=12,
            ),
        ],
    )


def backends() -> Row:
    return Row(
        title="Backends",
        panels=[
            ranking(
                "Backends",
                "Each backend now, those that fail most first. Many new connections beside few that are open: the "
                "backend does not keep them.",
                "backend",
                [
                    Column("requests", rate(BACKEND_REQUESTS, "backend"), "reqps"),
                    Column("failures", rate(BACKEND_FAILURES, "backend"), "reqps", above(0.001)),
                    Column(
                        "5xx",
                        share(rate(BACKEND_FAILED, "backend"), rate(BACKEND_RESPONSES, "backend")),
                        "percentunit",
                        ERROR_SHARE,
                    ),
                    Column("p95 duration", quantile(0.95, BACKEND_DURATIONS, "backend"), "s"),
                    Column("in flight", total(BACKEND_IN_FLIGHT, "backend")),
                    Column("connections", total(BACKEND_OPEN, "backend")),
                    Column("new connections", rate(BACKEND_OPENED, "backend"), "cps"),
                    Column("addresses ejected", total(EJECTED, "backend"), steps=above(None, 1)),
                ],
                worst="failures",
            ),
            graph(
                "Failures by reason",
                "Requests without a complete answer of the backend. The manual of the proxy has what to do for each "
                "reason, under Error answers.",
                Query(most(rate(BACKEND_FAILURES, "backend, reason")), "{{reason}} {{backend}}"),
                unit="reqps",
                width=12,
            ),
            graph(
                "Retries and ejections",
                "How often a request was sent again, and an address ejected for failing. Clients may see "
                "nothing of it yet.",
                Query(rise(RETRIES), "retries"),
                Query(most(rise(EJECTIONS, "backend")), "ejected: {{backend}}"),
                width=12,
                events=True,
            ),
        ],
    )


def connections() -> Row:
    round_trip = series("tunnelgw_proxy_tunnel_round_trip_seconds")
    place = series("tunnelgw_proxy_tunnel_connection_info")
    return Row(
        title="Connections and tunnel",
        panels=[
            graph(
                "Client connections",
                "Open ones, by the address of the listener.",
                Query(total(series("tunnelgw_proxy_connections"), "door"), "{{door}}"),
                stacked=True,
            ),
            graph(
                "Connections refused",
                "Turned away or broken off, by cause and the address of the listener. The manual of the proxy tells "
                "the causes, under Error answers.",
                Query(rate(series("tunnelgw_proxy_connections_refused_total"), "door, cause"), "{{cause}} at {{door}}"),
                unit="cps",
            ),
            graph(
                "Bodies",
                "Bytes of requests and responses, without their heads.",
                Query(rate(RECEIVED), "from clients"),
                Query(rate(SENT), "to clients"),
                unit="Bps",
            ),
            graph(
                "Tunnel connections",
                "Registered at the edge, by proxy. One that stays below what is wanted says why in its log.",
                Query(REGISTERED, "{{instance}}"),
                Query(f"max({WANTED})", "wanted"),
                colors={"wanted": "gray"},
            ),
            graph(
                "Round trip to the edge",
                "Of each tunnel connection, with the place of the edge. If all are slow, the uplink is full.",
                Query(
                    f"{round_trip} * on ({PROCESS}, conn_index) group_left (location) {place}",
                    "{{location}}, {{instance}} #{{conn_index}}",
                ),
                unit="s",
            ),
            graph(
                "Tunnel connections lost or not made",
                "By cause. Few `lost`, each followed by a registration, are the edge's maintenance; `unauthorized`: "
                "see the token.",
                Query(
                    rise(series("tunnelgw_proxy_tunnel_connection_failures_total"), "instance, cause"),
                    "{{cause}}, {{instance}}",
                ),
                events=True,
            ),
        ],
    )


def workers() -> Row:
    cpu = series("tunnelgw_proxy_worker_cpu_seconds_total")
    memory = series("tunnelgw_proxy_worker_resident_memory_bytes")
    files = series("tunnelgw_proxy_worker_open_fds")
    swap = series("tunnelgw_proxy_worker_last_swap_seconds")
    return Row(
        title="Workers and configuration",
        panels=[
            graph(
                "CPU of workers",
                "Of one core each, which is all that a worker can use. Near the line requests wait: raise "
                "--workers, or run more proxies.",
                Query(f"rate({cpu}{WINDOW})", "{{instance}} #{{worker}}"),
                unit="percentunit",
                limit=0.9,
            ),
            graph(
                "Memory of workers",
                "Resident. A worker that is ended for want of memory is replaced; its requests are lost.",
                Query(memory, "{{instance}} #{{worker}}"),
                unit="bytes",
            ),
            graph(
                "Open files of workers",
                "Share of what the process may open, of the worker that has most. At 100 % no connection is "
                "accepted: raise LimitNOFILE, or lower maxConnections.",
                Query(
                    f"max by ({PROCESS}) ({files}) / on ({PROCESS}) {series('process_max_fds')}",
                    "{{instance}}",
                ),
                unit="percentunit",
                limit=0.8,
            ),
            graph(
                "Version of the configuration",
                "Of the document that each proxy has. Did trouble begin with a step? Each counts its own, so lines may "
                "lie apart, but they step together. One that does not cannot be reached by the controller, or refuses "
                "what it gets.",
                Query(VERSION, "{{instance}}"),
                unit="none",
            ),
            graph(
                "Time to take up a configuration",
                "From a document's arrival to its use by the slowest worker.",
                Query(f"max by (instance) ({swap})", "{{instance}}"),
                unit="s",
            ),
            graph(
                "What should not happen",
                "Workers that died, documents that were refused, and lines of the access log that nobody read in "
                "time. The log of the proxy says more of each.",
                Query(rise(series("tunnelgw_proxy_worker_restarts_total"), "instance"), "died: {{instance}}"),
                Query(rise(series("tunnelgw_proxy_config_refused_total"), "instance"), "refused: {{instance}}"),
                Query(rise(series("tunnelgw_proxy_access_log_dropped_total"), "instance"), "lost lines: {{instance}}"),
                events=True,
            ),
        ],
    )
