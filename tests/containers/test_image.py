"""What can be tested of the image without an engine to build it: the build context, and that it suffices."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.options import parse
from daemonkit.optionspec import specs_of
from daemonkit.values import parse_duration
from proxy.options import PREFIX as PROXY_PREFIX
from proxy.options import Options as ProxyOptions
from tests.proxy.site import Proxy
from tests.support.process import REPOSITORY
from tunnelgw.options import PREFIX, Options

RECIPE = (REPOSITORY / "containers" / "Containerfile").read_text(encoding="utf-8")
IGNORED = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8")
TIMEOUT_S = 120.0


def setup() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return parsed


def programs() -> list[str]:
    lines = setup()["options.entry_points"]["console_scripts"].strip().splitlines()
    return [line.partition(" = ")[0] for line in lines]


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", RECIPE, re.M)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context: only the names with a `!`."""
    folder = tmp_path_factory.mktemp("context") / "src"
    folder.mkdir()
    lines = [line for line in IGNORED.splitlines() if line and not line.startswith("#")]
    assert (lines[0], lines[-1]) == ("*", "**/__pycache__")
    for line in lines[1:-1]:
        assert line.startswith("!"), line
        source = REPOSITORY / line[1:]
        if source.is_dir():
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, folder / source.name)
    return folder


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_the_build_context_suffices_to_install_and_run_the_programs(context: Path, tmp_path: Path) -> None:
    """Third-party requirements are those of the tests' environment."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, *offline, "--target", str(tmp_path / "site"), str(context)],
        check=True,
        timeout=TIMEOUT_S,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )

    for program in programs():
        done = subprocess.run(
            [sys.executable, str(tmp_path / "site" / "bin" / program), "--version"],
            env={"PYTHONPATH": str(tmp_path / "site")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert program in done.stdout
    wanted = {path.relative_to(REPOSITORY) for name in packages() for path in (REPOSITORY / name).glob("*.py")}
    installed = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.py")}
    assert wanted - installed == set()


def packages() -> list[str]:
    return [name.replace(".", "/") for name in setup()["options"]["packages"].split()]


def test_files_that_the_recipe_names_are_in_the_build_context(context: Path) -> None:
    named = re.findall(r"/src/(\S+)", RECIPE)

    assert named == ["requirements-dev.txt"]
    assert all((context / name).is_file() for name in named)


def test_base_images_are_named_with_their_registry() -> None:
    """Without a terminal, Podman refuses short names that several registries may have."""
    assert {line.split()[0].rpartition("/")[0] for line in instructions("FROM")} == {"docker.io/library"}


def test_the_images_python_satisfies_python_requires() -> None:
    versions = {tuple(map(int, re.findall(r"\d+", line.partition(":")[2])[:2])) for line in instructions("FROM")}
    least = tuple(map(int, re.findall(r"\d+", setup()["options"]["python_requires"])))

    assert len(versions) == 1
    assert versions.pop() >= least


def test_the_image_runs_as_a_numeric_user_that_is_not_root() -> None:
    """The chart sets runAsNonRoot without a user, which a kubelet can check only for a numeric one."""
    (user,) = instructions("USER")

    assert re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", user)


def test_the_entrypoint_is_an_existing_program() -> None:
    (entry,) = instructions("ENTRYPOINT")

    assert yaml.safe_load(entry)[0] in programs()


# -- a compose file of the manual ------------------------------------------------------------------------------------


def services() -> dict[str, dict[str, Any]]:
    manual = (REPOSITORY / "docs" / "bare-host.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(# compose.yaml\n.*?)^```", manual, re.M | re.S)
    return dict(yaml.safe_load(text)["services"])


OPTIONS: dict[str, tuple[type[Any], str]] = {
    "tunnelgw": (Options, PREFIX),
    "tunnelgw-proxy": (ProxyOptions, PROXY_PREFIX),
}


@pytest.mark.parametrize("name", services())
def test_settings_of_compose_services_in_the_manual_exist(name: str, tmp_path: Path) -> None:
    service = services()[name]
    program, command = service["entrypoint"]
    options, prefix = OPTIONS[program]
    environ = {key: value for key, value in service["environment"].items() if not key.endswith("_FILE")}
    files = {key: value for key, value in service["environment"].items() if key.endswith("_FILE")}
    (tmp_path / "secret").write_text("x", encoding="ascii")
    known = {name for spec in specs_of(options, prefix) for name in (spec.env, spec.file_env)}

    assert command == "run"
    assert {*environ, *files} <= known
    assert {*files.values()} == {f"/run/secrets/{secret}" for secret in service["secrets"]}
    environ |= {"PROXY_AUTH_TOKEN_FILE": str(tmp_path / "secret")}
    read = parse(options, prefix=prefix, argv=[], environ=environ)[1]
    assert parse_duration(service["stop_grace_period"]) > read.grace_period_s


@pytest.mark.parametrize("name", services())
def test_compose_volumes_in_the_manual_are_mounted_at_folders_of_the_images_user(name: str) -> None:
    (made,) = re.findall(r"^RUN install -d -o (\d+) -g (\d+) -m 0700 (.*)$", RECIPE, re.M)
    service = services()[name]
    mounted = [words.split(":")[1] for words in service["volumes"] if not words.startswith(".")]
    state = [value for key, value in service["environment"].items() if key.endswith(("STATE_DIR", "STATUS_DIR"))]

    assert [":".join(made[:2])] == instructions("USER")
    assert mounted == state
    assert set(mounted) <= set(made[2].split())


def test_the_health_check_of_the_manual_tells_a_live_or_ready_proxy_from_one_that_is_not() -> None:
    manual = (REPOSITORY / "docs" / "bare-host.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"`healthcheck: ({.*?})` \(in a Quadlet", manual, re.S)
    how, *python, code = yaml.safe_load(written)["test"]
    assert (how, python) == ("CMD", ["python3", "-c"])
    with Proxy() as proxy:

        def exit_code(path: str) -> int:
            there = code.replace("http://127.0.0.1:8082/healthz", proxy.api + path)
            return subprocess.run([sys.executable, "-c", there], check=False, timeout=TIMEOUT_S).returncode

        codes = [exit_code("/healthz"), exit_code("/readyz")]
        proxy.use({})
        codes.append(exit_code("/readyz"))

    assert codes == [0, 1, 0]
