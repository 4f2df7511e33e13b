"""The couriers of all targets of one sort: there is one for each target that should hold something now.

One thread calls `send`, `stop` and `join`; `receipts` may be read from any.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from tunnelgw.deliver.courier import Courier, Parcel, Target
from tunnelgw.deliver.receipts import Receipt

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=Parcel)


class Couriers(Generic[K, P]):
    """`make` builds the target of a key. `on_news` is called from couriers' threads when a receipt has changed."""

    def __init__(
        self,
        make: Callable[[K], Target[P]],
        on_news: Callable[[], None],
        on_crash: Callable[[BaseException], None],
        *,
        visit_every_s: float,
    ) -> None:
        self._make = make
        self._on_news = on_news
        self._on_crash = on_crash
        self._visit_every_s = visit_every_s
        self._lock = threading.Lock()
        self._receipts: dict[K, Receipt] = {}
        self._couriers: dict[K, Courier[P]] = {}
        self._leaving: list[Courier[P]] = []

    def send(self, wanted: Mapping[K, P]) -> None:
        """From now on exactly these targets are served, each with its newest parcel."""
        self._leaving = [courier for courier in self._leaving if not courier.join(0)]
        for key in self._couriers.keys() - wanted.keys():
            self._dismiss(key)
        for key, parcel in wanted.items():
            courier = self._couriers.get(key) or self._hire(key)
            courier.send(parcel)

    def receipts(self) -> dict[K, Receipt]:
        """The newest word on each target that has answered, or failed to."""
        with self._lock:
            return dict(self._receipts)

    def stop(self) -> None:
        for key in list(self._couriers):
            self._dismiss(key)

    def join(self, deadline_s: float) -> bool:
        """True when all have ended by `deadline_s` (monotonic clock)."""
        return all(courier.join(deadline_s - time.monotonic()) for courier in self._leaving)

    def _hire(self, key: K) -> Courier[P]:
        courier: Courier[P] = Courier(
            self._make(key),
            lambda receipt: self._note(key, courier, receipt),
            self._on_crash,
            visit_every_s=self._visit_every_s,
        )
        self._couriers[key] = courier
        courier.start()
        return courier

    def _dismiss(self, key: K) -> None:
        with self._lock:
            courier = self._couriers.pop(key)
            self._receipts.pop(key, None)
        courier.stop()
        self._leaving.append(courier)

    def _note(self, key: K, courier: Courier[P], receipt: Receipt) -> None:
        with self._lock:
            if self._couriers.get(key) is not courier:
                return
            self._receipts[key] = receipt
        self._on_news()
