"""Small files of a state directory: written whole or not at all, readable by their owner only."""

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in place of what `path` held; after a crash it holds the one or the other. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def _sync_directory(path: Path) -> None:
    """Some file systems know no such thing; the file itself is safe then."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
