"""Work handed out to a fixed number of threads: all of it is done, even if one piece fails."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from dnswebhook.writers import Writers

WAIT_S = 30.0


@pytest.fixture(params=[1, 4])
def writers(request: pytest.FixtureRequest) -> Iterator[Writers]:
    with contextlib.closing(Writers(request.param)) as some:
        yield some


def test_every_item_is_processed_once(writers: Writers) -> None:
    done: list[int] = []

    writers.for_each(range(1000), done.append)
    writers.for_each([], done.append)

    assert list(range(1000)) == sorted(done)


def test_a_lone_writer_keeps_the_order() -> None:
    done: list[int] = []
    with contextlib.closing(Writers(1)) as one:
        one.for_each(range(100), done.append)

    assert list(range(100)) == done


def test_an_unexpected_error_stops_no_other_item_and_is_raised_at_the_end(writers: Writers) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number < 10:
            raise ZeroDivisionError("a bug")
        done.append(number)

    with pytest.raises(ZeroDivisionError):
        writers.for_each(range(100), work)

    assert list(range(10, 100)) == sorted(done)


def test_all_threads_work_in_parallel_and_no_more_are_used() -> None:
    together = threading.Barrier(3)
    with contextlib.closing(Writers(3)) as three:
        three.for_each(range(3), lambda _: together.wait(WAIT_S))  # a broken barrier would raise
        names: set[str] = set()
        three.for_each(range(300), lambda _: names.add(threading.current_thread().name))

    assert not together.broken
    assert 1 <= len(names) <= 3
