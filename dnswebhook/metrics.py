"""All metrics of the webhook, declared once, on a registry of their own; labels are closed sets and start at zero."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dnswebhook.apply import Outcome
from dnswebhook.canonical import KNOWN_TYPES, DropReason
from dnswebhook.wishes import RefusalReason, SkipReason

STORE_OPERATIONS = ("list", "create", "update", "delete", "probe", "login")
ROUTES = ("negotiate", "records", "apply", "adjust")

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.records_managed = Gauge(
            "external_dns_unifi_dns_records_managed",
            "Record sets in the last listing, by type.",
            ["record_type"],
            registry=registry,
        )
        self.operations = Counter(
            "dnswebhook_operations",
            "Writes that applied changes asked for, by kind and by what became of them.",
            ["operation", "outcome"],
            registry=registry,
        )
        self.dropped_endpoints = Counter(
            "dnswebhook_dropped_endpoints",
            "Endpoints and targets that adjusting left out, because the store cannot hold them.",
            ["reason"],
            registry=registry,
        )
        self.refused_changes = Counter(
            "dnswebhook_refused_changes", "Changes that could not be planned.", ["reason"], registry=registry
        )
        self.skipped_changes = Counter(
            "dnswebhook_skipped_changes", "Changes that were left alone on purpose.", ["reason"], registry=registry
        )
        self.delete_guard_trips = Counter(
            "dnswebhook_delete_guard_trips",
            "Applies refused because they would delete too large a share of all record sets.",
            registry=registry,
        )
        self.store_requests = Histogram(
            "dnswebhook_store_request_duration_seconds",
            "Calls to the store, by operation and outcome.",
            ["operation", "outcome"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.rate_limit_hits = Counter(
            "dnswebhook_store_rate_limit_hits", "Answers of the controller with status 429.", registry=registry
        )
        self.last_listing = Gauge(
            "dnswebhook_last_listing_timestamp_seconds", "When records were last listed, Unix time.", registry=registry
        )
        self.last_apply = Gauge(
            "dnswebhook_last_apply_timestamp_seconds",
            "When changes were last applied completely, Unix time.",
            registry=registry,
        )
        self.store_is_ready = Gauge(
            "dnswebhook_store_ready", "1 when the last probe of the store succeeded.", registry=registry
        )
        self.requests = Histogram(
            "dnswebhook_http_request_duration_seconds",
            "Webhook requests, by route and status code.",
            ["route", "status_code"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for record_type in KNOWN_TYPES:
            self.records_managed.labels(record_type)
        for operation in ("create", "update", "delete"):
            for outcome in Outcome:
                self.operations.labels(operation, outcome)
        for drop_reason in DropReason:
            self.dropped_endpoints.labels(drop_reason)
        for refusal_reason in RefusalReason:
            self.refused_changes.labels(refusal_reason)
        for skip_reason in SkipReason:
            self.skipped_changes.labels(skip_reason)
        for store_operation in STORE_OPERATIONS:
            self.store_requests.labels(store_operation, "ok")
        for route in ROUTES:
            self.requests.labels(route, "204" if route == "apply" else "200")
