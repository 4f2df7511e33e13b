"""The proxy's metrics: the numbers of all workers, added up at each scrape.

Workers count in plain integers (`proxy.stats`); nothing is counted here. Counters survive the replacement of a worker.
Each worker has at most `proxy.stats.MAX_SERIES` series of a kind. Series of removed routes, backends and doors are
dropped after `departed.LINGER_S`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.stats import DURATION_BOUNDS_S, GRPC_SERVER_ERRORS, REFUSAL_CAUSES, Outcomes, Stats
from proxy.supervisor.certificates import ApiCertificate
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.loaded import Loaded
from proxy.supervisor.slot import Slot

if TYPE_CHECKING:
    from proxy.tls.validity import Validity

_P = "tunnelgw_proxy_"
_USUAL_CLASSES = range(2, 6)
"""Classes of status codes whose series exist from the start, so that the first 5xx shows as an increase."""
_USUAL_STATUSES = dict.fromkeys(("0", *map(str, GRPC_SERVER_ERRORS)), 0)
"""Likewise those of gRPC, from the first call of a route."""


class ProxyCollector(Collector):
    """Asks the workers for their numbers at each scrape."""

    def __init__(self, fleet: Fleet, configuration: Configuration, api_certificate: ApiCertificate) -> None:
        self._fleet = fleet
        self._configuration = configuration
        self._api_certificate = api_certificate
        self._hashed: tuple[Loaded, int] | None = None
        """The last hashed document, and its hash."""

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering the collector does not query the workers."""
        return ()

    def collect(self) -> Iterator[Metric]:
        self._fleet.refresh()
        total = self._fleet.total()
        yield from _routes(total)
        yield from _backends(total)
        yield from _doors(total)
        yield from self._configuration_metrics(total)
        yield from _workers(self._fleet.slots, is_stopping=self._fleet.is_stopping)

    def _configuration_metrics(self, total: Stats) -> Iterator[Metric]:
        loaded = self._configuration.loaded
        yield _gauge("config_version", "Version of the loaded document; 0: none", loaded.version if loaded else 0)
        if not self._fleet.is_stopping:  # from then on it gets no other document
            yield _gauge("config_hash", "Hash of the document's content; 0: no document", self._hash(loaded))
        yield _gauge("config_loaded_timestamp_seconds", "When it was loaded", loaded.loaded_at_s if loaded else 0)
        yield _gauge("config_routes", "Routes of the document", len(loaded.content.routes) if loaded else 0)
        yield _gauge("config_problems", "Ports of the document that cannot be bound", len(self._configuration.problems))
        is_kept = self._configuration.is_kept
        if is_kept is not None:
            yield _gauge(
                "config_kept", "1: the document is kept in the state directory; 0: it could not be written", is_kept
            )
        yield from _certificates(loaded.certificates if loaded else {}, self._api_certificate.validity)
        refused = CounterMetricFamily(_P + "config_refused", "Documents refused, and files that could not be read")
        refused.add_metric([], self._configuration.refused)
        yield refused
        swaps = CounterMetricFamily(_P + "config_swaps", "Routing tables that workers have put into use")
        swaps.add_metric([], total.swaps)
        yield swaps
        reason = "its reader did not keep up, or its disk was full"
        dropped = CounterMetricFamily(_P + "access_log_dropped", f"Lines of the access log that were lost: {reason}")
        dropped.add_metric([], total.access_log_dropped)
        yield dropped

    def _hash(self, loaded: Loaded | None) -> int:
        if loaded is None:
            return 0
        hashed = self._hashed  # read once: another scrape may replace it by that of a newer document
        if hashed is None or hashed[0] is not loaded:
            hashed = self._hashed = loaded, loaded.content.hash()
        return hashed[1]


def _certificates(listeners: "Mapping[str, Validity]", own: "Validity | None") -> Iterator[Metric]:
    ends = GaugeMetricFamily(
        _P + "certificate_not_after_timestamp_seconds",
        "When the first certificate of a listener expires",
        labels=["listener"],
    )
    begins = GaugeMetricFamily(
        _P + "certificate_not_before_timestamp_seconds",
        "Since when that certificate is valid",
        labels=["listener"],
    )
    for listener, validity in listeners.items():
        ends.add_metric([listener], validity.end_s)
        begins.add_metric([listener], validity.begin_s)
    yield from (ends, begins)
    own_end = GaugeMetricFamily(
        _P + "config_certificate_not_after_timestamp_seconds", "When the certificate of the config API expires"
    )
    own_begin = GaugeMetricFamily(_P + "config_certificate_not_before_timestamp_seconds", "Since when it is valid")
    if own is not None:
        own_end.add_metric([], own.end_s)
        own_begin.add_metric([], own.begin_s)
    yield from (own_end, own_begin)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_P + name, text, value=value)


def _routes(total: Stats) -> Iterator[Metric]:
    requests = CounterMetricFamily(_P + "requests", "Requests that have ended", labels=["route", "status_class"])
    durations = HistogramMetricFamily(
        _P + "request_duration_seconds", "From the request's head to the end of the response", labels=["route"]
    )
    in_flight = GaugeMetricFamily(_P + "requests_in_flight", "Requests in progress", labels=["route"])
    received = CounterMetricFamily(_P + "request_body_bytes", "Body bytes from clients", labels=["route"])
    sent = CounterMetricFamily(_P + "response_body_bytes", "Body bytes to clients", labels=["route"])
    retries = CounterMetricFamily(_P + "retries", "Repeated attempts to send a request to a backend", labels=["route"])
    calls = CounterMetricFamily(_P + "grpc_calls", "gRPC calls that have ended", labels=["route", "grpc_status"])
    for name, route in total.routes.items():
        _add_outcomes(requests, durations, calls, name, route)
        in_flight.add_metric([name], route.in_flight)
        received.add_metric([name], route.request_bytes)
        sent.add_metric([name], route.response_bytes)
        retries.add_metric([name], route.retries)
    yield from (requests, durations, in_flight, received, sent, retries, calls)


def _add_outcomes(
    responses: CounterMetricFamily,
    durations: HistogramMetricFamily,
    calls: CounterMetricFamily,
    name: str,
    outcomes: Outcomes,
) -> None:
    """Add the series of one route or backend, whose name is their first label."""
    _add_classes(responses, name, outcomes.responses)
    durations.add_metric([name], list(_buckets(outcomes.durations)), outcomes.duration_sum_s)
    if outcomes.calls:
        for status, count in (_USUAL_STATUSES | outcomes.calls).items():
            calls.add_metric([name, status], count)


def _add_classes(responses: CounterMetricFamily, name: str, counts: list[int]) -> None:
    for digit, count in enumerate(counts):
        if count or digit in _USUAL_CLASSES:
            responses.add_metric([name, f"{digit}xx" if digit else "none"], count)


def _buckets(counts: list[int]) -> Iterator[tuple[str, float]]:
    """Cumulative, as the text format requires."""
    below = 0
    for bound, count in zip((*map(str, DURATION_BOUNDS_S), "+Inf"), counts, strict=True):
        below += count
        yield bound, below


def _backends(total: Stats) -> Iterator[Metric]:
    label = ["backend"]
    requests = CounterMetricFamily(_P + "backend_requests", "Requests for a backend", labels=label)
    responses = CounterMetricFamily(
        _P + "backend_responses", "Requests routed to a backend that have ended", labels=["backend", "status_class"]
    )
    durations = HistogramMetricFamily(
        _P + "backend_response_duration_seconds", "From their heads to the end of the responses", labels=label
    )
    calls = CounterMetricFamily(
        _P + "backend_grpc_calls", "gRPC calls routed to a backend that have ended", labels=["backend", "grpc_status"]
    )
    mirrored = CounterMetricFamily(
        _P + "backend_mirrored_responses", "Mirrored copies, by answer", labels=["backend", "status_class"]
    )
    in_flight = GaugeMetricFamily(_P + "backend_requests_in_flight", "Requests at a backend", labels=label)
    connections = GaugeMetricFamily(_P + "backend_connections", "Open connections to a backend", labels=label)
    opened = CounterMetricFamily(_P + "backend_connections_opened", "Connections made to a backend", labels=label)
    failures = CounterMetricFamily(
        _P + "backend_failures", "Requests without a complete answer", labels=["backend", "reason"]
    )
    ejections = CounterMetricFamily(
        _P + "backend_ejections", "How often an address was ejected for failing", labels=label
    )
    ejected = GaugeMetricFamily(
        _P + "backend_addresses_ejected", "Addresses that get no requests now, added up over the workers", labels=label
    )
    for key, backend in total.backends.items():
        requests.add_metric([key], backend.requests)
        in_flight.add_metric([key], backend.in_flight)
        connections.add_metric([key], backend.connections)
        opened.add_metric([key], backend.connections_opened)
        _add_outcomes(responses, durations, calls, key, backend)
        _add_classes(mirrored, key, backend.mirrored)
        ejections.add_metric([key], backend.ejections)
        ejected.add_metric([key], backend.ejected)
        for reason, count in backend.failures.items():
            failures.add_metric([key, reason], count)
    yield from (requests, responses, durations, calls, mirrored, in_flight, connections, opened, failures)
    yield from (ejections, ejected)


def _doors(total: Stats) -> Iterator[Metric]:
    connections = GaugeMetricFamily(_P + "connections", "Open client connections", labels=["door"])
    accepted = CounterMetricFamily(_P + "connections_accepted", "Client connections accepted", labels=["door"])
    refused = CounterMetricFamily(
        _P + "connections_refused", "Connections and requests refused before reaching a route", labels=["door", "cause"]
    )
    for name, door in total.doors.items():
        connections.add_metric([name], door.connections)
        accepted.add_metric([name], door.accepted)
        for cause in REFUSAL_CAUSES:
            refused.add_metric([name, cause], door.refused.get(cause, 0))
    yield from (connections, accepted, refused)


def _workers(slots: list[Slot], *, is_stopping: bool) -> Iterator[Metric]:
    label = ["worker"]
    up = GaugeMetricFamily(_P + "worker_up", "1: the worker serves a document", labels=label)
    version = GaugeMetricFamily(_P + "worker_config_version", "Version of the document in use", labels=label)
    swap = GaugeMetricFamily(
        _P + "worker_last_swap_seconds", "For the last document, the time from its arrival to its use", labels=label
    )
    jit = GaugeMetricFamily(_P + "worker_jit", "1: the worker was started with the JIT, by --jit", labels=label)
    restarts = CounterMetricFamily(_P + "worker_restarts", "Workers started in place of one that died", labels=label)
    cpu = CounterMetricFamily(_P + "worker_cpu_seconds", "CPU time, that of dead workers included", labels=label)
    resident = GaugeMetricFamily(_P + "worker_resident_memory_bytes", "Resident memory", labels=label)
    descriptors = GaugeMetricFamily(_P + "worker_open_fds", "Open file descriptors", labels=label)
    for slot in slots:
        # Read once: a worker that ends between two reads while the proxy stops would seem to be missing.
        name, usage, is_serving = [str(slot.index)], slot.usage, slot.taken > 0
        if is_serving or not is_stopping:
            up.add_metric(name, int(is_serving))
        version.add_metric(name, slot.totals.table_version)
        swap.add_metric(name, slot.totals.last_swap_s)
        jit.add_metric(name, 1 if slot.jit else 0)
        restarts.add_metric(name, slot.restarts)
        cpu.add_metric(name, slot.cpu_s)
        resident.add_metric(name, usage.resident_bytes if usage else 0)
        descriptors.add_metric(name, usage.open_descriptors if usage else 0)
    yield from (up, version, swap, jit, restarts, cpu, resident, descriptors)
