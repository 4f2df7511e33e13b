"""Which ownership record vouches for which record set: every name and text that external-dns gives them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.model import Endpoint
from dnswebhook.ownership import (
    OwnedSet,
    Reading,
    is_heritage,
    names_alike,
    names_within,
    owned_set,
    owner_in,
    reading,
)
from tests.support.strategies import HERITAGE

SECRET = '"IDHvYm7vVOXuSAVXuhcHVz0nYTIqXKFDvuNDVPkdpDCkXZbx"'
TYPES = ("A", "AAAA", "CNAME", "TXT", "MX", "SRV", "NS", "PTR", "NAPTR", "DNAME")


def txt(name: str, text: str = HERITAGE, owned: str = "") -> Endpoint:
    return Endpoint(name, "TXT", (text,), labels={"ownedRecord": owned} if owned else {})


def vouched(own_name: str, owned: str, *written: str) -> frozenset[str]:
    """The types that an ownership record named `own_name` vouches for, when `written` types of `owned` change."""
    found = owned_set(txt(own_name, owned=owned), {owned: set(written)})
    assert found is not None
    assert owned == found.name
    return found.types


@pytest.mark.parametrize("record_type", TYPES)
@pytest.mark.parametrize("name", ["app.example.com", "example.com", "a.example.com", "m.lan", "txt.example.com"])
def test_the_automatic_name_tells_the_type(record_type: str, name: str) -> None:
    assert {record_type} == vouched(f"{record_type.lower()}-{name}", name, record_type)


@pytest.mark.parametrize(
    ("own_name", "owned", "record_type"),
    [
        pytest.param("a-host.srv.example.com", "host.srv.example.com", "A", id="a type's name as the domain"),
        pytest.param("cname-mail.mx.lan", "mail.mx.lan", "CNAME", id="another type's name as the domain"),
        pytest.param("cname-ns-1.example.com", "ns-1.example.com", "CNAME", id="a type's name within the label"),
        pytest.param("txt-a-app.example.com", "app.example.com", "A", id="--txt-prefix=txt-"),
        pytest.param("txt.a-app.example.com", "app.example.com", "A", id="--txt-prefix=txt."),
        pytest.param("ext-dns-cname-app.example.com", "app.example.com", "CNAME", id="--txt-prefix=ext-dns-"),
        pytest.param("aaaa.app.example.com", "app.example.com", "AAAA", id="--txt-prefix=%{record_type}."),
        pytest.param("txt-aaaa.app.example.com", "app.example.com", "AAAA", id="--txt-prefix=txt-%{record_type}."),
        pytest.param("own-a-by-app.example.com", "app.example.com", "A", id="--txt-prefix=own-%{record_type}-by-"),
        pytest.param("a-app-owned.example.com", "app.example.com", "A", id="--txt-suffix=-owned"),
        pytest.param("app-cname.example.com", "app.example.com", "CNAME", id="--txt-suffix=-%{record_type}"),
        pytest.param("b-a-x-b-a-x-b.example.com", "b-a-x-b.example.com", "A", id="--txt-suffix=-%{record_type}-x-b"),
        pytest.param("a-aaaa.example.com", "a.example.com", "AAAA", id="the host's name within the type behind it"),
        pytest.param("a-*.example.com", "*.example.com", "A", id="wildcard"),
        pytest.param("cname-wild.example.com", "*.example.com", "CNAME", id="--txt-wildcard-replacement=wild"),
        pytest.param("cname-xn--bcher-kva.example", "xn--bcher-kva.example", "CNAME", id="IDN"),
    ],
)
def test_the_type_is_found_in_a_name_with_prefix_suffix_or_template(
    own_name: str, owned: str, record_type: str
) -> None:
    assert {record_type} == vouched(own_name, owned, record_type)


def test_the_type_before_the_name_counts_even_if_the_prefix_is_a_written_type_too() -> None:
    assert {"A"} == vouched("txt-a-app.example.com", "app.example.com", "A", "TXT")
    assert {"TXT"} == vouched("txt-txt-app.example.com", "app.example.com", "A", "TXT")
    assert {"A"} == vouched("txt-a.app.example.com", "app.example.com", "A", "TXT")
    assert {"A"} == vouched("txt_a_app.example.com", "app.example.com", "A", "TXT")


def test_a_name_with_two_written_types_away_from_the_owned_name_vouches_for_every_type() -> None:
    assert frozenset() == vouched("txt-a-by-app.example.com", "app.example.com", "A", "TXT")


def test_a_host_named_like_a_record_type_is_not_taken_for_the_type() -> None:
    assert {"A"} == vouched("srv-a.example.com", "srv.example.com", "SRV", "A") == vouched("srv-a.lan", "srv.lan")


def test_each_type_of_a_name_that_changes_its_type_has_its_own_ownership_record() -> None:
    assert {"CNAME"} == vouched("cname-a.example.com", "a.example.com", "A", "CNAME")
    assert {"A"} == vouched("a-a.example.com", "a.example.com", "A", "CNAME")


@pytest.mark.parametrize("name", ["app.example.com", "a.example.com", "a-mx.example.com", "*.example.com", "txt"])
def test_in_the_old_format_the_owned_name_itself_vouches_for_every_type(name: str) -> None:
    assert frozenset() == vouched(name, name, "A", "TXT")


def test_a_type_that_runs_into_the_prefix_is_not_searched_within_the_host_that_follows() -> None:
    assert frozenset() == vouched("xaaaa-a-a.example.com", "a-a.example.com", "AAAA")


@pytest.mark.parametrize("own_name", ["app.example.com", "owner-of-app.example.com", "exta-app.example.com"])
def test_a_name_without_a_type_vouches_for_every_type(own_name: str) -> None:
    found = owned_set(txt(own_name, owned="app.example.com"), {"app.example.com": {"A"}})

    assert found is not None
    assert found.covers("app.example.com", "A")
    assert found.covers("app.example.com", "MX")
    assert not found.covers("other.example.com", "A")


def test_a_set_that_names_its_type_covers_no_other() -> None:
    owned = OwnedSet("app.example.com", frozenset({"A"}))

    assert owned.covers("app.example.com", "A")
    assert not owned.covers("app.example.com", "AAAA")


def test_an_encrypted_text_is_recognised_by_its_label() -> None:
    found = owned_set(txt("a-app.example.com", SECRET, owned="App.Example.com."), {"app.example.com": {"A"}})

    assert OwnedSet("app.example.com", frozenset({"A"})) == found


def test_without_a_label_the_name_tells_the_owned_record_if_the_call_writes_it_too() -> None:
    found = owned_set(txt("A-App.example.com."), {"app.example.com": {"A"}})

    assert OwnedSet("app.example.com", frozenset({"A"})) == found


def test_without_a_label_and_its_record_an_ownership_record_is_its_own_subject() -> None:
    assert OwnedSet("a-app.example.com", frozenset()) == owned_set(txt("a-app.example.com"), {})


@pytest.mark.parametrize(
    "endpoint",
    [
        txt("app.example.com", "v=spf1 -all"),
        txt("app.example.com", SECRET),
        Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"ownedRecord": "app.example.com"}),
        Endpoint("app.example.com", "CNAME", (HERITAGE,)),
        Endpoint("app.example.com", "TXT", ()),
    ],
)
def test_other_records_vouch_for_nothing(endpoint: Endpoint) -> None:
    assert owned_set(endpoint, {"app.example.com": {"A", "TXT"}}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HERITAGE, True),
        (HERITAGE.strip('"'), True),
        ('"heritage=external-dns"', True),
        ("heritage=external-dns", True),
        ('"any text,heritage=external-dns,external-dns/owner=home"', True),
        ("any text,heritage=external-dns", True),
        ("heritage=external-dns-2", False),
        ("about heritage=external-dns,", False),
        ("", False),
    ],
)
def test_a_heritage_text_is_recognised_as_external_dns_does(text: str, expected: bool) -> None:
    assert expected is is_heritage(text)


labels = st.sampled_from(["a", "aaaa", "app", "cname", "mx", "x-a", "*", "srv", "txt", "xn--bcher-kva"])
domains = st.sampled_from(["example.com", "srv.lan", "a", "ns.mx.example.com"])


@given(labels, domains, st.sampled_from(TYPES), st.sampled_from(["", "txt-", "txt.", "ext-dns-", "a-", "ns-"]))
@settings(max_examples=300, deadline=None)
def test_the_type_that_external_dns_puts_in_front_is_found_behind_any_prefix(
    label: str, domain: str, record_type: str, prefix: str
) -> None:
    owned = f"{label}.{domain}"

    assert {record_type} == vouched(f"{prefix}{record_type.lower()}-{owned}", owned, record_type)


RESOURCE = ("resource", "ingress/default/app")
READ = Reading("default", frozenset({RESOURCE}))
NONCE = "IDHvYm7vVOXuSAVX"
"""With which `SECRET` begins."""


@pytest.mark.parametrize("value", [HERITAGE, HERITAGE.strip('"')])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_reading_matches_the_text_with_its_labels(value: str, is_first: bool) -> None:
    assert READ.is_of(value, is_first=is_first)


def test_a_reading_with_another_owner_matches_only_the_text_that_was_listed_first() -> None:
    """Any other text belongs to somebody else, who serves the same objects."""
    migrated = Reading("new", frozenset({RESOURCE}))

    assert migrated.is_of(HERITAGE, is_first=True)
    assert not migrated.is_of(HERITAGE, is_first=False)


@pytest.mark.parametrize(
    "value",
    [
        HERITAGE.replace("/app", "/other"),
        HERITAGE.replace(",external-dns/resource=ingress/default/app", ""),
        HERITAGE.replace(",external-dns/owner=default", ""),
        HERITAGE[:-1] + ',external-dns/more=labels"',
        "made-by-hand",
        '"v=spf1 -all"',
        SECRET,
    ],
)
def test_a_reading_does_not_match_a_text_with_other_labels(value: str) -> None:
    assert not READ.is_of(value, is_first=True)


def test_a_reading_matches_an_encrypted_text_by_its_nonce() -> None:
    assert Reading("default", frozenset(), NONCE).is_of(SECRET, is_first=False)
    assert not Reading("default", frozenset(), NONCE[::-1]).is_of(SECRET, is_first=True)


@pytest.mark.parametrize("nonce", ["", "I", NONCE[:-1], NONCE + "u"])
def test_an_invalid_nonce_matches_no_text(nonce: str) -> None:
    found = reading({"owner": "default", "txt-encryption-nonce": nonce})

    assert found is not None
    assert not found.is_of(SECRET, is_first=True)


def test_a_reading_is_made_of_the_labels_of_a_record() -> None:
    labels = {"owner": "default", "resource": "ingress/default/app", "txt-encryption-nonce": NONCE}

    assert Reading("default", frozenset({RESOURCE}), NONCE) == reading(labels)
    assert reading({"resource": "ingress/default/app"}) is None
    assert reading({"owner": ""}) is None


def test_without_a_label_a_prefix_that_is_no_type_belongs_to_the_name() -> None:
    text = '"heritage=external-dns,external-dns/owner=home"'
    endpoint = Endpoint("nas-app.example.com", "TXT", (text,))

    assert owned_set(endpoint, {"app.example.com": {"A"}}) == OwnedSet("nas-app.example.com", frozenset())


def test_a_label_with_two_equals_signs_is_none_as_in_external_dns() -> None:
    assert "" == owner_in('"heritage=external-dns,external-dns/owner=home=away"')


@pytest.mark.parametrize(
    ("own_name", "name"),
    [
        ("a-app.lan", "app.lan"),
        ("pre.a-app.lan", "app.lan"),
        ("pre.a-app.sub.lan", "app.sub.lan"),
        ("a-app-own.ed.lan", "app.lan"),
        ("app-a-own.ed.sub.lan", "app.ed.sub.lan"),
        ("ext-a-_dns.lan", "_dns.lan"),
        ("a-any.sub.lan", "*.sub.lan"),
        ("app.lan", "app.lan"),
    ],
)
def test_the_names_to_which_an_ownership_record_may_belong_have_their_first_label_whole(
    own_name: str, name: str
) -> None:
    assert name in names_within(own_name, "lan", "A")


def test_an_ownership_record_with_many_labels_may_belong_to_a_few_names_for_each_of_them() -> None:
    labels = ["a", "b"] * 60

    assert len(names_within(f"{'.'.join(labels)}.lan", "lan", "A")) <= 4 * len(labels)


@pytest.mark.parametrize(
    ("own_name", "owned", "types", "alike"),
    [
        ("a-any.example.org", "*.example.org", {"A"}, ("cname-any.example.org",)),
        ("own-a-a.example.org", "a.example.org", {"A"}, ("own-cname-a.example.org", "own-a-cname.example.org")),
        ("a.a.a.org", "a.a.org", {"A"}, ("cname.a.a.org", "a.cname.a.org")),
        ("own-app.example.org", "app.example.org", set(), ()),
        ("own-app.example.org", "app.example.org", {"A"}, ()),
    ],
)
def test_ownership_records_of_other_types_are_named_alike(
    own_name: str, owned: str, types: set[str], alike: tuple[str, ...]
) -> None:
    assert alike == names_alike(own_name, OwnedSet(owned, frozenset(types)), "CNAME")
