"""The command lines of `check`, `explain`, `schema`, `edge-ca` and `tunnel-check`."""

import sys
from collections.abc import Callable, Mapping, Sequence

from daemonkit import standardfiles
from daemonkit.filereading import shown_name
from daemonkit.helpparser import HelpParser
from proxy.commands.sources import SourceError, read_file, read_running, read_token
from proxy.options import PROG

EXIT_WELL = 0
EXIT_NOT_WELL = 1
EXIT_USAGE = 2


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """`arguments` begins with the command."""
    command, *rest = arguments
    commands: dict[str, Callable[[Sequence[str], Mapping[str, str]], int]] = {
        "check": _check,
        "explain": _explain,
        "schema": _schema,
        "edge-ca": _edge_ca,
        "tunnel-check": _tunnel_check,
    }
    try:
        with standardfiles.printing(f"{PROG} {command}"):
            return commands[command](rest, environ)
    except SourceError as error:
        standardfiles.complain(f"{PROG} {command}: {error}\n")
        return EXIT_USAGE


def _check(arguments: Sequence[str], _environ: Mapping[str, str]) -> int:
    from proxy.commands.check import check

    parser = HelpParser(
        prog=f"{PROG} check",
        description="List what is wrong with documents, as PUT /config would: up to 20 problems each.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a document; - reads standard input")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.parse_args(arguments)
    documents, unread = [], []
    for name in found.files:
        try:
            documents.append((shown_name(name), read_file(name)))
        except SourceError as error:
            unread.append(str(error))
    is_sound = check(documents, as_json=found.json)
    if unread:
        raise SourceError("\n".join(unread))
    return EXIT_WELL if is_sound else EXIT_NOT_WELL


def _explain(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from proxy.commands.explain import Question, add_request, explain

    parser = HelpParser(
        prog=f"{PROG} explain",
        description="Show which listener, route and rule would get a request, why, and what would be done with it. "
        "Nothing is sent anywhere.",
        allow_abbrev=False,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", help="the document; - reads standard input")
    source.add_argument(
        "--proxy",
        metavar="URL",
        help="use the document of a running proxy, such as https://proxy.lan:8082 or unix:/path",
    )
    parser.add_argument(
        "--auth-token-file",
        metavar="FILE",
        help="with --proxy: a file that holds the proxy's token [PROXY_AUTH_TOKEN or PROXY_AUTH_TOKEN_FILE]",
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="with --proxy and https: CAs to trust (PEM) instead of the system's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_request(parser, "the listener that the client connects to, by name")
    found = parser.parse_intermixed_args(arguments)
    if found.config:
        data = read_file(found.config)
    else:
        data = read_running(found.proxy, read_token(found.auth_token_file, environ), found.ca_file)
    return EXIT_WELL if explain(data, Question.asked(found), as_json=found.json) else EXIT_NOT_WELL


def _schema(arguments: Sequence[str], _environ: Mapping[str, str]) -> int:
    from proxy.commands.schema import make_schema

    HelpParser(prog=f"{PROG} schema", description="Print the JSON Schema of documents.").parse_args(arguments)
    sys.stdout.write(make_schema())
    return EXIT_WELL


def _edge_ca(arguments: Sequence[str], _environ: Mapping[str, str]) -> int:
    from proxy.commands.edgeca import write_roots

    parser = HelpParser(
        prog=f"{PROG} edge-ca",
        description="Fetch the root certificates of the tunnel's edge, check them against the known fingerprints, and "
        "write them to a file for --edge-ca-file: for images, and for hosts without Internet access.",
        allow_abbrev=False,
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="where to write them (PEM); - is standard output")
    return EXIT_WELL if write_roots(parser.parse_args(arguments).out) else EXIT_NOT_WELL


def _tunnel_check(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    from proxy.commands.tunnelcheck import check_tunnel

    return check_tunnel(arguments, environ)
