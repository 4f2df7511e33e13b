"""Events as users see them in a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client import Configuration

from tests.e2e.controller.fronts import Front
from tests.kube.processes import wait_until
from tests.tunnelgw.sources.cluster import Cluster
from tests.tunnelgw.sources.objects import make
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.sources.kubernetes.events import EventRecorder
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer

DEADLINE_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def controller_name() -> str:
    return "tunnelgw.dev/tunnel-gateway-controller"


@pytest.fixture
def recorder(cluster: Cluster, clock: Clock, controller_name: str) -> Iterator[EventRecorder]:
    server = ApiServer(lambda: load_configuration(str(cluster.kubeconfig)))
    stop = threading.Event()
    recorder = EventRecorder(server, controller_name, "pod-1", stop, clock)
    thread = threading.Thread(target=recorder.run)
    thread.start()
    yield recorder
    stop.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    server.close()


def gateway(cluster: Cluster, namespace: str, name: str = "gw") -> Object:
    spec = {"gatewayClassName": "tunnel", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
    created = cluster.create(Kind.GATEWAY, name, spec, namespace)
    return make(Kind.GATEWAY, name, spec, namespace=namespace, metadata=created["metadata"])


def events(cluster: Cluster, about: Object, count: int, series: int = 0) -> list[Any]:
    """The events about an object, once there are `count` of them, and one is a series of at least `series`.

    An API server has events of its own in the namespace default, such as ClusterIPNotAllocated when it starts slowly.
    """
    path = f"/apis/events.k8s.io/v1/namespaces/{about.metadata.namespace or 'default'}/events"
    found: list[Any] = []

    def is_there() -> bool:
        listed = cluster.admin.call("GET", path)["items"]
        found[:] = [each for each in listed if each["regarding"].get("uid") == about.metadata.uid]
        counts = [(each.get("series") or {}).get("count", 0) for each in found]
        return len(found) >= count and max(counts, default=0) >= series

    assert wait_until(is_there, DEADLINE_S), found
    return found


def test_an_event_refers_to_its_object(cluster: Cluster, namespace: str, recorder: EventRecorder) -> None:
    item = gateway(cluster, namespace)

    recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no proxy answers")

    [event] = events(cluster, item, 1)
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "DeliveryFailed", "no proxy answers")
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Gateway", "gw")
    assert event["reportingController"] == "tunnelgw.dev/tunnel-gateway-controller"


@pytest.mark.parametrize(
    ("controller_name", "shown"),
    [
        ("example.com/teams/edge", "example.com/teams-edge"),
        ("example.com/~blue_green~", "example.com/blue_green"),
        (f"example.com/{'a' * 62}-b", f"example.com/{'a' * 62}"),
        ("example.com/~", "example.com"),
    ],
)
def test_a_controller_name_that_events_cannot_have_is_made_valid(
    cluster: Cluster, namespace: str, recorder: EventRecorder, shown: str
) -> None:
    item = gateway(cluster, namespace)

    recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no proxy answers")

    [event] = events(cluster, item, 1)
    assert event["reportingController"] == shown


@pytest.mark.parametrize("name", ["a" * 253, f"{'a' * 199}-b", f"{'a' * 199}.b", f"{'a' * 198}--b"])
def test_an_object_with_a_long_name_gets_events(
    cluster: Cluster, namespace: str, recorder: EventRecorder, name: str
) -> None:
    item = gateway(cluster, namespace, name)

    recorder.warn(Kind.GATEWAY, item, "Seen", "by its whole name")

    [event] = events(cluster, item, 1)
    assert event["regarding"]["name"] == name


def test_a_repeated_event_becomes_a_series_and_a_different_one_an_event_of_its_own(
    cluster: Cluster, namespace: str, recorder: EventRecorder, clock: Clock
) -> None:
    item = gateway(cluster, namespace)
    recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no proxy answers")
    # A series can only begin once the recorder knows the path of the created event.
    assert wait_until(lambda: all(said.path for said in recorder._said.values()), DEADLINE_S)

    for _ in range(4):
        clock.now_s += 30.0
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no proxy answers")
    recorder.warn(Kind.GATEWAY, item, "Delivered", "all proxies have it")

    found = events(cluster, item, 2, series=5)
    assert sorted(event["reason"] for event in found) == ["Delivered", "DeliveryFailed"]


def test_events_about_a_cluster_scoped_object_are_in_the_default_namespace(
    cluster: Cluster, recorder: EventRecorder
) -> None:
    item = make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": "a.b/c"}, namespace="", metadata={"uid": "7"})
    another = make(Kind.GATEWAY_CLASS, "another", {"controllerName": "a.b/c"}, namespace="", metadata={"uid": "6"})
    recorder.warn(Kind.GATEWAY_CLASS, another, "Seen", "before it")
    assert events(cluster, another, 1)

    recorder.warn(Kind.GATEWAY_CLASS, item, "AuthenticationFailed", "ä" * 2000)

    [event] = events(cluster, item, 1)
    assert (event["reason"], event["note"]) == ("AuthenticationFailed", "ä" * 512)


def test_the_event_after_one_that_failed_is_sent(cluster: Cluster, namespace: str, recorder: EventRecorder) -> None:
    item = gateway(cluster, namespace)
    nowhere = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, namespace="nowhere", metadata={"uid": "8"})

    recorder.warn(Kind.GATEWAY, nowhere, "Lost", "nobody sees this")
    recorder.warn(Kind.GATEWAY, item, "Seen", "but this")

    assert [event["reason"] for event in events(cluster, item, 1)] == ["Seen"]


def test_an_event_that_found_the_queue_full_is_sent_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnelgw.sources.kubernetes.events._MOST_QUEUED", 10)  # each is a request
    configuration, stop = Configuration(), threading.Event()
    item = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, metadata={"uid": "9"})
    with Front() as front:
        configuration.host = front.url
        posted = front.answer(lambda asked: asked.method == "POST", 201)
        server = ApiServer(lambda: configuration)
        recorder = EventRecorder(server, "tests.example/controller", "pod-1", stop, lambda: 1000.0)
        taken = 0
        while recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", f"no answer from proxy {taken}"):
            taken += 1
        thread = threading.Thread(target=recorder.run)
        thread.start()
        try:
            assert wait_until(lambda: posted.strikes == taken, DEADLINE_S)

            assert recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", f"no answer from proxy {taken}")

            assert wait_until(lambda: posted.strikes == taken + 1, DEADLINE_S)
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            server.close()
        assert not thread.is_alive()


class Looks(threading.Event):
    """Counts how often it is checked."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def is_set(self) -> bool:
        self.count += 1
        return super().is_set()


def test_an_event_after_an_idle_time_is_sent(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("tunnelgw.sources.kubernetes.events._IDLE_S", 0.01)
    item = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, metadata={"uid": "9"})
    stop = Looks()
    with recording(clock, stop) as (front, recorder):
        posted = front.answer(lambda asked: asked.method == "POST", 201)
        assert wait_until(lambda: stop.count > 2, DEADLINE_S)

        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")

        assert wait_until(lambda: posted.strikes == 1, DEADLINE_S)


def test_the_least_recent_events_are_forgotten(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("tunnelgw.sources.kubernetes.events._MOST_REMEMBERED", 3)
    item = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, metadata={"uid": "9"})
    with recording(clock) as (front, recorder):
        posted = front.answer(lambda asked: asked.method == "POST", 201)
        for note in ("one", "two", "three", "three", "two", "one", "four"):
            recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", note)
        assert wait_until(lambda: posted.strikes == 4, DEADLINE_S)

        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "one")

        assert wait_until(lambda: posted.strikes == 5, DEADLINE_S)


@contextmanager
def recording(clock: Clock, stop: threading.Event | None = None) -> Iterator[tuple[Front, EventRecorder]]:
    configuration, stop = Configuration(), stop or threading.Event()
    with Front() as front:
        configuration.host = front.url
        server = ApiServer(lambda: configuration)
        recorder = EventRecorder(server, "tests.example/controller", "pod-1", stop, clock)
        thread = threading.Thread(target=recorder.run)
        thread.start()
        try:
            yield front, recorder
        finally:
            stop.set()
            thread.join(DEADLINE_S)
            server.close()
        assert not thread.is_alive()


def until_path(recorder: EventRecorder, count: int) -> None:
    assert wait_until(lambda: sum(bool(said.path) for said in list(recorder._said.values())) == count, DEADLINE_S)


def test_a_frequent_event_costs_one_request_a_minute_and_is_created_again_after_half_an_hour(clock: Clock) -> None:
    item = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, metadata={"uid": "9"})
    with recording(clock) as (front, recorder):
        posted = front.answer(lambda asked: asked.method == "POST", 201)
        patched = front.answer(lambda asked: asked.method == "PATCH", 200)
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")
        until_path(recorder, 1)
        for _ in range(5):
            recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "another")
        until_path(recorder, 2)
        assert (posted.strikes, patched.strikes) == (2, 0)

        for _ in range(2):
            clock.now_s += 60.0
            for _ in range(5):
                assert recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "what comes after them")
        until_path(recorder, 3)
        assert (posted.strikes, patched.strikes) == (3, 2)

        clock.now_s += 1800.0 - 120.0
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")

        assert wait_until(lambda: posted.strikes == 4, DEADLINE_S)
        assert patched.strikes == 2


@pytest.mark.parametrize("status_code", [404, 500])
def test_an_event_whose_series_could_not_be_updated_is_created_again(clock: Clock, status_code: int) -> None:
    """An event that has expired in the cluster cannot become a series."""
    item = make(Kind.GATEWAY, "gw", {"gatewayClassName": "c"}, metadata={"uid": "9"})
    with recording(clock) as (front, recorder):
        posted = front.answer(lambda asked: asked.method == "POST", 201)
        front.answer(lambda asked: asked.method == "PATCH", status_code)
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")
        until_path(recorder, 1)
        clock.now_s += 61.0
        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")
        until_path(recorder, 0)

        recorder.warn(Kind.GATEWAY, item, "DeliveryFailed", "no answer")

        assert wait_until(lambda: posted.strikes == 2, DEADLINE_S)
