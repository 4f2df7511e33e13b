"""Which statuses are wanted, and what they say of deliveries, whenever the answers come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from proxy.document import Listener
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.tunnelgw.deliver.test_targets import DISCOVERY, OURS, gateway_class, own_proxy
from tests.tunnelgw.test_herald import Recorder
from tunnelgw import telling
from tunnelgw.deliver.dispatch import Dispatch, Settings
from tunnelgw.deliver.proxies import DocumentParcel
from tunnelgw.deliver.receipts import Receipt, Remark, RemarkKind
from tunnelgw.deliver.targets import planes
from tunnelgw.herald import LASTING_ATTEMPTS, Herald
from tunnelgw.ingressreport import IngressReport
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.provider.ingress import marker
from tunnelgw.rush import BURST, QUIET_S
from tunnelgw.status.compose import Wish
from tunnelgw.telling import Situation, Teller
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.verdicts import ObjectId

WAIT_S = 30.0
GATEWAY = ObjectId(Kind.GATEWAY, Key("shop", "gw"))


class Desk:
    """Takes the place of the threads that write."""

    depth = 0

    def __init__(self) -> None:
        self.wanted: list[Wish] = []

    def want(self, wishes: dict[ObjectId, Wish]) -> None:
        self.wanted += wishes.values()


class Interrupted(Dispatch):
    """Something happens right after each look at who holds what."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def held_planes(self) -> frozenset[str]:
        found = super().held_planes()
        self.happens()
        return found


def test_a_proxy_that_answers_just_while_statuses_are_made_is_not_told_as_one_that_has_not() -> None:
    may_answer, news, desk = threading.Event(), threading.Condition(), Desk()
    metrics = Metrics(CollectorRegistry())

    def proxy(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", status=b"404 Not Found")
        dialogue.read_request()
        assert may_answer.wait(WAIT_S)
        dialogue.answer(b'{"version":1,"changed":true}')
        dialogue.receive_idle()

    def note() -> None:
        with news:
            news.notify_all()

    def answer() -> None:
        may_answer.set()
        with news:
            assert news.wait_for(lambda: dispatch.has_answered("shop/gw"), WAIT_S)

    with SocketBackend(proxy) as backend:
        snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=[f"http://{backend.address}"])])
        translation = Translation(snapshot, OURS)
        found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
        settings = Settings("", marker("tests"), visit_every_s=3600.0)
        crashes: list[BaseException] = []
        dispatch = Interrupted(settings, lambda: True, note, crashes.append, lambda *_: None, IngressReport(metrics))
        teller = Teller(dispatch, desk, Herald(), metrics)  # type: ignore[arg-type]
        made = translation.documents["shop/gw"]
        dispatch.put_document("shop/gw", DocumentParcel(made.digest(), made.tail()), made.listeners, 1)
        dispatch.send(found)
        teller.owe([GATEWAY], 1, frozenset({"shop/gw"}))
        situation = Situation(snapshot, translation, found, {}, ())
        dispatch.happens = answer

        for turn in (1, 2):
            teller.tell(situation, turn, has_changed=turn == 1)

        assert [wish.delivery.is_held for wish in desk.wanted] == [True]
        dispatch.stop()
        assert dispatch.join(time.monotonic() + WAIT_S)
    assert not crashes


class Recovering(Dispatch):
    """Its proxy has failed for a while when it is asked about first, and is well from then on."""

    error = "connection refused"

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        found = Receipt(f"proxy of {plane}", "digest", "digest", self.error, attempts=LASTING_ATTEMPTS)
        self.error = ""
        return (found,)


def test_a_failure_is_told_in_its_own_words_also_if_it_passes_just_then() -> None:
    metrics, recorder = Metrics(CollectorRegistry()), Recorder()
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    settings = Settings("", marker("tests"))
    dispatch = Recovering(settings, lambda: True, lambda: None, lambda _: None, lambda *_: None, IngressReport(metrics))
    teller = Teller(dispatch, Desk(), Herald(recorder), metrics)  # type: ignore[arg-type]

    teller.tell(Situation(snapshot, Translation(snapshot, OURS), found, {}, ()), 1, has_changed=True)

    assert recorder.said == [(*GATEWAY, "DeliveryFailed", "proxy of shop/gw: connection refused")]


class Slow(Dispatch):
    """Its proxy goes on holding the document `old`, of which it cannot bind the first listener's port."""

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        in_use = Remark(RemarkKind.PORT, "listeners[0].port", "in use")
        return (Receipt(f"proxy of {plane}", "old", "old", remarks=(in_use,)),)


def test_a_port_that_cannot_be_bound_is_told_of_its_listener_also_while_a_newer_document_is_on_its_way() -> None:
    metrics, desk = Metrics(CollectorRegistry()), Desk()
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    settings = Settings("", marker("tests"))
    dispatch = Slow(settings, lambda: True, lambda: None, lambda _: None, lambda *_: None, IngressReport(metrics))
    teller = Teller(dispatch, desk, Herald(), metrics)  # type: ignore[arg-type]
    situation = Situation(snapshot, Translation(snapshot, OURS), found, {}, ())
    web, before_it = Listener("shop/gw/web", port=80), Listener("shop/gw/api", port=81)

    for turn, (digest, listeners) in enumerate([("old", (web,)), ("new", (before_it, web))], start=1):
        dispatch.put_document("shop/gw", DocumentParcel(digest, b"}"), listeners, turn)
        teller.owe([GATEWAY], turn, frozenset())
        teller.tell(situation, turn, has_changed=True)

    assert [wish.delivery.unbound for wish in desk.wanted] == [{"web": "proxy proxy of shop/gw: in use"}] * 2


class Unanswered(Dispatch):
    """No proxy has answered yet."""

    def answers(self) -> Callable[[str, int], bool]:
        return lambda _plane, _turn: False


def test_statuses_that_a_rush_holds_back_are_due_at_its_end_also_if_it_ends_before_anybody_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, desk, now_s = Metrics(CollectorRegistry()), Desk(), 1_000.0
    monkeypatch.setattr(telling, "time", SimpleNamespace(monotonic=lambda: now_s))
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    settings = Settings("", marker("tests"))
    dispatch = Unanswered(settings, lambda: True, lambda: None, lambda _: None, lambda *_: None, IngressReport(metrics))
    teller = Teller(dispatch, desk, Herald(), metrics)  # type: ignore[arg-type]
    situation = Situation(snapshot, Translation(snapshot, OURS), found, {}, ())
    teller.owe([ObjectId(Kind.GATEWAY_CLASS, Key("", "class"))], 1, frozenset())
    teller.owe([GATEWAY], 1, frozenset({"shop/gw"}))
    teller.expect_more(BURST + 1)

    teller.tell(situation, 1, has_changed=True)
    now_s += QUIET_S

    assert not desk.wanted
    assert teller.wait_until_s(now_s + 5.0) <= now_s
    teller.tell(situation, 2, has_changed=False)
    assert [wish.item.metadata.name for wish in desk.wanted] == ["class"]
    # Who waits for a proxy is told of when that has answered: there is nothing to look at before.
    assert teller.wait_until_s(now_s + 5.0) == now_s + 5.0
