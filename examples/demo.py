"""`make demo`: the whole product at work on this machine, from nothing, without Kubernetes.

Starts all daemons, shows what they hold and do, prints what to try, and waits for Ctrl-C.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from examples import controller_demo, edge_demo, gateway_demo, webhook_demo
from examples.stage import console, free_address, say


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # one way to stop, whatever the source of the signal
    try:
        with tempfile.TemporaryDirectory(prefix="tunnelgw-demo-") as directory:
            return show(Path(directory), options)
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left behind.")
        return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--once", action="store_true", help="end after the requests instead of waiting for Ctrl-C")
    for name, port, what in (
        ("api", 8888, "where external-dns would call the webhook"),
        ("health", 8080, "health and metrics of the webhook"),
        ("config", 8082, "the proxy's config API"),
        ("listener", 8000, "where the proxy serves directly"),
        ("front", 8001, "where clients ask the simulated edge"),
    ):
        help_text = f"{what}; default {port}, or a free port when something else has it"
        parser.add_argument(f"--{name}-port", type=int, default=port, metavar="PORT", help=help_text)
    return parser.parse_args()


def show(directory: Path, options: argparse.Namespace) -> int:
    api, health = free_address(options.api_port), free_address(options.health_port)
    config, listener = free_address(options.config_port), free_address(options.listener_port)
    with (
        webhook_demo.webhook(directory, api, health),
        edge_demo.edge(directory, free_address(options.front_port)) as edge,
        gateway_demo.gateway(directory, config, listener, edge) as manifests,
    ):
        if options.once:
            say("Without ONCE=1, everything keeps running here, to be tried with curl.")
            return 0
        say("[bold]Try, in another terminal:[/bold]")
        webhook_demo.print_hints(api, health, directory)
        gateway_demo.print_hints(config, listener)
        edge_demo.print_hints(edge, gateway_demo.HOST)
        controller_demo.print_hints(manifests, listener, gateway_demo.HOST)
        say(f"   tail -f {directory}/*.log")
        say("Manuals: docs/dnswebhook.md, docs/controller.md, docs/proxy.md, docs/tunnel.md. Press Ctrl-C to stop.")
        while True:
            time.sleep(1.0)
            edge_demo.look_after(edge)


if __name__ == "__main__":
    sys.exit(main())
