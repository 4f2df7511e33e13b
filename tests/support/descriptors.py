"""What this process has open."""

import contextlib
from pathlib import Path


def open_files() -> list[str]:
    """The names, one for each descriptor."""
    opened: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # Others may be closed meanwhile: by threads of earlier tests, and by the garbage collector.
        with contextlib.suppress(FileNotFoundError):
            opened.append(str(descriptor.readlink()))
    return opened


def open_below(directory: Path) -> list[str]:
    """Those of files in `directory`, and its own."""
    return [name for name in open_files() if name.startswith(str(directory))]
