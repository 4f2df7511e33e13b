"""Notes of unsettled ownership records survive a restart, and never stop the work."""

import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from daemonkit.logformat import line_of
from dnswebhook.journal import FILE_NAME, MAX_AGE_S, REFRESH_S, Journal
from dnswebhook.notes import Note
from dnswebhook.ownership import OwnedSet
from tests.support.oddfiles import in_its_place


def note(name: str, *, is_leaving: bool = True) -> Note:
    owned = OwnedSet(name.removeprefix("a-"), frozenset({"A"}))
    return Note(name, '"heritage=external-dns"', owned, frozenset({"192.0.2.1"}), is_leaving)


def test_notes_survive_a_restart(tmp_path: Path) -> None:
    Journal(tmp_path, "store").add([note("a-one.example.com"), note("a-two.example.com")])

    again = Journal(tmp_path, "store")

    assert (note("a-one.example.com"), note("a-two.example.com")) == again.notes


def test_the_newest_note_about_a_row_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    journal.add([note("a-one.example.com", is_leaving=False)])

    journal.add([note("a-one.example.com", is_leaving=True)])

    assert (note("a-one.example.com", is_leaving=True),) == journal.notes


def test_each_text_of_a_name_has_its_own_note(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    one = note("a-one.example.com")
    other = msgspec.structs.replace(one, value='"heritage=external-dns,external-dns/owner=other"')

    journal.add([one])
    journal.add([other])
    del journal  # as its process ends

    assert (one, other) == Journal(tmp_path, "store").notes


def test_no_file_is_left_when_everything_is_settled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    journal.add([note("a-one.example.com")])

    journal.replace(())

    assert [] == list(tmp_path.iterdir())


def test_notes_about_another_store_are_not_followed(tmp_path: Path) -> None:
    Journal(tmp_path, "https://one.example default").add([note("a-one.example.com")])

    assert () == Journal(tmp_path, "https://two.example default").notes


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"store": 1}', b"\xff", b"[]", b'{"more":' + b"[" * 10_000], ids=lambda it: it[:9]
)
def test_a_damaged_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    assert () == Journal(tmp_path, "store").notes


@pytest.mark.parametrize(("old", "new"), [(b"192.0.2.1", b"192.0.2.9"), (b'"A"', b'"B"'), (b"one.", b"ono.")])
def test_notes_that_are_not_what_was_written_are_ignored(tmp_path: Path, old: bytes, new: bytes) -> None:
    """They would let ownership records be removed that are somebody else's. A bit on the disk is enough."""
    Journal(tmp_path, "store").add([note("a-one.example.com")])
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    assert old in content

    path.write_bytes(content.replace(old, new, 1))

    assert () == Journal(tmp_path, "store").notes


def test_notes_of_a_release_that_wrote_no_digest_are_followed(tmp_path: Path) -> None:
    Journal(tmp_path, "store").add([note("a-one.example.com")])
    path = tmp_path / FILE_NAME
    saved = json.loads(path.read_bytes())
    del saved["sha256"]
    assert {"store", "vouchers", "written_at"} == saved.keys()
    path.write_text(json.dumps(saved))

    assert (note("a-one.example.com"),) == Journal(tmp_path, "store").notes


@in_its_place
def test_something_else_in_place_of_the_file_is_ignored_and_replaced(
    tmp_path: Path, put_odd_file: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon waited for a pipe, and read whatever there was into its memory."""
    put_odd_file(tmp_path / FILE_NAME)
    journal = Journal(tmp_path, "store")

    assert () == journal.notes
    (line,) = map(line_of, caplog.records)
    assert line["msg"] == "saved notes about ownership records cannot be read, ignoring them"
    journal.add([note("a-one.example.com")])
    assert b"a-one.example.com" in (tmp_path / FILE_NAME).read_bytes()


def test_notes_that_cannot_be_written_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "file" / "below", "store")

    journal.add([note("a-one.example.com")])

    assert (note("a-one.example.com"),) == journal.notes


def test_a_failed_write_of_a_note_leaves_no_older_note_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older note lacks values that became ours since: the ownership record of such a record would be removed."""

    def fill_the_disk(_path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path, "store")
    journal.add([note("a-one.example.com", is_leaving=False)])
    monkeypatch.setattr("dnswebhook.journal.replace_file", fill_the_disk)

    journal.add([note("a-two.example.com")])

    assert (note("a-one.example.com", is_leaving=False), note("a-two.example.com")) == journal.notes
    assert () == Journal(tmp_path, "store").notes


class Clock:
    """Wall time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("passed_s", [MAX_AGE_S - 1, 1 - MAX_AGE_S])
def test_recent_notes_are_followed_after_a_restart(tmp_path: Path, passed_s: float) -> None:
    clock = Clock()
    Journal(tmp_path, "store", clock).add([note("a-one.example.com")])

    clock.now += passed_s

    assert (note("a-one.example.com"),) == Journal(tmp_path, "store", clock).notes


@pytest.mark.parametrize("passed_s", [MAX_AGE_S + 1, -1 - MAX_AGE_S])
def test_notes_that_were_not_followed_for_long_are_forgotten(tmp_path: Path, passed_s: float) -> None:
    """The state directory was restored from a backup, or its node was away while another one did the work."""
    clock = Clock()
    Journal(tmp_path, "store", clock).add([note("a-one.example.com")])

    clock.now += passed_s

    assert () == Journal(tmp_path, "store", clock).notes
    assert [] == list(tmp_path.iterdir())


def test_notes_that_stay_open_are_kept_alive(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "store", clock)
    journal.add([note("a-one.example.com")])
    for _ in range(10):
        clock.now += REFRESH_S + 1
        journal.replace(journal.notes)
    del journal

    assert (note("a-one.example.com"),) == Journal(tmp_path, "store", clock).notes


def test_notes_that_stay_open_are_not_written_in_each_pass(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "store", clock)
    journal.add([note("a-one.example.com")])
    written = (tmp_path / FILE_NAME).stat().st_ino

    clock.now += REFRESH_S - 1
    journal.replace(journal.notes)

    assert written == (tmp_path / FILE_NAME).stat().st_ino


def test_notes_of_another_running_daemon_are_neither_followed_nor_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, ours = note("a-one.example.com"), note("a-two.example.com")
    first = Journal(tmp_path, "store")
    first.add([theirs])

    second = Journal(tmp_path, "store")
    second.add([ours])
    assert (ours,) == second.notes
    assert "in use by another dnswebhook" in caplog.text
    second.replace(())
    del first

    assert (theirs,) == Journal(tmp_path, "store").notes


def test_a_directory_is_used_after_another_daemon_has_left_it(tmp_path: Path) -> None:
    first = Journal(tmp_path, "store")
    second = Journal(tmp_path, "store")
    del first

    second.add([note("a-one.example.com")])
    del second

    assert (note("a-one.example.com"),) == Journal(tmp_path, "store").notes


def test_notes_of_a_daemon_that_ended_after_our_start_are_not_followed_after_the_next_start(tmp_path: Path) -> None:
    """As with overlapping restarts: those notes do not know what the new daemon has written since."""
    first = Journal(tmp_path, "store")
    first.add([note("a-one.example.com")])
    second = Journal(tmp_path, "store")
    del first

    second.look_again()
    assert () == second.notes
    del second

    assert () == Journal(tmp_path, "store").notes


def test_notes_are_kept_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    Journal(tmp_path, "store").add([note("a-one.example.com")])

    assert (note("a-one.example.com"),) == Journal(tmp_path, "store").notes
