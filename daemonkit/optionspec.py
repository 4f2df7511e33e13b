"""What an option is: declared once as a field of a frozen dataclass, used by the parser, the help and the reference.

    @dataclass(frozen=True, kw_only=True)
    class Options(CommonOptions):
        api_addr: ListenAddress = option(parse=ListenAddress.parse, default="127.0.0.1:8888", help="where ...")

The flag and the environment variable are derived from the field's name (`--api-addr`, `DNSWEBHOOK_API_ADDR`; a unit at
the end of the name, such as `_s` or `_bytes`, is left out). The declaration may name another variable, to keep names
that users already know from other programs. Defaults are written as a person would write them, and parsed the same way.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from daemonkit.secret import Secret
from daemonkit.values import Choice, CommaList, parse_bool, parse_file, parse_text

_METADATA_KEY: Final = "daemonkit.option"
_METAVARS: Final = {"duration": "DURATION", "bytes": "SIZE"}
_UNIT_SUFFIXES: Final = ("_s", "_bytes", "_ms")


@dataclass(frozen=True)
class _Declaration:
    """The arguments of `option(...)`."""

    parse: Callable[[str], Any]
    default: str | None
    help: str
    unit: str | None
    env: str | None
    secret: bool
    metavar: str | None
    group: str
    commands: tuple[str, ...]
    excludes: str


def option(
    *,
    help: str,
    parse: Callable[[str], Any] = parse_text,
    default: str | None = None,
    unit: str | None = None,
    env: str | None = None,
    secret: bool = False,
    metavar: str | None = None,
    group: str = "",
    commands: Sequence[str] = (),
    excludes: str = "",
) -> Any:
    """A dataclass field that is an option.

    `default` None: the value is None unless given. `secret`: the value is a Secret and never taken from the command
    line, only from the variable, from the file named by `<VARIABLE>_FILE`, or from the file named by `--<name>-file`.
    `commands`: the commands to which the flag applies; empty means all. `excludes`: the field of another option;
    the flag is refused beside the other's, and takes precedence over its variable.
    """
    if secret and default is not None:
        raise TypeError("a secret has no default")
    declaration = _Declaration(
        Secret if secret else parse, default, help, unit, env, secret, metavar, group, tuple(commands), excludes
    )
    value = None if default is None else parse(default)
    return dataclasses.field(default=value, metadata={_METADATA_KEY: declaration})


@dataclass(frozen=True)
class OptionSpec:
    """One option with its names in one daemon."""

    field: str
    flag: str
    """`--api-addr`; for a secret, the flag that names its file: `--api-key-file`."""
    env: str
    declaration: _Declaration

    @property
    def file_env(self) -> str:
        """The variable that names a secret's file."""
        return f"{self.env}_FILE"

    @property
    def is_secret(self) -> bool:
        return self.declaration.secret

    @property
    def is_boolean(self) -> bool:
        return self.declaration.parse is parse_bool

    @property
    def is_list(self) -> bool:
        return isinstance(self.declaration.parse, CommaList)

    @property
    def choices(self) -> tuple[str, ...]:
        """The only allowed values; empty if they cannot be listed."""
        return self.declaration.parse.words if isinstance(self.declaration.parse, Choice) else ()

    @property
    def negation(self) -> str:
        return f"--no-{self.flag.removeprefix('--')}"

    @property
    def names(self) -> str:
        """Flag and variable, for messages."""
        return f"{self.flag} ({self.env})"

    @property
    def metavar(self) -> str:
        if self.declaration.metavar:
            return self.declaration.metavar
        if self.is_secret or self.declaration.parse is parse_file:
            return "FILE"
        if self.is_boolean:
            return "true|false"
        if self.choices:
            return "|".join(self.choices)
        if self.is_list:
            return "VALUE,..."
        return _METAVARS.get(self.declaration.unit or "", "VALUE")


def specs_of(options: type[Any], prefix: str) -> tuple[OptionSpec, ...]:
    """The options of a dataclass, in declaration order."""
    specs = []
    for field in dataclasses.fields(options):
        declaration: _Declaration | None = field.metadata.get(_METADATA_KEY)
        if declaration is None:
            raise TypeError(f"field {field.name} of {options.__name__} is not an option: declare it with option(...)")
        specs.append(_spec(field.name, declaration, prefix))
    return tuple(specs)


def _spec(field: str, declaration: _Declaration, prefix: str) -> OptionSpec:
    name = field
    for suffix in _UNIT_SUFFIXES:
        name = name.removesuffix(suffix)
    flag = f"--{name.replace('_', '-')}{'-file' if declaration.secret else ''}"
    return OptionSpec(field, flag, declaration.env or f"{prefix}{name.upper()}", declaration)
