"""Which changes make the controller look through its targets."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from tests.support.counting import calls_of
from tests.tunnelgw.deliver.test_dispatch import Desk
from tests.tunnelgw.deliver.test_targets import DISCOVERY, OURS, Item, endpoint, gateway_class, secret, slice_
from tests.tunnelgw.sources.objects import make, route
from tunnelgw.deliver.wanted import Wanted
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import SERVICE_NAME_LABEL
from tunnelgw.sources.tables import Tables
from tunnelgw.translate.pipeline import Translation

UNNAMED = secret("unnamed", "shop", auth_token="abc")
OTHERS = (
    Kind.ENDPOINT_SLICE,
    make(Kind.ENDPOINT_SLICE, "x", addressType="IPv4", metadata={"labels": {SERVICE_NAME_LABEL: "x"}}),
)
ROUTE = Kind.HTTP_ROUTE, route("x", "gw-0", namespace="shop")


def gateway(number: int) -> list[Item]:
    """One with a configuration of its own."""
    name = f"gw-{number}"
    infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": name}}
    listeners = [{"name": "web", "port": 80, "protocol": "HTTP"}]
    spec = {"gatewayClassName": "class", "listeners": listeners, "infrastructure": infrastructure}
    config = {"proxyEndpoints": [f"http://{name}:8082"], "authSecretRef": {"name": "auth"}}
    return [
        (Kind.GATEWAY, make(Kind.GATEWAY, name, spec, namespace="shop")),
        (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, name, config, namespace="shop")),
    ]


def calls_for(edit: Item, gateways: int) -> int:
    """How many calls the reconciler's turn takes to find targets after an edit."""
    tables = Tables()
    own = [item for number in range(gateways) for item in gateway(number)]
    for item in (gateway_class("class"), secret("auth", "shop", auth_token="abc"), *own):
        tables.put(*item)
    snapshot, edits = tables.take()
    translation = Translation(snapshot, OURS, "home")
    wanted = Wanted(Desk("").dispatch, DISCOVERY, Metrics(CollectorRegistry()))
    wanted.find_planes_of_tunnels(translation, snapshot.all(Kind.GATEWAY))
    wanted.find_targets(translation, edits.changed, (), 0.0, are_all_named=True)
    assert len(wanted.planes) == 1 + gateways
    led = wanted.planes_by_tunnel

    def turn() -> None:
        told = translation.update(snapshot, edits.changed)
        wanted.find_planes_of_tunnels(translation, {id_.key for id_ in told.verdicts if id_.kind is Kind.GATEWAY})
        wanted.find_targets(translation, edits.changed, (), 1.0, are_all_named=True)

    tables.put(*edit)
    snapshot, edits = tables.take()
    calls = calls_of(turn)
    assert wanted.planes_by_tunnel is led, "not made again, which takes no calls of functions"
    return calls


@pytest.mark.parametrize("edit", [UNNAMED, OTHERS, ROUTE], ids=["Secret", "EndpointSlice", "route"])
def test_what_concerns_no_target_takes_as_long_with_many_gateways_as_with_few(edit: Item) -> None:
    assert calls_for(edit, 20) == calls_for(edit, 2)


def test_a_new_proxy_and_a_new_token_are_found() -> None:
    tables = Tables()
    for item in (gateway_class("class"), *gateway(0)):
        tables.put(*item)
    snapshot, edits = tables.take()
    translation = Translation(snapshot, OURS, "home")
    wanted = Wanted(Desk("").dispatch, DISCOVERY, Metrics(CollectorRegistry()))
    wanted.find_targets(translation, edits.changed, (), 0.0, are_all_named=True)
    before = wanted.planes

    for edit in (slice_("a", endpoint("10.0.0.1")), secret("auth", "shop", auth_token="abc")):
        tables.put(*edit)
        snapshot, edits = tables.take()
        translation.update(snapshot, edits.changed)
        wanted.find_targets(translation, edits.changed, (), 1.0, are_all_named=True)

    assert (before["shared"].endpoints, wanted.planes["shared"].endpoints) == ((), ("http://10.0.0.1:8082",))
    assert (before["shop/gw-0"].token.secret, bool(wanted.planes["shop/gw-0"].token.secret)) == (None, True)
