"""The Integration API's "DNS policies" as a store: sites by UUID, listings in pages.

Pages are read at different moments, so a listing counts only if every page reports the same total, has exactly the
number of rows it must have, and begins with the last row of the previous page. That overlap is necessary: if one row is
removed and another is added between two pages, the total stays the same, and a row that moved from one page to the
other would be missed. If a page does not fit, the listing is restarted a few times; the last time without overlap,
since a controller may not support it; one that refuses such pages is asked again after ten minutes. The number of pages
is computed from the first one, so that no response can make the listing endless. Pages whose rows equal those of the
last listing byte for byte are not decoded again; if all do, the last `Listing` object is returned.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import msgspec

from daemonkit.logs import get_logger
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreUnreachable
from dnswebhook.flights import Flights
from dnswebhook.model import Listing, Record, RecordSpec
from dnswebhook.stores.observed import Observe, observed
from dnswebhook.stores.unifi import integrationrows, replies
from dnswebhook.stores.unifi.address import INTEGRATION_PATH
from dnswebhook.stores.unifi.client import Client
from dnswebhook.stores.unifi.integrationrows import PolicyRow
from dnswebhook.stores.unifi.replies import QueryRefused
from dnswebhook.stores.unifi.rowsdecoder import RowsDecoder
from dnswebhook.stores.unifi.transport import Reply, Request
from dnswebhook.stores.unifi.writes import RowWrites

log = get_logger(__name__)

PAGE_LIMIT = 200
"""Rows per page, the maximum of the API."""
PARALLEL_PAGES = 4
MAX_LISTING_ATTEMPTS = 5
OVERLAP_PAUSE_S = 600.0
"""How long pages are listed without overlap after one has been refused: it may have been for another reason."""
MAX_PAGES = 5_000
"""A million rows in full pages, more than any network has: a larger number is garbage, and would exhaust the memory."""


class _PageHead(msgspec.Struct, frozen=True, rename="camel"):
    offset: int
    count: int
    total_count: int


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    offset: int
    count: int
    total_count: int
    data: msgspec.Raw


class _Part:
    """The rows of one page, kept so that an equal page need not be decoded again."""

    def __init__(self, data: bytes, rows: list[PolicyRow], shared: int) -> None:
        """The first `shared` rows are also the last rows of the previous page."""
        self.key = (data, shared)
        self.count = len(rows)
        self.ends = (rows[0], rows[-1]) if rows else None
        own = rows[shared:]
        self.ids = [row.id for row in own]
        self.records = integrationrows.records_of(own)

    @property
    def data(self) -> bytes:
        return self.key[0]


class _Site(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    internal_reference: str = ""
    name: str = ""


class _SitePage(msgspec.Struct, frozen=True, rename="camel"):
    data: list[_Site]


_head_decoder = msgspec.json.Decoder(_PageHead)
_page_decoder = msgspec.json.Decoder(_Page)
_site_decoder = msgspec.json.Decoder(_SitePage)
_rows_decoder = RowsDecoder(PolicyRow, integrationrows.no_record)
_row_decoder = msgspec.json.Decoder(PolicyRow)


class _Moved(Exception):
    """The rows changed between two pages."""


class _Dialect:
    def body_of(self, spec: RecordSpec, row_id: str | None) -> bytes:  # noqa: ARG002 - the path names the row
        return integrationrows.body_of(spec)

    def record_in(self, reply: Reply) -> Record:
        row = replies.decoded(reply, _row_decoder)
        if not integrationrows.is_record(row):
            raise StoreUnreachable(f"{replies.described(reply)}; want a DNS policy of a known type")
        return integrationrows.record_of(row)


class IntegrationStore:
    """Thread-safe."""

    def __init__(self, client: Client, site: str, observe: Observe, clock: Callable[[], float]) -> None:
        """`site` is an internal reference, a display name or a UUID."""
        self._client = client
        self._site = site
        self._observe = observe
        self._site_id: str | None = None
        self._flights = Flights(self._fetch)
        self._writes = RowWrites(client, _Dialect(), self.list_records, clock)
        self._clock = clock
        self._overlap = 1
        """How many rows a page shares with the previous one; 0 while the controller is taken not to support that."""
        self._overlap_again_at = 0.0
        """0 unless the controller refuses pages that overlap; infinite if it rounds their offsets."""
        self._second_page = b""
        """The rows of the second page that was fetched last; empty if there was none."""
        self._last_parts: list[_Part] | None = None
        self._last_listing = Listing(())
        self._pages = ThreadPoolExecutor(max_workers=PARALLEL_PAGES, thread_name_prefix="unifi-page")

    def list_records(self, deadline: Deadline) -> Listing:
        return self._flights.get(deadline)

    def _fetch(self, deadline: Deadline) -> Listing:
        """Never runs twice at the same time, thanks to `Flights`."""
        with observed(self._observe, "list"):
            collection = self._collection(deadline)
            if self._clock() >= self._overlap_again_at:
                self._overlap = 1
            for attempt in range(1, MAX_LISTING_ATTEMPTS + 1):
                is_last = attempt == MAX_LISTING_ATTEMPTS
                try:
                    listing = self._fetch_once(collection, deadline, 0 if is_last else self._overlap)
                except _Moved:
                    continue
                except StoreUnreachable as error:
                    if isinstance(error, QueryRefused) and self._overlap and not is_last:
                        self._give_up_overlap(OVERLAP_PAUSE_S)  # it may accept only offsets of whole pages
                        continue
                    self._site_id = None  # the site may have been created again, with another UUID
                    raise
                return listing
            raise StoreUnreachable(
                f"GET {collection}: the rows changed during each of {MAX_LISTING_ATTEMPTS} listings, "
                "so that no complete one was obtained; who else is writing?"
            )

    def _fetch_once(self, collection: str, deadline: Deadline, overlap: int) -> Listing:
        fetched = self._all_pages(collection, deadline, overlap)
        pages = [replies.decoded(reply, _page_decoder) for reply in fetched]
        shared = _shared(pages[0].count, overlap)
        if shared and _is_first_again(pages):
            self._give_up_overlap()
            raise _Moved
        second_page, before = bytes(pages[1].data) if len(pages) > 1 else b"", self._second_page
        self._second_page = second_page
        _check_consistency(pages, shared)
        known = {part.key: part for part in self._last_parts or ()}
        parts = [
            _part(reply, page, shared if index else 0, known)
            for index, (reply, page) in enumerate(zip(fetched, pages, strict=True))
        ]
        if shared:
            _check_seams(parts)
            if len(parts) > 1 and self._overlap_again_at:
                self._overlap_again_at = 0.0
                log.info("pages of a listing can overlap again")
        if self._overlap and not overlap and second_page:
            # A controller that rounds offsets up has sent the same page before. Otherwise it is the rows that move, and
            # one may be missing here.
            if second_page != before:
                raise _Moved
            self._give_up_overlap()
        if parts != self._last_parts:
            self._last_listing = Listing(_records_in(parts))
            self._last_parts = parts
        return self._last_listing

    def _give_up_overlap(self, pause_s: float = math.inf) -> None:
        is_news = not self._overlap_again_at
        self._overlap, self._overlap_again_at = 0, self._clock() + pause_s
        if is_news:
            log.info("pages of a listing cannot overlap here, rows that move between pages may be missed")

    def _all_pages(self, path: str, deadline: Deadline, overlap: int = 0) -> list[Reply]:
        first = self._page(path, 0, deadline)
        head = replies.decoded(first, _head_decoder)
        if head.total_count <= head.count:
            return [first]
        shared = _shared(head.count, overlap)
        step = head.count - shared
        if not 0 < head.count <= head.total_count <= step * MAX_PAGES:
            raise StoreUnreachable(
                f"GET {path}: a page of {head.count} rows of {head.total_count} in all, want at most {MAX_PAGES} pages"
            )
        offsets = range(step, head.total_count - shared, step)
        return [first, *self._pages.map(lambda offset: self._page(path, offset, deadline, head.count), offsets)]

    def _page(self, path: str, offset: int, deadline: Deadline, limit: int = PAGE_LIMIT) -> Reply:
        return self._client.call(Request("GET", f"{path}?offset={offset}&limit={limit}"), deadline)

    def _collection(self, deadline: Deadline) -> str:
        return f"{INTEGRATION_PATH}/sites/{self._resolved_site(deadline)}/dns/policies"

    def _resolved_site(self, deadline: Deadline) -> str:
        site_id = self._site_id  # read once: a listing that fails in the meantime clears it
        if site_id is None:
            wanted = self._site.casefold()
            sites = self._sites(deadline)
            # The internal reference is unique, a display name need not be, so that comes last.
            keys = ("id", "internal_reference", "name")
            found = [site.id for key in keys for site in sites if getattr(site, key).casefold() == wanted]
            if not found:
                known = ", ".join(sorted(_site_text(site) for site in sites)[:20]) or "none"
                raise StoreUnreachable(f"no site {self._site!r}, the controller has: {known}; check UNIFI_SITE")
            self._site_id = site_id = found[0]
        return site_id

    def _sites(self, deadline: Deadline) -> list[_Site]:
        pages = self._all_pages(f"{INTEGRATION_PATH}/sites", deadline)
        return [site for page in pages for site in replies.decoded(page, _site_decoder).data]

    def site_names(self, deadline: Deadline) -> list[str]:
        return [_site_text(site) for site in self._sites(deadline)]

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "create"):
            return self._writes.create(self._collection(deadline), spec, deadline)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "update"):
            return self._writes.update(self._collection(deadline), record, spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        with observed(self._observe, "delete"):
            self._writes.delete(self._collection(deadline), record, deadline)

    def probe(self, deadline: Deadline) -> None:
        with observed(self._observe, "probe"):
            replies.decoded(self._page(self._collection(deadline), 0, deadline, limit=1), _head_decoder)

    def close(self) -> None:
        self._pages.shutdown(wait=False, cancel_futures=True)


def _is_first_again(pages: list[_Page]) -> bool:
    """Whether the second page begins with the first row again: the controller rounds offsets to whole pages."""
    return len(pages) > 1 and (not pages[1].offset or bytes(pages[1].data) == bytes(pages[0].data))


def _check_consistency(pages: list[_Page], shared: int) -> None:
    """Raises _Moved if the pages cannot belong to one moment."""
    size, total = pages[0].count, pages[0].total_count
    for index, page in enumerate(pages):
        offset = index * (size - shared)
        if page.total_count != total or page.offset != offset or page.count != min(size, total - offset):
            raise _Moved


def _check_seams(parts: list[_Part]) -> None:
    """Raises _Moved if a page does not begin with the last row of the previous one."""
    for before, after in pairwise(parts):
        if before.ends is None or after.ends is None or before.ends[1] != after.ends[0]:
            raise _Moved


def _shared(count: int, overlap: int) -> int:
    """How many rows a page shares with the previous one, if pages have `count` rows."""
    return overlap if count > overlap else 0


def _part(reply: Reply, page: _Page, shared: int, known: dict[tuple[bytes, int], _Part]) -> _Part:
    """The rows of a page; raises _Moved if their number differs from the one that the page reports."""
    data = bytes(page.data)
    part = known.get((data, shared)) or _Part(data, replies.decoded(reply, _rows_decoder, data), shared)
    if part.count != page.count:
        raise _Moved
    return part


def _records_in(parts: list[_Part]) -> tuple[Record, ...]:
    ids = [row_id for part in parts for row_id in part.ids]
    if len(set(ids)) == len(ids):
        return tuple(record for part in parts for record in part.records)
    rows = [row for part in parts for row in _rows_decoder.decode(part.data)]
    # Identical rows moved between pages and count once. Different rows that share an id are ambiguous, and stay.
    return integrationrows.records_of(list(dict.fromkeys(rows)))


def _site_text(site: _Site) -> str:
    return f"{site.internal_reference} ({site.name})" if site.name else site.internal_reference or site.id
