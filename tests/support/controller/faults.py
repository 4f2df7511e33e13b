"""Fault switches: what goes wrong, on which calls, how often.

A `Fault` pairs an effect with a scope. Effects act before the call is carried out (nothing is stored) or, with
`after_commit`, on the finished response (the row is stored, but the caller does not learn of it). All are plain data,
so that they can also be set through the admin API. `FaultBoard` decides, call by call, which fault strikes.
"""

import fnmatch
import functools
import threading
from collections.abc import Callable
from enum import StrEnum

import msgspec

from tests.support.controller.answers import HTML, JSON, Answer, html_answer, integration_error, json_answer


class Operation(StrEnum):
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    LOGIN = "login"
    INFO = "info"
    SITES = "sites"
    OTHER = "other"


WRITES = frozenset({Operation.CREATE, Operation.UPDATE, Operation.DELETE})
ANY = "any"


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base class of the effects."""

    after_commit: bool = False


class Reply(Effect, frozen=True):
    """Send this response."""

    status: int
    body: str = ""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Reset(Effect, frozen=True):
    """Reset the connection (RST) without a response."""


class Truncate(Effect, frozen=True):
    """Announce the whole length, send half of the body, and close."""

    after_commit: bool = True


class Hang(Effect, frozen=True):
    """Send nothing until `release_hangs()`, then continue. If the peer leaves, end without committing."""


class Slow(Effect, frozen=True):
    """Continue only after `delay_s`, whether or not the peer is still there."""

    delay_s: float


class Huge(Effect, frozen=True):
    """A JSON array of `size_bytes`."""

    size_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        # Built before the call that it answers, which may have only 2 s in all: where memory is scarce, this takes as
        # long.
        _array_of(self.size_bytes)

    @property
    def body(self) -> bytes:
        return _array_of(self.size_bytes)


@functools.lru_cache(maxsize=1)
def _array_of(size_bytes: int) -> bytes:
    return b"[]".ljust(size_bytes)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls are struck. `nth` counts matching calls from 1; `count` ends the fault after that many strikes."""

    on: str = ANY
    """An Operation, `write` (create, update, delete) or `any`."""
    api: str = ANY
    name: str = "*"
    """Pattern for the name that a write concerns (`fnmatch`); other calls match only `*`."""
    nth: int = 1
    count: int | None = None


class Fault:
    """One active fault."""

    def __init__(self, effect: Effect, scope: Scope, predicate: Callable[[str], bool] | None) -> None:
        self.effect = effect
        self.scope = scope
        self.strikes = 0
        self._struck = threading.Condition()
        self._matches = 0
        self._predicate = predicate

    def strikes_call(self, operation: Operation, api: str, name: str) -> bool:
        """Whether the fault strikes this call, which is counted; the caller holds the board's lock."""
        if not self._concerns(operation, api, name):
            return False
        self._matches += 1
        if self._matches < self.scope.nth or self.is_spent:
            return False
        with self._struck:
            self.strikes += 1
            self._struck.notify_all()
        return True

    def wait_for_strikes(self, strikes: int = 1, timeout_s: float = 10.0) -> None:
        """Return once the fault has struck this often; for Hang and Slow, that is when the call begins to wait."""
        with self._struck:
            if not self._struck.wait_for(lambda: self.strikes >= strikes, timeout_s):
                raise TimeoutError(
                    f"{self.effect!r} on {self.scope.on}: {self.strikes} strikes after {timeout_s} s, want {strikes}"
                )

    @property
    def is_spent(self) -> bool:
        return self.scope.count is not None and self.strikes >= self.scope.count

    def _concerns(self, operation: Operation, api: str, name: str) -> bool:
        scope = self.scope
        if scope.on not in (ANY, operation) and not (scope.on == "write" and operation in WRITES):
            return False
        if scope.api not in (ANY, api):
            return False
        if scope.name != "*" and not (name and fnmatch.fnmatchcase(name, scope.name)):
            return False
        return self._predicate is None or (name != "" and self._predicate(name))


class FaultBoard:
    """The active faults; the first one that matches strikes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: tuple[Fault, ...] = ()

    def add(self, effect: Effect, scope: Scope, predicate: Callable[[str], bool] | None = None) -> Fault:
        if scope.on not in (ANY, "write", *Operation):
            raise ValueError(f"fault on {scope.on!r}, want any, write or one of {', '.join(Operation)}")
        fault = Fault(effect, scope, predicate)
        with self._lock:
            self._faults = (*self._faults, fault)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults = tuple(other for other in self._faults if other is not fault)

    def clear(self) -> None:
        with self._lock:
            self._faults = ()

    @property
    def active(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self._faults if not fault.is_spent)

    @property
    def is_empty(self) -> bool:
        return not self._faults

    def strike(self, operation: Operation, api: str, name: str) -> Effect | None:
        with self._lock:
            for fault in self._faults:
                if fault.strikes_call(operation, api, name):
                    return fault.effect
        return None


def reply_of(answer: Answer, *, after_commit: bool = False) -> Reply:
    return Reply(
        status=answer.status,
        body=answer.body.decode(),
        content_type=answer.content_type,
        headers=answer.headers,
        after_commit=after_commit,
    )


def rate_limited(retry_after: str = "1") -> Reply:
    """A 429; `retry_after` is the header as sent: seconds, an HTTP date, or empty for none."""
    answer = integration_error(429, "api.rate-limit.exceeded", "Too many requests", "/")
    return reply_of(answer.with_headers(("Retry-After", retry_after)) if retry_after else answer)


def bad_gateway(*, after_commit: bool = False) -> Reply:
    return reply_of(html_answer(502, "Bad Gateway"), after_commit=after_commit)


def unavailable() -> Reply:
    return reply_of(html_answer(503, "Service Temporarily Unavailable"))


def object_instead_of_array() -> Reply:
    """A possible response to an expired session: status 200, with an object where the listing should be."""
    return reply_of(json_answer(200, {"meta": {"rc": "error", "msg": "api.err.LoginRequired"}, "data": []}))


def empty_body(status: int = 200) -> Reply:
    return Reply(status=status)


def garbage() -> Reply:
    return Reply(status=200, body="\x00\x01{[not json \u00ff")


def html_page(status: int = 200) -> Reply:
    return Reply(status=status, body="<!doctype html><html><body>UniFi OS</body></html>", content_type=HTML)


AnyEffect = Reply | Reset | Truncate | Hang | Slow | Huge
