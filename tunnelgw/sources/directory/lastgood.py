"""Last good versions of objects that are broken in the folder now, kept in the status folder. An API server would have
refused the broken edit, so a restart must not end what was served before it.

Objects are kept as documents and admitted again when they are loaded, so that a newer version of this program judges
them anew. They may include Secrets; only the daemon's user can read the file.
"""

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from daemonkit.filereading import TooLarge, read_regular, shown_name
from daemonkit.logs import get_logger
from daemonkit.statefile import replace_file
from tunnelgw.sources.directory.admission import Admitted, admit
from tunnelgw.sources.directory.manifests import Document
from tunnelgw.sources.directory.schema.shapes import Place

_FILE = ".last-good.json"
_MAX_BYTES = 256 * 1024 * 1024
"""Room for ten thousand objects, all of them large and broken."""

_log = get_logger("tunnelgw.sources.directory")

LastGood = Mapping[str, tuple[Admitted, ...]]
"""Objects by file."""


class _Row(msgspec.Struct, frozen=True, omit_defaults=True):
    file: str
    """The file's path, relative to the folder."""
    line: int
    document: msgspec.Raw
    sha256: str = ""
    """Of the document, in hex: a byte that went wrong on the disk may be one of a hostname."""
    octets: bytes = b""
    """The path as bytes if it is not UTF-8; then `file` is a printable form of it."""


class LastGoodFile:
    def __init__(self, folder: Path, root: Path) -> None:
        """`folder`: where to keep the file; `root`: the folder of manifests."""
        self._path = folder / _FILE
        self._root = root
        self._saved: LastGood = {}

    def load(self) -> LastGood:
        """What was saved last; a damaged file is ignored. Raises OSError if it exists but cannot be read."""
        try:
            rows = msgspec.json.decode(read_regular(self._path, _MAX_BYTES), type=list[_Row])
            documents = [*map(_document_of, rows)]
        except FileNotFoundError:
            return {}
        except (TooLarge, ValueError, RecursionError) as error:
            _log.warning("saved last good manifests are damaged, ignoring them", error, file=str(self._path))
            return {}
        found: dict[str, tuple[Admitted, ...]] = {}
        for row, document in zip(rows, documents, strict=True):
            name = str(self._root / (os.fsdecode(row.octets) if row.octets else row.file))
            admitted = admit(Document(document, partial(_line, row.line)), name)
            if isinstance(admitted, Admitted):
                found[name] = (*found.get(name, ()), admitted)
        self._saved = found
        return found

    def save(self, kept: LastGood) -> None:
        """Writes the file if anything has changed. Raises OSError."""
        if kept == self._saved:
            return
        rows = [self._row(name, each) for name, several in kept.items() for each in several]
        if rows:
            replace_file(self._path, msgspec.json.encode(rows))
        else:
            self._path.unlink(missing_ok=True)
        self._saved = kept

    def _row(self, name: str, admitted: Admitted) -> _Row:
        file = str(Path(name).relative_to(self._root))
        shown = shown_name(file)
        content = msgspec.json.encode(admitted.document)
        octets = b"" if shown == file else os.fsencode(file)
        return _Row(shown, admitted.line, msgspec.Raw(content), _digest(content), octets)


def _document_of(row: _Row) -> dict[str, Any]:
    """Raises ValueError if it is not what was written."""
    if row.sha256 and row.sha256 != _digest(row.document):
        raise ValueError("the content is not what was written, is the disk failing?")
    return msgspec.json.decode(row.document, type=dict[str, Any])


def _digest(content: bytes | msgspec.Raw) -> str:
    return hashlib.sha256(content).hexdigest()


def _line(line: int, _place: Place) -> int:
    return line
