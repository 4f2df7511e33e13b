"""Problems of a document, each with the path of its field in the document's own spelling."""

import json

import msgspec

MAX_PROBLEMS = 20
MAX_EXCERPT = 60


class Problem(msgspec.Struct, frozen=True, gc=False):
    """One thing that is wrong."""

    path: str
    """Such as `routes[3].rules[0].matches[1].path.value`; empty for the document as a whole."""
    message: str
    """What was seen and what is wanted; never contains a private key."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DocumentError(Exception):
    """The document is refused. `decode` and `Reader.read` raise nothing else."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
        """At least one and at most MAX_PROBLEMS."""


class Findings:
    """Collects problems; keeps the first MAX_PROBLEMS."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def add(self, path: str, message: str) -> None:
        if not self.is_full:
            self._problems.append(Problem(path, message))

    def __bool__(self) -> bool:
        return bool(self._problems)

    @property
    def is_full(self) -> bool:
        return len(self._problems) >= MAX_PROBLEMS

    def raise_if_any(self) -> None:
        if self._problems:
            raise DocumentError(tuple(self._problems))


def excerpt(value: object) -> str:
    """A value from a document, fit for a message: one line of JSON, shortened, and never a private key."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str) and "PRIVATE KEY" in value:
        return "a private key"
    text = json.dumps(value)
    return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"
