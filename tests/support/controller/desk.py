"""The path of one call through the simulated appliance: fault, credentials, latency, API, fault, counters.

Called by the HTTP server from many threads. Shared state is guarded by the locks of its owners; no lock is held while a
call waits.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from tests.support.controller import faults
from tests.support.controller.answers import (
    JSON,
    METHOD_NOT_ALLOWED_PAGE,
    NOT_FOUND_PAGE,
    Answer,
    Delivery,
    Request,
    integration_error,
    v2_error,
)
from tests.support.controller.faults import WRITES, Effect, FaultBoard, Operation
from tests.support.controller.gatekeeper import Gatekeeper
from tests.support.controller.ledger import Call, Ledger
from tests.support.controller.policyapi import PolicyApi
from tests.support.controller.routes import Misfit, Route, Router, Section
from tests.support.controller.sites import Site
from tests.support.controller.v2api import V2Api

ADMIN_PREFIX = "/_sim/"


class Gate:
    """Where hanging calls wait; opening it releases those that are inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = os.eventfd(0)
        self._used_fds = [self._fd]

    @property
    def fd(self) -> int:
        return self._fd

    def open(self) -> None:
        """Release all waiting calls for good; later calls wait on a new descriptor."""
        with self._lock:
            os.eventfd_write(self._fd, 1)
            self._fd = os.eventfd(0)
            self._used_fds.append(self._fd)

    def close(self) -> None:
        """Call this once nobody waits any more."""
        with self._lock:
            for fd in self._used_fds:
                os.close(fd)
            self._used_fds.clear()


class _Name(msgspec.Struct):
    """The name in the body of either API, if it can be read."""

    key: str = ""
    domain: str = ""
    service: str = ""
    protocol: str = ""


_decode_name = msgspec.json.Decoder(_Name).decode


class Desk:
    latency_s = 0.0
    """Added to every call."""

    def __init__(
        self,
        router: Router,
        gatekeeper: Gatekeeper,
        sites: Mapping[str, Site],
        v2: V2Api,
        policies: PolicyApi,
        board: FaultBoard,
        ledger: Ledger,
        gate: Gate,
        admin: Callable[[Request], Answer],
    ) -> None:
        self._router = router
        self._gatekeeper = gatekeeper
        self._sites_by_reference = sites
        self._sites_by_uuid = {site.uuid: site for site in sites.values()}
        self._v2 = v2
        self._policies = policies
        self._board = board
        self._ledger = ledger
        self._gate = gate
        self._admin = admin

    def answer(self, request: Request) -> Answer:
        if request.path.startswith(ADMIN_PREFIX):
            return self._admin(request)
        with self._ledger.in_progress():
            route = self._router.route(request.method, request.path)
            name = self._name_of(request, route)
            if route.operation in WRITES:
                with self._ledger.parallel_write():
                    answer = self._carry_out(request, route, name)
            else:
                answer = self._carry_out(request, route, name)
            status = answer.status if answer.delivery in (Delivery.WHOLE, Delivery.TRUNCATED) else 0
            self._ledger.note(route.section, route.operation, Call(request.method, route.template, status, name))
            return answer

    def _carry_out(self, request: Request, route: Route, name: str) -> Answer:
        gate = self._gate.fd  # before the strike is known: it may be opened right after
        effect = None if self._board.is_empty else self._board.strike(route.operation, route.section, name)
        if self.latency_s:
            time.sleep(self.latency_s)
        if effect is None:
            return self._plain(request, route)
        if effect.after_commit:
            return self._apply(effect, request, self._plain(request, route), gate)
        match effect:
            case faults.Slow() | faults.Hang():
                if not self._outlasts(effect, request, gate):
                    return Answer(0, delivery=Delivery.CLOSED)
                return self._plain(request, route)
            case faults.Truncate():
                return self._plain(request, route).delivered(Delivery.TRUNCATED)
        return self._apply(effect, request, Answer(0), gate)

    def _apply(self, effect: Effect, request: Request, answer: Answer, gate: int) -> Answer:
        """`answer` as modified by the effect."""
        match effect:
            case faults.Reply():
                return Answer(effect.status, effect.body.encode(), effect.content_type, effect.headers)
            case faults.Reset():
                return answer.delivered(Delivery.RESET)
            case faults.Truncate():
                return answer.delivered(Delivery.TRUNCATED)
            case faults.Huge():
                return Answer(200, effect.body, JSON)
            case faults.Slow() | faults.Hang():
                return answer if self._outlasts(effect, request, gate) else answer.delivered(Delivery.CLOSED)
        raise AssertionError(f"no such effect: {effect!r}")

    def _outlasts(self, effect: faults.Slow | faults.Hang, request: Request, gate: int) -> bool:
        """Wait as the effect demands; returns False if the peer has left or the server stops."""
        if isinstance(effect, faults.Slow):
            return request.wait(None, effect.delay_s, False)
        return request.wait(gate, None, True)

    def _plain(self, request: Request, route: Route) -> Answer:
        """The response of an appliance without faults."""
        if route.misfit is Misfit.NOT_FOUND:
            return NOT_FOUND_PAGE
        if route.section is Section.SESSION:
            return METHOD_NOT_ALLOWED_PAGE if route.misfit else self._gatekeeper.log_in(request)
        refusal, csrf_token = self._gatekeeper.admit(request, route)
        if refusal is not None:
            return refusal
        if route.misfit is Misfit.METHOD_NOT_ALLOWED:
            return METHOD_NOT_ALLOWED_PAGE
        answer = self._v2_call(request, route) if route.section is Section.V2 else self._policy_call(request, route)
        return answer.with_headers(("X-Updated-CSRF-Token", csrf_token)) if csrf_token else answer

    def _v2_call(self, request: Request, route: Route) -> Answer:
        site = self._sites_by_reference.get(route.site)
        if site is None:
            return v2_error(404, "api.err.NoSiteContext", "Site does not exist")
        match route.operation:
            case Operation.LIST:
                return self._v2.list_all(site.store)
            case Operation.CREATE:
                return self._v2.create(site.store, request.body)
            case Operation.UPDATE:
                return self._v2.update(site.store, route.row_id, request.body)
            case Operation.DELETE:
                return self._v2.delete(site.store, route.row_id)
        raise AssertionError(f"no such v2 call: {route!r}")

    def _policy_call(self, request: Request, route: Route) -> Answer:
        if route.operation is Operation.INFO:
            return self._policies.info()
        if route.operation is Operation.SITES:
            return self._policies.sites(request, tuple(self._sites_by_uuid.values()))
        site = self._sites_by_uuid.get(route.site)
        if site is None:
            return integration_error(404, "api.site.not-found", f"Site {route.site!r} not found", request.path)
        match route.operation:
            case Operation.LIST:
                return self._policies.list_page(request, site)
            case Operation.CREATE:
                return self._policies.create(request, site)
            case Operation.READ:
                return self._policies.read(request, site, route.row_id)
            case Operation.UPDATE:
                return self._policies.update(request, site, route.row_id)
            case Operation.DELETE:
                return self._policies.delete(request, site, route.row_id)
        raise AssertionError(f"no such integration call: {route!r}")

    def _name_of(self, request: Request, route: Route) -> str:
        """The name that a write concerns if it can be determined; else an empty text."""
        if route.row_id:
            by_uuid = self._sites_by_uuid.get(route.site)
            site = by_uuid or self._sites_by_reference.get(route.site)
            row = site and (site.store.find_policy if by_uuid else site.store.find)(route.row_id)
            return row.key if row else ""
        if route.operation is not Operation.CREATE:
            return ""
        try:
            name = _decode_name(request.body)
        except msgspec.DecodeError:
            return ""
        return name.key or ".".join(part for part in (name.service, name.protocol, name.domain) if part)
