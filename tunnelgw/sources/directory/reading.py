"""What the files of a folder say together: one object per name, and all problems.

A document that is refused leaves its object as it was last good; so does a file that cannot be read as YAML, for all
its objects, and a folder that cannot be read, for all its files. Of two documents for one object the first counts, in
the order of paths. The one field of the API that can never change does not change here either.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.admission import Admitted, Problem, admit
from tunnelgw.sources.directory.lastgood import LastGood
from tunnelgw.sources.directory.manifests import BrokenFile, Document, documents


class Reading(NamedTuple):
    admitted: Mapping[Entry, Admitted]
    problems: tuple[Problem, ...]


class _File(NamedTuple):
    admitted: tuple[Admitted, ...]
    kept: tuple[Admitted, ...]
    """Last good versions of what this file says in a way that is refused now."""
    problems: tuple[Problem, ...]

    @property
    def good(self) -> tuple[Admitted, ...]:
        return (*self.kept, *self.admitted)


_NO_FILE = _File((), (), ())


class Manifests:
    """The files by path, as they come and go."""

    def __init__(self, last_good: LastGood | None = None) -> None:
        """`last_good`: what a former process knew of files that were broken."""
        self._files = {name: _File((), kept, ()) for name, kept in (last_good or {}).items()}
        self._failed: set[str] = set()

    def put(self, path: Path, octets: bytes) -> None:
        name = str(path)
        self._failed.discard(name)
        self._files[name] = _read(octets, name, self._files.get(name, _NO_FILE))

    def fail(self, path: Path, reason: str) -> None:
        """A file, or a folder, is there but cannot be read."""
        name = str(path)
        self._failed.add(name)
        kept = self._files.get(name, _NO_FILE).good
        self._files[name] = _File((), kept, (Problem(name, 1, reason),))

    def remove(self, path: Path) -> None:
        self._failed.discard(str(path))
        self._files.pop(str(path), None)

    def last_good(self) -> LastGood:
        """What the folder as it is now would not say to who reads it for the first time."""
        return {
            name: good
            for name, file in self._files.items()
            if (good := file.good if self._failed and self._is_hidden(name) else file.kept)
        }

    def _is_hidden(self, name: str) -> bool:
        """A folder above it cannot be read."""
        return any(name.startswith(f"{place}{os.sep}") for place in self._failed)

    def reading(self) -> Reading:
        found: dict[Entry, Admitted] = {}
        kept: list[Admitted] = []
        problems: list[Problem] = []
        for name in sorted(self._files):
            file = self._files[name]
            problems += file.problems
            kept += file.kept
            for each in file.admitted:
                first = found.setdefault(each.entry, each)
                if first is not each:
                    reason = f"{each.entry.room} {each.entry.key} is at {first.where} already"
                    problems.append(Problem(name, each.line, reason, each.entry))
        for each in kept:
            found.setdefault(each.entry, each)
        return Reading(found, tuple(problems))


def read_all(files: Sequence[tuple[str, bytes]], last_good: LastGood | None = None) -> Reading:
    """Of files that are read once, for commands. `last_good`: what was known of files that were broken."""
    known = last_good or {}
    manifests = Manifests({name: known[name] for name, _ in files if name in known})
    for name, octets in files:
        manifests.put(Path(name), octets)
    return manifests.reading()


def _read(octets: bytes, name: str, before: _File) -> _File:
    last_good = {each.entry: each for each in before.good}
    try:
        parts = documents(octets)
    except BrokenFile as broken:
        return _File((), tuple(last_good.values()), (Problem(name, broken.line, broken.reason),))
    admitted: list[Admitted] = []
    problems: list[Problem] = []
    for part in parts:
        result = admit(part, name)
        if isinstance(result, Admitted) and (known := last_good.get(result.entry)):
            result = _updated(known, result, part)
        if isinstance(result, Admitted):
            admitted.append(result)
        else:
            problems += result
    refused = {problem.entry for problem in problems}
    here = {each.entry for each in admitted}
    # A document that nobody can put a name to may be any of those that are missing now.
    kept = [each for entry, each in last_good.items() if entry not in here and (entry in refused or None in refused)]
    return _File(tuple(admitted), tuple(kept), tuple(problems))


def _updated(before: Admitted, after: Admitted, document: Document) -> Admitted | list[Problem]:
    """What an object becomes, where that may be. A class that went over to another controller by a slip would take
    all of its Gateways with it."""
    if before.entry.room != Kind.GATEWAY_CLASS:
        return after
    was, is_ = (each.document["spec"]["controllerName"] for each in (before, after))
    if was == is_:
        return after
    reason = (
        f"spec.controllerName was {was!r} and is {is_!r}, which the API does not allow; "
        "what was said before still holds. Give another class a name of its own, or remove this one for a moment"
    )
    return [Problem(after.file, document.line_of(("spec", "controllerName")), reason, after.entry)]
