"""The rules of retries: whether a failed attempt is repeated, when, and where. Pure, without clock or randomness.

A request is repeated only before any part of a response was passed on, and only if its body can be sent again from the
beginning.

A. By the rule's policy, up to `attempts` times, each after a wait: if the backend answered one of `codes`; if an
   attempt took longer than `backendRequest` and `codes` holds 504; with `connectionErrors`, if connecting failed or
   the connection broke before a response began. What would fail again at once is not repeated: a circuit at its
   limit, no healthy address, this proxy stopping.
B. Without any policy, at once, once each: on a new connection, if a kept one broke, which may have been closed while
   idle, and the method is idempotent (RFC 9110, 9.2.2); and on another address, if connecting to one failed and the
   backend has others. A backend that stops causes both: it closes its connections and no longer listens.
C. Whatever the policy and the method, at once, a few times: if the backend certainly has not processed the request,
   such as one that a GOAWAY leaves out (RFC 9113, 8.7). Servers that retire a connection do that to all requests in
   flight on it; others want the request over HTTP/1.1.
"""

from typing import Final

from proxy.backend.stream import CONNECTING, Failure, Reason, Wish
from proxy.routing import RetryPolicy

_IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
_HOPELESS: Final = frozenset(
    (
        Reason.OVERLOAD,
        Reason.UNHEALTHY,
        Reason.STOPPING,
        Reason.PROTOCOL,
        Reason.FIELDS_TOO_LARGE,
        Reason.UNSENDABLE,
    )
)

_MAX_GROWTH: Final = 10
"""To about how many times the shortest wait the others grow."""
_MAX_REFUSALS: Final = 3
"""How often a request that was refused unread is sent again."""
_MAX_DEPARTURES: Final = 10
"""The same for a request that was left out when the backend retired its connection: each connection completes some of
them, as nginx's do with `keepalive_requests`, and the others meet on the next one."""
GATEWAY_TIMEOUT: Final = 504


class Attempts:
    """The attempts of one exchange so far."""

    __slots__ = (
        "_address_count",
        "_avoid",
        "_is_elsewhere_used",
        "_is_renewal_used",
        "_method",
        "_needs_new_connection",
        "_policy",
        "_policy_retries",
        "_refusals",
        "retries",
    )

    def __init__(self, policy: RetryPolicy | None, method: bytes, address_count: int) -> None:
        self._policy = policy
        self._method = method
        self._address_count = address_count
        self._avoid: tuple[str, ...] = ()
        self._needs_new_connection = False
        self._is_renewal_used = self._is_elsewhere_used = False
        self._policy_retries = 0
        self._refusals = 0
        self.retries = 0

    def after_failure(self, failure: Failure, address: str, draw: float) -> float | None:
        """Seconds to wait before the next attempt; None if there is none. `draw` is from 0.0 up to 1.0."""
        policy = self._policy
        if _is_left_unread(failure) and self._refusals < (_MAX_DEPARTURES if failure.was_reused else _MAX_REFUSALS):
            self._refusals += 1
            self._needs_new_connection = self._needs_new_connection or failure.was_reused
            return 0.0
        if not self._is_renewal_used and self._may_have_been_closed(failure):
            self._is_renewal_used = self._needs_new_connection = True
            return 0.0
        if not self._is_elsewhere_used and self._is_for_another_address(failure):
            self._is_elsewhere_used = True
            self._note(address)
            return 0.0
        if policy is None or not policy.connection_errors or failure.reason in _HOPELESS:
            return None
        self._needs_new_connection = self._needs_new_connection or failure.was_reused
        return self._by_policy(policy, address, draw)

    def after_status(self, status_code: int, address: str, draw: float) -> float | None:
        """The same after a complete head, or with GATEWAY_TIMEOUT if none came in time."""
        policy = self._policy
        if policy is None or status_code not in policy.codes:
            return None
        return self._by_policy(policy, address, draw)

    def begin(self, session_address: bytes | None) -> Wish:
        """Begin the next attempt; returns where it should go."""
        self.retries += 1
        return Wish(session_address, self._avoid, self._needs_new_connection)

    def turn_to(self, method: bytes, address_count: int) -> None:
        """From now on the request goes to another backend: forget the addresses and connections of the first one."""
        self._method, self._address_count = method, address_count
        self._avoid = ()
        self._needs_new_connection = self._is_renewal_used = self._is_elsewhere_used = False

    def _may_have_been_closed(self, failure: Failure) -> bool:
        return failure.was_reused and self._method in _IDEMPOTENT

    def _is_for_another_address(self, failure: Failure) -> bool:
        if failure.reason in _HOPELESS:
            return False
        is_connecting = failure.was_connecting or failure.reason in CONNECTING
        return is_connecting and self._address_count > 1

    def _by_policy(self, policy: RetryPolicy, address: str, draw: float) -> float | None:
        if self._policy_retries >= policy.attempts:
            return None
        growth: int = min(1 << self._policy_retries, _MAX_GROWTH)
        self._policy_retries += 1
        self._note(address)
        # The document promises a minimum wait; jitter applies to what is added to it.
        return policy.backoff_s * (1.0 + draw * (growth - 0.5))

    def _note(self, address: str) -> None:
        if address:
            self._avoid = (*(other for other in self._avoid if other != address), address)


def _is_left_unread(failure: Failure) -> bool:
    """Whether a backend has left the request unread after the connection was established."""
    return failure.is_unprocessed and failure.reason is Reason.RESET and not failure.was_connecting
