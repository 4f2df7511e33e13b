"""The integration API: application info, sites, and the DNS policies of one site, in pages."""

import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from tests.support.controller.answers import Answer, Request, integration_error, json_answer
from tests.support.controller.filters import FilterError, parse
from tests.support.controller.policyrules import VALIDATION, PolicyRefused, as_policy, decode
from tests.support.controller.quirks import Quirks
from tests.support.controller.rows import Api, Draft, Origin, Row, stored
from tests.support.controller.sites import Site
from tests.support.controller.store import Conflict, ConflictError, UnknownRowError

DEFAULT_LIMIT = 25
MAX_LIMIT = 200
ALREADY_EXISTS = f"{VALIDATION}record-already-exists"
DEVICE_OVERLAP = f"{VALIDATION}overlap-with-local-dns"
CNAME_OVERLAP = f"{VALIDATION}cname-alias-overlap"
SHARED_BUCKET_ID = "0192b7e0-51aa-4c00-8000-ffffffffffff"

_CODES = {
    Conflict.EXISTS: ALREADY_EXISTS,
    Conflict.CNAME_OVERLAP: CNAME_OVERLAP,
    Conflict.DEVICE_OVERLAP: DEVICE_OVERLAP,
    Conflict.NOT_USER_DEFINED: f"{VALIDATION}record-not-user-defined",
}
_SITE_PROPERTIES = frozenset({"id", "internalReference", "name"})
_POLICY_PROPERTIES = frozenset({"id", "type", "domain", "metadata.origin"})
# Appears and vanishes between two pages to make rows move; never part of the store.
_PASSING_ROW = stored(
    Draft("passing.simulator.example", "A", "192.0.2.255"), 0xFFFF_FFFF_FFF0, Origin.ORCHESTRATED, Api.INTEGRATION
)


class _BadQuery(ValueError):
    """A query parameter has an impossible value."""


class PolicyApi:
    def __init__(self, version: str, quirks: Quirks) -> None:
        self._version = version
        self._quirks = quirks
        self._shift_lock = threading.Lock()
        self._shows_passing_row = False

    def info(self) -> Answer:
        return json_answer(200, {"applicationVersion": self._version})

    def sites(self, request: Request, sites: Sequence[Site]) -> Answer:
        return self._page_answer(request, [site.as_json() for site in sites], _SITE_PROPERTIES)

    def list_page(self, request: Request, site: Site) -> Answer:
        rows: Sequence[Row] = site.store.rows()
        if not self._quirks.lists_derived:
            rows = [row for row in rows if row.origin is not Origin.DERIVED]
        if self._is_row_passing(request):
            rows = (_PASSING_ROW, *rows)
        return self._page_answer(request, rows, _POLICY_PROPERTIES, self._as_policy)

    def read(self, request: Request, site: Site, policy_id: str) -> Answer:
        rows = self._named(site, policy_id)
        return json_answer(200, self._as_policy(rows[0])) if rows else _unknown(request)

    def create(self, request: Request, site: Site) -> Answer:
        try:
            row = site.store.create(decode(request.body), Api.INTEGRATION)
        except (PolicyRefused, ConflictError) as error:
            return _refusal(error, request)
        return json_answer(201, self._as_policy(row))

    def update(self, request: Request, site: Site, policy_id: str) -> Answer:
        rows = self._named(site, policy_id)
        if not rows:
            return _unknown(request)
        try:
            row = site.store.update(rows[0].id, decode(request.body))
        except (PolicyRefused, ConflictError) as error:
            return _refusal(error, request)
        except UnknownRowError:
            return _unknown(request)
        return json_answer(200, self._as_policy(row))

    def delete(self, request: Request, site: Site, policy_id: str) -> Answer:
        rows = self._named(site, policy_id)
        if not rows:
            return _unknown(request)
        try:
            for row in rows:
                site.store.delete(row.id)
        except ConflictError as error:
            return _refusal(error, request)
        except UnknownRowError:
            return _unknown(request)
        return Answer(200)

    def _as_policy(self, row: Row) -> dict[str, Any]:
        return as_policy(row, SHARED_BUCKET_ID if self._is_in_bucket(row) else row.policy_id)

    def _is_in_bucket(self, row: Row) -> bool:
        return self._quirks.shared_bucket_ids and row.made_by is Api.V2 and row.origin is Origin.USER_DEFINED

    def _named(self, site: Site, policy_id: str) -> list[Row]:
        """The rows that this id names: one, or a whole bucket."""
        if policy_id == SHARED_BUCKET_ID:
            return [row for row in site.store.rows() if self._is_in_bucket(row)]
        row = site.store.find_policy(policy_id)
        return [row] if row is not None and not self._is_in_bucket(row) else []

    def _is_row_passing(self, request: Request) -> bool:
        """Whether the passing row is listed: it comes and goes in front of all others as later pages are requested."""
        with self._shift_lock:
            if self._quirks.page_shifts > 0 and "offset" in request.query and "offset=0" not in request.query:
                self._quirks.page_shifts -= 1
                self._shows_passing_row = not self._shows_passing_row
            return self._shows_passing_row

    def _page_answer(
        self, request: Request, items: Sequence[Any], properties: frozenset[str], as_json: Any = lambda item: item
    ) -> Answer:
        """The requested page; items become JSON only where necessary."""
        query = parse_qs(request.query)
        try:
            offset, limit = _number(request, "offset", 0), _number(request, "limit", DEFAULT_LIMIT)
            if limit > MAX_LIMIT:
                raise _BadQuery(f"'limit' must be at most {MAX_LIMIT}")
            limit = min(limit, self._quirks.max_page_rows)
            asked = offset
            if self._quirks.refuses_odd_offsets and limit and offset % limit:
                raise _BadQuery("'offset' must be a multiple of 'limit'")
            if self._quirks.rounds_offsets and limit:
                offset -= offset % limit if self._quirks.rounds_offsets == "down" else -(-offset % limit)
            if "filter" in query:
                predicate = parse(query["filter"][0], properties)
                filtered = [content for content in map(as_json, items) if predicate(content)]
                total, page = len(filtered), filtered[offset : offset + limit]
            else:
                total, page = len(items), [as_json(item) for item in items[offset : offset + limit]]
        except (_BadQuery, FilterError) as error:
            return integration_error(400, "api.request.invalid-parameter", str(error), request.path)
        told = asked if self._quirks.tells_asked_offset else offset
        return json_answer(200, {"offset": told, "limit": limit, "count": len(page), "totalCount": total, "data": page})


def _number(request: Request, name: str, default: int) -> int:
    text = parse_qs(request.query).get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit()):
        raise _BadQuery(f"'{name}' must be a number that is not negative")
    return int(text)


def _unknown(request: Request) -> Answer:
    return integration_error(404, "api.dns.policy.not-found", "DNS policy not found", request.path)


def _refusal(error: PolicyRefused | ConflictError, request: Request) -> Answer:
    if isinstance(error, PolicyRefused):
        return integration_error(400, error.code, error.message, request.path)
    return integration_error(400, _CODES[error.conflict], error.conflict.value, request.path)
