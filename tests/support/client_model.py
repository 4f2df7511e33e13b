"""A model of external-dns as a client of the webhook: its requests byte by byte, its verdict on each response.

`ClientModel.reconcile` is one pass: list, adjust, plan, apply. What external-dns would survive is a `SoftError`; what
makes it exit is a `HardError`. With it, tests can run passes against a live service without a Go toolchain.
"""

import http.client
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from dnswebhook.model import Changes, Endpoint
from tests.support.client_json import (
    Generation,
    Undecodable,
    decode_endpoints,
    encode_changes,
    encode_endpoints,
    first_value,
    folded,
)
from tests.support.client_plan import Filter, Planner
from tests.support.client_registry import Registered, TxtRegistry

MEDIA_TYPE = "application/external.dns.webhook+json;version=1"
TIMEOUT_S = 15.0
KEEPS_TRAILING_DOT = frozenset({"MX", "NAPTR", "SRV"})

T = TypeVar("T")


class HardError(Exception):
    """external-dns would exit."""


class SoftError(Exception):
    """external-dns would log it and try again at the next interval."""


@dataclass(frozen=True)
class Reply:
    status_code: int
    content_type: str
    body: bytes


@dataclass(frozen=True)
class Pass:
    """The result of one reconcile."""

    changes: Changes
    """As applied, including ownership records."""

    @property
    def is_no_op(self) -> bool:
        return self.changes.is_empty


class ClientModel:
    """One external-dns process. `registry=None` is the registry `noop`."""

    def __init__(
        self,
        base_url: str,
        planner: Planner | None = None,
        registry: TxtRegistry | None = None,
        generation: Generation = Generation.CAMEL,
    ) -> None:
        self._url = urlsplit(base_url)
        self._registry = registry
        self._planner = replace(planner or Planner(), owner_id=registry.owner_id if registry else "")
        self._generation = generation

    def negotiate(self) -> Filter:
        """What external-dns does once when it starts; the announced filter applies to all later passes."""
        reply = self._call("GET", "")
        if not 200 <= reply.status_code < 300:
            raise HardError(f"GET /: status code {reply.status_code}, want 2xx; {reply.body[:200]!r}")
        if reply.content_type != MEDIA_TYPE:
            raise HardError(f"GET /: wrong content type {reply.content_type!r}, want exactly {MEDIA_TYPE!r}")
        announced = _decoded("GET /", _decode_filter, reply.body)
        self._planner = replace(self._planner, domain_filter=announced)
        return announced

    def list_records(self) -> tuple[Endpoint, ...]:
        reply = self._call("GET", "/records")
        _require("GET /records", reply, 200)
        return _decoded("GET /records", decode_endpoints, reply.body)

    def adjust_endpoints(self, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        reply = self._call("POST", "/adjustendpoints", encode_endpoints(endpoints))
        _require("POST /adjustendpoints", reply, 200)
        return _decoded("POST /adjustendpoints", decode_endpoints, reply.body)

    def apply_changes(self, changes: Changes) -> None:
        """The only call without an Accept header."""
        reply = self._call("POST", "/records", encode_changes(changes, self._generation), accepts=False)
        _require("POST /records", reply, 204)

    def reconcile(self, desired: Iterable[Endpoint]) -> Pass:
        """One pass towards `desired`; raises SoftError or HardError."""
        listed = self.list_records()
        known = self._registry.read(listed) if self._registry else Registered(listed, frozenset())
        adjusted = self.adjust_endpoints([as_source(endpoint) for endpoint in desired])
        changes = self._planner.plan(known.endpoints, adjusted)
        if self._registry:
            changes = self._registry.write(changes, known)
        if not changes.is_empty:
            self.apply_changes(changes)
        return Pass(changes)

    def _call(self, method: str, path: str, body: bytes | None = None, *, accepts: bool = True) -> Reply:
        """One request with exactly the header fields that Go's client sends."""
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)
        target = self._url.path.rstrip("/") + path or "/"
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            connection.putheader("User-Agent", "Go-http-client/1.1")
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            if accepts:
                connection.putheader("Accept", MEDIA_TYPE)
            if body is not None:
                connection.putheader("Content-Type", MEDIA_TYPE)
            connection.endheaders(body)
            response = connection.getresponse()
            return Reply(response.status, response.getheader("Content-Type", ""), response.read())
        except (OSError, http.client.HTTPException) as error:
            raise HardError(f"{method} {target}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()


def as_source(endpoint: Endpoint) -> Endpoint:
    """The endpoint as the client's constructor changes it before anyone sees it: trailing dots are removed."""
    targets = endpoint.targets
    if endpoint.record_type not in KEEPS_TRAILING_DOT:
        targets = tuple(target.removesuffix(".") for target in targets)
    return msgspec.structs.replace(endpoint, dns_name=endpoint.dns_name.removesuffix("."), targets=targets)


def _require(call: str, reply: Reply, status_code: int) -> None:
    if reply.status_code == status_code:
        return
    message = f"{call}: status code {reply.status_code}, want {status_code}; {reply.body[:300]!r}"
    raise SoftError(message) if 500 <= reply.status_code <= 510 else HardError(message)


def _decoded(call: str, decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except Undecodable as error:
        raise HardError(f"{call}: {error}") from error


def _decode_filter(body: bytes) -> Filter:
    """The filter at the root of the response; lists and expressions exclude each other."""
    value = first_value(body)
    if not isinstance(value, dict):
        raise Undecodable(f"a filter is an object, not {body[:80]!r}")
    fields = folded(value)
    found = Filter(
        tuple(fields.get("include") or ()),
        tuple(fields.get("exclude") or ()),
        fields.get("regexinclude") or "",
        fields.get("regexexclude") or "",
    )
    if (found.include or found.exclude) and (found.regex_include or found.regex_exclude):
        raise Undecodable("cannot have both domain list and regex")
    for pattern in (found.regex_include, found.regex_exclude):
        try:
            re.compile(pattern)
        except re.error as error:
            raise Undecodable(f"bad expression {pattern!r}: {error}") from error
    return found
