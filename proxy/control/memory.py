"""Memory files: immutable bytes that are passed to another process by descriptor."""

import errno
import fcntl
import mmap
import os

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed_file(name: str, content: bytes) -> int:
    """A descriptor of a memory file with `content`, at least one byte; the caller closes it."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def refusal() -> str | None:
    """Why this host does not allow such files. None if it does, or is only short of something, which passes."""
    try:
        os.close(sealed_file("tunnelgw-proxy-trial", b"-"))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            return (
                f"files in memory, through which workers get the document, are not allowed here: {error.strerror}; "
                "allow the system call memfd_create (SystemCallFilter= of a unit, a container's seccomp profile)"
            )
    return None


def mapped(descriptor: int) -> memoryview:
    """The content, without a copy; closes the descriptor. The memory lives as long as any view of it."""
    try:
        return memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE))
    finally:
        os.close(descriptor)
