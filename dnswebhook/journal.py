"""Stores unsettled ownership records on disk, so that a killed process does not leave them behind.

Notes are saved before the writes they concern, so a crash at any moment leaves either no write or a note. If the file
cannot be written (no state directory, full disk), notes live as long as the process, and this is logged once.

Notes that have not been in use for an hour are dropped at startup. A state directory may come back: from a backup, or
with a node that was away while another one took over. Its notes do not reflect what was written since, so acting on
them could remove the ownership record of a record that exists by now. Leaving one behind because its note was dropped
does less harm. As long as notes are in use, the file is rewritten from time to time, even if they have not changed.

For the same reason, notes of another running daemon are not used; a lock on the directory detects one. A daemon that
does not get the lock keeps its own notes in memory. When the other daemon ends, as after overlapping restarts, its
notes are dropped: we may have written since. Only the thread whose turn it is to read or write the store may call.
"""

import contextlib
import fcntl
import hashlib
import os
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from daemonkit.filereading import read_regular
from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from dnswebhook.notes import Note

log = get_logger(__name__)

FILE_NAME = "unsettled-ownership.json"
MAX_AGE_S = 3600.0
REFRESH_S = 600.0
_MAX_BYTES = 64 * 1024 * 1024
"""More than notes about the largest accepted body need."""


class _Saved(msgspec.Struct, frozen=True):
    store: str
    notes: msgspec.Raw = msgspec.field(name="vouchers")
    """Under a name that files of earlier versions have."""
    written_at: float
    """Seconds since 1970."""
    sha256: str = ""
    """Of `notes`, in hex: following a wrong note could remove somebody else's ownership record."""


_decoder = msgspec.json.Decoder(_Saved)
_notes_decoder = msgspec.json.Decoder(tuple[Note, ...])


def _notes_of(saved: _Saved) -> tuple[Note, ...]:
    """Raises ValueError if they are not what was written."""
    if saved.sha256 and saved.sha256 != _digest(saved.notes):
        raise ValueError("the content is not what was written, is the disk failing?")
    return _notes_decoder.decode(saved.notes)


def _digest(content: bytes | msgspec.Raw) -> str:
    return hashlib.sha256(content).hexdigest()


class Journal:
    def __init__(
        self, directory: Path | None = None, store: str = "", wall_clock: Callable[[], float] = time.time
    ) -> None:
        """`store` identifies the store, since several may use the same directory one after another."""
        self._path = directory / FILE_NAME if directory else None
        self._store = store
        self._wall_clock = wall_clock
        self._written_at = 0.0
        self._is_directory_ours = False
        self._is_in_use = False
        """Whether another daemon was using the directory when last checked."""
        self._rare_log = log.every(3600.0)
        self._in_use_log = log.every(3600.0)
        self._notes = self._load()

    @property
    def notes(self) -> tuple[Note, ...]:
        return self._notes

    def look_again(self) -> None:
        """Take the directory over if another daemon was using it and has ended. To be called for each listing, even if
        there are no notes: those that the other one has left must not be followed after the next start."""
        if self._is_in_use:
            self.replace(self._notes)

    def add(self, notes: Iterable[Note]) -> None:
        """Add notes; for each row, the newest one counts."""
        merged = {(note.name, note.value): note for note in (*self._notes, *notes)}
        self.replace(tuple(merged.values()))

    def replace(self, notes: tuple[Note, ...]) -> None:
        is_out_of_date = self._is_in_use or (notes and self._age_s(self._written_at) > REFRESH_S)
        if notes == self._notes and not is_out_of_date:
            return
        self._notes = notes
        if self._path is None:
            return
        self._written_at = self._wall_clock()
        try:
            if not self._has_directory(self._path.parent):
                return
            if notes:
                content = msgspec.json.encode(notes)
                saved = _Saved(self._store, msgspec.Raw(content), self._written_at, _digest(content))
                replace_file(self._path, msgspec.json.encode(saved))
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            self._rare_log.warning(
                "notes about ownership records cannot be saved, a restart would lose them",
                error=error,
                path=str(self._path),
            )
            with contextlib.suppress(OSError):  # its content is out of date, and would be used after a restart
                self._path.unlink()

    def _has_directory(self, directory: Path) -> bool:
        """Whether no other process uses the directory; checked again on each call while one does. Raises OSError."""
        if self._is_directory_ours:
            return True
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            self._is_in_use = True
            self._in_use_log.warning(
                "the state directory is in use by another dnswebhook, notes are kept in memory",
                path=str(directory),
                remedy="give each its own --state-dir (DNSWEBHOOK_STATE_DIR)",
            )
            return False
        except OSError:  # a file system without locks
            log.debug("the state directory cannot be locked", path=str(directory))
        weakref.finalize(self, os.close, descriptor)
        self._is_directory_ours = True
        self._is_in_use = False
        return True

    def _age_s(self, moment: float) -> float:
        """The absolute age: if `moment` is in the future, the clock was wrong then, or is now."""
        return abs(self._wall_clock() - moment)

    def _load(self) -> tuple[Note, ...]:
        if self._path is None:
            return ()
        try:
            if self._path.parent.exists() and not self._has_directory(self._path.parent):
                return ()
            saved = _decoder.decode(read_regular(self._path, _MAX_BYTES))
            notes = _notes_of(saved)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            log.warning(
                "saved notes about ownership records cannot be read, ignoring them", error=error, path=str(self._path)
            )
            return ()
        if saved.store != self._store:
            return ()
        if (age_s := self._age_s(saved.written_at)) > MAX_AGE_S:
            log.warning(
                "saved notes about ownership records are too old, ignoring them", age_s=int(age_s), path=str(self._path)
            )
            with contextlib.suppress(OSError):
                self._path.unlink()
            return ()
        self._written_at = saved.written_at
        return notes
