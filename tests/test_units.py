"""The systemd units beside each other: what they share with nobody, and what one host can have of them at once."""

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
    """What its .env file sets, or would if the comment signs went."""
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


def test_the_three_daemons_find_their_ports_free_on_one_host() -> None:
    ports = [(address.port, variable) for name in OPTIONS for variable, address in addresses(name).items()]

    assert len(ports) == 5
    assert len({port for port, _ in ports}) == len(ports), ports


@pytest.mark.parametrize("name", OPTIONS)
def test_nobody_else_sees_the_state_of_a_daemon(name: str) -> None:
    unit = service(name)

    assert (unit["StateDirectory"], unit["StateDirectoryMode"], unit["UMask"]) == (name, "0700", "0077")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_credential_is_one_that_the_settings_name(name: str) -> None:
    credential = service(name)["LoadCredential"].partition(":")[0]

    assert settings(name)[CREDENTIALS[name]] == f"/run/credentials/{name}.service/{credential}"


@pytest.mark.parametrize("name", OPTIONS)
def test_a_unit_outlives_the_end_that_the_defaults_allow(name: str) -> None:
    waits = ("grace_period_s", "shutdown_delay_s")
    longest_s = sum(parse_duration(spec.declaration.default or "0s") for spec in specs(name) if spec.field in waits)

    assert parse_duration(service(name)["TimeoutStopSec"]) > longest_s
    assert service(name)["Type"] == "notify"


@pytest.mark.parametrize("name", ["tunnelgw", "tunnelgw-proxy"])
def test_a_daemon_keeps_its_files_where_the_unit_gives_room_for_them(name: str) -> None:
    unit = service(name)

    assert unit["Environment"].partition("=")[2] == f"/var/lib/{unit['StateDirectory']}"


def test_the_proxy_goes_on_when_a_worker_is_killed_for_want_of_memory_and_drains_when_it_is_stopped() -> None:
    """The supervisor replaces it; systemd would stop all workers on account of one, and begin again."""
    unit = service("tunnelgw-proxy")

    assert (unit["OOMPolicy"], unit["KillMode"]) == ("continue", "mixed")


@pytest.mark.parametrize("name", OPTIONS)
def test_a_unit_and_its_settings_say_only_what_there_is(name: str) -> None:
    known = {spec.env for spec in specs(name)} | {spec.file_env for spec in specs(name) if spec.is_secret}
    program, command, *arguments = shlex.split(service(name)["ExecStart"])

    assert (Path(program).name, command) == (name, "run")
    assert {argument.partition("=")[0] for argument in arguments} <= {spec.flag for spec in specs(name)}
    assert settings(name, commented=True).keys() - known == set()


if shutil.which("systemd-analyze"):  # elsewhere the tests above have to do

    @pytest.mark.parametrize("name", OPTIONS)
    def test_systemd_has_nothing_to_say_about_a_unit(name: str, tmp_path: Path) -> None:
        file = SYSTEMD / f"{name}.service"
        copy = tmp_path / file.name
        program = shlex.split(service(name)["ExecStart"])[0]
        copy.write_text(file.read_text(encoding="utf-8").replace(program, sys.executable), encoding="utf-8")

        verdict = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)

        assert [line for line in verdict.stderr.splitlines() if file.name in line] == []
