"""The chart of this repository, and the real helm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.process import REPOSITORY
from tests.support.programs import SHORT_LIVED

CHART = REPOSITORY / "helm" / "tunnelgw"
NAMESPACE = "gateways"
TIMEOUT_S = 60.0

Values = Mapping[str, Any]
Object = dict[str, Any]


class Refused(Exception):
    """With helm's error message."""


class Helm:
    def __init__(self, program: Path, folder: Path, kubeconfig: Path | None = None) -> None:
        """`folder`: for helm's own files and its input."""
        self._program = program
        self._folder = folder
        kube = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        self._environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **SHORT_LIVED, **kube}

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """Returns standard output; raises Refused."""
        given: list[str] = []
        if values is not None:
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            given = ["--values", str(file)]
        done = subprocess.run(
            [str(self._program), *arguments, *given],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    def render(
        self, values: Values, release: str = "web", namespace: str = NAMESPACE, *, kubernetes: str = ""
    ) -> list[Object]:
        version = ("--kube-version", kubernetes) if kubernetes else ()
        text = self.run("template", release, str(CHART), "--namespace", namespace, *version, values=values)
        return [each for each in yaml.safe_load_all(text) if each]

    def notes(self, values: Values) -> str:
        """The notes printed after an install."""
        where = ("--namespace", NAMESPACE, "--dry-run=client")
        return self.run("install", "web", str(CHART), *where, values=values).partition("\nNOTES:\n")[2]

    def install(self, values: Values, release: str) -> str:
        return self.run("install", release, str(CHART), "--namespace", NAMESPACE, values=values)

    def upgrade(self, values: Values, release: str) -> str:
        return self.run("upgrade", release, str(CHART), "--namespace", NAMESPACE, values=values)


def one(objects: list[Object], kind: str, ending: str = "") -> Object:
    """The only object of this kind whose name ends like this."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(ending)]
    return found


def container(deployment: Object) -> Object:
    """The chart's own container."""
    first, *_ = deployment["spec"]["template"]["spec"]["containers"]
    return dict(first)
