"""Where the value of each option comes from: flag, environment variable, secret file, default.

Every error becomes a `Problem`, so that the user sees all of them at once. No problem contains a secret's text.
"""

import difflib
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from daemonkit.filereading import TooLarge, read_input
from daemonkit.optionspec import OptionSpec
from daemonkit.secret import Secret

MAX_SECRET_FILE_BYTES = 64 * 1024

# Kubernetes puts the Services of a namespace into the environment: DNSWEBHOOK_PORT_8080_TCP=tcp://10.0.0.1:8080.
_SERVICE_VARIABLE = re.compile(r"(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_.*)?)")


class ProblemKind(Enum):
    WRONG = "wrong"
    EMPTY = "empty"
    """A secret that is set but empty: never filled in, as opposed to misspelt."""


@dataclass(frozen=True)
class Problem:
    """One error; `field` is the option's name in the dataclass, empty if no single option is the cause."""

    field: str
    text: str
    kind: ProblemKind = ProblemKind.WRONG


class BadOptions(ValueError):
    """Everything that is wrong with the options."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(problem.text for problem in problems))
        self.problems = problems


class _EmptySecret(ValueError):
    pass


def read_values(
    specs: Sequence[OptionSpec], flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The values that were given, by field, and the problems; `flags` holds texts by field."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    excluders = {excluded: spec for spec in specs if (excluded := spec.declaration.excludes) and flags.get(spec.field)}
    for spec in specs:
        read = _read_secret if spec.is_secret else _read_plain
        excluder, texts = excluders.get(spec.field), flags.get(spec.field, ())
        try:
            if excluder is None:
                read(spec, texts, environ, values)
            elif texts:
                raise ValueError(f"{excluder.flag} and {spec.flag} exclude each other")
        except _EmptySecret as error:
            problems.append(Problem(spec.field, str(error), ProblemKind.EMPTY))
        except ValueError as error:
            problems.append(Problem(spec.field, str(error)))
    return values, problems


def _read_plain(spec: OptionSpec, texts: Sequence[str], environ: Mapping[str, str], values: dict[str, Any]) -> None:
    if texts:
        origin, text = "the flag", ",".join(texts) if spec.is_list else texts[-1]
        if not text.strip() and not spec.is_list:
            raise ValueError(f"{spec.names}: the flag was given an empty value; leave it out for the default")
    else:
        origin, text = f"the environment variable {spec.env}", environ.get(spec.env, "")
        if not text.strip():
            return
    try:
        values[spec.field] = spec.declaration.parse(text)
    except ValueError as error:
        raise ValueError(f"{spec.names}, taken from {origin}: {error}") from error


def _read_secret(spec: OptionSpec, files: Sequence[str], environ: Mapping[str, str], values: dict[str, Any]) -> None:
    if files:
        values[spec.field] = read_secret(files[-1], f"{spec.flag} ({spec.file_env})")
        return
    if spec.env in environ and spec.file_env in environ:
        raise ValueError(f"{spec.env} and {spec.file_env} are both set, want only one of them")
    if spec.env in environ:
        values[spec.field] = _secret(environ[spec.env], f"{spec.env} is set but empty")
    elif spec.file_env in environ:
        if not environ[spec.file_env].strip():
            raise _EmptySecret(f"{spec.file_env} is set but empty")
        values[spec.field] = read_secret(environ[spec.file_env].strip(), f"{spec.file_env} ({spec.flag})")


def _secret(text: str, when_empty: str, path: str = "") -> Secret:
    text = text.strip()
    if not text:
        raise _EmptySecret(when_empty)
    return Secret(text, path)


def read_secret(path: str, names: str) -> Secret:
    """The secret in a file; `names` is used in error messages. Raises ValueError."""
    try:
        octets = read_input(path, MAX_SECRET_FILE_BYTES)
    except TooLarge as error:
        raise ValueError(
            f"{names}: the file {path!r} is larger than {MAX_SECRET_FILE_BYTES} bytes, too large for a secret"
        ) from error
    except (OSError, ValueError) as error:
        detail = error.strerror if isinstance(error, OSError) else str(error)
        shown = repr(path)
        if isinstance(error, OSError) and not path.startswith("/") and not os.path.lexists(path):
            shown = "(a relative path, not repeated: it may be the secret itself)"
        # `from None`: the original error contains the path.
        raise ValueError(f"{names}: cannot read the file {shown}: {detail}") from None
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError:
        # `from None`: the original error contains the file's content.
        raise ValueError(f"{names}: the file {path!r} is not UTF-8 text") from None
    return _secret(text, f"{names}: the file {path!r} is empty", path)


def unknown_variables(
    specs: Sequence[OptionSpec], prefixes: Sequence[str], environ: Mapping[str, str]
) -> list[tuple[str, str | None]]:
    """Variables that have one of the prefixes but match no option, each with the most similar option."""
    known = {spec.env for spec in specs} | {spec.file_env for spec in specs if spec.is_secret}
    unknown = []
    for name in sorted(environ):
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        if prefix is None or name in known or _SERVICE_VARIABLE.fullmatch(name.removeprefix(prefix)):
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
        unknown.append((name, near[0] if near else None))
    return unknown
