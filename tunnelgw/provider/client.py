"""The tunnel provider's HTTP API (version 4), as far as one remotely configured tunnel needs it. One method, one call.

Nothing is retried here: callers know what else has changed meanwhile, and each configuration is read before it is
written anyway. A call ends within its time limit, whatever the provider does, and every failure is a ProviderError.
Only one thread at a time may call.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from daemonkit.secret import Secret
from tunnelgw.provider.envelope import UNREADABLE, Envelope, opened
from tunnelgw.provider.errors import NotThere, ProviderError, ProviderUnreachable, RateLimited
from tunnelgw.provider.ingress import Config
from tunnelgw.provider.pacing import Pace
from tunnelgw.provider.transport import CallTiming, Transport

_ACCOUNTS_PER_PAGE = 50

T = TypeVar("T")
Observer = Callable[[str, str, float], None]
"""Called after each call with its name, `ok` or the class of its error, and seconds."""


class Tunnel(msgspec.Struct, frozen=True):
    """`GET /accounts/{a}/cfd_tunnel/{t}`."""

    id: str
    config_src: str = ""
    """`cloudflare`: configured remotely; `local`: its connectors ignore the ingress document."""
    deleted_at: str | None = None


class Configuration(msgspec.Struct, frozen=True):
    """`GET` and `PUT /accounts/{a}/cfd_tunnel/{t}/configurations`."""

    version: int = 0
    """Rises with each accepted PUT, ours or others'."""
    config: dict[str, Any] | None = None
    """None for a new tunnel."""

    def __post_init__(self) -> None:
        """Fails if rules cannot be read: those of others would be lost with the next write."""
        rules = (self.config or {}).get("ingress")
        if rules is not None and not (isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)):
            raise ValueError("`config.ingress` is not a list of rules")


class Account(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_accounts = msgspec.json.Decoder(list[Account])
_tunnel = msgspec.json.Decoder(Tunnel)
_configuration = msgspec.json.Decoder(Configuration)


def _observe_nothing(call: str, outcome: str, seconds: float) -> None:
    pass


def _allow(call: str) -> None:
    pass


class Budget:
    """A budget of calls, for all clients of one token. Thread-safe."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._lock = threading.Lock()

    def take(self) -> float:
        """0: a call may be made now, and is counted; otherwise how long to wait before asking again."""
        with self._lock:
            now_s = time.monotonic()
            wait_s = self._pace.wait_s(now_s)
            if wait_s <= 0:
                self._pace.note_call(now_s)
            return wait_s

    def block(self, pause_s: float) -> None:
        """The provider asked for no calls for this long."""
        with self._lock:
            self._pace.block(time.monotonic() + pause_s)


class ProviderClient:
    """A client with one token."""

    def __init__(
        self,
        token: Secret,
        base_url: str,
        observe: Observer = _observe_nothing,
        budget: Budget | None = None,
        timing: CallTiming = CallTiming(),  # noqa: B008  # frozen
        before_call: Callable[[str], None] = _allow,
    ) -> None:
        """`budget`: shared by all clients with this token; None: there are no others.

        `before_call` is called with the name of each call, and may raise to prevent it.
        """
        self._transport = Transport(token, base_url, timing)
        self._observe = observe
        self._budget = budget or Budget()
        self._before_call = before_call

    def close(self) -> None:
        self._transport.close()

    def accounts(self) -> list[Account]:
        """The first page is enough: with more than one account the choice is ambiguous anyway."""
        envelope = self._call("list accounts", "GET", f"/accounts?per_page={_ACCOUNTS_PER_PAGE}")
        return _result(envelope, _accounts)

    def tunnel(self, account_id: str, tunnel_id: str) -> Tunnel:
        """Raises NotThere for a deleted tunnel too."""
        tunnel = _result(self._call("read tunnel", "GET", _tunnel_path(account_id, tunnel_id)), _tunnel)
        if tunnel.deleted_at:
            raise NotThere(f"tunnel {tunnel_id} was deleted at {tunnel.deleted_at}: create one, and change tunnelID")
        return tunnel

    def configuration(self, account_id: str, tunnel_id: str) -> Configuration:
        path = f"{_tunnel_path(account_id, tunnel_id)}/configurations"
        return _result(self._call("read configuration", "GET", path), _configuration)

    def put_configuration(self, account_id: str, tunnel_id: str, config: Config) -> Configuration:
        """Replaces the whole document. After ProviderUnreachable it may or may not have been replaced."""
        path = f"{_tunnel_path(account_id, tunnel_id)}/configurations"
        body = msgspec.json.encode({"config": config})
        return _result(self._call("write configuration", "PUT", path, body), _configuration)

    def _call(self, name: str, method: str, path: str, body: bytes | None = None) -> Envelope:
        self._before_call(name)
        wait_s = self._budget.take()
        if wait_s > 0:
            raise RateLimited(f"{name}: not asked for a while, to stay below the provider's limit of calls", wait_s)
        started_s = time.monotonic()
        outcome = "ok"
        try:
            return opened(self._transport.exchange(name, method, path, body))
        except ProviderError as error:
            outcome = type(error).__name__
            if isinstance(error, RateLimited):
                self._budget.block(error.retry_after_s)
            raise
        finally:
            self._observe(name, outcome, time.monotonic() - started_s)


def _result(envelope: Envelope, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(envelope.result)
    except UNREADABLE as error:
        raise ProviderUnreachable(f"the provider's answer is not what its documentation says: {error}") from error


def _tunnel_path(account_id: str, tunnel_id: str) -> str:
    return f"/accounts/{quote(account_id, safe='')}/cfd_tunnel/{quote(tunnel_id, safe='')}"
