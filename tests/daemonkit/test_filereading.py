"""Files that are something else than expected: refused by name, or read, but nobody waits for them for ever."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from daemonkit import filereading
from daemonkit.filereading import TooLarge, read_input, read_regular
from tests.support.descriptors import open_below

Read = Callable[[Path, int], bytes]
LIMIT_BYTES = 1024 * 1024
both = pytest.mark.parametrize("read", [read_regular, read_input])


def reason(read: Read, path: Path) -> str:
    with pytest.raises(OSError, match=r".") as failed:
        read(path, LIMIT_BYTES)
    assert failed.value.filename == str(path)
    return failed.value.strerror or ""


@both
def test_a_file_is_read_through_links_as_kubernetes_mounts_a_secret(read: Read, tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "token").write_bytes(b"content")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "token").symlink_to("..data/token")

    assert read(tmp_path / "token", LIMIT_BYTES) == b"content"
    assert read(tmp_path / "token", 7) == b"content"


@both
def test_an_empty_file_is_read_at_once(read: Read, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert read(tmp_path / "empty", LIMIT_BYTES) == b""


@both
def test_a_larger_file_is_refused_and_not_read(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # there is not so much memory

    with pytest.raises(TooLarge, match="it has more than 1 MiB, too much for such a file"):
        read(path, LIMIT_BYTES)


@both
def test_reading_leaves_no_descriptor_open(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"content")

    read(path, LIMIT_BYTES)
    with pytest.raises(TooLarge):
        read(path, 1)
    with pytest.raises(IsADirectoryError):
        read(tmp_path, LIMIT_BYTES)

    assert not open_below(tmp_path)


def test_a_limit_below_a_mebibyte_is_told_in_kibibytes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(64 * 1024 + 1))

    with pytest.raises(TooLarge, match="it has more than 64 KiB, "):
        read_regular(path, 64 * 1024)


def test_a_device_without_end_is_refused_at_the_limit() -> None:
    with pytest.raises(TooLarge):
        read_input(Path("/dev/zero"), LIMIT_BYTES)


def test_an_empty_device_is_an_input_without_content() -> None:
    assert read_input(Path("/dev/null"), LIMIT_BYTES) == b""


@pytest.mark.parametrize(("path", "seen"), [("/dev/zero", "a device"), ("/dev/full", "a device")])
def test_a_device_is_no_regular_file(path: str, seen: str) -> None:
    assert reason(read_regular, Path(path)) == f"it is {seen}, want a regular file: move it away, or name another"


@both
def test_a_socket_is_refused(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))

        assert reason(read, path) == "it is a socket, want a regular file: move it away, or name another"


@both
def test_a_folder_and_a_missing_file_are_said_to_be_that(read: Read, tmp_path: Path) -> None:
    assert reason(read, tmp_path) == os.strerror(errno.EISDIR)
    assert reason(read, tmp_path / "missing") == os.strerror(errno.ENOENT)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_is_no_regular_file(pipe: Path) -> None:
    assert reason(read_regular, pipe) == "it is a pipe, want a regular file: move it away, or name another"


def test_a_pipe_into_which_nobody_writes_is_not_waited_for_long(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filereading, "WRITER_S", 0.05)

    assert reason(read_input, pipe) == "nobody has written into this pipe for 0.05 s"


def test_a_writer_that_pauses_is_not_waited_for_without_end(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filereading, "WRITER_S", 0.05)
    monkeypatch.setattr(filereading, "PIECE_S", 0.05)
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        os.write(descriptor, b"half of it")

        assert reason(read_input, pipe) == "its writer has paused for 0.05 s"
    finally:
        os.close(descriptor)


def test_a_pipe_is_read_to_its_end_in_pieces_and_whoever_comes_first(pipe: Path) -> None:
    content = os.urandom(300_000)  # more than a pipe holds
    writing = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
    writing.start()

    assert read_input(pipe, LIMIT_BYTES) == content
    writing.join()


def test_a_secret_whose_writer_pauses_in_the_middle_is_read_whole(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, reading = os.open(pipe, os.O_RDWR), os.read
    os.write(writing, b"half of ")

    def read_before_the_writer_goes_on(descriptor: int, size_bytes: int) -> bytes:
        try:
            return reading(descriptor, size_bytes)
        except BlockingIOError:
            os.write(writing, b"it")
            os.close(writing)
            raise

    monkeypatch.setattr(os, "read", read_before_the_writer_goes_on)

    assert read_input(pipe, LIMIT_BYTES) == b"half of it"


def test_what_a_writer_left_in_a_pipe_is_read_without_it() -> None:
    """As of a shell's `<(...)` that has ended."""
    reading, writing = os.pipe()
    os.write(writing, b"left")
    os.close(writing)
    try:
        assert read_input(Path(f"/proc/self/fd/{reading}"), LIMIT_BYTES) == b"left"
    finally:
        os.close(reading)


def test_a_writer_that_closes_a_pipe_without_a_word_has_given_an_empty_content(pipe: Path) -> None:
    threading.Thread(target=lambda: pipe.write_bytes(b""), daemon=True).start()

    assert read_input(pipe, LIMIT_BYTES) == b""
