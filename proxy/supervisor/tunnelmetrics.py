"""Metrics of the tunnel by connection index: the supervisor's state, and the workers' counts."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.stats import Stats
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.places import Place
from proxy.supervisor.tunnel import Tunnel
from proxy.tunnel.failures import FailureCause

_P = "tunnelgw_proxy_tunnel_"
_LABEL = ["conn_index"]


class TunnelCollector(Collector):
    def __init__(self, fleet: Fleet, tunnel: Tunnel) -> None:
        self._fleet = fleet
        self._tunnel = tunnel

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering the collector does not query the workers."""
        return ()

    def collect(self) -> Iterator[Metric]:
        places = self._tunnel.places
        if not self._fleet.is_stopping:
            yield _gauge("connections_wanted", "Wanted connections to the edge", len(places))
            yield _gauge("connections_registered", "Connections registered at the edge", self._tunnel.registered)
        yield _gauge(
            "remote_config_version",
            "Version of the configuration that the provider has pushed, not used for routing; -1: none",
            self._tunnel.remote_version,
        )
        yield from _places(places)
        # The proxy's own collector has just queried the workers.
        yield from _traffic(self._fleet.total())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_P + name, text, value=value)


def _places(places: list[Place]) -> Iterator[Metric]:
    up = GaugeMetricFamily(_P + "connection_up", "1: the connection is registered", labels=_LABEL)
    info = GaugeMetricFamily(
        _P + "connection_info", "Where the connection is registered", labels=[*_LABEL, "location", "edge", "worker"]
    )
    registrations = CounterMetricFamily(
        _P + "registrations", "Registrations that succeeded; all but the first are reconnects", labels=_LABEL
    )
    failures = CounterMetricFamily(
        _P + "connection_failures", "Attempts that failed and connections that were lost", labels=[*_LABEL, "cause"]
    )
    for place in places:
        label = [str(place.index)]
        registration = place.registration  # read once
        up.add_metric(label, int(registration is not None))
        if registration is not None:
            info.add_metric([*label, registration.location, registration.edge, str(registration.worker)], 1)
        registrations.add_metric(label, place.registrations)
        for cause in FailureCause:  # all of them, so that the first of each shows as an increase
            failures.add_metric([*label, cause], place.failures[cause])
    yield from (up, info, registrations, failures)


def _traffic(total: Stats) -> Iterator[Metric]:
    requests = CounterMetricFamily(_P + "requests", "Requests that came through the tunnel", labels=_LABEL)
    in_flight = GaugeMetricFamily(_P + "requests_in_flight", "Requests in progress in the tunnel", labels=_LABEL)
    sent = CounterMetricFamily(_P + "sent_bytes", "Bytes to the edge that it has acknowledged", labels=_LABEL)
    received = CounterMetricFamily(_P + "received_bytes", "Bytes from the edge", labels=_LABEL)
    round_trip = GaugeMetricFamily(_P + "round_trip_seconds", "Time from the last PING to its answer", labels=_LABEL)
    for conn_index, edge in sorted(total.edges.items()):
        label = [str(conn_index)]
        requests.add_metric(label, edge.requests)
        in_flight.add_metric(label, edge.in_flight)
        sent.add_metric(label, edge.sent_bytes)
        received.add_metric(label, edge.received_bytes)
        round_trip.add_metric(label, edge.round_trip_s)
    yield from (requests, in_flight, sent, received, round_trip)
