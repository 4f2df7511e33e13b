"""The tunnel's decisions: when, where and from which worker to dial the edge, and whether the tunnel is up.

One thread (`run`) decides, so that each failed attempt of the whole proxy gets one log line; workers carry out its
orders and report (`proxy.tunnel.orders`). Until the first connection has registered, no other is dialled. Without a
configuration, the proxy only checks that the edge can be reached, since a registered proxy gets requests at once.
"""

import math
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from daemonkit.logs import get_logger
from daemonkit.secret import Secret
from proxy.supervisor.edgefinder import EdgeFinder
from proxy.supervisor.edgesearch import EdgeSearch
from proxy.supervisor.edgetrust import EdgeTrust
from proxy.supervisor.places import Place, Registration
from proxy.supervisor.slot import Slot
from proxy.tunnel.addresses import EdgeAddress, EdgeAddresses, IpVersion
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import (
    Dial,
    DialMeans,
    EdgeReport,
    Ended,
    Pushed,
    PushTaken,
    Reached,
    Registered,
    Withdraw,
)
from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES, PacketSize
from proxy.tunnel.remoteconfig import NO_VERSION
from proxy.tunnel.retry import Waits
from proxy.tunnel.token import TunnelToken

log = get_logger(__name__)

PROBE_PERIOD_S: Final = 30.0
_NO_ADDRESS_S: Final = 30.0
SETTLED_S: Final = 10.0
"""How long workers and connections must be unchanged before connections are spread again."""


class TunnelSettings(msgspec.Struct, frozen=True):
    ha_connections: int
    ip_version: IpVersion
    registers_without_configuration: bool
    source: str = ""
    """The source address of connections; empty: chosen by routing."""


class Tunnel:
    def __init__(
        self,
        settings: TunnelSettings,
        token: Secret,
        slots: Sequence[Slot],
        finder: EdgeFinder,
        trust: EdgeTrust,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._token = token
        self._slots = slots
        self._stop = stop
        self._client_id = uuid.uuid4()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.places = [Place(index) for index in range(settings.ha_connections)]
        self.remote_version = NO_VERSION
        """The version of the newest configuration that the provider has pushed."""
        self._search = EdgeSearch(
            finder,
            trust,
            settings.ip_version,
            settings.source,
            tell=self._events.put,
            used=self._addresses_at,
            on_failed=self._take_failed_search,
        )
        self._packet_size = PacketSize()
        self._next_number = 1
        self._has_registered = False
        """Whether any connection has registered since the start."""
        self._is_waiting_told = False
        self._spread_at_s = math.inf
        """When to spread connections evenly over the workers."""
        self._knows_document = False
        self._is_stopping = False
        for slot in slots:
            slot.on_edge = self._on_report
            slot.on_change = self._on_change

    # -- other threads -----------------------------------------------------------------------------------------------

    @property
    def registered(self) -> int:
        return sum(place.is_registered for place in self.places)

    def problem(self) -> str | None:
        """What is missing for readiness; None if ready."""
        if self.registered:
            return None
        return "all edge connections are lost" if self._has_registered else "no edge connection is registered yet"

    def use_token(self, token: Secret) -> None:
        """Use this token from now on: connections register again, one after the other."""
        self._events.put(partial(self._take_token, token))

    def stop_is_near(self) -> None:
        """Stop dialling."""
        self._is_stopping = True
        self._events.put(lambda: None)

    def _on_report(self, slot: Slot, report: EdgeReport) -> None:
        self._events.put(partial(self._take_report, slot, report))

    def _on_change(self, slot: Slot) -> None:
        self._events.put(partial(self._take_change, slot))

    # -- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.places[0].due_s = time.monotonic()
        while not self._is_over:
            now_s = time.monotonic()
            if not self._is_stopping:
                self._dial_what_is_due(now_s)
                self._spread_when_due(now_s)
            try:
                self._events.get(timeout=self._wait_s(now_s))()
            except queue.Empty:
                continue
        self._stop.wait()

    @property
    def _is_over(self) -> bool:
        """The proxy is stopping, and all workers have ended. Until then their reports are still answered."""
        return self._is_stopping and all(slot.pid is None for slot in self._slots)

    def _wait_s(self, looked_at_s: float) -> float | None:
        """How long to wait for an event. Dials that were due at `looked_at_s` but not made need an event to proceed;
        dials that have become due since then end the wait."""
        if self._is_stopping:
            return None
        times = [place.due_s for place in self.places if not place.number and place.due_s > looked_at_s]
        times += [at_s for at_s in (self._spread_at_s, self._search.awaited_until_s) if at_s > looked_at_s]
        wait_s = min(times, default=math.inf) - time.monotonic()
        return max(0.0, wait_s) if wait_s < threading.TIMEOUT_MAX else None

    def _dial_what_is_due(self, now_s: float) -> None:
        for place in self.places:
            if not place.number and place.due_s <= now_s and not self._dial(place, now_s):
                return

    def _dial(self, place: Place, now_s: float) -> bool:
        """Returns False if something is missing that all dials need."""
        addresses = self._search.addresses
        if addresses is None:
            self._search.begin()
            return False
        if now_s < self._search.awaited_until_s:
            return False
        registers = self._has_document
        if not registers and any(slot.is_taking for slot in self._slots):
            return False
        slot = self._slot_for(registers)
        if slot is None:
            return False
        address = addresses.address_for(place.index)
        if address is None:
            self._search.begin_again(now_s)
            place.due_s = now_s + _NO_ADDRESS_S
            if place.is_moving and not self._is_token_doubtful(addresses):
                # Another connection has its address. It may never return, and the next one must not wait for it.
                place.is_moving = False
                self._move_one()
            return True
        number, self._next_number = self._next_number, self._next_number + 1
        token = self._token.reveal()
        place.is_small = self._packet_size.is_small
        order = Dial(number, place.index, address, place.waits.attempts, registers, place.is_small)
        means = DialMeans(token, self._client_id.bytes, self._search.roots, self._settings.source)
        try:
            pid = slot.order(order, msgspec.msgpack.encode(means))
        except OSError as error:
            self._failed(place, FailureCause.DIAL, f"cannot hand it to a worker: {error}", str(address))
            return True
        if pid is None:
            # The worker has died; the event for that will lead here again.
            return False
        place.number, place.slot, place.pid, place.address, place.token = number, slot, pid, address, token
        place.edge = self._search.edge
        return True

    @property
    def _has_document(self) -> bool:
        """Requests can be routed, or the options allow registering without a document."""
        return self._settings.registers_without_configuration or any(slot.taken for slot in self._slots)

    def _slot_for(self, registers: bool) -> Slot | None:
        """Of the workers that can serve, the one with the fewest connections."""
        counts = self._counts(registers)
        return min(counts, key=lambda slot: (counts[slot], slot.index), default=None)

    def _counts(self, registers: bool) -> dict[Slot, int]:
        """The number of connections of each worker that can serve, including those being dialled."""
        is_open = registers and not self._settings.registers_without_configuration
        counts = {slot: 0 for slot in self._slots if slot.is_running and (slot.taken or not is_open)}
        for place in self.places:
            if place.number and place.slot in counts:
                counts[place.slot] += 1
        return counts

    # -- searches ----------------------------------------------------------------------------------------------------

    def _addresses_at(self, edge: str) -> Mapping[int, EdgeAddress]:
        """The addresses of connections that are being dialled or in use, by connection index."""
        there = [place for place in self.places if place.number and place.edge == edge]
        return {place.index: place.address for place in there if place.address is not None}

    def _take_failed_search(self, edge: str, error: str) -> None:
        if self._search.addresses is not None:
            if not self._is_stopping:
                log.warning("cannot look up the edge again, its known addresses stay in use", error=error, edge=edge)
            return
        self._failed(self.places[0], FailureCause.DIAL, error, edge)
        for place in self.places[1:]:
            place.due_s = max(place.due_s, self.places[0].due_s)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _take_report(self, slot: Slot, report: EdgeReport) -> None:
        if isinstance(report, Pushed):
            self._take_pushed(slot, report)
            return
        place = next((place for place in self.places if place.number == report.number), None)
        if place is None:
            return
        match report:
            case Reached():
                self._take_reached(place)
            case Registered():
                self._take_registered(place, slot, report)
            case Ended():
                self._take_ended(place, report)

    def _take_reached(self, place: Place) -> None:
        if not self._is_waiting_told:
            self._is_waiting_told = True
            log.info("edge reachable, waiting for the first configuration", edge=str(place.address))
        place.clear()
        place.waits = Waits()
        place.due_s = time.monotonic() + (0.0 if self._has_document else PROBE_PERIOD_S)

    def _take_registered(self, place: Place, slot: Slot, report: Registered) -> None:
        edge = str(place.address)
        place.registration = Registration(time.monotonic(), report.location, edge, slot.index)
        place.is_moving = False
        place.registrations += 1
        log.info(
            "edge connection registered",
            conn_index=place.index,
            edge=edge,
            location=report.location,
            connection_id=report.connection_id,
            worker=slot.index,
        )
        if not self._has_registered:
            self._has_registered = True
            self._open_the_others()
        self._move_one()
        self._spread_later()

    def _open_the_others(self) -> None:
        """Dial the other connections, but no more than the edge has addresses: one address would refuse a second
        connection as a duplicate."""
        addresses = self._search.addresses
        free = addresses.free_count if addresses is not None else 0
        count = min(len(self.places), 1 + free)
        if count < len(self.places):
            log.info("fewer edge addresses than connections wanted", addresses=count, connections=len(self.places))
        now_s = time.monotonic()
        for place in self.places[1:]:
            place.due_s = now_s if place.index < count else now_s + _NO_ADDRESS_S

    def _take_ended(self, place: Place, report: Ended) -> None:
        edge = str(place.address)
        was_moving = place.is_moving and report.registered_for_s > 0
        if was_moving or place.token != self._token.reveal():
            # It did not fail, or perhaps only because of an earlier token.
            place.waits = Waits()
        elif report.registered_for_s:
            place.waits.lost(report.registered_for_s)
        if self._packet_size.ended(report.black_hole, time.monotonic(), was_small=place.is_small):
            log.warning(
                "full-size packets to the edge seem to be lost, sending smaller ones",
                edge=edge,
                segment_bytes=SMALL_SEGMENT_BYTES,
            )
        place.clear()
        if was_moving or self._is_stopping:
            place.due_s = time.monotonic()
        else:
            was_registered = report.registered_for_s > 0
            self._failed(place, report.cause, report.error, edge, report.retry_after_s, was_registered=was_registered)

    def _failed(
        self,
        place: Place,
        cause: FailureCause,
        error: str,
        edge: str,
        retry_after_s: float = 0.0,
        *,
        was_registered: bool = False,
    ) -> None:
        now_s = time.monotonic()
        place.failures[cause] += 1
        addresses = self._search.addresses
        if addresses is not None and not (cause.is_of_address or cause.is_of_all or was_registered):
            # The edge was reached, but this address may be at fault, unless the connection had registered there.
            addresses.another_for(place.index, now_s, was_reached=True)
        if addresses is not None and cause.is_of_address:
            addresses.another_for(place.index, now_s, was_reached=cause is FailureCause.DUPLICATE)
            self._search.begin_again(now_s)
            if not self.registered:
                self._search.be_awaited()
        wait = place.waits.next(random.random(), retry_after_s)
        place.due_s = now_s + wait.delay_s
        if self._is_stopping:
            return
        said = {"attempt": wait.attempt, "delay_s": round(wait.delay_s, 2), "edge": edge}
        if self._has_registered:
            log.warning("edge connection failed, retrying", error=error, **said, conn_index=place.index)
        else:
            log.warning("tunnel bootstrap dial failed, retrying", error=error, **said)

    def _take_change(self, slot: Slot) -> None:
        """The slot's worker has started, has ended, or has taken or refused a document."""
        for place in self.places:
            if place.number and place.slot is slot and place.pid != slot.pid:
                registration = place.registration
                registered_for_s = time.monotonic() - registration.at_s if registration is not None else 0.0
                ended = Ended(place.number, FailureCause.LOST, "its worker died", 0.0, registered_for_s)
                self._take_ended(place, ended)
        self._spread_later()
        if self._has_document and not self._knows_document:
            self._knows_document = True
            # Immediately, whatever it was waiting for.
            self.places[0].due_s = time.monotonic()

    def _take_pushed(self, slot: Slot, report: Pushed) -> None:
        if report.version is not None and report.version > self.remote_version:
            self.remote_version = report.version
            log.info(
                "the provider's configuration was acknowledged, but is not used for routing",
                ingress_version=report.version,
            )
        slot.order(PushTaken(report.push, self.remote_version))

    # -- new tokens --------------------------------------------------------------------------------------------------

    def _take_token(self, token: Secret) -> None:
        self._token = token
        self._search.turn_to(TunnelToken.decode(token.reveal()).endpoint)
        now_s = time.monotonic()
        for place in self.places:
            if not place.number and place.token:
                # It had failed, perhaps because of the token.
                place.waits = Waits()
                place.due_s = now_s
        self._move_one()

    def _is_token_doubtful(self, addresses: EdgeAddresses) -> bool:
        """None has registered with the token, but one that has an address tries to: the rest must keep serving."""
        token = self._token.reveal()
        dialled = [place for place in self.places if place.token == token]
        is_proved = any(place.is_registered for place in dialled)
        return not is_proved and any(addresses.has_one(place.index) for place in dialled)

    def _move_one(self) -> None:
        """Move the next connection that registered with an earlier token, or with packets that are too large.

        The others keep serving meanwhile.
        """
        token = self._token.reveal()
        for place in self.places:
            is_large = self._packet_size.is_small and not place.is_small
            if place.is_registered and (place.token != token or is_large):
                self._move(place)
                return

    def _move(self, place: Place) -> None:
        """Have a connection unregister, to be dialled again at once; one at a time."""
        if place.slot is not None and not self._is_one_moving:
            place.is_moving = True
            place.slot.order(Withdraw(place.number))

    @property
    def _is_one_moving(self) -> bool:
        return any(place.is_moving for place in self.places)

    # -- spreading connections over the workers ----------------------------------------------------------------------

    def _spread_when_due(self, now_s: float) -> None:
        """Move a connection away from the fullest worker, so that a worker that started later gets its share."""
        if now_s < self._spread_at_s or self._is_one_moving:
            return
        self._spread_at_s = math.inf
        counts = self._counts(registers=True)
        fullest = max(counts, key=lambda slot: counts[slot], default=None)
        registered = [place for place in self.places if place.is_registered and place.slot is fullest]
        if registered and fullest is not None and counts[fullest] - min(counts.values()) > 1:
            place = registered[-1]
            log.info("moving an edge connection to another worker", conn_index=place.index, worker=fullest.index)
            self._move(place)

    def _spread_later(self) -> None:
        self._spread_at_s = time.monotonic() + SETTLED_S
