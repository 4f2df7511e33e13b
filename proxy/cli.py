"""The command `tunnelgw-proxy`: runs the daemon, or a command for people. Each imports what it needs only when run."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from daemonkit import interrupts, logs, standardfiles
from daemonkit.logs import get_logger

if TYPE_CHECKING:
    from daemonkit.options import BadOptions

log = get_logger(__name__)

QUESTIONS = {
    "check": "list what is wrong with documents",
    "explain": "show what would be done with a request, and why",
    "schema": "print the JSON Schema of documents",
    "edge-ca": "fetch the root certificates of the tunnel's edge",
    "tunnel-check": "try each step of connecting a tunnel, and suggest a remedy for what fails",
}
"""The commands for people; see `proxy.commands`."""
_TUNNEL_REFUSED = "refusing to start with a broken tunnel token"
_BROKEN_AUTH = "refusing to start with a broken config-API auth configuration"
_FATAL_WHEN_EMPTY = {
    "auth_token": _BROKEN_AUTH,
    "tunnel_token": _TUNNEL_REFUSED,
}
WORKER = "worker"
"""The hidden command with which the supervisor starts its workers."""


def main() -> None:
    interrupts.end_on_interrupt()
    interrupts.notice_children()
    standardfiles.open_missing()
    arguments = sys.argv[1:]
    if arguments[:2] == [WORKER, "--fd"]:
        # Imported here: a worker needs neither options nor an HTTP server.
        from proxy.worker.main import main as work

        sys.exit(work(int(arguments[2])))
    if arguments[:1] and arguments[0] in QUESTIONS:
        from proxy.commands.main import run

        sys.exit(run(arguments, os.environ))
    sys.exit(_run(arguments, os.environ))


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    # A SIGHUP during the start must not end the process: it stays pending until `supervisor.main` handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from daemonkit.options import load
    from proxy.options import COMMANDS, DESCRIPTION, PREFIX, PROG, Options

    _, options = load(
        Options,
        prog=PROG,
        prefix=PREFIX,
        argv=arguments,
        environ=environ,
        description=DESCRIPTION,
        commands=COMMANDS,
        questions=QUESTIONS,
        on_bad=lambda bad: _end_on_empty_secret(bad, environ),
    )
    if options.auth_token is not None and not options.auth_token.fits_header():
        source = options.auth_token.path or "PROXY_AUTH_TOKEN"
        log.error(_BROKEN_AUTH, error=f"the token, from {source}, cannot be sent: want one line of printable ASCII")
        return 1
    from daemonkit.lifecycle import StartFailed
    from proxy.control import refusal
    from proxy.supervisor.firstworkers import first_workers
    from proxy.supervisor.limits import raise_open_files

    try:
        raise_open_files()
    except StartFailed as error:
        log.error("exiting", error=error, daemon=PROG)
        return 1
    if (refused := refusal()) is not None:
        log.error("exiting", error=refused, daemon=PROG)
        return 1
    jit = _jit() if options.jit else None
    with first_workers(options.worker_count, jit) as first:
        # Imported here, while the workers start.
        from proxy.supervisor.main import UnusableFile, serve
        from proxy.tunnel.token import MalformedToken

        try:
            return serve(options, first, jit)
        except MalformedToken as error:
            log.error(_TUNNEL_REFUSED, error=error)
            return 1
        except UnusableFile as error:
            standardfiles.complain(f"{PROG}: {error}\n")
            return 2


def _jit() -> bool:
    """Whether workers can use the JIT. If not, this logs why; they then work without it, only slower."""
    from proxy.supervisor.jit import missing

    reason = missing()
    if reason is not None:
        log.warning("PROXY_JIT is set, but workers run without the JIT", error=reason)
    return reason is None


def _end_on_empty_secret(bad: "BadOptions", environ: Mapping[str, str]) -> None:
    """Exit with code 1 and a log line if a secret is set but empty, as with a Kubernetes Secret that was never filled;
    other bad options are usage errors, with code 2."""
    from daemonkit.options import ProblemKind

    empty = {problem.field: problem.text for problem in bad.problems if problem.kind is ProblemKind.EMPTY}
    for field, msg in _FATAL_WHEN_EMPTY.items():
        if field in empty:
            logs.setup("info", "text" if environ.get("LOG_FORMAT") == "text" else "json")
            log.error(msg, error=empty[field])
            sys.exit(1)
