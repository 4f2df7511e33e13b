"""The store: what a reader sees after any edits, which changes are reported to it, and when it may look."""

import threading
import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tunnelgw.sources.objects import gateway, make, route
from tests.tunnelgw.sources.stores import is_ready, listed
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Index, Snapshot
from tunnelgw.sources.store import PATIENCE_S, Store
from tunnelgw.sources.tables import Unreadable

DEADLINE_S = 30.0
CERT = Entry(Kind.SECRET, Key("default", "cert"))


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
def test_no_change_waits_for_a_kind_that_is_behind_longer_than_the_patience(comes_and_goes: bool) -> None:
    now_s = 100.0
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE, clock=lambda: now_s)
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


def test_nothing_waits_for_a_kind_that_has_stayed_behind_unless_another_one_comes_back() -> None:
    """As all kinds do, one after the other, after an outage of the server."""
    now_s = 100.0
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE, clock=lambda: now_s)
    for kind in (Kind.HTTP_ROUTE, Kind.SERVICE):
        store.set_behind(kind, is_behind=True)
    now_s += PATIENCE_S

    store.upsert(Kind.HTTP_ROUTE, route("a"))
    assert store.wait(now_s)
    store.set_behind(Kind.HTTP_ROUTE, is_behind=False)
    assert not store.wait(now_s)


def test_changes_wait_for_a_kind_that_falls_behind_later_even_if_another_stays_behind() -> None:
    now_s = 100.0
    store = listed(Kind.HTTP_ROUTE, Kind.SERVICE, Kind.BACKEND_TLS_POLICY, clock=lambda: now_s)
    store.set_behind(Kind.BACKEND_TLS_POLICY, is_behind=True)
    now_s += 10 * PATIENCE_S

    store.set_behind(Kind.SERVICE, is_behind=True)
    store.upsert(Kind.HTTP_ROUTE, route("a"))

    assert not store.wait(now_s)
    now_s += PATIENCE_S
    assert store.wait(now_s)


def definition(kind: Kind, **metadata: str) -> Object:
    resource = RESOURCES[kind]
    name = f"{resource.plural}.{resource.group}"
    return make(Kind.CUSTOM_RESOURCE_DEFINITION, name, namespace="", metadata=metadata)


def without_policies(*, may_come: bool = True, clock: Callable[[], float] = time.monotonic) -> Store:
    """A store that was taken when BackendTLSPolicy was not installed."""
    store = listed(Kind.HTTP_ROUTE, Kind.CUSTOM_RESOURCE_DEFINITION, clock=clock)
    store.set_absent(Kind.BACKEND_TLS_POLICY, may_come=may_come)
    assert not store.wait(clock())
    return store


def test_changes_wait_for_a_kind_whose_definition_has_come_until_it_is_listed() -> None:
    """The kinds of a bundle are found one after the other: a route without its policy would be served in the clear."""
    store = without_policies()
    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))
    store.upsert(Kind.HTTP_ROUTE, route("a"))
    assert not is_ready(store)
    store.set_absent(Kind.BACKEND_TLS_POLICY)
    assert not is_ready(store), "it was not served yet"

    store.replace(Kind.BACKEND_TLS_POLICY, ())

    assert is_ready(store)


def test_no_change_waits_for_a_kind_whose_definition_has_come_longer_than_the_patience() -> None:
    now_s = 100.0
    store = without_policies(clock=lambda: now_s)
    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))
    assert not store.wait(now_s)

    now_s += PATIENCE_S

    assert store.wait(now_s)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            lambda store: store.delete(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY).key),
            id="its definition has gone again",
        ),
        pytest.param(
            lambda store: store.upsert(
                Kind.CUSTOM_RESOURCE_DEFINITION,
                definition(Kind.BACKEND_TLS_POLICY, deletionTimestamp="2026-01-01T00:00:00Z"),
            ),
            id="its definition is being deleted",
        ),
        pytest.param(
            lambda store: store.set_absent(Kind.BACKEND_TLS_POLICY, may_come=False), id="only other versions are served"
        ),
    ],
)
def test_changes_wait_no_longer_for_a_kind_that_does_not_come_after_all(end: Callable[[Store], None]) -> None:
    store = without_policies()
    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))
    assert not is_ready(store)

    end(store)

    assert is_ready(store)


def test_a_kind_that_did_not_come_is_expected_with_the_next_definition() -> None:
    store = without_policies()
    for _ in range(2):
        store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))
        assert not is_ready(store)
        store.set_absent(Kind.BACKEND_TLS_POLICY, may_come=False)
        store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY, resourceVersion="2"))
        assert is_ready(store)
        store.delete(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY).key)
        store.take()


def test_a_kind_that_has_been_absent_for_long_is_expected_when_its_definition_comes() -> None:
    store = without_policies(may_come=False)

    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))

    assert not is_ready(store)


def test_changes_wait_for_no_kind_that_is_installed_when_a_definition_comes() -> None:
    store = listed(Kind.CUSTOM_RESOURCE_DEFINITION, Kind.BACKEND_TLS_POLICY)

    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, definition(Kind.BACKEND_TLS_POLICY))
    store.upsert(Kind.CUSTOM_RESOURCE_DEFINITION, make(Kind.CUSTOM_RESOURCE_DEFINITION, "a.example.org", namespace=""))

    assert is_ready(store)


def test_waiting_is_ended_by_one_call_once() -> None:
    store = listed(Kind.HTTP_ROUTE)
    deadline_s = time.monotonic() + DEADLINE_S
    store.wake()

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
