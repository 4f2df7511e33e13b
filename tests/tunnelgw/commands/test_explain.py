"""What becomes of a request that several proxies may get."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.commands.explain import Question
from tests.tunnelgw.sources.objects import make
from tunnelgw.commands.explain import explain
from tunnelgw.commands.inputs import CannotAnswer, Inputs
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Snapshot

NAME = "tests.example/controller"
REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}
OWN = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}


def inputs(own_port: int) -> Inputs:
    """A Gateway at the shared proxy with a route for every request on port 80, and one with a proxy of its own."""
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "config"}
    door = {"direct": {"addresses": ["127.0.0.1"]}}

    def gateway(port: int, **more: Any) -> dict[str, Any]:
        return {"gatewayClassName": "c", "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}], **more}

    objects = [
        (Kind.GATEWAY_CLASS, "c", {"controllerName": NAME, "parametersRef": parameters}),
        (Kind.GATEWAY_CLASS_CONFIG, "config", door),
        (Kind.GATEWAY_CONFIG, "own", door),
        (Kind.GATEWAY, "gw", gateway(80)),
        (Kind.GATEWAY, "alone", gateway(own_port, infrastructure={"parametersRef": OWN})),
        (Kind.HTTP_ROUTE, "web", {"parentRefs": [{"name": "gw"}], "rules": [{"filters": [REDIRECT]}]}),
    ]
    cluster_wide = (Kind.GATEWAY_CLASS, Kind.GATEWAY_CLASS_CONFIG)
    return Inputs(
        Snapshot.of(
            [
                (kind, make(kind, name, spec, namespace="" if kind in cluster_wide else "default"))
                for kind, name, spec in objects
            ]
        )
    )


def ask(port: int, own_port: int) -> bool:
    question = Question.parse("GET", f"http://a.example:{port}/", [], None)
    return explain(inputs(own_port), NAME, "tunnelgw-system", question, as_json=False)


def test_explain_fails_unless_every_proxy_that_may_get_a_request_serves_it() -> None:
    assert not ask(port=80, own_port=80)


def test_a_proxy_that_cannot_get_a_request_is_a_note_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(port=80, own_port=81)

    assert "data plane default/alone: no listener takes http on port 80" in capsys.readouterr().err
    with pytest.raises(CannotAnswer, match=r"data plane default/alone: .*; data plane shared: "):
        ask(port=82, own_port=81)
