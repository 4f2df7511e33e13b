"""Small files of a state directory: written whole or not at all, readable by their owner only."""

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Final

_ABANDONED_S: Final = 60.0
"""Nobody writes that long to a file of this size."""


def remedy(error: Exception, option: str) -> str:
    """What to do about it; `option` names the directory."""
    if isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError):
        return f"no directory can be made there: choose another {option}"
    return "is the disk full, or the directory read-only?"


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in place of what `path` held; after a crash it holds the one or the other. Raises OSError."""
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
    """What processes left that were killed while they wrote: one that is killed at each write would fill the disk."""
    with contextlib.suppress(OSError):
        for found in path.parent.iterdir():
            if found.name.startswith(f".{path.name}.") and time.time() - found.lstat().st_mtime > _ABANDONED_S:
                found.unlink()


def _sync_directory(path: Path) -> None:
    """Some file systems know no such thing; the file itself is safe then."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
