"""What all exchanges of a worker share: table, terms, backends, counters, the access log, randomness and the clocks."""

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from proxy import document
from proxy.backend.stream import Pool
from proxy.exchange.backlog import Backlog
from proxy.exchange.client import Arrival
from proxy.exchange.record import Record
from proxy.exchange.relay import Kept
from proxy.exchange.terms import Terms, terms_of
from proxy.exchange.untaken import Untaken
from proxy.heads import RequestHead
from proxy.loop import Loop
from proxy.routing import compile_table
from proxy.stats import Stats

_ID_PREFIX_BYTES: Final = 6


def _always(_status_code: int, _has_failed: bool) -> bool:
    return True


class Running(Protocol):
    """Something that can be idle for too long: an exchange, a mirror, or the rest of an authorization server's
    answer."""

    active_s: float
    """When bytes last moved, by the loop's clock."""

    @property
    def idle_timeout_s(self) -> float: ...

    def on_idle(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class Shared:
    """`is_logged` says whether `access_log` wants the record of an exchange, by its status code and
    `has_failed`. Usually it does not."""

    loop: Loop
    pools: Pool
    stats: Stats
    access_log: Callable[[Record], object]
    is_logged: Callable[[int, bool], bool] = _always
    draw: Callable[[], float] = random.random
    """Numbers from 0.0 up to 1.0."""
    nonce: Callable[[int], bytes] = secrets.token_bytes
    """As many random bytes as it is asked for."""
    wall_clock_s: Callable[[], float] = time.time
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        self.table = compile_table(document.Document())
        self.terms: Terms = terms_of(self.table.settings)
        self.running: set[Running] = set()
        """All that have not ended yet."""
        self.untaken = Untaken(self.loop)
        self.kept = Kept()
        self.mirrors_behind = Backlog()
        """Mirrored requests that backends have not taken."""
        self._id_prefix = secrets.token_hex(_ID_PREFIX_BYTES).encode()
        self._ids = count(1)

    def request_id_for(self, arrival: Arrival, head: RequestHead) -> bytes:
        """The id that a trusted client gave, or else a new one, unique over all workers and restarts."""
        given = self.terms.forwarding.request_id_of(head) if arrival.is_trusted else None
        return given or b"%b-%x" % (self._id_prefix, next(self._ids))
