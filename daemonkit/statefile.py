"""Small files in a state directory: written completely or not at all, readable only by their owner."""

import contextlib
import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Final

_ABANDONED_S: Final = 60.0
"""Writing a file of this size never takes that long."""


def remedy(error: Exception, option: str) -> str:
    """What to do about `error`; `option` is the option that sets the directory."""
    if isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError):
        return f"no directory can be made there: choose another {option}"
    if isinstance(error, PermissionError):
        user = f"this user (uid {os.geteuid()})"
        return f"give {user} write access to the directory and its files, or choose another {option}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "raise the limit of the size of files (ulimit -f; systemd: LimitFSIZE=)"
    return "is the disk full, or the directory read-only?"


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path`; after a crash the file has either the old or the new content. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_abandoned(path)
    # mkstemp creates with mode 0600.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    _sync_directory(path.parent)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of processes killed while writing: repeated kills would otherwise fill the disk."""
    with contextlib.suppress(OSError):
        for found in path.parent.iterdir():
            if found.name.startswith(f".{path.name}.") and time.time() - found.lstat().st_mtime > _ABANDONED_S:
                found.unlink()


def _sync_directory(path: Path) -> None:
    """Some file systems do not support this; there, only the file itself is safe."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
