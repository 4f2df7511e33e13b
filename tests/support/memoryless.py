"""Makes processes unable to create memory files for a while, as on a machine without free memory or descriptors."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_memory_files(pid: int = 0) -> Iterator[None]:
    """Applies to the process with this id; 0: to this one."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
