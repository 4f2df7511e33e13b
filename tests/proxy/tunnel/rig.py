"""A worker's connections to an edge, in a loop in its own thread, with a clock that tests advance.

The edge is the simulated one on real sockets; requests are answered by the exchanges of the doors' tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from proxy.doors.terms import Caches
from proxy.loop import Loop
from proxy.stats import Stats
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.links import Links
from proxy.tunnel.orders import Dial, DialMeans, EdgeOrder, EdgeReport, Ended, PushTaken, Registered, Withdraw
from tests.proxy.doors.echo import Services
from tests.proxy.loop.sides import Clock
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import PATIENCE_S
from tests.support.loops import call_in

CLIENT_ID = b"c" * 16

T = TypeVar("T")
R = TypeVar("R", bound=EdgeReport)


def address_of(text: str) -> EdgeAddress:
    host, _, port = text.rpartition(":")
    return EdgeAddress(host.strip("[]"), int(port))


class Rig:
    def __init__(self, edge: Edge, clock: Clock | None = None) -> None:
        self.edge = edge
        self.clock = clock or Clock()
        self.loop = Loop(self.clock)
        self.services = Services(self.loop)
        self.stats = Stats()
        self.is_idle = threading.Event()
        self._news = threading.Condition()
        self._reports: list[EdgeReport] = []
        self.links = Links(self.loop, self.services.begin, Caches(), self.stats, self._note)
        self._numbers = 0
        self._thread = threading.Thread(target=self.loop.run, name="loop", daemon=True)
        self._thread.start()

    # -- orders ------------------------------------------------------------------------------------------------------

    def dial(
        self,
        address: str = "",
        *,
        roots: str | None = None,
        registers: bool = True,
        conn_index: int = 0,
    ) -> int:
        """Returns the number of the dial."""
        self._numbers += 1
        roots = self.edge.authority.pem.decode() if roots is None else roots
        means = DialMeans(self.edge.tunnel.token, CLIENT_ID, roots)
        order = Dial(self._numbers, conn_index, address_of(address or self.edge.addresses[0]), 0, registers)
        self.obey(order, msgspec.msgpack.encode(means))
        return self._numbers

    def register(self) -> int:
        number = self.dial()
        self.wait_for(Registered, number)
        return number

    def withdraw(self, number: int) -> None:
        self.obey(Withdraw(number))

    def take_push(self, push: int, version: int) -> None:
        self.obey(PushTaken(push, version))

    def obey(self, order: EdgeOrder, content: bytes | None = None) -> None:
        self.call(lambda: self.links.obey(order, memoryview(content) if content is not None else None))

    # -- reports -----------------------------------------------------------------------------------------------------

    def _note(self, report: EdgeReport) -> None:
        with self._news:
            self._reports.append(report)
            self._news.notify_all()

    @property
    def reports(self) -> list[EdgeReport]:
        with self._news:
            return [*self._reports]

    def wait_for(self, kind: type[R], number: int) -> R:
        """Returns the only report of this kind on a dial."""
        return self.wait_for_one(kind, lambda report: getattr(report, "number", None) == number)

    def wait_for_one(self, kind: type[R], is_wanted: Callable[[R], bool] = lambda _: True) -> R:
        def found() -> list[R]:
            return [report for report in self._reports if isinstance(report, kind) and is_wanted(report)]

        with self._news:
            assert self._news.wait_for(found, PATIENCE_S), f"no {kind.__name__}; reports so far: {self._reports}"
            (only,) = found()
            return only

    def wait_for_end(self, number: int) -> Ended:
        return self.wait_for(Ended, number)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def call(self, what: Callable[[], T]) -> T:
        """Runs `what` in the loop's thread."""
        return call_in(self.loop, what, PATIENCE_S)

    def pass_time(self, seconds: float) -> None:
        """Advances the loop's clock; deadlines that have expired by then are handled before this returns."""
        self.clock.passed_s += seconds
        for _ in range(2):
            self.call(lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(self.links.close)
        self.loop.call_from_thread(self.loop.stop)
        self._thread.join(PATIENCE_S)
        assert error is not None or not self._thread.is_alive(), "the loop does not end"
        self.loop.close()
