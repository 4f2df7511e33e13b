"""A store in memory that follows the rules of a real one, fails on demand, and can be halted in the middle of a call.

It represents the outside world: the webhook sees only its `Store` interface. Every call is recorded in `calls`; `fail`
makes calls raise, `halt` makes them wait at a `Gate` until the test releases them.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dnswebhook.deadline import Deadline
from dnswebhook.errors import AlreadyExists, NotFound, Overlaps, StoreError, UpdateUnsupported
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec
from dnswebhook.stores.base import Finding, Grade

WAIT_S = 20.0

CAPABILITIES = Capabilities(
    store="memory",
    max_ttl_s={"A": 86400, "AAAA": 86400, "CNAME": 86400, "TXT": 0, "MX": 0, "SRV": 0},
    max_name_octets=253,
    max_target_octets=253,
    max_text_octets=255,
    wildcard_types=frozenset({"A", "AAAA"}),
    reserved_name_octets=6,
)


class Gate:
    """Calls wait here until it is opened; the test waits for the calls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived = 0
        self._is_open = False

    def arrive(self) -> None:
        with self._changed:
            self._arrived += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_open, WAIT_S), "nobody opened the gate"

    def wait_for_arrivals(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._arrived >= count, WAIT_S), f"{self._arrived} of {count} came"

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


@dataclass
class _Fault:
    error: StoreError | None
    """None: the call is confirmed but not carried out."""
    operation: str
    name: str
    value: str
    calls_left: float

    def concerns(self, operation: str, spec: RecordSpec | None) -> bool:
        if self.calls_left <= 0 or operation != self.operation:
            return False
        return (not self.name or (spec is not None and spec.name == self.name)) and (
            not self.value or (spec is not None and spec.value == self.value)
        )


@dataclass
class MemoryStore:
    """Thread-safe. `can_update=False` makes it a store that cannot change rows in place."""

    rows: dict[str, Record] = field(default_factory=dict)
    limits: Capabilities | StoreError = CAPABILITIES
    can_update: bool = True
    calls: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Every write that was called, including failed ones: operation, name, type, value."""
    generation: int = 0
    listings: int = 0
    probes: int = 0
    in_flight: int = 0
    max_in_flight: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._gates: dict[str, Gate] = {}
        self._next_id = 1
        self._listing: Listing | None = None
        self._older: Listing | None = None

    @classmethod
    def holding(cls, *records: Record, **more: object) -> "MemoryStore":
        return cls(rows={record.id: record for record in records}, **more)  # type: ignore[arg-type]

    def fail(
        self, operation: str, error: StoreError, *, name: str = "", value: str = "", times: float = float("inf")
    ) -> None:
        """Make calls of `operation` raise; if given, only for this name or value, and only this many times."""
        with self._lock:
            self._faults.append(_Fault(error, operation, name, value, times))

    def ignore(self, name: str, *, times: float = float("inf")) -> None:
        """Confirm deletes of a name's rows this many times without removing them."""
        with self._lock:
            self._faults.append(_Fault(None, "delete", name, "", times))

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def halt(self, operation: str) -> Gate:
        """Make calls of `operation` wait, from now on, at the returned gate."""
        with self._lock:
            return self._gates.setdefault(operation, Gate())

    def forget_listing(self) -> None:
        """To be called after setting rows directly."""
        with self._lock:
            self._listing = None

    def lag(self) -> None:
        """List what is there now, whatever is written, until `catch_up`."""
        with self._lock:
            self._older = Listing(tuple(self.rows.values()), self.generation)

    def catch_up(self) -> None:
        with self._lock:
            self._older = None

    @property
    def live(self) -> set[tuple[str, str, str]]:
        with self._lock:
            return {(row.name, row.type, row.value) for row in self.rows.values() if row.is_enabled}

    @property
    def verbs(self) -> list[str]:
        return [call[0] for call in self.calls]

    # The Store interface.

    def capabilities(self) -> Capabilities:
        if isinstance(self.limits, StoreError):
            raise self.limits
        return self.limits

    def list_records(self, deadline: Deadline) -> Listing:
        with self._lock:
            self.listings += 1
        self._meet("list", None)
        with self._lock:
            if self._older is not None:
                return self._older
            if self._listing is None:
                self._listing = Listing(tuple(self.rows.values()), self.generation)
            return self._listing

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        self._begin("create", spec)
        try:
            self._meet("create", spec)
            with self._lock:
                self._refuse_clash(spec)
                return self._put(f"new-{self._new_id()}", spec)
        finally:
            self._end()

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        self._begin("update", spec)
        try:
            self._meet("update", spec)
            if not self.can_update:
                raise UpdateUnsupported("this store cannot change a row in place")
            with self._lock:
                self._require(record)
                if spec.value != record.value:
                    self._refuse_clash(spec, besides=record.id)
                return self._put(record.id, spec)
        finally:
            self._end()

    def delete(self, record: Record, deadline: Deadline) -> None:
        self._begin("delete", record.spec)
        try:
            if self._meet("delete", record.spec):
                return
            with self._lock:
                self._require(record)
                del self.rows[record.id]
                self._listing = None
        finally:
            self._end()

    def probe(self, deadline: Deadline) -> None:
        with self._lock:
            self.probes += 1
        self._meet("probe", None)

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        yield Finding("store", Grade.OK, "memory")

    def close(self) -> None:
        """There is nothing to close."""

    # Inside.

    def _begin(self, operation: str, spec: RecordSpec) -> None:
        with self._lock:
            self.calls.append((operation, spec.name, spec.type, spec.value))
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def _end(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def _meet(self, operation: str, spec: RecordSpec | None) -> bool:
        """Whether the call is to be ignored."""
        gate = self._gates.get(operation)
        if gate is not None:
            gate.arrive()
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(operation, spec)), None)
            if fault is not None:
                fault.calls_left -= 1
                if fault.error is not None:
                    raise fault.error
            return fault is not None

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _put(self, row_id: str, spec: RecordSpec) -> Record:
        record = Record(row_id, spec.name, spec.type, spec.value, spec.ttl_s)
        self.rows[row_id] = record
        self._listing = None
        return record

    def _require(self, record: Record) -> None:
        if record.id not in self.rows:
            raise NotFound(f"row {record.id!r} is gone")

    def _refuse_clash(self, spec: RecordSpec, besides: str = "") -> None:
        others: Iterable[Record] = (row for row in self.rows.values() if row.name == spec.name and row.id != besides)
        for row in others:
            if (row.type, row.value) == (spec.type, spec.value):
                raise AlreadyExists(f"{spec.name} {spec.type} {spec.value!r} is there already")
            if "CNAME" in (row.type, spec.type):
                raise Overlaps(f"{spec.name} has {row.type} {row.value!r}, and a CNAME must stand alone")
