"""The order of deliveries: documents first, hostnames once they can be served; and what is known of each turn."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client import CollectorRegistry

from daemonkit.secret import Secret
from proxy.document import Listener
from tests.e2e.controller.fronts import Asked, Front
from tests.proxy.site import TOKEN, Proxy, eventually
from tests.support.controller.faults import Reply
from tests.support.lettinggo import uncollected
from tests.support.provider import ACCOUNT_ID, TUNNEL_ID, Provider
from tests.support.provider import TOKEN as API_TOKEN
from tests.support.provider.provider import PREFIX
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.departed import Served
from tunnelgw.deliver.dispatch import Dispatch, Settings
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.proxies import DocumentParcel
from tunnelgw.deliver.receipts import RemarkKind
from tunnelgw.deliver.targets import Author, Plane, Tunnel
from tunnelgw.deliver.tunnels import HostnamesParcel
from tunnelgw.metrics import Metrics
from tunnelgw.provider.ingress import marker
from tunnelgw.report.ingress import IngressReport

WAIT_S = 60.0
TUNNEL = Tunnel(TUNNEL_ID, ACCOUNT_ID, Credentials(Secret(API_TOKEN)))
HOSTS = {TUNNEL: HostnamesParcel.of(["a.example"])}
OTHER_ID = "0c9f1d2e-5a77-4a57-8a39-2f6f0a5b9c33"
BEHIND = {TUNNEL_ID: {"shared"}}


def document(host: str) -> DocumentParcel:
    routes = [{"hostnames": [host], "backends": [{"address": "127.0.0.1:3000"}]}]
    return DocumentParcel(host, (b"," + json.dumps({"routes": routes}).encode()[1:],))


def plane(*urls: str, token: str = TOKEN) -> dict[str, Plane]:
    return {"shared": Plane(urls, Credentials(Secret(token)))}


def served() -> set[str]:
    """Targets that have a courier."""
    names = (thread.name for thread in threading.enumerate())
    return {name.removeprefix("courier ") for name in names if name.startswith("courier ")}


def is_put(asked: Asked) -> bool:
    return asked.method == "PUT"


class Desk:
    def __init__(
        self,
        provider_url: str,
        *,
        is_dry_run: bool = False,
        look_again_s: float = math.inf,
        settle_s: float = math.inf,
        patience_s: float = math.inf,
    ) -> None:
        self.news = threading.Condition()
        self.crashes: list[BaseException] = []
        settings = Settings(
            Means(provider_url, marker("tests")),
            visit_every_s=0.3,
            is_dry_run=is_dry_run,
            look_again_s=look_again_s,
            settle_s=settle_s,
            patience_s=patience_s,
        )
        self.registry = CollectorRegistry()
        report = IngressReport(Metrics(self.registry))
        self.is_leading = True
        self.asked_by: set[str] = set()
        """Names of the threads that have asked whether we lead."""
        self.dispatch = Dispatch(
            settings,
            may_write=self._may_write,
            on_news=self._note,
            on_crash=self.crashes.append,
            observe=lambda *_: None,
            report=report,
        )

    def _may_write(self) -> bool:
        with self.news:
            self.asked_by.add(threading.current_thread().name)
            self.news.notify_all()
            return self.is_leading

    def _note(self) -> None:
        with self.news:
            self.news.notify_all()

    def told_of_tunnels(self) -> set[str]:
        """Those that the metrics name."""
        found = {sample.labels.get("tunnel") for metric in self.registry.collect() for sample in metric.samples}
        return {tunnel for tunnel in found if tunnel}

    def until(self, is_so: Callable[[], bool]) -> None:
        with self.news:
            assert self.news.wait_for(is_so, WAIT_S)

    def until_all_have_ended(self) -> None:
        """And their threads, from which `served` is seen: they end a moment after their last call has."""
        assert self.dispatch.join(time.monotonic() + WAIT_S)
        eventually(lambda: not served(), "all couriers have ended", WAIT_S)


@contextmanager
def open_desk(
    provider: Provider,
    url: str = "",
    *,
    is_dry_run: bool = False,
    look_again_s: float = math.inf,
    settle_s: float = math.inf,
    patience_s: float = math.inf,
) -> Iterator[Desk]:
    """`url`: that of an intermediary before the provider."""
    desk = Desk(
        url or provider.url,
        is_dry_run=is_dry_run,
        look_again_s=look_again_s,
        settle_s=settle_s,
        patience_s=patience_s,
    )
    try:
        yield desk
    finally:  # or couriers of a test that fails are taken for those of the next ones
        desk.dispatch.stop()
    desk.until_all_have_ended()
    assert not desk.crashes


def test_a_turn_is_answered_when_a_proxy_holds_its_document_or_a_newer_one() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        desk.until(lambda: dispatch.has_answered("shared"))

        hold = front.hold(is_put)
        dispatch.put_document("shared", document("b.example"), (), 5)
        dispatch.send(plane(front.url))
        hold.wait()
        assert dispatch.has_answered("shared", 4)
        assert not dispatch.has_answered("shared", 5)
        dispatch.put_document("shared", document("c.example"), (), 6)
        dispatch.send(plane(front.url))
        assert dispatch.held_planes() == frozenset()

        hold.release()

        desk.until(lambda: dispatch.has_answered("shared", 6))
        assert dispatch.held_planes() == {"shared"}


def test_a_turn_is_answered_when_every_proxy_has_failed() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        front.answer(is_put, 500)
        hold = front.hold(is_put)
        hold.release()
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url, "http://127.0.0.1:1"))

        desk.until(lambda: dispatch.has_answered("shared"))

        assert dispatch.is_settled()
        assert not dispatch.held_planes()
        assert all(receipt.error for receipt in dispatch.proxy_receipts("shared"))


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_proxy_whose_gateway_has_gone_is_emptied_unless_it_has_been_forgotten(*, is_remembered: bool) -> None:
    """Proxies are replaced for months: what they took must not accumulate."""
    with Provider() as provider, Proxy() as proxy, open_desk(provider) as desk:
        dispatch, token = desk.dispatch, Credentials(Secret(TOKEN))
        dispatch.put_document("shop/gw", document("a.example"), (), 1)
        dispatch.send({"shop/gw": Plane((proxy.api,), token)})
        desk.until(lambda: dispatch.has_answered("shop/gw"))

        dispatch.remember_only([proxy.api] if is_remembered else [])

        def is_settled() -> bool:
            dispatch.send({}, {proxy.api: Served(Author("shop/gw", ""), token)})
            return proxy.api in dispatch.departed_receipts()

        desk.until(is_settled)
        assert ("routes" not in proxy.get().json()) is is_remembered


def test_a_leader_empties_the_proxy_that_only_another_one_served_for_a_gateway_that_has_gone() -> None:
    """Also if it led before that one, and so remembers an older version."""
    author, token = Author("shop/gw", "2026-01-01T00:00:00Z"), Credentials(Secret(TOKEN))
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shop/gw", document("a.example"), (), 1)
        dispatch.send({"shop/gw": Plane((front.url,), token)})
        desk.until(lambda: dispatch.has_answered("shop/gw"))
        dispatch.stop()
        desk.until_all_have_ended()
        listener = {"name": "web", "gateway": author.gateway, "createdAt": author.created_at, "tunnel": True}
        assert proxy.put({"version": 7, "listeners": [listener]}).status_code == 200

        def is_settled() -> bool:
            dispatch.send({}, {front.url: Served(author, token)})
            return front.url in dispatch.departed_receipts()

        desk.until(is_settled)
        assert proxy.get().json() == {"version": 8}

        assert is_settled()
        front.wait_for_more(lambda asked: not is_put(asked), 2)
        assert proxy.get().json() == {"version": 8}, "and once only"


def test_a_data_plane_without_proxies_or_document_counts_as_answered() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        assert desk.dispatch.has_answered("shared")
        desk.dispatch.put_document("shared", document("a.example"), (), 1)
        desk.dispatch.send(plane())
        assert desk.dispatch.has_answered("shared")


def test_the_listeners_are_those_of_the_document_that_a_proxy_holds_until_it_takes_a_newer_one() -> None:
    """A proxy's remarks refer to listeners by their index in its document."""
    old, new = (Listener("old"),), (Listener("new"), Listener("old"))
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), old, 1)
        dispatch.send(plane(front.url))
        desk.until(lambda: dispatch.has_answered("shared"))

        hold = front.hold(is_put)
        dispatch.put_document("shared", document("b.example"), new, 2)
        dispatch.send(plane(front.url))
        hold.wait()
        (receipt,) = dispatch.proxy_receipts("shared")
        assert dispatch.listeners("shared", receipt.held) == old
        assert dispatch.listeners("shared") == new
        hold.release()

        desk.until(lambda: dispatch.has_answered("shared"))
        (receipt,) = dispatch.proxy_receipts("shared")
        assert dispatch.listeners("shared", receipt.held) == new


def test_the_listeners_of_the_oldest_of_very_many_documents_are_forgotten() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        documents = [document(f"{number}.example") for number in range(1001)]
        for turn, made in enumerate(documents[:1000], start=1):
            dispatch.put_document("shared", made, (Listener(made.digest),), turn)
        assert dispatch.listeners("shared", documents[0].digest) == (Listener(documents[0].digest),)

        dispatch.put_document("shared", documents[0], (Listener("again"),), 1001)  # not the oldest any more
        dispatch.put_document("shared", documents[1000], (Listener("newest"),), 1002)

        assert dispatch.listeners("shared", documents[0].digest) == (Listener("again"),)
        assert dispatch.listeners("shared", documents[1].digest) == ()
        assert dispatch.listeners("shared", documents[2].digest) == (Listener(documents[2].digest),)


def test_a_data_plane_knows_no_listeners_of_documents_that_are_not_its_own() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (Listener("a"),), 1)

        assert dispatch.listeners("shared", document("b.example").digest) == ()
        assert dispatch.listeners("shop/gw", document("a.example").digest) == ()
        assert dispatch.listeners("shop/gw") == ()


def test_a_dropped_document_is_delivered_to_no_proxy_and_nothing_waits_for_it() -> None:
    with (
        Provider() as provider,
        Proxy() as proxy,
        Front(proxy.api) as front,
        Front(proxy.api) as silent,
        open_desk(provider) as desk,
    ):
        dispatch = desk.dispatch
        planes = {**plane(front.url), "shop/gw": Plane((silent.url,), Credentials(Secret(TOKEN)))}
        hold = silent.hold(lambda _: True)
        dispatch.put_document("shared", document("a.example"), (Listener("a"),), 1)
        dispatch.put_document("shop/gw", document("b.example"), (Listener("b"),), 1)
        dispatch.send(planes)
        hold.wait()
        desk.until(lambda: dispatch.held_planes() == {"shared"})
        assert not dispatch.is_settled()

        dispatch.drop_document("shop/gw")
        dispatch.send(planes)

        assert dispatch.is_settled()
        assert dispatch.has_answered("shop/gw", 1)
        assert dispatch.listeners("shop/gw", document("b.example").digest) == ()
        assert dispatch.listeners("shared") == (Listener("a"),)
        assert dispatch.proxy_receipts("shop/gw") == ()
        hold.release()
        eventually(lambda: served() == {front.url}, "the courier of the dropped document has ended", WAIT_S)

        dispatch.drop_document("shared")
        assert dispatch.held_planes() == frozenset(), "whatever a proxy still holds"
        dispatch.drop_document("shared")


def test_a_proxy_that_holds_a_document_from_before_a_drop_has_not_answered_about_later_ones() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        desk.until(lambda: dispatch.has_answered("shared", 1))
        hold = front.hold(is_put)

        dispatch.drop_document("shared")
        dispatch.put_document("shared", document("b.example"), (), 5)
        dispatch.send(plane(front.url))

        hold.wait()
        assert not dispatch.has_answered("shared", 4)
        hold.release()
        desk.until(lambda: dispatch.has_answered("shared", 5))


def test_hostnames_follow_the_document() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        hold = front.hold(is_put)
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        dispatch.send_hosts(HOSTS, BEHIND)
        hold.wait()
        assert not provider.calls

        hold.release()

        desk.until(lambda: bool(dispatch.held_planes()))
        dispatch.send_hosts(HOSTS, BEHIND)
        provider.wait_for_hostnames({"a.example"})


def test_a_late_write_of_a_former_leader_is_replaced() -> None:
    """Its call was under way when it lost the lead. The next periodic visit is ten minutes away."""
    with (
        Provider() as provider,
        Proxy() as proxy,
        Front(provider.url) as front,
        open_desk(provider, front.url, look_again_s=0.1) as desk,
    ):
        look = front.hold(lambda asked: asked.method == "GET" and provider.calls["write"] > 0)
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(proxy.api))
        desk.until(lambda: bool(dispatch.held_planes()))
        dispatch.send_hosts(HOSTS, BEHIND)
        look.wait()
        provider.write({"ingress": [{"service": "http_status:404"}]})
        look.release()

        provider.wait_for_hostnames({"a.example"})


def test_hostnames_that_another_controller_overwrote_are_restored_soon() -> None:
    """It had read the document before ours was written. The next periodic visit is ten minutes away."""
    theirs = {"ingress": [{"hostname": "b.example", "service": marker("theirs")}, {"service": "http_status:404"}]}
    with (
        Provider() as provider,
        Proxy() as proxy,
        Front(provider.url) as front,
        open_desk(provider, front.url, settle_s=0.1) as desk,
    ):
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(proxy.api))
        desk.until(lambda: bool(dispatch.held_planes()))
        look = front.hold(lambda asked: asked.method == "GET" and provider.calls["write"] > 0)
        dispatch.send_hosts(HOSTS, BEHIND)
        look.wait()
        provider.write(theirs)
        look.release()

        provider.wait_for_hostnames({"a.example", "b.example"})


def test_while_a_newer_document_is_on_its_way_a_tunnel_keeps_the_hostnames_that_it_has() -> None:
    more = {TUNNEL: HostnamesParcel.of(["a.example", "b.example"])}
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        desk.until(lambda: bool(dispatch.held_planes()))
        dispatch.send_hosts(HOSTS, BEHIND)
        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        hold = front.hold(is_put)
        dispatch.put_document("shared", document("b.example"), (), 2)
        dispatch.send(plane(front.url))

        dispatch.send_hosts(more, BEHIND)

        receipt = dispatch.tunnel_receipts()[TUNNEL_ID]
        assert receipt.is_current
        assert receipt.held == HOSTS[TUNNEL].digest
        assert desk.told_of_tunnels() == {TUNNEL_ID}
        hold.release()
        desk.until(lambda: bool(dispatch.held_planes()))
        dispatch.send_hosts(more, BEHIND)
        provider.wait_for_hostnames({"a.example", "b.example"})


def test_after_a_stop_no_target_is_served_and_hostnames_wait_for_documents_again() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        desk.until(lambda: bool(dispatch.held_planes()))
        dispatch.send_hosts(HOSTS, BEHIND)
        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())

        dispatch.stop()

        assert not dispatch.proxy_receipts("shared")
        assert not dispatch.tunnel_receipts()
        assert not desk.told_of_tunnels()
        desk.until_all_have_ended()
        hold = front.hold(lambda _: True)
        dispatch.send(plane(front.url))
        hold.wait()
        dispatch.send_hosts(HOSTS, BEHIND)
        assert f"tunnel {TUNNEL_ID}" not in served()
        hold.release()


def test_who_does_not_lead_asks_neither_proxies_nor_the_provider_even_if_nobody_has_stopped_its_deliveries() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        desk.is_leading = False
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(front.url))
        dispatch.send_hosts(HOSTS, {})

        desk.until(lambda: desk.asked_by == {f"courier {front.url}", f"courier tunnel {TUNNEL_ID}"})
        assert (front.count(lambda _: True), provider.calls.total()) == (0, 0)
        assert (dispatch.proxy_receipts("shared"), dispatch.tunnel_receipts()) == ((), {})
        desk.is_leading = True

        desk.until(lambda: "shared" in dispatch.held_planes())
        provider.wait_for_hostnames({"a.example"})


def test_a_proxy_that_is_to_be_emptied_holds_the_document_of_no_data_plane() -> None:
    with Provider() as provider, Proxy() as proxy, Proxy() as left, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)

        gone = Served(Author("shop/gw", ""), Credentials(Secret(TOKEN)))
        dispatch.send(plane(proxy.api), {left.api: gone})

        desk.until(lambda: left.api in dispatch.departed_receipts())
        desk.until(lambda: dispatch.held_planes() == {"shared"})


def test_a_dry_run_asks_no_proxy() -> None:
    with Provider() as provider, open_desk(provider, is_dry_run=True) as desk:
        desk.dispatch.put_document("shared", document("a.example"), (), 1)

        desk.dispatch.send(plane("http://127.0.0.1:1"))

        assert "http://127.0.0.1:1" not in served()
        assert desk.dispatch.is_settled()


def test_a_dry_run_looks_at_the_tunnel_although_no_proxy_has_a_document_and_writes_nothing() -> None:
    with Provider() as provider, open_desk(provider, is_dry_run=True) as desk:
        dispatch = desk.dispatch
        theirs = {"hostname": "b.example", "service": "http://10.0.0.9:80"}
        provider.write({"ingress": [theirs, {"service": "http_status:404"}]})
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane("http://127.0.0.1:1"))

        dispatch.send_hosts({TUNNEL: HostnamesParcel.of(["a.example", "b.example"])}, BEHIND)

        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        found = {(remark.kind, remark.subject) for remark in dispatch.tunnel_receipts()[TUNNEL_ID].remarks}
        assert found == {(RemarkKind.CONFLICT, "b.example")}
        assert provider.calls["write"] == 0


def test_a_data_plane_whose_proxies_fail_does_not_block_hostnames_of_the_others() -> None:
    behind = {TUNNEL_ID: {"shared", "broken"}}
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as front, open_desk(provider) as desk:
        dispatch = desk.dispatch
        hold = front.hold(lambda _: True)
        broken = Plane((front.url,), Credentials(Secret("another-token")))
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.put_document("broken", document("b.example"), (), 1)
        dispatch.send({**plane(proxy.api), "broken": broken})
        desk.until(lambda: "shared" in dispatch.held_planes())
        hold.wait()
        dispatch.send_hosts(HOSTS, behind)
        assert not dispatch.tunnel_receipts(), "its proxy may still take the document"
        assert f"tunnel {TUNNEL_ID}" not in served()

        hold.release()

        desk.until(lambda: any(receipt.error for receipt in dispatch.proxy_receipts("broken")))
        dispatch.send_hosts(HOSTS, behind)
        provider.wait_for_hostnames({"a.example"})


def test_a_data_plane_whose_proxies_do_not_answer_blocks_hostnames_of_the_others_only_briefly() -> None:
    """Not even by naming another such proxy each time, before the last one has failed."""
    behind = {TUNNEL_ID: {"shared", "silent"}}
    with Provider() as provider, Proxy() as proxy, open_desk(provider, patience_s=0.2) as desk, ExitStack() as fronts:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.put_document("silent", document("b.example"), (), 1)

        def name_another() -> None:
            front = fronts.enter_context(Front(proxy.api))
            front.hold(lambda _: True)
            dispatch.send({**plane(proxy.api), "silent": Plane((front.url,), Credentials(Secret(TOKEN)))})

        name_another()
        desk.until(lambda: "shared" in dispatch.held_planes())
        dispatch.send_hosts(HOSTS, behind)
        assert f"tunnel {TUNNEL_ID}" not in served(), "its proxy may still take the document"

        def is_written() -> bool:
            name_another()
            dispatch.send_hosts(HOSTS, behind)
            return "a.example" in provider.hostnames

        eventually(is_written, "the provider has the hostname")
        assert "silent" not in dispatch.held_planes()


def bring(dispatch: Dispatch, planes: Mapping[str, Plane], host: str, turn: int) -> None:
    """Each data plane is to get a document for this host."""
    for name in planes:
        dispatch.put_document(name, document(host), (), turn)
    dispatch.send(planes)


def test_the_wait_for_a_data_plane_that_does_not_answer_begins_with_the_hostnames_that_it_lacks() -> None:
    """Not with an earlier document, whose hostnames the provider had already."""
    behind = {TUNNEL_ID: {"shared", "other"}}
    more, elsewhere = HostnamesParcel.of(["a.example", "b.example"]), Tunnel(OTHER_ID, ACCOUNT_ID, TUNNEL.token)
    with (
        Provider() as provider,
        Proxy() as proxy,
        Proxy() as slow,
        Front(slow.api) as front,
        open_desk(provider, patience_s=math.ulp(0.0)) as desk,
    ):
        dispatch = desk.dispatch
        both = {**plane(proxy.api), "other": Plane((front.url,), Credentials(Secret(TOKEN)))}

        bring(dispatch, both, "a.example", 1)
        desk.until(lambda: len(dispatch.held_planes()) == len(both))
        dispatch.send_hosts(HOSTS, behind)
        provider.wait_for_hostnames({"a.example"})
        put = front.hold(is_put)
        bring(dispatch, both, "edited", 2)
        put.wait()
        desk.until(lambda: "shared" in dispatch.held_planes())
        dispatch.send_hosts(HOSTS, behind)

        dispatch.send_hosts({TUNNEL: more, elsewhere: HOSTS[TUNNEL]}, behind)

        desk.until(lambda: OTHER_ID in dispatch.tunnel_receipts())
        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        assert dispatch.tunnel_receipts()[TUNNEL_ID].wanted == HOSTS[TUNNEL].digest
        assert "b.example" not in provider.hostnames
        put.release()


def test_hostnames_wait_for_a_data_plane_that_still_holds_an_earlier_document() -> None:
    behind = {TUNNEL_ID: {"shared", "other"}}
    with (
        Provider() as provider,
        Proxy() as proxy,
        Proxy() as slow,
        Front(slow.api) as front,
        open_desk(provider) as desk,
    ):
        dispatch = desk.dispatch
        both = {**plane(proxy.api), "other": Plane((front.url,), Credentials(Secret(TOKEN)))}

        bring(dispatch, both, "old.example", 1)
        desk.until(lambda: len(dispatch.held_planes()) == len(both))
        put = front.hold(is_put)
        bring(dispatch, both, "a.example", 2)
        put.wait()
        desk.until(lambda: "shared" in dispatch.held_planes())

        dispatch.send_hosts(HOSTS, behind)
        assert f"tunnel {TUNNEL_ID}" not in served()

        put.release()
        desk.until(lambda: len(dispatch.held_planes()) == len(both))
        dispatch.send_hosts(HOSTS, behind)
        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        assert "a.example" in provider.hostnames


def test_while_no_proxy_takes_the_document_only_the_credentials_for_the_provider_are_checked() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        provider.tokens = {}
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane("http://127.0.0.1:1"))
        desk.until(lambda: dispatch.has_answered("shared"))

        dispatch.send_hosts(HOSTS, BEHIND)

        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        assert dispatch.tunnel_receipts()[TUNNEL_ID].is_credential_problem
        assert not provider.calls["write"]


def test_while_no_proxy_takes_the_document_nothing_is_written_even_with_valid_credentials() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane("http://127.0.0.1:1"))
        desk.until(lambda: dispatch.has_answered("shared"))

        dispatch.send_hosts(HOSTS, BEHIND)

        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        assert dispatch.tunnel_receipts()[TUNNEL_ID].held != HOSTS[TUNNEL].digest
        assert not provider.calls["write"]


def test_tunnels_with_one_token_share_the_provider_s_rate_limit() -> None:
    other = Tunnel(OTHER_ID, ACCOUNT_ID, TUNNEL.token)
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        provider.fault(Reply(status=429, headers=(("Retry-After", "300"),)))
        dispatch.send_hosts(HOSTS, {})
        desk.until(lambda: TUNNEL_ID in dispatch.tunnel_receipts())
        asked = provider.calls.total()

        dispatch.send_hosts({**HOSTS, other: HostnamesParcel.of(["b.example"])}, {})

        desk.until(lambda: OTHER_ID in dispatch.tunnel_receipts())
        assert "not asked for a while" in dispatch.tunnel_receipts()[OTHER_ID].error
        assert provider.calls.total() == asked


def is_read(asked: Asked) -> bool:
    return asked.method == "GET" and asked.path.endswith("/configurations")


def test_after_a_change_of_credentials_nothing_is_written_with_the_old_ones() -> None:
    renewed = Tunnel(TUNNEL_ID, ACCOUNT_ID, Credentials(Secret("renewed")))
    with Provider() as provider, Front(provider.url.removesuffix(PREFIX)) as front:
        provider.tokens["renewed"] = True
        reading = front.hold(is_read)
        with open_desk(provider, front.url + PREFIX) as desk:
            desk.dispatch.send_hosts(HOSTS, {})
            reading.wait()
            wanted = {renewed: HostnamesParcel.of(["b.example"])}
            desk.dispatch.send_hosts(wanted, {})
            reading.release()

            def is_held() -> bool:
                desk.dispatch.send_hosts(wanted, {})
                receipt = desk.dispatch.tunnel_receipts().get(TUNNEL_ID)
                return receipt is not None and receipt.is_current

            desk.until(is_held)

        assert (provider.tunnel.version, set(provider.hostnames)) == (1, {"b.example", "*"})


def test_if_two_data_planes_name_one_proxy_one_has_it_and_the_other_reports_that() -> None:
    with Provider() as provider, Proxy() as proxy, open_desk(provider) as desk:
        dispatch = desk.dispatch
        token = Credentials(Secret(TOKEN))
        for name in ("shared", "shop/gw"):
            dispatch.put_document(name, document("a.example"), (), 1)

        dispatch.send({**plane(proxy.api), "shop/gw": Plane((proxy.api,), token, frozenset((proxy.api,)))})

        desk.until(dispatch.is_settled)
        (receipt,) = dispatch.proxy_receipts("shop/gw")
        assert "it serves another Gateway already" in receipt.error
        assert receipt.target == f"{proxy.api} for shop/gw", "not to be mistaken for the one that is well"
        assert dispatch.held_planes() == {"shared"}


def test_a_proxy_that_is_left_in_the_middle_of_a_call_holds_up_no_other() -> None:
    with Provider() as provider, Proxy() as proxy, Front(proxy.api) as silent, open_desk(provider) as desk:
        dispatch = desk.dispatch
        call = silent.hold(lambda _: True)
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(silent.url))
        call.wait()

        dispatch.send(plane(proxy.api))

        desk.until(lambda: dispatch.has_answered("shared"))
        assert silent.url in served(), "the call is still in progress"
        call.release()


def test_a_missing_token_of_a_proxy_is_reported_without_asking_the_proxy() -> None:
    with Provider() as provider, open_desk(provider) as desk:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send({"shared": Plane(("http://127.0.0.1:1",), Credentials(None, "secret not found: a/b"))})

        desk.until(lambda: bool(dispatch.proxy_receipts("shared")))

        (receipt,) = dispatch.proxy_receipts("shared")
        assert (receipt.error, receipt.is_credential_problem) == ("secret not found: a/b", True)


def test_an_account_that_the_provider_does_not_tell_is_reported_with_what_to_do() -> None:
    tunnel = Tunnel(TUNNEL_ID, "", Credentials(Secret(API_TOKEN)), "set accountID in the GatewayConfig")
    with Provider() as provider, open_desk(provider) as desk:
        provider.lists_accounts = False
        desk.dispatch.send_hosts({tunnel: HOSTS[TUNNEL]}, {})

        desk.until(lambda: bool(desk.dispatch.tunnel_receipts()))

        assert desk.dispatch.tunnel_receipts()[TUNNEL_ID].error.endswith(": set accountID in the GatewayConfig")


def test_a_missing_token_of_a_tunnel_is_reported_without_asking_the_provider() -> None:
    bare = Tunnel(TUNNEL_ID, ACCOUNT_ID, Credentials(None, "secret not found: a/b"))
    with Provider() as provider, open_desk(provider) as desk:
        desk.dispatch.send_hosts({bare: HOSTS[TUNNEL]}, {})

        desk.until(lambda: TUNNEL_ID in desk.dispatch.tunnel_receipts())

        receipt = desk.dispatch.tunnel_receipts()[TUNNEL_ID]
        assert (receipt.error, receipt.is_credential_problem) == ("secret not found: a/b", True)
        assert not provider.calls


@pytest.mark.parametrize("token", [API_TOKEN, "refused"])
def test_targets_that_are_no_longer_served_leave_no_reference_cycles(token: str) -> None:
    """The oldest generation is collected so rarely that each replaced proxy left a document behind."""
    tunnel = Tunnel(TUNNEL_ID, ACCOUNT_ID, Credentials(Secret(token)))
    with Provider() as provider, Proxy() as proxy, open_desk(provider) as desk, uncollected() as garbage:
        dispatch = desk.dispatch
        dispatch.put_document("shared", document("a.example"), (), 1)
        dispatch.send(plane(proxy.api, "http://127.0.0.1:1"))
        dispatch.send_hosts({tunnel: HOSTS[TUNNEL]}, {})
        desk.until(lambda: dispatch.has_answered("shared") and TUNNEL_ID in dispatch.tunnel_receipts())
        desk.until(lambda: len(dispatch.proxy_receipts("shared")) == 2)

        dispatch.send({})
        dispatch.send_hosts({}, {})
        eventually(lambda: not served(), "all couriers have ended", WAIT_S)
        dispatch.send({})  # as after each news
        dispatch.send_hosts({}, {})

        assert not garbage("tunnelgw")
