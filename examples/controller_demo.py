"""The controller in `make demo`: a folder of manifests configures the proxy and the provider.

No Kubernetes: the same kinds, from files, with statuses in files beside them.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from daemonkit.optionspec import specs_of
from examples.provider_demo import TokenContent
from examples.stage import PROGRAMS, Running, running, say, show_lines
from tunnelgw.options import PREFIX, Options

LOG = "tunnelgw.log"
MANIFESTS = Path(__file__).parent / "manifests"
EDITED = "shop.yaml"
LIVE_S = 10.0


def copy_manifests(folder: Path, ports: Mapping[int, int], token: TokenContent) -> None:
    """Copy the examples with the ports and the tunnel of this demo. `ports` maps the examples' ports to those."""
    shutil.copytree(MANIFESTS, folder)
    for file in folder.glob("*.yaml"):
        text = re.sub(
            r"(?m)^(\s*(?:- )?port: )(\d+)$",
            lambda found: f"{found[1]}{ports.get(int(found[2]), int(found[2]))}",
            file.read_text(encoding="utf-8"),
        )
        text = re.sub(r"tunnelID: .*", f"tunnelID: {token.tunnel}", text)
        file.write_text(re.sub(r"accountID: .*", f"accountID: {token.account}", text), encoding="utf-8")


@contextmanager
def controller(
    directory: Path, folder: Path, config: str, provider_url: str, addresses: tuple[str, str]
) -> Iterator[Running]:
    """A controller that runs for the duration of the block. `addresses`: for metrics and for health."""
    arguments = ["--source", "directory", "--manifests", str(folder), "--proxy-endpoints", f"http://{config}"]
    arguments += ["--provider-api-url", provider_url, "--metrics-addr", addresses[0], "--health-addr", addresses[1]]
    with running("tunnelgw", arguments, specs_of(Options, PREFIX), directory / LOG) as daemon:
        daemon.wait_until(f"http://{addresses[1]}/readyz")
        yield daemon


def show_statuses(folder: Path) -> None:
    """Show the output of `tunnelgw status`, once no status is pending any more."""
    end_s = time.monotonic() + LIVE_S
    while True:
        told = _asked("status", "--manifests", str(folder))
        if "pending" not in told or time.monotonic() > end_s:
            break
        time.sleep(0.1)
    for line in told.splitlines():
        grade, name, part, detail, problems = line.split("\t")
        if part.startswith(("listener", "Gateway")) or problems:
            show_lines([f"{grade:<9}{name}, {part}: {problems or detail}"])


def _asked(*arguments: str) -> str:
    command = [sys.executable, "-m", "tunnelgw", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout


def show_edit(folder: Path, listener: str, host: str) -> None:
    """Edit a file; the proxy follows."""
    file = folder / EDITED
    before = file.read_text(encoding="utf-8")
    say(f"   {file.name} is edited: /old becomes /former")
    began_s = time.monotonic()
    file.write_text(before.replace("value: /old", "value: /former"), encoding="utf-8")
    while time.monotonic() - began_s < LIVE_S:
        answer = requests.get(f"http://{listener}/former", headers={"Host": host}, allow_redirects=False, timeout=10)
        if answer.status_code == 301:
            say(f"   GET {host}/former → 301 {answer.headers['Location']}, {time.monotonic() - began_s:.2f} s later")
            return
        time.sleep(0.02)
    sys.exit(f"demo: the edit of {file} is not live after {LIVE_S:.0f} s")


def print_hints(folder: Path, listener: str, host: str) -> None:
    tunnelgw = PROGRAMS / "tunnelgw"
    show_lines(
        (
            f"$EDITOR {folder / EDITED}    # then ask again: it is live within a second",
            f"{tunnelgw} status --manifests {folder}    # {folder}/status has them as files",
            f"{tunnelgw} check {folder}    # the same before you deploy it",
            f"{tunnelgw} explain --manifests {folder} http://{host}:{listener.rpartition(':')[2]}/api/orders",
        )
    )
