"""Tunnels that nothing names any more, but whose ingress documents still have hostnames of ours.

    tunnels that were named before -> tunnels to be emptied, until they are, or the provider keeps refusing it

A tunnel is not emptied while an object that might name it cannot be read, nor before it has been unnamed for a while:
objects may be deleted and created again, or written in any order. Tunnels are remembered with their last credentials,
since those are often deleted together with the objects that named them. After a restart they are found through
statuses, and through configurations that no Gateway uses (see `targets.left_tunnels`). Only the reconciler's thread
calls this module.
"""

from collections.abc import Collection, Mapping
from typing import Final

from daemonkit.logs import get_logger
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Tunnel
from tunnelgw.deliver.tunnels import NO_HOSTS

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

    def tunnels(self, now_s: float) -> tuple[Tunnel, ...]:
        """Tunnels that are to be emptied now."""
        return tuple(self._left[id_] for id_ in sorted(self._due(now_s)))

    def follow(self, named: Collection[str], kept: Mapping[str, Tunnel], now_s: float, *, is_certain: bool) -> None:
        """`named`: ids of all tunnels that objects name; `kept`: those whose documents are ours to keep, by id.

        `is_certain`: all objects that might name tunnels can be read.
        """
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
