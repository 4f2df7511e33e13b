"""Which addresses of a backend may be used. Pure: outcomes and times are passed in.

Passive (`Outliers`): an address with a number of consecutive failures is ejected for a time, unless too large a share
of the addresses is ejected already. After that time it is used again, and a single failure ejects it again.
Active (`AddressHealth.probed`): an address is used until a number of consecutive probes have failed, and again after a
number of consecutive probes have succeeded.
"""

import heapq
from itertools import count

from proxy import document


class AddressHealth:
    """What is known about one address."""

    __slots__ = ("consecutive_failures", "ejected_until_s", "is_down", "probes_in_a_row")

    def __init__(self) -> None:
        self.consecutive_failures = 0
        self.ejected_until_s: float | None = None
        self.is_down = False
        """According to probes."""
        self.probes_in_a_row = 0
        """How many probes in a row have contradicted `is_down`."""

    @property
    def is_usable(self) -> bool:
        return self.ejected_until_s is None and not self.is_down

    def forget(self, *, is_passive: bool, is_active: bool) -> None:
        """Discard the findings of checks that are no longer configured."""
        if is_passive:
            self.consecutive_failures = 0
            self.ejected_until_s = None
        if is_active:
            self.is_down = False
            self.probes_in_a_row = 0

    def probed(self, is_success: bool, policy: document.ActiveHealth) -> bool:
        """Record the outcome of a probe. Returns whether `is_down` has changed."""
        if is_success is not self.is_down:
            self.probes_in_a_row = 0
            return False
        self.probes_in_a_row += 1
        threshold = policy.healthy_threshold if self.is_down else policy.unhealthy_threshold
        if self.probes_in_a_row < threshold:
            return False
        self.is_down = not self.is_down
        self.probes_in_a_row = 0
        return True


class Outliers:
    """The passive health of all addresses of a backend. Its cost grows only with the addresses that change state."""

    def __init__(self, policy: document.PassiveHealth, addresses: list[AddressHealth]) -> None:
        self._policy = policy
        self._ejection_time_s = document.seconds(policy.ejection_time)
        self._max_ejected = len(addresses) * policy.max_ejected_percent // 100
        self._turns = count()
        self._ejected: list[tuple[float, int, AddressHealth]] = []
        """A heap by the end of the ejection, not a queue, since earlier policies may have ejected for longer."""
        for address in addresses:
            if address.ejected_until_s is not None:
                self._note(address.ejected_until_s, address)

    @property
    def ejected(self) -> int:
        return len(self._ejected)

    @property
    def next_s(self) -> float | None:
        """When the next ejection ends; None if no address is ejected."""
        return self._ejected[0][0] if self._ejected else None

    def succeeded(self, address: AddressHealth) -> None:
        address.consecutive_failures = 0

    def failed(self, address: AddressHealth, now_s: float) -> bool:
        """Record a failure. Returns whether it ejects `address`, which must be one of those given at construction."""
        address.consecutive_failures += 1
        if address.consecutive_failures < self._policy.consecutive_failures or address.ejected_until_s is not None:
            return False
        if self.ejected >= self._max_ejected:
            return False
        until_s = now_s + self._ejection_time_s
        address.ejected_until_s = until_s
        self._note(until_s, address)
        return True

    def _note(self, until_s: float, address: AddressHealth) -> None:
        heapq.heappush(self._ejected, (until_s, next(self._turns), address))

    def restore(self, now_s: float) -> None:
        """Return addresses whose ejection is over to use. If too many are ejected because other addresses have left,
        also return those whose ejection ends next."""
        ejected = self._ejected
        while ejected and (ejected[0][0] <= now_s or len(ejected) > self._max_ejected):
            *_, address = heapq.heappop(ejected)
            address.ejected_until_s = None
            # One more failure ejects it again.
            address.consecutive_failures = self._policy.consecutive_failures - 1
