"""Which statuses are wanted, and what they say of deliveries, whenever the answers come."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from proxy.document import Listener
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.tunnelgw.deliver.test_targets import (
    DISCOVERY,
    ONE,
    OURS,
    TWO,
    Item,
    encoded,
    gateway_class,
    own_proxy,
    planes,
    secret,
)
from tests.tunnelgw.report.test_events import Recorder
from tests.tunnelgw.sources.objects import make
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.dispatch import Dispatch, Settings
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.proxies import DocumentParcel
from tunnelgw.deliver.receipts import Receipt, Remark, RemarkKind
from tunnelgw.deliver.targets import Plane, tunnel_name
from tunnelgw.metrics import Metrics
from tunnelgw.model.conditions import ConditionType, Status
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.routes import HttpRoute
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.provider.ingress import marker
from tunnelgw.report import reporter as reporter_module
from tunnelgw.report.events import LASTING_ATTEMPTS, WarningEvents
from tunnelgw.report.holdback import MAX_HOLD_BACK_S
from tunnelgw.report.ingress import IngressReport
from tunnelgw.report.reporter import Reporter
from tunnelgw.report.rush import BURST, QUIET_S
from tunnelgw.report.situation import Situation
from tunnelgw.status.compose import Author, StatusUpdate, compose
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.verdicts import ObjectId, RouteVerdict

WAIT_S = 30.0
GATEWAY = ObjectId(Kind.GATEWAY, Key("shop", "gw"))


class Queue:
    """Takes the place of the threads that write."""

    def __init__(self) -> None:
        self.depth = 0
        self.wanted: list[StatusUpdate] = []
        self.gone: list[ObjectId] = []
        self.has_forgotten = False

    def forget(self) -> None:
        self.has_forgotten = True

    def want(self, updates: Mapping[ObjectId, StatusUpdate | None]) -> None:
        self.wanted += (update for update in updates.values() if update is not None)
        self.gone += (id_ for id_, update in updates.items() if update is None)


@dataclass
class Answered:
    """All proxies have answered as they are set to, and the tunnel too; no proxy where `has_answered` is false."""

    receipts: dict[str, tuple[Receipt, ...]] = field(default_factory=dict)
    tunnel: Receipt | None = None
    held: frozenset[str] = frozenset({"shop/gw"})
    has_answered: bool = True

    def answers(self) -> Callable[[str, int], bool]:
        return lambda _plane, _turn: self.has_answered

    def held_planes(self) -> frozenset[str]:
        return self.held

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        return self.receipts.get(plane, ())

    def tunnel_receipts(self) -> dict[str, Receipt]:
        return {ONE: self.tunnel} if self.tunnel is not None else {}

    def listeners(self, plane: str, digest: str | None = None) -> tuple[Listener, ...]:
        return (Listener("shop/gw/web", port=80),)


class Interrupted(Dispatch):
    """Calls `happens` right after each look at which data planes are held."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def held_planes(self) -> frozenset[str]:
        found = super().held_planes()
        self.happens()
        return found


def test_a_proxy_that_answers_while_statuses_are_composed_counts_as_holding_the_document() -> None:
    may_answer, news, queue = threading.Event(), threading.Condition(), Queue()
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
        translation = Translation(snapshot, OURS, "home")
        found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
        settings = Settings(Means("", marker("tests")), visit_every_s=3600.0)
        crashes: list[BaseException] = []
        dispatch = Interrupted(
            settings,
            may_write=lambda: True,
            on_news=note,
            on_crash=crashes.append,
            observe=lambda *_: None,
            report=IngressReport(metrics),
        )
        reporter = Reporter(dispatch, queue, WarningEvents(), metrics)
        made = translation.documents["shop/gw"]
        dispatch.put_document("shop/gw", DocumentParcel(made.digest(), made.tail()), made.settings.listeners, 1)
        dispatch.send(found)
        reporter.owe([GATEWAY], 1, frozenset({"shop/gw"}))
        situation = Situation(translation, found, {}, ())
        dispatch.happens = answer

        for turn in (1, 2):
            reporter.report(situation, turn, has_changed=turn == 1)

        assert [update.delivery.is_held for update in queue.wanted] == [True]
        dispatch.stop()
        assert dispatch.join(time.monotonic() + WAIT_S)
    assert not crashes


class Recovering(Answered):
    """Its proxy has a lasting failure at the first look, and none afterwards."""

    error = "connection refused"

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        found = Receipt(f"proxy of {plane}", "digest", "digest", self.error, attempts=LASTING_ATTEMPTS)
        self.error = ""
        return (found,)


def test_a_failure_event_names_the_error_even_if_the_failure_ends_meanwhile() -> None:
    metrics, recorder = Metrics(CollectorRegistry()), Recorder()
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    reporter = Reporter(Recovering(), Queue(), WarningEvents(recorder), metrics)

    reporter.report(Situation(Translation(snapshot, OURS, "home"), found, {}, ()), 1, has_changed=True)

    assert recorder.said == [(*GATEWAY, "DeliveryFailed", "proxy of shop/gw: connection refused")]


class Slow(Dispatch):
    """Its proxy goes on holding the document `old`, of which it cannot bind the first listener's port."""

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        in_use = Remark(RemarkKind.PORT, "listeners[0].port", "in use")
        return (Receipt(f"proxy of {plane}", "old", "old", remarks=(in_use,)),)


def test_a_port_that_cannot_be_bound_stays_reported_on_its_listener_while_a_newer_document_is_on_its_way() -> None:
    metrics, queue = Metrics(CollectorRegistry()), Queue()
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    settings = Settings(Means("", marker("tests")))
    dispatch = Slow(
        settings,
        may_write=lambda: True,
        on_news=lambda: None,
        on_crash=lambda _: None,
        observe=lambda *_: None,
        report=IngressReport(metrics),
    )
    reporter = Reporter(dispatch, queue, WarningEvents(), metrics)
    situation = Situation(Translation(snapshot, OURS, "home"), found, {}, ())
    web, before_it = Listener("shop/gw/web", port=80), Listener("shop/gw/api", port=81)

    for turn, (digest, listeners) in enumerate([("old", (web,)), ("new", (before_it, web))], start=1):
        dispatch.put_document("shop/gw", DocumentParcel(digest, (b"}",)), listeners, turn)
        reporter.owe([GATEWAY], turn, frozenset())
        reporter.report(situation, turn, has_changed=True)

    assert [update.delivery.unbound for update in queue.wanted] == [{"web": "proxy proxy of shop/gw: in use"}] * 2


def test_statuses_held_back_by_a_rush_are_due_at_its_end_even_if_it_ends_before_the_wait_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, queue, now_s = Metrics(CollectorRegistry()), Queue(), 1_000.0
    monkeypatch.setattr(reporter_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])])
    found = {"shop/gw": planes(snapshot, DISCOVERY)["shop/gw"]}
    reporter = Reporter(Answered(has_answered=False), queue, WarningEvents(), metrics)
    situation = Situation(Translation(snapshot, OURS, "home"), found, {}, ())
    reporter.owe([ObjectId(Kind.GATEWAY_CLASS, Key("", "class"))], 1, frozenset())
    reporter.owe([GATEWAY], 1, frozenset({"shop/gw"}))
    reporter.expect_more(BURST + 1)

    reporter.report(situation, 1, has_changed=True)
    now_s += QUIET_S

    assert not queue.wanted
    assert reporter.wait_until_s(now_s + 5.0) <= now_s
    reporter.report(situation, 2, has_changed=False)
    assert [update.item.metadata.name for update in queue.wanted] == ["class"]
    # The Gateway waits for an answer of its proxy: nothing is due before.
    assert reporter.wait_until_s(now_s + 5.0) == now_s + 5.0


class Asked(Answered):
    """Counts how often all proxies were examined."""

    looks = 0

    def held_planes(self) -> frozenset[str]:
        self.looks += 1
        return super().held_planes()


def test_all_proxies_are_examined_once_a_turn_however_many_data_planes_there_are() -> None:
    """Each answer of a proxy causes a turn, and so does each written status: 500 of them took minutes."""
    snapshot, asked = Snapshot.of([]), Asked()
    found = {f"shop/gw-{number}": Plane((f"unix:/run/{number}",), Credentials(None)) for number in range(5)}
    reporter = Reporter(asked, Queue(), WarningEvents(), Metrics(CollectorRegistry()))

    reporter.report(Situation(Translation(snapshot, OURS, "home"), found, {}, ()), 1, has_changed=True)

    assert asked.looks == 1


ROUTE = ObjectId(Kind.HTTP_ROUTE, Key("shop", "web"))
OTHER_ROUTE = ObjectId(Kind.HTTP_ROUTE, Key("shop", "other"))
PROXY = "http://127.0.0.1:1"
HOLDS = Receipt(PROXY, "d", "d")
TOLD = Receipt(tunnel_name(ONE), "h", "h")
AUTHOR = Author("tunnelgw.dev/tunnel-gateway-controller", ())
THEIRS = Remark(RemarkKind.CONFLICT, "a.example", "a.example is somebody else's")


class Scene:
    """A Gateway with a tunnel and a proxy of its own, and two routes; one turn at a time."""

    def __init__(self, outcomes: Answered | None = None) -> None:
        infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}}
        listeners = [{"name": "web", "port": 80, "protocol": "HTTP"}]
        spec = {"gatewayClassName": "class", "listeners": listeners, "infrastructure": infrastructure}
        routes = (("web", "a.example"), ("other", "b.example"))
        self.items: list[Item] = [
            gateway_class("class"),
            (Kind.GATEWAY, make(Kind.GATEWAY, "gw", spec, namespace="shop")),
            own_proxy(proxyEndpoints=[PROXY], tunnelID=ONE)[1],
            *((Kind.HTTP_ROUTE, self.route(name, host)) for name, host in routes),
        ]
        self.registry = CollectorRegistry()
        self.recorder = Recorder()
        self.queue = Queue()
        self.outcomes = outcomes or Answered({"shop/gw": (HOLDS,)}, TOLD)
        metrics = Metrics(self.registry)
        self.reporter = Reporter(self.outcomes, self.queue, WarningEvents(self.recorder), metrics)
        self.has_tunnel = True
        """Whether one leads to the Gateway."""
        self._turn = 0

    @staticmethod
    def route(name: str, host: str) -> Object:
        spec = {"parentRefs": [{"name": "gw"}], "hostnames": [host]}
        return make(Kind.HTTP_ROUTE, name, spec, namespace="shop")

    def report(self, *owed: ObjectId, has_changed: bool = False) -> dict[ObjectId, StatusUpdate]:
        """What is wanted after one more turn."""
        snapshot = Snapshot.of(self.items)
        found = {id_: plane for id_, plane in planes(snapshot, DISCOVERY).items() if id_ == "shop/gw"}
        behind = {ONE: {"shop/gw"}} if self.has_tunnel else {}
        situation = Situation(Translation(snapshot, OURS, "home"), found, behind, behind.keys())
        self._turn += 1
        self.reporter.owe(owed, self._turn, frozenset())
        self.reporter.report(situation, self._turn, has_changed=has_changed)
        wanted, self.queue.wanted = self.queue.wanted, []
        return {ObjectId(_KINDS[type(update.item)], update.item.key): update for update in wanted}

    def delivered(self) -> dict[ObjectId, str]:
        """What one more turn says of deliveries, by Gateway."""
        updates = self.report()
        findings = {id_: update.delivery.finding for id_, update in updates.items()}
        return {id_: finding.message if finding else "" for id_, finding in findings.items()}

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


_KINDS = {RESOURCES[kind].struct: kind for kind in (Kind.GATEWAY, Kind.LISTENER_SET, Kind.HTTP_ROUTE)}


def test_a_delivery_status_is_written_again_only_when_it_changes() -> None:
    scene = Scene()
    down = Receipt(PROXY, "d2", "d", "connection refused", attempts=1)

    assert scene.delivered() == {GATEWAY: f"held by 1 proxy and tunnel {ONE}"}
    assert scene.delivered() == {}
    scene.outcomes.receipts = {"shop/gw": (down,)}
    assert scene.delivered() == {GATEWAY: f"proxy {PROXY}: connection refused"}
    scene.outcomes.receipts = {"shop/gw": (msgspec.structs.replace(down, attempts=2),)}
    assert scene.delivered() == {}, "the same words"
    scene.outcomes.receipts, scene.outcomes.tunnel = {"shop/gw": (HOLDS,)}, None
    assert scene.delivered() == {GATEWAY: "the provider has not got the hostnames yet"}


def test_the_status_follows_the_token_that_its_proxy_opens_a_tunnel_with() -> None:
    scene = Scene()
    scene.items[2] = own_proxy(proxyEndpoints=[PROXY], tunnelID=ONE, tunnelTokenSecretRef={"name": "tunnel"})[1]

    def token(tunnel_id: str) -> Item:
        return secret("tunnel", "shop", tunnel_token=encoded(json.dumps({"a": "b" * 32, "t": tunnel_id, "s": "x"})))

    scene.items.append(token(ONE))
    assert scene.delivered() == {GATEWAY: f"held by 1 proxy and tunnel {ONE}"}
    scene.items[-1] = token(TWO)
    (message,) = scene.delivered().values()
    assert f"the token of tunnel {TWO}, want that of tunnel {ONE}" in message
    scene.items[-1] = token(ONE)
    assert scene.delivered() == {GATEWAY: f"held by 1 proxy and tunnel {ONE}"}


def test_a_new_leader_reports_a_gateway_once_its_deliveries_are_known_and_routes_before() -> None:
    """What the previous leader wrote stays until then."""
    scene = Scene()
    scene.outcomes.tunnel = None

    assert scene.report(GATEWAY, ROUTE).keys() == {ROUTE}
    assert scene.sample("tunnelgw_status_queue_depth") == 1.0
    scene.outcomes.tunnel = TOLD

    assert scene.delivered() == {GATEWAY: f"held by 1 proxy and tunnel {ONE}"}
    assert scene.sample("tunnelgw_status_queue_depth") == 0.0
    scene.outcomes.tunnel = None
    assert scene.delivered() == {GATEWAY: "the provider has not got the hostnames yet"}, "later it is told at once"


@pytest.mark.parametrize(
    ("proxies", "tunnel"),
    [
        ((Receipt(PROXY, "d", error="connection refused", attempts=1),), None),
        ((Receipt(PROXY, "d", error="connection refused", is_starting=True, attempts=1),), TOLD),
        ((HOLDS,), Receipt(tunnel_name(ONE), "h", error="timed out", attempts=1)),
        ((), Receipt(tunnel_name(ONE), "h", error="timed out", attempts=1)),
    ],
    ids=["proxy", "proxy that starts", "provider", "provider alone"],
)
def test_a_new_leader_reports_a_failed_delivery_at_once(proxies: tuple[Receipt, ...], tunnel: Receipt | None) -> None:
    scene = Scene()
    scene.outcomes.receipts, scene.outcomes.tunnel = {"shop/gw": proxies}, tunnel

    assert scene.report(GATEWAY).keys() == {GATEWAY}


def test_a_new_leader_reports_a_gateway_without_proxies_at_once() -> None:
    """An answer of the provider will not change that."""
    scene = Scene()
    scene.items[2] = own_proxy(tunnelID=ONE)[1]
    scene.outcomes.receipts, scene.outcomes.tunnel = {}, None

    (message,) = scene.delivered().values()

    assert message.startswith("no proxy is known for this data plane")


def test_a_gateway_whose_configuration_is_missing_says_so_and_when_that_is_found_what_its_proxy_holds() -> None:
    """`Delivered` also shows who wrote the status: without it, the rest would stay when the class is gone."""
    scene = Scene()
    missing = scene.items.pop(2)

    update = scene.report(GATEWAY)[GATEWAY]

    finding = update.delivery.finding
    assert finding is not None
    assert (finding.status, finding.message) == (
        Status.FALSE,
        "it is not known where its proxies are: see the condition Accepted",
    )
    scene.items.insert(2, missing)
    assert scene.report(GATEWAY)[GATEWAY].delivery.finding != finding


def test_a_gateway_whose_configuration_goes_says_so_even_if_its_class_was_refused_already() -> None:
    """Its verdict stays as it was."""
    scene = Scene()
    scene.items[0] = gateway_class("class", "missing")
    scene.has_tunnel = False
    assert scene.delivered() == {GATEWAY: "held by 1 proxy"}

    scene.items.pop(2)

    assert scene.delivered() == {GATEWAY: "it is not known where its proxies are: see the condition Accepted"}
    assert scene.delivered() == {}


def test_a_gateway_that_is_edited_while_its_deliveries_are_unknown_waits_for_its_newer_document_too() -> None:
    scene = Scene()
    scene.outcomes.tunnel = None
    assert scene.report(GATEWAY) == {}
    scene.outcomes.has_answered, scene.outcomes.held = False, frozenset()
    scene.reporter.owe([GATEWAY], 2, frozenset({"shop/gw"}))

    assert scene.report() == {}
    assert scene.sample("tunnelgw_status_queue_depth") == 1.0
    scene.outcomes.tunnel = TOLD
    assert scene.report() == {}
    scene.outcomes.has_answered, scene.outcomes.held = True, frozenset({"shop/gw"})

    (update,) = scene.report().values()
    assert update.delivery.is_held


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_new_leader_waits_no_longer_for_outcomes_of_deliveries_than_the_hold_back_limit(
    leads_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(reporter_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    scene = Scene()
    if leads_again:
        scene.report(GATEWAY)
        scene.reporter.forget()
        now_s += 100.0
    scene.outcomes.receipts = {}

    assert scene.report(GATEWAY) == {}
    now_s += MAX_HOLD_BACK_S - 0.1
    assert scene.report(GATEWAY) == {}
    now_s += 0.1

    assert scene.delivered() == {GATEWAY: "1 of 1 proxies have not answered yet"}


def test_a_proxy_that_may_be_starting_holds_nothing_yet_and_has_not_failed() -> None:
    scene = Scene()
    starting = Receipt(PROXY, "d", error="connection refused", is_starting=True, attempts=LASTING_ATTEMPTS)
    scene.outcomes.receipts = {"shop/gw": (starting,)}

    awaited = f"1 of 1 proxies have not answered yet (proxy {PROXY}: connection refused)"
    assert scene.delivered() == {GATEWAY: awaited}

    assert scene.sample("tunnelgw_delivered", target=PROXY) == 0
    assert scene.sample("tunnelgw_deliveries_total", target=PROXY, outcome="failed") == 0
    assert scene.recorder.said == []


def test_a_gateway_reported_while_no_proxy_held_its_document_is_reported_again_when_one_does() -> None:
    scene = Scene()
    scene.report()

    scene.outcomes.held = frozenset()
    assert scene.report() == {}, "so it is after each edit"
    (early,) = scene.report(GATEWAY).values()
    assert not early.delivery.is_held
    assert scene.report() == {}
    scene.outcomes.held = frozenset({"shop/gw"})
    (late,) = scene.report().values()

    assert late.delivery.is_held
    assert scene.report() == {}


def test_a_port_that_cannot_be_bound_is_reported_once_and_again_when_it_can() -> None:
    scene = Scene()
    in_use = Remark(RemarkKind.PORT, "listeners[0].port", "in use")
    scene.report()

    scene.outcomes.receipts = {"shop/gw": (msgspec.structs.replace(HOLDS, remarks=(in_use,)),)}
    (unbound,) = scene.report().values()
    assert scene.report() == {}
    scene.outcomes.receipts = {"shop/gw": (HOLDS,)}
    (bound,) = scene.report().values()

    assert (unbound.delivery.unbound, bound.delivery.unbound) == ({"web": f"proxy {PROXY}: in use"}, {})
    assert scene.report() == {}


def test_listener_sets_are_reported_with_their_gateway_and_gateways_with_other_proxies_are_not() -> None:
    scene = Scene()
    gateway = msgspec.to_builtins(scene.items[1][1])["spec"]
    listeners = [{"name": "more", "port": 81, "protocol": "HTTP"}]
    more = make(Kind.LISTENER_SET, "more", {"parentRef": {"name": "gw"}, "listeners": listeners}, namespace="shop")
    allowed = {**gateway, "allowedListeners": {"namespaces": {"from": "Same"}}}
    elsewhere = make(Kind.GATEWAY, "elsewhere", {"gatewayClassName": "class", "listeners": gateway["listeners"]})
    scene.items[1] = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", allowed, namespace="shop"))
    scene.items += [(Kind.LISTENER_SET, more), (Kind.GATEWAY, elsewhere)]
    listener_set = ObjectId(Kind.LISTENER_SET, Key("shop", "more"))
    assert scene.report().keys() == {GATEWAY, listener_set}

    scene.outcomes.receipts = {"shop/gw": (Receipt(PROXY, "d2", "d", "connection refused", attempts=1),)}

    assert scene.report().keys() == {GATEWAY, listener_set}
    assert scene.report() == {}


def accepted_and(update: StatusUpdate) -> list[str]:
    """The messages of a route's condition Delivered."""
    assert isinstance(update.verdict, RouteVerdict)
    (parent,) = update.verdict.parents
    return [finding.message for finding in parent.findings if finding.type is ConditionType.DELIVERED]


def test_a_hostname_conflict_is_reported_on_routes_with_that_hostname_alone_and_while_it_lasts() -> None:
    scene = Scene()
    event = (*ROUTE, "HostnameConflict", THEIRS.message)
    scene.report()

    scene.outcomes.tunnel = msgspec.structs.replace(TOLD, remarks=(THEIRS,))
    contested = scene.report()
    assert {id_: accepted_and(update) for id_, update in contested.items() if id_ != GATEWAY} == {
        ROUTE: [THEIRS.message]
    }
    assert scene.recorder.said == [event]
    assert scene.report(has_changed=True) == {}
    both = scene.report(ROUTE, OTHER_ROUTE)
    assert {id_: accepted_and(update) for id_, update in both.items()} == {ROUTE: [THEIRS.message], OTHER_ROUTE: []}

    scene.items[-1] = (Kind.HTTP_ROUTE, scene.route("other", "a.example"))
    joined = scene.report(has_changed=True)
    assert {id_: accepted_and(update) for id_, update in joined.items()} == {OTHER_ROUTE: [THEIRS.message]}
    assert scene.recorder.said == [event, (*OTHER_ROUTE, *event[2:])]

    scene.outcomes.tunnel = TOLD
    settled = scene.report()
    assert {id_: accepted_and(update) for id_, update in settled.items() if id_ != GATEWAY} == {
        ROUTE: [],
        OTHER_ROUTE: [],
    }
    assert len(scene.recorder.said) == 2
    assert scene.report(has_changed=True) == {}


def told_before(route: Object, update: StatusUpdate) -> Object:
    """The route with what the update makes of its status."""
    status = compose(update, AUTHOR, "2026-11-21T12:00:00Z").status
    return route if status is None else msgspec.structs.replace(route, status=msgspec.Raw(status))


def delivered_false(update: StatusUpdate) -> bool:
    assert isinstance(update.item, HttpRoute)
    return b"HostnameConflict" in (compose(update, AUTHOR, "2026-11-22T12:00:00Z").status or bytes(update.item.status))


@pytest.mark.parametrize(
    "silence",
    [
        None,
        Receipt(tunnel_name(ONE), "", ""),
        Receipt(tunnel_name(ONE), "h", error="timed out", attempts=1),
    ],
    ids=["not asked", "only looked at", "failed"],
)
def test_a_new_leader_keeps_reported_hostname_conflicts_until_it_knows_the_tunnel_s_rules(
    silence: Receipt | None,
) -> None:
    before = Scene()
    before.outcomes.tunnel = msgspec.structs.replace(TOLD, remarks=(THEIRS,))
    told = told_before(before.route("web", "a.example"), before.report()[ROUTE])

    for end in (before.outcomes.tunnel, TOLD):
        scene = Scene()
        scene.items[-2] = (Kind.HTTP_ROUTE, told)
        scene.outcomes.tunnel = silence

        begun = scene.report(ROUTE, OTHER_ROUTE)
        assert compose(begun[ROUTE], AUTHOR, "2026-11-22T12:00:00Z").status is None
        assert not delivered_false(begun[OTHER_ROUTE])
        assert ROUTE not in scene.report()

        scene.outcomes.tunnel = end
        assert delivered_false(scene.report()[ROUTE]) is (end is not TOLD)
        assert ROUTE not in scene.report()


class Telling(Answered):
    """Its tunnel reports a conflict after `silent_looks` looks."""

    silent_looks = 1_000

    def tunnel_receipts(self) -> dict[str, Receipt]:
        self.silent_looks -= 1
        return {} if self.silent_looks >= 0 else {ONE: msgspec.structs.replace(TOLD, remarks=(THEIRS,))}


def test_a_reported_hostname_conflict_stays_even_if_the_tunnel_answers_meanwhile() -> None:
    before = Scene()
    before.outcomes.tunnel = msgspec.structs.replace(TOLD, remarks=(THEIRS,))
    told = told_before(before.route("web", "a.example"), before.report()[ROUTE])

    for looks in range(10):
        outcomes = Telling({"shop/gw": (HOLDS,)})
        scene = Scene(outcomes)
        scene.items[-2] = (Kind.HTTP_ROUTE, told)
        scene.report(ROUTE)

        outcomes.silent_looks = looks
        updates = [scene.report().get(ROUTE) for _ in range(10)]

        assert all(delivered_false(update) for update in updates if update is not None), looks


class Answering(Answered):
    """Its proxy answers after `silent_looks` looks."""

    silent_looks = 1_000

    def proxy_receipts(self, plane: str) -> tuple[Receipt, ...]:
        self.silent_looks -= 1
        in_use = Remark(RemarkKind.PORT, "listeners[0].port", "in use")
        return () if self.silent_looks >= 0 else (msgspec.structs.replace(HOLDS, remarks=(in_use,)),)


def test_what_a_proxy_answers_meanwhile_is_in_the_first_status_that_a_new_leader_writes() -> None:
    for looks in range(10):
        outcomes = Answering(tunnel=TOLD)
        scene = Scene(outcomes)
        assert scene.report(GATEWAY) == {}

        outcomes.silent_looks = looks
        deliveries = [update.delivery for _ in range(10) for update in scene.report().values()]

        assert [delivery.unbound for delivery in deliveries] == [{"web": f"proxy {PROXY}: in use"}], looks
        assert [delivery.finding.message for delivery in deliveries if delivery.finding] == [
            f"held by 1 proxy and tunnel {ONE}"
        ], looks


def test_a_lasting_failure_of_a_tunnel_is_an_event_on_its_gateway_and_healthy_targets_get_none() -> None:
    scene = Scene()
    scene.outcomes.tunnel = Receipt(tunnel_name(ONE), "h", error="503", attempts=LASTING_ATTEMPTS)

    scene.report()
    scene.report()

    assert scene.recorder.said == [(*GATEWAY, "DeliveryFailed", f"tunnel {ONE}: 503")]


def test_a_failure_that_has_not_lasted_is_no_event() -> None:
    scene = Scene()
    scene.outcomes.receipts = {"shop/gw": (Receipt(PROXY, "d", error="reset", attempts=1),)}

    scene.report()

    assert scene.recorder.said == []


def test_each_delivery_is_counted_once_by_its_outcome_until_its_target_is_removed() -> None:
    scene = Scene()
    refused = Receipt(PROXY, "d2", "d", "answered 400", is_refusal=True, attempts=1)
    failed = Receipt(PROXY, "d3", "d", "connection reset", attempts=1)

    def counts() -> list[float | None]:
        outcomes = ("held", "refused", "failed")
        return [scene.sample("tunnelgw_deliveries_total", target=PROXY, outcome=outcome) for outcome in outcomes]

    scene.report()
    held_at = scene.sample("tunnelgw_delivered_timestamp_seconds", target=PROXY)
    assert held_at
    assert counts() == [1.0, 0.0, 0.0]
    assert scene.sample("tunnelgw_delivered", target=PROXY) == 1.0
    for receipt in (refused, refused, failed):
        scene.outcomes.receipts = {"shop/gw": (receipt,)}
        scene.report()
        assert scene.sample("tunnelgw_delivered", target=PROXY) == 0.0
    assert counts() == [1.0, 1.0, 1.0]
    assert scene.sample("tunnelgw_delivered_timestamp_seconds", target=PROXY) == held_at
    assert scene.sample("tunnelgw_deliveries_total", target=tunnel_name(ONE), outcome="held") == 1.0

    scene.outcomes.receipts = {}
    scene.report()
    assert counts() == [None, None, None]
    assert scene.sample("tunnelgw_delivered", target=PROXY) is None
    assert scene.sample("tunnelgw_delivered_timestamp_seconds", target=PROXY) is None


def test_the_queue_depth_counts_statuses_held_back_here_and_waiting_in_the_queue() -> None:
    scene = Scene()
    scene.queue.depth = 2
    scene.outcomes.has_answered = False
    scene.report()

    scene.reporter.owe([GATEWAY, ROUTE], 2, frozenset({"shop/gw"}))
    scene.report()

    assert scene.sample("tunnelgw_status_queue_depth") == 4.0


def test_a_controller_that_lost_the_lead_drops_the_statuses_it_owes() -> None:
    scene = Scene()
    scene.report()
    scene.reporter.owe([ROUTE], 1, frozenset())

    scene.reporter.forget()

    assert scene.report() == {}
    assert scene.queue.has_forgotten


def test_a_controller_that_lost_the_lead_clears_metrics_that_only_the_leader_updates() -> None:
    """Otherwise its last failure, as when it lost its network, would be exported for ever."""
    scene = Scene()
    scene.queue.depth = 2
    scene.outcomes.receipts = {"shop/gw": (Receipt(PROXY, "d2", "d", "connection refused", attempts=1),)}
    scene.report()
    assert (scene.sample("tunnelgw_delivered", target=PROXY), scene.sample("tunnelgw_status_queue_depth")) == (0, 2)

    scene.reporter.forget()

    assert (scene.sample("tunnelgw_delivered", target=PROXY), scene.sample("tunnelgw_status_queue_depth")) == (None, 0)
    scene.outcomes.receipts = {"shop/gw": (HOLDS,)}
    scene.report()
    assert scene.sample("tunnelgw_delivered", target=PROXY) == 1


def test_a_deleted_object_gets_no_status_and_is_passed_to_the_queue_as_gone() -> None:
    gone = ObjectId(Kind.HTTP_ROUTE, Key("shop", "gone"))
    scene = Scene()
    scene.report()

    assert scene.report(gone) == {}
    assert scene.queue.gone == [gone]
