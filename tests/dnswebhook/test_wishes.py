"""The four lists of a Changes body folded into one wish per record set."""

import pytest

from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Changes, Endpoint
from dnswebhook.ownership import Reading
from dnswebhook.wishes import RefusalReason, SkipReason, Wishes, collect_wishes
from tests.dnswebhook.planning import NOTHING_SERVED
from tests.support.memory_store import CAPABILITIES
from tests.support.strategies import HERITAGE


def a(name: str, *targets: str, ttl_s: int = 0) -> Endpoint:
    return Endpoint(name, "A", targets, ttl_s)


def ownership(of: str, kind: str = "a") -> Endpoint:
    return Endpoint(f"{kind}-{of}", "TXT", (HERITAGE,), labels={"ownedRecord": of})


def collected(changes: Changes, *include: str, protect: tuple[str, ...] = ()) -> Wishes:
    return collect_wishes(changes, CAPABILITIES, DomainFilter(include), ProtectedNames(protect), NOTHING_SERVED)


def test_create_and_update_new_are_wanted_delete_and_update_old_may_be_removed() -> None:
    found = collected(
        Changes(
            create=(a("c.example.com", "192.0.2.1"),),
            update_old=(a("u.example.com", "192.0.2.2"),),
            update_new=(a("u.example.com", "192.0.2.3"),),
            delete=(a("d.example.com", "192.0.2.4"),),
        )
    ).wishes

    assert {
        ("c.example.com", "A"): (("192.0.2.1",), frozenset()),
        ("u.example.com", "A"): (("192.0.2.3",), frozenset({"192.0.2.2"})),
        ("d.example.com", "A"): ((), frozenset({"192.0.2.4"})),
    } == {key: (wish.wanted, wish.removed) for key, wish in found.items()}


def test_update_old_and_update_new_are_matched_in_any_spelling() -> None:
    pair = Changes(
        update_old=(a("bücher.example.", "192.0.2.1", "192.0.2.2"),),
        update_new=(a("XN--bcher-kva.Example", "192.0.2.2"),),
    )

    (wish,) = collected(pair).wishes.values()

    assert ("xn--bcher-kva.example", ("192.0.2.2",), frozenset({"192.0.2.1"})) == (wish.name, wish.wanted, wish.removed)


def test_what_is_wanted_anywhere_is_removed_nowhere() -> None:
    found = collected(Changes(create=(a("x.example.com", "192.0.2.1"),), delete=(a("x.example.com", "192.0.2.1"),)))

    (wish,) = found.wishes.values()

    assert (("192.0.2.1",), frozenset()) == (wish.wanted, wish.removed)


def test_two_endpoints_of_one_set_are_joined_with_the_smallest_configured_ttl() -> None:
    found = collected(
        Changes(
            create=(a("x.example.com", "192.0.2.2", ttl_s=300), a("X.example.com", "192.0.2.1")),
            update_new=(a("x.example.com", "192.0.2.1", ttl_s=60),),
        )
    )

    (wish,) = found.wishes.values()

    assert (("192.0.2.1", "192.0.2.2"), 60) == (wish.wanted, wish.ttl_s)


def test_of_two_cnames_of_one_name_the_lowest_is_wanted() -> None:
    changes = Changes(
        create=tuple(Endpoint("x.example.com", "CNAME", (target,)) for target in ("b.example.net", "a.example.net"))
    )

    assert [("a.example.net",)] == [wish.wanted for wish in collected(changes).wishes.values()]


def test_a_target_that_cannot_be_held_is_refused_and_the_others_stay() -> None:
    found = collected(Changes(create=(a("x.example.com", "192.0.2.1", "nonsense"),)))

    assert [RefusalReason.CANNOT_BE_HELD] == [refusal.reason for refusal in found.refusals]
    assert "nonsense" in found.refusals[0].detail
    assert [("192.0.2.1",)] == [wish.wanted for wish in found.wishes.values()]


def test_what_a_store_cannot_hold_may_still_be_removed() -> None:
    found = collected(Changes(delete=(Endpoint("x.example.com", "TXT", ("tab\there",)),)))

    assert () == found.refusals
    assert [{"tab\there"}] == [wish.removed for wish in found.wishes.values()]


def test_a_set_that_cannot_be_held_is_wanted_without_values() -> None:
    found = collected(Changes(create=(Endpoint("x.example.com", "LOC", ("here",)),)))

    (wish,) = found.wishes.values()

    assert wish.is_wanted
    assert () == wish.wanted


@pytest.mark.parametrize("list_name", ["create", "update_old", "update_new", "delete"])
def test_names_outside_the_filter_are_refused_in_every_list(list_name: str) -> None:
    found = collected(Changes(**{list_name: (a("app.example.org", "192.0.2.1"),)}), "example.com")

    assert {} == found.wishes
    assert [(RefusalReason.OUTSIDE_FILTER, "app.example.org")] == [(r.reason, r.name) for r in found.refusals]


@pytest.mark.parametrize("list_name", ["create", "update_old", "update_new", "delete"])
def test_ownership_records_follow_the_filter_of_the_name_that_they_own(list_name: str) -> None:
    """`a-example.com` lies outside `example.com`, and yet it must be written; `a-example.org` would be an orphan."""
    members = (a("example.com", "192.0.2.1"), ownership("example.com"), ownership("example.org"))

    found = collected(Changes(**{list_name: members}), "example.com")

    assert {"example.com", "a-example.com"} == {name for name, _ in found.wishes}
    assert [(RefusalReason.OUTSIDE_FILTER, "a-example.org")] == [(r.reason, r.name) for r in found.refusals]


def test_an_ownership_record_without_a_known_subject_is_written_even_outside_the_filter() -> None:
    """As an old client sends it, without the label and without its record in the same call."""
    found = collected(Changes(create=(Endpoint("a-example.com", "TXT", (HERITAGE,)),)), "example.com")

    assert {"a-example.com"} == {name for name, _ in found.wishes}


@pytest.mark.parametrize("list_name", ["create", "update_old", "update_new", "delete"])
def test_protected_names_are_skipped_in_every_list_with_their_ownership_records(list_name: str) -> None:
    members = (a("nas.lan", "192.0.2.1"), ownership("nas.lan"))

    found = collected(Changes(**{list_name: members}), protect=("nas.lan",))

    assert {} == found.wishes
    assert () == found.refusals
    assert {SkipReason.PROTECTED} == {skip.reason for skip in found.skips}
    assert {"nas.lan", "a-nas.lan"} == {skip.name for skip in found.skips}


def test_an_ownership_record_that_is_protected_alone_protects_its_record() -> None:
    found = collected(Changes(create=(a("nas.lan", "192.0.2.1"), ownership("nas.lan"))), protect=("a-nas.lan",))

    assert {} == found.wishes
    assert ["nas.lan", "a-nas.lan"] == [skip.name for skip in found.skips]


def test_the_same_refusal_is_reported_once() -> None:
    pair = (a("app.example.org", "192.0.2.1"),)

    assert 1 == len(collected(Changes(update_old=pair, update_new=pair), "example.com").refusals)


def test_an_ownership_record_of_the_old_format_gives_way_to_a_cname() -> None:
    old_format = Endpoint("x.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "x.example.com"})
    alias = Endpoint("x.example.com", "CNAME", ("host.example.net",))

    found = collected(Changes(create=(alias, old_format, ownership("x.example.com", "cname"))))

    assert () == found.wishes["x.example.com", "TXT"].wanted
    assert [SkipReason.OLD_FORMAT_BESIDE_CNAME] == [skip.reason for skip in found.skips]


def test_an_old_format_ownership_record_stays_when_it_is_the_only_one() -> None:
    """Without any, the CNAME would never be claimed: the conflict is for the plan to refuse."""
    old_format = Endpoint("x.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "x.example.com"})
    alias = Endpoint("x.example.com", "CNAME", ("host.example.net",))

    found = collected(Changes(create=(alias, old_format)))

    assert (HERITAGE,) == found.wishes["x.example.com", "TXT"].wanted
    assert () == found.skips


def test_an_old_format_ownership_record_stays_when_the_cname_is_removed() -> None:
    old_format = Endpoint("x.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "x.example.com"})
    address = Endpoint("x.example.com", "A", ("192.0.2.1",))
    alias = Endpoint("x.example.com", "CNAME", ("host.example.net",))

    found = collected(
        Changes(create=(address, old_format, ownership("x.example.com", "a")), delete=(alias,)),
    )

    assert (HERITAGE,) == found.wishes["x.example.com", "TXT"].wanted
    assert () == found.skips


@pytest.mark.parametrize("leaving", ["cname-x.example.com", "cname-y.example.com"])
def test_an_old_format_ownership_record_stays_when_the_other_one_is_removed_or_of_another_name(leaving: str) -> None:
    old_format = Endpoint("x.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "x.example.com"})
    alias = Endpoint("x.example.com", "CNAME", ("host.example.net",))
    other = Endpoint(leaving, "TXT", (HERITAGE,), labels={"ownedRecord": leaving.removeprefix("cname-")})

    found = collected(Changes(create=(alias, old_format), delete=(other,)))

    assert (HERITAGE,) == found.wishes["x.example.com", "TXT"].wanted


def test_a_text_that_replaces_an_ownership_record_is_an_ordinary_record() -> None:
    """It must not be left out with a record that is refused, as an ownership record is."""
    changes = Changes(
        update_old=(Endpoint("x.example.com", "TXT", (HERITAGE,)),),
        update_new=(Endpoint("x.example.com", "TXT", ("plain",)),),
    )

    (wish,) = collected(changes).wishes.values()

    assert wish.owned is None
    assert (("plain",), frozenset({HERITAGE})) == (wish.wanted, wish.removed)


def test_empty_changes_yield_no_wishes() -> None:
    assert Wishes({}, (), ()) == collected(Changes())


LABELLED = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "x", "resource": "ingress/a/b"})


@pytest.mark.parametrize("verb", ["update_old", "delete"])
def test_the_labels_of_a_changed_record_are_read_as_those_of_its_ownership_record(verb: str) -> None:
    found = collected(Changes(**{verb: (LABELLED, ownership("app.example.com"), ownership("app.example.com", "aaaa"))}))

    read = {key: wish.readings for key, wish in found.wishes.items()}
    assert read == {
        ("app.example.com", "A"): frozenset(),
        ("a-app.example.com", "TXT"): {Reading("x", frozenset({("resource", "ingress/a/b")}))},
        ("aaaa-app.example.com", "TXT"): frozenset(),
    }


@pytest.mark.parametrize("verb", ["create", "update_new"])
def test_wanted_records_have_no_readings(verb: str) -> None:
    """Older clients create without having listed."""
    found = collected(Changes(**{verb: (LABELLED, ownership("app.example.com"))}))

    assert {frozenset()} == {wish.readings for wish in found.wishes.values()}
