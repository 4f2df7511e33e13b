"""The store where Secrets are read in named namespaces only."""

import pytest

from tests.tunnelgw.sources.objects import gateway, make, secret
from tests.tunnelgw.sources.stores import is_ready
from tunnelgw.model.core import Namespace, Secret
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, ObjectMeta
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.store import Store
from tunnelgw.sources.tables import Unreadable

CERT = Entry(Kind.SECRET, Key("default", "cert"))


def test_secrets_of_each_named_namespace_and_our_own_are_awaited_separately() -> None:
    store = Store([Kind.SECRET], home="home", secret_namespaces=["default"])

    store.replace(Kind.SECRET, [secret("cert")], namespace="default")
    assert store.unlisted == {Kind.SECRET}
    assert not store.wait_listed([Kind.SECRET], 0.0)
    store.replace(Kind.SECRET, (), namespace="home")

    assert store.wait_listed([Kind.SECRET], 0.0)
    assert set(store.take().snapshot.all(Kind.SECRET)) == {CERT.key}


def test_a_closed_namespace_is_no_longer_awaited_and_its_secrets_are_outside_until_it_is_listed() -> None:
    store = Store([Kind.GATEWAY, Kind.SECRET], home="home", secret_namespaces=["default"])
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    store.replace(Kind.SECRET, (), namespace="home")

    store.set_forbidden("default")

    assert is_ready(store)
    found = store.take().snapshot.read(CERT)
    assert isinstance(found, Secret)
    assert found.is_outside
    store.replace(Kind.GATEWAY, [gateway("gw", "later")])
    later = store.take().snapshot.read(Entry(Kind.SECRET, Key("default", "later")))
    assert isinstance(later, Secret)
    assert later.is_outside

    store.replace(Kind.SECRET, [secret("other")], namespace="default")
    assert set(store.take().snapshot.all(Kind.SECRET)) == {Key("default", "other")}
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    assert store.wait_unread(0.0) == (CERT,)


def test_a_namespace_that_was_listed_stays_as_it_was_when_it_is_closed() -> None:
    store = Store([Kind.GATEWAY, Kind.SECRET], home="home", secret_namespaces=["default"])
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    store.replace(Kind.SECRET, (), namespace="home")
    store.replace(Kind.SECRET, [secret("cert", token="dA==")], namespace="default")

    store.set_forbidden("default")

    assert store.take().snapshot.read(CERT) == secret("cert", token="dA==")
    store.replace(Kind.GATEWAY, [gateway("gw", "later")])
    assert store.wait_unread(0.0) == (Entry(Kind.SECRET, Key("default", "later")),)


def test_a_namespace_that_is_closed_takes_no_secret_of_another() -> None:
    store = Store([Kind.GATEWAY, Kind.SECRET], home="home", secret_namespaces=["default", "shop"])
    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])
    store.replace(Kind.SECRET, [secret("cert", token="dA==")], namespace="default")
    store.replace(Kind.SECRET, (), namespace="home")

    store.set_forbidden("shop")

    assert is_ready(store)
    assert store.take().snapshot.read(CERT) == secret("cert", token="dA==")


def test_a_list_of_one_namespace_removes_nothing_of_another() -> None:
    store = Store([Kind.SECRET], home="home", secret_namespaces=["default"])
    store.replace(Kind.SECRET, [secret("cert")], {Key("default", "odd"): Unreadable("odd")}, namespace="default")

    store.replace(Kind.SECRET, (), namespace="home")
    change = store.take()
    assert set(change.snapshot.all(Kind.SECRET)) == {CERT.key}
    assert set(change.unreadable) == {Entry(Kind.SECRET, Key("default", "odd"))}
    store.replace(Kind.SECRET, (), namespace="default")

    change = store.take()
    assert not change.snapshot.all(Kind.SECRET)
    assert not change.unreadable


def test_a_secret_in_a_namespace_that_is_not_read_is_outside_while_it_is_named_and_never_awaited() -> None:
    store = Store([Kind.GATEWAY, Kind.SECRET], home="home", secret_namespaces=["home"])
    store.replace(Kind.SECRET, (), namespace="home")

    store.replace(Kind.GATEWAY, [gateway("gw", "cert")])

    assert is_ready(store)
    found = store.take().snapshot.read(CERT)
    assert isinstance(found, Secret)
    assert found.is_outside
    assert store.wait_unread(0.0) == ()
    assert store.counts()[Kind.SECRET, True] == 0
    store.replace(Kind.GATEWAY, [gateway("gw")])
    assert store.take().snapshot.read(CERT) is None


def test_one_namespace_that_is_behind_is_waited_for_until_it_has_caught_up_itself() -> None:
    store = Store([Kind.SECRET], home="home", secret_namespaces=["default"])
    for namespace in ("home", "default"):
        store.replace(Kind.SECRET, (), namespace=namespace)
    store.take()
    for namespace in ("home", "default"):
        store.set_behind(Kind.SECRET, namespace, is_behind=True)
    store.upsert(Kind.SECRET, secret("cert"))

    store.set_behind(Kind.SECRET, "home", is_behind=False)
    assert not is_ready(store)
    store.set_behind(Kind.SECRET, "default", is_behind=False)

    assert is_ready(store)


@pytest.mark.parametrize(
    ("namespaces", "can_have"), [(None, True), ([], False), (["other"], False), (["other", "shop"], True)]
)
def test_a_namespace_can_have_roles_until_a_list_lacks_it(namespaces: list[str] | None, can_have: bool) -> None:
    store = Store([Kind.NAMESPACE])
    if namespaces is not None:
        store.replace(Kind.NAMESPACE, [make(Kind.NAMESPACE, name, namespace="") for name in namespaces])

    assert store.can_have_roles("shop") is can_have


def test_a_namespace_that_is_being_deleted_can_have_no_more_roles() -> None:
    store = Store([Kind.NAMESPACE])

    store.replace(Kind.NAMESPACE, [Namespace(ObjectMeta("shop", deletion_timestamp="2026-01-01T00:00:00Z"))])

    assert not store.can_have_roles("shop")
