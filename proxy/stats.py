"""What a worker counts: plain numbers, since a metric library would cost microseconds on every request.

Created and changed by the loop's thread. Names come from documents, so there are as many series as the document has
routes, backends and doors, but at most MAX_SERIES of each; later ones are counted under OTHER. The supervisor gets the
counts from time to time, adds them up over its workers, and exports them as metrics.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

MAX_SERIES: Final = 2000
OTHER: Final = "(other)"
NO_ROUTE: Final = "(none)"
"""Requests that no route took."""
NO_STATUS: Final = "none"
"""gRPC calls that broke off, or whose client left, before their status was known."""
MAX_GRPC_STATUS: Final = 16
"""The highest that gRPC defines; others are counted under OTHER."""
GRPC_SERVER_ERRORS: Final = (2, 4, 12, 13, 14, 15)
"""UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS: what is 5xx of other requests.
OpenTelemetry's conventions for gRPC take the same for errors of the server."""

RefusalCause: TypeAlias = Literal[
    "limit", "descriptors", "tls", "protocol", "header_timeout", "misdirected", "proxy_protocol"
]
"""Why a door turns a client, or a request, away."""
REFUSAL_CAUSES: Final = get_args(RefusalCause)
DURATION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


S = TypeVar("S")


class Outcomes(msgspec.Struct, gc=False):
    """How requests have ended, as their clients saw it."""

    responses: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """By first digit of the status code, above 5 as 5; index 0 counts exchanges that ended without a response."""
    durations: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_BOUNDS_S) + 1))
    """Per bucket, not cumulative; the last has no upper bound."""
    duration_sum_s: float = 0.0
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    """gRPC calls by `grpc-status`, and NO_STATUS and OTHER."""

    def count_call(self, grpc_status: int | None) -> None:
        """Count a gRPC call that ends; None if its status is not known."""
        label = NO_STATUS
        if grpc_status is not None:
            label = str(grpc_status) if grpc_status <= MAX_GRPC_STATUS else OTHER
        self.calls[label] = self.calls.get(label, 0) + 1


class RouteStats(Outcomes, gc=False):
    """The requests of one route."""

    in_flight: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    retries: int = 0
    drops: int = 0
    """`Stats.drops` when the series began."""


class BackendStats(Outcomes, gc=False):
    """One backend. Outcomes are those of the requests that were routed to it, each counted once; `requests` counts
    whatever was sent to it: attempts, mirrored copies, and questions for authorization."""

    requests: int = 0
    in_flight: int = 0
    connections: int = 0
    connections_opened: int = 0
    ejections: int = 0
    ejected: int = 0
    """Addresses that currently get no requests."""
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    """By `Reason`, and "timeout" and "mirror_behind"."""
    mirrored: list[int] = msgspec.field(default_factory=list)
    """Mirrored copies, by first digit like `responses`; index 0 counts those that ended without an answer. Empty before
    the first."""
    drops: int = 0
    """`Stats.drops` when the series began."""

    def count_mirrored(self, status_code: int) -> None:
        """Count a mirrored copy that its backend has answered, or with 0 one that has ended without that."""
        if not self.mirrored:
            self.mirrored = [0] * len(self.responses)
        self.mirrored[min(status_code // 100, len(self.mirrored) - 1)] += 1

    def count_failure(self, reason: str) -> None:
        self.failures[reason] = self.failures.get(reason, 0) + 1


class DoorStats(msgspec.Struct, gc=False):
    """The client connections of one door."""

    connections: int = 0
    accepted: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """By `RefusalCause`."""
    drops: int = 0
    """`Stats.drops` when the series began."""


class EdgeStats(msgspec.Struct, gc=False):
    """The successive connections of the tunnel that have one index."""

    is_up: int = 0
    """1 if the connection is registered."""
    in_flight: int = 0
    requests: int = 0
    sent_bytes: int = 0
    """Acknowledged by the edge, TLS included."""
    received_bytes: int = 0
    round_trip_s: float = 0.0
    """The last PING's."""


class Stats(msgspec.Struct):
    """All numbers of one worker."""

    routes: dict[str, RouteStats] = msgspec.field(default_factory=dict)
    backends: dict[str, BackendStats] = msgspec.field(default_factory=dict)
    doors: dict[str, DoorStats] = msgspec.field(default_factory=dict)
    edges: dict[int, EdgeStats] = msgspec.field(default_factory=dict)
    """By index of the tunnel's connection."""
    table_version: int = 0
    """The version of the document that requests are routed by; 0 if there is none."""
    swaps: int = 0
    last_swap_s: float = 0.0
    """From the document's arrival to its use."""
    access_log_dropped: int = 0
    drops: int = 0
    """How often series were dropped. One that begins again carries another number, so that it is not taken for the one
    before it."""

    def route(self, name: str, limit: int | None = MAX_SERIES) -> RouteStats:
        return _series(self.routes, name, partial(RouteStats, drops=self.drops), limit)

    def backend(self, key: str, limit: int | None = MAX_SERIES) -> BackendStats:
        return _series(self.backends, key, partial(BackendStats, drops=self.drops), limit)

    def door(self, name: str, limit: int | None = MAX_SERIES) -> DoorStats:
        return _series(self.doors, name, partial(DoorStats, drops=self.drops), limit)

    def edge(self, conn_index: int) -> EdgeStats:
        return self.edges.setdefault(conn_index, EdgeStats())


def _series(series: dict[str, S], name: str, make: Callable[[], S], limit: int | None) -> S:
    found = series.get(name)
    if found is None:
        if limit is not None and len(series) >= limit:
            name = OTHER
        found = series.setdefault(name, make())
    return found
