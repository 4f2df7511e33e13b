"""The health and metrics app, without a port."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector
from werkzeug.test import Client

from daemonkit.ops import MAX_SCRAPES, OpsApp, process_metrics
from tests.support.lettinggo import lets_go


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    process_metrics(registry, "thing", "1.2.3")
    Counter("requests", "Requests", registry=registry)
    return registry


@pytest.fixture
def client(registry: CollectorRegistry) -> Client:
    return Client(OpsApp(lambda: None, lambda: None, registry))


@pytest.mark.parametrize(("path", "message"), [("/healthz", "alive"), ("/readyz", "ready")])
def test_a_healthy_daemon_answers_its_probes_with_200(client: Client, path: str, message: str) -> None:
    response = client.get(path)

    assert (response.status_code, response.mimetype) == (200, "application/json")
    assert response.json == {"status": "ok", "message": message}
    assert response.headers["Cache-Control"] == "no-store"


def test_a_probe_that_fails_is_answered_503_with_the_reason() -> None:
    client = Client(OpsApp(lambda: "a thread has ended", lambda: "store not reached yet"))

    assert client.get("/healthz").status_code == 503
    assert client.get("/healthz").json == {"status": "error", "message": "a thread has ended"}
    assert client.get("/readyz").json == {"status": "error", "message": "store not reached yet"}


def test_the_readiness_of_one_part_has_its_own_path() -> None:
    missing = {"direct": None, "tunnel": "the edge is away"}
    parts = {name: partial(missing.get, name) for name in missing}
    client = Client(OpsApp(lambda: None, lambda: missing["tunnel"], parts=parts))

    assert client.get("/readyz").status_code == client.get("/readyz/tunnel").status_code == 503
    assert client.get("/readyz/tunnel").json == {"status": "error", "message": "the edge is away"}
    assert client.get("/readyz/direct").json == {"status": "ok", "message": "ready"}
    assert client.get("/readyz/other").status_code == 404
    assert client.get("/").json == {"paths": ["/healthz", "/readyz", "/readyz/direct", "/readyz/tunnel"]}


def test_metrics_are_text_by_default_and_openmetrics_when_asked(client: Client) -> None:
    text = client.get("/metrics")
    openmetrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert text.mimetype == "text/plain"
    assert 'thing_build_info{version="1.2.3"} 1.0' in text.text
    assert "process_resident_memory_bytes" in text.text
    assert "python_gc_collections_total" in text.text
    assert "python_info" in text.text
    assert openmetrics.mimetype == "application/openmetrics-text"
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("accept", "mimetype"),
    [
        ('application/openmetrics-text; version="1.0.0"', "application/openmetrics-text"),
        ('text/plain; version="0.0.4"', "text/plain"),
        ("text/plain; version=latest", "text/plain"),
    ],
)
def test_a_scraper_may_quote_the_version_it_wants_and_gets_text_for_one_that_is_no_number(
    client: Client, accept: str, mimetype: str
) -> None:
    response = client.get("/metrics", headers={"Accept": accept})

    assert (response.status_code, response.mimetype) == (200, mimetype)


def test_an_app_without_registry_has_no_metrics() -> None:
    client = Client(OpsApp(lambda: None, lambda: None))

    assert client.get("/metrics").status_code == 404
    assert client.get("/").json == {"paths": ["/healthz", "/readyz"]}


def test_the_index_names_the_paths(client: Client) -> None:
    assert client.get("/").json == {"paths": ["/healthz", "/readyz", "/metrics"]}


def test_an_unknown_path_is_404_in_json(client: Client) -> None:
    response = client.get("/nothing")

    assert response.status_code == 404
    assert response.json == {
        "error": "not found",
        "message": "nothing at '/nothing', want one of /, /healthz, /readyz, /metrics",
    }


def test_another_method_is_405_with_allow(client: Client) -> None:
    response = client.post("/healthz")

    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"
    assert response.json == {"error": "method not allowed", "message": "method 'POST', want GET"}


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics"])
def test_head_is_answered_like_get_without_the_content(client: Client, path: str) -> None:
    head, get = client.head(path), client.get(path)

    assert head.status_code == 200
    assert head.data == b""
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


@pytest.mark.parametrize(
    ("path", "method"), [("/readyz", "GET"), ("/metrics", "GET"), ("/nothing", "GET"), ("/readyz", "POST")]
)
def test_a_request_leaves_nothing_for_the_garbage_collector(
    registry: CollectorRegistry, path: str, method: str
) -> None:
    assert lets_go(OpsApp(lambda: None, lambda: "not yet", registry), path, method)


def test_scrapes_beyond_a_few_at_once_are_refused_so_that_probes_find_a_thread() -> None:
    """Unauthenticated clients could otherwise keep all threads busy, and a daemon would be restarted as dead."""

    class Slow(Collector):
        def __init__(self) -> None:
            self.running = self.most_running = 0
            self.may_end = threading.Event()

        def collect(self) -> Iterator[Metric]:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            assert self.may_end.wait(20.0)
            self.running -= 1
            return iter(())

    registry, slow = CollectorRegistry(auto_describe=False), Slow()
    registry.register(slow)
    app = OpsApp(lambda: None, lambda: None, registry)
    # More clients than places: at least so many are refused while the others run or wait.
    refused = threading.Semaphore(0)

    def scrape() -> int:
        response = Client(app).get("/metrics")
        if response.status_code == 503:
            assert response.headers["Retry-After"] == "1"
            refused.release()
        return response.status_code

    with ThreadPoolExecutor(MAX_SCRAPES + 3) as clients:
        answers = [clients.submit(scrape) for _ in range(MAX_SCRAPES + 3)]
        try:
            assert all(refused.acquire(timeout=20.0) for _ in range(3))
            assert Client(app).get("/healthz").status_code == 200
        finally:
            slow.may_end.set()
        status_codes = sorted(answer.result(20.0) for answer in answers)

    assert status_codes == [200] * MAX_SCRAPES + [503] * 3
    assert slow.most_running == 1
    assert Client(app).get("/metrics").status_code == 200
