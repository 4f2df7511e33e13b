"""Two proxies with one tunnel, restarted in turns under load, as an operator or a Deployment does.

In each turn the one that serves a long download gets SIGTERM; the download goes on meanwhile, and the next turn begins
when its successor is registered.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.e2e.tunnel.connector import Connector, address_of
from tests.support.echosite import Download, EchoSite
from tests.support.edge.edge import Edge
from tests.support.gateway import route_to
from tests.support.steadyload import SteadyLoad

CONNECTIONS = 2
"""Of each proxy."""
REGISTER_S = 60.0
EXIT_S = 60.0
NAME = "X-Proxy"


@dataclass
class Outcome:
    restarts: int = 0
    took_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Of the load, of the downloads, of the edge, and exit codes other than 0."""
    durations_s: list[float] = field(default_factory=list)
    """Of all requests but the downloads."""


def restart_in_turns(rate_per_s: int, is_enough: Callable[[Outcome], bool]) -> Outcome:
    """Until it `is_enough`, checked between turns."""
    outcome = Outcome()
    with EchoSite() as site, Edge() as edge, contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(connector(edge, site, name)) for name in ("first", "second")}
        edge.wait_for_registered(2 * CONNECTIONS, REGISTER_S)
        port = address_of(edge.front)[1]
        with SteadyLoad(port, rate_per_s) as load:
            load.wait_for(rate_per_s)
            while not is_enough(outcome):
                with Download(port, site) as download:
                    name = download.field(NAME)
                    unregister(edge, proxies[name])
                    load.wait_for(rate_per_s)
                outcome.failures += download.failures + end(proxies[name])
                proxies[name] = stack.enter_context(connector(edge, site, name))
                edge.wait_for_registered(2 * CONNECTIONS, REGISTER_S)
                load.wait_for(rate_per_s)
                outcome.restarts += 1
                outcome.took_s = load.elapsed_s
        outcome.durations_s = load.durations_s
        outcome.failures += load.failures + edge.ledger.failures
    return outcome


def connector(edge: Edge, site: EchoSite, name: str) -> Connector:
    """Started, and given its document."""
    # On a slow machine a turn takes long, and the download under way must not be cut off.
    arguments = ["--access-log", "errors", "--grace-period", "10m"]
    proxy = Connector(edge, connections=CONNECTIONS, arguments=arguments).start()
    naming = {"responseHeaderModifier": {"set": [{"name": NAME, "value": name}]}}
    proxy.serve(route_to(site.address, filters=naming))
    return proxy


def unregister(edge: Edge, proxy: Connector) -> None:
    """SIGTERM; the edge goes on sending requests for a moment."""
    before = edge.ledger.unregistrations
    proxy.send_signal(signal.SIGTERM)
    edge.wait_for(lambda: edge.ledger.unregistrations == before + CONNECTIONS, "the unregistrations", EXIT_S)


def end(proxy: Connector) -> list[str]:
    """Wait for its end; returns what was wrong with it."""
    exit_code = proxy.wait(EXIT_S)
    return [f"a proxy ended with {exit_code}; its log:\n{proxy.tail}"] if exit_code else []
