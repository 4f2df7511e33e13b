"""The command lines of `check`, `explain`, `status` and `diff`."""

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daemonkit import standardfiles
from daemonkit.helpparser import HelpParser
from daemonkit.values import parse_file
from tunnelgw.commands.inputs import CannotAnswer, Inputs, from_controlled, from_files
from tunnelgw.options import (
    DEFAULT_CONTROLLER,
    DEFAULT_NAMESPACE,
    PREFIX,
    PROG,
    Options,
    parse_controller_name,
    parse_namespace,
    parse_namespaces,
)

EXIT_WELL = 0
EXIT_NOT_WELL = 1
EXIT_USAGE = 2

Environ = Mapping[str, str]


def run(arguments: Sequence[str], environ: Environ) -> int:
    """`arguments` begins with the command."""
    command, *rest = arguments
    logging.getLogger("tunnelgw").addHandler(logging.NullHandler())  # these lines say what the daemon would do next
    commands: dict[str, Callable[[Sequence[str], Environ], bool]] = {
        "check": _check,
        "explain": _explain,
        "status": _status,
        "diff": _diff,
    }
    try:
        with standardfiles.printing(f"{PROG} {command}"):
            is_well = commands[command](rest, environ)
    except CannotAnswer as error:
        standardfiles.complain(f"{PROG} {command}: {error}\n")
        return EXIT_USAGE
    return EXIT_WELL if is_well else EXIT_NOT_WELL


def _parser(command: str, environ: Environ, description: str) -> argparse.ArgumentParser:
    parser = HelpParser(prog=f"{PROG} {command}", description=description, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--controller-name",
        type=_typed(parse_controller_name, "TUNNELGW_CONTROLLER_NAME"),
        default=environ.get("TUNNELGW_CONTROLLER_NAME") or DEFAULT_CONTROLLER,
        help="spec.controllerName of our GatewayClasses [TUNNELGW_CONTROLLER_NAME; default: %(default)s]",
    )
    return parser


def _add_source(parser: argparse.ArgumentParser, environ: Environ) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--manifests",
        action="append",
        metavar="PATH",
        help="a folder or file of manifests, - for standard input, instead of an API server; may be repeated "
        "[TUNNELGW_MANIFESTS]",
    )
    _add_status_dir(parser, environ)
    source.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig of the API server [KUBECONFIG; default: ~/.kube/config]",
    )
    _add_namespace(parser, environ)
    parser.add_argument(
        "--secret-namespaces",
        type=_typed(parse_namespaces, "TUNNELGW_SECRET_NAMESPACES"),
        default=environ.get("TUNNELGW_SECRET_NAMESPACES", ""),
        metavar="NAMESPACE,...",
        help="read Secrets only in these namespaces and the controller's own, as the controller does "
        "[TUNNELGW_SECRET_NAMESPACES; default: in all]",
    )


def _typed(parse: Callable[[str], Any], variable: str) -> Callable[[str], Any]:
    """A type for argparse, whose errors do not say that a text may come from the variable."""

    def typed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error} (the flag, or {variable})") from error

    return typed


def _add_namespace(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.add_argument(
        "--namespace",
        type=_typed(parse_namespace, "TUNNELGW_NAMESPACE"),
        default=environ.get("TUNNELGW_NAMESPACE") or DEFAULT_NAMESPACE,
        help="the controller's own namespace [TUNNELGW_NAMESPACE; default: %(default)s]",
    )


def _add_status_dir(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parser.add_argument(
        "--status-dir",
        default=environ.get("TUNNELGW_STATUS_DIR", ""),
        metavar="DIR",
        help="where the controller of that folder writes statuses [TUNNELGW_STATUS_DIR; default: status in the folder]",
    )


def _inputs(found: argparse.Namespace, environ: Environ) -> Inputs:
    """A flag takes precedence over all variables. Raises CannotAnswer."""
    variable = environ.get("TUNNELGW_MANIFESTS", "") if found.kubeconfig is None else ""
    manifests = found.manifests or ([variable] if variable else [])
    if manifests:
        return from_controlled(manifests, found.status_dir)
    from tunnelgw.commands.listing import from_api_server

    kubeconfig = found.kubeconfig or environ.get("KUBECONFIG", "")
    try:
        file = parse_file(kubeconfig) if kubeconfig else ""
    except ValueError as error:
        raise CannotAnswer(f"--kubeconfig (KUBECONFIG): {error}") from error
    return from_api_server(file, found.namespace, found.secret_namespaces)


def _check(arguments: Sequence[str], environ: Environ) -> bool:
    from tunnelgw.commands.check import check

    parser = _parser(
        "check",
        environ,
        "Show which manifests would be accepted or refused, and why, without a cluster. Exit code 1 if something is "
        "refused, for use in pre-commit hooks.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="folders or files; - reads standard input")
    _add_status_dir(parser, environ)
    parser.add_argument("--all", action="store_true", help="also list what is accepted, and what is not ours")
    _add_namespace(parser, environ)
    found = parser.parse_args(arguments)
    inputs = from_files(found.paths, found.status_dir)
    return check(inputs, found.controller_name, found.namespace, as_json=found.json, wants_all=found.all)


def _explain(arguments: Sequence[str], environ: Environ) -> bool:
    from proxy.commands.explain import Question, add_request
    from proxy.commands.sources import SourceError
    from tunnelgw.commands.explain import explain

    parser = _parser(
        "explain",
        environ,
        "Show which Gateway, listener, route and rule would serve a request, why, what would be done with it, and what "
        "nearly matched. Nothing is sent anywhere.",
    )
    _add_source(parser, environ)
    add_request(parser, "only through this listener: namespace/gateway/listener")
    found = parser.parse_intermixed_args(arguments)
    try:
        question = Question.asked(found)
    except SourceError as error:
        raise CannotAnswer(str(error)) from error
    return explain(_inputs(found, environ), found.controller_name, found.namespace, question, as_json=found.json)


def _status(arguments: Sequence[str], environ: Environ) -> bool:
    from tunnelgw.commands.status import status

    parser = _parser(
        "status",
        environ,
        "Show the stored statuses of Gateways, listeners and routes. Exit code 1 if any is not well, outdated or "
        "pending.",
    )
    _add_source(parser, environ)
    found = parser.parse_args(arguments)
    return status(_inputs(found, environ), found.controller_name, as_json=found.json)


def _diff(arguments: Sequence[str], environ: Environ) -> bool:
    """Takes the options of `run`, since it must reach everything that the controller reaches."""
    from daemonkit.options import load

    as_json = "--json" in arguments
    rest = [argument for argument in arguments if argument != "--json"]
    _, options = load(
        Options,
        prog=f"{PROG} diff",
        prefix=PREFIX,
        argv=rest,
        environ=environ,
        description="Show what the controller would change in the proxies and at the provider. Nothing is written. "
        "Takes the options of `tunnelgw run`, and --json. Exit code 1 if something would change, 2 if not "
        "everything could be compared.",
    )
    from tunnelgw.commands.diff import NotAllAsked, diff
    from tunnelgw.commands.token import token_of
    from tunnelgw.means import discovery_of, means_of

    if options.reads_folder:
        inputs = from_controlled([str(options.manifests_path)], str(options.status_path))
    else:
        from tunnelgw.commands.listing import from_api_server

        inputs = from_api_server(options.kubeconfig or "", options.namespace, options.secret_namespaces)
    try:
        return diff(inputs, discovery_of(options, token_of(options)), means_of(options), as_json=as_json)
    except NotAllAsked as error:
        raise CannotAnswer(str(error)) from error
