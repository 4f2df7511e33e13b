"""The controller's one worker: what the store holds goes through translation to those who must know, in turns.

    wait -> take -> translate -> documents to proxies -> hostnames to the provider -> statuses

A turn begins when objects have changed or receipts have come in; it does not know which, and does only what follows
from the difference. It waits for nobody: couriers and the status desk have threads of their own. Statuses of a turn
are held back until its documents have arrived, or their proxies have failed to take them, so that they tell the truth
when they are read.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.deliver.dispatch import Dispatch
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Discovery, Plane, Tunnel, planes, tunnels
from tunnelgw.deliver.tunnels import HostnamesParcel
from tunnelgw.deliveries import delivered, unbound
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.store import Change, Store
from tunnelgw.status.compose import Wish
from tunnelgw.status.objects import Delivery
from tunnelgw.statusdesk import StatusDesk
from tunnelgw.translate.pipeline import Differences, Translation
from tunnelgw.translate.verdicts import GatewayVerdict, ListenerSetVerdict, ObjectId

log = get_logger(__name__)

STATUS_KINDS = frozenset(
    {
        Kind.GATEWAY_CLASS,
        Kind.GATEWAY,
        Kind.LISTENER_SET,
        Kind.HTTP_ROUTE,
        Kind.GRPC_ROUTE,
        Kind.BACKEND_TLS_POLICY,
    }
)
MAX_HOLD_BACK_S = 3.0
"""Statuses wait no longer than this for proxies that neither take a document nor fail to."""
STUCK_S = 60.0
_MAX_WAIT_S = 1.0
_NO_HOSTS = HostnamesParcel.of(())


class Reconciler:
    """`run` is a thread; everything but `readiness` and `liveness` belongs to it."""

    def __init__(
        self,
        store: Store,
        dispatch: Dispatch,
        desk: StatusDesk,
        discovery: Discovery,
        stop: threading.Event,
        fail: Callable[[str], None],
        metrics: Metrics,
        debounce_s: float,
    ) -> None:
        """`fail` ends the process."""
        self._store = store
        self._dispatch = dispatch
        self._desk = desk
        self._discovery = discovery
        self._stop = stop
        self._fail = fail
        self._metrics = metrics
        self._debounce_s = debounce_s
        self._snapshot: Snapshot | None = None
        self._translation: Translation | None = None
        self._planes: Mapping[str, Plane] = {}
        self._tunnels: Mapping[str, Tunnel] = {}
        self._hosts: dict[str, HostnamesParcel] = {}
        """By tunnel."""
        self._planes_by_tunnel: dict[str, set[str]] = {}
        self._deliveries: dict[str, Delivery] = {}
        """By data plane, as statuses were last told."""
        self._unbound: Mapping[ObjectId, Mapping[str, str]] = {}
        self._owed: set[ObjectId] = set()
        """Objects whose statuses are held back."""
        self._receipts: dict[str, Receipt] = {}
        self._are_credentials_checked = False
        self._last_turn_s = time.monotonic()

    # -- health ------------------------------------------------------------------------------------------------------

    def readiness(self) -> str | None:
        if self._translation is not None:
            return None
        missing = ", ".join(sorted(self._store.unlisted))
        return f"waiting for the first listing of {missing}" if missing else "the first translation is under way"

    def liveness(self) -> str | None:
        return (
            "the reconciler has made no turn for a minute" if time.monotonic() - self._last_turn_s > STUCK_S else None
        )

    # -- turns -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._stop.is_set():
            self._last_turn_s = time.monotonic()
            has_changed = self._store.wait(time.monotonic() + _MAX_WAIT_S)
            if self._stop.is_set():
                return
            if has_changed and self._debounce_s:
                self._stop.wait(self._debounce_s)
            self._turn(has_changed=has_changed)

    def _turn(self, *, has_changed: bool) -> None:
        started_s = time.monotonic()
        outcome = "failed"
        try:
            if has_changed:
                self._take(self._store.take())
            if self._translation is not None:
                self._deliver()
                self._tell()
                self._check_credentials()
            outcome = "ok"
        finally:
            if has_changed:
                self._metrics.passes.labels(outcome).observe(time.monotonic() - started_s)
        if has_changed:
            self._metrics.last_pass.set_to_current_time()

    def _take(self, change: Change) -> None:
        snapshot, is_first = change.snapshot, self._translation is None
        if self._translation is None:
            self._translation = Translation(snapshot, self._discovery.controller_name)
            differences = _everything(self._translation, snapshot)
        else:
            differences = self._translation.update(snapshot, change.changed)
        self._snapshot = snapshot
        for plane in differences.data_planes:
            self._put_document(plane)
        self._put_hosts(self._translation, differences.tunnels)
        if any(id_.kind is Kind.GATEWAY for id_ in differences.verdicts):
            self._find_planes_of_tunnels(self._translation, snapshot)
        if is_first or any(entry.room in _ABOUT_TARGETS for entry in change.changed):
            self._planes = planes(snapshot, self._discovery)
            self._tunnels = tunnels(snapshot, self._discovery)
        self._owed |= differences.verdicts | _with_status((*change.changed, *change.touched))
        for (kind, is_readable), count in self._store.counts().items():
            self._metrics.objects.labels(kind, "read" if is_readable else "unreadable").set(count)
        if is_first:
            log.info("translated for the first time", gateways=len(snapshot.all(Kind.GATEWAY)))

    def _put_document(self, plane: str) -> None:
        made = self._translation.documents.get(plane) if self._translation else None
        if made is None:
            self._dispatch.drop_document(plane)
            return
        encoded = made.encode(0)
        self._metrics.document_bytes.labels(plane).set(len(encoded))
        self._dispatch.put_document(plane, encoded, made.listeners)

    # -- deliveries --------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        self._dispatch.send(self._planes)
        wanted = {tunnel: self._hosts.get(id_, _NO_HOSTS) for id_, tunnel in self._tunnels.items()}
        self._dispatch.send_hosts(wanted, self._planes_by_tunnel)

    def _put_hosts(self, translation: Translation, tunnels_: Iterable[str]) -> None:
        for tunnel in tunnels_:
            self._hosts[tunnel] = HostnamesParcel.of(translation.hosts(tunnel))

    def _find_planes_of_tunnels(self, translation: Translation, snapshot: Snapshot) -> None:
        self._planes_by_tunnel = {}
        for key in snapshot.all(Kind.GATEWAY):
            verdict = translation.verdict(ObjectId(Kind.GATEWAY, key))
            if isinstance(verdict, GatewayVerdict) and verdict.tunnel:
                self._planes_by_tunnel.setdefault(verdict.tunnel, set()).add(verdict.data_plane)

    def _check_credentials(self) -> None:
        """At the start: when no tunnel lets us in, nothing that we could do later would help."""
        if self._are_credentials_checked or not self._dispatch.is_settled():
            return
        receipts = self._dispatch.tunnel_receipts()
        if len(receipts) < len(self._tunnels):
            return
        self._are_credentials_checked = True
        if receipts and all(receipt.is_credential_problem for receipt in receipts.values()):
            errors = "; ".join(f"{receipt.target}: {receipt.error}" for receipt in receipts.values())
            self._fail(f"failed to run controller: checking provider credentials: {errors}")

    # -- statuses ----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._note_deliveries()
        self._owed |= self._affected_by_deliveries()
        since_s = self._dispatch.unsettled_since_s
        if self._owed and (since_s is None or time.monotonic() - since_s > MAX_HOLD_BACK_S):
            self._desk.want({id_: wish for id_ in self._owed if (wish := self._wish(id_)) is not None})
            self._owed = set()
        self._metrics.pending_statuses.set(self._desk.depth + len(self._owed))

    def _affected_by_deliveries(self) -> set[ObjectId]:
        """Gateways and ListenerSets of data planes of which something else is to be said now."""
        self._unbound = self._unbound_listeners()
        deliveries = {name: self._delivery(name) for name in self._planes}
        different = {name for name in deliveries if deliveries[name] != self._deliveries.get(name)}
        self._deliveries = deliveries
        if not different or self._translation is None:
            return set()
        found = set()
        for kind in (Kind.GATEWAY, Kind.LISTENER_SET):
            for key in self._snapshot.all(kind) if self._snapshot else ():
                verdict = self._translation.verdict(id_ := ObjectId(kind, key))
                if isinstance(verdict, GatewayVerdict | ListenerSetVerdict) and verdict.data_plane in different:
                    found.add(id_)
        return found

    def _delivery(self, plane: str) -> Delivery:
        tunnel = next((id_ for id_ in self._tunnels if plane in self._planes_by_tunnel.get(id_, ())), "")
        receipts = self._dispatch.proxy_receipts(plane)
        finding = delivered(receipts, len(self._planes[plane].endpoints), self._dispatch.tunnel_receipts().get(tunnel))
        return Delivery(plane in self._dispatch.held_planes(), finding)

    def _unbound_listeners(self) -> Mapping[ObjectId, Mapping[str, str]]:
        found: dict[ObjectId, Mapping[str, str]] = {}
        for plane in self._planes:
            found |= unbound(self._dispatch.listeners(plane), self._dispatch.proxy_receipts(plane))
        return found

    def _wish(self, id_: ObjectId) -> Wish | None:
        assert self._snapshot is not None  # noqa: S101
        assert self._translation is not None  # noqa: S101
        item = self._snapshot.read(Entry(id_.kind, id_.key))
        if not isinstance(item, Object):
            return None
        verdict = self._translation.verdict(id_)
        if not isinstance(verdict, GatewayVerdict | ListenerSetVerdict):
            return Wish(item, verdict)
        delivery = self._deliveries.get(verdict.data_plane, Delivery(False))
        return Wish(item, verdict, msgspec.structs.replace(delivery, unbound=self._unbound.get(id_, {})))

    def _note_deliveries(self) -> None:
        """Count what receipts newly say, and forget targets that are gone."""
        found = [receipt for plane in self._planes for receipt in self._dispatch.proxy_receipts(plane)]
        receipts = {receipt.target: receipt for receipt in (*found, *self._dispatch.tunnel_receipts().values())}
        for target in self._receipts.keys() - receipts.keys():
            self._metrics.forget_target(target)
        for target, receipt in receipts.items():
            if receipt == self._receipts.get(target):
                continue
            outcome = "held" if receipt.is_current else "refused" if receipt.is_refusal else "failed"
            self._metrics.deliveries.labels(target, outcome).inc()
            if receipt.is_current:
                self._metrics.delivered_at.labels(target).set_to_current_time()
        self._receipts = receipts


_ABOUT_TARGETS = frozenset(
    {
        Kind.GATEWAY_CLASS,
        Kind.GATEWAY,
        Kind.GATEWAY_CLASS_CONFIG,
        Kind.GATEWAY_CONFIG,
        Kind.SECRET,
        Kind.ENDPOINT_SLICE,
    }
)
"""Changes of these may bring other proxies, tunnels or credentials."""


def _everything(translation: Translation, snapshot: Snapshot) -> Differences:
    """Also routes that are not ours: we may once have said something of them."""
    ids = (ObjectId(kind, key) for kind in STATUS_KINDS for key in snapshot.all(kind))
    return Differences(frozenset(ids), frozenset(translation.documents), translation.tunnels)


def _with_status(entries: Iterable[Entry]) -> set[ObjectId]:
    return {ObjectId(Kind(entry.room), entry.key) for entry in entries if entry.room in STATUS_KINDS}
