"""A container of its own for one program: the volumes of its Pod, and a root that is read-only.

    python -m tests.helm.enter SPEC

SPEC is JSON: `{"mounts": {PATH: FOLDER}, "command": [...]}`. Needs the right to mount, in the mount namespace of the
caller, which nobody else may see. `/tmp` stays the host's: what is tested may lie there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

_TIMEOUT_S = 20.0


def main() -> None:
    spec = json.loads(sys.argv[1])
    _mount("--make-rprivate", "/")
    places = {Path(os.path.realpath(path)): folder for path, folder in spec["mounts"].items() if path != "/tmp"}
    for ground in sorted({_existing(place) for place in places}):
        _mount("-t", "tmpfs", "tmpfs", str(ground))
    for place, folder in places.items():
        place.mkdir(parents=True, exist_ok=True)
        _mount("--bind", folder, str(place))
    _mount("--bind", "/tmp", "/tmp")
    _mount("-o", "remount,bind,ro", "/")
    os.execvp(spec["command"][0], spec["command"])


def _existing(place: Path) -> Path:
    """The folder in which the mount point of a volume has to be made."""
    return next(each for each in place.parents if each.is_dir())


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    main()
