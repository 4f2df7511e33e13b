"""Which files of a folder are seen to have changed, whatever their times and modes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.process import REPOSITORY
from tunnelgw.sources.directory.folder import Folder
from tunnelgw.sources.directory.manifests import MOST_BYTES

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS

# Rights are given up after the imports: another user may have no way to this interpreter.
AS_NOBODY: Final = """
import os, tempfile
from pathlib import Path
from tests.tunnelgw.sources.directory.site import Site, route
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


def told(script: str) -> list[str]:
    """The lines that a script prints as a user to whom file modes apply, unlike root."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY + script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def about_to_read(path: Path, meanwhile: Callable[[], object]) -> Folder:
    """The next look sees that the file has changed; `meanwhile` comes before it reads the file."""
    now_ns = 0

    def clock_ns() -> int:
        """Asked between the two."""
        if now_ns:
            meanwhile()
        return now_ns

    folder = Folder(path.parent, clock_ns=clock_ns)
    path.write_text("old")
    os.utime(path, (1, 1))
    folder.look()
    path.write_text("new")
    os.utime(path, ns=(time.time_ns() + HOUR_NS,) * 2)
    folder.look()
    now_ns = SECOND_NS
    return folder


def test_reading_a_file_that_is_too_large_stops_just_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.touch()
    os.truncate(path, 16 * MOST_BYTES)

    read = Folder(tmp_path).look().read

    assert {each: len(octets) for each, octets in read.items()} == {path: MOST_BYTES + 1}


def test_a_file_that_is_deleted_during_a_look_is_gone_and_nothing_is_reported_as_failed(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    folder = about_to_read(path, path.unlink)

    assert folder.look() == ({}, frozenset({path}), {})
    assert folder.look() == ({}, frozenset(), {})


def test_a_file_that_is_written_during_a_look_is_left_alone_until_it_is_still(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    folder = about_to_read(path, lambda: path.write_text("ha"))

    assert folder.look() == ({}, frozenset(), {})
    assert not folder.is_settled
    path.write_text("half and half")
    os.utime(path, (2, 2))
    assert folder.look().read == {path: b"half and half"}
    assert folder.is_settled


@pytest.mark.parametrize(("content", "is_replaced"), [("new", True), ("longer", False)])
def test_a_changed_file_with_an_unchanged_mtime_is_read(tmp_path: Path, content: str, is_replaced: bool) -> None:
    path = tmp_path / "web.yaml"
    folder = Folder(tmp_path)
    path.write_text("old")
    os.utime(path, (1, 1))
    folder.look()

    other = tmp_path / "other"
    (other if is_replaced else path).write_text(content)
    os.utime(other if is_replaced else path, (1, 1))
    if is_replaced:
        other.replace(path)

    assert folder.look().read == {path: content.encode()}


def test_a_very_recent_edit_is_read_only_once_the_file_is_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "web.yaml"
    folder = Folder(tmp_path, clock_ns=lambda: 0)
    path.write_text("old")
    os.utime(path, (1, 1))
    folder.look()
    path.write_text("half")

    monkeypatch.setattr(time, "time_ns", lambda: path.stat().st_mtime_ns + SECOND_NS // 100)
    at_once = folder.look().read
    monkeypatch.setattr(time, "time_ns", lambda: path.stat().st_mtime_ns + SECOND_NS)

    assert (at_once, folder.look().read) == ({}, {path: b"half"})


def test_an_edit_with_a_future_mtime_is_read_once_the_file_is_still(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    now_ns = 0
    folder = Folder(tmp_path, clock_ns=lambda: now_ns)

    def write(content: str) -> None:
        path.write_text(content)
        os.utime(path, ns=(time.time_ns() + HOUR_NS,) * 2)

    def read() -> list[bytes]:
        return [*folder.look().read.values()]

    write("new")
    came = [read(), read()]
    now_ns += SECOND_NS
    settled = [read(), read()]
    write("edited")
    moving = [read(), read()]
    write("edited again")
    now_ns += SECOND_NS // 100
    moving.append(read())
    now_ns += SECOND_NS

    assert came == [[b"new"], []]
    assert settled == [[b"new"], []]  # it may have been written on within a tick of its clock
    assert moving == [[], [], []]
    assert [read(), read()] == [[b"edited again"], []]


def test_a_file_that_is_never_still_is_reported_after_a_while_and_read_once_it_is(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("0")
    os.utime(path, (1, 1))
    now_ns = 0
    folder = Folder(tmp_path, clock_ns=lambda: now_ns)
    folder.look()

    def write(number: int) -> None:
        path.write_text(str(number))
        os.utime(path, ns=(time.time_ns() + HOUR_NS + number,) * 2)

    told: dict[int, dict[Path, str]] = {}
    for number in range(1, 200):
        now_ns += SECOND_NS // 10
        write(number)
        changes = folder.look()
        assert changes.read == {}
        if changes.failed:
            told[now_ns] = changes.failed
    now_ns += SECOND_NS
    still = folder.look()
    now_ns += 60 * SECOND_NS
    write(200)

    reason = "it is written again and again, and is read once it has been still for 0.15 s"
    assert told == {101 * SECOND_NS // 10: {path: reason}}
    assert still == ({path: b"199"}, frozenset(), {})
    assert folder.look() == ({}, frozenset(), {})


@pytest.mark.parametrize("mode", ["0o000", "0o444"], ids=["closed", "listed only"])
def test_a_folder_that_cannot_be_read_is_reported_by_name_and_its_objects_stay(mode: str) -> None:
    script = f"""
with tempfile.TemporaryDirectory() as name:
    site = Site(Path(name))
    site.write("shut/web.yaml", route())
    site.write("shut/below/deep.yaml", route("deep"))
    site.look()
    (site.root / "shut").chmod({mode})
    site.write("other.yaml", route("other"))
    def names(site):
        return sorted(key.name for key in site.look().snapshot.all("HTTPRoute"))
    print(names(site), site.problems())
    again = Site(Path(name))
    print(names(again), again.problems())
    (site.root / "shut").chmod(0o700)
    (site.root / "shut" / "web.yaml").unlink()
    for each in site, again:
        print(names(each), each.problems())
"""

    shut, opened = "['deep', 'other', 'web'] ['shut:1: Permission denied']", "['deep', 'other'] []"
    assert told(script) == [shut, shut, opened, opened]


def test_a_symlink_into_a_folder_that_cannot_be_read_keeps_its_objects() -> None:
    script = """
with tempfile.TemporaryDirectory() as name:
    site = Site(Path(name))
    closed = Path(name, "elsewhere")
    closed.mkdir()
    (closed / "web.yaml").write_text(route())
    os.utime(closed / "web.yaml", (1, 1))
    (site.root / "web.yaml").symlink_to(closed / "web.yaml")
    print(site.hostnames(), site.problems())
    closed.chmod(0)
    print(site.hostnames(), site.problems())
    closed.chmod(0o700)
    print(site.hostnames(), site.problems())
"""

    good = "('a.example.org',)"
    assert told(script) == [f"{good} []", f"{good} ['web.yaml:1: Permission denied']", f"{good} []"]


def test_a_symlink_to_nothing_or_to_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "nothing.yaml").symlink_to("nowhere")
    (tmp_path / "itself.yaml").symlink_to("itself.yaml")

    assert Folder(tmp_path).look() == ({}, frozenset(), {})
