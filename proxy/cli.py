"""The command `tunnelgw-proxy`: the daemon, and what people ask about documents. Rooms are imported when needed."""

import os
import sys
from collections.abc import Mapping, Sequence

WORKER = "worker"
"""Hidden: the supervisor starts it, nobody else."""


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:2] == [WORKER, "--fd"]:
        # Here, not above: a worker needs neither options nor an HTTP server.
        from proxy.worker.main import main as work

        sys.exit(work(int(arguments[2])))
    sys.exit(_run(arguments, os.environ))


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from daemonkit.options import load
    from proxy.options import COMMANDS, DESCRIPTION, PREFIX, PROG, Options
    from proxy.supervisor.main import UnusableFile, serve

    _, options = load(
        Options, prog=PROG, prefix=PREFIX, argv=arguments, environ=environ, description=DESCRIPTION, commands=COMMANDS
    )
    try:
        return serve(options)
    except UnusableFile as error:
        sys.stderr.write(f"{PROG}: {error}\n")
        return 2
