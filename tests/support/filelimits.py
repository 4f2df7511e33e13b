"""Makes processes unable to open files for a while, as if their clients had used up the limit of open files."""

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


@contextlib.contextmanager
def open_files_limited(pid: int, count: int) -> Iterator[None]:
    """The process with this id (0: this one) cannot open descriptors numbered `count` and above."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
