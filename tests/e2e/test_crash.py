"""kill -9 in the middle of an apply: the daemon starts again, and the passes of external-dns end with the wanted rows.

Ownership records included, foreign rows untouched, in each of the three phases of a record's life.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dnswebhook.model import Endpoint
from tests.proxy.site import eventually
from tests.support.client_model import HardError
from tests.support.controller import Hang
from tests.support.daemon import Daemon
from tests.support.desired import HeldRow
from tests.support.passes import Loop, assert_survived, endpoint, rows_of
from tests.support.storeviews import EmbeddedView, StoreView, UnifiView

FOREIGN = {
    HeldRow("nas.lan", "A", "198.51.100.1"),
    HeldRow("host-7.example.org", "TXT", '"kept, by hand"'),
    HeldRow("theirs.example.org", "A", "198.51.100.2", 60),
}
SETS = 200
WRITES_BEFORE_THE_CRASH = 20
"""So few that a slow disk on a slow machine writes them within the call deadline."""
DEADLINE_S = 30.0


def wanted(version: int) -> list[Endpoint]:
    """Each version has other values; two of three addresses stay."""
    return [
        endpoint(f"host-{number}.example.org", "A", *(f"10.{part}.{number // 250}.{number % 250}" for part in parts))
        for parts in [(version, version + 1, version + 2)]
        for number in range(SETS)
    ]


PHASES: dict[str, tuple[list[Endpoint], list[Endpoint]]] = {
    "while records are created": ([], wanted(1)),
    "while records are changed": (wanted(1), wanted(2)),
    "while records are removed": (wanted(1), []),
}


class Crash:
    """What makes sure that the daemon is in the middle of its writes when it is killed."""

    def __init__(self, view: StoreView, directory: Path) -> None:
        self.view = view
        self._database = directory / "records.sqlite3"

    @contextmanager
    def prepared(self) -> Iterator[Callable[[], object]]:
        """Within the block applies stop half way; the callable returns once one has got there."""
        if isinstance(self.view, UnifiView):
            controller = self.view.controller
            hang = controller.fault(Hang(after_commit=True), "write", nth=WRITES_BEFORE_THE_CRASH)
            yield lambda: hang.wait_for_strikes(timeout_s=DEADLINE_S)
            controller.faults.clear()
            controller.release_hangs()
            return
        with self._hanging_disk() as written:
            yield lambda: eventually(lambda: written() >= WRITES_BEFORE_THE_CRASH, "writes are done", DEADLINE_S)

    @contextmanager
    def _hanging_disk(self) -> Iterator[Callable[[], int]]:
        """The write after those never ends its count. The callable returns how many are done."""
        last = f"CASE WHEN (SELECT count(*) FROM written) > {WRITES_BEFORE_THE_CRASH} THEN -1 ELSE 1 END"
        count = f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {last}) SELECT max(n) FROM c"
        with closing(sqlite3.connect(self._database)) as connection:
            connection.execute("CREATE TABLE written (at)")
            for event in ("INSERT", "UPDATE", "DELETE"):
                steps = f"INSERT INTO written VALUES (0); {count};"
                connection.execute(f"CREATE TRIGGER slow_{event} AFTER {event} ON record BEGIN {steps} END")
            yield lambda: int(connection.execute("SELECT count(*) FROM written").fetchone()[0])
            for event in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER slow_{event}")
            connection.execute("DROP TABLE written")


@pytest.fixture(params=["embedded", "v2"])
def crash(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crash]:
    view = EmbeddedView(tmp_path) if request.param == "embedded" else UnifiView(request.param, tmp_path)
    yield Crash(view, tmp_path)
    view.close()


@pytest.mark.parametrize("phase", PHASES)
def test_after_a_crash_the_passes_end_with_exactly_the_wanted_rows(crash: Crash, phase: str) -> None:
    before, after = PHASES[phase]
    view = crash.view
    with Daemon.dnswebhook(view.env) as daemon:
        loop = Loop(daemon.url("api"))
        loop.list_records()  # opens the embedded store
        view.add(FOREIGN)
        loop.settle(before)

        with crash.prepared() as wait_for_the_middle:
            interrupted = threading.Thread(target=_until_the_crash, args=(loop, after), daemon=True)
            interrupted.start()
            wait_for_the_middle()
            daemon.kill()
        interrupted.join(DEADLINE_S)

        assert view.held() not in (rows_of(before) | FOREIGN, rows_of(after) | FOREIGN), "this was not the middle"

    with Daemon.dnswebhook(view.env) as successor:
        loop = Loop(successor.url("api"))
        assert loop.settle(after, max_passes=3)
        assert_survived(loop.replies)
        assert view.held() == rows_of(after) | FOREIGN
        assert successor.stop() == 0, successor.tail
    if isinstance(view, UnifiView):
        assert not view.controller.resolver_is_broken


def _until_the_crash(loop: Loop, desired: list[Endpoint]) -> None:
    with pytest.raises(HardError):
        loop.reconcile(desired)
