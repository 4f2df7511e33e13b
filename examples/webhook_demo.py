"""The DNS webhook in `make demo`: records arrive in its embedded store, and are shown.

The real external-dns writes them if it is installed, otherwise a model of it that makes the same calls.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from rich import box
from rich.table import Table

from daemonkit.optionspec import specs_of
from dnswebhook.model import Endpoint
from dnswebhook.options import PREFIX, Options
from examples.stage import PROGRAMS, console, running, say, show_lines
from tests.programs.install import program_path
from tests.support.client_model import ClientModel
from tests.support.client_plan import Planner
from tests.support.client_registry import TxtRegistry

EXTERNAL_DNS_S = 30.0
OWNER = "demo"
LOG = "dnswebhook.log"

DESIRED = (
    Endpoint("app.example.com", "A", ("192.0.2.10", "192.0.2.11"), 300),
    Endpoint("App6.Example.COM", "AAAA", ("2001:DB8:0:0::10",)),
    Endpoint("www.example.com", "CNAME", ("app.example.com",)),
    Endpoint("*.apps.example.com", "A", ("192.0.2.20",)),
    Endpoint("bücher.example.com", "A", ("192.0.2.30",)),
    Endpoint("example.com", "MX", ("10 mail.example.com",)),
    Endpoint("_sip._tcp.example.com", "SRV", ("10 5 5060 sip.example.com.",)),
)


@contextmanager
def webhook(directory: Path, api: str, health: str) -> Iterator[None]:
    """Run the webhook for the duration of the block, after showing the records that it holds."""
    say("[bold]DNS webhook[/bold], on its embedded store")
    arguments = ["--api-addr", api, "--health-addr", health, "--store", "embedded", "--state-dir", str(directory)]
    began_s = time.monotonic()
    with running("dnswebhook", arguments, specs_of(Options, PREFIX), directory / LOG) as daemon:
        daemon.wait_until(f"http://{health}/readyz")
        ready_after_s = time.monotonic() - began_s
        write_records(f"http://{api}")
        print_records(f"http://{api}")
        say(f"   ready after {ready_after_s:.1f} s, {daemon.memory_mib:.0f} MiB of memory\n")
        yield


def write_records(url: str) -> None:
    program = shutil.which("external-dns") or str(program_path("external-dns"))
    if os.access(program, os.X_OK):
        say("   external-dns makes one pass: ten A records with random names, from its `fake` source")
        run_external_dns(program, url)
        return
    say("   external-dns is not installed here, so a model of it makes the same calls, for two passes")
    planner = Planner(managed_types=frozenset(each.record_type for each in DESIRED))
    client = ClientModel(url, planner, TxtRegistry(OWNER))
    client.negotiate()
    first = client.reconcile(DESIRED)
    second = client.reconcile(DESIRED)
    created = len(first.changes.create)
    again = "nothing to do" if second.is_no_op else f"not expected: {second.changes}"
    say(f"   first pass: {created} record sets created, ownership records included; second pass: {again}")


def run_external_dns(program: str, url: str) -> None:
    command = [program, "--provider=webhook", f"--webhook-provider-url={url}", "--source=fake", "--once"]
    command += ["--registry=txt", f"--txt-owner-id={OWNER}", "--policy=upsert-only", "--metrics-address=127.0.0.1:0"]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=EXTERNAL_DNS_S
    )
    if done.returncode:
        sys.exit(f"demo: external-dns ended with exit code {done.returncode}:\n{done.stdout[-3000:]}")


def print_records(url: str) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("name", "type", "TTL", "targets"):
        table.add_column(column, overflow="fold")
    endpoints = requests.get(f"{url}/records", timeout=10).json()["endpoints"]
    shown = [endpoint for endpoint in endpoints if endpoint["recordType"] != "TXT"]
    for endpoint in shown:
        ttl = str(endpoint["recordTTL"] or "auto")
        table.add_row(endpoint["dnsName"], endpoint["recordType"], ttl, ", ".join(endpoint["targets"]))
    console.print(table)
    say(f"   and {len(endpoints) - len(shown)} TXT records that mark these as external-dns's own: it changes no others")


def print_hints(api: str, health: str, directory: Path) -> None:
    show_lines(
        (
            f"curl http://{api}/records                      # what external-dns reads",
            f"curl http://{health}/readyz                       # can records be read and written?",
            f"{PROGRAMS / 'dnswebhook'} records --state-dir {directory}",
        )
    )
