"""The command line: one argparse parser built from the declarations, its `--help`, and the reference page in markdown.

argparse splits the command line and prints the help; values stay texts, so that every bad one can be reported together
with those of the environment. All commands share one parser: the command may come before, between or after the flags,
and the error for a flag that does not apply to it names the flag.
"""

import argparse
import difflib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from daemonkit import __version__
from daemonkit.helpparser import HelpParser
from daemonkit.optionsources import BadOptions, Problem
from daemonkit.optionspec import OptionSpec, specs_of
from daemonkit.values import parse_bool

_COMMAND = "(command)"
_RULES = (
    "A flag wins over its environment variable, which wins over the default. An empty variable counts as unset, except "
    "for a secret, where set but empty is refused."
)
_SPELLINGS = (
    "Durations are written 30s, 500ms or 1m30s; sizes 5242880, 64KiB or 5MiB; booleans true, false, 1, 0, yes or no."
)


class Parser(HelpParser):
    """Collects values as texts by field; raises BadOptions where argparse would exit."""

    def __init__(
        self, specs: Sequence[OptionSpec], commands: Mapping[str, str], questions: Mapping[str, str], **look: Any
    ) -> None:
        """`look`: argparse's arguments."""
        super().__init__(**look)
        self._specs = specs
        self._commands = commands
        self._questions = questions

    def error(self, message: str) -> NoReturn:
        raise BadOptions((Problem("", message),))

    def read(self, argv: Sequence[str]) -> tuple[str, dict[str, list[str]], list[Problem]]:
        """The command, the values given by flag, and the problems found with either."""
        specs, commands, questions = self._specs, self._commands, self._questions
        first = argv[0] if argv else "-"
        if commands and not first.startswith("-") and first not in commands:
            # The flags may belong to the command that was meant, so they are not reported.
            self.error(_unknown_command(first, commands, questions))
        words = _with_explicit_booleans(argv, specs)
        found, rest = self.parse_known_intermixed_args(words)
        flags: dict[str, list[str]] = {
            field: texts for field, texts in vars(found).items() if field != _COMMAND and texts is not None
        }
        command = getattr(found, _COMMAND, None) or next(iter(commands), "")
        unknown_flags = [word for word in rest if word.startswith("-")]
        if unknown_flags:
            # Words after an unknown flag are its values: they are neither checked nor repeated, since they may be
            # secret.
            return command, flags, [_unknown_flag(word, specs) for word in unknown_flags]
        problems = [Problem("", f"unexpected argument {word!r}{_if_truth(word, argv, specs)}") for word in rest]
        if commands and command not in commands:
            hint = _if_truth(command, argv, specs)
            text = f"unknown command {command!r}{hint}" if hint else _unknown_command(command, commands, questions)
            problems.append(Problem("", text))
        elif commands:
            problems += _misplaced(command, flags, specs)
        return command, flags, problems


def _unknown_command(word: str, commands: Mapping[str, str], questions: Mapping[str, str]) -> str:
    if word in questions:
        return f"the command {word!r} has to stand first, before its flags"
    return f"unknown command {word!r}, want one of {', '.join([*commands, *questions])}"


def _with_explicit_booleans(argv: Sequence[str], specs: Sequence[OptionSpec]) -> list[str]:
    """Rewrite `--dry-run` and `--no-dry-run` as `--dry-run=true` and `=false`: a flag must not eat the next word."""
    explicit = {}
    for spec in specs:
        if spec.is_boolean:
            explicit[spec.flag] = f"{spec.flag}=true"
            explicit[spec.negation] = f"{spec.flag}=false"
    return [explicit.get(word, word) for word in argv]


def _unknown_flag(word: str, specs: Sequence[OptionSpec]) -> Problem:
    name = word.partition("=")[0]
    for spec in specs:
        if spec.is_secret and name == spec.flag.removesuffix("-file"):
            # The value is not repeated: it is a secret.
            return Problem(
                spec.field,
                f"{name} does not exist, since other users could read it: use {spec.flag} or {spec.env}",
            )
    near = difflib.get_close_matches(name, [spec.flag for spec in specs], n=1)
    return Problem("", f"unknown flag {name}" + (f", did you mean {near[0]}?" if near else ""))


def _if_truth(word: str, argv: Sequence[str], specs: Sequence[OptionSpec]) -> str:
    """A hint for `--dry-run yes`, where the word was meant as the flag's value."""
    before = argv[argv.index(word) - 1] if word in argv[1:] else ""
    is_meant = _is_boolean(word) and any(spec.is_boolean and spec.flag == before for spec in specs)
    return f", did you mean {before}={word}?" if is_meant else ""


def _is_boolean(word: str) -> bool:
    try:
        parse_bool(word)
    except ValueError:
        return False
    return True


def _misplaced(command: str, flags: Mapping[str, object], specs: Sequence[OptionSpec]) -> list[Problem]:
    problems = []
    for spec in specs:
        wanted = spec.declaration.commands
        if spec.field in flags and wanted and command not in wanted:
            text = f"{spec.flag} makes no sense for the command {command!r}, only for {', '.join(wanted)}"
            problems.append(Problem(spec.field, text))
    return problems


def build_parser(
    specs: Sequence[OptionSpec],
    prog: str,
    description: str,
    commands: Mapping[str, str],
    questions: Mapping[str, str],
) -> Parser:
    """`commands` and `questions` as in `options.load`."""
    parser = Parser(
        specs,
        commands,
        questions,
        prog=prog,
        usage=f"{prog} [{'|'.join([*commands, *questions])}] [flags]" if commands else f"{prog} [flags]",
        description=_escape(_introduction(prog, description, commands, questions)),
        add_help=False,
        allow_abbrev=False,
        formatter_class=_help_formatter,
        epilog=_escape(f"{_filled(_RULES)}\n{_filled(_SPELLINGS)}"),
    )
    if commands:
        parser.add_argument(_COMMAND, nargs="?", help=argparse.SUPPRESS, default=None)
    general = parser.add_argument_group("general")
    general.add_argument("-h", "--help", action="help", help="show this page and exit")
    version = f"{prog} {__version__}"
    general.add_argument("--version", action="version", version=version, help="show the version and exit")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for spec in specs:
        group = groups.get(spec.declaration.group)
        if group is None:
            group = parser.add_argument_group(spec.declaration.group or "options")
            groups[spec.declaration.group] = group
        _add(group, spec)
    return parser


def _introduction(prog: str, description: str, commands: Mapping[str, str], questions: Mapping[str, str]) -> str:
    """The description, followed by one paragraph for each command."""
    lines = [_filled(description)]
    if commands:
        everything = {**commands, **questions}
        indent = 4 + max(map(len, everything))
        default = next(iter(commands))
        lines += ["", "commands:"]
        for name, text in everything.items():
            whole = f"  {name:{indent - 2}}{text}{' (when no command is given)' if name == default else ''}"
            lines.append(_filled(whole, " " * indent))
    if questions:
        example = next(iter(questions))
        whose = ", ".join(f"`{name}`" for name in commands)
        rule = f"Below are the flags of {whose}. Other commands list theirs, such as `{prog} {example} --help`."
        lines += ["", _filled(rule)]
    return "\n".join(lines)


def _filled(text: str, later_indent: str = "") -> str:
    return textwrap.fill(text, _width(), subsequent_indent=later_indent, break_on_hyphens=False)


def _width() -> int:
    return min(120, shutil.get_terminal_size().columns)


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=_width())


def _add(group: "argparse._ArgumentGroup", spec: OptionSpec) -> None:
    group.add_argument(
        spec.flag,
        dest=spec.field,
        action="append",
        default=None,
        metavar=spec.metavar,
        help=_escape(f"{_meaning(spec)} [{_variables(spec)}; default: {_default(spec)}]"),
    )


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _meaning(spec: OptionSpec) -> str:
    declaration = spec.declaration
    text = declaration.help
    if spec.is_secret:
        text += " (the flag names a file that holds it)"
    if spec.is_boolean:
        text += f" (also {spec.flag} alone, {spec.negation})"
    if spec.is_list:
        text += " (separated by commas, or the flag repeated)"
    if declaration.commands:
        text += f" (only for {', '.join(declaration.commands)})"
    return text


def _variables(spec: OptionSpec) -> str:
    return f"{spec.env} or {spec.file_env}" if spec.is_secret else spec.env


def _default(spec: OptionSpec) -> str:
    default = spec.declaration.default
    return "none" if default is None else default or "empty"


def reference_page(options: type[Any], *, prog: str, prefix: str, description: str) -> str:
    """All options as a markdown page: one table per group, in declaration order."""
    lines = [f"# Options of `{prog}`", "", description, ""]
    lines += [*textwrap.wrap(_RULES, 100), "", *textwrap.wrap(_SPELLINGS, 100), ""]
    tables: dict[str, list[OptionSpec]] = {}
    for spec in specs_of(options, prefix):
        tables.setdefault(spec.declaration.group or "options", []).append(spec)
    for group, specs in tables.items():
        lines += [f"## {group[:1].upper()}{group[1:]}", "", "| flag | variable | default | unit | meaning |"]
        lines += ["|---|---|---|---|---|", *(_row(spec) for spec in specs), ""]
    return "\n".join(lines)


def _row(spec: OptionSpec) -> str:
    variables = " or ".join(f"`{name}`" for name in _variables(spec).split(" or "))
    default = f"`{spec.declaration.default}`" if spec.declaration.default else _default(spec)
    meaning = _meaning(spec) + (f" (one of {', '.join(f'`{word}`' for word in spec.choices)})" if spec.choices else "")
    cells = [f"`{spec.flag}`", variables, default, spec.declaration.unit or "", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
