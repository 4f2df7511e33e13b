"""What the manuals' `pip install .` installs from a checkout, and what a source distribution contains."""

import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.process import REPOSITORY

TIMEOUT_S = 120.0


def check_out(checkout: Path) -> None:
    for name in ("daemonkit", "dnswebhook", "proxy", "tunnelgw"):
        shutil.copytree(REPOSITORY / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(REPOSITORY / name, checkout / name)


def install(checkout: Path, site: Path) -> set[Path]:
    """The modules installed by it. Without dependencies, which are in the tests' environment."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, *offline, "--target", str(site), str(checkout)],
        check=True,
        timeout=TIMEOUT_S,
        env={"PATH": os.environ["PATH"], "HOME": str(site)},
    )
    return {path.relative_to(site) for path in site.rglob("*.py")}


def test_an_install_from_a_reused_checkout_has_no_modules_of_the_previous_version(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    check_out(checkout)
    package = checkout / "daemonkit" / "secret" / "__init__.py"
    module = checkout / "daemonkit" / "secret.py"
    package.parent.mkdir()
    module.rename(package)
    setup = checkout / "setup.cfg"
    setup.write_text(setup.read_text().replace("    daemonkit\n", "    daemonkit\n    daemonkit.secret\n", 1))
    before = install(checkout, tmp_path / "before")
    assert Path("daemonkit/secret/__init__.py") in before

    package.rename(module)
    package.parent.rmdir()
    shutil.copyfile(REPOSITORY / "setup.cfg", setup)
    after = install(checkout, tmp_path / "after")

    assert after - before == {Path("daemonkit/secret.py")}
    assert before - after == {Path("daemonkit/secret/__init__.py")}


def test_a_given_build_folder_keeps_its_content(tmp_path: Path) -> None:
    checkout, named = tmp_path / "checkout", tmp_path / "named"
    check_out(checkout)
    named.mkdir()
    (named / "notes").write_text("mine")

    build = [sys.executable, "setup.py", "--quiet", "build", "--build-lib", str(named)]
    subprocess.run(build, check=True, timeout=TIMEOUT_S, cwd=checkout, env={"PATH": os.environ["PATH"]})

    assert (named / "notes").read_text() == "mine"
    assert (named / "proxy" / "__init__.py").exists()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    checkout = folder / "checkout"
    made = shutil.ignore_patterns(
        ".git", ".venv", ".state", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist"
    )
    shutil.copytree(REPOSITORY, checkout, ignore=made)
    build = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)]
    subprocess.run(build, check=True, timeout=TIMEOUT_S, cwd=checkout, env={"PATH": os.environ["PATH"]})
    (archive,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True, timeout=TIMEOUT_S)
    return folder / archive.name.removesuffix(".tar.gz")


def test_the_image_can_be_built_from_a_source_distribution(unpacked: Path) -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    named = {line[1:] for line in lines if line.startswith("!")}

    assert {name for name in named if not (unpacked / name).exists()} == set()
    for name in (".dockerignore", "containers/Containerfile"):
        assert (unpacked / name).read_text() == (REPOSITORY / name).read_text()


def test_a_source_distribution_has_no_program_that_needs_a_checkout(unpacked: Path) -> None:
    programs = {path.relative_to(unpacked) for path in unpacked.rglob("*.py")}
    others = {path for path in programs if path.parts[0] not in ("daemonkit", "dnswebhook", "proxy", "tunnelgw")}

    assert others == {Path("setup.py"), Path("examples", "backend.py")}


def test_a_source_distribution_has_all_that_the_manuals_tell_people_to_copy(unpacked: Path) -> None:
    kept = [
        path.relative_to(REPOSITORY)
        for folder in ("docs", "helm", "systemd", "examples")
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]

    assert [path for path in kept if not (unpacked / path).is_file()] == []


def test_the_licence_is_an_spdx_expression_with_its_text(unpacked: Path) -> None:
    metadata = message_from_string((unpacked / "PKG-INFO").read_text(encoding="utf-8"))

    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert (unpacked / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


@pytest.mark.parametrize(
    ("library", "version"),
    [
        pytest.param("cryptography", "44.0.3", id="a private key of a Secret ends the controller"),
        pytest.param("kubernetes", "36.0.0", id="requests are sent without the token"),
        pytest.param("kubernetes", "36.0.3", id="a kubeconfig's proxy-url has no effect"),
        pytest.param("urllib3", "2.5.0", id="a small answer unpacks to gigabytes, whatever the limit"),
    ],
)
def test_a_version_of_a_library_with_which_the_daemons_fail_is_not_installed(library: str, version: str) -> None:
    setup = ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    wanted = [Requirement(line) for line in setup["options"]["install_requires"].split("\n") if line]

    (ours,) = (each for each in wanted if each.name == library)
    assert not ours.specifier.contains(version)
