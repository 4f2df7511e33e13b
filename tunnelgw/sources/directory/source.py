"""The folder as a source: a thread looks at it from time to time, and soon after the kernel hints at a change.

    source = DirectorySource(folder, status_folder, store, daemon.stop)
    daemon.thread(*source.thread())
    source.writer().write(kind, item, status)

Besides the objects in files, the store gets those that a cluster would have: a Namespace for each one that is used, and
the CRDs of Gateway API.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from daemonkit.logs import get_logger
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.admission import Admitted, Problem
from tunnelgw.sources.directory.folder import Folder
from tunnelgw.sources.directory.hints import Hints
from tunnelgw.sources.directory.lastgood import LastGoodFile
from tunnelgw.sources.directory.ledger import Ledger
from tunnelgw.sources.directory.reading import Manifests, Reading
from tunnelgw.sources.directory.statuses import StatusFolder, StatusWriter
from tunnelgw.sources.directory.surroundings import namespace, surroundings, unsaid_namespaces
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

_SHORTEST_PERIOD_S = 0.25
_LONGEST_PERIOD_S = 10.0
_IDLE_SHARE, _BUSY_SHARE = 0.005, 0.1
"""The share of a core that looking may use, idle and after changes, unless the longest period demands more."""

_log = get_logger("tunnelgw.sources.directory")


class DirectorySource:
    def __init__(
        self,
        root: Path,
        status_root: Path,
        store: Store,
        stop: threading.Event,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Raises OSError if the folder, or what is remembered about it, cannot be read. A dry run writes nothing, since
        the status folder may belong to a running controller.
        """
        os.scandir(root).close()
        self._root = root
        self._store = store
        self._stop = stop
        self._now = now
        self._is_dry_run = is_dry_run
        self._lock = threading.RLock()
        self._last_good = LastGoodFile(status_root, root)
        last_good = self._last_good.load()
        self._folder = Folder(root, status_root, last_good)
        self._manifests = Manifests(last_good)
        self._ledger = Ledger(status_root)
        self._status_folder = StatusFolder(status_root)
        self._statuses: dict[Entry, bytes] = {}
        self._admitted: Mapping[Entry, Admitted] = {}
        self._rejected: Mapping[Entry, Unreadable] = {}
        self._problems: tuple[Problem, ...] = ()
        self._kept = last_good
        self._is_first = True
        self._limited = _log.every(60.0)

    def thread(self) -> tuple[str, Callable[[], None]]:
        """Name and target; it runs until `stop` is set."""
        return "watch-manifests", self._run

    def writer(self) -> StatusWriter:
        return StatusWriter(self._status_folder, self._lock, self._is_current, self._took)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All current problems, in the order of files."""
        with self._lock:
            return self._problems

    def _run(self) -> None:
        hints = Hints()
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                self.look()
            except OSError as error:
                self._limited.error("manifests cannot be read, retrying", error, folder=str(self._root))
            self._rest(hints, time.monotonic() - began_s)
        hints.close()

    def _rest(self, hints: Hints, look_s: float) -> None:
        """Wait until the next look, which comes early after a hint."""
        is_busy = hints.follow(self._folder.folders) or not self._folder.is_settled
        period_s = max(look_s / (_BUSY_SHARE if is_busy else _IDLE_SHARE), _SHORTEST_PERIOD_S)
        until_s = time.monotonic() + min(period_s, _LONGEST_PERIOD_S)
        while not self._stop.wait(_SHORTEST_PERIOD_S):
            if hints.take() or time.monotonic() >= until_s:
                break

    def look(self) -> None:
        """Bring the store up to date with the folder. Raises OSError if the folder cannot be read."""
        changes = self._folder.look()
        is_news = self._is_first or changes.read or changes.gone or changes.failed
        for path, octets in changes.read.items():
            self._manifests.put(path, octets)
        for path, reason in changes.failed.items():
            self._manifests.fail(path, reason)
        for path in changes.gone:
            self._manifests.remove(path)
        with self._lock:
            if is_news:
                self._follow(self._manifests.reading())
                self._kept = self._manifests.last_good()
                self._fetch_named()
            self._save()  # also what could not be saved before

    def _follow(self, reading: Reading) -> None:
        self._say(reading.problems)
        before, self._admitted, self._problems = self._admitted, reading.admitted, reading.problems
        rejected = {
            problem.entry: Unreadable(problem.reason)
            for problem in reversed(reading.problems)
            if problem.entry is not None and problem.entry not in reading.admitted
        }
        rejected_before, self._rejected = self._rejected, rejected
        # If a file cannot be read, its objects are unknown, so nothing may be forgotten.
        are_all_named = all(problem.entry is not None for problem in reading.problems)
        self._store.tell_nameless(are_all_named=are_all_named)
        if are_all_named:
            for entry in self._ledger.entries() - reading.admitted.keys() - rejected.keys():
                self._forget(entry)
        if self._is_first:
            self._fill(reading, rejected)
            self._is_first = False
            return
        for entry in (before.keys() | rejected_before.keys()) - reading.admitted.keys() - rejected.keys():
            self._store.delete(Kind(entry.table), entry.key)
        for entry, admitted in reading.admitted.items():
            if before.get(entry) is not admitted:
                self._store.upsert(Kind(entry.table), self._object(entry, admitted))
        for entry, problem in rejected.items():
            self._store.reject(Kind(entry.table), entry.key, problem)
        self._keep_namespaces({*before, *rejected_before}, {*reading.admitted, *rejected})

    def _fill(self, reading: Reading, rejected: Mapping[Entry, Unreadable]) -> None:
        """Give the store its first listing of every kind."""
        items: dict[Kind, list[Object]] = {kind: [] for kind in Kind}
        for entry, admitted in reading.admitted.items():
            items[Kind(entry.table)].append(self._object(entry, admitted))
        for kind, item in surroundings({*reading.admitted, *rejected}):
            items[kind].append(item)
        for kind, several in items.items():
            problems = {entry.key: problem for entry, problem in rejected.items() if entry.table is kind}
            self._store.replace(kind, several, problems)

    def _fetch_named(self) -> None:
        """Give the store the data of Secrets and ConfigMaps that were named only now: it had dropped that data."""
        for entry in self._store.wait_unread(0.0):
            admitted = self._admitted.get(entry)
            self._store.fill(entry, self._object(entry, admitted) if admitted else None)

    def _keep_namespaces(self, before: Collection[Entry], after: Collection[Entry]) -> None:
        old, new = unsaid_namespaces(before), unsaid_namespaces(after)
        for name in old - new:
            if Entry(Kind.NAMESPACE, Key("", name)) not in after:
                self._store.delete(Kind.NAMESPACE, Key("", name))
        for name in new - old:
            self._store.upsert(Kind.NAMESPACE, namespace(name))

    def _object(self, entry: Entry, admitted: Admitted) -> Object:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        remembered = self._ledger.note(entry, admitted.digest, now)
        if entry not in self._statuses:
            self._statuses[entry] = self._status_folder.read(entry, remembered.uid)
        return admitted.object(remembered, self._statuses[entry])

    def _forget(self, entry: Entry) -> None:
        self._ledger.forget(entry)
        self._statuses.pop(entry, None)
        if not self._is_dry_run:
            self._status_folder.remove(entry)

    def _is_current(self, entry: Entry, item: Object) -> bool | None:
        remembered = self._ledger.get(entry)
        if remembered is None or entry not in self._admitted:
            return None
        return (remembered.uid, remembered.generation) == (item.metadata.uid, item.metadata.generation)

    def _took(self, entry: Entry, status: bytes) -> None:
        """A status was written: pass it to the store, as the watch of an API server would."""
        self._statuses[entry] = status
        self._store.upsert(Kind(entry.table), self._object(entry, self._admitted[entry]))

    def _save(self) -> None:
        if self._is_dry_run:
            return
        try:
            self._ledger.save()
            self._last_good.save(self._kept)
        except OSError as error:
            self._limited.error("status folder cannot be written, retrying", error)

    def _say(self, problems: Iterable[Problem]) -> None:
        """Log each problem once."""
        known = set(self._problems)
        for problem in problems:
            if problem not in known:
                _log.warning("manifest refused", problem.reason, file=problem.file, line=problem.line)
