"""The files of a folder, and which of them have changed since the last look.

Regular files that end in .yaml, .yml or .json, in all folders below; what begins with a dot is skipped. Links are
followed, so the folder may be a ConfigMap's mount, which is replaced by turning a link. A file that is being written is
left alone until it has been still for a moment.
"""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SUFFIXES = (".yaml", ".yml", ".json")
_STILL_NS = 150_000_000


class _Signature(NamedTuple):
    device: int
    inode: int
    size_bytes: int
    modified_ns: int


class Changes(NamedTuple):
    read: dict[Path, bytes]
    """New content of files that came or changed."""
    gone: frozenset[Path]
    failed: dict[Path, str]
    """Files that cannot be read, and why."""


class Folder:
    def __init__(self, root: Path, left_out: Path | None = None) -> None:
        """`left_out`: a folder below that holds no manifests."""
        self._root = root
        self._left_out = left_out.resolve() if left_out else None
        self._known: dict[Path, _Signature] = {}

    def look(self) -> Changes:
        """What has changed since the last call. Raises OSError when the folder itself cannot be read."""
        found = dict(self._files())
        read: dict[Path, bytes] = {}
        failed: dict[Path, str] = {}
        # A file written again within a tick of the clock shows no change, so a fresh one is looked at again.
        fresh_since_ns = time.time_ns() - _STILL_NS
        for path, signature in found.items():
            if self._known.get(path) == signature:
                continue
            if signature.modified_ns > fresh_since_ns and path in self._known:
                found[path] = self._known[path]
                continue
            try:
                read[path] = path.read_bytes()
            except OSError as error:
                failed[path] = error.strerror or str(error)
            if signature.modified_ns > fresh_since_ns:
                found[path] = signature._replace(inode=0)
        gone = frozenset(self._known.keys() - found.keys())
        self._known = found
        return Changes(read, gone, failed)

    def _files(self) -> Iterator[tuple[Path, _Signature]]:
        pending = [self._root]
        seen: set[tuple[int, int]] = set()
        while pending:
            folder = pending.pop()
            for entry in sorted(os.scandir(folder), key=lambda each: each.name):
                if entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat()
                except OSError:  # a link to nothing, or gone already
                    continue
                path = Path(entry.path)
                if stat.S_ISDIR(status.st_mode):
                    place = (status.st_dev, status.st_ino)
                    if place not in seen and path.resolve() != self._left_out:
                        seen.add(place)
                        pending.append(path)
                elif stat.S_ISREG(status.st_mode) and entry.name.endswith(_SUFFIXES):
                    yield path, _Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
