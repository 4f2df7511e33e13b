"""The proxy's part of `make demo`: two small backends, a document, and requests that take its routes by two doors."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests
from rich import box
from rich.table import Table

from daemonkit.optionspec import specs_of
from examples.backend import Backend
from examples.edge_demo import Edge, show_outage, tell_readiness
from examples.stage import PROGRAMS, console, running, say, show_lines
from proxy import document
from proxy.options import PREFIX, Options

LOG = "tunnelgw-proxy.log"
DOCUMENT = Path(__file__).parent / "proxy" / "demo.json"
HOST = "demo.example"
ASKED = ("/", "/api/orders?page=2", "/old", "/health", "/")
REQUESTS = 200
WAITING = "edge reachable, waiting for the first configuration"


@contextmanager
def proxy(directory: Path, config: str, listener: str, edge: Edge) -> Iterator[None]:
    """Runs while the block does; its routes and some requests are printed first."""
    say("[bold]Proxy[/bold], with two backends, blue and green, and two doors: a port, and a tunnel to an edge")
    arguments = ["--config-addr", config, "--allow-unauthenticated-config", "--access-log", "all"]
    arguments += edge.proxy_arguments
    with ExitStack() as stack:
        addresses = [stack.enter_context(backend(name)) for name in ("blue", "green")]
        file = directory / "document.json"
        file.write_text(made_for(listener, addresses), encoding="utf-8")
        began_s = time.monotonic()
        daemon = stack.enter_context(running("proxy", arguments, specs_of(Options, PREFIX), directory / LOG))
        daemon.wait_for_line(WAITING)
        up_s = time.monotonic()
        tell_readiness(config, 503)
        put(config, file.read_bytes())
        live_s = time.monotonic()
        say(f"   PUT /config: live after {(live_s - up_s) * 1e3:.0f} ms")
        tell_readiness(config, 200)
        print_routes(file.read_bytes())
        print_answers(listener, edge.front)
        port_ms, tunnel_ms = time_requests(listener) * 1e3, time_requests(edge.front) * 1e3
        say(f"   up after {up_s - began_s:.1f} s; {REQUESTS} requests one by one took {port_ms:.1f} ms each by the")
        say(f"   port, and {tunnel_ms:.1f} ms by the tunnel: client, edge and backend included")
        show_outage(edge, daemon, config)
        say(f"   GET {HOST}/health by the tunnel → {ask(edge.front, '/health').status_code}\n")
        yield


@contextmanager
def backend(name: str) -> Iterator[str]:
    """Its address."""
    with Backend(0, name, 200) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def put(config: str, data: bytes) -> None:
    requests.put(f"http://{config}/config", data=data, timeout=10).raise_for_status()


def made_for(listener: str, addresses: list[str]) -> str:
    """The example document with the ports of this demo."""
    content = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    content["listeners"][0]["port"] = int(listener.rpartition(":")[2])
    for entry, address in zip(content["backends"], addresses, strict=True):
        entry["addresses"] = [address]
    return json.dumps(content, indent=2) + "\n"


def print_routes(data: bytes) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("host", "path", "what becomes of it"):
        table.add_column(column, overflow="fold")
    for route in document.decode(data).routes:
        for rule in route.all_rules:
            path = rule.matches[0].path if rule.matches else None
            asked = f"{path.value}{'' if path.type == 'Exact' else ' and below'}" if path else "all others"
            table.add_row(", ".join(route.hostnames) or "every host", asked, outcome(rule))
    console.print(table)


def outcome(rule: document.Rule) -> str:
    redirect = rule.filters.request_redirect
    if redirect:
        return f"redirect {redirect.status_code}" + (f" to {redirect.path.replace_full_path}" if redirect.path else "")
    if rule.respond:
        return f"answer {rule.respond.status_code}"
    total = sum(ref.weight for ref in rule.backends)
    rewritten = ", prefix taken off" if rule.filters.url_rewrite else ""
    return ", ".join(f"{ref.backend} {ref.weight / total:.0%}" for ref in rule.backends) + rewritten


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
    """Seconds for one, on a kept connection."""
    with requests.Session() as session:
        began_s = time.monotonic()
        for _ in range(REQUESTS):
            session.get(f"http://{listener}/", headers={"Host": HOST}, timeout=10)
        return (time.monotonic() - began_s) / REQUESTS


def print_hints(config: str, listener: str, directory: Path) -> None:
    file = directory / "document.json"
    show_lines(
        (
            f"curl -i -H 'Host: {HOST}' http://{listener}/api/orders",
            f"curl http://{config}/config                       # the document; /readyz and /metrics beside it",
            f"curl -T {file} http://{config}/config    # edit it first",
            f"{PROGRAMS / 'tunnelgw-proxy'} explain --config {file} GET http://{HOST}:{listener.rpartition(':')[2]}/old",
        )
    )
