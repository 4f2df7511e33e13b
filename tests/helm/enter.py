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
_TMP = Path("/tmp")
_HOST = ".host"


def main() -> None:
    spec = json.loads(sys.argv[1])
    _mount("--make-rprivate", "/")
    places = {Path(os.path.realpath(path)): folder for path, folder in spec["mounts"].items() if path != str(_TMP)}
    grounds = sorted({_existing(place) for place in places})
    for ground in grounds:
        _make_room(ground)
    for place, folder in places.items():
        place.mkdir(parents=True, exist_ok=True)
        _mount("--bind", folder, str(place))
    # With all mounts below it: otherwise a user who is not root is refused.
    _mount("--rbind", str(_TMP), str(_TMP))
    for each in (Path("/"), *grounds, *(ground / _HOST for ground in grounds)):
        _mount("-o", "remount,bind,ro", str(each))
    os.execvp(spec["command"][0], spec["command"])


def _existing(place: Path) -> Path:
    """The folder in which the mount point of a volume has to be created."""
    return next(each for each in place.parents if each.is_dir())


def _make_room(ground: Path) -> None:
    """Allow folders to be created in `ground` without changing the host.

    Its content stays accessible: the checkout may be there, or Python.
    """
    names = [each.name for each in ground.iterdir()]
    _mount("-t", "tmpfs", "tmpfs", str(_TMP))
    (_TMP / _HOST).mkdir()
    _mount("--rbind", str(ground), str(_TMP / _HOST))
    for name in names:
        (_TMP / name).symlink_to(Path(_HOST) / name)
    _mount("--move", str(_TMP), str(ground))


def _mount(*arguments: str) -> None:
    # Without mtab, which mount keeps in /run.
    subprocess.run(["mount", "--no-mtab", *arguments], check=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    main()
