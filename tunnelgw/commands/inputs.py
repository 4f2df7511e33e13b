"""The objects that a command is about, read once from files or (see `listing`) from an API server."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from daemonkit.filereading import read_input
from daemonkit.values import shown_path
from tunnelgw.model.gateways import Gateway, holding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.directory.admission import Problem, Remembered
from tunnelgw.sources.directory.folder import Folder
from tunnelgw.sources.directory.lastgood import LastGood, LastGoodFile
from tunnelgw.sources.directory.ledger import Ledger
from tunnelgw.sources.directory.manifests import MOST_BYTES
from tunnelgw.sources.directory.reading import read_all
from tunnelgw.sources.directory.statuses import StatusFolder, is_status
from tunnelgw.sources.directory.surroundings import surroundings

STATUS = "status"
_MAX_BYTES = 16 * MOST_BYTES
"""Larger files are not even read."""


class CannotAnswer(Exception):
    """The command cannot be carried out as given; the message says what to do."""


class Inputs(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    problems: tuple[Problem, ...] = ()
    """Documents that were refused before they became objects, or objects of an API server that cannot be read."""
    skipped: tuple[Problem, ...] = ()
    """Manifests in the status folder, where no controller looks for any."""
    places: Mapping[Entry, str] = {}
    """File and line of each object that came from a file."""
    has_all_secrets: bool = False
    """The controller finds no Secrets but these: there are some, or it reads this folder."""


def from_files(names: Iterable[str], status_dir: str = "") -> Inputs:
    """Reads files, folders with everything below them, or standard input (`-`), as they are now. Raises CannotAnswer.

    What a running controller remembers about a folder's objects, and the statuses that it wrote, are read from
    `status_dir`, by default `status` in the first folder; nothing is written there.
    """
    return _read([*names], status_dir, lambda _: {})


def from_controlled(names: Iterable[str], status_dir: str = "") -> Inputs:
    """Likewise, but as the folder's controller has the objects: broken ones are in their last good version.

    Raises CannotAnswer.
    """
    return _read([*names], status_dir, LastGoodFile.load)


def _read(names: Sequence[str], status_dir: str, recall: Callable[[LastGoodFile], LastGood]) -> Inputs:
    try:
        folder = next((Path(name) for name in names if Path(name).is_dir()), None)
        remembered = Path(status_dir) if status_dir else folder / STATUS if folder else None
        last_good = recall(LastGoodFile(remembered, folder)) if remembered and folder else {}
        reading = read_all([*_contents(names, status_dir)], last_good)
        ledger = Ledger(remembered) if remembered else None
        skipped = tuple(_skipped(names, status_dir))
    except OSError as error:
        raise CannotAnswer(f"{shown_path(str(error.filename))}: {error.strerror or error}") from error
    is_controlled = folder is not None and ledger is not None and bool(status_dir or ledger.entries())
    mentioned = (*reading.admitted, *(problem.entry for problem in reading.problems))
    statuses = StatusFolder(remembered) if remembered else None
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items: list[tuple[Kind, Object]] = []
    for entry, admitted in reading.admitted.items():
        if ledger is None or statuses is None:
            known, status = Remembered(f"{entry.table} {entry.key}", 1, now, admitted.digest), b""
        else:
            known = ledger.note(entry, admitted.digest, now)
            status = statuses.read(entry, known.uid)
        item = admitted.object(known, status)
        items.append((Kind(entry.table), holding(item) if isinstance(item, Gateway) else item))
    items += surroundings(reading.admitted)
    return Inputs(
        Snapshot.of(items),
        reading.problems,
        skipped,
        {entry: admitted.where for entry, admitted in reading.admitted.items()},
        is_controlled or any(entry is not None and entry.table is Kind.SECRET for entry in mentioned),
    )


def _contents(names: Iterable[str], status_dir: str) -> Iterator[tuple[str, bytes]]:
    """Raises OSError and CannotAnswer."""
    for name in names:
        path = Path(name)
        if name == "-":
            yield "-", sys.stdin.buffer.read()
        elif path.is_dir():
            changes = Folder(path, _status_folder(path, status_dir)).look()
            for unreadable, reason in changes.failed.items():
                raise CannotAnswer(f"{unreadable}: {reason}")
            yield from ((str(each), octets) for each, octets in sorted(changes.read.items()))
        else:
            try:
                yield name, read_input(path, _MAX_BYTES)
            except OSError as error:  # not every OSError has the file name
                raise CannotAnswer(f"{shown_path(name)}: {error.strerror or error}") from error


def _skipped(names: Iterable[str], status_dir: str) -> Iterator[Problem]:
    """Files in the status folders that look like manifests, as far as these folders can be read."""
    for path in map(Path, names):
        folder = _status_folder(path, status_dir)
        try:
            is_below = path.is_dir() and folder.resolve().is_relative_to(path.resolve())
            found = Folder(folder).look().read if is_below else {}
        except OSError:
            continue
        reason = f"not read, nor does a controller read it: {folder} is for the statuses that it writes, "
        reason += "unless --status-dir (TUNNELGW_STATUS_DIR) names another folder for them"
        for file, octets in sorted(found.items()):
            if not is_status(octets):
                yield Problem(str(file), 1, reason)


def _status_folder(path: Path, status_dir: str) -> Path:
    return Path(status_dir) if status_dir else path / STATUS
