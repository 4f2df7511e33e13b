"""Processes that can open nothing for a while, as those whose clients have all files that they may open."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def out_of_descriptors() -> Iterator[None]:
    """This process can open none."""
    with socket.socket() as next_one:
        lowest_free = next_one.fileno()
    with open_files_limited(0, lowest_free):
        yield


@contextlib.contextmanager
def open_files_limited(pid: int, count: int) -> Iterator[None]:
    """That process opens none with a number from `count` on; 0: this one."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
