"""The namespace that a run lives in: networks and processes of its own."""

import os
import shutil
import subprocess
from collections.abc import Sequence

POD_NET = "10.244.0.0/16"
GATEWAY_NET = "10.100.0.0/16"
SETUP_S = 20.0


class NotPossible(Exception):
    """The message says what is missing."""


def entering(command: Sequence[str]) -> list[str]:
    """The command that runs `command` in a namespace of its own, which ends with it. Raises NotPossible."""
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            raise NotPossible(f"{program} is not on PATH: install {package}")
    enter = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        enter.append("--map-root-user")
    tried = subprocess.run([*enter, "true"], capture_output=True, text=True, check=False, timeout=SETUP_S)
    if tried.returncode:
        raise NotPossible(f"no namespace can be made here: {tried.stderr.strip()}")
    return [*enter, *command]


def set_up() -> None:
    """Inside: a route of type local makes every address of a range one of this machine's."""
    _ip("link", "set", "lo", "up")
    for net in (POD_NET, GATEWAY_NET):
        _ip("route", "replace", "local", net, "dev", "lo")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=SETUP_S)
