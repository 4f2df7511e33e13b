"""Reads files that may turn out to be anything: those that an option names, and those that a daemon has kept.

Opening a named pipe waits until somebody writes into it, a device may have no end, and a file may be larger than the
memory. So opening never waits, and reading ends at a limit.
"""

import errno
import os
import select
import stat
from pathlib import Path
from typing import Final

WRITER_S: Final = 5.0
"""How long a pipe that nobody has open for writing is waited for: its writer may be starting."""
PIECE_S: Final = 60.0
"""How long a writer may pause. A program that asks for a passphrase does."""
_PIECE_BYTES: Final = 1024 * 1024
_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class TooLarge(OSError):
    """There is more in the file than its kind ever has."""


def shown_name(file: str) -> str:
    """A file's name as valid UTF-8: names may contain any bytes, which Python represents as surrogates."""
    return file.encode(errors="surrogateescape").decode(errors="backslashreplace")


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """The content of a regular file, or of one that a link leads to. Raises OSError, including TooLarge."""
    return _read(path, most_bytes, {stat.S_IFREG})


def read_input(path: str | Path, most_bytes: int) -> bytes:
    """Likewise; it may also be a pipe, such as a shell's `<(...)`, or a device, such as /dev/null or a terminal.

    A pipe is waited for, but not without end.
    """
    return _read(path, most_bytes, {stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR})


def _read(path: str | Path, most_bytes: int, kinds: set[int]) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # for a socket, at whose path nothing can be opened
            raise _wrong_kind(path, stat.S_IFMT(Path(path).stat().st_mode)) from None
        raise
    try:
        found = os.fstat(descriptor)
        kind = stat.S_IFMT(found.st_mode)
        if kind not in kinds:
            raise _wrong_kind(path, kind)
        is_larger = kind == stat.S_IFREG and found.st_size > most_bytes
        # What fits into one piece is not copied.
        piece_bytes = max(found.st_size + 1, _PIECE_BYTES)
        content = b"" if is_larger else _content(descriptor, path, most_bytes + 1, piece_bytes)
    finally:
        os.close(descriptor)
    if is_larger or len(content) > most_bytes:
        raise TooLarge(errno.EFBIG, f"it has more than {_size(most_bytes)}, too much for such a file", str(path))
    return content


def _content(descriptor: int, path: str | Path, most_bytes: int, piece_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left_bytes, was_awaited, is_silent = most_bytes, False, False
    while left_bytes:
        try:
            piece = os.read(descriptor, min(left_bytes, piece_bytes))
        except BlockingIOError:
            if not _comes_within(descriptor, PIECE_S):
                raise _silent(path, "its writer has paused for", PIECE_S) from None
            continue
        if piece:
            pieces.append(piece)
            left_bytes -= len(piece)
        elif pieces or was_awaited:
            break
        elif is_silent:
            raise _silent(path, "nobody has written into this pipe for", WRITER_S)
        else:  # an empty file, or a pipe that nobody has open for writing, not yet or no longer
            was_awaited = _comes_within(descriptor, WRITER_S)
            is_silent = not was_awaited
    return b"".join(pieces)


def _comes_within(descriptor: int, timeout_s: float) -> bool:
    """Whether something can be read within this time, or the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _silent(path: str | Path, what: str, seconds: float) -> OSError:
    return TimeoutError(errno.ETIMEDOUT, f"{what} {seconds:g} s", str(path))


def _wrong_kind(path: str | Path, kind: int) -> OSError:
    if kind == stat.S_IFDIR:
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    seen = _KINDS.get(kind, "no file that can be read")
    return OSError(errno.EINVAL, f"it is {seen}, want a regular file: move it away, or name another", str(path))


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"
