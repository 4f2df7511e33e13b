"""Leader election with a Lease: one replica of the controller writes, the others stand by.

    server = ApiServer(...)        a separate one: the source's is interrupted before the Lease is given back
    leadership = Leadership(server, Key(namespace, name), identity, stop, on_change)
    daemon.thread("leader-election", leadership.run)
    if leadership.is_held(): write

The package `kubernetes` has a leader election too, but its sleeps cannot be interrupted, its requests may hang longer
than the lease, it compares times of different wall clocks, and it never releases the lease. Hence this one:

* A standby takes over if the Lease has not changed for its duration, by the standby's own clock: clocks of different
  machines are never compared.
* A holder counts from the moment before the request that renewed the Lease. When that is longer ago than the limit,
  `is_held` is false at once, even if a request is still in progress. The limit ends before a standby may take over.
* A renewal may succeed although its answer is lost, so that the next one conflicts with it. So after a conflict the
  holder checks whose the Lease is before it gives way.
* On stop the holder releases the Lease, so that the next holder need not wait, unless one of our calls is still in
  progress.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Protocol

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.model.meta import Key
from tunnelgw.sources.kubernetes.failures import ApiServerError, Refused, decoded

_log = get_logger("tunnelgw.sources.kubernetes")

# Unlike the monotonic clock, this one continues while the machine is suspended, as the clocks of other machines do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseTiming(msgspec.Struct, frozen=True):
    """The defaults of Kubernetes' own components, which suit API servers that take seconds to answer."""

    duration_s: int = 15
    """A standby takes over this long after the last renewal that it saw, plus at most `retry_s`."""
    limit_s: float = 10.0
    """A holder that could not renew the Lease for this long no longer holds it."""
    retry_s: float = 2.0
    """From the start of one turn to the start of the next, unless a turn takes longer."""
    request_s: float = 4.5
    """Less than half of the limit: after a failed renewal there is time for another one."""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """With everything that a PUT without it would remove: it may be from others."""

    name: str
    namespace: str
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[dict[str, str | bool]] = []
    finalizers: list[str] = []


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Server(Protocol):
    """What this module needs of an `ApiServer`."""

    def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
        """The answer's body. Raises ApiServerError."""


class Leadership:
    """Any thread may call `is_held`."""

    def __init__(
        self,
        server: Server,
        key: Key,
        identity: str,
        stop: threading.Event,
        on_change: Callable[[bool], None] = lambda _is_held: None,
        timing: LeaseTiming = LeaseTiming(),  # noqa: B008  # frozen
        may_give_back: Callable[[], bool] = lambda: True,
    ) -> None:
        """`identity`: a unique name of this replica. `on_change` is called when `is_held` has changed.

        `may_give_back` is called after `stop`: False leaves the Lease to expire.
        """
        self._server = server
        self._key = key
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases"
        self._identity = identity
        self._stop = stop
        self._on_change = on_change
        self._timing = timing
        self._may_give_back = may_give_back
        self._seen: _Lease | None = None
        self._seen_s = 0.0
        """When the Lease was first seen in the state `_seen`."""
        self._held_until_s = 0.0
        self._was_held = False
        self._told_holder = ""
        self._limited = _log.every(60.0)

    @property
    def holder(self) -> str:
        """The leader's identity, as far as known; empty: nobody leads."""
        return self._seen.spec.holder_identity if self._seen else ""

    def is_held(self) -> bool:
        return _now_s() < self._held_until_s

    def run(self) -> None:
        """The target of a thread; runs until `stop` is set."""
        while not self._stop.is_set():
            next_s = _now_s() + self._timing.retry_s
            try:
                self._turn()
            except ApiServerError as error:
                self._limited.warning("lease could not be renewed or read, retrying", error, lease=str(self._key))
            self._tell()
            # A holder that cannot renew the Lease must notice at once when it stops holding it.
            now_s = _now_s()
            wake_s = min(next_s, self._held_until_s) if now_s < self._held_until_s else next_s
            self._stop.wait(max(wake_s - now_s, 0.0))
            self._tell()
        self._give_back()

    def _turn(self) -> None:
        if not self._try() and self.is_held():
            self._try()

    def _try(self) -> bool:
        """False: the Lease is not in the state that we saw last."""
        lease = self._seen if self.is_held() and self._seen else self._read()
        if lease is None:
            return self._write("POST", self._path, self._mine(None))
        if lease.spec.holder_identity in ("", self._identity) or self._is_expired(lease):
            return self._write("PUT", f"{self._path}/{self._key.name}", self._mine(lease))
        self._held_until_s = 0.0  # another replica was faster
        return True

    def _read(self) -> _Lease | None:
        try:
            body = self._server.request("GET", f"{self._path}/{self._key.name}", timeout_s=self._timing.request_s)
        except Refused as refusal:
            if refusal.status_code == HTTPStatus.NOT_FOUND:
                self._seen = None
                return None
            raise
        lease = decoded(body, _Lease)
        if self._seen is None or lease.metadata.resource_version != self._seen.metadata.resource_version:
            self._seen, self._seen_s = lease, _now_s()
        return lease

    def _is_expired(self, lease: _Lease) -> bool:
        duration_s = lease.spec.lease_duration_seconds or self._timing.duration_s
        return _now_s() - self._seen_s > duration_s

    def _mine(self, old: _Lease | None) -> _Lease:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = old.spec if old else _Spec()
        is_renewed = spec.holder_identity == self._identity
        return _Lease(
            old.metadata if old else _Metadata(self._key.name, self._key.namespace),
            _Spec(
                self._identity,
                self._timing.duration_s,
                spec.acquire_time if is_renewed else now,
                now,
                spec.lease_transitions + (not is_renewed and old is not None),
            ),
        )

    def _write(self, method: str, path: str, lease: _Lease) -> bool:
        began_s = _now_s()
        is_taken = self._send(method, path, lease)
        if is_taken:
            lapse_s, self._held_until_s = self._held_until_s, began_s + self._timing.limit_s
            if self._was_held and _now_s() >= lapse_s:  # others may have noticed the lapse, and wait for `on_change`
                self._say(is_held=False)
        return is_taken

    def _send(self, method: str, path: str, lease: _Lease) -> bool:
        """False: the Lease is not in the state that we saw last."""
        try:
            body = self._server.request(method, path, body=msgspec.json.encode(lease), timeout_s=self._timing.request_s)
        except Refused as refusal:
            is_gone = method == "PUT" and refusal.status_code == HTTPStatus.NOT_FOUND
            if refusal.status_code != HTTPStatus.CONFLICT and not is_gone:
                raise
            self._seen = None
            return False
        self._seen, self._seen_s = decoded(body, _Lease), _now_s()
        return True

    def _give_back(self) -> None:
        """Release the Lease, so that the next holder need not wait. Even if that fails, we do not hold it any more."""
        was_held, self._held_until_s = self.is_held(), 0.0
        if was_held and not self._may_give_back():
            _log.warning("lease is left to expire, something is still under way", lease=str(self._key))
        elif was_held:
            try:
                if not self._release():
                    self._release()
            except ApiServerError as error:
                _log.info("lease could not be given back", error, lease=str(self._key))
        self._tell()

    def _release(self) -> bool:
        """False: the Lease is not in the state that we saw last."""
        lease = self._seen or self._read()
        if lease is None or lease.spec.holder_identity != self._identity:
            return True
        empty = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
        return self._send("PUT", f"{self._path}/{self._key.name}", msgspec.structs.replace(lease, spec=empty))

    def _tell(self) -> None:
        is_held = self.is_held()
        if is_held != self._was_held:
            self._say(is_held=is_held)
        elif not is_held and self.holder not in ("", self._told_holder):
            self._log_holder(is_held=False)  # a standby logs who the leader is

    def _say(self, *, is_held: bool) -> None:
        self._was_held = is_held
        self._log_holder(is_held=is_held)
        self._on_change(is_held)

    def _log_holder(self, *, is_held: bool) -> None:
        self._told_holder = self.holder
        _log.info("leading" if is_held else "not leading", lease=str(self._key), holder=self.holder)


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
