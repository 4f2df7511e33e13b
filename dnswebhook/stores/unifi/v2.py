"""The v2 "static-dns" API as a store: one array holds everything, one call changes one row.

If the bytes of a listing equal those of the last one, the last `Listing` object is returned again, so that a pass
without changes costs little more than the transfer.
"""

from collections.abc import Callable

import msgspec

from dnswebhook.deadline import Deadline
from dnswebhook.flights import Flights
from dnswebhook.model import Listing, Record, RecordSpec
from dnswebhook.stores.observed import Observe, observed
from dnswebhook.stores.unifi import replies, v2rows
from dnswebhook.stores.unifi.client import Client
from dnswebhook.stores.unifi.rowsdecoder import RowsDecoder
from dnswebhook.stores.unifi.transport import Reply, Request
from dnswebhook.stores.unifi.v2rows import RowMemory, V2Row
from dnswebhook.stores.unifi.writes import RowWrites

LISTING_TIMEOUT_FACTOR = 2.0

_rows_decoder = RowsDecoder(V2Row, v2rows.no_record)
_row_decoder = msgspec.json.Decoder(V2Row)


class _Dialect:
    def body_of(self, spec: RecordSpec, row_id: str | None) -> bytes:
        return v2rows.body_of(spec, row_id)

    def record_in(self, reply: Reply) -> Record:
        return v2rows.record_of(replies.decoded(reply, _row_decoder))


class V2Store:
    """Thread-safe."""

    def __init__(self, client: Client, collection: str, observe: Observe, clock: Callable[[], float]) -> None:
        """`collection` is the path of the site's rows."""
        self._client = client
        self._collection = collection
        self._observe = observe
        self._flights = Flights(self._fetch)
        self._writes = RowWrites(client, _Dialect(), self.list_records, clock)
        self._memory = RowMemory()
        self._last_body: bytes | None = None
        self._last_listing = Listing(())

    def list_records(self, deadline: Deadline) -> Listing:
        return self._flights.get(deadline)

    def _fetch(self, deadline: Deadline) -> Listing:
        """Never runs twice at the same time, thanks to `Flights`."""
        with observed(self._observe, "list"):
            request = Request("GET", self._collection, wants_array=True, timeout_factor=LISTING_TIMEOUT_FACTOR)
            reply = self._client.call(request, deadline)
            if reply.body != self._last_body:
                self._last_listing = Listing(self._memory.records_of(replies.decoded(reply, _rows_decoder)))
                self._last_body = reply.body
            return self._last_listing

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "create"):
            return self._writes.create(self._collection, spec, deadline)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "update"):
            return self._writes.update(self._collection, record, spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        with observed(self._observe, "delete"):
            self._writes.delete(self._collection, record, deadline)

    def probe(self, deadline: Deadline) -> None:
        """List: this API has no cheaper call that proves both path and credentials."""
        with observed(self._observe, "probe"):
            self.list_records(deadline)

    def site_names(self, deadline: Deadline) -> list[str]:  # noqa: ARG002 - as the other API
        """Always empty: this API cannot list sites."""
        return []

    def close(self) -> None:
        """Nothing to do: the store holds no resources of its own."""
