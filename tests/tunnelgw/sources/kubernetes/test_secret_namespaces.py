"""Secrets are read only in named namespaces, by an account with no rights in others, against a real API server."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.kube.processes import wait_until
from tests.tunnelgw.sources.cluster import HELM, HOME, READY_S, Cluster
from tests.tunnelgw.sources.kubernetes.running import QUICK, World, running
from tunnelgw.model.core import Secret
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.references import REFERRING
from tunnelgw.sources.store import Store

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DATA = {"tls.key": "cHJpdmF0ZQ=="}
RULES = yaml.safe_load((HELM / "files" / "secretsrole.yaml").read_text())["rules"]
AWAITED = "namespace does not exist, or is being deleted, waiting for it and for the right to read there"


class Narrow:
    """An account with the chart's ClusterRole, less the rights on Secrets, and with its Role for these."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.name = f"narrow-{uuid.uuid4().hex[:8]}"
        self._subjects = [{"kind": "ServiceAccount", "name": self.name, "namespace": HOME}]
        self.kubeconfig = folder / "kubeconfig-narrow"
        call = cluster.admin.call
        call("POST", f"/api/v1/namespaces/{HOME}/serviceaccounts", {"metadata": {"name": self.name}})
        role = yaml.safe_load((HELM / "files" / "clusterrole.yaml").read_text())
        rules = copy.deepcopy(role["rules"])
        for rule in rules:
            rule["resources"] = [each for each in rule["resources"] if each != "secrets"]
        wanted = [rule for rule in rules if rule["resources"]]
        call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": self.name}, "rules": wanted})
        call("POST", f"{RBAC}/clusterrolebindings", self._binding("ClusterRole"))
        cluster.write_kubeconfig(self.kubeconfig, HOME, self.name)

    def let_read(self, namespace: str, *verbs: str) -> None:
        """`verbs`: other than those of the chart's Role."""
        place = f"{RBAC}/namespaces/{namespace}"
        rules = [{**rule, "verbs": verbs or rule["verbs"]} for rule in RULES]
        self._cluster.admin.call("POST", f"{place}/roles", {"metadata": {"name": self.name}, "rules": rules})
        self._cluster.admin.call("POST", f"{place}/rolebindings", self._binding("Role"))

    def _binding(self, kind: str) -> dict[str, Any]:
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": self.name}
        return {"metadata": {"name": self.name}, "roleRef": ref, "subjects": self._subjects}


@pytest.fixture
def narrow(cluster: Cluster, tmp_path: Path) -> Narrow:
    account = Narrow(cluster, tmp_path)
    account.let_read(HOME)
    return account


@contextmanager
def other_namespace(cluster: Cluster) -> Iterator[str]:
    name = f"other-{uuid.uuid4().hex[:8]}"
    cluster.create(Kind.NAMESPACE, name)
    try:
        yield name
    finally:
        cluster.delete(Kind.NAMESPACE, name)


def listeners(*secrets: Key) -> list[dict[str, Any]]:
    return [
        {
            "name": f"l{number}",
            "hostname": f"h{number}.example.org",
            "port": 443,
            "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": key.name, "namespace": key.namespace}]},
        }
        for number, key in enumerate(secrets)
    ]


def secret(world: World, key: Key) -> Secret | None:
    assert world.change is not None
    found = world.change.snapshot.read(Entry(Kind.SECRET, key))
    assert found is None or isinstance(found, Secret)
    return found


def test_secrets_of_the_named_namespaces_are_followed_and_all_others_are_marked_outside(
    cluster: Cluster, namespace: str, narrow: Narrow
) -> None:
    narrow.let_read(namespace)
    with other_namespace(cluster) as other:
        for place in (namespace, other):
            cluster.create(Kind.SECRET, "first", namespace=place, data=DATA)
        named = (Key(namespace, "first"), Key(namespace, "later"), Key(other, "first"), Key(other, "none"))
        cluster.create(Kind.GATEWAY, "gw", {"gatewayClassName": "tunnel", "listeners": listeners(*named)}, namespace)
        with running(narrow.kubeconfig, store=Store(home=HOME, secret_namespaces=[namespace])) as world:
            world.until_here(Kind.SECRET, Key(namespace, "first"))
            world.until(
                lambda _: secret(world, Key(namespace, "later")) is None,
                "that the missing Secret is known to be missing",
            )

            for key in (Key(other, "first"), Key(other, "none")):
                outside = secret(world, key)
                assert outside is not None
                assert outside.is_outside
            first = secret(world, Key(namespace, "first"))
            assert first is not None
            assert (first.data, first.is_outside) == (DATA, False)

            cluster.create(Kind.SECRET, "later", namespace=namespace, data=DATA)
            world.until_here(Kind.SECRET, Key(namespace, "later"))
            cluster.delete(Kind.SECRET, "first", namespace)
            world.until_gone(Kind.SECRET, Key(namespace, "first"))
            assert secret(world, Key(other, "first")) is not None, "the list of one namespace does not affect others"

            cluster.patch(Kind.GATEWAY, "gw", namespace, {"spec": {"listeners": listeners(Key(namespace, "later"))}})
            world.until_gone(Kind.SECRET, Key(other, "first"))


def test_secrets_of_the_controllers_own_namespace_are_read(cluster: Cluster, narrow: Narrow, namespace: str) -> None:
    name = f"own-{uuid.uuid4().hex[:8]}"
    narrow.let_read(namespace)
    cluster.create(Kind.SECRET, name, namespace=HOME, data=DATA)

    with running(narrow.kubeconfig, store=Store(home=HOME, secret_namespaces=[namespace])) as world:
        world.until_here(Kind.SECRET, Key(HOME, name))


def test_a_missing_namespace_delays_nothing_and_is_followed_once_it_exists(
    cluster: Cluster, narrow: Narrow, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its Role was deleted with it. A controller that starts then has to serve all other namespaces."""
    absent = f"absent-{uuid.uuid4().hex[:8]}"
    narrow.let_read(namespace)
    cluster.create(Kind.SECRET, "there", namespace=namespace, data=DATA)
    with running(narrow.kubeconfig, store=Store(home=HOME, secret_namespaces=[namespace, absent])) as world:
        world.until_here(Kind.SECRET, Key(namespace, "there"))
        assert wait_until(lambda: AWAITED in caplog.messages, READY_S)

        cluster.create(Kind.NAMESPACE, absent)
        narrow.let_read(absent)
        cluster.create(Kind.SECRET, "late", namespace=absent, data=DATA)

        world.until_here(Kind.SECRET, Key(absent, "late"))
    cluster.delete(Kind.NAMESPACE, absent)


def test_a_namespace_that_stays_terminating_delays_nothing(
    cluster: Cluster, narrow: Narrow, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Finalizers can keep it for months after its Role is deleted, and no other Role can be created in it."""
    narrow.let_read(namespace)
    cluster.create(Kind.SECRET, "there", namespace=namespace, data=DATA)
    with other_namespace(cluster) as ending:
        pass  # it stays terminating: only the API server runs here, not the controller that would end it
    with running(narrow.kubeconfig, store=Store(home=HOME, secret_namespaces=[namespace, ending])) as world:
        world.until_here(Kind.SECRET, Key(namespace, "there"))
        assert wait_until(lambda: AWAITED in caplog.messages, READY_S)


def test_no_missing_right_is_reported_before_namespaces_are_listed(
    cluster: Cluster, narrow: Narrow, namespace: str
) -> None:
    """Else `tunnelgw status` would end with that when listing the namespaces takes longer than the refusal."""
    narrow.let_read(namespace)
    worlds: list[World] = []

    def is_reported() -> bool:
        return any(cause is Restart.FORBIDDEN for world in worlds for _, cause in world.restarts)

    class Slow(Store):
        def replace(self, kind: Kind, *rest: Any, **named: Any) -> None:
            if kind is Kind.NAMESPACE:
                self.wait_listed(REFERRING, READY_S)
                wait_until(is_reported, 0.5)
            super().replace(kind, *rest, **named)

    store = Slow(home=HOME, secret_namespaces=[namespace, "absent"])
    with running(narrow.kubeconfig, store=store) as world:
        worlds.append(world)
        world.until(lambda _: True, "that all is listed")
        assert not is_reported()


def test_a_missing_right_in_an_existing_namespace_is_waited_for(
    cluster: Cluster, narrow: Narrow, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server that has just started does not know all roles; without Secrets, listeners would close."""
    cluster.create(Kind.SECRET, "there", namespace=namespace, data=DATA)
    with running(narrow.kubeconfig, store=Store(home=HOME, secret_namespaces=[namespace])) as world:
        told = wait_until(lambda: "watch forbidden, retrying" in caplog.messages, READY_S)
        assert told
        assert wait_until(lambda: world.store.unlisted == {Kind.SECRET}, READY_S)

        narrow.let_read(namespace)

        world.until_here(Kind.SECRET, Key(namespace, "there"))


def test_a_lasting_lack_of_rights_in_one_namespace_does_not_delay_others(
    cluster: Cluster, narrow: Narrow, namespace: str
) -> None:
    """Its administrators can take them away, and a controller that starts then has to serve all others."""
    with other_namespace(cluster) as open_:
        narrow.let_read(open_)
        for place in (namespace, open_):
            cluster.create(Kind.SECRET, "there", namespace=place, data=DATA)
        spec = {"gatewayClassName": "tunnel", "listeners": listeners(Key(namespace, "there"), Key(open_, "there"))}
        cluster.create(Kind.GATEWAY, "gw", spec, namespace)
        store = Store(home=HOME, secret_namespaces=[namespace, open_])
        with running(narrow.kubeconfig, msgspec.structs.replace(QUICK, closed_s=0.5), store) as world:
            world.until_here(Kind.SECRET, Key(open_, "there"))
            closed = secret(world, Key(namespace, "there"))
            assert closed is not None
            assert closed.is_outside

            narrow.let_read(namespace)

            def is_read() -> bool:
                found = secret(world, Key(namespace, "there"))
                return found is not None and found.data == DATA and not found.is_outside

            world.until(lambda _: is_read(), "the Secret whose namespace may be read again")


def test_the_account_of_these_tests_may_not_list_all_secrets(cluster: Cluster, narrow: Narrow) -> None:
    spec = {
        "user": f"system:serviceaccount:{HOME}:{narrow.name}",
        "resourceAttributes": {"verb": "list", "resource": "secrets"},
    }
    answer = cluster.admin.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})

    assert answer["status"]["allowed"] is False


def test_changes_of_what_may_be_listed_but_not_watched_are_seen_and_the_missing_right_is_reported(
    cluster: Cluster, narrow: Narrow, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    narrow.let_read(namespace, "get", "list")
    cluster.create(Kind.SECRET, "first", namespace=namespace, data=DATA)
    store = Store(home=HOME, secret_namespaces=[namespace], patience_s=0.5)
    with running(narrow.kubeconfig, store=store) as world:
        world.until_here(Kind.SECRET, Key(namespace, "first"))

        cluster.create(Kind.SECRET, "later", namespace=namespace, data=DATA)
        world.until_here(Kind.SECRET, Key(namespace, "later"))
        cluster.delete(Kind.SECRET, "first", namespace)
        world.until_gone(Kind.SECRET, Key(namespace, "first"))

    assert "watch forbidden, retrying" in caplog.messages
