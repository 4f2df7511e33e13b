"""Proxies whose Gateway is gone, but which still serve its last document.

    own proxies of Gateways -> proxies to be emptied, until they are, or until it makes no sense to try any longer

Without its Gateway, a proxy would go on serving a document that nobody updates, at addresses that people can reach. So
it gets an empty one, but only when its Gateway has been gone for a while: objects may be deleted and created again. If
the Gateway still exists and merely does not name the proxy any more, the proxy keeps its document: it may be the same
proxy under another name. Tokens are remembered, since Secrets are often deleted first. A standby remembers all this,
too, for the case that it leads next. Nothing is remembered across restarts. Only the reconciler's thread calls this
module.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from daemonkit.logs import get_logger
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Author, Plane
from tunnelgw.translate.gateways import SHARED

log = get_logger(__name__)

PATIENCE_S: Final = 600.0
"""How long to try to reach a proxy: most were stopped together with their Gateway."""


class Served(msgspec.Struct, frozen=True):
    """How to empty a proxy."""

    author: Author
    """Of its document, or of the last one that it can have got: `gateway` is the id of the data plane."""
    token: Credentials


class DepartedProxies:
    def __init__(self, grace_s: float) -> None:
        """Times are of one monotonic clock, in seconds."""
        self._grace_s = grace_s
        self._served: dict[str, Served] = {}
        """By URL: the data plane that a proxy belongs to, or last belonged to, and its last usable credentials, if
        any."""
        self._since_s: dict[str, float] = {}
        """By URL: since when a proxy has been without its Gateway."""

    def follow(self, planes: Mapping[str, Plane], is_there: Callable[[str], bool], now_s: float) -> None:
        """`is_there`: whether the Gateway of a data plane exists, or may exist."""
        shared = planes.get(SHARED)
        for url in shared.endpoints if shared is not None else ():
            self._drop(url)
        for name, plane in planes.items():
            for url in plane.endpoints if name != SHARED else ():
                if url not in plane.taken:
                    self._serve(url, Served(Author(name, plane.created_at), plane.token))
        for url, served in self._served.items():
            if is_there(served.author.gateway):
                self._since_s.pop(url, None)
            else:
                self._since_s.setdefault(url, now_s)

    def serves(self, plane: str) -> bool:
        """Whether, as far as we know, a Gateway's own data plane still has a proxy that is not emptied."""
        return any(served.author.gateway == plane for served in self._served.values())

    @property
    def served(self) -> Collection[str]:
        """The URLs of all proxies that are emptied now, or will be once their Gateway is gone."""
        return self._served.keys()

    def proxies(self, now_s: float) -> dict[str, Served]:
        """The proxies to be emptied now, by URL."""
        return {url: self._served[url] for url in sorted(self._due(now_s))}

    def settle(self, receipts: Mapping[str, Receipt], now_s: float) -> None:
        """`receipts`: the results of emptying proxies, by URL; none while another controller leads."""
        for url in self._due(now_s):
            receipt = receipts.get(url)
            is_given_up = now_s - self._since_s[url] >= self._grace_s + PATIENCE_S
            if receipt is None:
                if is_given_up:  # we have never tried: another controller leads, or this is a dry run
                    self._drop(url)
            elif receipt.is_current:
                self._drop(url)
            elif is_given_up or receipt.is_refusal:
                log.warning("proxy of a Gateway that has gone cannot be emptied", error=receipt.error, target=url)
                self._drop(url)

    def _serve(self, url: str, now: Served) -> None:
        before = self._served.get(url)
        if now.token.secret is None and before is not None and before.author.gateway == now.author.gateway:
            now = Served(now.author, before.token)
        self._served[url] = now

    def _due(self, now_s: float) -> set[str]:
        return {url for url, since_s in self._since_s.items() if now_s - since_s >= self._grace_s}

    def _drop(self, url: str) -> None:
        self._served.pop(url, None)
        self._since_s.pop(url, None)
