"""What the last translation wants where: documents at proxies, hostnames at tunnels, and nothing of ours where nothing
is named any more. Only the reconciler's thread calls this module.

    differences -> want        documents and hostnames
    queries     -> find_...    targets, and which tunnels lead to which data planes
                   send        all of it to the dispatch, in each turn in which we lead
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from daemonkit.logs import get_logger
from tunnelgw.deliver.departed import DepartedProxies
from tunnelgw.deliver.dispatch import Dispatch
from tunnelgw.deliver.former import GRACE_S, FormerTunnels
from tunnelgw.deliver.proxies import DocumentParcel
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import (
    NAMING_TUNNELS,
    Discovery,
    Plane,
    Tunnel,
    depends_on_tunnels,
    left_tunnels,
    named_tunnels,
    planes,
    tunnels,
)
from tunnelgw.deliver.tunnels import NO_HOSTS, HostnamesParcel
from tunnelgw.metrics import Metrics
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.translate.gateways import SHARED
from tunnelgw.translate.pipeline import Differences, Translation
from tunnelgw.translate.verdicts import GatewayVerdict, ObjectId

log = get_logger(__name__)


class _Way(NamedTuple):
    """What leads to a Gateway; empty if nothing does, or it is not ours."""

    tunnel: str = ""
    data_plane: str = ""


def _way(translation: Translation, gateway: Key) -> _Way | None:
    """None: there is no such Gateway."""
    verdict = translation.verdict(ObjectId(Kind.GATEWAY, gateway))
    if isinstance(verdict, GatewayVerdict):
        return _Way(verdict.tunnel, verdict.data_plane)
    return _Way() if gateway in translation.snapshot.all(Kind.GATEWAY) else None


class Wanted:
    def __init__(self, dispatch: Dispatch, discovery: Discovery, metrics: Metrics, grace_s: float = GRACE_S) -> None:
        """`grace_s`: how long a tunnel must have been unnamed, or a proxy's Gateway gone, before it is emptied. Times
        are of one monotonic clock, in seconds."""
        self.planes: Mapping[str, Plane] = {}
        self.tunnels: Mapping[str, Tunnel] = {}
        self.planes_by_tunnel: dict[str, set[str]] = {}
        self._dispatch = dispatch
        self._discovery = discovery
        self._metrics = metrics
        self._grace_s = grace_s
        self._hosts: dict[str, HostnamesParcel] = {}
        """By tunnel."""
        self._named: frozenset[str] = frozenset()
        """Ids of all tunnels that objects name."""
        self._doubt: tuple[frozenset[Entry], bool] = (frozenset(), True)
        """`unreadable` and `are_all_named`, as `find_targets` got them last."""
        self._ways: Mapping[Key, _Way] = {}
        """By Gateway, of all that there are."""
        self._former = FormerTunnels({})
        self._departed = DepartedProxies(grace_s)
        self._sharing: frozenset[str] = frozenset()
        """Tunnels that lead to the shared proxies."""

    def begin(self, snapshot: Snapshot) -> None:
        """To be called once, with the first snapshot: it shows which tunnels a former run may have left."""
        self._former = FormerTunnels(left_tunnels(snapshot, self._discovery), self._grace_s)

    def want(self, translation: Translation, differences: Differences, turn: int) -> None:
        for plane in differences.data_planes:
            self._want_document(translation, plane, turn)
        for tunnel in differences.tunnels:
            if hosts := translation.hosts(tunnel):
                self._hosts[tunnel] = HostnamesParcel.of(hosts)
            else:
                self._hosts.pop(tunnel, None)

    def _want_document(self, translation: Translation, plane: str, turn: int) -> None:
        made = translation.documents.get(plane)
        if made is None:
            self._dispatch.drop_document(plane)
            self._metrics.document_bytes.remove(plane)
            return
        parcel = DocumentParcel(made.digest(), made.tail())
        self._metrics.document_bytes.labels(plane).set(sum(map(len, parcel.tail)))
        self._dispatch.put_document(plane, parcel, made.settings.listeners, turn)

    def find_targets(
        self,
        translation: Translation,
        changed: Collection[Entry],
        unreadable: Collection[Entry],
        now_s: float,
        *,
        are_all_named: bool,
    ) -> None:
        """`changed`: in what the last update differed. `are_all_named`: `unreadable` is complete."""
        before = self.planes, self.tunnels, self._named, self._doubt
        self.planes = translation.keep(planes, self._discovery)
        self.tunnels = translation.keep(tunnels, self._discovery)
        self._named = translation.keep(named_tunnels, self._discovery)
        self._doubt = frozenset(unreadable), are_all_named
        have_gateways_changed = any(entry.table is Kind.GATEWAY for entry in changed)  # some may have come or gone
        if not have_gateways_changed and before == (self.planes, self.tunnels, self._named, self._doubt):
            return
        is_certain = are_all_named and not any(entry.table in NAMING_TUNNELS for entry in unreadable)
        self._former.follow(self._named, self.tunnels, now_s, is_certain=is_certain)

        def may_have_gateway(plane: str) -> bool:
            """A look-up, not a search: if hundreds of Gateways go at once, each is asked about whenever another
            goes."""
            namespace, _, name = plane.partition("/")
            entry = Entry(Kind.GATEWAY, Key(namespace, name))
            return entry.key in translation.snapshot.all(Kind.GATEWAY) or entry in unreadable or not are_all_named

        self._departed.follow(self.planes, may_have_gateway, now_s)

    def find_planes_of_tunnels(self, translation: Translation, gateways: Iterable[Key]) -> None:
        """`gateways`: those that have come or gone, or have another verdict."""
        found = {key: _way(translation, key) for key in gateways}
        if all(self._ways.get(key) == way for key, way in found.items()):
            return
        self._ways = {key: way for key, way in {**self._ways, **found}.items() if way is not None}
        self.planes_by_tunnel = {}
        for way in self._ways.values():
            if way.tunnel:
                self.planes_by_tunnel.setdefault(way.tunnel, set()).add(way.data_plane)
        self._former.lead({key: way.tunnel for key, way in self._ways.items()})
        self._say_which_tunnels_share_proxies()

    def _say_which_tunnels_share_proxies(self) -> None:
        """Each proxy opens one tunnel and does not report which one, so we cannot tell whether some tunnel is opened by
        none."""
        sharing = frozenset(tunnel for tunnel, planes_ in self.planes_by_tunnel.items() if SHARED in planes_)
        if len(sharing) > 1 and sharing != self._sharing:
            log.warning(
                "several tunnels lead to the shared proxies, each needs a proxy that opens it", tunnels=sorted(sharing)
            )
        self._sharing = sharing

    def is_served(self, gateway: Key) -> bool:
        """Whether, as far as we know, a Gateway still has a proxy of its own that is not emptied."""
        return self._departed.serves(str(gateway))

    def send(self, now_s: float) -> None:
        self._departed.settle(self._dispatch.departed_receipts(), now_s)
        self._dispatch.remember_only(self._departed.served)
        self._dispatch.send(self.planes, self._departed.proxies(now_s))
        hosts = {tunnel: self._hosts.get(id_, NO_HOSTS) for id_, tunnel in self.tunnels.items()}
        self._former.settle(self._dispatch.tunnel_receipts(), now_s)
        former = self._former.tunnels(now_s)
        self._dispatch.send_hosts(hosts | dict.fromkeys(former, NO_HOSTS), self.planes_by_tunnel)

    def stop(self, now_s: float) -> None:
        """Deliver nothing until `send` is called again."""
        self._former.rest()
        self._departed.settle({}, now_s)
        self._dispatch.stop()

    def left_by(self, gateway: Gateway) -> frozenset[str]:
        """Ids of tunnels that nothing names any more, but that may still have the Gateway's hostnames."""
        return self._former.left_by(gateway)

    def tunnel_receipts(self) -> Sequence[Receipt] | None:
        """One of each tunnel whose document is ours to keep; None: some data plane or tunnel has not answered yet."""
        if not self._dispatch.is_settled():
            return None
        found = self._dispatch.tunnel_receipts()
        return None if self.tunnels.keys() - found.keys() else [found[id_] for id_ in self.tunnels]

    def depends_on_tunnels(self, snapshot: Snapshot) -> bool:
        """Whether none of our classes works without credentials."""
        return depends_on_tunnels(snapshot, self._discovery)
