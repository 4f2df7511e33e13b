"""Tunnels that nothing names any more, while their ingress documents still have hostnames of ours.

    what was named before -> what is to be emptied, until it is, or until the provider keeps refusing that

While an object that might name them cannot be read, none is emptied, and none before it has been left for a while:
objects are deleted and made anew, or written in any order. What was named is remembered with the last
credentials that it had, since those often go together with who named them. Over a restart it is not: then statuses
tell, and configurations that no Gateway uses (see `targets.left_tunnels`). The reconciler's thread calls everything
here.
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
"""In a row: now and then the provider refuses a token that is good, for some seconds."""


class FormerTunnels:
    def __init__(self, left: Mapping[str, Tunnel], grace_s: float = GRACE_S) -> None:
        """`left` is what a former run may have left, by id. Times are of one monotonic clock, in seconds."""
        self._left = dict(left)
        self._grace_s = grace_s
        self._since_s: dict[str, float] = {}
        """From when on it has been certain that a tunnel is left."""
        self._last: dict[str, Tunnel] = {}
        """What is named and ours to keep, with usable credentials if it ever had such."""

    def tunnels(self, now_s: float) -> tuple[Tunnel, ...]:
        """To be emptied."""
        return tuple(self._left[id_] for id_ in sorted(self._due(now_s)))

    def follow(self, named: Collection[str], kept: Mapping[str, Tunnel], now_s: float, *, is_certain: bool) -> None:
        """`named`: ids of all tunnels that objects name; `kept`: those whose documents are ours to keep, by id.

        Not `is_certain`: an object that might name others cannot be read.
        """
        for id_ in self._left.keys() & named:
            self._drop(id_)
        if is_certain:
            for id_ in self._last.keys() - named:
                self._left[id_] = self._last.pop(id_)
            for id_ in self._last.keys() - kept.keys():  # somebody else is to keep its document
                del self._last[id_]
        self._since_s = {id_: self._since_s.get(id_, now_s) for id_ in self._left} if is_certain else {}
        for id_, tunnel in kept.items():
            if tunnel.token.secret is not None or id_ not in self._last:
                self._last[id_] = tunnel

    def settle(self, receipts: Mapping[str, Receipt], now_s: float) -> None:
        """`receipts`: by id. One that is older than the decision to empty its tunnel says nothing: hostnames that came
        shortly before may still have been on their way.
        """
        for id_ in self._due(now_s) & receipts.keys():
            receipt = receipts[id_]
            if receipt.wanted != NO_HOSTS.digest:
                continue  # it is about what was named
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
