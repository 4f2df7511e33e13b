"""The whole translation over generated objects: it never raises, and neither order nor history matter."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy import document
from tests.support.counting import calls_of
from tests.tunnelgw.translate.objects import Item, items, unique, worlds
from tests.tunnelgw.translate.routeobjects import Plain
from tests.tunnelgw.translate.world import object_of, service, translation_of
from tunnelgw.deliver.targets import Discovery, named_tunnels, planes, tunnels
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.options import DEFAULT_CONTROLLER, DEFAULT_NAMESPACE
from tunnelgw.sources.tables import Tables
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.verdicts import GatewayVerdict, ListenerSetVerdict, ObjectId, RouteVerdict

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def said(translation: Translation, snapshot: Snapshot) -> dict[Any, Any]:
    """All that a translation says."""
    verdicts = {
        ObjectId(kind, key): translation.verdict(ObjectId(kind, key)) for kind in Kind for key in snapshot.all(kind)
    }
    documents = {plane: content.encode(1) for plane, content in translation.documents.items()}
    return {**verdicts, **documents, **{tunnel: translation.hosts(tunnel) for tunnel in translation.tunnels}}


@UNHURRIED
@given(worlds())
def test_every_document_is_one_that_the_proxy_takes(world: list[Item]) -> None:
    translation = translation_of(Snapshot.of(world))

    for content in translation.documents.values():
        text = content.encode(1)
        assert msgspec.json.encode(document.decode(text)) == text


@UNHURRIED
@given(worlds())
def test_verdicts_fit_the_form_of_a_status(world: list[Item]) -> None:
    snapshot = Snapshot.of(world)
    translation = translation_of(snapshot)

    for id_, verdict in said(translation, snapshot).items():
        groups = []
        match verdict:
            case GatewayVerdict() | ListenerSetVerdict():
                groups = [verdict.findings, *(listener.findings for listener in verdict.listeners)]
            case RouteVerdict():
                groups = [parent.findings for parent in verdict.parents]
        for findings in groups:
            types = [finding.type for finding in findings]
            assert len(types) == len(set(types)) <= 7, id_
            assert "Accepted" in types
            assert all(len(finding.message) < 32768 for finding in findings)


@UNHURRIED
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(world: list[Item], chance: random.Random) -> None:
    shuffled = chance.sample(world, len(world))
    first, second = Snapshot.of(world), Snapshot.of(shuffled)

    assert said(translation_of(first), first) == said(translation_of(second), second)


DISCOVERY = Discovery(DEFAULT_CONTROLLER, DEFAULT_NAMESPACE, service=Key("a", "x"))


def targets(translation: Translation) -> list[Any]:
    return [translation.keep(query, DISCOVERY) for query in (planes, tunnels, named_tunnels)]


edits = st.lists(st.one_of(items(), st.integers(0, 99)), min_size=1, max_size=3)
"""New or changed objects, and numbers of objects that go."""


@UNHURRIED
@given(worlds(), st.lists(edits, min_size=1, max_size=5))
def test_after_each_edit_the_translation_equals_one_made_afresh(
    world: list[Item], steps: list[list[Item | int]]
) -> None:
    tables = Tables()
    for kind, item in world:
        tables.put(kind, item)
    snapshot, _ = tables.take()
    translation = translation_of(snapshot)
    before, _ = said(translation, snapshot), targets(translation)
    for step in steps:
        for edit in step:
            if isinstance(edit, int):
                present = [(kind, key) for kind in Kind for key in tables.keys(kind)]
                if present:
                    tables.remove(*present[edit % len(present)])
            else:
                tables.put(*edit)
        snapshot, changes = tables.take()
        told = translation.update(snapshot, changes.changed)
        now = said(translation, snapshot)

        afresh = translation_of(snapshot)
        assert now == said(afresh, snapshot)
        assert targets(translation) == targets(afresh)
        different = {name for name in before.keys() & now.keys() if before[name] != now[name]}
        different |= {name for name in before.keys() ^ now.keys() if not _says_nothing(before.get(name, now.get(name)))}
        assert different <= {*told.verdicts, *told.data_planes, *told.tunnels}
        before = now


def _says_nothing(verdict: Any) -> bool:
    return verdict is None or verdict == RouteVerdict(()) or getattr(verdict, "ancestors", None) == ()


@UNHURRIED
@given(worlds())
def test_when_all_objects_are_gone_nothing_is_left(world: list[Item]) -> None:
    tables = Tables()
    for kind, item in unique(world):
        tables.put(kind, item)
    snapshot, _ = tables.take()
    translation = translation_of(snapshot)
    for kind, item in world:
        tables.remove(kind, item.key)
    snapshot, changes = tables.take()
    translation.update(snapshot, changes.changed)

    assert said(translation, snapshot) == {"shared": b'{"version":1}'}
    assert not [*translation.routes]


def test_work_after_an_edit_does_not_grow_with_the_number_of_objects() -> None:
    for edit in (_route(3, "/new"), _endpoints(3, "10.9.9.9"), _route(9999, "/")):
        assert _evaluations(edit, routes=20, gateways=2) == _evaluations(edit, routes=400, gateways=20) <= 4


def test_work_after_an_edit_of_a_listenerset_does_not_grow_with_those_beside_it() -> None:
    assert _evaluations_beside(20) == _evaluations_beside(400) <= 20


@pytest.mark.parametrize("form", ["x{}[ab]*a[ab]{{20}}", "x{}" + 300 * "."], ids=["states", "length"])
def test_expressions_that_are_refused_are_tried_once_however_many_gateways_their_route_names(form: str) -> None:
    once, often = (calls_of(partial(_with_expressions, form, 100 * count, 10, count)) for count in (1, 8))

    assert often - _idle_calls(8) < 1.5 * (once - _idle_calls(1))


@pytest.mark.parametrize("form", ["x{}" + 1000 * ".", "x{}[" + 500 * "ab" + "]"], ids=["refused", "sound"])
def test_a_route_has_no_more_long_expressions_tried_than_it_has_room_for(form: str) -> None:
    calls = [calls_of(partial(_with_expressions, form, 1000 * at, 100 * at, 1)) for at in (1, 10)]

    assert calls[1] < 3 * calls[0]


def _idle_calls(gateways: int) -> int:
    return calls_of(partial(_with_expressions, "", 0, 10, gateways))


def _with_expressions(form: str, first: int, count: int, gateways: int) -> None:
    """Translate a route with such expressions; of an empty `form` with plain values."""
    objects = [*_many(0, gateways), _route(0, "/")]
    spec = objects[-1]["spec"]
    spec["parentRefs"] = [{"name": f"gw{number}"} for number in range(gateways)]
    spec["rules"][0]["matches"] = [
        {"headers": [{"name": "a", "value": form.format(number), "type": "RegularExpression" if form else "Exact"}]}
        for number in range(first, first + count)
    ]
    translation_of(Snapshot.of(map(object_of, objects)))


@pytest.mark.parametrize(
    ("before", "after", "is_other"),
    [
        (("/", "10.0.0.1"), ("/new", "10.0.0.1"), True),
        (("/", "10.0.0.1"), ("/", "10.0.0.2"), True),
        (("/", "10.0.0.1"), (None, "10.0.0.1"), True),
        ((None, "10.0.0.1"), ("/", "10.0.0.1"), True),
        (("/", "10.0.0.1"), ("/", "10.0.0.1"), False),
    ],
    ids=["path", "endpoint", "route gone", "route new", "the same again"],
)
def test_a_document_is_reported_as_changed_when_its_content_differs(
    before: tuple[str | None, str], after: tuple[str | None, str], is_other: bool
) -> None:
    tables = Tables()
    for plain in _many(1, 1):
        tables.put(*object_of(plain))
    # Beside it one that stays, so that no backend comes or goes.
    tables.put(*object_of(_route(20, "/")))
    translation = translation_of(tables.take()[0])
    texts = []
    for path, address in (before, after):
        tables.put(*object_of(_endpoints(0, address)))
        kind, route = object_of(_route(0, path or "/"))
        if path is None:
            tables.remove(kind, route.key)
        else:
            tables.put(kind, route)
        snapshot, changes = tables.take()
        told = translation.update(snapshot, changes.changed)
        texts.append(translation.documents["shared"].encode(1))

    assert (is_other, is_other) == (texts[0] != texts[1], "shared" in told.data_planes)


def test_a_backend_that_changes_when_another_data_plane_begins_to_use_it_changes_for_both() -> None:
    own = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}
    direct = {"addresses": ["192.0.2.10"]}
    config = {"authSecretRef": {"name": "token"}, "proxyEndpoints": ["http://192.0.2.9:8082"], "direct": direct}
    tables = Tables()
    numbers = range(20)  # some of which an update settles after the routes that use them, in whatever order it does
    for plain in _many(len(numbers), 2):
        if plain["metadata"]["name"] == "gw1":
            plain["spec"]["infrastructure"] = {"parametersRef": own}
        tables.put(*object_of(plain))
    tables.put(*object_of({"kind": "GatewayConfig", "metadata": {"name": "own"}, "spec": config}))
    translation = translation_of(tables.take()[0])

    for number in numbers:
        spec = {**_route(number, "/")["spec"], "parentRefs": [{"name": f"gw{(number + 1) % 2}"}]}
        tables.put(*object_of({"kind": "HTTPRoute", "metadata": {"name": f"other{number}"}, "spec": spec}))
        tables.put(*object_of(_endpoints(number, f"10.7.7.{number}")))
    snapshot, changes = tables.take()
    told = translation.update(snapshot, changes.changed)

    texts = {plane: content.encode(1) for plane, content in translation.documents.items()}
    assert texts.keys() == told.data_planes == {"shared", "apps/gw1"}
    for text in texts.values():
        assert [number for number in numbers if f'"10.7.7.{number}:8080"'.encode() not in text] == []


def _evaluations(edit: dict[str, Any], routes: int, gateways: int) -> int:
    """How many queries one edit evaluates, with so many routes on so many Gateways."""
    tables = Tables()
    for plain in _many(routes, gateways):
        tables.put(*object_of(plain))
    snapshot, _ = tables.take()
    translation = translation_of(snapshot)
    before, text = translation.evaluations, translation.documents["shared"].encode(1)
    tables.put(*object_of(edit))
    snapshot, changes = tables.take()
    told = translation.update(snapshot, changes.changed)

    assert translation.documents["shared"].encode(1) != text
    assert told.data_planes == {"shared"}
    return translation.evaluations - before


def _evaluations_beside(sets: int) -> int:
    """How many queries the edit of a ListenerSet evaluates, where its Gateway has so many of them."""
    tables = Tables()
    for plain in (*TUNNEL_CLASS, _gateway("gw", "own.example")):
        tables.put(*object_of(plain))
    for at in range(sets):
        tables.put(*object_of(_listener_set(at)[0]))
    snapshot, _ = tables.take()
    translation = translation_of(snapshot)
    before = translation.evaluations
    tables.put(*object_of(_listener_set(3, "new.example")[0]))
    snapshot, changes = tables.take()
    told = translation.update(snapshot, changes.changed)

    assert b"new.example" in translation.documents["shared"].encode(1)
    assert told.data_planes == {"shared"}
    return translation.evaluations - before


def _many(routes: int, gateways: int) -> Iterator[dict[str, Any]]:
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "c"}
    spec = {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}
    yield {"kind": "GatewayClass", "metadata": {"name": "c"}, "spec": spec}
    addresses = [f"192.0.2.{number}" for number in range(gateways)]
    yield {"kind": "GatewayClassConfig", "metadata": {"name": "c"}, "spec": {"direct": {"addresses": addresses}}}
    for number in range(gateways):
        listener = {"name": "web", "port": 80, "protocol": "HTTP"}
        gateway = {"gatewayClassName": "c", "listeners": [listener]}
        yield {"kind": "Gateway", "metadata": {"name": f"gw{number}"}, "spec": gateway}
    for number in range(routes):
        yield from (service(f"s{number}")[0], _endpoints(number, "10.0.0.1"), _route(number, "/"))


def _route(number: int, path: str) -> dict[str, Any]:
    rule = {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": f"s{number % 20}", "port": 80}]}
    spec = {"parentRefs": [{"name": f"gw{number % 2}"}], "hostnames": [f"h{number}.example"], "rules": [rule]}
    return {"kind": "HTTPRoute", "metadata": {"name": f"r{number}"}, "spec": spec}


def _endpoints(number: int, address: str) -> dict[str, Any]:
    return service(f"s{number}", [address])[1]


TUNNEL_CLASS: list[Plain] = [
    {
        "kind": "GatewayClass",
        "metadata": {"name": "c"},
        "spec": {
            "controllerName": DEFAULT_CONTROLLER,
            "parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "c"},
        },
    },
    {
        "kind": "GatewayClassConfig",
        "metadata": {"name": "c"},
        "spec": {"tunnelID": "00000000-0000-4000-8000-000000000001", "direct": {"addresses": ["192.0.2.1"]}},
    },
]


def _gateway(name: str, hostname: str) -> Plain:
    listener = {"name": "l", "port": 80, "protocol": "HTTP", "hostname": hostname}
    everybody = {"namespaces": {"from": "All"}}
    spec = {"gatewayClassName": "c", "listeners": [listener], "allowedListeners": everybody}
    return {"kind": "Gateway", "metadata": {"name": name}, "spec": spec}


def _listener_set(at: int, hostname: str = "") -> list[Plain]:
    listener = {"name": "l", "port": 443, "protocol": "HTTPS", "hostname": hostname or f"h{at}.example"}
    spec = {"parentRef": {"name": "gw"}, "listeners": [listener]}
    return [{"kind": "ListenerSet", "metadata": {"name": f"set{at}"}, "spec": spec}]


def _grant_and_its_route(at: int) -> list[Plain]:
    origin = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": f"ns{at}"}
    grant = {"from": [origin], "to": [{"group": "", "kind": "Service"}]}
    rule = {"backendRefs": [{"name": "s", "namespace": "apps", "port": 80}]}
    route = {"parentRefs": [{"name": "gw", "namespace": "apps"}], "rules": [rule]}
    return [
        {"kind": "ReferenceGrant", "metadata": {"name": f"g{at}"}, "spec": grant},
        {"kind": "HTTPRoute", "metadata": {"name": "r", "namespace": f"ns{at}"}, "spec": route},
    ]


def _policies(at: int) -> list[Plain]:
    """All of the second port come after all of the first."""

    def policy(port: str) -> Plain:
        target = {"group": "", "kind": "Service", "name": "s", "sectionName": port}
        validation = {"hostname": "s.example", "wellKnownCACertificates": "System"}
        spec = {"targetRefs": [target], "validation": validation}
        return {"kind": "BackendTLSPolicy", "metadata": {"name": f"{port}{at}"}, "spec": spec}

    return [policy("first"), policy("second")]


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(lambda at: [_gateway(f"g{at}", f"h{at}.example")], id="Gateways on one socket"),
        pytest.param(_listener_set, id="ListenerSets of one Gateway"),
        pytest.param(_grant_and_its_route, id="grants of one namespace, each with a route"),
        pytest.param(_policies, id="policies of one Service"),
    ],
)
def test_work_grows_linearly_with_the_number_of_objects(one: Callable[[int], list[Plain]]) -> None:
    route = {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": "s", "port": 80}]}]}
    served = {"kind": "HTTPRoute", "metadata": {"name": "served"}, "spec": route}

    def calls(count: int) -> int:
        ports = [{"name": "first", "port": 80}, {"name": "second", "port": 81}]
        there = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}}
        shared = [*TUNNEL_CLASS, _gateway("gw", "gw.example"), there, served]
        snapshot = Snapshot.of(map(object_of, [*shared, *(item for at in range(count) for item in one(at))]))
        return calls_of(lambda: translation_of(snapshot))

    first, second, third = (calls(count) for count in (50, 150, 250))

    assert third - second < 1.05 * (second - first)
