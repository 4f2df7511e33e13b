"""Hints of the kernel about changes of folders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tunnelgw.sources.directory.hints import Hints

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives hints")


@pytest.fixture
def hints() -> Iterator[Hints]:
    found = Hints()
    yield found
    found.close()


def test_every_change_of_a_folder_gives_a_hint_at_once_and_reading_gives_none(tmp_path: Path, hints: Hints) -> None:
    path, other = tmp_path / "web.yaml", tmp_path / "other.yaml"
    assert hints.follow([str(tmp_path)])
    seen = [hints.take()]

    changes: list[Callable[[], object]] = [
        lambda: path.write_text("a"),
        lambda: path.write_text("b"),
        lambda: path.chmod(0o600),
        lambda: path.rename(other),
        other.unlink,
        lambda: other.symlink_to("nowhere"),
        other.unlink,
        (tmp_path / "below").mkdir,
    ]
    for change in changes:
        change()
        seen += [hints.take(), hints.take()]
    other.write_text("c")
    hints.take()
    other.read_text()

    assert seen == [False, *(True, False) * len(changes)]
    assert not hints.take()


def test_a_folder_counts_as_new_once_and_again_when_another_has_replaced_it(tmp_path: Path, hints: Hints) -> None:
    below = tmp_path / "below"
    below.mkdir()
    folders = [str(tmp_path), str(below)]
    followed = [hints.follow(folders), hints.follow(folders)]
    below.rename(tmp_path / "former")
    below.mkdir()

    followed += [hints.follow(folders), hints.follow(folders)]
    hints.take()
    (below / "web.yaml").write_text("a")

    assert followed == [True, False, True, False]
    assert hints.take()


def test_a_folder_that_is_no_longer_followed_gives_no_hints(tmp_path: Path, hints: Hints) -> None:
    """Such as the former release, after a symlink was switched to the next one."""
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    now.mkdir()
    hints.follow([str(before)])

    hints.follow([str(now)])
    hints.take()
    (before / "web.yaml").write_text("a")

    assert not hints.take()
    assert not hints.follow([str(now)])


def test_a_folder_that_cannot_be_followed_is_left_out(tmp_path: Path, hints: Hints) -> None:
    assert not hints.follow([str(tmp_path / "nowhere")])
    assert not hints.take()


def test_after_closing_there_are_no_hints(tmp_path: Path, hints: Hints) -> None:
    hints.follow([str(tmp_path)])
    hints.close()
    (tmp_path / "web.yaml").write_text("a")

    assert not hints.take()
    assert not hints.follow([str(tmp_path)])
