"""The rows of one site, which both APIs read and write, and the rules between rows.

Rules within one row belong to the API that received it (`v2rules`, `policyrules`). This module enforces uniqueness, the
CNAME rule and the names that devices own. Every method may be called from any thread. A listing is assembled from the
encoded rows once per write, and then returned as the same object.
"""

import threading
from collections.abc import Callable, Iterable
from enum import Enum

import msgspec

from tests.support.controller.quirks import Quirks
from tests.support.controller.resolver import Resolver
from tests.support.controller.rows import Api, Draft, Origin, RecordType, Row, replaced, stored


class Conflict(Enum):
    EXISTS = "a row with this key, type and value exists"
    CNAME_OVERLAP = "a CNAME cannot share its name with other rows"
    DEVICE_OVERLAP = "a device's local DNS record owns this name"
    NOT_USER_DEFINED = "the row was not defined by a user"


class ConflictError(Exception):
    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.value)
        self.conflict = conflict


class UnknownRowError(Exception):
    """No row has this identifier."""


class _V2Record(msgspec.Struct, gc=False):
    id: str = msgspec.field(name="_id")
    enabled: bool
    key: str
    record_type: str
    value: str
    ttl: int
    priority: int
    weight: int
    port: int


_encode = msgspec.json.Encoder().encode


def encode_v2(row: Row) -> bytes:
    """The row as v2 shows it."""
    return _encode(
        _V2Record(row.id, row.enabled, row.key, row.type, row.value, row.ttl_s, row.priority, row.weight, row.port)
    )


class RecordStore:
    """The rows of one site and its resolver."""

    def __init__(self, clock: Callable[[], float], quirks: Quirks) -> None:
        self.resolver = Resolver(clock)
        self._quirks = quirks
        self._lock = threading.Lock()
        self._last_number = 0
        self._rows: dict[str, Row] = {}
        self._encoded: dict[str, bytes] = {}
        self._by_name: dict[str, dict[str, Row]] = {}
        self._id_of_policy: dict[str, str] = {}
        self._listing: bytes | None = None
        self._snapshot: tuple[Row, ...] | None = None

    def create(self, draft: Draft, made_by: Api) -> Row:
        with self._lock:
            self._check(draft, except_id=None)
            row = self._number(draft, Origin.USER_DEFINED, made_by)
            self._put(row)
            self.resolver.reload(None, row, self._by_name[row.name].values())
            return row

    def update(self, row_id: str, draft: Draft) -> Row:
        """Raises UnknownRowError or ConflictError."""
        with self._lock:
            before = self._writable(row_id)
            self._check(draft, except_id=row_id)
            after = replaced(before, draft)
            self._replace(before, after)
            self.resolver.reload(before, after, self._by_name[after.name].values())
            return after

    def delete(self, row_id: str) -> Row:
        """Raises UnknownRowError or ConflictError."""
        with self._lock:
            row = self._writable(row_id)
            self._drop(row)
            self.resolver.reload(row, None, ())
            return row

    def preset(self, drafts: Iterable[Draft], origin: Origin = Origin.USER_DEFINED, made_by: Api = Api.V2) -> list[Row]:
        """Store rows verbatim, without any rule and without a reload."""
        rows = []
        with self._lock:
            for draft in drafts:
                row = self._number(draft, origin, made_by)
                self._put(row)
                self.resolver.load(None, row, self._by_name[row.name].values())
                rows.append(row)
        return rows

    def clear(self) -> None:
        """Delete every row without counting a write."""
        with self._lock:
            for row in list(self._rows.values()):
                self._drop(row)
                self.resolver.load(row, None, ())

    def forget_history(self) -> None:
        with self._lock:
            self.resolver.forget_history()

    def find(self, row_id: str) -> Row | None:
        return self._rows.get(row_id)

    def find_policy(self, policy_id: str) -> Row | None:
        row_id = self._id_of_policy.get(policy_id)
        return None if row_id is None else self._rows.get(row_id)

    def rows(self) -> tuple[Row, ...]:
        """All rows at one moment, oldest first."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = tuple(self._rows.values())
            return self._snapshot

    def v2_listing(self) -> bytes:
        with self._lock:
            if self._listing is None:
                self._listing = b"[" + b",".join(self._encoded.values()) + b"]"
            return self._listing

    def _number(self, draft: Draft, origin: Origin, made_by: Api) -> Row:
        self._last_number += 1
        return stored(draft, self._last_number, origin, made_by)

    def _writable(self, row_id: str) -> Row:
        row = self._rows.get(row_id)
        if row is None:
            raise UnknownRowError(row_id)
        if row.origin is not Origin.USER_DEFINED:
            raise ConflictError(Conflict.NOT_USER_DEFINED)
        return row

    def _check(self, draft: Draft, except_id: str | None) -> None:
        others = [row for row in self._by_name.get(draft.key.lower(), {}).values() if row.id != except_id]
        if not others:
            return
        if any(row.origin is Origin.DERIVED for row in others):
            raise ConflictError(Conflict.DEVICE_OVERLAP)
        if any(row.type == draft.type and row.value == draft.value for row in others):
            raise ConflictError(Conflict.EXISTS)
        is_overlap = draft.type == RecordType.CNAME or any(row.type == RecordType.CNAME for row in others)
        if is_overlap and not self._quirks.accepts_cname_overlap:
            raise ConflictError(Conflict.CNAME_OVERLAP)

    def _put(self, row: Row) -> None:
        self._rows[row.id] = row
        self._id_of_policy[row.policy_id] = row.id
        self._by_name.setdefault(row.name, {})[row.id] = row
        if row.origin is Origin.USER_DEFINED:
            self._encoded[row.id] = encode_v2(row)
        self._listing = self._snapshot = None

    def _replace(self, before: Row, after: Row) -> None:
        if before.name != after.name:
            self._forget_name(before)
        self._put(after)

    def _drop(self, row: Row) -> None:
        del self._rows[row.id]
        del self._id_of_policy[row.policy_id]
        self._encoded.pop(row.id, None)
        self._forget_name(row)
        self._listing = self._snapshot = None

    def _forget_name(self, row: Row) -> None:
        same_name = self._by_name[row.name]
        del same_name[row.id]
        if not same_name:
            del self._by_name[row.name]
