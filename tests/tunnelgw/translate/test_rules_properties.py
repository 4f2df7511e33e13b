"""What holds for the rules of any routes whatever they refer to."""

import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document
from proxy.routing import compile_table
from proxy.supervisor.certificates import CertificateCheck
from tests.tunnelgw.golden.certificates import with_certificates
from tests.tunnelgw.translate.routeobjects import POLICIES, REFUSED_ROUTES, ROUTES, SLICES, WORLDS, Plain, worlds
from tests.tunnelgw.translate.world import NAMESPACE, World, object_of
from tunnelgw.model.conditions import ConditionType, Finding, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry, Snapshot, index_entries
from tunnelgw.translate.policies import policy_verdict

MAX_MESSAGE_CHARS = 32_768
"""Of a condition, by Gateway API."""


def world_of(plain: list[Plain]) -> World:
    return World(map(object_of, with_certificates(plain)))


def outputs(world: World) -> Any:
    """All that is said of routes and policies, and the document's parts in one order."""
    made = world.document()
    backends = sorted(made.backends, key=lambda backend: backend.name)
    policies = {key: world.queries.ask(policy_verdict, key) for key in world.snapshot.all(Kind.BACKEND_TLS_POLICY)}
    return made.routes, backends, world.findings(), policies


@given(WORLDS)
@settings(max_examples=80, deadline=None)
def test_the_proxy_takes_every_document(plain: list[Plain]) -> None:
    made = world_of(plain).document()

    CertificateCheck().check(document.tls_parts(made))
    compile_table(made)


@given(worlds(st.one_of(ROUTES, REFUSED_ROUTES)))
@settings(max_examples=60, deadline=None)
def test_conditions_agree_with_what_is_served(plain: list[Plain]) -> None:
    world = world_of(plain)
    for kind, key in world.route_ids():
        content = world.content(kind, key)
        types = [finding.type for finding in content.findings]
        is_refused = ConditionType.ACCEPTED in types
        is_answering = [bool(rule.respond) for rule in content.rules]

        assert types.count(ConditionType.RESOLVED_REFS) == 1
        assert len(types) == len(set(types)) <= 2
        assert all(len(finding.message) <= MAX_MESSAGE_CHARS for finding in content.findings)
        if is_refused:
            assert all(is_answering)
            assert content.backends == ()
        elif _is_clean(content.findings):
            assert not any(is_answering)
            assert content.rules


def _is_clean(findings: tuple[Finding, ...]) -> bool:
    return all(finding.type is ConditionType.RESOLVED_REFS and finding.status is Status.TRUE for finding in findings)


@given(WORLDS)
@settings(max_examples=40, deadline=None)
def test_a_route_names_the_backends_that_its_rules_use(plain: list[Plain]) -> None:
    world = world_of(plain)
    for kind, key in world.route_ids():
        content = world.content(kind, key)
        used = {target.backend for rule in content.rules for target in _targets(rule) if target.backend}

        assert {backend.name for backend in content.backends} == used
        assert len(content.backends) == len(used)


def _targets(rule: document.Rule) -> Iterator[document.BackendTarget]:
    yield from rule.backends
    for filters in (rule.filters, *(ref.filters for ref in rule.backends)):
        yield from (mirror.backend for mirror in filters.request_mirrors)


@given(WORLDS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_objects_makes_no_difference(plain: list[Plain], chance: random.Random) -> None:
    shuffled = chance.sample(plain, len(plain))

    assert outputs(world_of(shuffled)) == outputs(world_of(plain))


IN_USE: list[Plain] = [
    {
        "kind": "Gateway",
        "metadata": {"name": "gw"},
        "spec": {"gatewayClassName": "tunnel", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    },
    {
        "kind": "HTTPRoute",
        "metadata": {"name": "to-both"},
        "spec": {
            "parentRefs": [{"name": "gw"}],
            "rules": [{"backendRefs": [{"name": name, "port": 80} for name in ("v1", "v2")]}],
        },
    },
]
"""By these, both Services of their namespace are in use at a Gateway, so that policies have something to report."""


def _of_one_in_use(policy: Plain) -> Plain:
    targets = [*policy["spec"]["targetRefs"], {"group": "", "kind": "Service", "name": "v1"}]
    return {
        **policy,
        "metadata": {**policy["metadata"], "namespace": NAMESPACE},
        "spec": {**policy["spec"], "targetRefs": targets},
    }


@given(WORLDS, POLICIES.map(_of_one_in_use))
@settings(max_examples=40, deadline=None)
def test_policies_report_two_conditions_to_each_gateway(plain: list[Plain], policy: Plain) -> None:
    world = world_of([*plain, policy, *IN_USE])
    keys = world.snapshot.all(Kind.BACKEND_TLS_POLICY)
    ancestors = [ancestor for key in keys for ancestor in world.queries.ask(policy_verdict, key).ancestors]

    assert ancestors
    for ancestor in ancestors:
        types = [finding.type for finding in ancestor.findings]
        assert types == [ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS]


@given(WORLDS, st.lists(st.one_of(ROUTES, SLICES), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_after_edits_all_results_equal_those_computed_afresh(plain: list[Plain], edits: list[Plain]) -> None:
    world = world_of(plain)
    outputs(world)
    objects = {(kind, item.key): (kind, item) for kind, item in map(object_of, with_certificates(plain))}
    for edit in edits:
        kind, item = object_of(edit)
        before = objects.get((kind, item.key))
        objects[kind, item.key] = kind, item
        entries = {Entry(kind, item.key)}
        for version in (item, *([before[1]] if before else [])):
            entries |= {Entry(index, key) for index, key in index_entries(version)}
        world.snapshot = Snapshot.of(objects.values())
        world.queries.update(world.snapshot, entries)

        assert outputs(world) == outputs(World(objects.values()))


@given(WORLDS, SLICES)
@settings(max_examples=40, deadline=None)
def test_endpoints_change_no_route(plain: list[Plain], change: Plain) -> None:
    changed = [item for item in plain if item["kind"] != "EndpointSlice"]

    assert _routes(world_of([*changed, change])) == _routes(world_of(plain))


def _routes(world: World) -> tuple[tuple[document.Route, ...], dict[str, tuple[Finding, ...]]]:
    return world.document().routes, world.findings()
