"""What a turn of the reconciler has found. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from tunnelgw.deliver.targets import Plane
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.translate.pipeline import Translation


class Situation(NamedTuple):
    """The state at the end of a turn of the reconciler."""

    translation: Translation
    planes: Mapping[str, Plane]
    planes_by_tunnel: Mapping[str, set[str]]
    tunnels: Collection[str]
    """Ids of the tunnels whose ingress documents are ours to keep."""
    unknown: Collection[Key] = ()
    """Gateways that cannot be read, but whose own proxies still serve: the statuses of their routes, ListenerSets and
    policies keep what they say about them."""
    left_by: Callable[[Gateway], Collection[str]] = lambda _gateway: ()
    """Ids of tunnels that nothing names any more, but that may still have the Gateway's hostnames."""

    @property
    def snapshot(self) -> Snapshot:
        return self.translation.snapshot
