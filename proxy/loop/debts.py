"""The books of the law of credit: whose bytes are among the output, and whether the socket has taken them."""

from collections import deque
from typing import Final, Protocol


class Creditor(Protocol):
    """Whoever handed over body bytes."""

    def release(self, size_bytes: int) -> None:
        """The other side's socket has taken that many more of them."""


_MANY: Final = 32
"""Debts of a turn; more are summed up, so that tiny pieces cost no more than their bytes while they wait."""


class Debts:
    """Positions are counted in bytes of output since the transport began."""

    __slots__ = ("_fresh", "_sealed")

    def __init__(self) -> None:
        self._fresh: list[tuple[Creditor, int]] = []
        """For output that was not fetched yet."""
        self._sealed: deque[tuple[int, list[tuple[Creditor, int]]]] = deque()
        """Due when the position is reached, in rising order."""

    def owe(self, creditor: Creditor, size_bytes: int) -> None:
        fresh = self._fresh
        if fresh and fresh[-1][0] is creditor:
            # The pieces of a large body, which come many in a turn.
            size_bytes += fresh.pop()[1]
        fresh.append((creditor, size_bytes))

    def seal(self, end_bytes: int) -> None:
        """All that is owed so far lies before this position."""
        fresh = self._fresh
        if fresh:
            self._sealed.append((end_bytes, fresh if len(fresh) < _MANY else _summed(fresh)))
            self._fresh = []

    def repay(self, sent_bytes: int) -> None:
        """The socket has taken all before this position."""
        sealed = self._sealed
        while sealed and sealed[0][0] <= sent_bytes:
            for creditor, size_bytes in sealed.popleft()[1]:
                creditor.release(size_bytes)

    def has(self, creditor: Creditor) -> bool:
        """Something that is owed to it waits."""
        return any(creditor is other for _, group in self._sealed for other, _ in group)

    @property
    def waiting_bytes(self) -> int:
        """Owed for output that was fetched: up to a turn's more than the socket has not taken."""
        return sum(size_bytes for _, group in self._sealed for _, size_bytes in group)

    def settle(self) -> None:
        """The socket has taken all that there is."""
        fresh = self._fresh
        if fresh:
            self._fresh = []
            for creditor, size_bytes in fresh:
                creditor.release(size_bytes)

    def forgive(self) -> None:
        """Give credit back for bytes that will never be sent, or their creditors would stand still."""
        debts = [debt for _, group in self._sealed for debt in group] + self._fresh
        self._sealed.clear()
        self._fresh = []
        for creditor, size_bytes in debts:
            creditor.release(size_bytes)


def _summed(debts: list[tuple[Creditor, int]]) -> list[tuple[Creditor, int]]:
    sums: dict[Creditor, int] = {}
    for creditor, size_bytes in debts:
        sums[creditor] = sums.get(creditor, 0) + size_bytes
    return list(sums.items())
