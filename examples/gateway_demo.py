"""The gateway in `make demo`: proxy with tunnel, controller, edge and provider, and requests by port and tunnel."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests

from daemonkit.optionspec import specs_of
from examples import controller_demo
from examples.backend import Backend
from examples.edge_demo import Edge, show_outage, tell_readiness
from examples.provider_demo import TokenContent, provider
from examples.stage import Running, free_address, running, say, show_lines
from proxy.options import PREFIX, Options

LOG = "tunnelgw-proxy.log"
HOST = "demo.example"
ASKED = ("/", "/api/orders?page=2", "/old", "/")
REQUESTS = 200
WAITING = "edge reachable, waiting for the first configuration"
INGRESS = "ingress document written"


@contextmanager
def gateway(directory: Path, config: str, listener: str, edge: Edge) -> Iterator[Path]:
    """Run everything for the duration of the block, after showing some requests; yields the folder of manifests."""
    say("[bold]Tunnel gateway[/bold]: a folder of manifests, the controller, the proxy with a port and a tunnel")
    token = TokenContent.of(edge.token)
    folder = directory / "manifests"
    with ExitStack() as stack:
        backends = [stack.enter_context(backend(name)) for name in ("blue", "green")]
        ports = {8000: int(listener.rpartition(":")[2]), 3000: backends[0], 3001: backends[1]}
        controller_demo.copy_manifests(folder, ports, token)
        url = stack.enter_context(provider(directory, token))
        proxy = stack.enter_context(started_proxy(directory, config, edge))
        tell_readiness(config, 503)
        began_s = time.monotonic()
        addresses = (free_address(9080), free_address(9081))
        controller = stack.enter_context(controller_demo.controller(directory, folder, config, url, addresses))
        tell_readiness(config, 200)
        say(f"   {time.monotonic() - began_s:.1f} s after the controller's start the proxy serves the folder's routes")
        controller.wait_for_line(INGRESS)
        say(f"   the provider's ingress document routes {HOST} to the tunnel")
        controller_demo.show_statuses(folder)
        print_answers(listener, edge.front)
        controller_demo.show_edit(folder, listener, HOST)
        port_ms, tunnel_ms = time_requests(listener) * 1e3, time_requests(edge.front) * 1e3
        say(f"   {REQUESTS} requests, one after the other, took {port_ms:.1f} ms each through the port, and")
        say(f"   {tunnel_ms:.1f} ms through the tunnel, client, edge and backend included")
        show_outage(edge, proxy, config)
        say(f"   GET {HOST}/ through the tunnel → {ask(edge.front, '/').status_code}\n")
        yield folder


@contextmanager
def started_proxy(directory: Path, config: str, edge: Edge) -> Iterator[Running]:
    arguments = ["--config-addr", config, "--allow-unauthenticated-config", "--access-log", "all"]
    arguments += edge.proxy_arguments
    with running("proxy", arguments, specs_of(Options, PREFIX), directory / LOG) as daemon:
        daemon.wait_for_line(WAITING)
        yield daemon


@contextmanager
def backend(name: str) -> Iterator[int]:
    """Yields its port."""
    with Backend(0, name, 200) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def print_answers(listener: str, front: str) -> None:
    for path in ASKED:
        say(f"   GET {HOST}{path} → {gist(ask(listener, path))}")
    say(f"   GET {HOST}{ASKED[1]} → {gist(ask(front, ASKED[1]))}, through the tunnel")


def gist(response: requests.Response) -> str:
    first = response.headers.get("Location") or response.text.partition("\n")[0]
    return f"{response.status_code} {first}"


def ask(listener: str, path: str) -> requests.Response:
    return requests.get(f"http://{listener}{path}", headers={"Host": HOST}, allow_redirects=False, timeout=10)


def time_requests(listener: str) -> float:
    """Seconds per request, on a persistent connection."""
    with requests.Session() as session:
        began_s = time.monotonic()
        for _ in range(REQUESTS):
            session.get(f"http://{listener}/", headers={"Host": HOST}, timeout=10)
        return (time.monotonic() - began_s) / REQUESTS


def print_hints(config: str, listener: str) -> None:
    show_lines(
        (
            f"curl -i -H 'Host: {HOST}' http://{listener}/api/orders",
            f"curl http://{config}/config    # the proxy's whole document; /readyz and /metrics beside it",
        )
    )
