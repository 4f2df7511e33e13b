"""The command `tunnelgw`: the daemon, and commands for people. Packages are imported only when needed."""

import os
import sys
from collections.abc import Mapping, Sequence

from daemonkit import interrupts, standardfiles

QUESTIONS = {
    "check": "show which manifests would be accepted or refused, and why",
    "explain": "show how a request would be handled, and why",
    "status": "show the state of Gateways, listeners and routes",
    "diff": "show what would change in the proxies and at the provider",
}
"""Commands for people; see `tunnelgw.commands`."""


def main() -> None:
    interrupts.end_on_interrupt()
    interrupts.notice_children()
    standardfiles.open_missing()
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] in QUESTIONS:
        from daemonkit.memory import spare_the_collector
        from tunnelgw.commands.main import run

        spare_the_collector()  # what is read from large manifests is needed until the end
        sys.exit(run(arguments, os.environ))
    sys.exit(_run(arguments, os.environ))


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    interrupts.ignore_hangup()
    from daemonkit.options import load
    from tunnelgw.options import COMMANDS, DESCRIPTION, PREFIX, PROG, Options

    _, options = load(
        Options,
        prog=PROG,
        prefix=PREFIX,
        argv=arguments,
        environ=environ,
        description=DESCRIPTION,
        commands=COMMANDS,
        questions=QUESTIONS,
    )
    from tunnelgw.daemon import serve  # takes half a second, which --help and wrong options do not need

    return serve(options)
