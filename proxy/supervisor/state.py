"""The last good document on disk, so that a restarted proxy can serve before it gets one."""

import tempfile
from pathlib import Path
from typing import Final

from daemonkit.filereading import read_regular
from daemonkit.logs import get_logger
from daemonkit.statefile import remedy, replace_file

log = get_logger(__name__)

NAME = "document.json"
MAX_DOCUMENT_BYTES: Final = 128 * 1024 * 1024
"""For documents in files, unless larger ones are accepted otherwise."""


class StateFile:
    """Mode 0600, replaced atomically. A failing disk causes a warning, but never affects traffic."""

    def __init__(self, directory: Path, most_bytes: int = MAX_DOCUMENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._path = directory / NAME
        self.is_writable = True
        """As of the last attempt."""

    def try_out(self, *, is_retry: bool = False) -> None:
        """Find out at the start whether the directory is writable, not with the first document, perhaps days later.

        The failure of a retry is not logged again.
        """
        directory = self._path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                self.is_writable = True
        except OSError as error:
            self.is_writable = False
            if not is_retry:
                log.warning(
                    "cannot write the state directory: no document will be kept",
                    error=_with_remedy(error),
                    path=str(directory),
                )

    def say_silent(self) -> None:
        """Warn at the start that another thread is still waiting for the disk."""
        path = str(self._path.parent)
        log.warning("the state directory does not answer, starting without it until it does", path=path)

    def read(self) -> bytes | None:
        try:
            return read_regular(self._path, self._most_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            log.warning(
                "cannot read the state directory, starting without its document", error=error, path=str(self._path)
            )
            return None

    def write(self, content: bytes, *, is_retry: bool = False) -> bool:
        """Returns whether the document was written. The failure of a retry is not logged again."""
        try:
            replace_file(self._path, content)
        except OSError as error:
            self.is_writable = False
            if not is_retry:
                self._say_unkept(_with_remedy(error))
            return False
        self.is_writable = True
        return True

    def give_up(self, after_s: float) -> None:
        """Warn that nobody waits any longer for a write that another thread has not finished."""
        self._say_unkept(TimeoutError(f"the disk has not finished the previous write within {after_s:g} s"))

    def _say_unkept(self, error: OSError | str) -> None:
        log.warning(
            "cannot keep the document: a restart would begin with the one kept before, if any",
            error=error,
            path=str(self._path),
        )


def _with_remedy(error: OSError) -> str:
    return f"{type(error).__name__}: {error}; {remedy(error, '--state-dir (PROXY_STATE_DIR)')}"
