"""external-dns in its loop against a controller that misbehaves: it never exits, and the rows end up right.

Each fault strikes while sixty record sets are written, and again while a third of them is removed and some change.
Whatever was committed, lost or refused in between, the end is exactly the wanted rows with their ownership records, and
every foreign row as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest

from tests.kube.kubeenv import Environment
from tests.support.controller import Controller, Fault, Hang, PutRefusal, Reset, Truncate, faults
from tests.support.desired import DESIRED, HeldRow, Wanted
from tests.support.dns_endpoints import KubeApi
from tests.support.external_dns import ExternalDnsLoop
from tests.support.manuals import manual_of
from tests.support.scene import Scene, changed, open_scene
from tests.support.storeviews import UnifiView

each_api = pytest.mark.parametrize("store", ["v2", "integration"], indirect=True)

WANTED: Mapping[str, Wanted] = DESIRED
REMOVED = [name for name, each in WANTED.items() if each.type != "TXT" and len(each.stores) == 3][::3]
CHANGED = {
    "a-three": changed(DESIRED, "a-three", ["192.0.2.11", "192.0.2.111", "192.0.2.113"]),
    "a-wildcard-two": changed(DESIRED, "a-wildcard-two", ["192.0.2.16", "192.0.2.117"]),
    "aaaa-odd-two": changed(DESIRED, "aaaa-odd-two", ["2001:db8::3", "2001:db8::44"]),
    "cname-dot": changed(DESIRED, "cname-dot", ["other.example.net"]),
    "mx-two": changed(DESIRED, "mx-two", ["10 mx1.example.org", "30 mx3.example.org"]),
}
AFTERWARDS: Mapping[str, Wanted] = {name: each for name, each in {**WANTED, **CHANGED}.items() if name not in REMOVED}


def first_time_for_each_name() -> Callable[[str], bool]:
    seen: set[str] = set()

    def is_first(name: str) -> bool:
        is_new = name not in seen
        seen.add(name)
        return is_new

    return is_first


def fail_each_write_once(controller: Controller) -> list[Fault]:
    return [controller.fault(faults.bad_gateway(), "write", predicate=first_time_for_each_name())]


def refuse_some_writes(controller: Controller) -> list[Fault]:
    return [controller.fault(faults.bad_gateway(), "write", nth=nth, count=1) for nth in (3, 10, 25)]


def reset_after_commit(controller: Controller) -> list[Fault]:
    operations = ("create", "update", "delete")
    return [controller.fault(Reset(after_commit=True), operation, nth=2, count=3) for operation in operations]


def limit_the_rate(controller: Controller) -> list[Fault]:
    """Both forms of Retry-After."""
    soon = formatdate(time() + 1, usegmt=True)
    return [
        controller.fault(faults.rate_limited("1"), "write", nth=5, count=8),
        controller.fault(faults.rate_limited(soon), "list", nth=2, count=1),
    ]


def hang_once(controller: Controller) -> list[Fault]:
    """On a set that is created in the first part and changed in the second."""
    return [controller.fault(Hang(), "write", name="three.example.org", count=1)]


def garble_answers(controller: Controller) -> list[Fault]:
    """A listing that is no array, and responses truncated after the write was carried out."""
    return [
        controller.fault(faults.object_instead_of_array(), "list", count=1),
        controller.fault(Truncate(), "write", nth=4, count=3),
    ]


FAULTS = [fail_each_write_once, refuse_some_writes, reset_after_commit, limit_the_rate, hang_once, garble_answers]


def change_desires(scene: Scene) -> None:
    for name in REMOVED:
        scene.objects.delete(name)
    for name in CHANGED.keys() & AFTERWARDS.keys():
        scene.objects.replace(name, CHANGED[name].endpoint)


def settle(chains: Iterable[tuple[Scene, ExternalDnsLoop]], desired: Mapping[str, Wanted]) -> None:
    for scene, loop in chains:
        scene.until_asked_for(desired)
        loop.wait_settled()


def assert_struck(injected: Mapping[str, list[Fault]], scene: Scene) -> None:
    assert any(fault.strikes for fault in injected[scene.store.label]), scene.store.label


def assert_healthy(loop: ExternalDnsLoop) -> None:
    assert loop.is_running, loop.tail
    assert loop.metric("controller_consecutive_soft_errors") == 0


@pytest.fixture
def scenes(
    tmp_path_factory: pytest.TempPathFactory, external_dns_program: Path, kube: Environment, kube_api: KubeApi
) -> Iterator[list[tuple[Scene, Controller]]]:
    """Both APIs side by side: most of the time of these tests is spent waiting for external-dns's next pass."""
    with ExitStack() as stack:
        opened = []
        for api in ("v2", "integration"):
            view = UnifiView(api, tmp_path_factory.mktemp(api))
            stack.callback(view.close)
            scene = stack.enter_context(open_scene(view, external_dns_program, kube, kube_api))
            opened.append((scene, view.controller))
        yield opened


@pytest.mark.parametrize("inject", FAULTS)
def test_the_loop_survives_and_ends_with_exactly_the_wanted_rows(
    scenes: list[tuple[Scene, Controller]], inject: Callable[[Controller], list[Fault]]
) -> None:
    with ExitStack() as stack:
        injected = {scene.store.label: inject(controller) for scene, controller in scenes}
        for scene, _ in scenes:
            scene.desire(WANTED)
        chains = [(scene, stack.enter_context(scene.external_dns.loop())) for scene, _ in scenes]
        settle(chains, WANTED)
        for scene, controller in scenes:
            assert_struck(injected, scene)
            assert scene.store.held() == scene.expected(WANTED), scene.store.label
            controller.faults.clear()
            injected[scene.store.label] = inject(controller)
            change_desires(scene)
        settle(chains, AFTERWARDS)
        for scene, controller in scenes:
            assert_struck(injected, scene)
            assert scene.store.held() == scene.expected(AFTERWARDS), scene.store.label
            assert not controller.resolver_is_broken
        for _, loop in chains:
            assert_healthy(loop)


@each_api
def test_the_loop_survives_an_unreachable_controller(scene: Scene, store: UnifiView) -> None:
    scene.desire(WANTED)
    store.controller.stop()
    with scene.external_dns.loop() as loop:
        loop.wait_for_soft_error()
        store.controller.start()
        settle([(scene, loop)], WANTED)
        assert store.held() == scene.expected(WANTED)
        assert_healthy(loop)


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_external_dns_logs_of_our_errors_what_the_manual_explains(scene: Scene, store: UnifiView) -> None:
    """It shows no more than the status, so this is where a user begins to search."""
    scene.desire({"a-one": WANTED["a-one"]})
    outcomes = {}
    for operation, method, message, answer in (
        ("list", "GET", "failed to get records with code 502", "store unreachable"),
        ("create", "POST", "failed to apply changes", "store unreachable"),
    ):
        fault = store.controller.fault(faults.bad_gateway(), operation)
        outcomes[message] = scene.external_dns.once()
        store.controller.faults.remove(fault)
        scene.daemon.wait_for_message("request refused", method=method, path="/records", answer=answer)
        assert {line["answer"] for line in scene.daemon.lines_of("request refused")} == {answer}
        assert f"`{answer}`" in manual_of("dnswebhook")
    for url, message in (
        (f"{scene.recorder.url}/records/", "unexpected status code 404"),
        (scene.daemon.url("health"), "wrong content type returned from server"),
    ):
        outcomes[message] = replace(scene.external_dns, webhook_url=url).once()

    for message, outcome in outcomes.items():
        assert message in outcome.log
        assert f"`{message}" in manual_of("dnswebhook")


@each_api
def test_a_record_is_not_written_before_its_ownership_record(scene: Scene, store: UnifiView) -> None:
    """A record without one would never be claimed again; all other names are written in the same pass."""
    controller = store.controller
    refusal = controller.fault(faults.bad_gateway(), "create", name="a-ttl.example.org")
    scene.desire(WANTED)

    failed = scene.external_dns.once()
    held = store.held()
    controller.faults.remove(refusal)
    scene.apply_once()

    assert refusal.strikes
    assert failed.exit_code != 0
    assert held == scene.expected({name: each for name, each in WANTED.items() if name != "a-ttl"})
    assert store.held() == scene.expected(WANTED)


@each_api
def test_an_ownership_record_stays_until_its_record_is_removed(scene: Scene, store: UnifiView) -> None:
    controller = store.controller
    scene.desire(WANTED)
    scene.apply_once()
    nothing = scene.desiring_nothing()

    refusal = controller.fault(faults.bad_gateway(), "delete", name="ttl.example.org")
    failed = nothing.once()
    left = store.held()
    controller.faults.remove(refusal)
    emptied = nothing.once()

    kept = {name: each for name, each in WANTED.items() if each.type == "TXT"}
    assert refusal.strikes
    assert failed.exit_code != 0
    assert left == scene.expected({**kept, "a-ttl": WANTED["a-ttl"]})
    assert emptied.exit_code == 0, emptied.log
    assert store.held() == scene.expected(kept)


@each_api
def test_an_ownership_record_that_could_not_be_removed_is_removed_in_a_later_pass(
    scene: Scene, store: UnifiView
) -> None:
    """external-dns does not ask again: its next plan ignores a name without records."""
    controller = store.controller
    only = {"a-ttl": WANTED["a-ttl"]}
    scene.desire(only)
    scene.apply_once()
    nothing = scene.desiring_nothing()

    refusal = controller.fault(faults.bad_gateway(), "delete", name="a-ttl.example.org")
    failed = nothing.once()
    controller.faults.remove(refusal)
    later = nothing.once()

    assert refusal.strikes
    assert failed.exit_code != 0
    assert later.exit_code == 0, later.log
    assert store.held() == scene.expected({})


@each_api
@pytest.mark.parametrize("name", ["ttl.example.org", "a-ttl.example.org"])
def test_a_row_whose_delete_was_confirmed_but_not_done_is_removed_in_a_later_pass(
    scene: Scene, store: UnifiView, name: str
) -> None:
    """external-dns does not ask again for a record without ownership record, nor for an ownership record alone."""
    controller = store.controller
    scene.desire({"a-ttl": WANTED["a-ttl"]})
    scene.apply_once()
    nothing = scene.desiring_nothing()

    confirmation = controller.fault(faults.empty_body(), "delete", name=name, count=1)
    first = nothing.once()
    left = store.held()
    later = nothing.once()

    assert confirmation.strikes
    assert (first.exit_code, later.exit_code) == (0, 0), first.log + later.log
    assert {row.name for row in left - scene.expected({})} == {name}
    assert store.held() == scene.expected({})


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_replaced_ownership_record_that_could_not_be_removed_is_removed_in_a_later_pass(
    scene: Scene, store: UnifiView
) -> None:
    """A controller that changes no row in place adds the new text before it removes the old one."""
    controller = store.controller
    controller.quirks.put_refusal = PutRefusal.EXISTS
    scene.desire({"old": WANTED["a-ttl"]})
    scene.apply_once()
    moved = changed(WANTED, "a-ttl", ["192.0.2.102"])
    scene.objects.delete("old")
    scene.objects.create("new", [moved.endpoint])

    refusal = controller.fault(faults.bad_gateway(), "delete", name=moved.ownership_name)
    failed = scene.external_dns.once()
    controller.faults.remove(refusal)
    scene.apply_once()

    assert refusal.strikes
    assert failed.exit_code != 0
    assert store.held() == scene.expected({"new": moved})


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_half_written_txt_set_that_could_not_be_rolled_back_is_completed_in_a_later_pass(
    scene: Scene, store: UnifiView
) -> None:
    """To external-dns 0.21 such a set has no owner, so it asks for no change there."""
    controller = store.controller
    texts = WANTED["txt-two"]
    scene.desire({"txt-two": texts})

    injected = [
        controller.fault(faults.bad_gateway(), "create", name=texts.name, nth=2),
        controller.fault(faults.bad_gateway(), "delete", name=texts.name),
    ]
    failed = scene.external_dns.once()
    left = store.held()
    for fault in injected:
        controller.faults.remove(fault)
    scene.apply_once()

    assert all(fault.strikes for fault in injected)
    assert failed.exit_code != 0
    assert len([row for row in left if (row.name, row.type) == (texts.name, "TXT")]) == 1
    assert store.held() == scene.expected({"txt-two": texts})


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_manual_record_stays_when_a_left_over_ownership_record_cannot_be_removed(
    scene: Scene, store: UnifiView
) -> None:
    """Otherwise external-dns would see the ownership record, and remove the manual record."""
    controller = store.controller
    one = WANTED["a-one"]
    by_hand = HeldRow(one.name, "A", "198.51.100.1")
    scene.desire({"a-one": one})
    injected = controller.fault(faults.bad_gateway(), "create", name=one.name)
    failed = scene.external_dns.once()
    controller.faults.remove(injected)
    scene.objects.delete("a-one")
    store.add([by_hand])

    injected = controller.fault(faults.bad_gateway(), "delete", name=one.ownership_name)
    scene.external_dns.once()
    controller.faults.remove(injected)
    left = store.held()
    scene.apply_once()

    assert failed.exit_code != 0
    assert injected.strikes
    assert {one.ownership_name} == {row.name for row in left - scene.foreign - {by_hand}}
    assert store.held() == scene.foreign | {by_hand}


def remove(store: UnifiView, row: HeldRow) -> None:
    """As a person would."""
    rows = store.held() - {row}
    store.clear()
    store.add(rows)


@pytest.mark.parametrize("store", ["v2"], indirect=True)
@pytest.mark.parametrize("extra", [[], ["--txt-prefix=ed-"]], ids=["usual", "with a prefix"])
def test_a_record_whose_ownership_record_is_lost_between_listing_and_apply_is_written_with_a_new_one(
    scene: Scene, store: UnifiView, extra: list[str]
) -> None:
    """external-dns sends none, since it saw one. The record would have no owner, and stay for good."""
    external_dns = replace(scene.external_dns, extra=extra)
    scene.desire({"a-dot": WANTED["a-dot"]})
    assert external_dns.once().exit_code == 0, scene.daemon.tail
    wanted = store.held()
    remove(store, HeldRow("dot.example.org", "A", "192.0.2.7"))
    (text,) = store.held() - scene.foreign

    scene.recorder.before_next("POST", "/records", lambda: remove(store, text))
    refused = external_dns.once()
    left = store.held()
    external_dns.once()

    assert refused.exit_code != 0
    assert left == scene.foreign
    assert store.held() == wanted
    assert external_dns.once().is_no_op


@each_api
def test_a_manual_record_added_during_a_pass_stays_and_keeps_its_name(scene: Scene, store: UnifiView) -> None:
    """Otherwise external-dns would own all addresses of the name, and remove this one in the next pass."""
    one, six = WANTED["a-one"], WANTED["aaaa-one"]
    by_hand = HeldRow(one.name, "A", "198.51.100.1")
    scene.desire({"a-one": one, "aaaa-one": six})

    scene.recorder.before_next("POST", "/records", lambda: store.add([by_hand]))
    refused = scene.external_dns.once()
    scene.apply_once()

    assert refused.exit_code != 0
    assert store.held() == scene.expected({"aaaa-one": six}) | {by_hand}
    assert scene.external_dns.once().is_no_op
