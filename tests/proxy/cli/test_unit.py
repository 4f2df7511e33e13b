"""The systemd unit of the proxy fits the command, its options and its defaults."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemonkit.optionspec import specs_of
from daemonkit.values import duration
from proxy.options import PREFIX, Options
from tests.support.process import REPOSITORY

UNIT = REPOSITORY / "systemd" / "tunnelgw-proxy.service"
ENV_FILE = REPOSITORY / "systemd" / "tunnelgw-proxy.env"
SPECS = tuple(specs_of(Options, PREFIX))
VARIABLES = {spec.env for spec in SPECS} | {spec.file_env for spec in SPECS if spec.is_secret}


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def unit() -> configparser.SectionProxy:
    parser = _Unit(strict=False)
    parser.read(UNIT, encoding="utf-8")
    return parser["Service"]


def test_the_unit_starts_the_command_with_flags_that_exist(unit: configparser.SectionProxy) -> None:
    program, command, *arguments = shlex.split(unit["ExecStart"])

    assert (Path(program).name, command) == ("tunnelgw-proxy", "run")
    assert {argument.partition("=")[0] for argument in arguments} <= {spec.flag for spec in SPECS}


def test_the_unit_outlives_the_end_that_the_defaults_allow(unit: configparser.SectionProxy) -> None:
    defaults = Options()

    assert duration(0, 3600)(unit["TimeoutStopSec"]) > defaults.grace_period_s + defaults.shutdown_delay_s
    assert (unit["Type"], unit["KillMode"]) == ("notify", "mixed")


def test_the_unit_goes_on_when_a_worker_is_killed_for_want_of_memory(unit: configparser.SectionProxy) -> None:
    """The supervisor replaces it; systemd would stop all workers on account of one, and begin again."""
    assert unit["OOMPolicy"] == "continue"


def test_the_document_is_kept_where_the_unit_gives_room_for_it(unit: configparser.SectionProxy) -> None:
    assert unit["Environment"] == f"PROXY_STATE_DIR=/var/lib/{unit['StateDirectory']}"


def test_the_settings_of_the_unit_exist(unit: configparser.SectionProxy) -> None:
    settings = dict(re.findall(r"^#?([A-Z][A-Z_]+)=(.*)$", ENV_FILE.read_text(encoding="utf-8"), re.M))
    credential = unit["LoadCredential"].partition(":")[0]

    assert settings.keys() - VARIABLES == set()
    assert settings["PROXY_AUTH_TOKEN_FILE"] == f"/run/credentials/{UNIT.name}/{credential}"


if shutil.which("systemd-analyze"):  # elsewhere the tests above have to do

    def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path, unit: configparser.SectionProxy) -> None:
        copy = tmp_path / UNIT.name
        program = shlex.split(unit["ExecStart"])[0]
        copy.write_text(UNIT.read_text(encoding="utf-8").replace(program, sys.executable), encoding="utf-8")

        verdict = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)

        assert [line for line in verdict.stderr.splitlines() if UNIT.name in line] == []
