"""How often the provider may be called: its limit is 1,200 calls in five minutes per token, for all users together.

People in the dashboard use the same budget, so we keep to a part of it. The time is passed in as an argument.
"""

from collections import deque

WINDOW_S = 300.0
MAX_CALLS = 900


class Pace:
    """The pace of calls with one token. Not thread-safe, see `client.Budget`."""

    def __init__(self, max_calls: int = MAX_CALLS, window_s: float = WINDOW_S) -> None:
        self._max_calls = max_calls
        self._window_s = window_s
        self._calls: deque[float] = deque()
        self._blocked_until_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next call; 0: it may be made now."""
        while self._calls and self._calls[0] <= now_s - self._window_s:
            self._calls.popleft()
        full_s = self._calls[0] + self._window_s - now_s if len(self._calls) >= self._max_calls else 0.0
        return max(full_s, self._blocked_until_s - now_s, 0.0)

    def note_call(self, now_s: float) -> None:
        self._calls.append(now_s)

    def block(self, until_s: float) -> None:
        """The provider asked for no calls until then."""
        self._blocked_until_s = max(self._blocked_until_s, until_s)
