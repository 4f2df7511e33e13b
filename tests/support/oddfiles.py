"""What may lie in the place of a file that a daemon has kept, and must neither stop it nor fill its memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def far_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # there is not so much memory


_ALL = (pipe, endless_device, far_too_large)
in_its_place = pytest.mark.parametrize("put_odd_file", _ALL, ids=lambda it: it.__name__)
