"""From the command line and the environment to a daemon's frozen Options, or to a list of everything wrong with them.

A flag takes precedence over a variable, and a variable over the default. An empty variable counts as unset, except for
a secret: there it is refused, as is a secret given twice (`NAME` and `NAME_FILE`). All problems are reported at once,
each with flag, variable and the origin of the value, on stderr with exit code 2. `load` sets up logging as requested,
and warns about variables that have the daemon's prefix but are not among its options.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from daemonkit import logs
from daemonkit.optionhelp import Parser, build_parser, reference_page
from daemonkit.optionsources import BadOptions, Problem, ProblemKind, read_values, unknown_variables
from daemonkit.optionspec import OptionSpec, option, specs_of
from daemonkit.standardfiles import complain
from daemonkit.values import choice, duration

__all__ = [
    "BadOptions",
    "CommonOptions",
    "Problem",
    "ProblemKind",
    "load",
    "option",
    "parse",
    "reference_page",
    "refuse",
]

O = TypeVar("O")  # noqa: E741 - the Options class of a daemon

EXIT_BAD_OPTIONS = 2
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options that every daemon has."""

    SHARED_PREFIXES: ClassVar[tuple[str, ...]] = ()
    """Variable prefixes that other programs use too; misspelt variables with them also cause a warning."""

    log_level: str = option(
        parse=choice(*logs.LEVELS), default="info", env="LOG_LEVEL", group="common", help="lowest level that is logged"
    )
    log_format: str = option(
        parse=choice(*logs.FORMATS),
        default="json",
        env="LOG_FORMAT",
        group="common",
        help="json: one object per line; text: human-readable",
    )
    grace_period_s: float = option(
        parse=duration(0, 3600),
        default="30s",
        unit="duration",
        group="common",
        help="time for running requests to finish after SIGTERM",
    )


def load(
    options: type[O],
    *,
    prog: str,
    prefix: str,
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    description: str = "",
    commands: Mapping[str, str] = _NONE,
    questions: Mapping[str, str] = _NONE,
    on_bad: Callable[[BadOptions], None] = lambda _bad: None,
) -> tuple[str, O]:
    """The chosen one of `commands` (name -> help; the first is the default; "" if there are none), and the options.

    `questions` are further commands with options of their own: `--help` lists them, but they are run elsewhere. Exits
    the process: with 0 after `--help` and `--version`, with 2 after printing every problem. `on_bad` is called before
    that, and may end the process in another way.
    """
    argv = sys.argv[1:] if argv is None else argv
    environ = os.environ if environ is None else environ
    specs = specs_of(options, prefix)
    parser = build_parser(specs, prog, description, commands, questions)
    try:
        command, instance = _parse(parser, options, specs, argv, environ)
    except BadOptions as bad:
        on_bad(bad)
        refuse(prog, [*(problem.text for problem in bad.problems), *_misspelt(options, prefix, environ)])
    if isinstance(instance, CommonOptions):
        logs.setup(instance.log_level, instance.log_format)
    _warn_of_unknown_variables(options, prefix, environ)
    return command, instance


def parse(
    options: type[O],
    *,
    prefix: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    commands: Mapping[str, str] = _NONE,
) -> tuple[str, O]:
    """Like `load`, but raises BadOptions, and logs and prints nothing."""
    specs = specs_of(options, prefix)
    return _parse(build_parser(specs, "", "", commands, {}), options, specs, argv, environ)


def _parse(
    parser: Parser,
    options: type[O],
    specs: Sequence[OptionSpec],
    argv: Sequence[str],
    environ: Mapping[str, str],
) -> tuple[str, O]:
    command, flags, problems = parser.read(argv)
    values, more = read_values(specs, flags, environ)
    problems += more
    if problems:
        raise BadOptions(tuple(problems))
    try:
        return command, options(**values)
    except ValueError as error:
        # Raised by the dataclass itself for options that cannot be combined.
        raise BadOptions((Problem("", str(error)),)) from error


def _warn_of_unknown_variables(options: type[Any], prefix: str, environ: Mapping[str, str]) -> None:
    log = logs.get_logger(__name__)
    for name, near in _unknown_variables(options, prefix, environ):
        fields = {"did_you_mean": near} if near else {}
        log.warning("unknown environment variable, ignored", variable=name, **fields)


def _misspelt(options: type[Any], prefix: str, environ: Mapping[str, str]) -> list[str]:
    """Unknown variables that resemble a known one: they may explain why the value they were meant to set is missing."""
    unknown = _unknown_variables(options, prefix, environ)
    return [f"unknown environment variable {name}, did you mean {near}?" for name, near in unknown if near]


def _unknown_variables(options: type[Any], prefix: str, environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    prefixes = (prefix, *getattr(options, "SHARED_PREFIXES", ()))
    return unknown_variables(specs_of(options, prefix), prefixes, environ)


def refuse(prog: str, problems: Sequence[str]) -> NoReturn:
    """Print what is wrong with the options, and exit with EXIT_BAD_OPTIONS."""
    lines = [f"{prog}: {problem}" for problem in problems]
    complain("\n".join([*lines, f"See `{prog} --help`.", ""]))
    raise SystemExit(EXIT_BAD_OPTIONS)
