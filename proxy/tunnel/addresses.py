"""Which of the edge's addresses each connection dials.

The edge has regions, each with several addresses. Connections are spread over the regions, one connection per address.
A connection keeps its address when it reconnects, until dialling or registering there fails; then it takes a free one.
With `IpVersion.AUTO`, a region starts with the address family that the resolver listed first. If an IPv6 address cannot
be reached, its region switches to IPv4 for ten minutes.

One `EdgeAddresses` serves all connections of the proxy. Pure: clock and random numbers are passed in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

AUTO_RETURN_S: Final = 600.0


class IpVersion(StrEnum):
    AUTO = "auto"
    IPV4 = "4"
    IPV6 = "6"


class EdgeAddress(msgspec.Struct, frozen=True):
    ip: str
    port: int

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.ip

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.is_ipv6 else f"{self.ip}:{self.port}"


class Region:
    """The addresses of one region, of which one family is in use."""

    def __init__(self, addresses: Iterable[EdgeAddress], ip_version: IpVersion) -> None:
        addresses = tuple(dict.fromkeys(addresses))
        prefers_ipv6 = bool(addresses) and addresses[0].is_ipv6
        if ip_version is not IpVersion.AUTO:
            prefers_ipv6 = ip_version is IpVersion.IPV6
        self._primary = tuple(address for address in addresses if address.is_ipv6 == prefers_ipv6)
        others = tuple(address for address in addresses if address.is_ipv6 != prefers_ipv6)
        self._secondary = others if ip_version is IpVersion.AUTO else ()
        self.active = self._primary
        self._return_at_s = 0.0

    def failed(self, address: EdgeAddress, now_s: float) -> None:
        """An address of this region could not be reached."""
        if self.active is self._primary:
            if address.is_ipv6 and self._secondary:
                self.active = self._secondary
                self._return_at_s = now_s + AUTO_RETURN_S
        elif not address.is_ipv6 or now_s >= self._return_at_s:
            self.active = self._primary

    def go_on(self, before: "Region", now_s: float) -> None:
        """Adopt the state of `before`, this region in an earlier search: avoid IPv6 for as long as it would have."""
        is_turned = before.active is before._secondary and now_s < before._return_at_s
        if is_turned and self._secondary and self._primary[0].is_ipv6:
            self.active = self._secondary
            self._return_at_s = before._return_at_s

    def overlaps(self, other: "Region") -> bool:
        return not {*self._primary, *self._secondary}.isdisjoint({*other._primary, *other._secondary})

    def __contains__(self, address: EdgeAddress) -> bool:
        return address in self._primary or address in self._secondary


class EdgeAddresses:
    """`draw(n)` returns a random number from 0 to n - 1, like `random.randrange`."""

    def __init__(
        self,
        regions: Sequence[Sequence[EdgeAddress]],
        ip_version: IpVersion,
        draw: Callable[[int], int],
        used: Mapping[int, EdgeAddress] | None = None,
    ) -> None:
        """`used`: addresses that connections have from an earlier search, by connection index."""
        self._regions = [Region(addresses, ip_version) for addresses in regions]
        self._draw = draw
        self._used = dict(used or {})
        """By connection index."""

    def go_on(self, before: "EdgeAddresses", now_s: float) -> None:
        """Adopt the state of an earlier search, for the addresses that are still there."""
        for region in self._regions:
            for old in before._regions:
                if region.overlaps(old):
                    region.go_on(old, now_s)
        taken = set(self._used.values())
        for conn_index, address in before._used.items():
            if address not in taken and any(address in region for region in self._regions):
                self._used.setdefault(conn_index, address)

    @property
    def free_count(self) -> int:
        return sum(len(self._free(region, None)) for region in self._regions)

    def has_one(self, conn_index: int) -> bool:
        """Whether the connection has an address, in use or for its next dial."""
        return conn_index in self._used

    def address_for(self, conn_index: int) -> EdgeAddress | None:
        """The connection's address, otherwise a free one; None if there is none."""
        return self._used.get(conn_index) or self._take(conn_index, None)

    def another_for(self, conn_index: int, now_s: float, *, was_reached: bool = False) -> EdgeAddress | None:
        """Replace the connection's address, which has failed; None if no other is free.

        `was_reached`: the edge answered there, so the address family works, and is left only if it has no other free
        address. The failed address is free afterwards, for whichever connection calls `address_for` next.
        """
        failed = self._used.pop(conn_index, None)
        if failed is not None and was_reached and (another := self._take(conn_index, failed)) is not None:
            return another
        if failed is not None:
            for region in self._regions:
                if failed in region:
                    region.failed(failed, now_s)
        # What makes one region unreachable over IPv6 most likely does so for all.
        return self._take(conn_index, failed, avoids_ipv6=failed is not None and failed.is_ipv6)

    def _take(self, conn_index: int, excluded: EdgeAddress | None, *, avoids_ipv6: bool = False) -> EdgeAddress | None:
        choices = [self._free(region, excluded) for region in self._regions]
        if avoids_ipv6:
            of_ipv4 = [[address for address in free if not address.is_ipv6] for free in choices]
            choices = of_ipv4 if any(of_ipv4) else choices
        most = max(map(len, choices), default=0)
        if not most:
            return None
        roomiest = [free for free in choices if len(free) == most]
        free = roomiest[self._draw(len(roomiest))]
        address = self._used[conn_index] = free[self._draw(len(free))]
        return address

    def _free(self, region: Region, excluded: EdgeAddress | None) -> list[EdgeAddress]:
        used = self._used.values()
        return [address for address in region.active if address not in used and address != excluded]


def static_regions(addresses: Sequence[EdgeAddress]) -> tuple[tuple[EdgeAddress, ...], tuple[EdgeAddress, ...]]:
    """Two regions, from addresses that an operator lists: they alternate."""
    return tuple(addresses[::2]), tuple(addresses[1::2])
