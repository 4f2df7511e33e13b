"""The search for the edge: its addresses, and the root certificates to trust.

It may take long (DNS, fetching root certificates), so it runs in its own thread, which the stop does not wait for.
Everything else here runs in the tunnel's thread. The last result stays in use until a search succeeds again.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from daemonkit.lifecycle import StartFailed, start_thread
from daemonkit.logs import get_logger
from proxy.supervisor.edgefinder import EdgeFinder, Regions
from proxy.supervisor.edgetrust import EdgeTrust, TrustUnavailable
from proxy.tunnel.addresses import EdgeAddress, EdgeAddresses, IpVersion
from proxy.tunnel.discovery import DiscoveryFailed, check_version

log = get_logger(__name__)

SEARCH_AGAIN_S: Final = 60.0
"""If addresses fail or are too few, they are searched for again, but no more often than this."""
SEARCH_PATIENCE_S: Final = 5.0
"""How long dialling waits for a search. A resolver that is down may take minutes to fail, and the known addresses may
work again before that."""


class EdgeSearch:
    def __init__(
        self,
        finder: EdgeFinder,
        trust: EdgeTrust,
        ip_version: IpVersion,
        source: str,
        tell: Callable[[Callable[[], None]], None],
        used: Callable[[str], Mapping[int, EdgeAddress]],
        on_failed: Callable[[str, str], None],
    ) -> None:
        """`tell` runs a callable in the tunnel's thread. `used` gives the addresses that connections have at the edge
        of that name, by connection index. `on_failed` gets the name of the edge and the reason."""
        self.addresses: EdgeAddresses | None = None
        """None until a search for the current edge has succeeded."""
        self.roots = ""
        self.awaited_until_s = -math.inf
        """Until when dialling waits for the running search."""
        self._finder = finder
        self._trust = trust
        self._ip_version = ip_version
        self._source = source
        self._tell = tell
        self._used = used
        self._on_failed = on_failed
        self._began_s: float | None = None
        """When the running search began; None if none is running."""
        self._ended_s = 0.0

    @property
    def edge(self) -> str:
        """The name of the edge to find."""
        return self._finder.name

    def begin(self) -> None:
        """Start a search; no-op while one is running."""
        if self._began_s is None:
            self._began_s = time.monotonic()
            run = partial(self._run, self._finder)
            try:
                start_thread(threading.Thread(target=run, name="edge-search", daemon=True))
            except StartFailed as error:
                self._take_failed(self.edge, str(error))

    def begin_again(self, now_s: float) -> None:
        """Start a search unless the last one ended less than SEARCH_AGAIN_S ago."""
        if now_s - self._ended_s > SEARCH_AGAIN_S:
            self.begin()

    def be_awaited(self) -> None:
        """Have dialling wait for the running search, if any: the known addresses fail, and it may find others."""
        if self._began_s is not None:
            self.awaited_until_s = self._began_s + SEARCH_PATIENCE_S

    def turn_to(self, endpoint: str) -> None:
        """Switch to the edge for tokens of this region, if it is another one."""
        finder = self._finder.at(endpoint)
        if finder.name != self.edge:
            self._finder, self.addresses = finder, None

    # -- the search thread -------------------------------------------------------------------------------------------

    def _run(self, finder: EdgeFinder) -> None:
        try:
            regions = finder.find()
            check_version(regions, self._ip_version, self._source)
            roots = self._trust.roots()
        except (DiscoveryFailed, TrustUnavailable) as error:
            self._tell(partial(self._take_failed, finder.name, str(error)))
        except Exception as error:
            log.exception("bug in the search for the edge")
            self._tell(partial(self._take_failed, finder.name, str(error)))
        else:
            self._tell(partial(self._take_found, finder.name, regions, roots))

    # -- results -----------------------------------------------------------------------------------------------------

    def _take_found(self, edge: str, regions: Regions, roots: str) -> None:
        if not self._ends(edge):
            return
        self.roots = roots
        before = self.addresses
        # Connections may still use addresses that an earlier search has found.
        self.addresses = EdgeAddresses(regions, self._ip_version, random.randrange, self._used(edge))
        if before is not None:
            self.addresses.go_on(before, self._ended_s)

    def _take_failed(self, edge: str, error: str) -> None:
        if self._ends(edge):
            self._on_failed(edge, error)

    def _ends(self, edge: str) -> bool:
        """The search has ended. Returns False if the token now belongs to another region: its result is useless, and
        the next search may begin at once."""
        self._began_s, self.awaited_until_s = None, -math.inf
        if edge != self.edge:
            return False
        self._ended_s = time.monotonic()
        return True
