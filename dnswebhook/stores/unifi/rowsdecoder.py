"""Decodes an array of rows, in which rows that are not records may look like anything (pure).

Both APIs list more than records, and new types will come. Their rows may use a property that we know with another
meaning: one such row must not keep all others from being read.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

Row = TypeVar("Row")

_raw_rows = msgspec.json.Decoder(list[msgspec.Raw])


class RowsDecoder(Generic[Row]):
    def __init__(self, row: type[Row], no_record: Callable[[bytes], Row | None]) -> None:
        """`no_record` returns what must be known about a row whose type we do not handle, and None for all others."""
        self._rows = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]
        self._row = msgspec.json.Decoder(row)
        self._no_record = no_record

    def decode(self, octets: bytes, /) -> list[Row]:
        """Raises msgspec.DecodeError, even for a single malformed record: the listing would be incomplete."""
        try:
            return self._rows.decode(octets)
        except msgspec.ValidationError:
            return [self._decode_row(index, bytes(raw)) for index, raw in enumerate(_raw_rows.decode(octets))]

    def _decode_row(self, index: int, octets: bytes) -> Row:
        try:
            return self._row.decode(octets)
        except msgspec.ValidationError as error:
            row = None
            with suppress(msgspec.ValidationError):  # its type or its id cannot be read
                row = self._no_record(octets)
            if row is None:
                raise msgspec.ValidationError(f"{error}, in row {index}") from error
            return row
