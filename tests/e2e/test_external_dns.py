"""The real external-dns keeps sixty record sets of every type through the real daemon, on each store.

Registry `txt`, as operators run it: a pass that follows another changes nothing, a changed target costs one write, and
what somebody else made stays.
"""

import pytest
from msgspec.structs import replace

from dnswebhook.model import Endpoint
from tests.support.desired import DESIRED, TEXTS, ZONE, HeldRow, Wanted, wanted
from tests.support.scene import Scene, Stage, changed


def test_sixty_record_sets_are_written_in_one_pass_and_the_second_pass_writes_nothing(scene: Scene) -> None:
    scene.desire(DESIRED)

    scene.apply_once()
    after_first = scene.store.held()
    scene.start_counting()
    second = scene.external_dns.once()

    assert after_first == scene.expected(DESIRED)
    assert second.is_no_op, second.log
    assert scene.recorder.count("POST", "/adjustendpoints") == 1
    assert scene.recorder.count("POST", "/records") == 0
    assert scene.store.writes == 0
    assert scene.store.held() == after_first


# external-dns 0.21 cannot change a TXT set under registry `txt`: it does not recognise its ownership record.
ONE_WRITE_CHANGES = {
    "an address": changed(DESIRED, "a-one", ["192.0.2.101"]),
    "one address of three": changed(DESIRED, "a-three", ["192.0.2.11", "192.0.2.12", "192.0.2.113"]),
    "an added address": changed(DESIRED, "a-wildcard", ["192.0.2.15", "192.0.2.115"]),
    "a removed address": changed(DESIRED, "a-wildcard-two", ["192.0.2.16"]),
    "an IPv6 address": changed(DESIRED, "aaaa-odd", ["2001:db8::a:0:0:3"]),
    "a TTL": changed(DESIRED, "a-ttl", ttl_s=301),
    "an alias": changed(DESIRED, "cname-one", ["other.example.net"]),
    "an alias of a Unicode name": changed(DESIRED, "cname-idn", ["other.example.net"]),
    "one mail exchanger of two": changed(DESIRED, "mx-two", ["10 mx1.example.org", "20 mx3.example.org"]),
}


def object_of(change: Wanted) -> str:
    return next(name for name, each in DESIRED.items() if (each.name, each.type) == (change.name, change.type))


def test_one_changed_target_is_exactly_one_write(scene: Scene) -> None:
    scene.desire(DESIRED)
    scene.apply_once()
    now = dict(DESIRED)

    writes = {}
    for what, change in ONE_WRITE_CHANGES.items():
        name = object_of(change)
        now[name] = change
        scene.objects.replace(name, change.endpoint)
        scene.start_counting()
        scene.apply_once()
        writes[what] = scene.store.writes
        assert scene.store.held() == scene.expected(now), what

    assert writes == dict.fromkeys(ONE_WRITE_CHANGES, 1)
    assert scene.external_dns.once().is_no_op


def test_without_desired_records_exactly_those_that_external_dns_owns_are_removed(scene: Scene) -> None:
    scene.desire(DESIRED)
    scene.apply_once()
    nothing = scene.desiring_nothing()

    emptied = nothing.once()
    left = scene.store.held()
    scene.start_counting()
    again = nothing.once()

    assert emptied.exit_code == 0, emptied.log
    # external-dns 0.21 does not recognise its own ownership records of TXT sets, so both stay.
    assert left == scene.expected(TEXTS)
    assert again.is_no_op, again.log
    assert scene.recorder.count("POST", "/records") == 0
    assert scene.store.writes == 0


def test_a_name_changes_its_type_in_one_pass(scene: Scene) -> None:
    """Both ways; the simulated controller and the database refuse a CNAME beside other records."""
    to_address = wanted("A", "alias.example.org", ["192.0.2.120"])
    to_alias = wanted("CNAME", "three.example.org", ["moved.example.net"])
    scene.desire(DESIRED)
    scene.apply_once()

    scene.objects.replace("cname-one", to_address.endpoint)
    scene.objects.replace("a-three", to_alias.endpoint)
    scene.apply_once()

    assert scene.store.held() == scene.expected({**DESIRED, "cname-one": to_address, "a-three": to_alias})
    assert scene.external_dns.once().is_no_op


@pytest.mark.parametrize("store", ["embedded"], indirect=True)
def test_a_txt_set_on_the_name_prevents_a_change_from_addresses_to_cname(scene: Scene) -> None:
    """As the manual says: to external-dns 0.21 its own TXT set has no owner, so it adds nothing beside it."""
    name = "texted.example.org"
    text = {"text": wanted("TXT", name, ["some-text"])}
    address = {"a": wanted("A", name, ["192.0.2.60"]), "aaaa": wanted("AAAA", name, ["2001:db8::60"])}
    alias = {"a": wanted("CNAME", name, ["host.example.net"])}
    scene.desire(address | text)
    scene.apply_once()
    assert scene.store.held() == scene.expected(address | text)

    for gone in ("aaaa", "text"):
        scene.objects.delete(gone)
    scene.objects.replace("a", alias["a"].endpoint)
    scene.apply_once()
    scene.apply_once()

    assert scene.store.held() == scene.expected(text)


@pytest.mark.parametrize("store", ["embedded"], indirect=True)
def test_an_apex_keeps_its_ownership_record_outside_the_domain_filter(stage: Stage) -> None:
    """The ownership record of `example.org` is `a-example.org`, a sibling of the zone."""
    apex = {"a-apex": DESIRED["a-apex"]}
    with stage(env={"DOMAIN_FILTER": ZONE}) as scene:
        scene.objects.create_all({"a-apex": apex["a-apex"].endpoint})
        scene.apply_once()
        second = scene.external_dns.once()
        held = scene.store.held()
        emptied = scene.desiring_nothing().once()

        assert held == scene.expected(apex)
        assert second.is_no_op, second.log
        assert emptied.exit_code == 0, emptied.log
        assert scene.store.held() == scene.foreign


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_dnsendpoint_without_a_dns_name_does_not_prevent_other_records(scene: Scene) -> None:
    """Otherwise anybody who may create one in a namespace could make external-dns exit at each start."""
    only = {"a-one": DESIRED["a-one"]}
    scene.desire(only)
    scene.objects.create("nameless", [Endpoint("", "A", ("192.0.2.99",))])

    scene.apply_once()

    assert scene.store.held() == scene.expected(only)
    assert scene.external_dns.once().is_no_op


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_dnsendpoint_with_an_ownership_text_does_not_claim_a_record_made_by_hand(scene: Scene) -> None:
    """Otherwise external-dns would remove it. It accepts such a text wherever the decisive words stand."""
    ours = f"heritage=external-dns,external-dns/owner={scene.external_dns.owner_id}"
    only = {"a-one": DESIRED["a-one"]}
    scene.desire(only)
    scene.objects.create("claim", [Endpoint("a-by-hand.example.org", "TXT", (f'"{ours}"',))])
    scene.objects.create("claim-too", [Endpoint("mx-by-hand.example.org", "TXT", (f"any text,{ours}",))])

    scene.apply_once()

    assert scene.external_dns.once().is_no_op
    assert scene.store.held() == scene.expected(only)


@pytest.mark.parametrize("store", ["v2"], indirect=True)
def test_a_dnsendpoint_with_a_label_of_ownership_records_is_written_like_any_other(stage: Stage) -> None:
    """The label names another record, outside the filter."""
    text = wanted("TXT", "labelled.example.org", ["plain"])
    with stage(env={"DOMAIN_FILTER": ZONE}) as scene:
        labelled = replace(text.endpoint, labels={"ownedRecord": "labelled.example.net"})
        scene.objects.create("labelled", [labelled])

        scene.apply_once()

        assert HeldRow(text.name, "TXT", "plain") in scene.store.held()
        assert scene.external_dns.once().is_no_op
