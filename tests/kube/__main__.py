"""Command line of the throw-away API server.

`up` prints the path of a kubeconfig (administrator); `down` stops exactly the two processes that `up` started and wipes
the state; `status` prints both processes with their memory.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.kube.kubeenv import MissingProgram, find_programs, load, start

DEFAULT_STATE = Path(__file__).resolve().parents[2] / ".state" / "kube"


def up(state: Path) -> int:
    began = time.monotonic()
    try:
        environment = start(state, find_programs(), is_tied=False)
    except (MissingProgram, RuntimeError) as error:
        print(f"[kube] {error}", file=sys.stderr)
        return 1
    print(f"[kube] ready after {time.monotonic() - began:.1f} s: {environment.server}", file=sys.stderr)
    print(environment.kubeconfig)
    return 0


def down(state: Path) -> int:
    environment = load(state)
    if environment is None:
        print(f"[kube] nothing is recorded in {state}", file=sys.stderr)
        return 0
    environment.stop()
    shutil.rmtree(state)
    return 0


def status(state: Path) -> int:
    environment = load(state)
    if environment is None:
        print(f"[kube] down: nothing is recorded in {state}", file=sys.stderr)
        return 1
    print(f"server {environment.server}\nkubeconfig {environment.kubeconfig}")
    for process in environment.processes:
        condition = f"{process.resident_mib} MiB resident" if process.is_alive else f"ended, see {process.log}"
        print(f"{process.name} pid {process.pid}: {condition}")
    return 0 if all(process.is_alive for process in environment.processes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kube", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder for certificates, data and logs")
    options = parser.parse_args()
    commands = {"up": up, "down": down, "status": status}
    return commands[options.command](options.state.resolve())


if __name__ == "__main__":
    sys.exit(main())
