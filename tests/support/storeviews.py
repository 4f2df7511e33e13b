"""The stores behind the webhook as end-to-end tests see them: filled, counted and read without the daemon.

A view provides the environment that points `dnswebhook` at it, tells what it holds (canonical rows, whoever created
them), and counts committed or attempted writes. The embedded store is read and counted in its database file, the UniFi
stores in the simulated controller.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from tests.support.controller import Controller, Draft, Origin, Row
from tests.support.desired import EMBEDDED, INTEGRATION, V2, HeldRow


class StoreView(ABC):
    label: str
    """As in `tests.support.desired`."""

    @property
    @abstractmethod
    def env(self) -> Mapping[str, str]:
        """Variables for the daemon."""

    @abstractmethod
    def add(self, rows: Iterable[HeldRow]) -> None:
        """Store rows as somebody else would. The embedded store must be open already."""

    @abstractmethod
    def held(self) -> set[HeldRow]:
        """Every row; fails if two rows say the same."""

    @abstractmethod
    def clear(self) -> None:
        """Delete every row without counting that as a write."""

    @abstractmethod
    def start_counting(self) -> None:
        """Set `writes` to zero."""

    @property
    @abstractmethod
    def writes(self) -> int: ...

    @abstractmethod
    def close(self) -> None:
        """Release the store's resources."""


class EmbeddedView(StoreView):
    label = EMBEDDED

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def env(self) -> Mapping[str, str]:
        return {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": str(self._directory)}

    def add(self, rows: Iterable[HeldRow]) -> None:
        with closing(self._connect()) as connection, connection:
            connection.executemany(
                "INSERT INTO record (name, type, value, ttl_s) VALUES (?, ?, ?, ?)", [row[:4] for row in rows]
            )

    def held(self) -> set[HeldRow]:
        with closing(self._connect()) as connection:
            return _distinct(HeldRow(*row) for row in connection.execute("SELECT name, type, value, ttl_s FROM record"))

    def clear(self) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("DELETE FROM record")

    def start_counting(self) -> None:
        """Have the database count: one trigger per kind of write, into a table that the daemon does not know."""
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS written (name TEXT)")
            connection.execute("DELETE FROM written")
            for event, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
                connection.execute(
                    f"CREATE TRIGGER IF NOT EXISTS count_{event} AFTER {event} ON record "
                    f"BEGIN INSERT INTO written VALUES ({row}.name); END"
                )

    @property
    def writes(self) -> int:
        with closing(self._connect()) as connection:
            return int(connection.execute("SELECT count(*) FROM written").fetchone()[0])

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._directory / 'records.sqlite3'}?mode=rw", uri=True)


class UnifiView(StoreView):
    """`api` is `v2` or `integration`; the controller listens from the start."""

    def __init__(self, api: str, state_directory: Path) -> None:
        self.label = {"v2": V2, "integration": INTEGRATION}[api]
        self._api = api
        self._state_directory = state_directory
        self.controller = Controller()
        self.controller.start()

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "DNSWEBHOOK_STORE": "unifi",
            "UNIFI_HOST": self.controller.url,
            "UNIFI_API_KEY": self.controller.api_key,
            "UNIFI_API": self._api,
            "DNSWEBHOOK_STATE_DIR": str(self._state_directory),
        }

    def add(self, rows: Iterable[HeldRow]) -> None:
        for row in rows:
            origin = Origin.DERIVED if row.kind == "derived" else Origin.USER_DEFINED
            self.controller.add_rows([_draft(row)], origin, self._api)

    def held(self) -> set[HeldRow]:
        return _distinct(map(_joined, self.controller.rows()))

    def clear(self) -> None:
        self.controller.clear_rows()

    def start_counting(self) -> None:
        self.controller.reset_findings()

    @property
    def writes(self) -> int:
        """Writes, including refused ones."""
        return sum(self.controller.calls.writes.values())

    def close(self) -> None:
        self.controller.close()


def _draft(row: HeldRow) -> Draft:
    """A draft of the row: the controller keeps the numbers of MX and SRV values separate from the host."""
    draft = Draft(row.name, row.type, row.value, row.ttl_s, enabled=row.kind != "disabled")
    if row.type == "MX":
        priority, host = row.value.split(" ")
        return replace(draft, value=host, priority=int(priority))
    if row.type == "SRV":
        priority, weight, port, host = row.value.split(" ")
        return replace(draft, value=host.rstrip("."), priority=int(priority), weight=int(weight), port=int(port))
    return draft


def _joined(row: Row) -> HeldRow:
    value = row.value
    if row.type == "MX":
        value = f"{row.priority} {value}"
    elif row.type == "SRV":
        value = f"{row.priority} {row.weight} {row.port} {value}."
    kind = "derived" if row.origin is not Origin.USER_DEFINED else "user" if row.enabled else "disabled"
    return HeldRow(row.key, row.type, value, row.ttl_s, kind)


def _distinct(rows: Iterable[HeldRow]) -> set[HeldRow]:
    listed = list(rows)
    distinct = set(listed)
    twice = sorted({row for row in distinct if listed.count(row) > 1})
    assert len(listed) == len(distinct), f"rows that are held twice: {twice}"
    return distinct
