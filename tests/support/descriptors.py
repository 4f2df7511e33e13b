"""What processes have open."""

import os
from collections.abc import Iterator
from pathlib import Path


def open_descriptors(pid: int) -> Iterator[str]:
    """What the descriptors of a process refer to."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # Others may be closed meanwhile: by threads of earlier tests, and by the garbage collector.
        try:
            yield str(entry.readlink())
        except FileNotFoundError:
            continue


def open_files() -> list[str]:
    """Those of this process."""
    return [*open_descriptors(os.getpid())]


def open_below(directory: Path) -> list[str]:
    """Those of files in `directory`, and its own."""
    return [name for name in open_files() if name.startswith(str(directory))]
