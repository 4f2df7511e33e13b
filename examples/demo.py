"""`make demo`: the DNS webhook at work on this machine, from nothing.

Starts `dnswebhook` on its embedded store, lets external-dns write records through it (the real one where it is
installed, else a model of it that makes the same calls), prints what is held and what to try, and waits for Ctrl-C.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from rich.console import Console
from rich.table import Table

from daemonkit.optionspec import specs_of
from dnswebhook.model import Endpoint
from dnswebhook.options import PREFIX, Options
from tests.programs.install import program_path
from tests.support.client_model import ClientModel
from tests.support.client_plan import Planner
from tests.support.client_registry import TxtRegistry

READY_S = 20.0
EXTERNAL_DNS_S = 30.0
OWNER = "demo"

DESIRED = (
    Endpoint("app.example.com", "A", ("192.0.2.10", "192.0.2.11"), 300),
    Endpoint("App6.Example.COM", "AAAA", ("2001:DB8:0:0::10",)),
    Endpoint("www.example.com", "CNAME", ("app.example.com",)),
    Endpoint("*.apps.example.com", "A", ("192.0.2.20",)),
    Endpoint("bücher.example.com", "A", ("192.0.2.30",)),
    Endpoint("example.com", "MX", ("10 mail.example.com",)),
    Endpoint("_sip._tcp.example.com", "SRV", ("10 5 5060 sip.example.com.",)),
)

console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--once", action="store_true", help="end after the table instead of waiting for Ctrl-C")
    once: bool = parser.parse_args().once
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # one way to stop, whoever asks
    try:
        with tempfile.TemporaryDirectory(prefix="dnswebhook-demo-") as directory:
            return show(Path(directory), once=once)
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left behind.")
        return 0


def show(directory: Path, *, once: bool) -> int:
    api, health = free_address(8888), free_address(8080)
    say("1", f"starting dnswebhook on its embedded store (log: {directory}/dnswebhook.log)")
    with webhook(directory, api, health):
        write_records(f"http://{api}")
        say("3", "what the webhook answers to GET /records now:")
        print_records(f"http://{api}")
        if once:
            console.print("Without ONCE=1 it keeps running now, to be tried with curl.")
            return 0
        print_hints(api, health, directory)
        console.print("Press Ctrl-C to stop.")
        while True:
            signal.pause()


@contextmanager
def webhook(directory: Path, api: str, health: str) -> Iterator[None]:
    """The daemon as a process of its own; ends with the block."""
    ours = {name for spec in specs_of(Options, PREFIX) for name in (spec.env, spec.file_env)}
    environ = {name: value for name, value in os.environ.items() if name not in ours}  # the demo looks alike everywhere
    command = [sys.executable, "-m", "dnswebhook", "run", "--api-addr", api, "--health-addr", health]
    with (directory / "dnswebhook.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--store", "embedded", "--state-dir", str(directory)], env=environ, stdout=log, stderr=log
        )
    try:
        wait_until_ready(process, f"http://{health}/readyz", directory / "dnswebhook.log")
        yield
    finally:
        process.terminate()
        process.wait(timeout=READY_S)


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if requests.get(url, timeout=1).status_code == 200:
                return
        except requests.RequestException:
            pass
        time.sleep(0.05)
    sys.exit(f"demo: dnswebhook did not become ready within {READY_S:.0f} s; its log:\n{log.read_text()}")


def write_records(url: str) -> None:
    program = shutil.which("external-dns") or str(program_path("external-dns"))
    if os.access(program, os.X_OK):
        say("2", f"external-dns ({program}) makes one pass: ten A records with random names, from its `fake` source")
        run_external_dns(program, url)
        return
    say("2", "external-dns is not installed here, so a model of it makes the same calls, for two passes. It wants:")
    for endpoint in DESIRED:
        console.print(f"      {endpoint.dns_name} {endpoint.record_type} {', '.join(endpoint.targets)}")
    client = ClientModel(
        url, Planner(managed_types=frozenset(each.record_type for each in DESIRED)), TxtRegistry(OWNER)
    )
    client.negotiate()
    first = client.reconcile(DESIRED)
    second = client.reconcile(DESIRED)
    console.print(f"   first pass: {len(first.changes.create)} record sets created, ownership records included")
    console.print(f"   second pass: {'nothing to do' if second.is_no_op else f'not expected: {second.changes}'}")


def run_external_dns(program: str, url: str) -> None:
    command = [program, "--provider=webhook", f"--webhook-provider-url={url}", "--source=fake", "--once"]
    command += ["--registry=txt", f"--txt-owner-id={OWNER}", "--policy=upsert-only", "--metrics-address=127.0.0.1:0"]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=EXTERNAL_DNS_S
    )
    if done.returncode:
        sys.exit(f"demo: external-dns ended with exit code {done.returncode}:\n{done.stdout[-3000:]}")


def print_records(url: str) -> None:
    table = Table()
    for column in ("name", "type", "TTL", "targets"):
        table.add_column(column, overflow="fold")
    for endpoint in requests.get(f"{url}/records", timeout=10).json()["endpoints"]:
        ttl = str(endpoint["recordTTL"] or "auto")
        table.add_row(endpoint["dnsName"], endpoint["recordType"], ttl, "\n".join(endpoint["targets"]))
    console.print(table)
    console.print(
        "The TXT records say which records external-dns made: it changes and deletes no others.", soft_wrap=True
    )


def print_hints(api: str, health: str, directory: Path) -> None:
    console.print("Try, in another terminal:", style="bold")
    for line in (
        f"curl http://{api}/records       # what external-dns reads",
        f"curl http://{api}/              # which names are served: no filter is set here, so all",
        f"curl http://{health}/readyz        # can records be read and written?",
        f"curl http://{health}/metrics       # for Prometheus",
        f"{Path(sys.executable).parent / 'dnswebhook'} records --state-dir {directory}",
        f"tail -f {directory}/dnswebhook.log",
    ):
        console.print(f"   {line}", soft_wrap=True, markup=False)
    console.print("How to use it with a UniFi controller: docs/dnswebhook.md", soft_wrap=True)


def free_address(port: int) -> str:
    """The usual port on loopback, or any free one when something else has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.bind(("127.0.0.1", 0))
            console.print(f"   port {port} is in use here, taking {probe.getsockname()[1]}")
        return f"127.0.0.1:{probe.getsockname()[1]}"


def say(number: str, text: str) -> None:
    console.print(f"[bold]{number}.[/bold] {text}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
