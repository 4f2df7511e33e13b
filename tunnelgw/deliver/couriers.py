"""The couriers of all targets of one sort: one courier for each target that should hold something now.

Each target is at a place. When a place gets a new courier, because of other credentials or because we did not lead for
a while, that one starts only after the last call of the former courier has ended: that call could still overwrite newer
content.

Only one thread may call `send`, `stop` and `join`; any thread may call `receipts` and `receipt`.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, Protocol, TypeVar

from daemonkit.logs import get_logger
from tunnelgw.deliver.courier import Courier, Parcel, Target
from tunnelgw.deliver.receipts import Receipt

log = get_logger(__name__)

_NO_THREAD = "no thread can be started to serve it: allow the controller more tasks (TasksMax, or the pod's pids limit)"


class Located(Hashable, Protocol):
    @property
    def place(self) -> str:
        """Where the target is; two keys may lead to one place."""


K = TypeVar("K", bound=Located)
P = TypeVar("P", bound=Parcel)
Make = Callable[[K, Callable[[], bool]], Target[P]]
"""Builds the target of a key. Before each call, the target must ask the function whether it is still to be served."""


class Couriers(Generic[K, P]):
    """`on_news` is called by couriers' threads when a receipt has changed, or when `send` can do more than before."""

    def __init__(
        self,
        make: Make[K, P],
        on_news: Callable[[], None],
        on_crash: Callable[[BaseException], None],
        *,
        visit_every_s: float,
        look_again_s: float = math.inf,
    ) -> None:
        """The times are those of a `Courier`."""
        self._make = make
        self._on_news = on_news
        self._on_crash = on_crash
        self._visit_every_s = visit_every_s
        self._look_again_s = look_again_s
        self._lock = threading.Lock()
        self._receipts: dict[K, Receipt] = {}
        self._couriers: dict[K, Courier[P]] = {}
        self._leaving: list[tuple[str, Courier[P]]] = []
        """Dismissed couriers that may still be in a call, each with its place."""

    def send(self, wanted: Mapping[K, P]) -> None:
        """Serve exactly these targets from now on, each with its newest parcel.

        Call it again after `on_news`: then places are served whose former courier has ended since.
        """
        for key in self._couriers.keys() - wanted.keys():
            self._dismiss(key)
        self._forget_unserved(wanted)
        self._leaving = [(place, courier) for place, courier in self._leaving if not courier.has_ended]
        taken = {place for place, _ in self._leaving}
        has_threads = True
        for key, parcel in wanted.items():
            courier = self._couriers.get(key)
            if courier is None and key.place not in taken and has_threads:
                courier = self._hire(key, parcel)
                has_threads = courier is not None
            if courier is not None:
                courier.send(parcel)

    def receipts(self) -> dict[K, Receipt]:
        """The newest receipt of each target that has one."""
        with self._lock:
            return dict(self._receipts)

    def receipt(self, key: K) -> Receipt | None:
        """The newest receipt of one target."""
        with self._lock:
            return self._receipts.get(key)

    def stop(self) -> None:
        for key in list(self._couriers):
            self._dismiss(key)
        self._forget_unserved({})

    def join(self, deadline_s: float) -> bool:
        """Returns whether all dismissed couriers have ended by `deadline_s` (monotonic clock)."""
        return all(courier.join(deadline_s - time.monotonic()) for _, courier in self._leaving)

    def _hire(self, key: K, parcel: P) -> Courier[P] | None:
        """None: no more threads can be started. Targets that already have couriers are served all the same."""
        courier: Courier[P] = Courier(
            lambda is_served: self._make(key, is_served),
            lambda receipt: self._note(key, hired(), receipt),
            self._on_crash,
            visit_every_s=self._visit_every_s,
            look_again_s=self._look_again_s,
            on_end=self._on_news,
        )
        hired = weakref.ref(courier)  # a strong reference would keep the courier and its parcel after its end
        self._couriers[key] = courier
        try:
            courier.start()
        except RuntimeError as error:
            del self._couriers[key]
            courier.target.close()
            self._note_unserved(key, Receipt(courier.target.name, parcel.digest, error=f"{_NO_THREAD}: {error}"))
            return None
        return courier

    def _note_unserved(self, key: K, receipt: Receipt) -> None:
        """Logs it only once, since each `send` tries again."""
        with self._lock:
            is_known = self._receipts.get(key) == receipt
            self._receipts[key] = receipt
        if not is_known:
            log.error("target cannot be served", error=receipt.error, target=receipt.target)

    def _forget_unserved(self, wanted: Mapping[K, P]) -> None:
        with self._lock:
            for key in self._receipts.keys() - self._couriers.keys() - wanted.keys():
                del self._receipts[key]

    def _dismiss(self, key: K) -> None:
        with self._lock:
            courier = self._couriers.pop(key)
            self._receipts.pop(key, None)
        courier.stop()
        self._leaving.append((key.place, courier))

    def _note(self, key: K, courier: Courier[P] | None, receipt: Receipt) -> None:
        with self._lock:
            if self._couriers.get(key) is not courier:
                return
            self._receipts[key] = receipt
        self._on_news()
