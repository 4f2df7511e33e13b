"""Remembers unsettled ownership records on disk, so that a killed process does not leave them behind.

Written before the writes that it is about, so a crash at any moment finds either no trace or a note. Where the file
cannot be written (no state directory, full disk), notes live as long as the process, and one line says so.
One thread at a time may call, the one whose turn it is to read or write the store.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from dnswebhook.vouchers import Voucher

log = get_logger(__name__)

FILE_NAME = "unsettled-ownership.json"


class _Notes(msgspec.Struct, frozen=True):
    store: str
    vouchers: tuple[Voucher, ...]


_decoder = msgspec.json.Decoder(_Notes)


class Journal:
    def __init__(self, directory: Path | None = None, store: str = "") -> None:
        """`store` tells stores apart that use the same directory one after the other."""
        self._path = directory / FILE_NAME if directory else None
        self._store = store
        self._vouchers = self._load()
        self._rare_log = log.every(3600.0)

    @property
    def vouchers(self) -> tuple[Voucher, ...]:
        return self._vouchers

    def note(self, vouchers: Iterable[Voucher]) -> None:
        """Add to what is noted; of one row the newest note counts."""
        merged = {(voucher.name, voucher.value): voucher for voucher in (*self._vouchers, *vouchers)}
        self.replace(tuple(merged.values()))

    def replace(self, vouchers: tuple[Voucher, ...]) -> None:
        if vouchers == self._vouchers:
            return
        self._vouchers = vouchers
        if self._path is None:
            return
        try:
            if vouchers:
                replace_file(self._path, msgspec.json.encode(_Notes(self._store, vouchers)))
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            self._rare_log.warning(
                "unsettled ownership records cannot be remembered across a restart", error=error, path=str(self._path)
            )
            with contextlib.suppress(OSError):  # what it says is out of date, and would be followed after a restart
                self._path.unlink()

    def _load(self) -> tuple[Voucher, ...]:
        if self._path is None:
            return ()
        try:
            notes = _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("remembered ownership records are unreadable, forgotten", error=error, path=str(self._path))
            return ()
        return notes.vouchers if notes.store == self._store else ()
