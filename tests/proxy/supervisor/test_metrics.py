"""The metrics page: what it adds up, and that the manual names all of it."""

from __future__ import annotations

import re
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path

import requests
from prometheus_client.parser import text_string_to_metric_families

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Snapshot
from proxy.stats import DURATION_BOUNDS_S, REFUSAL_CAUSES, BackendStats, DoorStats, RouteStats, Stats
from proxy.supervisor.certificates import ApiCertificate
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.loaded import Loaded
from proxy.supervisor.metrics import ProxyCollector
from proxy.supervisor.slot import Slot
from proxy.supervisor.sockets import ListeningSockets
from tests.proxy.site import DEADLINE_S, Backend, Proxy, ask, fixed, forwarding, reserved_port
from tests.support.process import REPOSITORY

MANUAL = (REPOSITORY / "docs" / "proxy-metrics.md").read_text(encoding="utf-8")


def page(proxy: Proxy, accept: str = "text/plain") -> requests.Response:
    return requests.get(f"{proxy.url('config')}/metrics", headers={"Accept": accept}, timeout=DEADLINE_S)


def test_the_manual_names_every_metric_of_ours_with_its_type(tmp_path: Path) -> None:
    always = MANUAL.partition("## With a tunnel")[0]
    documented = dict(re.findall(r"^\| `(tunnelgw_proxy_\w+)` \| (\w+) \|", always, re.M))
    with Backend() as backend, reserved_port() as port, Proxy("--state-dir", str(tmp_path)) as proxy:
        proxy.use(forwarding(port, backend.address))
        ask(port)

        families = [
            family
            for family in text_string_to_metric_families(page(proxy).text)
            if family.name.startswith("tunnelgw_proxy_")
        ]

    seen = {f"{family.name}_total" if family.type == "counter" else family.name: family.type for family in families}
    assert seen == documented


def test_the_requests_of_all_workers_are_added_up() -> None:
    with Backend() as backend, reserved_port() as port, Proxy("--workers", "3") as proxy:
        proxy.use(forwarding(port, backend.address))
        for _ in range(30):
            ask(port)

        assert proxy.metric("tunnelgw_proxy_requests_total", route="routes[0]", status_class="2xx") == 30
        assert proxy.metric("tunnelgw_proxy_request_duration_seconds_count", route="routes[0]") == 30
        assert proxy.metric("tunnelgw_proxy_request_duration_seconds_bucket", route="routes[0]", le="+Inf") == 30
        assert proxy.metric("tunnelgw_proxy_response_body_bytes_total", route="routes[0]") == 30 * len("hello")
        assert proxy.metric("tunnelgw_proxy_backend_requests_total", backend=f"http://{backend.address}") == 30
        assert proxy.metric("tunnelgw_proxy_connections_accepted_total", door=f"127.0.0.1:{port}") == 30
        for worker in ("0", "1", "2"):
            assert proxy.metric("tunnelgw_proxy_worker_up", worker=worker) == 1


def test_requests_that_no_route_takes_are_counted_as_such() -> None:
    with reserved_port() as port, Proxy() as proxy:
        document = fixed(port)
        document["routes"][0]["hostnames"] = ["a.example"]
        proxy.use(document)
        ask(port)

        assert proxy.metric("tunnelgw_proxy_requests_total", route="(none)", status_class="4xx") == 1


def test_openmetrics_is_served_if_accepted() -> None:
    with Proxy() as proxy:
        answer = page(proxy, "application/openmetrics-text; version=1.0.0")

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.rstrip().endswith("# EOF")


def test_the_counters_of_doors_and_routes_start_at_zero() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port))
        ask(port)

        assert proxy.metric("tunnelgw_proxy_requests_total", route="routes[0]", status_class="5xx") == 0
        for cause in REFUSAL_CAUSES:
            assert proxy.metric("tunnelgw_proxy_connections_refused_total", cause=cause) == 0


def test_proxies_with_equal_documents_have_the_same_config_hash_whatever_the_version(tmp_path: Path) -> None:
    """Each replica counts versions by itself: one that was replaced begins at 1."""

    def hash_of(proxy: Proxy) -> float | None:
        return proxy.metric("tunnelgw_proxy_config_hash")

    with reserved_port() as port:
        document, other = fixed(port), {**fixed(port), "routes": []}
        with Proxy("--state-dir", str(tmp_path)) as old:
            assert hash_of(old) == 0
            old.use(other)
            of_other = hash_of(old)
            old.use(document)
            of_document = hash_of(old)

        assert len({0, of_other, of_document}) == 3
        with Proxy() as new:
            new.use(document)
            assert (new.metric("tunnelgw_proxy_config_version"), hash_of(new)) == (1, of_document)
        with Proxy("--state-dir", str(tmp_path)) as again:
            assert (again.metric("tunnelgw_proxy_config_version"), hash_of(again)) == (2, of_document)


def test_the_validity_of_certificates_is_a_metric_of_each_listener_that_has_some() -> None:
    from tests.proxy.supervisor.certificates import certificate

    name = "tunnelgw_proxy_certificate_not_after_timestamp_seconds"
    since = "tunnelgw_proxy_certificate_not_before_timestamp_seconds"
    sooner, later = datetime(2090, 1, 1, tzinfo=UTC), datetime(2091, 2, 3, 4, 5, 6, tzinfo=UTC)
    pairs = [certificate("a.example", not_after=later), certificate("b.example", not_after=sooner)]
    with reserved_port() as port, Proxy() as proxy:
        tls = {"name": "safe", "address": "127.0.0.1", "port": port, "protocol": "HTTPS"}
        proxy.use({"listeners": [{**tls, "tls": {"certificates": pairs}}]})
        assert proxy.metric(name, listener="safe") == sooner.timestamp()
        assert proxy.metric(since, listener="safe") == datetime(2000, 1, 1, tzinfo=UTC).timestamp()

        proxy.use({"listeners": [{**tls, "tls": {"certificates": pairs[:1]}}]})
        assert proxy.metric(name, listener="safe") == later.timestamp()

        proxy.use(fixed(port))
        assert proxy.metric(name) is None
        assert proxy.metric(since) is None


def test_a_refused_client_is_counted_by_its_cause() -> None:
    with reserved_port() as port, Proxy() as proxy:
        proxy.use(fixed(port))
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 400 ")

        assert proxy.metric("tunnelgw_proxy_connections_refused_total", cause="protocol") == 1


def test_the_counters_of_a_removed_route_never_decrease() -> None:
    with reserved_port() as port, Proxy("--workers", "2") as proxy:
        before, after = fixed(port), fixed(port)
        before["routes"][0]["name"], after["routes"][0]["name"] = "gone", "stays"

        def requests_of_gone() -> float | None:
            return proxy.metric("tunnelgw_proxy_requests_total", route="gone", status_class="2xx")

        proxy.use(before)
        for _ in range(8):
            ask(port)
        proxy.use(after)
        ask(port)
        # Each scrape makes the workers report: with the second one they drop the route.
        assert [requests_of_gone() for _ in range(4)] == [8] * 4

        proxy.use(before)
        ask(port)
        assert requests_of_gone() == 9


def test_each_number_of_the_workers_is_exported_under_its_own_name() -> None:
    route = RouteStats([1, 0, 2, 3, 4, 5], [6, *[0] * 13, 7], 8.5, in_flight=9, request_bytes=10, response_bytes=11)
    route.retries, route.calls = 12, {"14": 31}
    backend = BackendStats([32, 0, 33, 34, 35, 36], [37, *[0] * 13, 38], 39.5, {"2": 40}, requests=13, in_flight=14)
    backend.connections, backend.connections_opened, backend.ejections, backend.ejected = 15, 16, 17, 18
    backend.failures, backend.mirrored = {"reset": 19}, [41, 0, 42, 43, 44, 45]
    door = DoorStats(20, 21, {"tls": 22})
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    (slot,) = fleet.slots
    stats = Stats({"shop": route}, {"cart": backend}, {":80": door}, table_version=23, swaps=24, last_swap_s=25.5)
    stats.access_log_dropped = 26
    slot.totals.update(stats)
    slot.restarts, slot.taken, slot.jit, slot.usage = 27, 1, True, Snapshot(28.5, 29, 30)
    collector = ProxyCollector(fleet, Configuration(fleet, ListeningSockets(0), None), ApiCertificate())

    seen = {
        " ".join((sample.name.removeprefix("tunnelgw_proxy_"), *sample.labels.values())): sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.value
    }

    cumulative = {f"request_duration_seconds_bucket shop {bound}": 6.0 for bound in DURATION_BOUNDS_S}
    cumulative |= {f"backend_response_duration_seconds_bucket cart {bound}": 37.0 for bound in DURATION_BOUNDS_S}
    assert seen == cumulative | {
        "requests_total shop none": 1,
        "requests_total shop 2xx": 2,
        "requests_total shop 3xx": 3,
        "requests_total shop 4xx": 4,
        "requests_total shop 5xx": 5,
        "request_duration_seconds_bucket shop +Inf": 13,
        "request_duration_seconds_count shop": 13,
        "request_duration_seconds_sum shop": 8.5,
        "requests_in_flight shop": 9,
        "request_body_bytes_total shop": 10,
        "response_body_bytes_total shop": 11,
        "retries_total shop": 12,
        "grpc_calls_total shop 14": 31,
        "backend_responses_total cart none": 32,
        "backend_responses_total cart 2xx": 33,
        "backend_responses_total cart 3xx": 34,
        "backend_responses_total cart 4xx": 35,
        "backend_responses_total cart 5xx": 36,
        "backend_response_duration_seconds_bucket cart +Inf": 75,
        "backend_response_duration_seconds_count cart": 75,
        "backend_response_duration_seconds_sum cart": 39.5,
        "backend_grpc_calls_total cart 2": 40,
        "backend_mirrored_responses_total cart none": 41,
        "backend_mirrored_responses_total cart 2xx": 42,
        "backend_mirrored_responses_total cart 3xx": 43,
        "backend_mirrored_responses_total cart 4xx": 44,
        "backend_mirrored_responses_total cart 5xx": 45,
        "backend_requests_total cart": 13,
        "backend_requests_in_flight cart": 14,
        "backend_connections cart": 15,
        "backend_connections_opened_total cart": 16,
        "backend_ejections_total cart": 17,
        "backend_addresses_ejected cart": 18,
        "backend_failures_total cart reset": 19,
        "connections :80": 20,
        "connections_accepted_total :80": 21,
        "connections_refused_total :80 tls": 22,
        "worker_config_version 0": 23,
        "config_swaps_total": 24,
        "worker_last_swap_seconds 0": 25.5,
        "access_log_dropped_total": 26,
        "worker_restarts_total 0": 27,
        "worker_up 0": 1,
        "worker_jit 0": 1,
        "worker_cpu_seconds_total 0": 28.5,
        "worker_resident_memory_bytes 0": 29,
        "worker_open_fds 0": 30,
    }


def test_a_worker_that_ends_during_a_scrape_while_the_proxy_stops_does_not_count_as_missing() -> None:
    class Ending(Slot):
        """Its worker ends after `looks_left` looks at what it serves."""

        looks_left = 0

        @property
        def taken(self) -> int:
            self.looks_left -= 1
            return 1 if self.looks_left >= 0 else 0

        @taken.setter
        def taken(self, generation: int) -> None:
            """Follows from the looks."""

    fleet = Fleet([])
    slot = Ending(Begin(0, "error", "json", AccessLogSettings("off", 1.0)), threading.Condition())
    fleet.slots.append(slot)
    fleet.stop_is_near()
    collector = ProxyCollector(fleet, Configuration(fleet, ListeningSockets(0), None), ApiCertificate())

    for looks in range(5):
        slot.looks_left = looks
        seen = [
            sample.value
            for family in collector.collect()
            for sample in family.samples
            if sample.name == "tunnelgw_proxy_worker_up"
        ]
        assert 0 not in seen, looks


def test_a_scrape_that_is_overtaken_by_one_of_a_newer_document_shows_the_hash_of_its_own(tmp_path: Path) -> None:
    class Overtaken(ProxyCollector):
        """At the end of `looks_left` looks at the last hash, another scrape of a newer document begins and ends."""

        looks_left = 0
        last: tuple[Loaded, int] | None = None

        @property
        def _hashed(self) -> tuple[Loaded, int] | None:
            self.looks_left -= 1
            if self.looks_left == 0:
                configuration.load_file(newer)
                assert hash_seen(self) != wanted
            return self.last

        @_hashed.setter
        def _hashed(self, hashed: tuple[Loaded, int] | None) -> None:
            self.last = hashed

    def hash_seen(collector: ProxyCollector) -> float:
        families = {family.name: family for family in collector.collect()}
        (sample,) = families["tunnelgw_proxy_config_hash"].samples
        return sample.value

    older, newer = tmp_path / "older.json", tmp_path / "newer.json"
    older.write_text('{"routes": []}')
    newer.write_text('{"routes": [], "mergeSlashes": false}')
    fleet = Fleet([])
    configuration = Configuration(fleet, ListeningSockets(0), None)
    collector = Overtaken(fleet, configuration, ApiCertificate())
    configuration.load_file(older)
    wanted = hash_seen(collector)

    for is_known in (True, False):
        for looks in range(1, 5):
            configuration.load_file(older)
            collector.looks_left = 0
            assert hash_seen(collector) == wanted
            if not is_known:
                collector.last = None
            collector.looks_left = looks
            assert hash_seen(collector) == wanted, (is_known, looks)
