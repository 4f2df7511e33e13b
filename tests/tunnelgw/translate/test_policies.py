"""How many Gateways a BackendTLSPolicy can report to. What it reports is in the golden cases."""

from typing import Any

from tests.tunnelgw.translate.world import NAMESPACE, World, object_of, service
from tunnelgw.model.meta import Key
from tunnelgw.translate.policies import PolicyVerdict, policy_verdict

CLASS = {
    "kind": "GatewayClass",
    "metadata": {"name": "tunnel"},
    "spec": {"controllerName": "tunnelgw.dev/tunnel-gateway-controller"},
}
POLICY = {
    "kind": "BackendTLSPolicy",
    "metadata": {"name": "tls"},
    "spec": {
        "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
        "validation": {"hostname": "web.internal", "wellKnownCACertificates": "System"},
    },
}


def verdict_with(gateways: int) -> PolicyVerdict:
    names = [f"gw-{number:02}" for number in range(gateways)]
    route: dict[str, Any] = {
        "kind": "HTTPRoute",
        "metadata": {"name": "pages"},
        "spec": {
            "parentRefs": [{"name": name} for name in names],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
        },
    }
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    plain = [
        {"kind": "Gateway", "metadata": {"name": name}, "spec": {"gatewayClassName": "tunnel", "listeners": listeners}}
        for name in names
    ]
    world = World(map(object_of, [CLASS, POLICY, route, *plain, *service("web")]))
    return world.queries.ask(policy_verdict, Key(NAMESPACE, "tls"))


def test_a_policy_reports_to_each_gateway_in_order() -> None:
    verdict = verdict_with(20)

    assert [ancestor.gateway.name for ancestor in verdict.ancestors] == [f"gw-{number:02}" for number in range(20)]
