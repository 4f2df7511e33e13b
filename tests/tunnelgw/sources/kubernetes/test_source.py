"""The source against a real API server, with no rights but those of the chart's roles."""

import contextlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.kube.processes import wait_until
from tests.tunnelgw.sources.cluster import HELM, LATE, READY_S, Cluster
from tests.tunnelgw.sources.kubernetes.relay import Relay
from tests.tunnelgw.sources.kubernetes.running import DEADLINE_S, running
from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.kinds import RESOURCES, STATUS_KINDS, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import Backend
from tunnelgw.model.routes import HttpRoute
from tunnelgw.model.snapshot import Entry, Index
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.watch import Timing
from tunnelgw.sources.references import WITH_DATA
from tunnelgw.sources.store import Change

ROUTE = {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}

CONDITION = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def test_every_kind_is_listed_with_the_rights_of_the_chart(cluster: Cluster, namespace: str) -> None:
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)

    with running(cluster.kubeconfig) as world:
        world.until_here(Kind.HTTP_ROUTE, Key(namespace, "web"))

        assert world.change is not None
        assert Key("", namespace) in world.change.snapshot.all(Kind.NAMESPACE)
        assert Key("", "gateways.gateway.networking.k8s.io") in world.change.snapshot.all(
            Kind.CUSTOM_RESOURCE_DEFINITION
        )
        assert Restart.FORBIDDEN not in {cause for _, cause in world.restarts}


def test_an_object_is_followed_from_creation_to_deletion(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "web")
    with running(cluster.kubeconfig) as world:
        world.until(lambda change: True, "the first listing")

        cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
        created = world.until_here(Kind.HTTP_ROUTE, key)
        cluster.patch(Kind.HTTP_ROUTE, "web", namespace, {"spec": {"hostnames": ["a.example.org"]}})

        def has_hostname(item: object) -> bool:
            return isinstance(item, HttpRoute) and item.spec.hostnames == ("a.example.org",)

        world.until(lambda change: has_hostname(change.snapshot.all(Kind.HTTP_ROUTE).get(key)), "the hostname")
        assert (created.metadata.generation, created.metadata.uid != "") == (1, True)
        assert Entry(Index.ROUTES_BY_PARENT, Key(namespace, "gw")) in world.changed

        cluster.delete(Kind.HTTP_ROUTE, "web", namespace)
        world.until_gone(Kind.HTTP_ROUTE, key)


def test_the_status_of_another_controller_changes_the_route_only(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "web")
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    with running(cluster.kubeconfig) as world:
        world.until_here(Kind.HTTP_ROUTE, key)
        world.changed.clear()
        parent = {"parentRef": {"name": "gw"}, "controllerName": "example.net/other", "conditions": [CONDITION]}

        cluster.admin.call(
            "PATCH",
            cluster.path(Kind.HTTP_ROUTE, namespace) + "/web/status",
            {"status": {"parents": [parent]}},
            "application/merge-patch+json",
        )

        change = world.until(lambda _: Entry(Kind.HTTP_ROUTE, key) in world.touched, "the status")
        assert Entry(Kind.HTTP_ROUTE, key) not in world.changed
        route = change.snapshot.all(Kind.HTTP_ROUTE)[key]
        assert isinstance(route, HttpRoute)
        assert json.loads(bytes(route.status))["parents"][0]["controllerName"] == "example.net/other"


def test_a_list_of_many_pages_is_complete(cluster: Cluster, namespace: str) -> None:
    names = {f"web-{number}" for number in range(12)}
    for name in names:
        cluster.create(Kind.HTTP_ROUTE, name, ROUTE, namespace)

    with running(cluster.kubeconfig, Timing(page_size=5, page_size_with_data=2)) as world:
        change = world.until(lambda change: True, "the first listing")

        keys = change.snapshot.all(Kind.HTTP_ROUTE)
        assert {key.name for key in keys if key.namespace == namespace} == names


def test_long_lists_are_transferred_compressed(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """On a slow line, the server cuts a list that takes longer than a minute, so that it would never be complete."""
    for name in ("one", "two", "three"):
        cluster.create(Kind.HTTP_ROUTE, name, ROUTE, namespace, metadata={"annotations": {"long": "text " * 20_000}})
    url = urlsplit(cluster.environment.server)
    with Relay((str(url.hostname), url.port or 0)) as relay:
        through = cluster.through(relay.address, tmp_path)
        with contextlib.closing(ApiServer(lambda: load_configuration(str(through)))) as server:
            body = server.request("GET", cluster.path(Kind.HTTP_ROUTE, namespace))

    assert len(body) > 300_000
    assert relay.received < 100_000


def test_a_kind_is_followed_while_its_crd_is_installed(
    cluster: Cluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tunnelgw")

    def told() -> list[str]:
        said = "kind is not installed, waiting for its CRD"
        return [record.levelname for record in list(caplog.records) if record.getMessage() == said]

    with running(cluster.kubeconfig) as world:
        world.until(lambda change: True, "the first listing, of all kinds but Backend")
        assert wait_until(lambda: told() == ["INFO"], DEADLINE_S)

        with cluster.late_crd():
            cluster.create(Kind.BACKEND, "nas", {"host": "nas.example.org", "port": 80}, namespace)
            world.until_here(Kind.BACKEND, Key(namespace, "nas"))

        world.until_gone(Kind.BACKEND, Key(namespace, "nas"))
        assert wait_until(lambda: told() == ["INFO", "WARNING"], DEADLINE_S), "the removal of a CRD is a warning"


def test_fields_of_a_newer_crd_are_read(cluster: Cluster, namespace: str) -> None:
    """A watch uses the definition from when it began, and leaves out fields that were added later."""
    older = yaml.safe_load((HELM / "crds" / LATE).read_text())
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["protocol"], spec["properties"]["tls"], spec["x-kubernetes-validations"]
    key = Key(namespace, "nas")

    def patched() -> bool:
        """The server may still use the older definition for a moment."""
        done = cluster.patch(Kind.BACKEND, "nas", namespace, {"spec": {"protocol": "h2c"}})
        return "protocol" in done["spec"]

    def has_protocol(change: Change) -> bool:
        item = change.snapshot.all(Kind.BACKEND).get(key)
        return isinstance(item, Backend) and item.spec.protocol == "h2c"

    with cluster.late_crd(older), running(cluster.kubeconfig) as world:
        cluster.create(Kind.BACKEND, "nas", {"host": "nas.example.org", "port": 80}, namespace)
        world.until_here(Kind.BACKEND, key)

        cluster.replace_late_crd()
        assert wait_until(patched, READY_S)

        world.until(has_protocol, "the field of the newer definition")


def test_secrets_have_data_only_while_referenced(cluster: Cluster, namespace: str) -> None:
    for name in ("named", "other"):
        cluster.create(Kind.SECRET, name, namespace=namespace, data={"tls.key": "cHJpdmF0ZQ=="})
    listener = {"name": "tls", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "named"}]}}
    cluster.create(Kind.GATEWAY, "gw", {"gatewayClassName": "tunnel", "listeners": [listener]}, namespace)

    with running(cluster.kubeconfig) as world:

        def data(name: str) -> object:
            assert world.change is not None
            item = world.change.snapshot.all(Kind.SECRET)[Key(namespace, name)]
            assert isinstance(item, Secret)
            return item.data

        world.until_here(Kind.SECRET, Key(namespace, "other"))
        assert (data("named"), data("other")) == ({"tls.key": "cHJpdmF0ZQ=="}, None)

        listener["tls"] = {"certificateRefs": [{"name": "other"}]}
        cluster.patch(Kind.GATEWAY, "gw", namespace, {"spec": {"listeners": [listener]}})
        world.until(lambda _: data("other") is not None, "the data of the Secret that is named now")
        assert (data("named"), data("other")) == (None, {"tls.key": "cHJpdmF0ZQ=="})


def test_a_name_that_would_lead_to_another_api_path_names_nothing(cluster: Cluster, namespace: str) -> None:
    """Names in references are free text, and `./real` is a path to another object."""
    cluster.create(Kind.SECRET, "real", namespace=namespace, data={"tls.key": "cHJpdmF0ZQ=="})
    with running(cluster.kubeconfig) as world:
        world.until(lambda _: True, "the first listing")

        for number, name in enumerate(("./real", "real?", "..", "?watch=1")):
            listener = {"name": "tls", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": name}]}}
            spec = {"gatewayClassName": "tunnel", "listeners": [listener]}
            cluster.create(Kind.GATEWAY, f"gw-{number}", spec, namespace)
            world.until_here(Kind.GATEWAY, Key(namespace, f"gw-{number}"))

            assert world.store.wait_unread(0.0) == ()
            assert world.change is not None
            assert Key(namespace, name) not in world.change.snapshot.all(Kind.SECRET)


def test_secrets_of_helm_releases_are_not_transferred(cluster: Cluster, namespace: str) -> None:
    def create(name: str, type_: str) -> None:
        cluster.create(Kind.SECRET, name, namespace=namespace, type=type_)

    create("listed-release", "helm.sh/release.v1")
    create("listed", "Opaque")
    with running(cluster.kubeconfig) as world:
        world.until_here(Kind.SECRET, Key(namespace, "listed"))
        create("watched-release", "helm.sh/release.v1")
        create("watched", "Opaque")
        world.until_here(Kind.SECRET, Key(namespace, "watched"))

        assert world.change is not None
        secrets = world.change.snapshot.all(Kind.SECRET)
        assert {key.name for key in secrets if key.namespace == namespace} == {"listed", "watched"}


def test_config_maps_have_data_once_referenced(cluster: Cluster, namespace: str) -> None:
    cluster.create(Kind.CONFIG_MAP, "ca", namespace=namespace, data={"ca.crt": "pem"})
    with running(cluster.kubeconfig) as world:
        world.until_here(Kind.CONFIG_MAP, Key(namespace, "ca"))
        ref = {"group": "", "kind": "ConfigMap", "name": "ca"}
        cluster.create(
            Kind.BACKEND_TLS_POLICY,
            "policy",
            {
                "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
                "validation": {"hostname": "web.example.org", "caCertificateRefs": [ref]},
            },
            namespace,
        )

        def has_data(item: object) -> bool:
            return isinstance(item, ConfigMap) and item.data == {"ca.crt": "pem"}

        world.until(lambda change: has_data(change.snapshot.all(Kind.CONFIG_MAP)[Key(namespace, "ca")]), "its data")


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_the_cluster_role_allows_only_the_reading_of_each_kind_that_the_controller_does(kind: Kind) -> None:
    role = yaml.safe_load((HELM / "files" / "clusterrole.yaml").read_text())
    resource = RESOURCES[kind]

    verbs = {
        verb
        for rule in role["rules"]
        if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
        for verb in rule["verbs"]
    }

    assert verbs == {"list", "watch"} | ({"get"} if kind in WITH_DATA else set())


def test_the_cluster_role_allows_writing_only_statuses_and_events() -> None:
    role = yaml.safe_load((HELM / "files" / "clusterrole.yaml").read_text())

    writes = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in {*rule["verbs"]} - {"get", "list", "watch"}
    }

    statuses = {(RESOURCES[kind].group, f"{RESOURCES[kind].plural}/status", "update") for kind in STATUS_KINDS}
    assert writes == statuses | {("events.k8s.io", "events", verb) for verb in ("create", "patch")}
