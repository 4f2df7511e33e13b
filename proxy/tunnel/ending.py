"""Why a connection to the edge ended and how long it was registered, for the one report of its end."""

from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Ended
from proxy.tunnel.packetsize import BlackHole


class Ending:
    """All times are by the loop's clock."""

    def __init__(self) -> None:
        self._cause = FailureCause.LOST
        self._error = ""
        self.retry_after_s = 0.0
        """How long the edge asks us to wait before the next attempt."""
        self._registered_at_s: float | None = None
        self.is_told = False
        """Whether the report has been made."""

    @property
    def has_reason(self) -> bool:
        return bool(self._error)

    def note(self, cause: FailureCause, error: str) -> None:
        """Keep the first reason; what follows is a consequence."""
        if not self._error:
            self._cause, self._error = cause, error

    def note_registered(self, now_s: float) -> None:
        self._registered_at_s = now_s

    def report(self, number: int, now_s: float, black_hole: BlackHole) -> Ended:
        self.is_told = True
        registered_for_s = 0.0 if self._registered_at_s is None else max(now_s - self._registered_at_s, 0.001)
        error = self._error or "unregistered"
        return Ended(number, self._cause, error, self.retry_after_s, registered_for_s, black_hole)
