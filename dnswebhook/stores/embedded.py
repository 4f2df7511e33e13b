"""Records in one SQLite file: for hosts without a controller, for demos, and as the simple model of a store.

The file is in WAL mode, so it survives kill -9 at any moment, and several processes may use it at once. The store
itself enforces what a plan made from an older listing could violate: no value twice, a CNAME alone on its name. With
`synchronous=NORMAL`, a power cut may lose the latest writes (the next pass repeats them), but never the file.

When the file is opened, it is checked for damage, since SQLite itself notices only some: an entry left over in the
index would make a missing row impossible to add, and nobody would be told. A damaged file is never listed or changed.

The file is opened on first use, and again after a failure. So a full disk or a read-only directory makes the store not
ready, and it recovers without a restart. If the disk fills up later, the store may stay ready, since the log of SQLite
reuses its room; then only the writes fail. Each call checks whether the file was removed or replaced, and if so, opens
the file that is there now; that file accepts writes once it has been listed.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daemonkit import statefile
from daemonkit.logs import get_logger
from dnswebhook.canonical import KNOWN_TYPES, MAX_NAME_OCTETS, MAX_TTL_S
from dnswebhook.deadline import Deadline
from dnswebhook.errors import AlreadyExists, NotFound, Overlaps, StoreError, StoreFailed, StoreTimeout, excerpt
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec
from dnswebhook.stores.base import Finding, Grade

log = get_logger(__name__)

FILE_NAME = "records.sqlite3"
SCHEMA_VERSION = 1
MAX_TEXT_OCTETS = 4096
_LEAST_FREE_BYTES = 65536
"""With less, there is no room for one transaction and the index of SQLite's log."""
_OPENING_PAUSE_S = 0.01
_DAMAGE_REMEDY = "move the file away: external-dns then writes its records anew"

_CAPABILITIES = Capabilities(
    store="embedded",
    max_ttl_s=dict.fromkeys(KNOWN_TYPES, MAX_TTL_S),
    max_name_octets=MAX_NAME_OCTETS,
    max_target_octets=MAX_NAME_OCTETS,
    max_text_octets=MAX_TEXT_OCTETS,
    wildcard_types=frozenset(KNOWN_TYPES),
    reserved_name_octets=len("cname-"),
)

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Codes of errors that mean a damaged file. The last one stands for statements that do not fit the tables, and ours
never change."""

_ALL_ROWS = "SELECT id, name, type, value, ttl_s FROM record ORDER BY id"

_SCHEMA = (
    """CREATE TABLE record (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        value TEXT NOT NULL,
        ttl_s INTEGER NOT NULL CHECK (ttl_s >= 0),
        UNIQUE (name, type, value)
    ) STRICT""",
    # One row, rewritten by each probe, proves that the disk accepts writes.
    "CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), at TEXT NOT NULL) STRICT",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


_FileError = sqlite3.Error | OSError | UnicodeDecodeError
"""sqlite3 raises the last one when it has to quote damaged text in an error."""

_Identity = tuple[int, int]
"""Device and inode of a file."""


class EmbeddedStore:
    """One connection, used by one thread at a time; SQLite's own locks keep processes apart."""

    def __init__(self, directory: Path, *, makes_file: bool = True) -> None:
        """If `makes_file` is false, listing does not create a missing file, but returns no records."""
        self.path = directory / FILE_NAME
        self._makes_file = makes_file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._files: dict[Path, _Identity | None] = {}
        """The files of the connection: the database, SQLite's write-ahead log and its index (`-wal`, `-shm`)."""
        self._listing: Listing | None = None
        self._foreign_version = -1
        self._was_listed = False
        self._generation = 0
        """How many listings came from another file than the previous one; see `Listing.generation`."""
        self._is_outdated = False
        """Whether the last listing came from another file than the current one."""

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    def list_records(self, deadline: Deadline) -> Listing:
        if not self._makes_file and _is_missing(self.path):
            return Listing(())
        with self._open(deadline) as connection:
            self._generation += self._is_outdated
            # Changes only when another connection, hence another process, has committed.
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if self._listing is None or version != self._foreign_version:
                rows = connection.execute(_ALL_ROWS)
                records = tuple(Record(str(row[0]), *row[1:]) for row in rows)
                self._listing = Listing(records, self._generation)
                self._foreign_version = version
            self._was_listed, self._is_outdated = True, False
            return self._listing

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        with self._write(deadline) as connection:
            _refuse_overlap(connection, spec)
            try:
                cursor = connection.execute(
                    "INSERT INTO record (name, type, value, ttl_s) VALUES (?, ?, ?, ?)",
                    (spec.name, spec.type, spec.value, spec.ttl_s),
                )
            except sqlite3.IntegrityError as error:
                raise AlreadyExists(f"{spec.name} {spec.type} {spec.value!r} is there already") from error
            return Record(str(cursor.lastrowid), spec.name, spec.type, spec.value, spec.ttl_s)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        with self._write(deadline) as connection:
            try:
                cursor = connection.execute(
                    "UPDATE record SET value = ?, ttl_s = ? WHERE id = ? AND name = ? AND type = ? AND value = ?",
                    (spec.value, spec.ttl_s, record.id, spec.name, spec.type, record.value),
                )
            except sqlite3.IntegrityError as error:
                raise AlreadyExists(f"{spec.name} {spec.type} {spec.value!r} is there already") from error
            if cursor.rowcount == 0:
                raise NotFound(f"{record.name} {record.type} {record.value!r} (id {record.id}) is gone")
            return Record(record.id, spec.name, spec.type, spec.value, spec.ttl_s)

    def delete(self, record: Record, deadline: Deadline) -> None:
        with self._write(deadline) as connection:
            cursor = connection.execute(
                "DELETE FROM record WHERE id = ? AND name = ? AND type = ? AND value = ?",
                (record.id, record.name, record.type, record.value),
            )
            if cursor.rowcount == 0:
                raise NotFound(f"{record.name} {record.type} {record.value!r} (id {record.id}) is gone")

    def probe(self, deadline: Deadline) -> None:
        with self._open(deadline) as connection:
            connection.execute("INSERT OR REPLACE INTO probe VALUES (1, datetime('now'))")

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        """As `Store.check`. Does not create a missing directory or database."""
        directory = self.path.parent
        yield Finding("store", Grade.OK, f"embedded, {self.path}")
        if not _is_directory(directory):
            yield from self._check_missing_directory(directory)
            return
        if not os.access(directory, os.W_OK | os.X_OK):
            remedy = "give the user that runs dnswebhook write access, or choose another --state-dir"
            yield Finding("state directory", Grade.FAILED, f"{directory} is not writable", remedy)
            return
        if _is_full(directory):
            yield _full(directory)
            return
        yield Finding("state directory", Grade.OK, f"{directory} is writable")
        if not self.path.exists():
            yield Finding("records", Grade.OK, "no database yet; it will be created at the first start")
            return
        try:
            count = len(self.list_records(deadline).records)
        except StoreError as error:
            remedy = "check the disk; if the database is moved away, external-dns writes its records anew"
            yield Finding("records", Grade.FAILED, str(error), remedy)
        else:
            yield Finding("records", Grade.OK, f"{count} records")

    @staticmethod
    def _check_missing_directory(directory: Path) -> Iterator[Finding]:
        parent = next(path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
        if not _is_directory(parent):
            yield Finding("state directory", Grade.FAILED, f"{parent} is not a directory", "choose another --state-dir")
        elif not os.access(parent, os.W_OK | os.X_OK):
            remedy = (
                f"make it writable for the user that runs dnswebhook, below {parent}, or choose another --state-dir"
            )
            yield Finding("state directory", Grade.FAILED, f"{directory} cannot be created", remedy)
        elif _is_full(parent):
            yield _full(parent)
        else:
            yield Finding("state directory", Grade.OK, f"{directory} will be created at the first start")

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    @contextmanager
    def _open(self, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone. Errors of SQLite and of the file system are raised as StoreError."""
        if not self._lock.acquire(timeout=max(0.0, deadline.remaining_s)):
            raise StoreTimeout(f"{self.path} stayed busy until the deadline of the call")
        try:
            connection = self._current() or self._connect(deadline)
            connection.execute(_busy_timeout(deadline))
            yield connection
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            self._disconnect()
            raise self._converted(error) from error
        finally:
            self._lock.release()

    @contextmanager
    def _write(self, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        with self._open(deadline) as connection:
            if self._is_outdated:  # an ownership record could get into one file, and its record into the other
                raise StoreFailed(f"{self.path} was removed or replaced since it was listed; the next pass writes anew")
            with _transaction(connection):
                yield connection
            self._listing = None

    def _current(self) -> sqlite3.Connection | None:
        """The connection; None if there is none, or if one of its files was removed or replaced, so that whatever is
        written may be lost when it is closed."""
        lost = {path for path, opened in self._files.items() if _identity(path) != opened}
        self._is_outdated |= self._was_listed and self.path in lost
        if self._connection is None or not lost:
            return self._connection
        log.warning("the database was removed or replaced, it is opened anew", path=str(self.path))
        # If the database is still in its place, SQLite now writes the log into it. Otherwise it leaves all files alone,
        # and the old log would be replayed into the new database.
        self._disconnect()
        if self.path in lost:
            for path in self._files.keys() - lost:
                path.unlink(missing_ok=True)
        return None

    def _connect(self, deadline: Deadline) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _want_regular(self.path)
        is_new = _make_file(self.path)
        # Before SQLite opens the file: if it is replaced in between, the next call notices.
        identity = _identity(self.path)
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(_busy_timeout(deadline))
            _use_wal(connection, deadline)
            connection.execute("PRAGMA synchronous = NORMAL")
            self._prepare_schema(connection)
            self._want_intact(connection)
        except BaseException:
            connection.close()
            raise
        beside = [self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm")]
        is_still_there = _identity(self.path) == identity
        # The file may be removed after `_current` has looked, and a new one may get the inode number of the old one.
        self._is_outdated |= self._was_listed and (is_new or identity != self._files.get(self.path, identity))
        self._files = {self.path: identity} | ({path: _identity(path) for path in beside} if is_still_there else {})
        self._connection = connection
        return connection

    def _prepare_schema(self, connection: sqlite3.Connection) -> None:
        if self._schema_version(connection) == SCHEMA_VERSION:
            return
        with _transaction(connection):
            if self._schema_version(connection) == 0:  # no other process was faster
                for statement in _SCHEMA:
                    connection.execute(statement)

    def _want_intact(self, connection: sqlite3.Connection) -> None:
        """Raises StoreFailed, or an error of sqlite3, if the file is damaged."""
        found: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreFailed(f"{self.path}: the database is damaged: {excerpt(found)}; {_DAMAGE_REMEDY}")
        for _row in connection.execute(_ALL_ROWS):  # the check does not look for text that is not UTF-8
            pass

    def _schema_version(self, connection: sqlite3.Connection) -> int:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreFailed(
                f"{self.path} has schema version {version}, this release knows {SCHEMA_VERSION}: "
                "it was written by a newer release; upgrade, or choose another --state-dir"
            )
        return version

    def _disconnect(self) -> None:
        self._listing = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _converted(self, error: _FileError) -> StoreError:
        if _is_busy(error):
            return StoreTimeout(f"{self.path} stayed locked by another process until the deadline of the call")
        return StoreFailed(f"{self.path}: {excerpt(str(error))}; {_remedy(error)}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _busy_timeout(deadline: Deadline) -> str:
    """A statement that makes SQLite wait for other processes until the deadline, and no longer."""
    return f"PRAGMA busy_timeout = {max(1, int(deadline.remaining_s * 1000))}"


def _use_wal(connection: sqlite3.Connection, deadline: Deadline) -> None:
    """Put the database into WAL mode.

    While another process creates the same file, SQLite reports at once that it is busy, whatever the timeout.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or not deadline.wait(_OPENING_PAUSE_S):
                raise
        else:
            return


def _is_busy(error: _FileError) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _code(error) == sqlite3.SQLITE_BUSY


def _remedy(error: _FileError) -> str:
    if isinstance(error, UnicodeDecodeError) or (isinstance(error, sqlite3.Error) and _code(error) in _DAMAGED):
        return _DAMAGE_REMEDY
    return statefile.remedy(error, "--state-dir (DNSWEBHOOK_STATE_DIR)")


def _code(error: sqlite3.Error) -> int:
    """Errors that the Python module raises by itself have no code: ours are about text that is not UTF-8."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF


def _refuse_overlap(connection: sqlite3.Connection, spec: RecordSpec) -> None:
    found = connection.execute(
        "SELECT type, value FROM record"
        " WHERE name = ? AND NOT (type = ? AND value = ?) AND (type = 'CNAME' OR ? = 'CNAME') LIMIT 1",
        (spec.name, spec.type, spec.value, spec.type),
    ).fetchone()
    if found:
        raise Overlaps(f"{spec.name} has {found[0]} {found[1]!r}, and a CNAME must stand alone on its name")


def _want_regular(path: Path) -> None:
    """SQLite would open a device and whatever else, and say that the disk is full. Raises StoreFailed, OSError."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreFailed(f"{path} is no regular file; {_DAMAGE_REMEDY}")


def _make_file(path: Path) -> bool:
    """Create the file; returns False if it already exists. Raises OSError if it cannot be created or written to."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with suppress(FileExistsError):
        os.close(os.open(path, flags | os.O_EXCL, 0o600))
        return True
    os.close(os.open(path, flags, 0o600))  # created if it is a dangling link
    return False


def _identity(path: Path) -> _Identity | None:
    """Distinguishes a file from another one at the same path; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # opening it reports the error
        return False
    return False


def _is_full(directory: Path) -> bool:
    """Whether those who are not root find no space; False if the file system does not tell."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < _LEAST_FREE_BYTES


def _full(directory: Path) -> Finding:
    remedy = "free some space, or choose another --state-dir"
    return Finding("state directory", Grade.FAILED, f"the file system of {directory} is full", remedy)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no permission to look into a parent directory
        return False
