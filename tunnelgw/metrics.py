"""The controller's metrics. Labels are closed sets, except for things that come and go, whose series go with them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tunnelgw.model.kinds import STATUS_KINDS, Kind

PASS_OUTCOMES = ("ok", "failed")
DELIVERY_OUTCOMES = ("held", "failed", "refused")
STATUS_OUTCOMES = ("written", "unchanged", "conflict", "gone", "invalid", "failed")
PROVIDER_CALLS = ("list accounts", "read tunnel", "read configuration", "write configuration")
_PASS_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CALL_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Series that are known in advance begin at zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.passes = Histogram(
            "tunnelgw_reconcile_duration_seconds",
            "Time from taking changes to handing out the results",
            ["outcome"],
            registry=registry,
            buckets=_PASS_BUCKETS_S,
        )
        self.pending_statuses = Gauge(
            "tunnelgw_status_queue_depth", "Statuses that wait to be written", registry=registry
        )
        self.statuses = Counter(
            "tunnelgw_status_writes_total", "Statuses by outcome", ["kind", "outcome"], registry=registry
        )
        self.watch_restarts = Counter(
            "tunnelgw_watch_restarts_total", "Watches that began again after a failure", ["kind"], registry=registry
        )
        self.objects = Gauge(
            "tunnelgw_objects",
            "Objects by kind, and whether they can be read",
            ["kind", "validity"],
            registry=registry,
        )
        self.deliveries = Counter(
            "tunnelgw_deliveries_total",
            "Results of deliveries that differ from the one before",
            ["target", "outcome"],
            registry=registry,
        )
        self.delivered = Gauge("tunnelgw_delivered", "1: a target holds what it should", ["target"], registry=registry)
        self.delivered_at = Gauge(
            "tunnelgw_delivered_timestamp_seconds",
            "When a target last said it holds what it should",
            ["target"],
            registry=registry,
        )
        self.document_bytes = Gauge(
            "tunnelgw_document_bytes", "Size of a data plane's document", ["data_plane"], registry=registry
        )
        self.provider_calls = Histogram(
            "tunnelgw_provider_call_duration_seconds",
            "Calls to the tunnel provider's API",
            ["call", "outcome"],
            registry=registry,
            buckets=_CALL_BUCKETS_S,
        )
        self.foreign_rules = Gauge(
            "tunnelgw_ingress_foreign_rules",
            "Rules of others in a tunnel's ingress document",
            ["tunnel"],
            registry=registry,
        )
        self.foreign_edits = Counter(
            "tunnelgw_ingress_foreign_edits_total",
            "Versions of an ingress document that others made",
            ["tunnel"],
            registry=registry,
        )
        self.is_leader = Gauge("tunnelgw_is_leader", "1: this controller writes", registry=registry)
        self.last_pass = Gauge(
            "tunnelgw_last_reconcile_timestamp_seconds", "When a reconcile last succeeded", registry=registry
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        for outcome in PASS_OUTCOMES:
            self.passes.labels(outcome)
        for kind in Kind:
            self.watch_restarts.labels(kind)
            for validity in ("read", "unreadable"):
                self.objects.labels(kind, validity)
        for kind in STATUS_KINDS:
            for outcome in STATUS_OUTCOMES:
                self.statuses.labels(kind, outcome)
        for call in PROVIDER_CALLS:
            self.provider_calls.labels(call, "ok")

    def begin_target(self, target: str) -> None:
        """Begin a target's series at zero, so that its first failure is seen as an increase."""
        for outcome in DELIVERY_OUTCOMES:
            self.deliveries.labels(target, outcome)

    def forget_target(self, target: str) -> None:
        for outcome in DELIVERY_OUTCOMES:
            self.deliveries.remove(target, outcome)
        self.delivered.remove(target)
        self.delivered_at.remove(target)

    def forget_tunnel(self, tunnel: str) -> None:
        self.foreign_rules.remove(tunnel)
        self.foreign_edits.remove(tunnel)
