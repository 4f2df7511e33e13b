"""Tunnels that nothing names any more, but whose ingress documents still have hostnames of ours.

    tunnels that were named before -> tunnels to be emptied, until they are, or the provider keeps refusing it

A tunnel is not emptied while an object that might name it cannot be read, nor before it has been unnamed for a while:
objects may be deleted and created again, or written in any order. Tunnels are remembered with their last credentials,
since those are often deleted together with the objects that named them. After a restart they are found through
statuses, which name a tunnel until it has been emptied, and through configurations that no Gateway uses (see
`targets.left_tunnels`). Only the reconciler's thread calls this module.
"""

from collections.abc import Collection, Mapping
from typing import Final

from daemonkit.logs import get_logger
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Tunnel, told_tunnels
from tunnelgw.deliver.tunnels import NO_HOSTS
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.meta import Key

log = get_logger(__name__)

GRACE_S: Final = 10.0
REFUSALS: Final = 5
"""Give up after this many in a row: now and then the provider refuses a good token for some seconds."""


class FormerTunnels:
    def __init__(self, left: Mapping[str, Tunnel], grace_s: float = GRACE_S) -> None:
        """`left`: tunnels that a former run may have left, by id. Times are of one monotonic clock, in seconds."""
        self._left = dict(left)
        self._grace_s = grace_s
        self._since_s: dict[str, float] = {}
        """By id: since when it has been certain that nothing names the tunnel."""
        self._last: dict[str, Tunnel] = {}
        """Named tunnels whose documents are ours to keep, with their last usable credentials, if they ever had any."""
        self._named: frozenset[str] = frozenset()
        """Ids of all tunnels that objects name, as far as these can be read."""
        self._leading: Mapping[Key, str] = {}
        """By Gateway, of all that there are: the id of the tunnel that leads to it; empty: none does."""
        self._had: dict[Key, frozenset[str]] = {}
        """By Gateway: ids of tunnels that may have got its hostnames from us since the last call of `rest`."""

    def lead(self, tunnels: Mapping[Key, str]) -> None:
        """`tunnels`: the id of the tunnel that leads to each Gateway now; empty: none does."""
        may_have = self._named | self._left.keys() | self._last.keys()
        had = {gateway: self._had.get(gateway, frozenset()) & may_have for gateway in tunnels}
        self._had = {gateway: had[gateway] | {id_} for gateway, id_ in tunnels.items()}
        self._leading = tunnels

    def rest(self) -> None:
        """Another controller leads, so nothing is sent for now. What was sent before is in statuses."""
        self._had = {gateway: frozenset({id_}) for gateway, id_ in self._leading.items()}

    def left_by(self, gateway: Gateway) -> frozenset[str]:
        """Ids of tunnels that nothing names any more, as far as we can read, and that may still have the Gateway's
        hostnames. Its status has to name them until they are emptied, so that the next run finds them."""
        left = self._left.keys() | (self._last.keys() - self._named)
        may_have = told_tunnels(gateway) | self._had.get(gateway.key, frozenset()) if left else frozenset()
        return frozenset(left & may_have)

    def tunnels(self, now_s: float) -> tuple[Tunnel, ...]:
        """Tunnels that are to be emptied now."""
        return tuple(self._left[id_] for id_ in sorted(self._due(now_s)))

    def follow(self, named: Collection[str], kept: Mapping[str, Tunnel], now_s: float, *, is_certain: bool) -> None:
        """`named`: ids of all tunnels that objects name; `kept`: those whose documents are ours to keep, by id.

        `is_certain`: all objects that might name tunnels can be read.
        """
        self._named = frozenset(named)
        for id_ in self._left.keys() & named:
            self._drop(id_)
        if is_certain:
            for id_ in self._last.keys() - named:
                self._left[id_] = self._last.pop(id_)
            for id_ in self._last.keys() - kept.keys():  # its document is not ours to keep any more
                del self._last[id_]
        self._since_s = {id_: self._since_s.get(id_, now_s) for id_ in self._left} if is_certain else {}
        for id_, tunnel in kept.items():
            if tunnel.token.secret is not None or id_ not in self._last:
                self._last[id_] = tunnel

    def settle(self, receipts: Mapping[str, Receipt], now_s: float) -> None:
        """`receipts`: by id. Receipts for anything but the emptying are ignored: hostnames that were wanted shortly
        before may still have been in delivery.
        """
        for id_ in self._due(now_s) & receipts.keys():
            receipt = receipts[id_]
            if receipt.wanted != NO_HOSTS.digest:
                continue  # it is about hostnames that were wanted before the emptying
            if receipt.is_current:
                self._drop(id_)
            elif receipt.is_refusal and receipt.attempts >= REFUSALS:
                log.warning("tunnel that nothing names any more cannot be emptied", error=receipt.error, tunnel=id_)
                self._drop(id_)

    def _due(self, now_s: float) -> set[str]:
        return {id_ for id_, since_s in self._since_s.items() if now_s - since_s >= self._grace_s}

    def _drop(self, id_: str) -> None:
        del self._left[id_]
        self._since_s.pop(id_, None)
