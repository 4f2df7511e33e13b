"""Accounting of credit: whose bytes are in the output, and whether the socket has taken them."""

from collections import deque
from typing import Final, Protocol


class Creditor(Protocol):
    """The source of body bytes."""

    def release(self, size_bytes: int) -> None:
        """The other side's socket has taken that many more of them."""


_MANY: Final = 32
"""From this many debts in a turn on, those of each creditor are added up: the debts for tiny pieces would take more
memory than the pieces."""
_BLOCK_BYTES: Final = 2048
"""Debts whose positions are in the same block of output are due together, for the same reason: a piece of some bytes
may come in every turn."""


class Debts:
    """Positions are counted in bytes of output since the transport began."""

    __slots__ = ("_fresh", "_sealed")

    def __init__(self) -> None:
        self._fresh: list[tuple[Creditor, int]] = []
        """For output that has not been fetched yet."""
        self._sealed: deque[tuple[int, list[tuple[Creditor, int]]]] = deque()
        """In order of position. Debts are due when all output before their position has been taken."""

    def owe(self, creditor: Creditor, size_bytes: int) -> None:
        fresh = self._fresh
        if fresh and fresh[-1][0] is creditor:
            # A large body arrives in many pieces per turn.
            size_bytes += fresh.pop()[1]
        fresh.append((creditor, size_bytes))

    def seal(self, end_bytes: int) -> None:
        """The output for all debts so far ends at this position."""
        fresh, sealed = self._fresh, self._sealed
        if fresh:
            if sealed and sealed[-1][0] // _BLOCK_BYTES == end_bytes // _BLOCK_BYTES:
                fresh = sealed.pop()[1] + fresh
            sealed.append((end_bytes, fresh if len(fresh) < _MANY else _summed(fresh)))
            self._fresh = []

    def repay(self, sent_bytes: int) -> None:
        """The socket has taken everything before this position."""
        sealed = self._sealed
        while sealed and sealed[0][0] <= sent_bytes:
            for creditor, size_bytes in sealed.popleft()[1]:
                creditor.release(size_bytes)

    def has(self, creditor: Creditor) -> bool:
        """Whether bytes of the creditor wait for the socket."""
        return any(creditor is other for _, group in self._sealed for other, _ in group)

    @property
    def waiting_bytes(self) -> int:
        """Bytes owed for output that was fetched. It may exceed what waits for the socket by one turn's output."""
        return sum(size_bytes for _, group in self._sealed for _, size_bytes in group)

    def settle(self) -> None:
        """The socket has taken everything."""
        fresh = self._fresh
        if fresh:
            self._fresh = []
            for creditor, size_bytes in fresh:
                creditor.release(size_bytes)

    def forgive(self) -> None:
        """Give credit back for bytes that will never be sent; otherwise their creditors would wait for ever."""
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
