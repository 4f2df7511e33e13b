"""The order of packages and modules: what `make lint` checks is checked by the suite too."""

import ast
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PACKAGES = [
    init
    for package in ("daemonkit", "dnswebhook", "proxy", "tunnelgw")
    for init in (ROOT / package).rglob("__init__.py")
]


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]

    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)

    assert 0 == done.returncode, done.stdout


def test_every_package_with_several_modules_has_a_layers_contract() -> None:
    layered = {
        package
        for contract in CONTRACTS
        if contract["type"] == "layers" and contract.get("exhaustive")
        for package in contract["containers"]
    }

    with_modules = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in PACKAGES
        if len([file for file in init.parent.glob("*.py") if file.stem not in ("__init__", "__main__")]) > 1
    }

    assert with_modules - layered == set()


@pytest.mark.parametrize(("package", "word"), [("dnswebhook", "(pure)"), ("proxy", "Pure."), ("tunnelgw", "Pure.")])
def test_modules_documented_as_pure_have_an_import_contract(package: str, word: str) -> None:
    held = {
        module for contract in CONTRACTS if contract["type"] == "forbidden" for module in contract["source_modules"]
    }

    saying = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / package).rglob("*.py")
        if word in (ast.get_docstring(ast.parse(file.read_text())) or "")
    }

    assert saying
    assert {module for module in saying if not held & {module, module.rpartition(".")[0]}} == set()


def test_a_package_docstring_that_lists_modules_lists_all_of_them() -> None:
    missing: dict[str, set[str]] = {}
    for init in PACKAGES:
        text = ast.get_docstring(ast.parse(init.read_text())) or ""
        modules = {file.stem for file in init.parent.glob("*.py")} - {"__init__"}
        listed = modules & {*re.findall(r"^ *(\w+)(?=  | [·>] )", text, re.MULTILINE)}
        if len(listed) > 1:
            missing[str(init.parent)] = modules - {*re.findall(r"\w+", text)}

    assert len(missing) > 5
    assert {package: modules for package, modules in missing.items() if modules} == {}


def test_the_docstring_of_a_package_names_all_its_parts_if_there_are_several() -> None:
    unnamed: dict[str, set[str]] = {}
    for init in PACKAGES:
        parts = {file.stem for file in init.parent.glob("[!_]*.py")}
        parts |= {inner.parent.name for inner in init.parent.glob("*/__init__.py")}
        if len(parts) > 3:
            text = ast.get_docstring(ast.parse(init.read_text())) or ""
            unnamed[str(init.parent)] = parts - {*re.findall(r"\w+", text)}

    assert len(unnamed) > 20
    assert {package: parts for package, parts in unnamed.items() if parts} == {}


def test_setup_cfg_names_exactly_the_packages_without_tests() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = set(setup["options"]["packages"].split())

    found = {str(init.parent.relative_to(ROOT)).replace("/", ".") for init in PACKAGES}

    assert found == named
