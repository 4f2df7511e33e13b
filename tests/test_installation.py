"""What the manuals' `pip install .` installs from a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
