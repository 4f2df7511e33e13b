"""The files of a folder, and which of them have changed since the last look.

It looks at regular files that end in .yaml, .yml or .json, in the folder and all folders below it; names that begin
with a dot are skipped. Links are followed, so the folder may be a ConfigMap's mount, which is updated by replacing a
link. A file that is being written is read only when it has been unchanged for a moment; if that does not happen for a
while, the file counts as unreadable, so that people are told. If a folder below cannot be read, what is known about it
is kept.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tunnelgw.sources.directory.manifests import MOST_BYTES

_SUFFIXES = (".yaml", ".yml", ".json")
_STILL_NS = 150_000_000
_RESTLESS_NS = 10 * 10**9
_RESTLESS = "it is written again and again, and is read once it has been still for 0.15 s"
_LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors for a link to nowhere or to itself, or for a file that has just been deleted."""

_Signature = tuple[int, int, int, int]
"""Device, inode, size, modification time."""
_UNREAD: _Signature = (0, 0, 0, 0)
"""No file has this signature, so a file recorded with it is read at the next opportunity."""


class Changes(NamedTuple):
    read: dict[Path, bytes]
    """New content of files that were added or changed."""
    gone: frozenset[Path]
    """Files that were removed, and folders that can be read again."""
    failed: dict[Path, str]
    """Files and folders that cannot be read, with the reason, if it is new."""


class _Motion(NamedTuple):
    """A file that may be in the middle of being written. Times are of our own clock."""

    signature: _Signature
    since_ns: int
    """When it was first seen with this signature."""
    began_ns: int
    """When it was first seen as being written."""


class _Reading(NamedTuple):
    """The outcome of reading a file."""

    signature: _Signature | None
    """The signature to record for it. None: the file does not exist."""
    octets: bytes | None = None
    problem: str = ""


class _Sight(NamedTuple):
    """What one look found."""

    files: dict[str, _Signature]
    """By name, as `str` and not as `Path`: a look at 10,000 files should not create 10,000 unneeded objects."""
    unreadable: dict[str, str]
    """Folders that cannot be read, and links whose target cannot be determined, with the reason."""
    seen: set[tuple[int, int]]
    """Folders seen so far. Each is looked at once, since links may form loops."""
    folders: list[str]


class Folder:
    def __init__(
        self,
        root: Path,
        left_out: Path | None = None,
        known: Iterable[str] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`left_out`: a folder below, without manifests. `known`: files known to a former process, to notice which are
        gone."""
        self._root = root
        self._left_out = left_out
        self._clock_ns = clock_ns
        # In the folder `.`, names are found with a leading `./`, which `Path` drops.
        before = f".{os.sep}" if root == Path() else ""
        self._known = {before + name: _UNREAD for name in known}
        self._never_read = set(self._known)
        """Files of a former process that this one has not read: there is no previous state of them that could stay."""
        self._moving: dict[str, _Motion] = {}
        self._failed: dict[Path, str] = {}
        self.folders: list[str] = []
        """The folder and all folders below it, as of the last look."""

    @property
    def is_settled(self) -> bool:
        """Whether no file was being written at the last look."""
        return not self._moving

    def look(self) -> Changes:
        """What has changed since the last call. Raises OSError if the folder itself cannot be read."""
        found, unreadable, _, self.folders = self._sight()
        if found == self._known and not unreadable:
            self._moving = {}
            return Changes({}, frozenset(), {})
        for name in self._known.keys() - found.keys() if unreadable else ():
            if any(name.startswith(f"{place}{os.sep}") for place in unreadable):
                found[name] = self._known[name]
        read: dict[Path, bytes] = {}
        failed = {Path(name): reason for name, reason in unreadable.items()}
        moving, self._moving = self._moving, {}
        changed = [name for name, signature in found.items() if self._known.get(name) != signature]
        for name in changed:
            reading = self._read(name, found[name], moving)
            if reading.signature is None:
                del found[name]
                continue
            found[name] = reading.signature
            if reading.octets is not None:
                read[Path(name)] = reading.octets
            if reading.problem:
                failed[Path(name)] = reading.problem
        found |= dict.fromkeys(unreadable, _UNREAD)
        gone = frozenset(Path(name) for name in self._known.keys() - found.keys())
        news = {path: reason for path, reason in failed.items() if self._failed.get(path) != reason}
        self._known, self._failed = found, failed
        return Changes(read, gone, news)

    def _read(self, name: str, signature: _Signature, moving: dict[str, _Motion]) -> _Reading:
        """Read a file that was added or changed. While it is being written, its previous state stays."""
        known = None if name in self._never_read else self._known.get(name)
        is_still = self._is_still(name, signature, moving)
        if not is_still and known is not None:
            return _Reading(_UNREAD, problem=_RESTLESS) if self._is_restless(name) else _Reading(known)
        # What has to be read again is recorded as unread: neither a corrected mode nor a write within one tick of the
        # clock changes size or time.
        try:
            with Path(name).open("rb") as file:
                octets = file.read(MOST_BYTES + 1)  # enough to see that the file is too long
                status = os.fstat(file.fileno())
        except OSError as error:
            return _Reading(None) if error.errno in _LEADS_NOWHERE else _Reading(_UNREAD, problem=_reason(error))
        self._never_read.discard(name)
        is_same = (status.st_size, status.st_mtime_ns) == signature[2:]
        if not is_same and known is not None:  # the file was written after it was seen
            self._keep_moving(name, moving)
            return _Reading(known)
        return _Reading(signature if is_still else _UNREAD, octets)

    def _is_still(self, name: str, signature: _Signature, moving: dict[str, _Motion]) -> bool:
        """Judges by the modification time or by our own clock, since modification times may be wrong, even in the
        future."""
        if signature[3] < time.time_ns() - _STILL_NS:
            return True
        now_ns = self._clock_ns()
        before = moving.get(name, _Motion(signature, now_ns, now_ns))
        since_ns = before.since_ns if before.signature == signature else now_ns
        if now_ns - since_ns >= _STILL_NS:
            return True
        self._moving[name] = _Motion(signature, since_ns, before.began_ns)
        return False

    def _keep_moving(self, name: str, moving: dict[str, _Motion]) -> None:
        """Record that the file is being written after all, although it seemed unchanged."""
        now_ns = self._clock_ns()
        began_ns = moving[name].began_ns if name in moving else now_ns
        self._moving[name] = _Motion(_UNREAD, now_ns, began_ns)

    def _is_restless(self, name: str) -> bool:
        motion = self._moving[name]
        return motion.since_ns - motion.began_ns >= _RESTLESS_NS

    def _sight(self) -> _Sight:
        """Raises OSError if the folder itself cannot be read."""
        sight = _Sight({}, {}, {_place(self._root.stat())}, [])
        if self._left_out is not None:
            with contextlib.suppress(OSError):
                sight.seen.add(_place(self._left_out.stat()))
        pending = _scan(str(self._root), sight)
        while pending:
            folder = pending.pop()
            try:
                pending += _scan(folder, sight)
            except OSError as error:
                if error.errno not in _LEADS_NOWHERE:
                    sight.unreadable[folder] = _reason(error)
        return sight


def _scan(folder: str, sight: _Sight) -> list[str]:
    """Adds the content of a folder to `sight`; returns the folders in it. Raises OSError."""
    below: list[str] = []
    sight.folders.append(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno in _LEADS_NOWHERE:
                    continue
                if not entry.is_symlink():
                    raise  # the folder may be listed, but not searched
                sight.unreadable[entry.path] = _reason(error)
                continue
            if stat.S_ISREG(status.st_mode):
                if entry.name.endswith(_SUFFIXES):
                    sight.files[entry.path] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            elif stat.S_ISDIR(status.st_mode) and _place(status) not in sight.seen:
                sight.seen.add(_place(status))
                below.append(entry.path)
    return below


def _place(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
