"""Statuses and the auth Secret, written with the rights of the chart's roles."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import Configuration

from daemonkit.secret import Secret
from tests.e2e.controller.fronts import Front
from tests.tunnelgw.sources.cluster import HOME, Cluster
from tests.tunnelgw.sources.objects import make, route
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.sources.kubernetes.decode import ObjectDecoder
from tunnelgw.sources.kubernetes.failures import Refused
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.secrets import UnusableSecret, create, read_token
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.statuses import StatusWriter
from tunnelgw.sources.writing import Outcome

OURS = "tunnelgw.dev/tunnel-gateway-controller"
ROUTE = {"parentRefs": [{"name": "gw"}], "hostnames": ["a.example.org"]}
EMPTY = {Kind.GRPC_ROUTE: b'{"parents":[]}', Kind.BACKEND_TLS_POLICY: b'{"ancestors":[]}'}


@pytest.fixture
def server(cluster: Cluster) -> Iterator[ApiServer]:
    server = ApiServer(lambda: load_configuration(str(cluster.kubeconfig)))
    yield server
    server.close()


def status(message: str) -> bytes:
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    return json.dumps(
        {"parents": [{"parentRef": {"name": "gw"}, "controllerName": OURS, "conditions": [condition]}]}
    ).encode()


def read(cluster: Cluster, kind: Kind, key: Key) -> Object:
    """As a watch would bring it: the role does not allow to read objects one by one."""
    item = ObjectDecoder(RESOURCES[kind]).object(json.dumps(stored(cluster, kind, key)).encode())
    assert isinstance(item, Object)
    return item


def stored(cluster: Cluster, kind: Kind, key: Key) -> Any:
    return cluster.admin.call("GET", f"{cluster.path(kind, key.namespace)}/{key.name}")


def test_a_status_is_replaced_as_a_whole_and_nothing_else_changes(
    cluster: Cluster, namespace: str, server: ApiServer
) -> None:
    key = Key(namespace, "web")
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace, metadata={"labels": {"kept": "yes"}})
    writer = StatusWriter(server)

    for message in ("first", "second"):
        item = read(cluster, Kind.HTTP_ROUTE, key)
        assert writer.write(Kind.HTTP_ROUTE, item, status(message)).outcome is Outcome.WRITTEN

    document = stored(cluster, Kind.HTTP_ROUTE, key)
    assert [each["conditions"][0]["message"] for each in document["status"]["parents"]] == ["second"]
    assert document["spec"]["hostnames"] == ["a.example.org"]
    assert document["metadata"]["labels"] == {"kept": "yes"}
    assert document["metadata"]["generation"] == 1


def test_the_field_manager_of_a_status_is_tunnelgw(cluster: Cluster, namespace: str, server: ApiServer) -> None:
    """Users see it in conflicts over a field, and GitOps tools ignore fields by it."""
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    item = read(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))
    assert StatusWriter(server).write(Kind.HTTP_ROUTE, item, status("ours")).outcome is Outcome.WRITTEN

    managers = stored(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))["metadata"]["managedFields"]

    assert [each["manager"] for each in managers if each.get("subresource") == "status"] == ["tunnelgw"]


def test_a_status_for_an_older_resource_version_is_a_conflict(
    cluster: Cluster, namespace: str, server: ApiServer
) -> None:
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    item = read(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))
    cluster.patch(Kind.HTTP_ROUTE, "web", namespace, {"spec": {"hostnames": ["b.example.org"]}})

    written = StatusWriter(server).write(Kind.HTTP_ROUTE, item, status("late"))

    assert written.outcome is Outcome.CONFLICT
    assert not stored(cluster, Kind.HTTP_ROUTE, Key(namespace, "web")).get("status")


def test_a_status_is_never_written_to_another_object_of_the_same_name(
    cluster: Cluster, namespace: str, server: ApiServer
) -> None:
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    item = read(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))
    cluster.delete(Kind.HTTP_ROUTE, "web", namespace)
    gone = StatusWriter(server).write(Kind.HTTP_ROUTE, item, status("late")).outcome
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)

    replaced = StatusWriter(server).write(Kind.HTTP_ROUTE, item, status("late")).outcome

    assert (gone, replaced) == (Outcome.GONE, Outcome.CONFLICT)


def test_a_status_that_the_crd_refuses_is_invalid(cluster: Cluster, namespace: str, server: ApiServer) -> None:
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    item = read(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))

    written = StatusWriter(server).write(Kind.HTTP_ROUTE, item, b'{"parents":[{"controllerName":""}]}')

    assert written.outcome is Outcome.INVALID
    assert "controllerName" in written.error


def test_writing_the_status_of_a_kind_that_is_not_served_fails_without_taking_the_object_for_gone(
    cluster: Cluster,
) -> None:
    server = ApiServer(lambda: load_configuration(str(cluster.environment.kubeconfig)))
    backend = make(Kind.BACKEND, "nas", {"host": "192.0.2.9", "port": 80})

    written = StatusWriter(server).write(Kind.BACKEND, backend, b"{}")
    server.close()

    assert (written.outcome, written.is_general) == (Outcome.FAILED, False)
    assert written.error.startswith("404")


def test_an_unreachable_server_is_an_outcome_not_an_exception(
    cluster: Cluster, namespace: str, server: ApiServer
) -> None:
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    item = read(cluster, Kind.HTTP_ROUTE, Key(namespace, "web"))
    server.interrupt()

    written = StatusWriter(server).write(Kind.HTTP_ROUTE, item, status("lost"))

    assert (written.outcome, written.is_general) == (Outcome.FAILED, True)


@pytest.mark.parametrize(
    ("status_code", "is_general"), [(401, True), (429, True), (503, True), (403, False), (500, False)]
)
def test_a_failure_tells_whether_it_concerns_all_objects(status_code: int, is_general: bool) -> None:
    configuration = Configuration()
    with Front() as front:
        configuration.host = front.url
        front.answer(lambda asked: asked.method == "PUT", status_code)
        server = ApiServer(lambda: configuration)

        written = StatusWriter(server).write(Kind.HTTP_ROUTE, route("web"), status("lost"))

        assert (written.outcome, written.is_general) == (Outcome.FAILED, is_general)
        server.close()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (Kind.GATEWAY_CLASS, {"controllerName": OURS}),
        (
            Kind.GATEWAY,
            {"gatewayClassName": "tunnel", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        ),
        (
            Kind.LISTENER_SET,
            {"parentRef": {"name": "gw"}, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        ),
        (Kind.GRPC_ROUTE, ROUTE),
        (
            Kind.BACKEND_TLS_POLICY,
            {
                "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
                "validation": {"hostname": "web.example.org", "wellKnownCACertificates": "System"},
            },
        ),
    ],
)
def test_the_role_allows_writing_the_status_of_each_kind_that_has_one(
    cluster: Cluster, namespace: str, server: ApiServer, kind: Kind, spec: dict[str, Any]
) -> None:
    name = f"any-{uuid.uuid4().hex[:8]}"
    key = Key(namespace if RESOURCES[kind].is_namespaced else "", name)
    cluster.create(kind, name, spec, key.namespace)

    written = StatusWriter(server).write(kind, read(cluster, kind, key), EMPTY.get(kind, b"{}"))

    assert written.outcome is Outcome.WRITTEN, written.error


def test_the_auth_secret_is_created_once_and_never_changed(cluster: Cluster, server: ApiServer) -> None:
    key = Key(HOME, f"auth-{uuid.uuid4().hex[:8]}")

    absent = read_token(server, key)
    first = create(server, key, Secret("one"))
    second = create(server, key, Secret("two"))

    assert (absent, first, second) == (None, True, False)
    assert read_token(server, key) == Secret("one")
    with pytest.raises(Refused) as refused:
        server.request("DELETE", f"/api/v1/namespaces/{HOME}/secrets/{key.name}")
    assert refused.value.status_code == 403


def test_a_secret_is_created_only_in_the_controllers_namespace(
    cluster: Cluster, namespace: str, server: ApiServer
) -> None:
    with pytest.raises(Refused, match="forbidden"):
        create(server, Key(namespace, "auth"), Secret("one"))


@pytest.mark.parametrize(
    "data", [None, {"other": "b25l"}, {"auth-token": ""}, {"auth-token": "IAo="}, {"auth-token": "YQpi"}]
)
def test_the_error_about_a_secret_without_a_usable_value_names_the_key(
    cluster: Cluster, server: ApiServer, data: dict[str, str] | None
) -> None:
    name = f"broken-{uuid.uuid4().hex[:8]}"
    cluster.create(Kind.SECRET, name, namespace=HOME, **({"data": data} if data else {}))

    with pytest.raises(UnusableSecret) as unusable:
        read_token(server, Key(HOME, name))

    wanted = "the Secret exists but has no usable value at the expected key"
    assert str(unusable.value) == f"{HOME}/{name} key auth-token: {wanted}"


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("86400", 60.0), ("soon", 0.0), ("", 0.0)])
def test_retry_after_of_an_overloaded_server_is_passed_on(text: str, seconds: float) -> None:
    configuration = Configuration()
    with Front() as front:
        configuration.host = front.url
        front.answer(lambda asked: asked.method == "PUT", 429, Retry_After=text)
        with contextlib.closing(ApiServer(lambda: configuration)) as server:
            written = StatusWriter(server).write(Kind.HTTP_ROUTE, route("web"), status("lost"))

    assert (written.is_general, written.retry_after_s) == (True, seconds)
