"""The files of a folder, and which of them have changed since the last look.

Regular files that end in .yaml, .yml or .json, in all folders below; what begins with a dot is skipped. Links are
followed, so the folder may be a ConfigMap's mount, which is replaced by turning a link. A file that is being written is
left alone until it has been still for a moment; one that never is counts as unreadable after a while, so that somebody
is told. Where a folder below cannot be read, what is known of it stays.
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
"""A link to nothing or to itself, or a file that is gone already."""

_Signature = tuple[int, int, int, int]
"""Device, inode, bytes, time of modification."""
_UNREAD: _Signature = (0, 0, 0, 0)
"""Of no file: what has it is read as soon as it can be."""


class Changes(NamedTuple):
    read: dict[Path, bytes]
    """New content of files that came or changed."""
    gone: frozenset[Path]
    """Files, and folders that could not be read and now can."""
    failed: dict[Path, str]
    """Files and folders that cannot be read, and why, if that is news."""


class _Motion(NamedTuple):
    """A file that may be being written. Times are of our own clock."""

    signature: _Signature
    since_ns: int
    """When it was first seen to look so."""
    began_ns: int
    """When it was first seen to move."""


class _Sight(NamedTuple):
    """What one look sees."""

    files: dict[str, _Signature]
    """Texts, not paths: a look at 10,000 files should not make 10,000 objects that nobody needs."""
    unreadable: dict[str, str]
    """Folders, and links that lead somewhere unknown, with the reason."""
    seen: set[tuple[int, int]]
    """Links may lead in circles, so each folder counts once."""
    folders: list[str]


class Folder:
    def __init__(
        self,
        root: Path,
        left_out: Path | None = None,
        known: Iterable[str] = (),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`left_out`: a folder below that holds no manifests. `known`: files of a former process: what went is told."""
        self._root = root
        self._left_out = left_out
        self._clock_ns = clock_ns
        # A look at the folder `.` finds names that begin with `./`, which paths leave out.
        before = f".{os.sep}" if root == Path() else ""
        self._known = {before + name: _UNREAD for name in known}
        self._moving: dict[str, _Motion] = {}
        self._failed: dict[Path, str] = {}
        self.folders: list[str] = []
        """The folder and all that are below it, as of the last look."""

    @property
    def is_settled(self) -> bool:
        """No file was being written at the last look."""
        return not self._moving

    def look(self) -> Changes:
        """What has changed since the last call. Raises OSError when the folder itself cannot be read."""
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
        lost: list[str] = []
        for name, signature in found.items():
            if self._known.get(name) == signature:
                continue
            is_still = self._is_still(name, signature, moving)
            path = Path(name)
            if not is_still and name in self._known:
                found[name] = self._known[name]
                if self._is_restless(name):
                    failed[path], found[name] = _RESTLESS, _UNREAD
                continue
            try:
                with path.open("rb") as file:
                    octets = file.read(MOST_BYTES + 1)  # so much already is too much
                    status = os.fstat(file.fileno())
            except OSError as error:
                if error.errno in _LEADS_NOWHERE:
                    lost.append(name)
                    continue
                failed[path] = _reason(error)
            else:
                is_same = (status.st_size, status.st_mtime_ns) == signature[2:]
                if not is_same and name in self._known:  # it is being written since it was seen
                    found[name] = self._known[name]
                    self._keep_moving(name, moving)
                    continue
                read[path] = octets
            # Neither a mode that is mended shows in size or time, nor what is written within a tick of the clock.
            if not is_still or path in failed:
                found[name] = _UNREAD
        for name in lost:
            del found[name]
        found |= dict.fromkeys(unreadable, _UNREAD)
        gone = frozenset(Path(name) for name in self._known.keys() - found.keys())
        news = {path: reason for path, reason in failed.items() if self._failed.get(path) != reason}
        self._known, self._failed = found, failed
        return Changes(read, gone, news)

    def _is_still(self, name: str, signature: _Signature, moving: dict[str, _Motion]) -> bool:
        """By its time of modification, or by our own clock: files may be of any time, the future included."""
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
        """It was not as still as it looked."""
        now_ns = self._clock_ns()
        began_ns = moving[name].began_ns if name in moving else now_ns
        self._moving[name] = _Motion(_UNREAD, now_ns, began_ns)

    def _is_restless(self, name: str) -> bool:
        motion = self._moving[name]
        return motion.since_ns - motion.began_ns >= _RESTLESS_NS

    def _sight(self) -> _Sight:
        """Raises OSError when the folder itself cannot be read."""
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
    """Adds what is in a folder to `sight`; returns the folders in it. Raises OSError."""
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
                    raise  # the folder may be listed, but not entered
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
