"""Content under a path, for libraries that read only files: a memory file, which has no name in any file system."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """A path at which this process can open the content. Raises OSError if no descriptor is left."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
