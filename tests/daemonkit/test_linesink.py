"""Lines to a reader that is slow, has stopped reading, or has closed its end."""

import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.linesink import LineSink

DEADLINE_S = 30.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def fill(write: int) -> int:
    """Fills a pipe that nobody reads; returns how many bytes it took."""
    os.set_blocking(write, False)
    size_bytes = 0
    try:
        while True:
            size_bytes += os.write(write, b"x" * select.PIPE_BUF)
    except BlockingIOError:
        return size_bytes
    finally:
        os.set_blocking(write, True)


def drain(read: int, size_bytes: int) -> bytes:
    parts = []
    while size_bytes:
        parts.append(os.read(read, size_bytes))
        size_bytes -= len(parts[-1])
    return b"".join(parts)


@pytest.mark.timeout(DEADLINE_S)
def test_a_reader_that_has_stopped_does_not_block_the_writer(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = LineSink(write)
    size_bytes = fill(write)

    assert [sink.write(b"lost\n") for _ in range(1000)] == [b"lost\n"] * 1000

    drain(read, size_bytes)
    assert sink.write(b"written\n") == b""
    assert os.read(read, 100) == b"written\n"


@pytest.mark.timeout(DEADLINE_S)
def test_a_line_that_was_cut_off_is_ended_before_the_next(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sink = LineSink(write)
    size_bytes = fill(write)
    drain(read, select.PIPE_BUF)
    long = b"a" * (select.PIPE_BUF + 10) + b"\n"

    assert sink.write(long) == b"a" * 10 + b"\n"
    assert sink.write(b"lost\n") == b"lost\n"

    drain(read, size_bytes)
    assert sink.write(b"next\n") == b""
    assert os.read(read, 100) == b"\nnext\n"
    assert sink.write(b"last\n") == b""
    assert os.read(read, 100) == b"last\n"


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("blocks", [True, False], ids=["that blocks", "that does not block"])
@pytest.mark.parametrize("patience_s", [None, DEADLINE_S], ids=["without a limit", "with one"])
def test_nothing_is_lost_on_a_pipe_whose_reader_is_slower_within_the_patience(
    pipe: tuple[int, int], patience_s: float | None, blocks: bool
) -> None:
    read, write = pipe
    os.set_blocking(write, blocks)
    lines = b"".join(b"line %d\n" % number for number in range(50_000))
    unwritten: list[bytes] = []
    writer = threading.Thread(target=lambda: unwritten.append(LineSink(write, patience_s).write(lines)), daemon=True)

    writer.start()
    seen = drain(read, len(lines))
    writer.join(DEADLINE_S)

    assert (seen == lines, unwritten) == (True, [b""])


def test_lines_to_a_closed_pipe_are_lost_without_an_error() -> None:
    read, write = os.pipe()
    sink = LineSink(write)
    os.close(read)

    assert sink.write(b"lost\n") == b"lost\n"
    os.close(write)
    assert sink.write(b"lost\n") == b"lost\n"


@pytest.mark.timeout(DEADLINE_S)
def test_a_writer_without_a_limit_waits_for_the_next_reader_of_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    first = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write = os.open(fifo, os.O_WRONLY)
    sink = LineSink(write, patience_s=None)
    kept = b"x" * fill(write)
    os.close(first)
    assert sink.write(b"lost\n") == b"lost\n"
    lines = b"".join(b"line %d\n" % number for number in range(50_000))

    def write_and_close() -> None:
        sink.write(lines)
        os.close(write)

    with fifo.open("rb") as second:
        threading.Thread(target=write_and_close, daemon=True).start()
        assert second.read() == kept + lines
