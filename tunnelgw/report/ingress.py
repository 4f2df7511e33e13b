"""Reports about ingress documents: what we wrote, and what others have in them or changed."""

import threading
from collections.abc import Collection

from daemonkit.logs import get_logger
from tunnelgw.metrics import Metrics
from tunnelgw.provider.tunnel import Pass

log = get_logger(__name__)

_MAX_SHOWN = 20


class IngressReport:
    """Thread-safe. Others' rules are logged only when they have changed."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._foreign: dict[str, tuple[str, ...]] = {}
        """Hostnames of foreign rules, by tunnel; has an entry for every tunnel of the last `keep`."""

    def keep(self, tunnels: Collection[str]) -> None:
        """Keep only these tunnels from now on. Metrics of others are dropped, and a late `note` brings none back."""
        with self._lock:
            for tunnel in self._foreign.keys() - tunnels:
                self._metrics.forget_tunnel(tunnel)
            self._foreign = {tunnel: self._foreign.get(tunnel, ()) for tunnel in tunnels}

    def note(self, tunnel: str, found: Pass) -> None:
        revision = found.revision
        with self._lock:
            if tunnel in self._foreign:
                before, self._foreign[tunnel] = self._foreign[tunnel], revision.foreign
                self._metrics.foreign_rules.labels(tunnel).set(len(revision.foreign))
                self._metrics.foreign_edits.labels(tunnel).inc(found.foreign_edits)
            else:
                before = revision.foreign
        if found.foreign_edits:
            log.warning("ingress document edited by somebody else", tunnel=tunnel, edits=found.foreign_edits)
        if before and not revision.foreign:
            log.info("ingress document has no rules of somebody else any more", tunnel=tunnel)
        elif revision.foreign != before:
            log.warning(
                "ingress document has rules of somebody else, which are kept",
                tunnel=tunnel,
                rules=len(revision.foreign),
                hostnames=list(revision.foreign[:_MAX_SHOWN]),
            )
        if found.was_written:
            log.info(
                "ingress document written",
                tunnel=tunnel,
                ingress_version=found.version,
                added=list(revision.added[:_MAX_SHOWN]),
                removed=list(revision.removed[:_MAX_SHOWN]),
            )
