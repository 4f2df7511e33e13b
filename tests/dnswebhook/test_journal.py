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
from dnswebhook.ownership import OwnedSet
from dnswebhook.vouchers import Voucher
from tests.support.oddfiles import in_its_place


def voucher(name: str, *, is_leaving: bool = True) -> Voucher:
    owned = OwnedSet(name.removeprefix("a-"), frozenset({"A"}))
    return Voucher(name, '"heritage=external-dns"', owned, frozenset({"192.0.2.1"}), is_leaving)


def test_notes_survive_a_restart(tmp_path: Path) -> None:
    Journal(tmp_path, "store").note([voucher("a-one.example.com"), voucher("a-two.example.com")])

    again = Journal(tmp_path, "store")

    assert (voucher("a-one.example.com"), voucher("a-two.example.com")) == again.vouchers


def test_the_newest_note_about_a_row_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    journal.note([voucher("a-one.example.com", is_leaving=False)])

    journal.note([voucher("a-one.example.com", is_leaving=True)])

    assert (voucher("a-one.example.com", is_leaving=True),) == journal.vouchers


def test_each_text_of_a_name_has_its_own_note(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    one = voucher("a-one.example.com")
    other = msgspec.structs.replace(one, value='"heritage=external-dns,external-dns/owner=other"')

    journal.note([one])
    journal.note([other])
    del journal  # as its process ends

    assert (one, other) == Journal(tmp_path, "store").vouchers


def test_no_file_is_left_when_everything_is_settled(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "store")
    journal.note([voucher("a-one.example.com")])

    journal.replace(())

    assert [] == list(tmp_path.iterdir())


def test_notes_about_another_store_are_not_followed(tmp_path: Path) -> None:
    Journal(tmp_path, "https://one.example default").note([voucher("a-one.example.com")])

    assert () == Journal(tmp_path, "https://two.example default").vouchers


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"store": 1}', b"\xff", b"[]", b'{"more":' + b"[" * 10_000], ids=lambda it: it[:9]
)
def test_a_damaged_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    assert () == Journal(tmp_path, "store").vouchers


@pytest.mark.parametrize(("old", "new"), [(b"192.0.2.1", b"192.0.2.9"), (b'"A"', b'"B"'), (b"one.", b"ono.")])
def test_notes_that_are_not_what_was_written_are_ignored(tmp_path: Path, old: bytes, new: bytes) -> None:
    """They would let ownership records be removed that are somebody else's. A bit on the disk is enough."""
    Journal(tmp_path, "store").note([voucher("a-one.example.com")])
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    assert old in content

    path.write_bytes(content.replace(old, new, 1))

    assert () == Journal(tmp_path, "store").vouchers


def test_notes_of_a_release_that_wrote_no_digest_are_followed(tmp_path: Path) -> None:
    Journal(tmp_path, "store").note([voucher("a-one.example.com")])
    path = tmp_path / FILE_NAME
    notes = json.loads(path.read_bytes())
    del notes["sha256"]
    path.write_text(json.dumps(notes))

    assert (voucher("a-one.example.com"),) == Journal(tmp_path, "store").vouchers


@in_its_place
def test_something_else_in_place_of_the_file_is_ignored_and_replaced(
    tmp_path: Path, put_odd_file: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon waited for a pipe, and read whatever there was into its memory."""
    put_odd_file(tmp_path / FILE_NAME)
    journal = Journal(tmp_path, "store")

    assert () == journal.vouchers
    (line,) = map(line_of, caplog.records)
    assert line["msg"] == "saved notes about ownership records cannot be read, ignoring them"
    journal.note([voucher("a-one.example.com")])
    assert b"a-one.example.com" in (tmp_path / FILE_NAME).read_bytes()


def test_notes_that_cannot_be_written_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "file" / "below", "store")

    journal.note([voucher("a-one.example.com")])

    assert (voucher("a-one.example.com"),) == journal.vouchers


def test_a_failed_write_of_a_note_leaves_no_older_note_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older note lacks values that became ours since: the ownership record of such a record would be removed."""

    def fill_the_disk(_path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path, "store")
    journal.note([voucher("a-one.example.com", is_leaving=False)])
    monkeypatch.setattr("dnswebhook.journal.replace_file", fill_the_disk)

    journal.note([voucher("a-two.example.com")])

    assert (voucher("a-one.example.com", is_leaving=False), voucher("a-two.example.com")) == journal.vouchers
    assert () == Journal(tmp_path, "store").vouchers


class Clock:
    """Wall time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("passed_s", [MAX_AGE_S - 1, 1 - MAX_AGE_S])
def test_recent_notes_are_followed_after_a_restart(tmp_path: Path, passed_s: float) -> None:
    clock = Clock()
    Journal(tmp_path, "store", clock).note([voucher("a-one.example.com")])

    clock.now += passed_s

    assert (voucher("a-one.example.com"),) == Journal(tmp_path, "store", clock).vouchers


@pytest.mark.parametrize("passed_s", [MAX_AGE_S + 1, -1 - MAX_AGE_S])
def test_notes_that_were_not_followed_for_long_are_forgotten(tmp_path: Path, passed_s: float) -> None:
    """The state directory was restored from a backup, or its node was away while another one did the work."""
    clock = Clock()
    Journal(tmp_path, "store", clock).note([voucher("a-one.example.com")])

    clock.now += passed_s

    assert () == Journal(tmp_path, "store", clock).vouchers
    assert [] == list(tmp_path.iterdir())


def test_notes_that_stay_open_are_kept_alive(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "store", clock)
    journal.note([voucher("a-one.example.com")])
    for _ in range(10):
        clock.now += REFRESH_S + 1
        journal.replace(journal.vouchers)
    del journal

    assert (voucher("a-one.example.com"),) == Journal(tmp_path, "store", clock).vouchers


def test_notes_that_stay_open_are_not_written_in_each_pass(tmp_path: Path) -> None:
    clock = Clock()
    journal = Journal(tmp_path, "store", clock)
    journal.note([voucher("a-one.example.com")])
    written = (tmp_path / FILE_NAME).stat().st_ino

    clock.now += REFRESH_S - 1
    journal.replace(journal.vouchers)

    assert written == (tmp_path / FILE_NAME).stat().st_ino


def test_notes_of_another_running_daemon_are_neither_followed_nor_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, ours = voucher("a-one.example.com"), voucher("a-two.example.com")
    first = Journal(tmp_path, "store")
    first.note([theirs])

    second = Journal(tmp_path, "store")
    second.note([ours])
    assert (ours,) == second.vouchers
    assert "in use by another dnswebhook" in caplog.text
    second.replace(())
    del first

    assert (theirs,) == Journal(tmp_path, "store").vouchers


def test_a_directory_is_used_after_another_daemon_has_left_it(tmp_path: Path) -> None:
    first = Journal(tmp_path, "store")
    second = Journal(tmp_path, "store")
    del first

    second.note([voucher("a-one.example.com")])
    del second

    assert (voucher("a-one.example.com"),) == Journal(tmp_path, "store").vouchers


def test_notes_of_a_daemon_that_ended_after_our_start_are_not_followed_after_the_next_start(tmp_path: Path) -> None:
    """As with overlapping restarts: those notes do not know what the new daemon has written since."""
    first = Journal(tmp_path, "store")
    first.note([voucher("a-one.example.com")])
    second = Journal(tmp_path, "store")
    del first

    second.look_again()
    assert () == second.vouchers
    del second

    assert () == Journal(tmp_path, "store").vouchers


def test_notes_are_kept_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    Journal(tmp_path, "store").note([voucher("a-one.example.com")])

    assert (voucher("a-one.example.com"),) == Journal(tmp_path, "store").vouchers
