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
from dnswebhook.vouchers import Voucher

log = get_logger(__name__)

FILE_NAME = "unsettled-ownership.json"
MAX_AGE_S = 3600.0
REFRESH_S = 600.0
_MAX_BYTES = 64 * 1024 * 1024
"""More than notes about the largest accepted body need."""


class _Notes(msgspec.Struct, frozen=True):
    store: str
    vouchers: msgspec.Raw
    written_at: float
    """Seconds since 1970."""
    sha256: str = ""
    """Of `vouchers`, in hex: following a wrong note could remove somebody else's ownership record."""


_decoder = msgspec.json.Decoder(_Notes)
_vouchers_decoder = msgspec.json.Decoder(tuple[Voucher, ...])


def _vouchers_of(notes: _Notes) -> tuple[Voucher, ...]:
    """Raises ValueError if they are not what was written."""
    if notes.sha256 and notes.sha256 != _digest(notes.vouchers):
        raise ValueError("the content is not what was written, is the disk failing?")
    return _vouchers_decoder.decode(notes.vouchers)


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
        self._vouchers = self._load()

    @property
    def vouchers(self) -> tuple[Voucher, ...]:
        return self._vouchers

    def look_again(self) -> None:
        """Take the directory over if another daemon was using it and has ended. To be called for each listing, even if
        there are no notes: those that the other one has left must not be followed after the next start."""
        if self._is_in_use:
            self.replace(self._vouchers)

    def note(self, vouchers: Iterable[Voucher]) -> None:
        """Add notes; for each row, the newest one counts."""
        merged = {(voucher.name, voucher.value): voucher for voucher in (*self._vouchers, *vouchers)}
        self.replace(tuple(merged.values()))

    def replace(self, vouchers: tuple[Voucher, ...]) -> None:
        is_out_of_date = self._is_in_use or (vouchers and self._age_s(self._written_at) > REFRESH_S)
        if vouchers == self._vouchers and not is_out_of_date:
            return
        self._vouchers = vouchers
        if self._path is None:
            return
        self._written_at = self._wall_clock()
        try:
            if not self._has_directory(self._path.parent):
                return
            if vouchers:
                content = msgspec.json.encode(vouchers)
                notes = _Notes(self._store, msgspec.Raw(content), self._written_at, _digest(content))
                replace_file(self._path, msgspec.json.encode(notes))
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

    def _load(self) -> tuple[Voucher, ...]:
        if self._path is None:
            return ()
        try:
            if self._path.parent.exists() and not self._has_directory(self._path.parent):
                return ()
            notes = _decoder.decode(read_regular(self._path, _MAX_BYTES))
            vouchers = _vouchers_of(notes)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            log.warning(
                "saved notes about ownership records cannot be read, ignoring them", error=error, path=str(self._path)
            )
            return ()
        if notes.store != self._store:
            return ()
        if (age_s := self._age_s(notes.written_at)) > MAX_AGE_S:
            log.warning(
                "saved notes about ownership records are too old, ignoring them", age_s=int(age_s), path=str(self._path)
            )
            with contextlib.suppress(OSError):
                self._path.unlink()
            return ()
        self._written_at = notes.written_at
        return vouchers
