"""The files of a folder taken together: one object per name, and all problems.

If a document is refused, the last good version of its object stays; likewise those of all objects in a file that is not
YAML, and of all files in a folder that cannot be read. If two documents define one object, the first one counts, in the
order of paths. As in the API, the controllerName of a GatewayClass cannot be changed, whichever file has the class now.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

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
    """Last good versions of objects whose document in this file is refused now."""
    problems: tuple[Problem, ...]

    @property
    def good(self) -> tuple[Admitted, ...]:
        return (*self.kept, *self.admitted)


_NO_FILE = _File((), (), ())


class Manifests:
    """The files by path, kept up to date as they are added, changed and removed."""

    def __init__(self, last_good: LastGood | None = None) -> None:
        """`last_good`: what a former process knew about broken files."""
        self._files = {name: _File((), kept, ()) for name, kept in (last_good or {}).items()}
        self._failed: set[str] = set()
        self._classes: Mapping[Entry, Admitted] = {}
        """The GatewayClasses of the last reading."""

    def put(self, path: Path, octets: bytes) -> None:
        name = str(path)
        self._failed.discard(name)
        self._files[name] = _read(octets, name, self._files.get(name, _NO_FILE))

    def fail(self, path: Path, reason: str) -> None:
        """The file or folder exists, but cannot be read."""
        name = str(path)
        self._failed.add(name)
        kept = self._files.get(name, _NO_FILE).good
        self._files[name] = _File((), kept, (Problem(name, 1, reason),))

    def remove(self, path: Path) -> None:
        self._failed.discard(str(path))
        self._files.pop(str(path), None)

    def last_good(self) -> LastGood:
        """The objects that a new process would not get by reading the folder now."""
        return {
            name: good
            for name, file in self._files.items()
            if (good := file.good if self._is_hidden(name) else file.kept)
        }

    def _is_hidden(self, name: str) -> bool:
        """Whether a folder above it cannot be read."""
        return any(name.startswith(f"{place}{os.sep}") for place in self._failed)

    def reading(self) -> Reading:
        reading = self._taken_together()
        while renamed := [*self._renamed(reading)]:
            for before, after in renamed:
                self._refuse_new_name(before, after)
            reading = self._taken_together()
        self._classes = {entry: each for entry, each in reading.admitted.items() if entry.table == Kind.GATEWAY_CLASS}
        return reading

    def _renamed(self, reading: Reading) -> Iterator[tuple[Admitted, Admitted]]:
        """Classes that have another controllerName than in the last reading: as they were then, and as they are now."""
        for entry, before in self._classes.items():
            after = reading.admitted.get(entry)
            if after is not None and _controller_name(before) != _controller_name(after):
                yield before, after

    def _refuse_new_name(self, before: Admitted, after: Admitted) -> None:
        """The file that has the class now keeps what was said before."""
        file = self._files[after.file]
        admitted = tuple(each for each in file.admitted if each is not after)
        kept = tuple(each for each in file.kept if each is not after)  # `after` may be a last good version itself
        same = msgspec.structs.replace(before, file=after.file, line=after.line)
        problem = _new_name(before, after, after.line)
        self._files[after.file] = _File(admitted, (*kept, same), (*file.problems, problem))

    def _taken_together(self) -> Reading:
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
                    reason = f"{each.entry.table} {each.entry.key} is already defined at {first.where}"
                    problems.append(Problem(name, each.line, reason, each.entry))
        for each in kept:
            found.setdefault(each.entry, each)
        return Reading(found, tuple(problems))


def read_all(files: Sequence[tuple[str, bytes]], last_good: LastGood | None = None) -> Reading:
    """Reads the files once, for commands. `last_good`: what was known about broken files."""
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
    # A refused document whose object is unknown may be any of the objects that are missing now.
    kept = [each for entry, each in last_good.items() if entry not in here and (entry in refused or None in refused)]
    return _File(tuple(admitted), tuple(kept), tuple(problems))


def _updated(before: Admitted, after: Admitted, document: Document) -> Admitted | list[Problem]:
    """The object's new version, if the change is allowed: a class whose controllerName changed by mistake would take
    all of its Gateways with it."""
    if before.entry.table != Kind.GATEWAY_CLASS:
        return after
    if _controller_name(before) == _controller_name(after):
        return after
    return [_new_name(before, after, document.line_of(("spec", "controllerName")))]


def _controller_name(of_class: Admitted) -> str:
    return str(of_class.document["spec"]["controllerName"])


def _new_name(before: Admitted, after: Admitted, line: int) -> Problem:
    was, is_ = _controller_name(before), _controller_name(after)
    reason = (
        f"spec.controllerName was {was!r} and is {is_!r}, which the API does not allow; "
        "what was said before still holds. Give another class a name of its own, or remove this one for a moment"
    )
    return Problem(after.file, line, reason, after.entry)
