"""The provider as one object: a server on loopback whose state and faults are open to the test."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.support.controller import faults
from tests.support.controller.answers import Answer, Delivery, Request
from tests.support.controller.faults import Effect
from tests.support.controller.httpserver import HttpServer
from tests.support.provider import envelope, rules

ACCOUNT_ID = "0123456789abcdef0123456789abcdef"
TUNNEL_ID = "6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11"
TOKEN = "cfat_simulated-token-of-the-account"
PREFIX = "/client/v4"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ACCOUNT = re.compile(r"[0-9a-f]{32}")


class Tunnel(msgspec.Struct):
    id: str
    account_id: str = ACCOUNT_ID
    config_src: str = "cloudflare"
    deleted_at: str | None = None
    version: int = 0
    config: dict[str, Any] | None = None


class _Fault(msgspec.Struct):
    effect: Effect
    call: str
    left: int | None
    strikes: int = 0


class Provider:
    """`calls` counts by name: `accounts`, `tunnel`, `read`, `write`, `other`."""

    def __init__(self, port: int = 0, account_id: str = ACCOUNT_ID, tunnel_id: str = TUNNEL_ID) -> None:
        """Has one tunnel from the start."""
        self.tunnel = Tunnel(tunnel_id, account_id)
        self.tunnels = {tunnel_id: self.tunnel}
        self.accounts: list[str] = [account_id]
        self.tokens: dict[str, bool] = {TOKEN: True}
        """Whether each token has the permission that tunnels need."""
        self.calls: Counter[str] = Counter()
        self.adds_empty_parts = True
        self.lists_accounts = True
        """The provider does not list accounts to an account's own tokens, or did not always."""
        self._lock = threading.RLock()
        self._noted = threading.Condition(self._lock)
        self._faults: list[_Fault] = []
        self._server = HttpServer(self._answer, "127.0.0.1", port, None)

    # -- life cycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}{PREFIX}"

    # -- what tests do to it, and ask it -----------------------------------------------------------------------------

    @property
    def hostnames(self) -> list[str]:
        """Hostnames of the first tunnel's rules, in order; `*` for the catch-all."""
        config = self.tunnel.config or {}
        return [rule.get("hostname") or "*" for rule in config.get("ingress", [])]

    def write(self, config: dict[str, Any]) -> None:
        """Write a configuration as somebody else would, in the dashboard."""
        with self._noted:
            self._store(self.tunnel, config)

    def fault(self, effect: Effect, call: str = "any", count: int | None = None) -> _Fault:
        """`call` is one of the names in `calls`, or `any`."""
        fault = _Fault(effect, call, count)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def wait_for(self, call: str, count: int = 1, timeout_s: float = 30.0) -> None:
        """Return once `call` has been answered this often."""
        with self._noted:
            if not self._noted.wait_for(lambda: self.calls[call] >= count, timeout_s):
                raise TimeoutError(f"{self.calls[call]} calls {call!r} after {timeout_s} s, want {count}")

    def wait_for_hostnames(self, wanted: set[str], timeout_s: float = 30.0) -> None:
        """Return once the first tunnel's document has rules for exactly these hostnames, besides the catch-all."""
        with self._noted:
            if not self._noted.wait_for(lambda: set(self.hostnames) - {"*"} == wanted, timeout_s):
                raise TimeoutError(f"hostnames {self.hostnames} after {timeout_s} s, want {sorted(wanted)}")

    # -- serving -----------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Answer:
        call, arguments = _route(request)
        effect = self._strike(call)
        if effect is not None and not effect.after_commit:
            if isinstance(effect, faults.Slow | faults.Hang) and not self._outlasts(effect, request):
                return Answer(0, delivery=Delivery.CLOSED)
            if not isinstance(effect, faults.Slow | faults.Hang | faults.Truncate):
                return self._noted_answer(call, _spoilt(effect, Answer(0)))
        answer = self._carry_out(request, call, arguments)
        if effect is not None and isinstance(effect, faults.Slow | faults.Hang) and effect.after_commit:
            self._outlasts(effect, request)
        elif effect is not None and not isinstance(effect, faults.Slow | faults.Hang):
            answer = _spoilt(effect, answer)
        return self._noted_answer(call, answer)

    def _noted_answer(self, call: str, answer: Answer) -> Answer:
        with self._noted:
            self.calls[call] += 1
            self._noted.notify_all()
        return answer

    def _strike(self, call: str) -> Effect | None:
        with self._lock:
            for fault in self._faults:
                if fault.call in ("any", call) and fault.left != 0:
                    fault.left = None if fault.left is None else fault.left - 1
                    fault.strikes += 1
                    return fault.effect
        return None

    def _outlasts(self, effect: faults.Slow | faults.Hang, request: Request) -> bool:
        return request.wait(None, effect.delay_s if isinstance(effect, faults.Slow) else None, True)

    def _carry_out(self, request: Request, call: str, arguments: tuple[str, ...]) -> Answer:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if call == "accounts" and not self.lists_accounts:
            return envelope.NO_LISTING
        if call == "accounts":
            found = [{"id": account, "name": f"account {n}"} for n, account in enumerate(self.accounts, 1)]
            return envelope.success(found, {"page": 1, "per_page": 50, "count": len(found), "total_count": len(found)})
        if call == "other":
            return envelope.failure(405, 10000, "Method not allowed for this authentication scheme")
        account_id, tunnel_id = arguments
        if not _ACCOUNT.fullmatch(account_id) or not _UUID.fullmatch(tunnel_id):
            return envelope.MALFORMED_ID
        if account_id not in self.accounts:
            return envelope.NO_PERMISSION
        with self._noted:
            tunnel = self.tunnels.get(tunnel_id)
            if tunnel is None or tunnel.account_id != account_id:
                return envelope.UNKNOWN_TUNNEL
            return self._tunnel_call(request, call, tunnel)

    def _tunnel_call(self, request: Request, call: str, tunnel: Tunnel) -> Answer:
        if call == "tunnel":
            return envelope.success(
                {"id": tunnel.id, "name": "sim", "config_src": tunnel.config_src, "deleted_at": tunnel.deleted_at}
            )
        if call == "write":
            try:
                config = json.loads(request.body).get("config")
            except (ValueError, AttributeError):
                return envelope.NOT_JSON
            if (problem := rules.problem_of(config)) is not None:
                return envelope.bad_configuration(problem)
            self._store(tunnel, config)
        shown = tunnel.config if tunnel.config is None or not self.adds_empty_parts else rules.read_back(tunnel.config)
        return envelope.success(
            {"tunnel_id": tunnel.id, "version": tunnel.version, "config": shown, "source": tunnel.config_src}
        )

    def _store(self, tunnel: Tunnel, config: dict[str, Any]) -> None:
        tunnel.config = config
        tunnel.version += 1
        self._noted.notify_all()

    def _refusal(self, request: Request) -> Answer | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token or " " in token:
            return envelope.MALFORMED_HEADER
        if token not in self.tokens:
            return envelope.BAD_TOKEN
        return None if self.tokens[token] else envelope.NO_PERMISSION


def _route(request: Request) -> tuple[str, tuple[str, ...]]:
    words = request.path.removeprefix(PREFIX).strip("/").split("/")
    match request.method, words:
        case "GET", ["accounts"]:
            return "accounts", ()
        case "GET", ["accounts", account_id, "cfd_tunnel", tunnel_id]:
            return "tunnel", (account_id, tunnel_id)
        case "GET", ["accounts", account_id, "cfd_tunnel", tunnel_id, "configurations"]:
            return "read", (account_id, tunnel_id)
        case "PUT", ["accounts", account_id, "cfd_tunnel", tunnel_id, "configurations"]:
            return "write", (account_id, tunnel_id)
    return "other", ()


def _spoilt(effect: Effect, answer: Answer) -> Answer:
    match effect:
        case faults.Reply():
            return Answer(effect.status, effect.body.encode(), effect.content_type, effect.headers)
        case faults.Reset():
            return answer.delivered(Delivery.RESET)
        case faults.Truncate():
            return answer.delivered(Delivery.TRUNCATED)
        case faults.Huge():
            return Answer(200, effect.body, "application/json")
    raise AssertionError(f"no such effect: {effect!r}")
