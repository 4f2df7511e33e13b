"""What an API server would remember of each object: uid, generation, creation time. Kept in the status folder.

The generation rises when anything but metadata and status changes, even if no controller was running then.
"""

import uuid
from pathlib import Path

import msgspec

from daemonkit.filereading import TooLarge, read_regular
from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.admission import Remembered

_FILE = ".ledger.json"
_MAX_BYTES = 256 * 1024 * 1024
"""Room for a million objects."""

_log = get_logger("tunnelgw.sources.directory")


class Ledger:
    def __init__(self, folder: Path) -> None:
        """Raises OSError if the file exists but cannot be read; a damaged file is ignored."""
        self._path = folder / _FILE
        self._entries: dict[Entry, Remembered] = {}
        self._is_dirty = False
        try:
            content = read_regular(self._path, _MAX_BYTES)
            rows = msgspec.json.decode(content, type=list[tuple[Kind, str, str, Remembered]])
        except FileNotFoundError:
            return
        except (TooLarge, ValueError, RecursionError) as error:
            _log.warning("saved generations of manifests are damaged, ignoring them", error, file=str(self._path))
            return
        self._entries = {Entry(kind, Key(namespace, name)): found for kind, namespace, name, found in rows}

    def get(self, entry: Entry) -> Remembered | None:
        return self._entries.get(entry)

    def note(self, entry: Entry, digest: str, now: str) -> Remembered:
        """What is remembered about an object whose content has this digest now."""
        old = self._entries.get(entry)
        if old is not None and old.digest == digest:
            return old
        if old is None:
            new = Remembered(str(uuid.uuid4()), 1, now, digest)
        else:
            new = Remembered(old.uid, old.generation + 1, old.created, digest)
        self._entries[entry] = new
        self._is_dirty = True
        return new

    def forget(self, entry: Entry) -> None:
        if self._entries.pop(entry, None):
            self._is_dirty = True

    def entries(self) -> frozenset[Entry]:
        return frozenset(self._entries)

    def save(self) -> None:
        """Writes the file if anything has changed. Raises OSError."""
        if self._is_dirty:
            rows = [(entry.table, *entry.key, found) for entry, found in self._entries.items()]
            replace_file(self._path, msgspec.json.encode(rows))
            self._is_dirty = False
