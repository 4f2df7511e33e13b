"""The builder of Go programs leaves existing programs alone, and names what is missing."""

import os
import subprocess
import sys
from pathlib import Path

INSTALL = Path(__file__).resolve().parents[1] / "programs" / "install.py"


def run(*arguments: str, tools: Path, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INSTALL), *arguments]
    env = {"HOME": os.environ["HOME"], "PATH": path, "TUNNELGW_TOOLS": str(tools)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_without_go_the_builder_fails_and_names_the_path_of_the_program(tmp_path: Path) -> None:
    done = run("etcd", tools=tmp_path, path="/nonexistent")

    assert done.returncode == 1
    assert "`go` is not on PATH" in done.stderr
    assert str(tmp_path / "etcd-") in done.stderr


def test_an_existing_program_is_left_alone_and_needs_no_go(tmp_path: Path) -> None:
    there = Path(run("--list", "etcd", tools=tmp_path, path="/nonexistent").stdout.strip())
    there.write_text("built earlier")

    done = run("etcd", tools=tmp_path, path="/nonexistent")

    assert (done.returncode, done.stdout.strip()) == (0, str(there))
    assert there.read_text() == "built earlier"


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = run("minikube", tools=tmp_path, path="/nonexistent")

    assert done.returncode == 2
    assert "unknown name minikube; known: external-dns" in done.stderr
