"""Records sent without an ownership record: whose they would be, given what is served and what was seen."""

from collections.abc import Collection

import msgspec
import pytest

from dnswebhook.claims import Claims
from dnswebhook.model import Record
from dnswebhook.notes import Note
from dnswebhook.ownership import OwnedSet
from dnswebhook.past import Past
from dnswebhook.wishes import Wish
from tests.dnswebhook.planning import row

NAME = "app.example.com"
OWNERSHIP = f"a-{NAME}"
SECRET = "AAECAwQFBgcICQoLc2VjcmV0"
NOBODY = frozenset[str]()


def text(owner: str) -> str:
    return f'"heritage=external-dns,external-dns/owner={owner},external-dns/resource=ingress/x/app"'


def of(owner: str, name: str = OWNERSHIP) -> Record:
    return row(name, "TXT", text(owner))


OURS, OTHERS, ENCRYPTED = of("ours"), of("other"), row(OWNERSHIP, "TXT", SECRET)
WANTED = Wish(NAME, "A", ("192.0.2.1",), owner="ours")


def removed(owner: str, *types: str) -> Note:
    return Note(OWNERSHIP, text(owner), OwnedSet(NAME, frozenset(types)), frozenset(), is_leaving=True)


def claims(
    served: Collection[Record] = (), told: Collection[Record] | None = (), removed: Collection[Note] = ()
) -> Claims:
    return Claims(served, Past(told, (), removed, ()))


@pytest.mark.parametrize("own", [OURS, ENCRYPTED], ids=["readable", "encrypted"])
def test_a_record_is_ours_when_our_ownership_record_is_served(own: Record) -> None:
    assert "" == claims([own], [own]).why_unclaimed(WANTED, NOBODY)


def test_a_record_is_ours_when_our_ownership_record_is_served_though_only_that_of_another_owner_was_seen() -> None:
    assert "" == claims([OURS, OTHERS], [OTHERS]).why_unclaimed(WANTED, NOBODY)


def test_a_record_is_ours_when_one_of_our_two_ownership_records_is_still_served() -> None:
    assert "" == claims([ENCRYPTED], [ENCRYPTED, of("ours", f"a.{NAME}")]).why_unclaimed(WANTED, NOBODY)


@pytest.mark.parametrize("own", [OURS, ENCRYPTED], ids=["readable", "encrypted"])
def test_a_record_is_nobodys_when_our_ownership_record_was_removed_since_external_dns_saw_it(own: Record) -> None:
    told = [row(NAME, "A", "192.0.2.9"), own]

    assert "which was removed since" in claims([], told).why_unclaimed(WANTED, NOBODY)


def test_a_record_is_nobodys_when_our_ownership_record_was_disabled_since() -> None:
    disabled = msgspec.structs.replace(OURS, is_enabled=False)

    assert "which was removed since" in claims([disabled], [OURS]).why_unclaimed(WANTED, NOBODY)


def test_a_record_is_nobodys_when_our_ownership_record_was_replaced_by_another_type() -> None:
    assert "which was removed since" in claims([row(OWNERSHIP, "MX", text("ours"))], [OURS]).why_unclaimed(
        WANTED, NOBODY
    )


@pytest.mark.parametrize(("served", "told"), [([OTHERS], [OTHERS]), ([], [OTHERS]), ([OTHERS], [])])
def test_a_record_is_another_owners_when_their_ownership_record_is_served_or_was_seen(
    served: list[Record], told: list[Record]
) -> None:
    assert "an ownership record of 'other'" in claims(served, told).why_unclaimed(WANTED, NOBODY)


def test_an_encrypted_ownership_record_that_was_not_seen_is_no_other_owners() -> None:
    assert "" == claims([ENCRYPTED], []).why_unclaimed(WANTED, NOBODY)


def test_of_several_other_owners_the_first_in_the_alphabet_is_named() -> None:
    assert "an ownership record of 'b'" in claims([of("c"), of("b")], []).why_unclaimed(WANTED, NOBODY)


@pytest.mark.parametrize("own_name", ["a-any.example.com", "ed-a-any.example.com"])
def test_a_wildcard_that_is_sent_again_at_once_is_ours_whatever_an_unusual_name_seems_to_say(own_name: str) -> None:
    """A registry other than TXT sends no ownership records: what is there may be for another name."""
    wildcard = msgspec.structs.replace(WANTED, name="*.example.com")
    others = of("other", own_name)

    assert f"of 'other' for it, '{own_name}'" in claims([others], [others]).why_unclaimed(wildcard, NOBODY)
    insisting = Claims([others], Past([others], (), (), {wildcard.key}))
    assert "" == insisting.why_unclaimed(wildcard, NOBODY)


def test_the_ownership_record_of_an_alias_whose_name_contains_a_type_is_not_taken_for_that_of_a_wildcard() -> None:
    """`ext-cname-node-a` is about `node-a`: that it has the word `a` says nothing."""
    wildcard = msgspec.structs.replace(WANTED, name="*.example.com")
    alias = [row("node-a.example.com", "CNAME", "x.example.com"), of("ours", "ext-cname-node-a.example.com")]
    told = [*alias, of("other", "ext-a-any.example.com")]

    assert "'ext-a-any.example.com'" in claims(told, told).why_unclaimed(wildcard, NOBODY)


def test_a_host_with_the_name_of_a_type_has_no_ownership_record_with_another_word_in_front() -> None:
    """`w-a-owned` has its type in the suffix, so its host is `w`, or the wildcard, and not `a`."""
    wildcard = msgspec.structs.replace(WANTED, name="*.example.com")
    told = [row("a.example.com", "A", "192.0.2.9"), of("other", "w-a-owned.example.com")]

    assert "'w-a-owned.example.com'" in claims(told, told).why_unclaimed(wildcard, NOBODY)


def test_a_record_is_taken_over_with_the_other_records_of_its_owner() -> None:
    assert "" == claims([OTHERS], [OTHERS]).why_unclaimed(WANTED, {"other"})


def test_a_record_is_ours_when_no_ownership_record_of_it_was_seen() -> None:
    elsewhere = of("ours", "a-two.example.com")

    assert "" == claims([elsewhere], [elsewhere]).why_unclaimed(WANTED, NOBODY)


@pytest.mark.parametrize(
    ("served", "sent", "is_encrypted"),
    [([of("ours", "a-two.example.com")], [], False), ([], ["ours"], False), ([], [], True)],
    ids=["others are served", "others are sent", "they are encrypted"],
)
@pytest.mark.parametrize("told", [[], None], ids=["listed", "not listed yet"])
def test_a_record_is_nobodys_when_its_first_label_leaves_no_room_for_the_type_in_front(
    served: list[Record], sent: list[str], is_encrypted: bool, told: list[Record] | None
) -> None:
    """external-dns then makes no ownership record, and sends the record without one."""
    fits, too_long = (
        Wish(f"{'x' * octets}.example.com", "A", owner="ours", is_ownership_encrypted=is_encrypted)
        for octets in (61, 62)
    )

    assert "would have 64 octets" in claims(served, told).why_unclaimed(too_long, NOBODY, sent)
    assert "octets" not in claims(served, told).why_unclaimed(fits, NOBODY, sent)


@pytest.mark.parametrize(
    "sent", [[], ["other"], [""]], ids=["nothing is sent", "another owner sends some", "somebody sends encrypted ones"]
)
def test_a_record_with_a_long_first_label_is_ours_when_its_owner_keeps_ownership_records_elsewhere(
    sent: list[str],
) -> None:
    """In DynamoDB, or in objects of Kubernetes."""
    wanted = Wish(f"{'x' * 63}.example.com", "A", owner="ours")

    assert "" == claims([of("other", "a-two.example.com")]).why_unclaimed(wanted, NOBODY, sent)


def test_a_record_with_a_long_first_label_is_ours_when_it_is_sent_again_at_once() -> None:
    wanted = Wish(f"{'x' * 63}.example.com", "A", owner="ours")
    past = Past((), (), (), [wanted.key])

    assert "" == Claims([of("ours", "a-two.example.com")], past).why_unclaimed(wanted, NOBODY)


def test_before_the_first_listing_a_record_is_nobodys_when_its_owner_has_ownership_records_of_other_names() -> None:
    elsewhere = of("ours", "a-two.example.com")

    assert "before dnswebhook was restarted" in claims([elsewhere], None).why_unclaimed(WANTED, NOBODY)
    assert "" == claims([of("other", "a-two.example.com")], None).why_unclaimed(WANTED, NOBODY)


def test_before_the_first_listing_served_rows_count_as_seen() -> None:
    elsewhere = of("ours", "a-two.example.com")

    assert "" == claims([ENCRYPTED, elsewhere], None).why_unclaimed(WANTED, NOBODY)
    assert "an ownership record of 'other'" in claims([OTHERS, elsewhere], None).why_unclaimed(WANTED, NOBODY)


def test_the_ownership_record_that_was_removed_last_is_restored() -> None:
    first, last = removed("ours", "A"), msgspec.structs.replace(removed("ours", "A"), name=f"a.{NAME}")

    assert last == claims(removed=[first, last]).gone_from(WANTED)


def test_no_ownership_record_of_another_owner_or_type_is_restored() -> None:
    ours = removed("ours", "A")

    assert ours == claims(removed=[ours, removed("other", "A"), removed("ours", "AAAA")]).gone_from(WANTED)
    assert claims(removed=[removed("other", "A"), removed("ours", "AAAA")]).gone_from(WANTED) is None


def test_an_encrypted_ownership_record_is_restored_since_it_may_be_ours() -> None:
    encrypted = msgspec.structs.replace(removed("ours", "A"), value=SECRET)

    assert encrypted == claims(removed=[encrypted]).gone_from(WANTED)


def test_no_ownership_record_is_restored_when_another_text_has_its_name() -> None:
    assert claims([OTHERS], removed=[removed("ours", "A")]).gone_from(WANTED) is None
    disabled = msgspec.structs.replace(OTHERS, is_enabled=False)
    address = row(OWNERSHIP, "A", "192.0.2.9")
    assert claims([disabled, address], removed=[removed("ours", "A")]).gone_from(WANTED) is not None


def test_external_dns_was_shown_first_the_heritage_text_that_sorts_first() -> None:
    plain, a, b = row(OWNERSHIP, "TXT", "!"), of("a"), of("b")  # the plain one sorts before the quotes

    assert claims(told=[plain, b, a]).is_first_told(a)
    assert not claims(told=[plain, b, a]).is_first_told(b)
    assert not claims(told=[b]).is_first_told(a)


def test_before_the_first_listing_no_text_is_known_to_have_been_shown() -> None:
    assert not claims([OURS], told=None).is_first_told(OURS)


def test_a_row_that_was_disabled_when_external_dns_listed_was_not_seen() -> None:
    disabled = msgspec.structs.replace(OURS, is_enabled=False)

    assert claims(told=[disabled]).is_unseen(OURS)
    assert not claims(told=[OURS]).is_unseen(OURS)
