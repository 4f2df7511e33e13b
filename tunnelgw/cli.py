"""The command `tunnelgw`: the daemon, and what people ask of it. Rooms are imported when needed."""

import os
import sys
from collections.abc import Mapping, Sequence

RUN = "run"


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] != RUN and not arguments[0].startswith("-"):
        sys.stderr.write(f"tunnelgw: unknown command {arguments[0]!r}, want {RUN}\n")
        sys.exit(2)
    sys.exit(_run(arguments, os.environ))


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from daemonkit.options import load
    from tunnelgw.daemon import serve
    from tunnelgw.options import COMMANDS, DESCRIPTION, PREFIX, PROG, Options

    _, options = load(
        Options, prog=PROG, prefix=PREFIX, argv=arguments, environ=environ, description=DESCRIPTION, commands=COMMANDS
    )
    return serve(options)
