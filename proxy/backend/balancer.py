"""One backend: which of its addresses a request goes to, and whether it may be sent at all.

An address with a connection that this client has authenticated comes first, then the address of the client's session.
Otherwise addresses take turns: the next one is compared with another drawn at random, and the one with fewer requests
in flight is chosen, so that a slow address gets fewer. Addresses that are ejected or down are left out. Those where
earlier attempts failed are used only if there are no others; a retry goes to a random one of the rest and takes no
turn.
"""

from collections.abc import Callable
from functools import partial

from daemonkit.logs import get_logger
from proxy import document
from proxy.backend.circuit import Circuit
from proxy.backend.destination import Destination
from proxy.backend.health import Outliers
from proxy.backend.probes import Prober
from proxy.backend.request import Request
from proxy.backend.shared import Shared
from proxy.backend.stream import NO_WISH, Failure, Reason, Receiver, Wish
from proxy.heads import RequestHead
from proxy.loop import Loop
from proxy.stats import BackendStats

log = get_logger(__name__)


class Balancer:
    def __init__(
        self,
        shared: Shared,
        spec: document.Backend,
        stats: BackendStats,
        draw: Callable[[], float],
        *,
        is_retired: bool = False,
    ) -> None:
        """`is_retired`: as after `retire`, from the beginning."""
        self.generation = 0
        """The generation of the table that this balancer was last compared with."""
        self.spec = spec
        self._shared = shared
        self._stats = stats
        self._draw = draw
        self._refusals = Refusals(shared.loop, stats)
        self._circuit = Circuit(spec.circuit)
        self._destinations: dict[str, Destination] = {}
        self._leaving: list[Destination] = []
        """No longer addresses of the backend; their last requests are still running."""
        self._usable: list[Destination] = []
        self._outliers: Outliers | None = None
        self._restoring = shared.loop.deadline(self._restore)
        self._probers: dict[str, Prober] = {}
        """By address."""
        self._turn = 0
        self._is_retired = is_retired
        self._is_serving_waiting = False
        self._arrange()

    def __repr__(self) -> str:
        return f"<Balancer {self.spec.name}, {len(self._destinations)} addresses, {self._circuit.running} running>"

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(self, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish) -> Request:
        circuit = self._circuit
        if circuit.running >= circuit.limits.max_requests:
            detail = f"{self.spec.name}: {circuit.running} requests are in progress, which is the limit"
            return self._refusals.refuse(head, receiver, Reason.OVERLOAD, detail)
        usable = self._usable
        if not usable:
            detail = f"{self.spec.name}: none of {len(self._destinations)} addresses can be used"
            return self._refusals.refuse(head, receiver, Reason.UNHEALTHY, detail)
        destination = usable[0] if len(usable) == 1 else self._choose(usable, wish, receiver)
        request = Request(head, end_stream, receiver, wish, destination.text, destination)
        destination.send(request)
        return request

    def _choose(self, usable: list[Destination], wish: Wish, receiver: Receiver) -> Destination:
        """`usable` has at least two addresses."""
        if self._shared.keeps_for(receiver.client_connection):
            for destination in usable:
                if destination.keeps_for(receiver.client_connection) and destination.text not in wish.avoid:
                    return destination
        if wish.session_address is not None:
            for destination in usable:
                if destination.fingerprint == wish.session_address and destination.text not in wish.avoid:
                    return destination
        if wish.avoid:
            usable = _others(usable, wish.avoid) or _others(usable, wish.avoid[-1:])
        size = len(usable)
        if wish.avoid:
            # Taking turns would send every retry to the address that follows the failing one.
            turn = int(self._draw() * size)
        else:
            self._turn = turn = (self._turn + 1) % size
        destination, other = usable[turn], usable[(turn + 1 + int(self._draw() * (size - 1))) % size]
        return other if other.running < destination.running else destination

    # -- connections, on behalf of pools -------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """Close an unused connection, in any pool. Returns False if there is none."""
        pools = [pool for destination in self._all_destinations for pool in destination.pools]
        return any(pool.close_idle() for pool in pools) or any(pool.close_reserved() for pool in pools)

    def on_room(self) -> None:
        """There may be room for more connections: open those that requests wait for."""
        if not self._circuit.pending or self._is_serving_waiting:
            return
        # Making room closes connections, which calls this method again.
        self._is_serving_waiting = True
        try:
            for destination in self._all_destinations:
                for pool in destination.pools:
                    if pool.is_waited_for:
                        pool.open_as_needed()
        finally:
            # Even after an exception; otherwise this backend would never open a connection again.
            self._is_serving_waiting = False

    @property
    def _all_destinations(self) -> list[Destination]:
        return [*self._destinations.values(), *self._leaving]

    # -- health, on behalf of destinations and probers -----------------------------------------------------------------

    def on_success(self, destination: Destination) -> None:
        if self._outliers is not None:
            self._outliers.succeeded(destination.health)

    def on_failure(self, destination: Destination) -> None:
        outliers = self._outliers
        if outliers is None or self._destinations.get(destination.text) is not destination:
            return
        was_usable = destination.health.is_usable
        if outliers.failed(destination.health, self._shared.loop.now_s):
            self._stats.ejections += 1
            log.warning("backend address ejected", backend=self.spec.name, address=destination.text)
            if was_usable:
                # Not `_update_usable`, which scans all addresses: if a thousand fail together, that takes seconds.
                self._usable.remove(destination)
            self._after_change()

    def on_probed(self) -> None:
        """Probes have found an address down, or up again."""
        self._update_usable()

    def _restore(self) -> None:
        if self._outliers is not None:
            self._outliers.restore(self._shared.loop.now_s)
        self._update_usable()

    def _update_usable(self) -> None:
        self._usable = [destination for destination in self._destinations.values() if destination.health.is_usable]
        self._after_change()

    def _after_change(self) -> None:
        """Bring the deadline and the gauge up to date after addresses have become usable or unusable."""
        next_s = None if self._outliers is None else self._outliers.next_s
        if next_s is not None:
            self._restoring.set(next_s)
        if not self._is_retired:
            # The gauge of a retired balancer may already belong to its successor.
            self._stats.ejected = len(self._destinations) - len(self._usable)

    # -- changes -------------------------------------------------------------------------------------------------------

    def can_become(self, spec: document.Backend) -> bool:
        """Whether connections to addresses that remain can be kept."""
        return (spec.protocol, spec.tls) == (self.spec.protocol, self.spec.tls)

    def change(self, spec: document.Backend) -> None:
        """Take over addresses, limits and health checks."""
        self.spec = spec
        self._arrange()
        self._shed()

    def _shed(self) -> None:
        """Use no more connections than the limit, which may be lower than before, allows: busy ones would be kept."""
        surplus = self._circuit.connections - self._circuit.limits.max_connections
        if surplus > 0:
            pools = [pool for destination in self._destinations.values() for pool in destination.pools]
            unused = [link for pool in pools for link in pool.unused]
            for link in [*unused, *(link for pool in pools for link in pool.in_use)][:surplus]:
                link.drain()

    def _arrange(self) -> None:
        spec = self.spec
        self._circuit.limits = spec.circuit
        observer = self if spec.passive_health else None
        destinations: dict[str, Destination] = {}
        for text in spec.addresses:
            known = self._destinations.pop(text, None) or destinations.get(text)
            destination = known or Destination(self._shared, self, self._circuit, self._stats, spec, text)
            destination.observer = observer
            destinations[text] = destination
        for destination in self._destinations.values():
            destination.retire()
        # In one pass: searching for each one would take a second when thousands leave together.
        self._leaving = [one for one in self._all_destinations if not one.is_idle]
        self._destinations = destinations
        health = [destination.health for destination in destinations.values()]
        for one in health:
            one.forget(is_passive=not spec.passive_health, is_active=not spec.active_health)
        self._outliers = Outliers(spec.passive_health, health) if spec.passive_health else None
        if self._is_retired:
            for destination in destinations.values():
                destination.retire()
        else:
            self._probe()
        self._restore()
        # The new limit may allow more connections.
        self.on_room()

    def _probe(self) -> None:
        """Start and stop probers. A prober whose address remains keeps its schedule, because addresses may change more
        often than an address is probed.

        The first probe is at a random time; otherwise all backends of a document would always be probed together.
        """
        policy = self.spec.active_health
        before, self._probers = self._probers, {}
        for place, (text, destination) in enumerate(self._destinations.items()):
            prober = before.get(text)
            if prober is not None and prober.policy == policy and prober.destination is destination:
                self._probers[text] = before.pop(text)
            elif policy:
                self._probers[text] = Prober(self._shared.loop, policy, self.spec.name, destination, self.on_probed)
                self._probers[text].start((place + self._draw()) / len(self._destinations))
        for prober in before.values():
            prober.stop()

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return all(destination.is_idle for destination in self._all_destinations)

    def retire(self) -> None:
        """Finish running requests, then keep no connection. Exchanges on earlier tables may still send requests."""
        if self._is_retired:
            return
        self._is_retired = True
        for prober in self._probers.values():
            prober.stop()
        self._probers = {}
        for destination in self._destinations.values():
            destination.retire()

    def close(self) -> None:
        self.retire()
        self._restoring.cancel()
        for destination in self._all_destinations:
            for pool in destination.pools:
                pool.close()
        # These refer back to the balancer, and frozen objects are never collected (see `worker.swap`).
        self._destinations.clear()
        self._leaving.clear()
        self._usable.clear()
        self._outliers = None


def _others(destinations: list[Destination], avoid: tuple[str, ...]) -> list[Destination]:
    return [destination for destination in destinations if destination.text not in avoid]


class Refusals:
    """The ledger for requests that are refused without being sent."""

    def __init__(self, loop: Loop, stats: BackendStats) -> None:
        self._loop = loop
        self._stats = stats

    def refuse(self, head: RequestHead, receiver: Receiver, reason: Reason, detail: str) -> Request:
        """Return a request that fails in a later call of the loop."""
        request = Request(head, True, receiver, NO_WISH, "", self)
        self._loop.call_soon(partial(request.fail, Failure(reason, detail, is_unprocessed=True)))
        return request

    def answered(self, status_code: int) -> None:
        """Never called: these requests get no response."""

    def failed(self, failure: Failure) -> None:
        self._stats.count_failure(failure.reason.value)

    def timed_out(self) -> None:
        """The exchange cancelled the request before its failure was reported."""

    def ended(self) -> None:
        """Nothing to do: the request was never counted as running."""
