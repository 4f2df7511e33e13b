"""Creates, changes and deletes single rows, in the same way for both APIs.

Two things make this more than three calls. First, a create with an unclear outcome (timeout, reset, 5xx, garbage,
another row) is settled by listing and comparing contents. Second, some firmware refuses every PUT, as "already exists"
or with a page. This must be distinguished from a row that really exists, and from the pages of a console that is
starting. So a refusal counts only if the console lists, no row explains the refusal, and the same PUT is then refused
again. From then on updates fail at once; after a while one of them tries PUT again.
"""

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from daemonkit.logs import get_logger
from dnswebhook.canonical import host_of
from dnswebhook.deadline import Deadline
from dnswebhook.errors import AlreadyExists, RecordError, StoreError, StoreUnreachable, UpdateUnsupported
from dnswebhook.model import Listing, Record, RecordSpec
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi.client import Client
from dnswebhook.stores.unifi.replies import MethodAbsent
from dnswebhook.stores.unifi.retry import Unclear
from dnswebhook.stores.unifi.transport import Reply, Request

log = get_logger(__name__)

_anything = msgspec.json.Decoder()

PUT_TRIALS = 2
"""Two, since a console may become ready between the first one and the listing."""
PUT_PAUSE_S = 600.0
"""If rows cannot be changed in place, one update per period tries again, at the cost of two calls and two listings."""


class Dialect(Protocol):
    """The differences between the two APIs."""

    def body_of(self, spec: RecordSpec, row_id: str | None) -> bytes:
        """Row `spec` as a request body; `row_id` is None for a new row. Raises RecordError."""

    def record_in(self, reply: Reply) -> Record:
        """The stored row in the reply to a create or update; raises StoreUnreachable."""


class RowWrites:
    def __init__(
        self,
        client: Client,
        dialect: Dialect,
        list_records: Callable[[Deadline], Listing],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._dialect = dialect
        self._list_records = list_records
        self._put = _PutUse(clock)

    def create(self, collection: str, spec: RecordSpec, deadline: Deadline) -> Record:
        """`collection` is the path to which rows are posted."""
        request = Request("POST", collection, self._dialect.body_of(spec, None))
        try:
            reply = self._client.call(request, deadline)
        except Unclear as unclear:
            return self._settled(spec, unclear.error, deadline)
        except AlreadyExists as refusal:
            if self._rows_like(spec, deadline):
                raise
            raise _taken_for_another(spec, refusal) from refusal
        try:
            record = self._dialect.record_in(reply)
        except StoreUnreachable as garbage:
            return self._settled(spec, garbage, deadline)
        if not record.id or _content(record) != _content(spec):
            # With another row's id, undoing this create would remove that row.
            wrong = StoreUnreachable(f"{replies.described(reply)}; want the row that was sent, with an id")
            return self._settled(spec, wrong, deadline)
        return record

    def _settled(self, spec: RecordSpec, error: StoreError, deadline: Deadline) -> Record:
        """The row for `spec` if it was created after all; raises `error` if not."""
        try:
            found = self._rows_like(spec, deadline)
        except StoreError as second:
            error.is_pending = True
            error.add_note(f"whether the row was created is unknown, since listing failed too: {second}")
            raise error from second
        for record in found:
            if record.ttl_s == spec.ttl_s and record.is_enabled:
                log.info("create confirmed by listing", error=error, name=spec.name, type=spec.type)
                return record
        if found:
            raise AlreadyExists(f"{spec.type} {spec.name} exists already, with another TTL or disabled") from error
        raise error

    def _rows_like(self, spec: RecordSpec, deadline: Deadline) -> list[Record]:
        wanted = _content(spec)
        return [row for row in self._list_records(deadline).records if _content(row) == wanted]

    def update(self, collection: str, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        if not self._put.may_be_tried():
            raise UpdateUnsupported("this controller refuses to change rows in place")
        request = Request("PUT", f"{collection}/{record.id}", self._dialect.body_of(spec, record.id))
        for trial in range(1, PUT_TRIALS + 1):
            try:
                reply = self._client.call(request, deadline)
            except (AlreadyExists, MethodAbsent) as refusal:
                self._check_unexplained(refusal, record, spec, deadline)
                if trial == PUT_TRIALS:
                    self._put.note_refusal(refusal)
                    raise UpdateUnsupported(f"this controller refuses to change rows in place: {refusal}") from refusal
            else:
                break
        self._put.note_success()
        if reply.body.strip():
            self._dialect.record_in(reply)
        return Record(record.id, spec.name, spec.type, spec.value, spec.ttl_s)

    def _check_unexplained(self, refusal: StoreError, record: Record, spec: RecordSpec, deadline: Deadline) -> None:
        """Raises if something explains `refusal`: another row, or a console that does not list either."""
        others = [row for row in self._list_records(deadline).records if row.id != record.id]
        if not isinstance(refusal, AlreadyExists):
            return
        if any(_content(row) == _content(spec) for row in others):
            raise refusal
        if any(_may_pass_for(row, spec) for row in others):
            raise _taken_for_another(spec, refusal) from refusal

    def delete(self, collection: str, record: Record, deadline: Deadline) -> None:
        reply = self._client.call(Request("DELETE", f"{collection}/{record.id}"), deadline)
        if reply.body.strip():  # must be JSON: the page of a console that is starting says nothing about the row
            replies.decoded(reply, _anything)


class _PutUse:
    """Whether PUT is worth a call. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next_trial_s: float | None = None
        """None unless PUT is known to be refused."""

    def may_be_tried(self) -> bool:
        """While PUT is known to be refused, true only for one caller per `PUT_PAUSE_S`."""
        if self._next_trial_s is None:
            return True
        with self._lock:
            if self._next_trial_s is not None:
                if self._clock() < self._next_trial_s:
                    return False
                self._next_trial_s = self._clock() + PUT_PAUSE_S
            return True

    def note_refusal(self, refusal: StoreError) -> None:
        with self._lock:
            is_news = self._next_trial_s is None
            self._next_trial_s = self._clock() + PUT_PAUSE_S
        if is_news:
            log.info("rows cannot be changed in place here, they are replaced", error=refusal)

    def note_success(self) -> None:
        if self._next_trial_s is None:
            return
        with self._lock:
            is_news = self._next_trial_s is not None
            self._next_trial_s = None
        if is_news:
            log.info("rows can be changed in place again")


def _taken_for_another(spec: RecordSpec, refusal: StoreError) -> RecordError:
    seen = f"no row has the value {spec.value!r}"
    return RecordError(f"{refusal}; {seen}, so the controller takes another row for the same")


def _may_pass_for(row: Record, spec: RecordSpec) -> bool:
    """Whether the controller may confuse the two: for MX and SRV it compares only hosts, and texts without case."""
    if (row.name, row.type) != (spec.name, spec.type):
        return False
    host = host_of(spec.type, spec.value)
    return row.value.lower() == spec.value.lower() or (bool(host) and host == host_of(row.type, row.value))


def _content(row: Record | RecordSpec) -> tuple[str, str, str]:
    return row.name, row.type, row.value
