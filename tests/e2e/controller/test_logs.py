"""Logs as collectors read them: stores such as Elasticsearch drop a line whose field has another type than before."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.e2e.controller.arena import Arena, until_serves
from tests.e2e.controller.test_ingress import CATCH_ALL, THEIRS
from tests.proxy.site import Proxy
from tests.support.daemon import Daemon
from tests.support.provider import Provider
from tests.support.storeviews import EmbeddedView


def test_a_field_has_the_same_type_in_all_lines_of_all_daemons(
    arena: Arena, provider: Provider, proxy: Proxy, tmp_path: Path
) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    store = EmbeddedView(tmp_path)
    with arena.controller(proxies=[proxy]) as controller, Daemon.dnswebhook(store.env) as webhook:
        until_serves(proxy, "a.example.org")
        controller.expect("ingress document written")
        provider.write({"ingress": [THEIRS, CATCH_ALL]})
        controller.expect("ingress document edited by somebody else")
        proxy.put(b"{}", token="another")
        proxy.wait_for_message("config request refused")
        webhook.wait_for_message("started")
        lines = [line for daemon in (proxy, controller, webhook) for line in daemon.log]

    types = defaultdict(set)
    for line in lines:
        for field, value in line.items():
            if value is not None:
                types[field].add(float if type(value) is int else type(value))
    assert {field: found for field, found in types.items() if len(found) > 1} == {}
