"""Hints from the kernel that something in some folders has changed (inotify, on Linux), so that the next look is at
once.

They are only hints: there are none for what another host does to a network file system, or for the target of a link
that leads elsewhere, and the kernel limits their number. So users must also look from time to time.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Final

_ATTRIB: Final = 0x4
"""Changes of mode or owner."""
_CLOSE_WRITE: Final = 0x8
_MOVED: Final = 0x40 | 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_SELF: Final = 0x400 | 0x800
"""The folder itself was deleted or moved."""
_ONLY_FOLDERS: Final = 0x01000000
_WANTED: Final = _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _SELF | _ONLY_FOLDERS
_READ_BYTES: Final = 64 * 1024


class Hints:
    """For use by one thread. On a system without inotify there are never hints."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._descriptor = -1
        self._watched: set[int] = set()
        if hasattr(self._library, "inotify_init1"):
            self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def follow(self, folders: Iterable[str]) -> bool:
        """Watch exactly these folders. True: some are new, so changes in them just before may have been missed."""
        if self._descriptor < 0:
            return False
        # inotify gives a folder that is already watched the same number again, and a new folder in its place another
        # one.
        add = self._library.inotify_add_watch
        numbers = {add(self._descriptor, os.fsencode(folder), _WANTED) for folder in folders} - {-1}
        new = numbers - self._watched
        for number in self._watched - numbers:
            self._library.inotify_rm_watch(self._descriptor, number)  # fails without harm if the folder has gone
        self._watched = numbers
        return bool(new)

    def take(self) -> bool:
        """Whether something has changed since the last call."""
        has_changed = False
        if self._descriptor >= 0:
            try:
                while os.read(self._descriptor, _READ_BYTES):
                    has_changed = True
            except BlockingIOError:
                pass
        return has_changed

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
