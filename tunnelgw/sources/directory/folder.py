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


_Signature = tuple[int, int, int, int]
"""Device, inode, bytes, time of modification."""


class Changes(NamedTuple):
    read: dict[Path, bytes]
    """New content of files that came or changed."""
    gone: frozenset[Path]
    failed: dict[Path, str]
    """Files that cannot be read, and why, if that is news."""


class Folder:
    def __init__(self, root: Path, left_out: Path | None = None) -> None:
        """`left_out`: a folder below that holds no manifests."""
        self._root = root
        self._left_out = left_out
        self._known: dict[str, _Signature] = {}
        self._failed: dict[Path, str] = {}

    def look(self) -> Changes:
        """What has changed since the last call. Raises OSError when the folder itself cannot be read."""
        found = dict(self._files())
        read: dict[Path, bytes] = {}
        failed: dict[Path, str] = {}
        # A file written again within a tick of the clock shows no change, so a fresh one is looked at again.
        fresh_since_ns = time.time_ns() - _STILL_NS
        for name, signature in found.items():
            if self._known.get(name) == signature:
                continue
            device, _inode, size_bytes, modified_ns = signature
            is_fresh = modified_ns > fresh_since_ns
            if is_fresh and name in self._known:
                found[name] = self._known[name]
                continue
            path = Path(name)
            try:
                read[path] = path.read_bytes()
            except OSError as error:
                failed[path] = error.strerror or str(error)
            if is_fresh or path in failed:  # a mode that is mended shows neither in size nor in time
                found[name] = (device, 0, size_bytes, modified_ns)
        gone = frozenset(Path(name) for name in self._known.keys() - found.keys())
        news = {path: reason for path, reason in failed.items() if self._failed.get(path) != reason}
        self._known, self._failed = found, failed
        return Changes(read, gone, news)

    def _files(self) -> Iterator[tuple[str, _Signature]]:
        """Texts, not paths: a look at 10,000 files should not make 10,000 objects that nobody needs."""
        pending = [str(self._root)]
        # Links may lead in circles, so each folder counts once.
        seen = {_place(self._root.stat())}
        if self._left_out and self._left_out.exists():
            seen.add(_place(self._left_out.stat()))
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    try:
                        status = entry.stat()
                    except OSError:  # a link to nothing, or gone already
                        continue
                    if stat.S_ISREG(status.st_mode):
                        if entry.name.endswith(_SUFFIXES):
                            yield entry.path, (*_place(status), status.st_size, status.st_mtime_ns)
                    elif stat.S_ISDIR(status.st_mode) and _place(status) not in seen:
                        seen.add(_place(status))
                        pending.append(entry.path)


def _place(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)
