"""The store: what a reader sees after any edits, which changes are reported to it, and when it may look."""

import itertools
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tunnelgw.sources.objects import gateway, make, route, secret
from tunnelgw.model.core import Secret
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Index, Snapshot
from tunnelgw.sources import store as store_module
from tunnelgw.sources.store import PATIENCE_S, Store, Unreadable

DEADLINE_S = 30.0
CERT = Entry(Kind.SECRET, Key("default", "cert"))


def is_ready(store: Store) -> bool:
    return store.wait(time.monotonic())


def listed(*kinds: Kind) -> Store:
    """A store whose kinds were listed, empty, and taken."""
    store = Store(kinds)
    for kind in kinds:
        store.replace(kind, ())
    store.take()
    return store


def test_nothing_is_taken_before_every_kind_was_listed_or_is_absent() -> None:
    store = Store([Kind.GATEWAY, Kind.HTTP_ROUTE, Kind.BACKEND])

    store.replace(Kind.GATEWAY, [gateway("gw")])
    store.upsert(Kind.HTTP_ROUTE, route("a"))
    assert not is_ready(store)
    store.set_absent(Kind.BACKEND)
    assert store.unlisted == {Kind.HTTP_ROUTE}
    store.replace(Kind.HTTP_ROUTE, [route("b")])

    assert is_ready(store)
    change = store.take()
    assert set(change.snapshot.all(Kind.HTTP_ROUTE)) == {Key("default", "b")}


def test_a_changed_spec_changes_the_object_and_every_bucket_of_it() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.upsert(Kind.HTTP_ROUTE, route("a", "old"))
    store.take()

    store.upsert(Kind.HTTP_ROUTE, route("a", "new"))

    change = store.take()
    old, new = (Entry(Index.ROUTES_BY_PARENT, Key("default", name)) for name in ("old", "new"))
    service = Entry(Index.ROUTES_BY_SERVICE, Key("default", "web"))
    assert change.changed == {Entry(Kind.HTTP_ROUTE, Key("default", "a")), old, new, service}
    assert change.snapshot.read(old) == ()
    assert change.snapshot.read(new) == (route("a", "new"),)


def test_a_status_or_a_version_alone_touches_the_object_and_changes_nothing() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.upsert(Kind.HTTP_ROUTE, route("a", metadata={"resourceVersion": "1"}))
    store.take()
    newer = route("a", metadata={"resourceVersion": "2"}, status={"parents": []})

    store.upsert(Kind.HTTP_ROUTE, newer)

    change = store.take()
    assert change.changed == frozenset()
    assert change.touched == {Entry(Kind.HTTP_ROUTE, Key("default", "a"))}
    assert change.snapshot.read(Entry(Index.ROUTES_BY_PARENT, Key("default", "gw"))) == (newer,)


def test_the_status_of_a_service_has_its_addresses_so_it_is_a_change() -> None:
    store = listed(Kind.SERVICE)
    store.upsert(Kind.SERVICE, make(Kind.SERVICE, "lb", {"type": "LoadBalancer"}))
    store.take()

    store.upsert(
        Kind.SERVICE,
        make(Kind.SERVICE, "lb", {"type": "LoadBalancer"}, status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
    )

    assert store.take().changed == {Entry(Kind.SERVICE, Key("default", "lb"))}


def test_the_addresses_in_a_gateway_s_status_are_a_change_and_the_rest_is_not() -> None:
    store = listed(Kind.GATEWAY)
    store.upsert(Kind.GATEWAY, gateway("gw"))
    store.take()

    store.upsert(Kind.GATEWAY, gateway("gw", status={"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]}))
    first = store.take()
    store.upsert(
        Kind.GATEWAY,
        gateway("gw", status={"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}], "attachedListenerSets": 1}),
    )

    assert Entry(Kind.GATEWAY, Key("default", "gw")) in first.changed
    assert store.take().changed == frozenset()


def held(store: Store, name: str) -> tuple[str, ...]:
    found = store.take().snapshot.read(Entry(Kind.GATEWAY, Key("default", name)))
    assert isinstance(found, Gateway)
    return found.held


def test_a_gateway_holds_the_addresses_of_its_status_and_those_it_was_given_until_it_is_deleted() -> None:
    store = listed(Kind.GATEWAY)
    store.upsert(Kind.GATEWAY, gateway("gw"))
    assert held(store, "gw") == ()

    store.give(gateway("gw"), ("192.0.2.2",))
    assert is_ready(store)
    assert held(store, "gw") == ("192.0.2.2",)
    store.give(gateway("gw"), ("192.0.2.2",))
    store.give(gateway("another"), ("192.0.2.2",))
    assert not is_ready(store)
    store.upsert(Kind.GATEWAY, gateway("gw", status={"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]}))
    assert held(store, "gw") == ("192.0.2.1", "192.0.2.2")

    store.delete(Kind.GATEWAY, Key("default", "gw"))
    store.upsert(Kind.GATEWAY, gateway("gw"))
    assert held(store, "gw") == ()


def test_a_gateway_keeps_the_addresses_that_it_was_given_when_another_object_of_its_name_is_deleted() -> None:
    store = listed(Kind.GATEWAY, Kind.HTTP_ROUTE)
    store.upsert(Kind.GATEWAY, gateway("same"))
    store.upsert(Kind.HTTP_ROUTE, route("same"))
    store.give(gateway("same"), ("192.0.2.2",))

    store.delete(Kind.HTTP_ROUTE, Key("default", "same"))
    store.upsert(Kind.GATEWAY, gateway("same", "cert"))

    assert held(store, "same") == ("192.0.2.2",)


@pytest.mark.parametrize("is_before", [False, True], ids=["after", "before"])
def test_a_gateway_that_was_created_again_does_not_hold_the_addresses_of_the_former_one(is_before: bool) -> None:
    """A list after a gap of the watch shows only the new one; so does a turn that translated the former one."""
    store = listed(Kind.GATEWAY)
    former, new = (gateway("gw", metadata={"uid": uid}) for uid in ("1", "2"))
    store.upsert(Kind.GATEWAY, former)
    store.take()

    if is_before:
        store.give(former, ("192.0.2.2",))
    store.replace(Kind.GATEWAY, [new])
    if not is_before:
        store.give(former, ("192.0.2.2",))

    assert held(store, "gw") == ()


@pytest.mark.parametrize("status", [b"\xff", b"null", b"[]", b'{"addresses": 1}', b'{"addresses": [{"value": 2}]}'])
def test_a_malformed_gateway_status_is_tolerated(status: bytes) -> None:
    store = listed(Kind.GATEWAY)

    store.upsert(Kind.GATEWAY, msgspec.structs.replace(gateway("gw"), status=msgspec.Raw(status)))

    assert held(store, "gw") == ()


def test_an_equal_list_is_no_change() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.replace(Kind.HTTP_ROUTE, [route("a"), route("b")])
    store.take()

    store.replace(Kind.HTTP_ROUTE, [route("b"), route("a")])

    assert not is_ready(store)


def test_a_snapshot_stays_as_it_was_and_shares_what_did_not_change() -> None:
    store = listed(Kind.HTTP_ROUTE, Kind.GATEWAY)
    store.replace(Kind.HTTP_ROUTE, [route("a"), route("b", "other")])
    store.replace(Kind.GATEWAY, [gateway("gw")])
    first = store.take().snapshot

    store.delete(Kind.HTTP_ROUTE, Key("default", "a"))

    second = store.take().snapshot
    assert len(first.all(Kind.HTTP_ROUTE)) == 2
    assert len(second.all(Kind.HTTP_ROUTE)) == 1
    assert second.all(Kind.GATEWAY) is first.all(Kind.GATEWAY)
    other = Entry(Index.ROUTES_BY_PARENT, Key("default", "other"))
    assert second.read(other) is first.read(other)


def test_an_unreadable_object_is_kept_out_until_it_can_be_read() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.upsert(Kind.HTTP_ROUTE, route("a"))
    entry = Entry(Kind.HTTP_ROUTE, Key("default", "a"))

    store.reject(Kind.HTTP_ROUTE, entry.key, Unreadable("expected int, got str"))
    kept_out = store.take()
    counts = store.counts()
    store.upsert(Kind.HTTP_ROUTE, route("a"))
    back = store.take()

    assert kept_out.snapshot.read(entry) is None
    assert kept_out.unreadable == {entry: Unreadable("expected int, got str")}
    assert (counts[Kind.HTTP_ROUTE, True], counts[Kind.HTTP_ROUTE, False]) == (0, 1)
    assert back.snapshot.read(entry) == route("a")
    assert back.unreadable == {}


def test_an_unreadable_object_that_a_new_list_lacks_is_forgotten() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.reject(Kind.HTTP_ROUTE, Key("default", "a"), Unreadable("bad"))
    store.take()

    store.replace(Kind.HTTP_ROUTE, ())

    assert is_ready(store)
    assert store.take().unreadable == {}


def test_an_unreadable_object_of_a_kind_that_is_not_installed_any_more_is_forgotten() -> None:
    store = listed(Kind.HTTP_ROUTE)
    store.reject(Kind.HTTP_ROUTE, Key("default", "a"), Unreadable("bad"))
    store.take()

    store.set_absent(Kind.HTTP_ROUTE)

    assert store.take().unreadable == {}
    assert store.counts()[Kind.HTTP_ROUTE, False] == 0


def test_a_secret_that_nothing_names_is_kept_without_its_data() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)

    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))

    assert store.take().snapshot.read(CERT) == secret("cert")


def test_a_named_secret_has_its_data_until_the_last_reference_goes() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.replace(Kind.GATEWAY, [gateway("one", "cert"), gateway("two", "cert")])
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))

    store.upsert(Kind.GATEWAY, gateway("two", "cert", metadata={"labels": {"edited": "yes"}}))
    store.delete(Kind.GATEWAY, Key("default", "one"))
    held = store.take().snapshot.read(CERT)
    store.upsert(Kind.GATEWAY, gateway("two"))
    dropped = store.take().snapshot.read(CERT)

    assert held == secret("cert", key="cHJpdmF0ZQ==")
    assert dropped == secret("cert")


def test_a_secret_named_later_is_awaited_until_the_source_has_fetched_it() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    store.take()

    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    was_ready = is_ready(store)
    assert store.wait_unread(DEADLINE_S) == (CERT,)
    store.fill(CERT, secret("cert", key="cHJpdmF0ZQ=="))

    assert not was_ready
    assert is_ready(store)
    change = store.take()
    assert change.snapshot.read(CERT) == secret("cert", key="cHJpdmF0ZQ==")
    assert CERT in change.changed


def test_a_secret_from_a_watch_is_not_replaced_by_a_slower_fetch() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="b2xk"))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    assert store.wait_unread(DEADLINE_S) == (CERT,)

    store.upsert(Kind.SECRET, secret("cert", key="bmV3"))
    store.fill(CERT, None)
    store.give_up(CERT)

    assert store.take().snapshot.read(CERT) == secret("cert", key="bmV3")
    assert store.wait_unread(0.0) == (), "nothing is left to fetch"


@pytest.mark.parametrize("found", [None, secret("cert", key="b2xk")], ids=["nothing", "older"])
def test_a_fetch_from_before_a_secret_was_named_again_is_repeated(found: Object | None) -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="b2xk"))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    assert store.wait_unread(DEADLINE_S) == (CERT,)

    store.delete(Kind.GATEWAY, Key("default", "gw"))
    store.upsert(Kind.SECRET, secret("cert", key="bmV3"))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    store.fill(CERT, found)

    assert not is_ready(store)
    assert store.wait_unread(DEADLINE_S) == (CERT,)
    store.fill(CERT, secret("cert", key="bmV3"))
    assert store.take().snapshot.read(CERT) == secret("cert", key="bmV3")


def test_a_secret_named_between_waiting_and_taking_is_awaited_all_the_same() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    was_ready = is_ready(store)

    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    too_early = store.take_settled()
    assert store.wait_unread(DEADLINE_S) == (CERT,)
    store.fill(CERT, secret("cert", key="cHJpdmF0ZQ=="))
    change = store.take_settled()

    assert was_ready
    assert too_early is None
    assert change is not None
    assert change.snapshot.read(CERT) == secret("cert", key="cHJpdmF0ZQ==")
    assert Entry(Kind.GATEWAY, Key("default", "gw")) in change.changed
    assert store.take_settled() is None, "there is nothing new"


def test_a_secret_that_cannot_be_fetched_does_not_block_changes() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))

    assert store.wait_unread(DEADLINE_S) == (CERT,)
    store.give_up(CERT)

    assert is_ready(store)
    store.upsert(Kind.GATEWAY, gateway("another", "new"))
    assert set(store.wait_unread(0.0)) == {CERT, NEW}, "it is tried again with the next ones"


def test_a_secret_that_is_fetched_but_cannot_be_read_is_unreadable_and_awaited_no_longer() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    assert store.wait_unread(DEADLINE_S) == (CERT,)

    store.fill(CERT, Unreadable("expected object, got str"))

    assert is_ready(store)
    change = store.take()
    assert change.unreadable == {CERT: Unreadable("expected object, got str")}
    assert change.snapshot.read(CERT) is None
    assert store.wait_unread(0.0) == ()


def test_a_secret_that_is_read_stays_as_it_is_when_another_object_names_it() -> None:
    store = listed(Kind.GATEWAY, Kind.SECRET)
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    store.take()

    store.upsert(Kind.GATEWAY, gateway("another", "cert"))

    assert is_ready(store)
    assert store.wait_unread(0.0) == ()
    assert store.take().snapshot.read(CERT) == secret("cert", key="cHJpdmF0ZQ==")


def test_after_the_first_take_a_secret_that_is_not_fetched_in_time_does_not_block_changes() -> None:
    store = Store([Kind.SECRET, Kind.GATEWAY], patience_s=0.0)
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    store.replace(Kind.SECRET, [secret("cert")])
    assert not is_ready(store), "at the start there is nothing to lose"
    assert store.wait_unread(DEADLINE_S) == (CERT,)
    store.fill(CERT, secret("cert", key="cHJpdmF0ZQ=="))
    store.take()
    store.upsert(Kind.SECRET, secret("more", key="cHJpdmF0ZQ=="))

    store.upsert(Kind.GATEWAY, gateway("another", "more"))

    assert is_ready(store)
    assert store.wait_unread(0.0) == (Entry(Kind.SECRET, Key("default", "more")),), "it is fetched all the same"


def test_gateways_that_keep_naming_other_secrets_delay_other_changes_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = listed(Kind.SECRET, Kind.GATEWAY, Kind.HTTP_ROUTE)
    for name in ("even", "odd"):
        store.upsert(Kind.SECRET, secret(name, key="cHJpdmF0ZQ=="))
    store.take()
    store.upsert(Kind.GATEWAY, gateway("of-even", "even"))
    store.upsert(Kind.HTTP_ROUTE, route("of-others"))

    for name, next_name in itertools.islice(itertools.cycle((("even", "odd"), ("odd", "even"))), 100):
        now_s += 1
        store.upsert(Kind.GATEWAY, gateway(f"of-{next_name}", next_name))
        assert len(store.wait_unread(0.0)) == 2
        store.fill(Entry(Kind.SECRET, Key("default", name)), secret(name, key="cHJpdmF0ZQ=="))
        store.delete(Kind.GATEWAY, Key("default", f"of-{name}"))
        if store.wait(now_s):
            break

    assert now_s - 100.0 == 2 * PATIENCE_S


def test_gateways_that_keep_naming_other_secrets_from_the_start_delay_the_first_change_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = Store([Kind.SECRET, Kind.GATEWAY])
    store.replace(Kind.SECRET, [secret(name, key="cHJpdmF0ZQ==") for name in ("cert", "even", "odd")])
    store.replace(Kind.GATEWAY, [gateway("gw", "cert"), gateway("of-even", "even")])
    read_s = 150.0

    for name, next_name in itertools.islice(itertools.cycle((("even", "odd"), ("odd", "even"))), 100):
        now_s += 1
        store.upsert(Kind.GATEWAY, gateway(f"of-{next_name}", next_name))
        store.wait_unread(0.0)
        store.fill(Entry(Kind.SECRET, Key("default", name)), secret(name, key="cHJpdmF0ZQ=="))
        if now_s == read_s:
            store.fill(CERT, secret("cert", key="cHJpdmF0ZQ=="))
        store.delete(Kind.GATEWAY, Key("default", f"of-{name}"))
        if store.wait(now_s):
            break

    assert now_s - read_s == 2 * PATIENCE_S
    assert store.take().snapshot.read(CERT) == secret("cert", key="cHJpdmF0ZQ==")


def test_nothing_is_taken_while_a_kind_is_behind_others() -> None:
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE, Kind.BACKEND_TLS_POLICY)
    store.set_behind(Kind.SERVICE, is_behind=True)
    store.set_behind(Kind.BACKEND_TLS_POLICY, is_behind=True)

    store.upsert(Kind.HTTP_ROUTE, route("a"))
    assert not is_ready(store)
    store.set_behind(Kind.SERVICE, is_behind=False)
    assert not is_ready(store)
    assert store.take_settled() is None
    store.set_behind(Kind.BACKEND_TLS_POLICY, is_behind=False)

    assert is_ready(store)


@pytest.mark.parametrize("comes_and_goes", [False, True])
def test_no_change_waits_for_a_kind_that_is_behind_longer_than_the_patience(
    comes_and_goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE)
    store.set_behind(Kind.SERVICE, is_behind=True)
    store.upsert(Kind.HTTP_ROUTE, route("a"))
    for _ in range(4):
        now_s += PATIENCE_S / 4 - 0.001
        if comes_and_goes:
            store.set_behind(Kind.SERVICE, is_behind=False)
            store.set_behind(Kind.SERVICE, is_behind=True)
        assert not store.wait(now_s)

    now_s += 0.01

    assert store.wait(now_s)


def test_nothing_waits_for_a_kind_that_has_stayed_behind_unless_another_one_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As all kinds do, one after the other, after an outage of the server."""
    now_s = 100.0
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE)
    for kind in (Kind.HTTP_ROUTE, Kind.SERVICE):
        store.set_behind(kind, is_behind=True)
    now_s += PATIENCE_S

    store.upsert(Kind.HTTP_ROUTE, route("a"))
    assert store.wait(now_s)
    store.set_behind(Kind.HTTP_ROUTE, is_behind=False)
    assert not store.wait(now_s)


def test_changes_wait_for_a_kind_that_falls_behind_later_even_if_another_stays_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE, Kind.BACKEND_TLS_POLICY)
    store.set_behind(Kind.BACKEND_TLS_POLICY, is_behind=True)
    now_s += 10 * PATIENCE_S

    store.set_behind(Kind.SERVICE, is_behind=True)
    store.upsert(Kind.HTTP_ROUTE, route("a"))

    assert not store.wait(now_s)
    now_s += PATIENCE_S
    assert store.wait(now_s)


def test_a_secret_trimmed_before_it_was_named_is_fetched() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    trimmed = store.trim(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))

    store.replace(Kind.SECRET, [trimmed])

    assert trimmed == secret("cert")
    assert store.wait_unread(0.0) == (CERT,)
    assert store.take().snapshot.read(CERT) == trimmed, "nothing is known of its data"
    store.fill(CERT, secret("cert"))
    assert is_ready(store), "a Secret that really has no data is not fetched for ever"
    found = store.take().snapshot.read(CERT)
    assert isinstance(found, Secret)
    assert found.data == {}, "that it has none is known now"


NEW = Entry(Kind.SECRET, Key("default", "new"))
GATEWAY = Entry(Kind.GATEWAY, Key("default", "gw"))


def before(snapshot: Snapshot) -> str:
    """The Secret that the Gateway named before it named one that is not read; empty: it has none."""
    found = snapshot.read(GATEWAY)
    assert isinstance(found, Gateway)
    listeners = found.previous_spec.listeners if found.previous_spec else ()
    return next((ref.name for each in listeners if each.tls for ref in each.tls.certificate_refs), "")


def with_read_certificate() -> Store:
    """A Gateway names a Secret whose data are there; all of that was taken."""
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    assert store.wait_unread(0.0) == (CERT,)
    store.fill(CERT, secret("cert", key="b2xk"))
    assert before(store.take().snapshot) == ""
    return store


def test_a_secret_that_is_not_in_the_list_is_fetched_when_it_is_named() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)

    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))

    assert not is_ready(store), "it may well be there"
    assert store.wait_unread(0.0) == (CERT,)
    store.give_up(CERT)
    unread = store.take()
    assert unread.snapshot.read(CERT) == secret("cert"), "nothing is known of its data"
    assert store.counts()[Kind.SECRET, True] == 0, "nobody has seen it"
    assert store.wait_unread(0.0) == (CERT,)
    store.fill(CERT, None)
    missing = store.take()
    assert CERT in missing.changed
    assert missing.snapshot.read(CERT) is None
    assert store.wait_unread(0.0) == ()


@pytest.mark.parametrize("ends", ["named no more", "listed without it", "deleted"])
def test_the_placeholder_of_a_secret_that_was_never_read_is_removed(ends: str) -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    store.take()

    match ends:
        case "named no more":
            store.upsert(Kind.GATEWAY, gateway("gw"))
        case "listed without it":
            store.replace(Kind.SECRET, ())
        case _:
            store.delete(Kind.SECRET, CERT.key)

    assert store.take().snapshot.all(Kind.SECRET) == {}
    assert store.wait_unread(0.0) == ()


def test_before_secrets_were_listed_none_is_fetched_individually() -> None:
    store = Store([Kind.SECRET, Kind.GATEWAY])
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    assert store.wait_unread(0.0) == ()

    store.replace(Kind.SECRET, ())

    assert is_ready(store)
    assert store.take().snapshot.read(CERT) is None


@pytest.mark.parametrize(
    "name", ["..", "./cert", "../../pods", "cert?watch=1", "?", "#cert", "a/b", "a%2e", "Cert", ""]
)
def test_a_secret_with_an_invalid_name_is_not_fetched(name: str) -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": name}]}}

    store.upsert(Kind.GATEWAY, make(Kind.GATEWAY, "gw", {"gatewayClassName": "tunnel", "listeners": [listener]}))

    assert store.wait_unread(0.0) == ()
    assert is_ready(store)
    assert not store.take().snapshot.all(Kind.SECRET)


def test_a_gateway_that_names_an_unread_secret_keeps_its_former_spec_and_secret_until_that_is_read() -> None:
    store = with_read_certificate()

    store.upsert(Kind.GATEWAY, gateway("gw", "new"))
    assert set(store.wait_unread(0.0)) == {NEW}
    store.give_up(NEW)
    waiting = store.take().snapshot
    assert before(waiting) == "cert"
    assert waiting.read(CERT) == secret("cert", key="b2xk")
    store.upsert(Kind.SECRET, secret("cert", key="cmVuZXdlZA=="))
    renewed = store.take().snapshot
    assert before(renewed) == "cert"
    assert renewed.read(CERT) == secret("cert", key="cmVuZXdlZA=="), "it is followed as before"

    assert store.wait_unread(0.0) == (NEW,)
    store.fill(NEW, secret("new", key="bmV3"))
    read = store.take()

    assert {GATEWAY, CERT, NEW} <= read.changed
    assert before(read.snapshot) == ""
    assert read.snapshot.read(CERT) == secret("cert"), "nobody names it any more"


@pytest.mark.parametrize("found", [None, secret("new")], ids=["missing", "empty"])
def test_the_former_spec_is_forgotten_when_the_secret_named_now_is_known(found: Object | None) -> None:
    store = with_read_certificate()
    store.upsert(Kind.GATEWAY, gateway("gw", "new"))
    assert before(store.take().snapshot) == "cert"
    assert store.wait_unread(0.0) == (NEW,)

    store.fill(NEW, found)

    assert before(store.take().snapshot) == ""


def test_a_gateway_keeps_its_former_configuration_until_the_one_that_it_names_now_can_have_arrived() -> None:
    """While the watch of configurations is broken. A Secret that is not read either holds back the listeners alone."""

    def naming(config: str, secret_name: str) -> Object:
        ref = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": config}
        spec = msgspec.to_builtins(gateway("gw", secret_name))["spec"]
        return make(Kind.GATEWAY, "gw", {**spec, "infrastructure": {"parametersRef": ref}})

    def former() -> tuple[str, str]:
        """The Secret and the configuration in the previous spec."""
        snapshot = store.take().snapshot
        found = snapshot.read(GATEWAY)
        assert isinstance(found, Gateway)
        used = found.previous_spec and found.previous_spec.infrastructure
        return before(snapshot), used.parameters_ref.name if used and used.parameters_ref else ""

    store = listed(Kind.SECRET, Kind.GATEWAY, Kind.GATEWAY_CONFIG)
    store.upsert(Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "old", {}))
    store.upsert(Kind.GATEWAY, naming("old", "cert"))
    assert store.wait_unread(0.0) == (CERT,)
    store.fill(CERT, secret("cert", key="b2xk"))
    assert former() == ("", "")

    store.set_behind(Kind.GATEWAY_CONFIG, is_behind=True)
    store.upsert(Kind.GATEWAY, naming("new", "new"))
    assert former() == ("cert", "old")
    store.upsert(Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "new", {}))
    assert former() == ("cert", "new")
    assert store.wait_unread(0.0) == (NEW,)
    store.fill(NEW, secret("new", key="bmV3"))
    assert former() == ("", "")

    store.upsert(Kind.GATEWAY, naming("missing", "new"))
    assert former() == ("new", "new")
    store.set_behind(Kind.GATEWAY_CONFIG, is_behind=False)
    assert is_ready(store)
    assert former() == ("", ""), "it is known to be missing"


def test_the_former_spec_outlives_edits_until_all_named_secrets_are_read() -> None:
    store = with_read_certificate()
    store.upsert(Kind.GATEWAY, gateway("gw", "new"))
    store.take()

    store.upsert(Kind.GATEWAY, gateway("gw", "new", status={"attachedListenerSets": 1}))
    store.give(gateway("gw"), ("192.0.2.1",))
    touched = before(store.take().snapshot)
    store.upsert(Kind.GATEWAY, gateway("gw", "newer"))
    edited = before(store.take().snapshot)
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    taken_back = store.take().snapshot

    assert (touched, edited) == ("cert", "cert")
    assert before(taken_back) == ""
    assert taken_back.read(CERT) == secret("cert", key="b2xk")
    assert NEW not in store.wait_unread(0.0)


def test_a_gateway_whose_secrets_were_never_read_has_no_former_spec() -> None:
    store = listed(Kind.SECRET, Kind.GATEWAY)
    store.upsert(Kind.GATEWAY, gateway("gw", "cert"))
    store.take()

    store.upsert(Kind.GATEWAY, gateway("gw", "new"))

    assert before(store.take().snapshot) == ""


def test_a_recreated_gateway_has_no_former_spec() -> None:
    store = with_read_certificate()
    store.delete(Kind.GATEWAY, GATEWAY.key)

    store.upsert(Kind.GATEWAY, gateway("gw", "new"))

    assert before(store.take().snapshot) == ""


def test_a_class_s_secret_without_a_namespace_is_in_the_controller_s_namespace() -> None:
    store = Store([Kind.GATEWAY_CLASS_CONFIG, Kind.SECRET], home="default")
    store.replace(
        Kind.GATEWAY_CLASS_CONFIG,
        [make(Kind.GATEWAY_CLASS_CONFIG, "any", {"providerCredentialsSecretRef": {"name": "cert"}}, namespace="")],
    )

    store.replace(Kind.SECRET, [secret("cert", token="dA==")])

    assert store.take().snapshot.read(CERT) == secret("cert", token="dA==")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (Kind.GATEWAY, {"gatewayClassName": "c", "tls": {"backend": {"clientCertificateRef": {"name": "cert"}}}}),
        (
            Kind.GATEWAY,
            {
                "gatewayClassName": "c",
                "tls": {
                    "frontend": {"default": {"validation": {"caCertificateRefs": [{"name": "cert", "kind": "Secret"}]}}}
                },
            },
        ),
        (
            Kind.GATEWAY,
            {
                "gatewayClassName": "c",
                "tls": {
                    "frontend": {
                        "default": {},
                        "perPort": [
                            {
                                "port": 443,
                                "tls": {"validation": {"caCertificateRefs": [{"name": "cert", "kind": "Secret"}]}},
                            }
                        ],
                    }
                },
            },
        ),
        (
            Kind.LISTENER_SET,
            {
                "parentRef": {"name": "gw"},
                "listeners": [
                    {"name": "x", "port": 1, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}}
                ],
            },
        ),
        (
            Kind.BACKEND_TLS_POLICY,
            {
                "targetRefs": [],
                "validation": {
                    "hostname": "h",
                    "caCertificateRefs": [{"group": "", "kind": "Secret", "name": "cert"}],
                },
            },
        ),
        (Kind.GATEWAY_CONFIG, {"tunnelTokenSecretRef": {"name": "cert"}}),
        (Kind.GATEWAY_CLASS_CONFIG, {"providerCredentialsSecretRef": {"name": "cert", "namespace": "default"}}),
        (Kind.GATEWAY_CONFIG, {"providerCredentialsSecretRef": {"name": "cert"}}),
        (Kind.GATEWAY_CONFIG, {"authSecretRef": {"name": "cert"}}),
    ],
)
def test_every_way_to_name_a_secret_keeps_its_data(kind: Kind, spec: dict[str, object]) -> None:
    store = listed(kind, Kind.SECRET)
    store.upsert(kind, make(kind, "any", spec))

    store.upsert(Kind.SECRET, secret("cert", key="dA=="))

    assert store.take().snapshot.read(CERT) == secret("cert", key="dA==")


@pytest.mark.parametrize("ref", [{"kind": "Certificate"}, {"kind": "Secret", "group": "certs.example"}])
def test_a_certificate_of_a_kind_that_is_not_ours_names_no_secret(ref: dict[str, str]) -> None:
    store = listed(Kind.GATEWAY, Kind.SECRET)
    store.upsert(Kind.SECRET, secret("cert", key="cHJpdmF0ZQ=="))
    tls = {"certificateRefs": [{"name": "cert", **ref}]}
    listener = {"name": "x", "port": 443, "protocol": "HTTPS", "tls": tls}

    store.upsert(Kind.GATEWAY, make(Kind.GATEWAY, "gw", {"gatewayClassName": "c", "listeners": [listener]}))

    assert store.wait_unread(0.0) == ()
    assert store.take().snapshot.read(CERT) == secret("cert")


def test_waiting_is_ended_by_one_call_once() -> None:
    store = listed(Kind.HTTP_ROUTE)
    deadline_s = time.monotonic() + DEADLINE_S
    store.call()

    assert not store.wait(deadline_s)
    assert time.monotonic() < deadline_s
    deadline_s = time.monotonic() + 0.1
    assert not store.wait(deadline_s)
    assert time.monotonic() >= deadline_s


def test_waiting_ends_when_another_thread_edits() -> None:
    store = listed(Kind.HTTP_ROUTE)
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(store.wait(time.monotonic() + DEADLINE_S)))
    waiter.start()

    store.upsert(Kind.HTTP_ROUTE, route("a"))

    waiter.join(DEADLINE_S)
    assert seen == [True]


_NAMES = st.sampled_from("abcd")
_ROUTES = st.builds(
    lambda name, parent, path, version, born: route(
        name, parent, path, metadata={"resourceVersion": version, "creationTimestamp": born}
    ),
    _NAMES,
    st.sampled_from(["gw", "other"]),
    st.sampled_from(["/", "/x"]),
    st.sampled_from("12"),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
)
_KINDS = st.sampled_from([Kind.HTTP_ROUTE, Kind.GRPC_ROUTE])
Edit = Callable[[Store], None]
_EDITS: st.SearchStrategy[Edit] = st.one_of(
    st.builds(lambda kind, item: lambda store: store.upsert(kind, item), st.just(Kind.HTTP_ROUTE), _ROUTES),
    st.builds(lambda kind, name: lambda store: store.delete(kind, Key("default", name)), _KINDS, _NAMES),
    st.builds(
        lambda items: lambda store: store.replace(Kind.HTTP_ROUTE, items),
        st.lists(_ROUTES, unique_by=lambda item: item.key, max_size=4),
    ),
    st.just(lambda store: store.set_absent(Kind.HTTP_ROUTE)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(_EDITS, max_size=4), max_size=6))
def test_after_any_edits_a_snapshot_equals_one_built_afresh_and_all_differences_were_reported(
    rounds: list[list[Edit]],
) -> None:
    store = listed(Kind.HTTP_ROUTE, Kind.GRPC_ROUTE)
    before = store.take().snapshot

    for edits in rounds:
        for edit in edits:
            edit(store)
        change = store.take()
        after = change.snapshot

        afresh = Snapshot.of([(Kind.HTTP_ROUTE, item) for item in after.all(Kind.HTTP_ROUTE).values()])
        buckets = {Entry(Index.ROUTES_BY_PARENT, Key("default", parent)) for parent in ("gw", "other")}
        objects = {Entry(Kind.HTTP_ROUTE, Key("default", name)) for name in "abcd"}
        for entry in buckets:
            assert after.read(entry) == afresh.read(entry)
        for entry in buckets | objects:
            if entry not in change.changed | change.touched and entry.table is Kind.HTTP_ROUTE:
                assert after.read(entry) is before.read(entry)
            if entry.table is not Kind.HTTP_ROUTE and not change.touched and entry not in change.changed:
                assert after.read(entry) == before.read(entry)
        before = after
