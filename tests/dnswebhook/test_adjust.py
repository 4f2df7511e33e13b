"""Wanted endpoints in the form in which the store lists them, so that external-dns's second pass changes nothing."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.adjust import Adjusted, adjust, merge_identified
from dnswebhook.canonical import DropReason
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Capabilities, Changes, Endpoint, Record, RecordSpec
from dnswebhook.plan import make_plan
from dnswebhook.stores.embedded import EmbeddedStore
from dnswebhook.stores.unifi import integrationrows, v2rows
from tests.dnswebhook.planning import NO_PAST, NOTHING_PROTECTED, NOTHING_SERVED
from tests.support.plan_world import World
from tests.support.record_sets import record_sets
from tests.support.strategies import HERITAGE, endpoints

EMBEDDED = EmbeddedStore(Path("unused")).capabilities()  # opens nothing

Translate = Callable[[Iterable[RecordSpec]], tuple[Record, ...]]


def as_rows(specs: Iterable[RecordSpec]) -> tuple[Record, ...]:
    return tuple(Record(f"row-{number}", *msgspec.structs.astuple(spec)) for number, spec in enumerate(specs))


def through_v2(specs: Iterable[RecordSpec]) -> tuple[Record, ...]:
    """What the controller's v2 API would list after these were written, if it stores them as they are."""
    bodies = [msgspec.json.decode(v2rows.body_of(spec)) for spec in specs]
    rows = [msgspec.convert({**body, "_id": f"row-{number}"}, v2rows.V2Row) for number, body in enumerate(bodies)]
    return v2rows.records_of(rows)


def through_integration(specs: Iterable[RecordSpec]) -> tuple[Record, ...]:
    bodies = [msgspec.json.decode(integrationrows.body_of(spec)) for spec in specs]
    rows = [
        msgspec.convert({**body, "id": f"row-{number}"}, integrationrows.PolicyRow)
        for number, body in enumerate(bodies)
    ]
    return integrationrows.records_of(rows)


STORES = [
    pytest.param(EMBEDDED, as_rows, id="embedded"),
    pytest.param(v2rows.CAPABILITIES, through_v2, id="v2"),
    pytest.param(integrationrows.CAPABILITIES, through_integration, id="integration"),
]


def adjusted(endpoint: Endpoint, capabilities: Capabilities = v2rows.CAPABILITIES) -> Endpoint | None:
    return adjust(endpoint, capabilities, NOTHING_PROTECTED.matches, NOTHING_SERVED).endpoint


def adjusted_all(wanted: Iterable[Endpoint], capabilities: Capabilities) -> list[Endpoint]:
    alike: dict[tuple[str, str], list[Endpoint]] = {}
    for endpoint in filter(None, (adjusted(each, capabilities) for each in wanted)):
        alike.setdefault((endpoint.dns_name, endpoint.record_type), []).append(endpoint)
    return [merge_identified(group) for group in alike.values()]


def test_a_canonical_endpoint_is_returned_unchanged() -> None:
    endpoint = Endpoint("app.example.com", "A", ("192.0.2.1", "192.0.2.2"), 300, labels={"owner": "default"})

    assert endpoint == adjusted(endpoint)


def test_name_targets_and_ttl_are_rewritten_and_labels_stay() -> None:
    labels = {"owner": "default", "resource": "ingress/Default/App"}
    wanted = Endpoint("App.Example.com.", "CNAME", ("Host.example.net.", "a.Example.net"), 999_999, labels=labels)

    assert Endpoint("app.example.com", "CNAME", ("a.example.net",), 86400, labels=labels) == adjusted(wanted)


def test_set_identifier_and_properties_are_removed() -> None:
    wanted = Endpoint(
        "app.example.com",
        "A",
        ("192.0.2.1",),
        set_identifier="blue",
        provider_specific=(("alias", "false"), ("webhook/x", "1")),
    )

    assert Endpoint("app.example.com", "A", ("192.0.2.1",)) == adjusted(wanted)


def test_a_protected_name_is_dropped_for_that_reason() -> None:
    protected = ProtectedNames(["*.lan"])

    result = adjust(Endpoint("NAS.lan", "A", ("192.0.2.1",)), v2rows.CAPABILITIES, protected.matches, NOTHING_SERVED)

    assert result.endpoint is None
    assert [DropReason.PROTECTED] == [drop.reason for drop in result.drops]
    assert "nas.lan" == result.drops[0].name


def test_a_label_of_ownership_records_is_removed() -> None:
    """With it, the filter would be asked about the name in the label."""
    wanted = Endpoint("app.example.com", "TXT", ("plain",), labels={"ownedRecord": "nas.lan", "resource": "crd/a/b"})

    assert Endpoint("app.example.com", "TXT", ("plain",), labels={"resource": "crd/a/b"}) == adjusted(wanted)


def test_an_ownership_text_is_dropped_and_the_other_texts_stay() -> None:
    """One in two strings too: the store joins them."""
    texts = ("plain", HERITAGE, '"heritage=exter" "nal-dns,external-dns/owner=home"')
    result = adjust(
        Endpoint("a-nas.example.com", "TXT", texts), v2rows.CAPABILITIES, NOTHING_PROTECTED.matches, NOTHING_SERVED
    )

    assert result.endpoint == Endpoint("a-nas.example.com", "TXT", ("plain",))
    assert [(DropReason.OWNERSHIP_TEXT, 2)] == [(drop.reason, drop.count) for drop in result.drops]


def test_of_texts_that_name_no_owner_none_is_reported() -> None:
    wanted = Endpoint("app.example.com", "TXT", ("plain",))

    assert adjust(wanted, v2rows.CAPABILITIES, NOTHING_PROTECTED.matches, NOTHING_SERVED) == Adjusted(wanted)


def test_an_endpoint_of_ownership_texts_only_is_dropped() -> None:
    endpoint = Endpoint("a-nas.example.com", "TXT", (HERITAGE,))
    result = adjust(endpoint, v2rows.CAPABILITIES, NOTHING_PROTECTED.matches, NOTHING_SERVED)

    assert result.endpoint is None
    assert [(DropReason.OWNERSHIP_TEXT, HERITAGE), (DropReason.NO_TARGETS, "")] == [
        (drop.reason, drop.target) for drop in result.drops
    ]


def test_an_endpoint_without_a_valid_target_is_dropped_with_the_reasons() -> None:
    endpoint = Endpoint("app.example.com", "A", ("x",))
    result = adjust(endpoint, v2rows.CAPABILITIES, NOTHING_PROTECTED.matches, NOTHING_SERVED)

    assert result.endpoint is None
    assert [DropReason.INVALID_TARGET, DropReason.NO_TARGETS] == [drop.reason for drop in result.drops]


def test_the_longest_name_leaves_room_for_the_prefix_of_the_ownership_record() -> None:
    longest = ".".join(["x" * 49] * 4 + ["y" * 47])

    assert 247 == len(longest)
    assert adjusted(Endpoint(longest, "CNAME", ("host.example.net",))) is not None
    assert adjusted(Endpoint(f"{longest}y", "CNAME", ("host.example.net",))) is None


class CountedTarget(str):
    """Counts how often it is looked up."""

    lookups = 0

    def __hash__(self) -> int:
        CountedTarget.lookups += 1
        return super().__hash__()


def test_joining_looks_at_each_target_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedTarget, "lookups", 0)
    targets = [CountedTarget(f"192.0.2.{number}") for number in range(100)]

    joined = merge_identified([Endpoint("app.example.com", "A", (target,)) for target in targets])

    assert tuple(sorted(targets)) == joined.targets
    assert 100 == CountedTarget.lookups


def test_endpoints_that_differ_by_set_identifier_are_joined() -> None:
    first = Endpoint("app.example.com", "A", ("192.0.2.2",), 300, labels={"owner": "one"})
    second = Endpoint("app.example.com", "A", ("192.0.2.1", "192.0.2.2"), 60, labels={"owner": "two"})

    joined = Endpoint("app.example.com", "A", ("192.0.2.1", "192.0.2.2"), 60, labels={"owner": "one"})

    assert joined == merge_identified([first, second])


def test_a_joined_alias_keeps_the_lowest_target_and_a_configured_ttl() -> None:
    first = Endpoint("app.example.com", "CNAME", ("b.example.net",))
    second = Endpoint("app.example.com", "CNAME", ("a.example.net",), 300)

    assert Endpoint("app.example.com", "CNAME", ("a.example.net",), 300) == merge_identified([first, second])


@pytest.mark.parametrize(("capabilities", "translate"), STORES)
@given(wanted=endpoints())
@settings(max_examples=150, deadline=None)
def test_adjusting_twice_is_adjusting_once(wanted: Endpoint, capabilities: Capabilities, translate: Translate) -> None:
    once = adjusted(wanted, capabilities)

    if once is not None:
        assert once == adjusted(once, capabilities)
        assert once.labels == wanted.labels


@pytest.mark.parametrize(("capabilities", "translate"), STORES)
@given(wanted=st.lists(endpoints(), max_size=6))
@settings(max_examples=100, deadline=None)
def test_adjusted_endpoints_are_listed_as_they_were_written(
    wanted: list[Endpoint], capabilities: Capabilities, translate: Translate
) -> None:
    desired = _one_kind_per_name(adjusted_all(wanted, capabilities))
    world = World(())
    plan = make_plan(Changes(create=tuple(desired)), (), capabilities, DomainFilter(), NOTHING_PROTECTED, NO_PAST)
    world.play(plan)

    listed = record_sets(translate(record.spec for record in world.rows.values()))

    assert () == plan.refusals
    assert sorted(map(_as_compared, desired)) == sorted(
        _as_compared(endpoint, wanted_ttls=_ttls(desired)) for endpoint in listed
    )


@pytest.mark.parametrize(("capabilities", "translate"), STORES)
@given(wanted=st.lists(endpoints(), max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_second_pass_over_what_was_written_plans_nothing(
    wanted: list[Endpoint], capabilities: Capabilities, translate: Translate
) -> None:
    desired = tuple(_one_kind_per_name(adjusted_all(wanted, capabilities)))
    world = World(())
    world.play(make_plan(Changes(create=desired), (), capabilities, DomainFilter(), NOTHING_PROTECTED, NO_PAST))
    held = translate(record.spec for record in world.rows.values())

    again = Changes(update_old=tuple(record_sets(held)), update_new=desired)

    assert () == make_plan(again, held, capabilities, DomainFilter(), NOTHING_PROTECTED, NO_PAST).strands


def _one_kind_per_name(desired: Iterable[Endpoint]) -> list[Endpoint]:
    """As external-dns's conflict resolver leaves them: no CNAME beside anything else."""
    kept = list(desired)
    others = {endpoint.dns_name for endpoint in kept if endpoint.record_type != "CNAME"}
    return [endpoint for endpoint in kept if endpoint.record_type != "CNAME" or endpoint.dns_name not in others]


def _ttls(desired: Iterable[Endpoint]) -> dict[tuple[str, str], int]:
    return {(endpoint.dns_name, endpoint.record_type): endpoint.ttl_s for endpoint in desired}


def _as_compared(endpoint: Endpoint, wanted_ttls: dict[tuple[str, str], int] | None = None) -> tuple[object, ...]:
    """What external-dns compares: targets without order and letter case, TTL unless none is wanted, properties."""
    key = (endpoint.dns_name, endpoint.record_type)
    ttl_s = endpoint.ttl_s if wanted_ttls is None or wanted_ttls.get(key) else 0
    return (*key, sorted(map(str.lower, endpoint.targets)), ttl_s, endpoint.set_identifier, endpoint.provider_specific)
