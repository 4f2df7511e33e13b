"""The embedded store by itself: its rules, its cache, and what other processes and broken files do to it."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from daemonkit.logformat import describe_error
from dnswebhook.canonical import MAX_TTL_S
from dnswebhook.deadline import Deadline
from dnswebhook.errors import AlreadyExists, NotFound, Overlaps, StoreError, StoreFailed, StoreTimeout
from dnswebhook.model import Listing, Record, RecordSpec
from dnswebhook.stores import embedded
from dnswebhook.stores.base import Grade
from dnswebhook.stores.embedded import FILE_NAME, SCHEMA_VERSION, EmbeddedStore
from tests.support.oddfiles import endless_device, pipe

A = RecordSpec("app.example.com", "A", "192.0.2.1", 300)
CNAME = RecordSpec("app.example.com", "CNAME", "host.example.net")


def soon() -> Deadline:
    return Deadline.after(20.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    opened = EmbeddedStore(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Another connection to the same file: equivalent to another process for SQLite."""
    opened = EmbeddedStore(tmp_path)
    yield opened
    opened.close()


def held(store: EmbeddedStore) -> list[RecordSpec]:
    return [record.spec for record in store.list_records(soon()).records]


def test_a_probe_is_a_write(store: EmbeddedStore, other: EmbeddedStore) -> None:
    store.probe(soon())
    other.list_records(soon())
    with sqlite3.connect(other.path, isolation_level=None) as third:
        third.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreTimeout, match="locked by another process"):
            store.probe(Deadline.after(0.1))
        third.execute("ROLLBACK")
    third.close()

    store.probe(soon())


def test_a_write_after_one_that_found_the_file_locked_needs_no_new_listing(store: EmbeddedStore) -> None:
    store.list_records(soon())
    with sqlite3.connect(store.path, isolation_level=None) as third:
        third.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreTimeout, match="locked by another process"):
            store.create(A, Deadline.after(0.1))
        third.execute("ROLLBACK")
    third.close()

    store.create(A, soon())


def test_a_store_that_makes_no_file_has_no_rows_before_another_process_makes_it(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with closing(EmbeddedStore(directory, makes_file=False)) as reading, closing(EmbeddedStore(directory)) as writing:
        assert held(reading) == []
        assert not directory.exists()

        writing.create(A, soon())
        assert held(reading) == [A]


def test_created_rows_are_listed_after_reopening(store: EmbeddedStore, other: EmbeddedStore) -> None:
    store.create(A, soon())
    store.create(RecordSpec("bücher", "TXT", '"grüße, 世界"', 0), soon())
    store.close()

    assert [A, RecordSpec("bücher", "TXT", '"grüße, 世界"', 0)] == held(other)


def test_a_listed_row_is_updated_and_deleted(store: EmbeddedStore) -> None:
    store.create(A, soon())
    (listed,) = store.list_records(soon()).records

    updated = store.update(listed, RecordSpec(A.name, "A", "192.0.2.2"), soon())
    assert store.list_records(soon()).records == (updated,)
    store.delete(updated, soon())
    assert held(store) == []


def test_a_row_is_updated_in_place_and_keeps_its_id(store: EmbeddedStore) -> None:
    record = store.create(A, soon())
    spec = RecordSpec(A.name, "A", "192.0.2.2", MAX_TTL_S)

    assert Record(record.id, *(spec.name, spec.type, spec.value, spec.ttl_s)) == store.update(record, spec, soon())
    assert [spec] == held(store)


def test_a_deleted_row_is_gone(store: EmbeddedStore) -> None:
    store.delete(store.create(A, soon()), soon())

    assert [] == held(store)


def test_a_value_cannot_exist_twice(store: EmbeddedStore) -> None:
    store.create(A, soon())
    second = store.create(RecordSpec(A.name, "A", "192.0.2.2"), soon())

    with pytest.raises(AlreadyExists, match=r"app\.example\.com A '192\.0\.2\.1' is there already"):
        store.create(RecordSpec(A.name, "A", A.value, 60), soon())
    with pytest.raises(AlreadyExists):
        store.update(second, A, soon())
    assert 2 == len(held(store))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(A, CNAME, id="a CNAME beside an address"),
        pytest.param(CNAME, A, id="an address beside a CNAME"),
        pytest.param(CNAME, RecordSpec(CNAME.name, "CNAME", "other.example.net"), id="a second CNAME"),
        pytest.param(RecordSpec(CNAME.name, "NS", CNAME.value), CNAME, id="another type with the very same value"),
    ],
)
def test_a_cname_is_the_only_record_of_its_name(store: EmbeddedStore, first: RecordSpec, second: RecordSpec) -> None:
    store.create(first, soon())

    with pytest.raises(Overlaps, match="a CNAME must stand alone"):
        store.create(second, soon())
    assert [first] == held(store)


def test_the_same_cname_again_exists_already(store: EmbeddedStore) -> None:
    store.create(CNAME, soon())

    with pytest.raises(AlreadyExists):
        store.create(CNAME, soon())


def test_a_row_that_somebody_removed_is_not_found(store: EmbeddedStore, other: EmbeddedStore) -> None:
    record = store.create(A, soon())
    other.delete(record, soon())

    with pytest.raises(NotFound, match="is gone"):
        store.update(record, RecordSpec(A.name, "A", "192.0.2.2"), soon())
    with pytest.raises(NotFound, match="is gone"):
        store.delete(record, soon())


def test_a_row_that_reuses_an_id_is_neither_changed_nor_deleted(store: EmbeddedStore, other: EmbeddedStore) -> None:
    """SQLite reuses the highest id once its row is gone."""
    record = store.create(A, soon())
    other.delete(record, soon())
    theirs = other.create(RecordSpec(A.name, "A", "198.51.100.9"), soon())
    assert record.id == theirs.id

    with pytest.raises(NotFound):
        store.update(record, RecordSpec(A.name, "A", "192.0.2.2"), soon())
    with pytest.raises(NotFound):
        store.delete(record, soon())
    assert [theirs.spec] == held(store)


# The cached listing.


def test_an_unchanged_store_returns_the_same_listing(store: EmbeddedStore) -> None:
    store.create(A, soon())

    assert store.list_records(soon()) is store.list_records(soon())


def test_a_write_of_this_or_another_process_makes_a_new_listing(store: EmbeddedStore, other: EmbeddedStore) -> None:
    assert [] == held(store)
    store.create(A, soon())
    assert [A] == held(store)
    added = RecordSpec("other.example.com", "A", "192.0.2.9")
    other.create(added, soon())

    assert [A, added] == held(store) == held(other)


def test_a_write_that_failed_changes_no_listing(store: EmbeddedStore) -> None:
    store.create(A, soon())
    listing = store.list_records(soon())

    with pytest.raises(AlreadyExists):
        store.create(A, soon())

    assert listing.records == store.list_records(soon()).records


def test_threads_share_one_store(store: EmbeddedStore) -> None:
    def create(number: int) -> None:
        store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), soon())
        assert store.list_records(soon()).records

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(100)))

    assert 100 == len(held(store))


# Locks.


def test_a_write_waits_for_another_process_only_until_its_deadline(tmp_path: Path, store: EmbeddedStore) -> None:
    store.create(A, soon())
    blocker = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreTimeout, match="stayed locked by another process"):
            store.create(CNAME, Deadline.after(0.05))
        assert [A] == held(store)  # readers are not kept out
    finally:
        blocker.close()

    store.create(RecordSpec("b.example.com", "A", "192.0.2.1"), soon())
    assert 2 == len(held(store))


def test_opening_waits_for_another_process_only_until_the_deadline_of_its_call(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    store.create(A, soon())
    store.close()
    blocker = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    blocker.execute("PRAGMA locking_mode = EXCLUSIVE")  # keeps readers out as well
    blocker.execute("BEGIN EXCLUSIVE")
    outcomes: list[Listing | StoreError] = []

    def list_them() -> None:
        try:
            outcomes.append(store.list_records(Deadline.after(0.05)))
        except StoreError as error:
            outcomes.append(error)

    reader = threading.Thread(target=list_them)
    reader.start()
    reader.join(3.0)
    blocker.close()  # a reader that still waits succeeds now
    reader.join(20.0)

    assert [StoreTimeout] == [type(outcome) for outcome in outcomes]
    assert [A] == held(store)


class _Waiting(Deadline):
    """A distant deadline; `meanwhile` runs as soon as somebody waits."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(soon().at, threading.Event())
        self._meanwhile = meanwhile

    def wait(self, seconds: float) -> bool:
        self._meanwhile()
        return super().wait(seconds)


def test_processes_that_open_a_new_file_at_the_same_time_wait_for_each_other(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """SQLite refuses the second one at once, whatever its timeout."""
    first = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    first.execute("BEGIN IMMEDIATE")

    assert () == store.list_records(_Waiting(first.close)).records


# Files.


@pytest.mark.parametrize("put_odd_file", [pipe, endless_device, Path.mkdir])
def test_what_is_no_regular_file_is_a_failure_with_a_remedy(
    tmp_path: Path, store: EmbeddedStore, put_odd_file: Callable[[Path], None]
) -> None:
    """The error asked whether the disk was full."""
    path = tmp_path / FILE_NAME
    put_odd_file(path)

    for call in (lambda: store.list_records(soon()), lambda: store.probe(soon()), lambda: store.create(A, soon())):
        with pytest.raises(StoreFailed, match=f"^{path} is no regular file; move the file away: external-dns"):
            call()


@pytest.mark.parametrize("content", [b"this is no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_not_a_database_is_a_failure_and_is_left_alone(
    tmp_path: Path, store: EmbeddedStore, content: bytes
) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)

    with pytest.raises(StoreFailed, match=rf"{FILE_NAME}.*move the file away: external-dns"):
        store.list_records(soon())
    with pytest.raises(StoreFailed):
        store.create(A, soon())

    assert content == path.read_bytes()


def test_a_damaged_page_is_a_failure_and_the_store_works_again_once_its_file_does(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    for number in range(300):
        store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), soon())
    store.close()
    path = tmp_path / FILE_NAME
    good = path.read_bytes()
    path.write_bytes(good[:4096] + b"\xa5" * (len(good) - 4096))

    with pytest.raises(StoreFailed):
        store.list_records(soon())
    path.write_bytes(good)

    assert 300 == len(held(store))


@pytest.mark.parametrize(
    ("sound", "damaged"),
    [
        pytest.param(b"app.example.comA192.0.2.1\x01\x2c", b"apq.example.comA192.0.2.1\x01\x2c", id="not as indexed"),
        pytest.param(b"\x2b\x0f\x1f\x02app.", b"\x2a\x0f\x1f\x02app.", id="a name that is no text"),
        pytest.param(b"A192.0.2.1\x01\x2c", b"A192.0.2.1\x81\x2c", id="a negative TTL"),
        pytest.param(b"app.example.com", b"\xffpp.example.com", id="a name that is not UTF-8"),
        pytest.param(b"CREATE TABLE record", b"CREATE T\xffBLE record", id="a schema that is not UTF-8"),
        pytest.param(b"CREATE TABLE record", b"CREATE TABLE recorc", id="another table"),
    ],
)
def test_a_single_wrong_byte_is_a_failure_of_every_call_and_is_left_alone(
    tmp_path: Path, store: EmbeddedStore, sound: bytes, damaged: bytes
) -> None:
    """SQLite by itself notices few of them. The row of a wrong name, for example, could be neither listed nor added."""
    store.create(A, soon())
    store.close()
    path = tmp_path / FILE_NAME
    assert sound in path.read_bytes()
    content = path.read_bytes().replace(sound, damaged)
    path.write_bytes(content)

    for call in (lambda: store.list_records(soon()), lambda: store.probe(soon()), lambda: store.create(CNAME, soon())):
        with pytest.raises(StoreFailed, match=rf"{FILE_NAME}.*move the file away: external-dns"):
            call()

    assert content == path.read_bytes()


def test_tables_without_our_version_are_a_failure_with_a_remedy(tmp_path: Path, store: EmbeddedStore) -> None:
    store.create(A, soon())
    store.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version = 0")

    with pytest.raises(StoreFailed, match="move the file away: external-dns"):
        store.list_records(soon())


def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path, store: EmbeddedStore) -> None:
    store.create(A, soon())
    store.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()

    for call in (lambda: store.create(CNAME, soon()), lambda: store.list_records(soon()), lambda: store.probe(soon())):
        with pytest.raises(StoreFailed, match="written by a newer release; upgrade"):
            call()


def test_the_file_is_accessible_only_to_its_owner(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "new" / "state")
    store.probe(soon())
    store.close()

    assert 0o600 == (tmp_path / "new" / "state" / FILE_NAME).stat().st_mode & 0o777
    assert 0o700 == (tmp_path / "new" / "state").stat().st_mode & 0o777


def test_a_state_directory_below_a_file_is_a_failure_until_the_file_is_removed(tmp_path: Path) -> None:
    obstacle = tmp_path / "state"
    obstacle.write_text("a file")
    store = EmbeddedStore(obstacle / "inner")

    with pytest.raises(StoreFailed, match=r"inner.*choose another --state-dir"):
        store.probe(soon())
    obstacle.unlink()
    store.probe(soon())
    store.close()


# Files that are removed or replaced under an open store.


def in_file(directory: Path) -> list[RecordSpec]:
    """Returns what another process finds there, in an intact file."""
    other = EmbeddedStore(directory, makes_file=False)
    records = held(other)
    other.close()
    with sqlite3.connect(directory / FILE_NAME) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return records


def remove_all(directory: Path) -> None:
    for path in directory.glob(f"{FILE_NAME}*"):
        path.unlink(missing_ok=True)  # journals come and go by themselves


def remove_the_database_alone(directory: Path) -> None:
    (directory / FILE_NAME).unlink()


def move_away(directory: Path) -> None:
    (directory / FILE_NAME).rename(directory / "away")


REMOVALS = [remove_all, remove_the_database_alone, move_away, shutil.rmtree]


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_removed_file_is_recreated_empty(
    tmp_path: Path, remove: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "state"
    store = EmbeddedStore(directory)
    store.create(A, soon())
    assert [A] == held(store)

    remove(directory)

    assert [] == held(store)
    later = RecordSpec("later.example.com", "A", "192.0.2.9")
    store.create(later, soon())
    assert [later] == held(store) == in_file(directory)
    store.close()
    assert [later] == in_file(directory)
    assert ["the database was removed or replaced, it is opened anew"] == caplog.messages


@pytest.mark.parametrize("remove", REMOVALS)
def test_no_write_goes_to_a_removed_file(tmp_path: Path, remove: Callable[[Path], object]) -> None:
    directory = tmp_path / "state"
    store = EmbeddedStore(directory)
    old = store.create(A, soon())
    remove(directory)
    store.create(CNAME, soon())
    assert [CNAME] == in_file(directory)

    remove(directory)
    with pytest.raises(NotFound):
        store.update(old, RecordSpec(A.name, "A", "192.0.2.2"), soon())
    remove(directory)
    with pytest.raises(NotFound):
        store.delete(old, soon())
    remove(directory)
    store.probe(soon())
    assert [] == in_file(directory)
    store.close()


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_plan_for_a_removed_file_is_not_carried_out_in_another_one(
    tmp_path: Path, remove: Callable[[Path], object]
) -> None:
    """Its first half is gone, perhaps with the ownership record: external-dns would not own what the rest writes."""
    directory = tmp_path / "state"
    with closing(EmbeddedStore(directory)) as store:
        generation = store.list_records(soon()).generation
        old = store.create(A, soon())
        assert store.list_records(soon()).generation == generation
        remove(directory)

        for write in (
            lambda: store.create(CNAME, soon()),
            lambda: store.update(old, RecordSpec(A.name, "A", "192.0.2.2"), soon()),
            lambda: store.delete(old, soon()),
        ):
            with pytest.raises(StoreFailed, match="was removed or replaced since it was listed; the next pass"):
                write()
        assert [] == held(store)
        store.create(CNAME, soon())
        assert [CNAME] == in_file(directory)
        assert store.list_records(soon()).generation == generation + 1


def test_a_file_that_is_removed_during_the_check_for_it_counts_as_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = embedded._identity
    removals = iter([remove_all])

    def look_and_remove(path: Path) -> tuple[int, int] | None:
        found = look(path)
        for remove in removals:
            remove(tmp_path)
        return found

    with closing(EmbeddedStore(tmp_path)) as store:
        store.list_records(soon())
        monkeypatch.setattr(embedded, "_identity", look_and_remove)

        with pytest.raises(StoreFailed, match="was removed or replaced since it was listed"):
            store.create(A, soon())
        assert [] == held(store)
        store.create(A, soon())


def test_a_removed_log_is_recreated_without_loss(tmp_path: Path, store: EmbeddedStore) -> None:
    store.create(A, soon())
    for path in tmp_path.glob(f"{FILE_NAME}-*"):
        path.unlink()

    assert [A] == held(store) == in_file(tmp_path)


def backed_up(directory: Path) -> RecordSpec:
    """Makes an older database, complete in one file."""
    store = EmbeddedStore(directory)
    spec = RecordSpec("then.example.com", "A", "192.0.2.7")
    store.create(spec, soon())
    for number in range(300):
        store.delete(store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), soon()), soon())
    store.close()
    assert [directory / FILE_NAME] == list(directory.iterdir())
    return spec


def test_a_file_that_replaces_the_database_is_read_without_the_old_log(tmp_path: Path) -> None:
    """Entries in the log of the former database must not get into it."""
    then, state = tmp_path / "then", tmp_path / "state"
    spec = backed_up(then)
    store = EmbeddedStore(state)
    for number in range(20):
        store.create(RecordSpec(f"new-{number}.example.com", "A", "192.0.2.1"), soon())
    assert (state / f"{FILE_NAME}-wal").stat().st_size

    (then / FILE_NAME).rename(state / FILE_NAME)

    assert [spec] == held(store) == in_file(state)
    store.create(A, soon())
    store.close()
    assert [spec, A] == in_file(state)


def test_a_file_that_replaces_the_database_keeps_its_own_log(tmp_path: Path) -> None:
    then, state = tmp_path / "then", tmp_path / "state"
    writer = EmbeddedStore(then)
    writer.create(CNAME, soon())
    store = EmbeddedStore(state)
    store.create(A, soon())
    copies = [Path(shutil.copy(path, tmp_path / path.name)) for path in then.iterdir()]
    writer.close()

    for path in copies:
        path.rename(state / path.name)

    assert [CNAME] == held(store) == in_file(state)
    store.close()
    assert [CNAME] == in_file(state)


def test_threads_share_a_store_whose_file_is_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    store = EmbeddedStore(state)

    def create(number: int) -> None:
        if number % 10 == 5:
            remove_all(state)
        with suppress(StoreFailed):  # opened after one file was removed and before the other was
            store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), soon())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(100)))

    store.create(A, soon())
    assert held(store) == in_file(state)
    assert A in held(store)
    store.close()


# `dnswebhook check`.


def grades(store: EmbeddedStore) -> dict[str, Grade]:
    return {finding.subject: finding.grade for finding in store.check(soon())}


def test_the_error_of_a_file_that_cannot_be_opened_does_not_blame_that_it_exists(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(FILE_NAME)

    with pytest.raises(StoreFailed) as failed:
        EmbeddedStore(tmp_path).list_records(soon())

    told = describe_error(failed.value)
    assert "Too many levels of symbolic links" in told
    assert "File exists" not in told


def test_a_check_of_a_store_in_use_counts_its_records(store: EmbeddedStore) -> None:
    store.create(A, soon())

    assert {"store": Grade.OK, "state directory": Grade.OK, "records": Grade.OK} == grades(store)
    assert ["1 records"] == [finding.detail for finding in store.check(soon()) if finding.subject == "records"]


@pytest.mark.parametrize("place", ["", "not/there/yet"])
def test_a_check_makes_neither_directory_nor_file(tmp_path: Path, place: str) -> None:
    assert {Grade.OK} == set(grades(EmbeddedStore(tmp_path / place)).values())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_check_says_that_a_file_is_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")

    findings = {finding.subject: finding for finding in EmbeddedStore(tmp_path / place).check(soon())}

    assert Grade.FAILED is findings["state directory"].grade
    assert findings["state directory"].remedy


def test_a_check_of_a_damaged_file_fails_with_a_remedy(tmp_path: Path, store: EmbeddedStore) -> None:
    (tmp_path / FILE_NAME).write_text("no database")

    findings = {finding.subject: finding for finding in store.check(soon())}

    assert Grade.FAILED is findings["records"].grade
    assert findings["records"].remedy
