"""Delivers documents to all proxies, then hostnames to the provider, and collects the results.

    translation + targets -> couriers -> receipts -> Delivery (for statuses)

A tunnel's ingress document follows once each data plane behind the tunnel has a proxy that holds the plane's newest
document: requests that the edge sent earlier would be refused. A data plane whose proxies all fail does not hold up the
others. One whose proxies do not answer, or keep changing, holds them up for a limited time only: the author of its
GatewayConfig must not be able to stop the rest. Only the reconciler's thread calls this module; receipts come from the
couriers' threads.
"""

import math
import sys
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

import msgspec

from daemonkit.secret import Secret
from proxy.document import Listener
from tunnelgw.deliver.barred import BarredTarget
from tunnelgw.deliver.configclient import ConfigClient
from tunnelgw.deliver.courier import Target, Withheld
from tunnelgw.deliver.couriers import Couriers
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.departed import Served
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.proxies import DocumentParcel, ProxyTarget
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import TAKEN, Plane, Tunnel, tunnel_name
from tunnelgw.deliver.tunnels import KNOCK, SETTLE_S, HostnamesParcel, TunnelTarget
from tunnelgw.provider.client import Budget, Observer, ProviderClient
from tunnelgw.provider.tunnel import Pass
from tunnelgw.translate.gateways import SHARED

_MAX_REMEMBERED = 1000
"""How many documents of each data plane are remembered: slow proxies may still answer about older ones."""


class Settings(msgspec.Struct, frozen=True):
    means: Means
    visit_every_s: float = 5.0
    drift_every_s: float = 600.0
    look_again_s: float = math.inf
    """When to look at a tunnel again after the first success: the former leader may have had a write in progress."""
    is_dry_run: bool = False
    settle_s: float = SETTLE_S
    """When to look at a tunnel's document again after writing it."""
    patience_s: float = 20.0
    """How long to wait for data planes that neither take a document nor fail to, if another one behind the tunnel holds
    its document."""


class PassReport(Protocol):
    """Thread-safe."""

    def keep(self, tunnels: Collection[str]) -> None:
        """Keep reports about these tunnels only; what was reported about others does not hold any more."""

    def note(self, tunnel: str, found: Pass) -> None:
        """Report the result of a look at a tunnel's ingress document."""


class ProxyKey(msgspec.Struct, frozen=True):
    plane: str
    url: str
    token: Credentials
    is_taken: bool = False
    """Whether the proxy already belongs to another data plane."""

    @property
    def place(self) -> str:
        return self.url


_NO_PLANE = Plane((), Credentials(None))
_DEPARTED = ""
"""Takes the place of the data plane's id for proxies that are to be emptied."""


class _Made(NamedTuple):
    turn: int
    """The last turn for which the document was made."""
    listeners: tuple[Listener, ...]


_FORGOTTEN = _Made(0, ())
"""Turns are counted from 1."""


class _Documents:
    """The newest document of a data plane, and what is remembered of it and of former ones."""

    def __init__(self, newest: DocumentParcel) -> None:
        self.newest = newest
        self._made: dict[str, _Made] = {}
        """By digest, in order of turns."""

    def put(self, parcel: DocumentParcel, made: _Made) -> None:
        self.newest = parcel
        self._made.pop(parcel.digest, None)  # so that the oldest comes first
        self._made[parcel.digest] = made
        if len(self._made) > _MAX_REMEMBERED:
            del self._made[next(iter(self._made))]

    def made(self, digest: str) -> _Made:
        return self._made.get(digest, _FORGOTTEN)

    def current_in(self, turn: int) -> int:
        """The turn of the document that was the newest one in `turn`, as far as is remembered."""
        turns = [made.turn for made in self._made.values()]
        return max((made for made in turns if made <= turn), default=min(turns))


def _key(name: str, plane: Plane, url: str) -> ProxyKey:
    return ProxyKey(name, url, plane.token, url in plane.taken)


class Dispatch:
    """`may_write` is false while we do not lead; `on_news` is called by other threads when a receipt has changed."""

    def __init__(
        self,
        settings: Settings,
        *,
        may_write: Callable[[], bool],
        on_news: Callable[[], None],
        on_crash: Callable[[BaseException], None],
        observe: Observer,
        report: PassReport,
    ) -> None:
        self._settings = settings
        self._may_write = may_write
        self._observe = observe
        self._report = report
        self._proxies: Couriers[ProxyKey, DocumentParcel] = Couriers(
            self._proxy, on_news, on_crash, visit_every_s=settings.visit_every_s
        )
        self._tunnels: Couriers[Tunnel, HostnamesParcel] = Couriers(
            self._tunnel,
            on_news,
            on_crash,
            visit_every_s=settings.drift_every_s,
            look_again_s=settings.look_again_s,
        )
        self._budgets: WeakValueDictionary[Secret, Budget] = WeakValueDictionary()
        """By token, since the provider counts calls per token. A budget lives as long as a client that uses it."""
        self._documents: dict[str, _Documents] = {}
        """By data plane."""
        self._planes: Mapping[str, Plane] = {}
        self._versions: dict[str, int] = {}
        """By URL: the last version that a proxy named by a GatewayConfig took from us since we lead. Couriers' threads
        write it."""
        self._sent_hosts: dict[Tunnel, HostnamesParcel] = {}
        self._held_up_since_s: dict[Tunnel, float] = {}
        """By tunnel: since when its newest hostnames have been waiting for data planes."""

    # -- out ---------------------------------------------------------------------------------------------------------

    def put_document(self, plane: str, parcel: DocumentParcel, listeners: tuple[Listener, ...], turn: int) -> None:
        """Serve this document on the data plane from now on. Turns are counted from 1."""
        self._documents.setdefault(plane, _Documents(parcel)).put(parcel, _Made(turn, listeners))

    def drop_document(self, plane: str) -> None:
        self._documents.pop(plane, None)

    def send(self, planes: Mapping[str, Plane], departed: Mapping[str, Served] | None = None) -> None:
        """Deliver the newest documents to exactly the proxies of these data planes.

        `departed`: proxies, by URL, to be emptied if they still hold what they last took from us; or from a former
        leader, if they have taken nothing from us since we lead.
        """
        self._planes = planes
        if self._settings.is_dry_run:
            return
        wanted = {
            _key(name, plane, url): self._documents[name].newest
            for name, plane in planes.items()
            if name in self._documents
            for url in plane.endpoints
        }
        for url, served in (departed or {}).items():
            over = self._versions.get(url, served.author)
            wanted[ProxyKey(_DEPARTED, url, served.token)] = DocumentParcel.nothing(over)
        self._proxies.send(wanted)

    def remember_only(self, urls: Collection[str]) -> None:
        """Forget which versions all other proxies took: only these may still have to be emptied."""
        for url in set(self._versions).difference(urls):
            self._versions.pop(url, None)

    def send_hosts(self, tunnels: Mapping[Tunnel, HostnamesParcel], planes_of: Mapping[str, Collection[str]]) -> None:
        """Deliver each tunnel's hostnames to the provider as soon as all of its data planes can serve them, or only
        some, if the others fail or take too long.

        `planes_of`: data planes by id of the tunnel that leads to them.
        """
        held = self.held_planes()
        sent: dict[Tunnel, HostnamesParcel] = {}
        held_up_since_s: dict[Tunnel, float] = {}
        now_s = time.monotonic()
        for tunnel, hosts in tunnels.items():
            behind = planes_of.get(tunnel.tunnel_id, ())
            missing = [plane for plane in behind if plane not in held]
            since_s = self._held_up_since_s.get(tunnel, now_s)
            is_late = now_s - since_s >= self._settings.patience_s
            is_served = len(missing) < len(behind) and (is_late or all(map(self._is_failing, missing)))
            if self._settings.is_dry_run or not missing or is_served:
                sent[tunnel] = hosts
                continue
            if self._sent_hosts.get(tunnel) != hosts:
                held_up_since_s[tunnel] = since_s
            if tunnel in self._sent_hosts:
                sent[tunnel] = self._sent_hosts[tunnel]
            elif all(self.has_answered(plane) for plane in behind):
                sent[tunnel] = KNOCK
        self._sent_hosts, self._held_up_since_s = sent, held_up_since_s
        self._report.keep({tunnel.tunnel_id for tunnel in sent})
        self._tunnels.send(sent)

    def stop(self) -> None:
        """Deliver nothing until `send` and `send_hosts` are called again."""
        self._sent_hosts, self._held_up_since_s = {}, {}
        self._versions.clear()
        self._proxies.stop()
        self._tunnels.stop()
        self._report.keep(())

    def join(self, deadline_s: float) -> bool:
        """Returns whether all couriers have ended by `deadline_s` (monotonic clock)."""
        return self._proxies.join(deadline_s) & self._tunnels.join(deadline_s)

    # -- results -----------------------------------------------------------------------------------------------------

    def held_planes(self) -> frozenset[str]:
        """Data planes with at least one proxy that holds the newest document."""
        return frozenset(
            key.plane
            for key, receipt in self._proxies.receipts().items()
            if key.plane in self._documents and receipt.held == self._documents[key.plane].newest.digest
        )

    def has_answered(self, plane: str, turn: int = sys.maxsize) -> bool:
        """Whether one of the data plane's proxies holds the document of this turn or a newer one, or all of them failed
        to take it. Without `turn`: the newest document.
        """
        return self.answers()(plane, turn)

    def answers(self) -> Callable[[str, int], bool]:
        """`has_answered`, based on the receipts of this moment."""
        return partial(self._has_answered, self._proxies.receipts())

    def _has_answered(self, receipts: Mapping[ProxyKey, Receipt], plane: str, turn: int) -> bool:
        documents = self._documents.get(plane)
        if documents is None or self._settings.is_dry_run:
            return True
        turn = documents.current_in(turn)
        found = self._planes.get(plane, _NO_PLANE)
        answers = [receipts.get(_key(plane, found, url)) for url in found.endpoints]
        return any(answer is not None and documents.made(answer.held).turn >= turn for answer in answers) or all(
            answer is not None and documents.made(answer.wanted).turn >= turn for answer in answers
        )

    def _is_failing(self, plane: str) -> bool:
        """Whether all of its proxies failed to take their newest document."""
        return all(answer is not None and answer.error for answer in self._answers_of(plane))

    def is_settled(self) -> bool:
        """Whether all data planes have answered about their newest documents."""
        has_answered = self.answers()
        return all(has_answered(plane, sys.maxsize) for plane in self._documents)

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        found = [answer for answer in self._answers_of(plane) if answer is not None]
        return tuple(sorted(found, key=lambda receipt: receipt.target))

    def _answers_of(self, plane: str) -> list[Receipt | None]:
        """The receipt of each of its proxies, looked up one by one: there may be hundreds of other proxies."""
        found = self._planes.get(plane, _NO_PLANE)
        return [self._proxies.receipt(_key(plane, found, url)) for url in found.endpoints]

    def departed_receipts(self) -> dict[str, Receipt]:
        """The receipts of proxies to be emptied, by URL."""
        return {key.url: receipt for key, receipt in self._proxies.receipts().items() if key.plane == _DEPARTED}

    def tunnel_receipts(self) -> dict[str, Receipt]:
        """Receipts by id of the tunnel."""
        return {tunnel.tunnel_id: receipt for tunnel, receipt in self._tunnels.receipts().items()}

    def listeners(self, plane: str, digest: str | None = None) -> tuple[Listener, ...]:
        """The listeners of a document, in its order: remarks about ports refer to them by index. Empty if the document
        is not known any more. Without `digest`: the newest document.
        """
        documents = self._documents.get(plane)
        if documents is None:
            return ()
        return documents.made(documents.newest.digest if digest is None else digest).listeners

    # -- targets -----------------------------------------------------------------------------------------------------

    def _proxy(self, key: ProxyKey, is_served: Callable[[], bool]) -> Target[DocumentParcel]:
        if key.is_taken:
            return BarredTarget(f"{key.url} for {key.plane}", TAKEN, is_credential_problem=False)
        if key.token.problem:
            return BarredTarget(key.url, key.token.problem)
        endpoint = self._settings.means.proxy(key.url)
        try:
            client = ConfigClient(endpoint, key.token.secret, before_call=lambda: self._require_duty(is_served))
        except ValueError as error:
            return BarredTarget(key.url, str(error), is_credential_problem=False)
        return ProxyTarget(endpoint, client, lambda version: self._note_version(key, version))

    def _note_version(self, key: ProxyKey, version: int) -> None:
        # URLs of shared replicas would pile up, since replicas come and go. What has been emptied is not emptied again.
        if key.plane not in (SHARED, _DEPARTED):
            self._versions[key.url] = version

    def _tunnel(self, tunnel: Tunnel, is_served: Callable[[], bool]) -> Target[HostnamesParcel]:
        name = tunnel_name(tunnel.tunnel_id)
        if tunnel.token.secret is None:
            return BarredTarget(name, tunnel.token.problem)
        budget = self._budgets.setdefault(tunnel.token.secret, Budget())
        client = ProviderClient(
            tunnel.token.secret,
            self._settings.means.provider_url,
            self._observe,
            budget,
            before_call=lambda _: self._require_duty(is_served),
        )
        return TunnelTarget(
            name,
            self._settings.means.ingress(tunnel, client, is_dry_run=self._settings.is_dry_run),
            lambda found: self._report.note(tunnel.tunnel_id, found),
            client.close,
            self._settings.settle_s,
        )

    def _require_duty(self, is_served: Callable[[], bool]) -> None:
        """Called before each call, since a former leader or a replaced courier must not write after its successor."""
        if not (is_served() and self._may_write()):
            raise Withheld
