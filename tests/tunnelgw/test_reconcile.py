"""The reconciler's turns: what a standby keeps, and what is reported once it leads."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.proxy.site import TOKEN as PROXY_TOKEN
from tests.proxy.site import Proxy, eventually
from tests.support.collector import thaw
from tests.support.provider import TOKEN, TUNNEL_ID, Provider
from tests.support.provider.provider import Tunnel
from tests.tunnelgw.deliver.test_dispatch import served
from tests.tunnelgw.deliver.test_targets import DISCOVERY, OURS, TWO, Item, gateway_class, own_proxy, secret, status_of
from tests.tunnelgw.report.test_events import Recorder
from tests.tunnelgw.sources.objects import make, route
from tunnelgw import reconcile
from tunnelgw.deliver import departed
from tunnelgw.deliver.dispatch import Dispatch, Settings
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.wanted import Wanted
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.provider.ingress import marker
from tunnelgw.reconcile import Reconciler
from tunnelgw.report.events import WarningEvents
from tunnelgw.report.ingress import IngressReport
from tunnelgw.report.reporter import Reporter
from tunnelgw.report.statusqueue import StatusQueue
from tunnelgw.sources.references import WITH_DATA
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable
from tunnelgw.sources.writing import Outcome, Written
from tunnelgw.status.compose import Author
from tunnelgw.translate import routes
from tunnelgw.translate.queries import View
from tunnelgw.translate.rules import RouteContent, RouteId, route_content
from tunnelgw.translate.verdicts import ObjectId

WAIT_S = 30.0
ITEMS = [gateway_class("class"), *own_proxy(proxyEndpoints=["http://127.0.0.1:1"])]
NONE: Mapping[Entry, Unreadable] = {}
GATEWAY = ObjectId(Kind.GATEWAY, Key("shop", "gw"))


class Controller:
    """The reconciler with everything around it except a source and a server that takes statuses."""

    def __init__(
        self,
        provider: Provider,
        items: Sequence[Item],
        unreadable: Mapping[Entry, Unreadable],
        *,
        are_all_named: bool,
        grace_s: float = 0.0,
    ) -> None:
        self._items = items
        self._unreadable = unreadable
        self._are_all_named = are_all_named
        self.registry = CollectorRegistry()
        self.recorder = Recorder()
        self.leads = False
        self.crashes: list[BaseException] = []
        self.written: set[ObjectId] = set()
        self.statuses: dict[ObjectId, bytes] = {}
        """As written last. The objects in the store do not show them."""
        self.delivered: list[str] = []
        """What each written status of `GATEWAY` says of deliveries, as signed."""
        self.store = Store(home="home")
        self._marks = 0
        self._stop = threading.Event()
        self._news = threading.Condition()
        metrics = Metrics(self.registry)
        settings = Settings(Means(provider.url, marker("tests")), visit_every_s=0.3)
        self._dispatch = Dispatch(
            settings,
            may_write=lambda: self.leads,
            on_news=self.store.wake,
            on_crash=self.crashes.append,
            observe=lambda *_: None,
            report=IngressReport(metrics),
        )
        self._status_queue = StatusQueue(
            self,
            Author(OURS, ()),
            stop=self._stop,
            may_write=lambda: self.leads,
            observe=lambda *_: None,
            on_left_out=lambda *_: None,
        )
        self.wanted = Wanted(self._dispatch, DISCOVERY, metrics, grace_s=grace_s)
        self.reconciler = Reconciler(
            self.store,
            self.wanted,
            Reporter(self._dispatch, self._status_queue, WarningEvents(self.recorder), metrics),
            DISCOVERY,
            leads=lambda: self.leads,
            stop=self._stop,
            fail=lambda error: self.crashes.append(RuntimeError(error)),
            metrics=metrics,
            debounce_s=0.0,
        )
        self._threads = [threading.Thread(target=target) for target in (self.reconciler.run, self._status_queue.run)]

    def write(self, kind: Kind, item: Object, status: bytes) -> Written:
        with self._news:
            self.written.add(ObjectId(kind, item.key))
            self.statuses[ObjectId(kind, item.key)] = status
            conditions = msgspec.json.decode(status).get("conditions", ()) if item.key == GATEWAY.key else ()
            self.delivered += [each["message"] for each in conditions if each["type"] == "tunnelgw.dev/Delivered"]
            self._news.notify_all()
        return Written(Outcome.WRITTEN, "")

    def list_all(self) -> None:
        self.store.tell_nameless(are_all_named=self._are_all_named)
        for kind in sorted(Kind, key=WITH_DATA.__contains__):  # there is no source that would fetch what is named late
            problems = {entry.key: problem for entry, problem in self._unreadable.items() if entry.table is kind}
            self.store.replace(kind, [item for its, item in self._items if its is kind], problems)

    def start(self) -> None:
        self.list_all()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        self.store.wake()
        self._status_queue.wake()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert self._dispatch.join(time.monotonic() + WAIT_S)
        assert self.crashes == []
        # Their threads end a moment after their last call has.
        eventually(lambda: not served(), "all couriers have ended")

    def lead(self) -> None:
        self.leads = True
        self.store.wake()
        self._status_queue.wake()

    def until_written(self, *ids: ObjectId) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.written.issuperset(ids), WAIT_S), self.written

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        with self._news:
            while not is_so():
                assert time.monotonic() < deadline_s
                self._news.wait(0.02)

    def until_done(self) -> None:
        """Until the turn that took all that the store was given so far is over."""
        # The first may be counted by the turn before, which counts what is in the store then; the second is counted in
        # the middle of the turn that took all that was given, and the third by a later one.
        for _ in range(3):
            self._marks += 1
            self.store.upsert(Kind.NAMESPACE, make(Kind.NAMESPACE, f"mark-{self._marks}", namespace=""))
            self.until(lambda: self._count(Kind.NAMESPACE, "read") == self._marks)

    def unreadable(self, kind: Kind) -> float | None:
        """How many are kept out, as of the last turn."""
        return self._count(kind, "unreadable")

    def _count(self, kind: Kind, validity: str) -> float | None:
        return self.registry.get_sample_value("tunnelgw_objects", {"kind": kind, "validity": validity})

    def planes(self) -> set[str]:
        """The data planes whose document size is in the metrics."""
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        return {sample.labels["data_plane"] for sample in samples if sample.name == "tunnelgw_document_bytes"}


@contextmanager
def controller(
    items: Sequence[Item] = ITEMS,
    at: Provider | None = None,
    unreadable: Mapping[Entry, Unreadable] = NONE,
    *,
    are_all_named: bool = True,
    grace_s: float = 0.0,
) -> Iterator[Controller]:
    thresholds = gc.get_threshold()
    with ExitStack() as stack:
        provider = at or stack.enter_context(Provider())
        made = Controller(provider, items, unreadable, are_all_named=are_all_named, grace_s=grace_s)
        made.start()
        try:
            yield made
        finally:
            made.end()
            gc.set_threshold(*thresholds)


@pytest.fixture(autouse=True, scope="module")
def thawed() -> Iterator[None]:
    """A first translation freezes all objects."""
    yield
    thaw()


def web(name: str) -> ObjectId:
    return ObjectId(Kind.HTTP_ROUTE, Key("shop", name))


def test_a_standby_keeps_no_ids_of_deleted_routes_in_memory() -> None:
    with controller() as ours:
        ours.until_done()
        for number in range(3):
            ours.store.upsert(Kind.HTTP_ROUTE, route(f"passing-{number}", namespace="shop"))
            ours.until_done()
            ours.store.delete(Kind.HTTP_ROUTE, Key("shop", f"passing-{number}"))
            ours.until_done()

        def kept() -> list[ObjectId]:
            everything = [each for each in gc.get_objects() if isinstance(each, ObjectId)]
            return [id_ for id_ in everything if id_.key.name.startswith("passing-")]

        gc.collect()
        ours.until(lambda: not kept())


def test_a_standby_forgets_the_proxy_of_a_gateway_that_is_long_gone_and_does_not_warn_of_it_as_a_leader(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader of that time emptied it."""
    monkeypatch.setattr(departed, "PATIENCE_S", 0.0)
    with controller() as ours:
        ours.until_done()
        assert ours.wanted.is_served(GATEWAY.key)
        ours.store.delete(Kind.GATEWAY, GATEWAY.key)
        ours.until_done()

        assert not ours.wanted.is_served(GATEWAY.key)
        ours.lead()
        ours.until_done()

    assert not [record.getMessage() for record in caplog.records if "cannot be emptied" in record.getMessage()]


def test_a_new_leader_writes_the_status_of_every_object() -> None:
    with controller() as ours:
        ours.store.upsert(Kind.HTTP_ROUTE, route("early", namespace="shop"))
        ours.until_done()
        ours.store.upsert(Kind.HTTP_ROUTE, route("late", namespace="shop"))
        ours.until_done()
        assert not ours.written

        ours.lead()

        ours.until_written(web("early"), web("late"), GATEWAY)


def test_a_controller_that_leads_again_checks_every_status_again() -> None:
    with controller() as ours:
        ours.lead()
        ours.until_written(GATEWAY)
        ours.until_done()
        ours.leads = False
        ours.until_done()
        ours.written.clear()

        ours.lead()

        ours.until_written(GATEWAY)


def test_only_the_leader_reports_an_unreadable_object_in_an_event() -> None:
    broken = Entry(Kind.HTTP_ROUTE, Key("shop", "broken"))
    with controller(unreadable={broken: Unreadable("spec.rules: want a list")}) as ours:
        ours.until_done()
        assert ours.recorder.said == []

        ours.lead()
        ours.until_done()

    note = "HTTPRoute shop/broken cannot be read and is left out: spec.rules: want a list"
    assert [each for each in ours.recorder.said if each[2] == "Unreadable"] == [(*broken, "Unreadable", note)]


def test_each_loss_of_our_last_class_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> int:
        return caplog.text.count("no GatewayClass is ours, see --controller-name")

    kind, class_ = gateway_class("class")
    with controller() as ours:
        for times in (1, 2):
            ours.store.upsert(*gateway_class("class", controller="example.net/misspelt"))
            ours.until_done()
            assert said() == times
            ours.store.upsert(*gateway_class("another", controller="example.net/misspelt"))
            ours.until_done()
            assert said() == times
            ours.store.upsert(kind, class_)
            ours.until_done()


def test_a_gateway_whose_stored_status_lacks_its_address_keeps_it_when_an_older_gateway_is_deleted() -> None:
    pool = {"direct": {"addresses": ["192.0.2.1", "192.0.2.2"]}}
    spec = {"gatewayClassName": "class", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
    gateways = [
        (Kind.GATEWAY, make(Kind.GATEWAY, name, spec, namespace="shop", metadata={"creationTimestamp": since}))
        for name, since in (("older", "2026-01-01"), ("young", "2026-01-02"))
    ]
    config = (Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, "pool", pool, namespace=""))
    older, young = (ObjectId(Kind.GATEWAY, gateway.key) for _, gateway in gateways)
    with controller([gateway_class("class", "pool"), config, *gateways]) as ours:
        ours.lead()
        ours.until_written(older, young)
        assert b'"192.0.2.2"' in ours.statuses[young]

        ours.store.delete(Kind.GATEWAY, older.key)
        ours.until_done()
        ours.written.clear()
        ours.store.upsert(Kind.HTTP_ROUTE, route("web", "young", namespace="shop"))
        ours.until_written(young)

        assert b'"192.0.2.2"' in ours.statuses[young]
        assert b'"192.0.2.1"' not in ours.statuses[young]


def test_a_controller_is_ready_after_the_first_translation_and_until_then_says_what_it_waits_for() -> None:
    with Provider() as provider:
        waiting = Controller(provider, ITEMS, NONE, are_all_named=True)
        missing = waiting.reconciler.readiness()
        waiting.list_all()

        assert missing == f"waiting for the first listing of {', '.join(sorted(Kind))}"
        assert waiting.reconciler.readiness() == "the first translation is under way"
    with controller() as ours:
        ours.until_done()

        assert ours.reconciler.readiness() is None


def test_a_reconciler_without_a_turn_for_a_minute_fails_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_s = 0.0
    monkeypatch.setattr(reconcile, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s))
    with Provider() as provider:
        stuck = Controller(provider, ITEMS, NONE, are_all_named=True).reconciler
        with controller(at=provider) as ours:
            ours.until_done()
            assert (stuck.liveness(), ours.reconciler.liveness()) == (None, None)

            ahead_s = reconcile.STUCK_S
            ours.until_done()

            assert stuck.liveness() == "the reconciler has made no turn for a minute"
            assert ours.reconciler.liveness() is None


def test_a_reconciler_whose_translation_takes_minutes_but_progresses_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the first translation, which a restart would only begin anew, and one of many edits at once."""
    ahead_s = 0.0
    said: list[str | None] = []
    monkeypatch.setattr(reconcile, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s))
    with Provider() as provider:
        names = [f"r{number}" for number in range(4)]
        given = [(Kind.HTTP_ROUTE, route(name, namespace="shop")) for name in names]
        ours = Controller(provider, [*ITEMS, *given], NONE, are_all_named=True)

        def slow(view: View, id_: RouteId) -> RouteContent:
            nonlocal ahead_s
            ahead_s += 0.6 * reconcile.STUCK_S
            said.append(ours.reconciler.liveness())
            return route_content(view, id_)

        monkeypatch.setattr(routes, "route_content", slow)
        ours.start()
        ours.until_done()
        ours.store.replace(Kind.HTTP_ROUTE, [route(name, path="/new", namespace="shop") for name in names])
        ours.until_done()
        ours.end()

    assert len(said) == 2 * len(names)
    assert set(said) == {None}


def test_turns_that_took_a_change_are_counted_with_their_duration() -> None:
    with controller() as ours:
        ours.until_done()
        name = "tunnelgw_reconcile_duration_seconds"
        count, took_s = (
            ours.registry.get_sample_value(f"{name}_{each}", {"outcome": "ok"}) for each in ("count", "sum")
        )

        assert count
        assert took_s is not None
        assert 0 < took_s < WAIT_S
        assert ours.registry.get_sample_value("tunnelgw_last_reconcile_timestamp_seconds")


def test_the_metric_of_a_document_s_size_lasts_as_long_as_its_data_plane() -> None:
    with controller() as ours:
        ours.until(lambda: "shop/gw" in ours.planes())

        ours.store.delete(Kind.GATEWAY, Key("shop", "gw"))

        ours.until(lambda: "shop/gw" not in ours.planes())
        assert "shared" in ours.planes()


OURS_THERE = {
    "ingress": [
        {"hostname": "a.example", "service": marker("tests")},
        {"hostname": "theirs.example", "service": "http://10.0.0.1"},
        {"service": "http_status:404"},
    ]
}
HOLDER = secret("holder", "shop", api_token=TOKEN)


def own_tunnel(tunnel_id: str = TUNNEL_ID) -> list[Item]:
    ref = {"name": "holder"}
    return own_proxy(proxyEndpoints=["http://127.0.0.1:1"], tunnelID=tunnel_id, providerCredentialsSecretRef=ref)


WITH_LISTENER = {
    "gatewayClassName": "class",
    "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    "infrastructure": {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}},
}


@contextmanager
def keeping(proxy: Proxy) -> Iterator[Controller]:
    """One that leads, and has given a proxy the document of the Gateway that it is of."""
    config = own_proxy(proxyEndpoints=[proxy.api], authSecretRef={"name": "proxy"}, tunnelID=TUNNEL_ID)[1]
    gateway = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", WITH_LISTENER, namespace="shop"))
    with controller([gateway_class("class"), secret("proxy", "shop", auth_token=PROXY_TOKEN), gateway, config]) as ours:
        ours.lead()
        eventually(lambda: "listeners" in proxy.get().json(), "no document")
        yield ours


@contextmanager
def holding_a_tunnel() -> Iterator[tuple[Provider, Controller]]:
    """One that leads, and has looked at its tunnel."""
    with Provider() as provider, controller([gateway_class("class"), HOLDER, *own_tunnel()], provider) as ours:
        provider.write(OURS_THERE)
        ours.lead()
        provider.wait_for("tunnel")
        yield provider, ours


def test_a_tunnel_is_emptied_when_its_gateway_is_deleted_together_with_the_credentials() -> None:
    with holding_a_tunnel() as (provider, ours):
        ours.store.delete(Kind.SECRET, Key("shop", "holder"))
        ours.store.delete(Kind.GATEWAY_CONFIG, Key("shop", "own"))
        ours.store.delete(Kind.GATEWAY, Key("shop", "gw"))

        provider.wait_for_hostnames({"theirs.example"})


def test_a_proxy_is_emptied_when_its_gateway_is_deleted_after_its_token() -> None:
    with Proxy() as proxy, keeping(proxy) as ours:
        ours.store.delete(Kind.SECRET, Key("shop", "proxy"))
        ours.store.delete(Kind.GATEWAY_CONFIG, Key("shop", "own"))
        ours.until_done()
        assert proxy.get().json()["listeners"], "the Gateway is there"
        ours.store.delete(Kind.GATEWAY, Key("shop", "gw"))

        eventually(lambda: proxy.get().json() == {"version": 2}, "not emptied")


def test_a_gateway_s_own_proxy_serves_nothing_while_the_class_is_not_accepted() -> None:
    missing = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "missing"}
    kind, accepted = gateway_class("class")
    spec = {**msgspec.to_builtins(accepted)["spec"], "parametersRef": missing}
    with Proxy() as proxy, keeping(proxy) as ours:
        ours.store.upsert(kind, make(kind, "class", spec, namespace=""))
        eventually(lambda: proxy.get().json() == {"version": 2}, "still served")

        ours.store.upsert(kind, accepted)
        eventually(lambda: "listeners" in proxy.get().json(), "not served again")


@pytest.mark.parametrize("classes", [("class",), ()], ids=["while it runs", "before it starts"])
def test_only_the_controller_that_served_a_gateway_writes_its_status_once_the_class_is_deleted(
    classes: Sequence[str],
) -> None:
    """Another controller may have seen a new class earlier; the two would overwrite each other."""
    theirs = ObjectId(Kind.GATEWAY, Key("shop", "theirs"))
    with Proxy() as proxy, keeping(proxy) as ours:
        ours.until(lambda: _says_programmed(ours, GATEWAY))
        said = ours.statuses[GATEWAY]
    of_another = said.replace(f"{OURS}: ".encode(), b"example.net/tunnels: ")
    assert of_another != said
    gateway = make(Kind.GATEWAY, "gw", WITH_LISTENER, namespace="shop")
    unheard = make(Kind.GATEWAY, "theirs", {**WITH_LISTENER, "gatewayClassName": "unheard"}, namespace="shop")
    objects: list[tuple[Kind, Object]] = [
        (Kind.GATEWAY, msgspec.structs.replace(gateway, status=msgspec.Raw(said))),
        (Kind.GATEWAY, msgspec.structs.replace(unheard, status=msgspec.Raw(of_another))),
    ]
    with controller([*map(gateway_class, classes), *objects]) as ours:
        ours.lead()
        ours.until_done()
        ours.store.delete(Kind.GATEWAY_CLASS, Key("", "class"))

        ours.until(lambda: b'"Programmed","status":"Unknown"' in ours.statuses.get(GATEWAY, b""))
        assert theirs not in ours.written


def test_a_proxy_keeps_serving_while_its_gateway_is_unreadable() -> None:
    with Proxy() as proxy, keeping(proxy) as ours:
        ours.store.reject(Kind.GATEWAY, Key("shop", "gw"), Unreadable("spec.listeners: want a list"))
        ours.until(lambda: ours.unreadable(Kind.GATEWAY) == 1)
        ours.store.tell_nameless(are_all_named=False)
        ours.store.delete(Kind.GATEWAY, Key("shop", "gw"))
        ours.until_done()
        assert proxy.get().json()["listeners"]
        ours.store.tell_nameless(are_all_named=True)

        eventually(lambda: proxy.get().json() == {"version": 2}, "not emptied")


def test_routes_and_listener_sets_of_an_unreadable_gateway_keep_their_status_while_its_proxy_serves() -> None:
    """Otherwise external-dns would delete the records of routes that are still served."""
    listener = {"name": "more", "port": 443, "protocol": "HTTP"}
    more = make(Kind.LISTENER_SET, "more", {"parentRef": {"name": "gw"}, "listeners": [listener]}, namespace="shop")
    of_set = {"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": "more"}
    refs = [{"name": "gw"}, {"name": "shared"}, of_set]
    front = make(Kind.HTTP_ROUTE, "front", {"parentRefs": refs}, namespace="shop")
    shared_spec = {name: value for name, value in WITH_LISTENER.items() if name != "infrastructure"}
    shared = make(Kind.GATEWAY, "shared", shared_spec, namespace="shop")
    allowing = {**WITH_LISTENER, "allowedListeners": {"namespaces": {"from": "Same"}}}
    gateway = make(Kind.GATEWAY, "gw", allowing, namespace="shop")
    set_id, route_id = ObjectId(Kind.LISTENER_SET, more.key), ObjectId(Kind.HTTP_ROUTE, front.key)
    with Proxy() as proxy, keeping(proxy) as ours:

        def show(item: Object, id_: ObjectId) -> None:
            """As the API server would, after it was written."""
            ours.until(lambda: id_ in ours.statuses)
            ours.store.upsert(id_.kind, msgspec.structs.replace(item, status=msgspec.Raw(ours.statuses[id_])))

        def until_others_are_told(name: str) -> None:
            """All that was wanted before is written."""
            ours.store.upsert(Kind.HTTP_ROUTE, route(name, "shared", namespace="shop"))
            ours.until_written(web(name))

        for item, kind in ((gateway, Kind.GATEWAY), (shared, Kind.GATEWAY), (more, Kind.LISTENER_SET)):
            ours.store.upsert(kind, item)
        ours.store.upsert(Kind.HTTP_ROUTE, front)
        ours.until(lambda: _says_programmed(ours, set_id))
        ours.until(lambda: len(_parents(ours, route_id)) == len(refs))
        show(more, set_id)
        show(front, route_id)
        until_others_are_told("early")
        ours.written.clear()

        ours.store.reject(Kind.GATEWAY, GATEWAY.key, Unreadable("spec.listeners: want a list"))
        ours.until(lambda: ours.unreadable(Kind.GATEWAY) == 1)
        until_others_are_told("late")
        assert not ours.written & {set_id, route_id}
        assert proxy.get().json()["listeners"]

        ours.store.delete(Kind.GATEWAY, GATEWAY.key)

        ours.until_written(set_id, route_id)
        assert b'"Programmed","status":"False"' in ours.statuses[set_id]
        assert _parents(ours, route_id) == ["shared"]


def _parents(ours: Controller, route_id: ObjectId) -> list[str]:
    """The parents in the status that was written last."""
    status = msgspec.json.decode(ours.statuses.get(route_id, b"{}"))
    return [entry["parentRef"]["name"] for entry in status.get("parents", ())]


def _says_programmed(ours: Controller, id_: ObjectId) -> bool:
    return b'"type":"Programmed","status":"True"' in ours.statuses.get(id_, b"")


def test_a_tunnel_is_emptied_when_another_replaces_it() -> None:
    with holding_a_tunnel() as (provider, ours):
        _, (kind, config) = own_tunnel(TWO)
        ours.store.upsert(kind, config)

        provider.wait_for_hostnames({"theirs.example"})


def test_a_tunnel_is_emptied_when_nothing_names_it_after_a_restart() -> None:
    _, (kind, config) = own_tunnel()
    with Provider() as provider:
        provider.write(OURS_THERE)
        with controller([gateway_class("class"), HOLDER, (kind, config)], provider) as ours:
            ours.lead()

            provider.wait_for_hostnames({"theirs.example"})


def test_a_tunnel_is_emptied_when_another_replaced_it_while_no_controller_ran() -> None:
    (kind, gateway), config = own_tunnel(TWO)
    spec = msgspec.to_builtins(gateway)["spec"]
    told = (kind, make(kind, "gw", spec, namespace="shop", status=status_of(TUNNEL_ID)))
    with Provider() as provider:
        provider.write(OURS_THERE)
        with controller([gateway_class("class"), HOLDER, told, config], provider) as ours:
            ours.lead()

            provider.wait_for_hostnames({"theirs.example"})


@contextmanager
def moving_to_another_tunnel() -> Iterator[tuple[Provider, Callable[..., list[Item]]]]:
    """A provider with both tunnels, and objects that name the one or the other; the Gateway has a status that says
    this of deliveries."""
    with Provider() as provider, Proxy() as proxy:
        provider.tunnels[TWO] = Tunnel(TWO)
        provider.write(OURS_THERE)
        refs = {"authSecretRef": {"name": "proxy"}, "providerCredentialsSecretRef": {"name": "holder"}}

        def items(tunnel_id: str, said: str = "") -> list[Item]:
            condition = {"type": "tunnelgw.dev/Delivered", "status": "True", "reason": "Delivered", "message": said}
            status = {"conditions": [condition] if said else []}
            return [
                own_proxy(proxyEndpoints=[proxy.api], tunnelID=tunnel_id, **refs)[1],
                gateway_class("class"),
                HOLDER,
                secret("proxy", "shop", auth_token=PROXY_TOKEN),
                (Kind.GATEWAY, make(Kind.GATEWAY, "gw", WITH_LISTENER, namespace="shop", status=status)),
                (Kind.HTTP_ROUTE, make(Kind.HTTP_ROUTE, "web", FRONT, namespace="shop")),
            ]

        yield provider, items


FRONT = {"parentRefs": [{"name": "gw"}], "hostnames": ["a.example"]}


def test_a_tunnel_that_another_replaced_shortly_before_a_restart_is_emptied_whatever_status_was_written_last() -> None:
    with moving_to_another_tunnel() as (provider, items):
        with controller(items(TUNNEL_ID), provider, grace_s=3600.0) as ours:
            ours.lead()
            ours.until(lambda: f"{OURS}: held by 1 proxy and tunnel {TUNNEL_ID}" in ours.delivered)
            ours.delivered[:] = ours.delivered[-1:]
            ours.store.upsert(*items(TWO)[0])
            ours.until(lambda: f"held by 1 proxy and tunnel {TWO}" in ours.delivered[-1])
        assert "a.example" in provider.hostnames
        assert ours.delivered[-1] == (
            f"{OURS}: hostnames may still be in tunnel {TUNNEL_ID}; held by 1 proxy and tunnel {TWO}"
        )

        for said in ours.delivered:
            provider.write(OURS_THERE)
            with controller(items(TWO, said), provider) as after:
                after.lead()
                provider.wait_for_hostnames({"theirs.example"})
                after.until(lambda after=after: f"{OURS}: held by 1 proxy and tunnel {TWO}" in after.delivered)  # type: ignore[misc]


def test_a_status_names_each_tunnel_that_was_left_until_it_is_emptied_even_if_none_was_written_in_between() -> None:
    third = f"{TWO[:-1]}9"
    with moving_to_another_tunnel() as (provider, items):
        provider.tunnels[third] = Tunnel(third)
        with controller(items(TUNNEL_ID), provider, grace_s=3600.0) as ours:
            ours.lead()
            ours.until(lambda: f"{OURS}: held by 1 proxy and tunnel {TUNNEL_ID}" in ours.delivered)
            for tunnel_id in (TWO, third):
                ours.store.upsert(*items(tunnel_id)[0])
                ours.until_done()
            ours.until(lambda: f"held by 1 proxy and tunnel {third}" in ours.delivered[-1])
        last = ours.delivered[-1]
        assert last.startswith(f"{OURS}: hostnames may still be in tunnels {TUNNEL_ID}, {TWO}; ")

        with controller(items(third, last), provider) as after:
            after.lead()
            provider.wait_for_hostnames({"theirs.example"})
            after.until(lambda: f"{OURS}: held by 1 proxy and tunnel {third}" in after.delivered)


def test_a_status_names_no_tunnel_that_is_in_use_again_or_was_emptied_by_a_former_leader() -> None:
    with moving_to_another_tunnel() as (provider, items):
        with controller(items(TUNNEL_ID), provider, grace_s=3600.0) as ours:
            ours.lead()
            ours.until(lambda: f"{OURS}: held by 1 proxy and tunnel {TUNNEL_ID}" in ours.delivered)
            ours.store.upsert(*items(TWO)[0])
            ours.until(lambda: TWO in ours.delivered[-1])
            ours.store.upsert(*items(TUNNEL_ID)[0])
            ours.until(lambda: f"held by 1 proxy and tunnel {TUNNEL_ID}" in ours.delivered[-1])
            assert ours.delivered[-1].startswith(f"{OURS}: hostnames may still be in tunnel {TWO}; ")

        with controller(items(TUNNEL_ID), provider, grace_s=3600.0) as standby:
            standby.until_done()
            standby.store.upsert(*items(TWO)[0])
            standby.until_done()
            standby.lead()
            standby.until(lambda: f"{OURS}: held by 1 proxy and tunnel {TWO}" in standby.delivered)
            assert not [said for said in standby.delivered if TUNNEL_ID in said]


def test_no_tunnel_is_emptied_while_its_gateway_config_is_unreadable() -> None:
    other = own_tunnel(TWO)[1][1]
    passed = msgspec.structs.replace(other, metadata=msgspec.structs.replace(other.metadata, name="passing"))
    with holding_a_tunnel() as (provider, ours):
        ours.store.reject(Kind.GATEWAY_CONFIG, Key("shop", "own"), Unreadable("spec.tunnelID: want text"))
        ours.until(lambda: ours.unreadable(Kind.GATEWAY_CONFIG) == 1)
        ours.store.upsert(Kind.GATEWAY_CONFIG, passed)
        ours.store.upsert(*HOLDER)
        ours.until_done()
        ours.store.upsert(Kind.GATEWAY_CONFIG, own_tunnel()[1][1])
        provider.wait_for("tunnel", 2)  # the pass that looks at it now began when the last call before had ended

    assert set(provider.hostnames) == {"a.example", "theirs.example", "*"}
    assert provider.calls["write"] == 0


def test_no_tunnel_is_emptied_while_an_unreadable_object_has_no_name() -> None:
    """For example a manifest file with a mistake in its first line."""
    _, (kind, config) = own_tunnel()
    with Provider() as provider:
        provider.write(OURS_THERE)
        with controller([gateway_class("class"), HOLDER, (kind, config)], provider, are_all_named=False) as ours:
            ours.lead()
            ours.until_done()
            ours.store.upsert(*secret("holder", "shop", api_token=TOKEN, written="since"))
            ours.until_done()
            assert provider.calls.total() == 0
            ours.store.tell_nameless(are_all_named=True)

            provider.wait_for_hostnames({"theirs.example"})


def test_a_tunnel_is_emptied_when_its_unreadable_gateway_config_is_deleted() -> None:
    with holding_a_tunnel() as (provider, ours):
        ours.store.reject(Kind.GATEWAY_CONFIG, Key("shop", "own"), Unreadable("spec.tunnelID: want text"))
        ours.until(lambda: ours.unreadable(Kind.GATEWAY_CONFIG) == 1)

        ours.store.delete(Kind.GATEWAY_CONFIG, Key("shop", "own"))

        provider.wait_for_hostnames({"theirs.example"})


def test_hostnames_stay_after_a_restart_while_another_gateway_cannot_be_read() -> None:
    """Its status says that they were told, as of each Gateway: that alone is no reason to take them away."""
    told = make(Kind.GATEWAY, "gw", WITH_LISTENER, namespace="shop", status=status_of(TUNNEL_ID))
    web_route = make(
        Kind.HTTP_ROUTE, "web", {"parentRefs": [{"name": "gw"}], "hostnames": ["a.example"]}, namespace="shop"
    )
    with Provider() as provider, Proxy() as proxy:
        provider.write(
            {"ingress": [{"hostname": "old.example", "service": marker("tests")}, *OURS_THERE["ingress"][1:]]}
        )
        ref = {"authSecretRef": {"name": "proxy"}, "providerCredentialsSecretRef": {"name": "holder"}}
        config = own_proxy(proxyEndpoints=[proxy.api], tunnelID=TUNNEL_ID, **ref)[1]
        secrets = [HOLDER, secret("proxy", "shop", auth_token=PROXY_TOKEN)]
        items = [gateway_class("class"), (Kind.GATEWAY, told), config, (Kind.HTTP_ROUTE, web_route), *secrets]
        broken = {Entry(Kind.GATEWAY, Key("shop", "other")): Unreadable("spec.listeners: want a list")}
        with controller(items, provider, broken) as ours:
            ours.lead()

            provider.wait_for_hostnames({"a.example", "theirs.example"})
    assert provider.calls["write"] == 1
