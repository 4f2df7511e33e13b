"""Containers for the programs of Pods can be set up on machines with different folders."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.namespace import NotPossible, entering
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here

TIMEOUT_S = 60.0


def contained(machine: str, tmp_path: Path, places: list[str], script: str) -> str:
    """The output of `script` in a container with a volume at each of `places`, after the script `machine` has run."""
    volumes = {place: tmp_path / str(number) for number, place in enumerate(places)}
    for volume in volumes.values():
        volume.mkdir()
        (volume / "content").write_text(f"{volume.name}\n")
    mounts = {place: str(volume) for place, volume in volumes.items()}
    spec = json.dumps({"mounts": mounts, "command": ["sh", "-c", script]})
    enter = ["unshare", "--mount", sys.executable, "-m", "tests.helm.enter", spec]
    try:
        command = entering(["sh", "-c", f'{machine} && exec "$@"', "sh", *enter])
    except NotPossible as lack:
        not_possible_here(str(lack))
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("made", ["/run", "/run/secrets", "/run/secrets/kubernetes.io/serviceaccount"])
def test_volumes_are_mounted_whichever_parent_folders_exist(tmp_path: Path, made: str) -> None:
    """The last exists where these tests run in a Pod."""
    places = ["/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/tunnel", "/run/tunnelgw/edge-ca"]
    machine = f"mount -t tmpfs none /run && mkdir -p {made}"

    said = contained(machine, tmp_path, places, " && ".join(f"cat {place}/content" for place in places))

    assert said.split() == ["0", "1", "2"]


def test_files_beside_volumes_stay_readable(tmp_path: Path) -> None:
    """A checkout may be there, or below a file system of its own in /tmp."""
    lent = tmp_path / "lent"
    lent.mkdir()
    machine = "mount -t tmpfs none /var/lib && mkdir /var/lib/ci && echo ours > /var/lib/ci/file"
    below = f"mount -t tmpfs none {lent} && echo lent > {lent}/file"

    said = contained(
        f"{machine} && {below}",
        tmp_path,
        ["/var/lib/volume"],
        f"cat /var/lib/ci/file {lent}/file /var/lib/volume/content",
    )

    assert said.split() == ["ours", "lent", "0"]


def test_only_volumes_can_be_written(tmp_path: Path) -> None:
    machine = "mount -t tmpfs none /var/lib && mkdir /var/lib/ci"
    tried = ("/run/volume", "/run", "/", "/var/lib", "/var/lib/ci")

    script = "; ".join(f"touch {folder}/written && echo {folder}" for folder in tried)
    said = contained(machine, tmp_path, ["/run/volume", "/var/lib/volume"], f"{script}; true")

    assert said.split() == ["/run/volume"]
    assert (tmp_path / "0" / "written").exists()
