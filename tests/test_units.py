"""The systemd units beside each other: private state, credentials, and ports that do not collide on one host."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import dnswebhook.options
import proxy.options
import tunnelgw.options
from daemonkit.addresses import ListenAddress
from daemonkit.options import CommonOptions
from daemonkit.optionspec import OptionSpec, specs_of
from daemonkit.values import parse_duration
from tests.support.manuals import DOCS
from tests.support.units import SYSTEMD, service

OPTIONS: Final[dict[str, tuple[type[CommonOptions], str]]] = {
    "dnswebhook": (dnswebhook.options.Options, dnswebhook.options.PREFIX),
    "tunnelgw": (tunnelgw.options.Options, tunnelgw.options.PREFIX),
    "tunnelgw-proxy": (proxy.options.Options, proxy.options.PREFIX),
}
CREDENTIALS: Final = {
    "dnswebhook": "UNIFI_API_KEY_FILE",
    "tunnelgw": "PROXY_AUTH_TOKEN_FILE",
    "tunnelgw-proxy": "PROXY_AUTH_TOKEN_FILE",
}


def specs(name: str) -> tuple[OptionSpec, ...]:
    return specs_of(*OPTIONS[name])


def settings(name: str, *, commented: bool = False) -> dict[str, str]:
    """The variables of its .env file; `commented`: with those that are commented out."""
    pattern = rf"^{'#?' if commented else ''}([A-Z][A-Z_]+)=(.*)$"
    return dict(re.findall(pattern, (SYSTEMD / f"{name}.env").read_text(encoding="utf-8"), re.M))


def addresses(name: str) -> dict[str, Any]:
    """Where a unit listens, by variable."""
    found = {}
    for spec in specs(name):
        if spec.env.endswith("_ADDR"):
            text = settings(name).get(spec.env) or spec.declaration.default or ""
            found[spec.env] = ListenAddress.parse(text)
    return found


def test_the_default_ports_of_the_daemons_do_not_collide() -> None:
    ports = [(address.port, variable) for name in OPTIONS for variable, address in addresses(name).items()]

    assert len(ports) == 5
    assert len({port for port, _ in ports}) == len(ports), ports


@pytest.mark.parametrize("name", OPTIONS)
def test_the_state_directory_of_a_daemon_is_private(name: str) -> None:
    unit = service(name)

    assert (unit["StateDirectory"], unit["StateDirectoryMode"], unit["UMask"]) == (name, "0700", "0077")


@pytest.mark.parametrize("name", OPTIONS)
def test_the_settings_reference_the_credential_of_the_unit(name: str) -> None:
    credential = service(name)["LoadCredential"].partition(":")[0]

    assert settings(name)[CREDENTIALS[name]] == f"/run/credentials/{name}.service/{credential}"


@pytest.mark.parametrize("name", OPTIONS)
def test_the_stop_timeout_of_a_unit_covers_the_default_shutdown(name: str) -> None:
    waits = ("grace_period_s", "shutdown_delay_s")
    longest_s = sum(parse_duration(spec.declaration.default or "0s") for spec in specs(name) if spec.field in waits)

    assert parse_duration(service(name)["TimeoutStopSec"]) > longest_s
    assert service(name)["Type"] == "notify"


@pytest.mark.parametrize("name", ["tunnelgw", "tunnelgw-proxy"])
def test_a_daemon_keeps_its_files_in_the_units_state_directory(name: str) -> None:
    unit = service(name)

    assert unit["Environment"].partition("=")[2] == f"/var/lib/{unit['StateDirectory']}"


def test_the_proxys_unit_survives_an_oom_kill_of_a_worker_and_signals_only_the_supervisor() -> None:
    """The supervisor replaces it; otherwise systemd would restart the whole unit for one worker."""
    unit = service("tunnelgw-proxy")

    assert (unit["OOMPolicy"], unit["KillMode"]) == ("continue", "mixed")


@pytest.mark.parametrize("name", OPTIONS)
def test_a_unit_and_its_settings_use_existing_options_only(name: str) -> None:
    known = {spec.env for spec in specs(name)} | {spec.file_env for spec in specs(name) if spec.is_secret}
    program, command, *arguments = shlex.split(service(name)["ExecStart"])

    assert (Path(program).name, command) == (name, "run")
    assert {argument.partition("=")[0] for argument in arguments} <= {spec.flag for spec in specs(name)}
    assert settings(name, commented=True).keys() - known == set()


def test_the_table_of_the_manual_has_the_ports_and_the_memory_limits_of_the_units() -> None:
    page = (DOCS / "bare-host.md").read_text(encoding="utf-8")
    [names, *_] = re.findall(r"^\|  *\|(.*)\|$", page, re.M)
    [ports] = re.findall(r"^\| ports on 127\.0\.0\.1 \|(.*)\|$", page, re.M)
    [limits] = re.findall(r"^\| memory limit of the unit \|(.*)\|$", page, re.M)

    assert re.findall(r"`(\S+)`", names) == ["dnswebhook", "tunnelgw-proxy", "tunnelgw"]
    for name, told, limit in zip(re.findall(r"`(\S+)`", names), ports.split("|"), limits.split("|"), strict=True):
        assert {int(port) for port in re.findall(r"\d+", told)} == {each.port for each in addresses(name).values()}
        assert limit.strip().replace(" ", "").removesuffix("iB") == service(name)["MemoryMax"]


if shutil.which("systemd-analyze"):  # elsewhere the tests above have to do

    @pytest.mark.parametrize("name", OPTIONS)
    def test_systemd_analyze_verifies_a_unit_without_complaint(name: str, tmp_path: Path) -> None:
        file = SYSTEMD / f"{name}.service"
        copy = tmp_path / file.name
        program = shlex.split(service(name)["ExecStart"])[0]
        copy.write_text(file.read_text(encoding="utf-8").replace(program, sys.executable), encoding="utf-8")

        verdict = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)

        assert [line for line in verdict.stderr.splitlines() if file.name in line] == []
