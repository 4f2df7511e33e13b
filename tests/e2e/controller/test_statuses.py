"""Statuses stay correct whoever else writes them, and however the API server answers our writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from tests.e2e.controller.arena import Arena, until_serves
from tests.e2e.controller.fronts import Asked, Front
from tests.e2e.controller.site import DEADLINE_S
from tests.proxy.site import Proxy, eventually
from tests.support.provider import Provider
from tunnelgw.model.kinds import Kind


def condition(type_: str, status: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": "Said",
        "message": "by somebody else",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def is_status_write(asked: Asked) -> bool:
    return asked.method == "PUT" and asked.path.endswith("/status")


def test_a_restart_without_changes_writes_no_status(arena: Arena, proxy: Proxy) -> None:
    """Not even until the provider has answered."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy]):
        arena.until_accepted("web")
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "True")
    version = arena.read(Kind.GATEWAY, "gw")["metadata"]["resourceVersion"]

    with arena.controller(proxies=[proxy]) as again:
        eventually(
            lambda: again.metric("tunnelgw_status_writes_total", kind="Gateway", outcome="unchanged") > 0,
            "its status is looked at",
            DEADLINE_S,
        )

    assert arena.read(Kind.GATEWAY, "gw")["metadata"]["resourceVersion"] == version


def test_foreign_edits_of_our_status_entries_are_reverted_and_foreign_entries_kept(arena: Arena, proxy: Proxy) -> None:
    gateway_class = arena.gateway_class()
    arena.gateway(gateway_class)
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy]):
        arena.until_accepted("web")
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "True")
        theirs = {
            "parentRef": {"name": "other", "group": "gateway.networking.k8s.io", "kind": "Gateway"},
            "controllerName": "other.example/controller",
            "conditions": [condition("Accepted", "False")],
        }
        ours = {
            "parentRef": {"name": "gw"},
            "controllerName": arena.controller_name,
            "conditions": [condition("Accepted", "False"), condition("example.org/Seen", "True")],
        }

        arena.put_status(Kind.HTTP_ROUTE, "web", {"parents": []})
        arena.until_accepted("web")
        arena.put_status(Kind.HTTP_ROUTE, "web", {"parents": [theirs, ours]})
        arena.until_accepted("web")

        first, second = arena.read(Kind.HTTP_ROUTE, "web")["status"]["parents"]
        assert first == theirs
        assert {each["type"]: each["status"] for each in second["conditions"]} == {
            "Accepted": "True",
            "ResolvedRefs": "True",
            "example.org/Seen": "True",
        }

        false, seen = condition("Programmed", "False"), condition("example.org/Seen", "True")
        arena.put_status(Kind.GATEWAY, "gw", {"conditions": [false, seen], "listeners": [], "addresses": []})
        arena.until_programmed()
        status = arena.read(Kind.GATEWAY, "gw")["status"]
        assert status["listeners"][0]["attachedRoutes"] == 1
        assert status["addresses"]
        assert arena.conditions(Kind.GATEWAY, "gw")["example.org/Seen"] == seen


def test_a_conflict_on_every_status_write_loses_no_status(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    arena.gateway(arena.gateway_class())
    conflict = api_front.answer(is_status_write, 409, b'{"kind":"Status","code":409,"reason":"Conflict"}')
    through = arena.cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy], kubeconfig=through) as controller:
        arena.route("web", "a.example.org")
        until_serves(proxy, "a.example.org")
        conflict.wait()
        assert not arena.conditions(Kind.HTTP_ROUTE, "web")

        conflict.release()

        arena.until_accepted("web")
        arena.until_programmed()
        assert controller.metric("tunnelgw_status_writes_total", outcome="conflict") >= 1


def test_hostname_conflicts_and_refused_credentials_are_reported_in_one_event_each(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    theirs = {"hostname": "theirs.example.org", "service": "http://10.0.0.1"}
    provider.write({"ingress": [theirs, {"service": "http_status:404"}]})
    name = arena.gateway_class()
    arena.gateway(name)
    arena.route("web", "theirs.example.org")

    def events() -> list[tuple[str, str, str]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{arena.namespace}/events"
        found = arena.cluster.admin.call("GET", path)["items"]
        return [(each["regarding"]["name"], each["reason"], each["note"]) for each in found]

    with arena.controller(proxies=[proxy]):
        arena.until(Kind.HTTP_ROUTE, "web", "tunnelgw.dev/Delivered", "False")
        provider.tokens = {}
        arena.until(
            Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "False", lambda found: "authentication" in found["message"]
        )
        wanted = {("web", "HostnameConflict"), ("gw", "CredentialsRefused")}
        eventually(lambda: {each[:2] for each in events()} == wanted, f"events {wanted}", DEADLINE_S)
    said = events()
    assert [each[:2] for each in said].count(("web", "HostnameConflict")) == 1
    assert len(said) == len(set(said)), said  # a second attempt makes another call, whose refusal reads differently


def test_a_listener_set_whose_gateway_is_deleted_gets_a_status_even_if_no_controller_ran(
    arena: Arena, proxy: Proxy
) -> None:
    gateway_class = arena.gateway_class()
    cluster, namespace = arena.cluster, arena.namespace
    listener = {"name": "more", "port": 80, "protocol": "HTTP", "hostname": "more.example.org"}
    for name in ("gw", "late"):
        arena.gateway(gateway_class, name)
        cluster.patch(Kind.GATEWAY, name, namespace, {"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}})
        set_spec = {"parentRef": {"name": name}, "listeners": [listener]}
        cluster.create(Kind.LISTENER_SET, f"of-{name}", set_spec, namespace)
    with arena.controller(proxies=[proxy]):
        for name in ("of-gw", "of-late"):
            arena.until(Kind.LISTENER_SET, name, "Programmed", "True")
            arena.until(Kind.LISTENER_SET, name, "tunnelgw.dev/Delivered", "True")

        arena.delete(Kind.GATEWAY, "gw")

        told = arena.until(Kind.LISTENER_SET, "of-gw", "Programmed", "False")
        assert told["reason"] == "ParentNotProgrammed"
        assert f"Gateway {namespace}/gw does not exist" in told["message"]
        assert arena.read(Kind.LISTENER_SET, "of-gw")["status"].get("listeners", []) == []

    arena.delete(Kind.GATEWAY, "late")
    with arena.controller(proxies=[proxy]):
        arena.until(Kind.LISTENER_SET, "of-late", "Programmed", "False")
        arena.gateway(gateway_class)
        cluster.patch(Kind.GATEWAY, "gw", namespace, {"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}})
        arena.until(Kind.LISTENER_SET, "of-gw", "Programmed", "True")


def test_statuses_are_withdrawn_when_the_class_was_deleted_or_changed_hands_while_no_controller_ran(
    arena: Arena, proxy: Proxy
) -> None:
    for name in ("gone", "handed-over"):
        arena.gateway(arena.gateway_class(name), name)
        arena.route(name, f"{name}.example.org", name)
    with arena.controller(proxies=[proxy]):
        for name in ("gone", "handed-over"):
            arena.until_programmed(name)
            arena.until(Kind.GATEWAY, name, "tunnelgw.dev/Delivered", "True")
            arena.until_accepted(name)
    cluster = arena.cluster
    parameters = cluster.admin.call("GET", f"{cluster.path(Kind.GATEWAY_CLASS)}/{arena.namespace}handed-over")["spec"]
    for name in ("gone", "handed-over"):
        cluster.delete(Kind.GATEWAY_CLASS, f"{arena.namespace}{name}")
    theirs = {**parameters, "controllerName": "other.example/controller"}
    cluster.create(Kind.GATEWAY_CLASS, f"{arena.namespace}handed-over", theirs)

    with arena.controller(proxies=[proxy]):
        for name in ("gone", "handed-over"):
            arena.until(Kind.HTTP_ROUTE, name, "Accepted", None)
            arena.until(Kind.GATEWAY, name, "tunnelgw.dev/Delivered", None)
        told = arena.conditions(Kind.GATEWAY, "gone")
        assert {each: told[each]["status"] for each in told} == {"Accepted": "Unknown", "Programmed": "Unknown"}
        assert arena.read(Kind.GATEWAY, "gone")["status"].get("addresses", []) == []
        assert arena.conditions(Kind.GATEWAY, "handed-over")["Programmed"]["status"] == "True", "whose word is that?"

        arena.put_status(Kind.GATEWAY, "handed-over", None)  # as the manual says
        arena.until(Kind.GATEWAY, "handed-over", "Programmed", "Unknown")
        assert arena.read(Kind.GATEWAY, "handed-over")["status"].get("addresses", []) == []


def test_a_gateway_that_never_got_a_data_plane_loses_its_verdict_with_its_class_too(arena: Arena, proxy: Proxy) -> None:
    cluster, gateway_class = arena.cluster, arena.gateway_class()
    arena.gateway(gateway_class)
    missing = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "missing"}}
    cluster.patch(Kind.GATEWAY, "gw", arena.namespace, {"spec": {"infrastructure": missing}})
    with arena.controller(proxies=[proxy]):
        arena.until(Kind.GATEWAY, "gw", "Accepted", "False")
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "False")
        cluster.delete(Kind.GATEWAY_CLASS, gateway_class)

        arena.until(Kind.GATEWAY, "gw", "Accepted", "Unknown")
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", None)


def test_a_controller_that_has_not_seen_a_gateway_leaves_its_listener_sets_to_the_other_controller(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    """Otherwise each would overwrite the other's status, dozens of times a second."""
    cluster, namespace, other = arena.cluster, arena.namespace, f"{arena.controller_name}-other"

    def gateway(name: str, gateway_class: str) -> None:
        arena.gateway(gateway_class, name)
        cluster.patch(Kind.GATEWAY, name, namespace, {"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}})

    def listener_set(name: str, gateway: str, delivered: str) -> str:
        listener = {"name": "more", "port": 80, "protocol": "HTTP", "hostname": f"{name}.example.org"}
        set_spec = {"parentRef": {"name": gateway}, "listeners": [listener]}
        cluster.create(Kind.LISTENER_SET, name, set_spec, namespace)
        arena.until(Kind.LISTENER_SET, name, "tunnelgw.dev/Delivered", delivered)
        return str(arena.read(Kind.LISTENER_SET, name)["metadata"]["resourceVersion"])

    gateway_class = arena.gateway_class()
    gateway("theirs", arena.gateway_class("other", tunnel_id=None, direct="127.0.0.1", controller_name=other))
    kubeconfig = cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy]), arena.controller("--controller-name", other, kubeconfig=kubeconfig):
        listener_set("before", "theirs", "False")  # it has no proxy
        deaf = api_front.hold(lambda asked: "/gateways" in asked.path)
        api_front.cut()
        deaf.wait()

        gateway("ours", gateway_class)
        version = listener_set("of-ours", "ours", "True")
        for name in ("seen", "seen-again"):
            listener_set(name, "theirs", "False")

        assert arena.read(Kind.LISTENER_SET, "of-ours")["metadata"]["resourceVersion"] == version
        deaf.release()


def refuse_statuses(arena: Arena, route: str) -> Callable[[], None]:
    """An admission policy that refuses statuses of the arena's HTTPRoutes from now on. Returns what removes it."""
    path, admin = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic", arena.cluster.admin
    rule = {
        "apiGroups": ["gateway.networking.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["httproutes/status"],
    }
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": arena.namespace}}
    policy = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": namespaces},
        "validations": [{"expression": "false", "message": "not today"}],
    }
    binding = {"policyName": arena.namespace, "validationActions": ["Deny"]}
    for plural, spec in (("ies", policy), ("ybindings", binding)):
        admin.call("POST", path + plural, {"metadata": {"name": arena.namespace}, "spec": spec})

    def is_in_force() -> bool:
        try:
            arena.put_status(Kind.HTTP_ROUTE, route, {"parents": []})
        except requests.HTTPError as error:
            return "not today" in str(error)
        return False

    eventually(is_in_force, "the policy is in force", DEADLINE_S)
    return lambda: admin.call("DELETE", f"{path}ybindings/{arena.namespace}")


def test_a_status_refused_by_an_admission_policy_is_written_once_the_policy_is_removed(
    arena: Arena, proxy: Proxy
) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    admit_statuses = refuse_statuses(arena, "web")
    with arena.controller(proxies=[proxy]) as controller:
        until_serves(proxy, "a.example.org")
        refusal = controller.expect("status refused, retrying", name=f"{arena.namespace}/web")
        assert "not today" in str(refusal["error"])
        arena.until_programmed()

        admit_statuses()

        arena.until_accepted("web")


def test_a_status_of_a_generation_newer_than_its_object_is_logged_and_kept_until_it_is_removed(
    arena: Arena, proxy: Proxy
) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    restored = {
        "parentRef": {"name": "gw"},
        "controllerName": arena.controller_name,
        "conditions": [{**condition("Accepted", "False"), "observedGeneration": 1000}],
    }
    arena.put_status(Kind.HTTP_ROUTE, "web", {"parents": [restored]})
    with arena.controller(proxies=[proxy]) as controller:
        line = controller.expect("status left as it is", name=f"{arena.namespace}/web")
        assert "about generation 1000, the object at hand is generation 1" in str(line["error"])

        arena.put_status(Kind.HTTP_ROUTE, "web", None)

        arena.until_accepted("web")


def test_a_forbidden_status_write_is_dropped_when_its_route_is_deleted(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    api_front.answer(lambda asked: is_status_write(asked) and "/httproutes/" in asked.path, 403)
    kubeconfig = arena.cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy], kubeconfig=kubeconfig) as controller:
        controller.expect("status could not be written, retrying", kind="HTTPRoute")
        eventually(lambda: controller.metric("tunnelgw_status_queue_depth") == 1, "only the route's waits", DEADLINE_S)

        arena.delete(Kind.HTTP_ROUTE, "web")

        eventually(lambda: controller.metric("tunnelgw_status_queue_depth") == 0, "nothing waits", DEADLINE_S)
