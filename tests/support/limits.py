"""Lowers a limit of processes for a while, as if their clients had used up what it limits, or memory were short."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def out_of_descriptors() -> Iterator[None]:
    """This process can open no files."""
    with socket.socket() as next_one:
        lowest_free = next_one.fileno()
    with open_files_limited(0, lowest_free):
        yield


def open_files_limited(pid: int, count: int) -> contextlib.AbstractContextManager[None]:
    """The process with this id (0: this one) cannot open descriptors numbered `count` and above."""
    return _limited(pid, resource.RLIMIT_NOFILE, count)


def no_memory_files(pid: int = 0) -> contextlib.AbstractContextManager[None]:
    """The process with this id (0: this one) cannot create memory files, as on a machine without free memory."""
    return _limited(pid, resource.RLIMIT_FSIZE, 0)


@contextlib.contextmanager
def _limited(pid: int, kind: int, soft: int) -> Iterator[None]:
    before, hard = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, (before, hard))
