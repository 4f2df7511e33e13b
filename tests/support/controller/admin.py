"""The admin API under `/_sim/`: the same switches and findings over HTTP, for a simulator in another process.

    GET    /_sim/state           counters, reloads, breakages, gaps, quirks, faults
    GET    /_sim/log             the last calls
    GET    /_sim/rows            all rows (?site=default)
    POST   /_sim/rows            store rows past every rule: [{"key", "type", "value", "ttl_s", "origin", …}]
    DELETE /_sim/rows            delete all rows
    POST   /_sim/faults          {"effect": {"type": "Reply", "status": 503}, "scope": {"on": "create", "count": 1}}
    DELETE /_sim/faults          switch all faults off
    PATCH  /_sim/quirks          {"put_refusal": "exists", …}
    PUT    /_sim/latency         {"latency_s": 0.005}
    POST   /_sim/release-hangs, /_sim/expire-sessions, /_sim/reset

It requires no credentials: the simulator listens on loopback only. Its calls are not counted, and faults do not affect
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from tests.support.controller.answers import Answer, Request, json_answer
from tests.support.controller.faults import AnyEffect, Scope
from tests.support.controller.quirks import Quirks
from tests.support.controller.rows import Api, Draft, Origin

if TYPE_CHECKING:
    from tests.support.controller.simulator import Controller


class PresetRow(Draft, frozen=True, forbid_unknown_fields=True):
    """A row in the format of preset files and of the admin API."""

    origin: Origin = Origin.USER_DEFINED
    made_by: Api = Api.V2


class _FaultOrder(msgspec.Struct, forbid_unknown_fields=True):
    effect: AnyEffect
    scope: Scope = Scope()


class _Latency(msgspec.Struct, forbid_unknown_fields=True):
    latency_s: float


def store_presets(controller: Controller, body: bytes, site: str | None = None) -> int:
    """Store the rows of a JSON array; returns how many. Raises msgspec.DecodeError."""
    rows = msgspec.json.decode(body, type=list[PresetRow])
    for row in rows:
        controller.add_rows((row,), row.origin, row.made_by, site)
    return len(rows)


class AdminApi:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def answer(self, request: Request) -> Answer:
        controller = self._controller
        site = parse_qs(request.query).get("site", [None])[0]
        try:
            match request.method, request.path.removeprefix("/_sim/"):
                case "GET", "state":
                    return json_answer(200, self._state())
                case "GET", "log":
                    return json_answer(200, list(controller.calls.log))
                case "GET", "rows":
                    return json_answer(200, controller.rows(site))
                case "POST", "rows":
                    return json_answer(200, {"stored": store_presets(controller, request.body, site)})
                case "DELETE", "rows":
                    controller.clear_rows(site)
                case "POST", "faults":
                    order = msgspec.json.decode(request.body, type=_FaultOrder)
                    controller.faults.add(order.effect, order.scope)
                case "DELETE", "faults":
                    controller.faults.clear()
                case "PATCH", "quirks":
                    self._change_quirks(request.body)
                case "PUT", "latency":
                    controller.latency_s = msgspec.json.decode(request.body, type=_Latency).latency_s
                case "POST", "release-hangs":
                    controller.release_hangs()
                case "POST", "expire-sessions":
                    controller.expire_sessions()
                case "POST", "reset":
                    controller.reset_findings()
                case _:
                    return json_answer(404, {"error": f"no {request.method} {request.path}, see admin.py"})
        except (ValueError, KeyError) as error:
            return json_answer(400, {"error": str(error)})
        return json_answer(200, {})

    def _change_quirks(self, body: bytes) -> None:
        quirks = self._controller.quirks
        changes = msgspec.json.decode(body, type=dict[str, Any])
        changed = msgspec.convert({**msgspec.to_builtins(quirks), **changes}, Quirks)
        for name in changes:
            setattr(quirks, name, getattr(changed, name))

    def _state(self) -> dict[str, Any]:
        controller = self._controller
        return {
            "calls": [
                {"api": api, "operation": operation, "status": status, "count": count}
                for (api, operation, status), count in sorted(controller.calls.table().items())
            ],
            "writes": controller.calls.writes,
            "max_parallel_writes": controller.calls.max_parallel_writes,
            "logins": controller.sessions.logins,
            "refused_logins": controller.sessions.refused_logins,
            "resolver_reloads": controller.resolver_reloads,
            "resolver_is_broken": controller.resolver_is_broken,
            "resolver_breakages": controller.resolver_breakages,
            "max_gap_s": controller.max_gap_s,
            "max_record_set_gap_s": controller.max_record_set_gap_s,
            "names_with_gaps": sorted(controller.names_with_gaps),
            "record_sets_with_gaps": sorted(controller.record_sets_with_gaps),
            "names_ever_empty": sorted(controller.names_ever_empty),
            "rows": len(controller.rows()),
            "latency_s": controller.latency_s,
            "quirks": controller.quirks,
            "faults": [
                {"effect": fault.effect, "scope": fault.scope, "strikes": fault.strikes}
                for fault in controller.faults.active
            ],
        }
