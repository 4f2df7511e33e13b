"""What is remembered from call to call, and for how long."""

from dnswebhook.model import Record
from dnswebhook.notes import Note
from dnswebhook.ownership import OwnedSet
from dnswebhook.past import History
from dnswebhook.wishes import Refusal, RefusalReason

TEXT = Record("1", "a-app.example.com", "TXT", '"heritage=external-dns,external-dns/owner=us"')
ADDRESS = Record("2", "app.example.com", "A", "192.0.2.1")


def leaving(name: str) -> Note:
    return Note(name, "text", OwnedSet(name, frozenset({"A"})), frozenset(), is_leaving=True)


def test_ownership_records_that_a_listing_lacks_count_as_told_until_the_next_apply() -> None:
    history = History()
    history.tell((TEXT, ADDRESS), 0)
    history.tell((ADDRESS,), 0)

    assert (ADDRESS, TEXT) == history.begin_apply(()).told
    assert (ADDRESS,) == history.begin_apply(()).told


def test_removals_and_refusals_count_until_external_dns_lists_again_and_the_latest_removal_is_last() -> None:
    history, first, second = History(), leaving("a.example.com"), leaving("b.example.com")
    history.note_removals([first, second])
    history.note_removals([first])
    history.note_refusals(
        Refusal(reason, "app.example.com", record_type, "")
        for reason, record_type in ((RefusalReason.NO_OWNERSHIP, "A"), (RefusalReason.CNAME_LOOP, "CNAME"))
    )
    past = history.begin_apply(())

    assert ((second, first), {("app.example.com", "A")}) == (past.removed, past.insisted)

    history.tell((), 0)
    past = history.begin_apply(())

    assert ((), frozenset()) == (past.removed, past.insisted)


def test_another_generation_of_the_store_is_unknown_only_once_external_dns_has_listed() -> None:
    history = History()

    assert history.is_about(7)

    history.tell((), 7)

    assert (history.is_about(7), history.is_about(8)) == (True, False)
