"""Secrets in the store: which of them have data, which are awaited, and what a Gateway keeps until they are read."""

import itertools

import msgspec
import pytest

from tests.tunnelgw.sources.objects import gateway, make, route, secret
from tests.tunnelgw.sources.stores import is_ready, listed
from tunnelgw.model.core import Secret
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.store import PATIENCE_S, Store
from tunnelgw.sources.tables import Unreadable

DEADLINE_S = 30.0
CERT = Entry(Kind.SECRET, Key("default", "cert"))


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


def test_gateways_that_keep_naming_other_secrets_delay_other_changes_only_briefly() -> None:
    now_s = 100.0
    store = listed(Kind.SECRET, Kind.GATEWAY, Kind.HTTP_ROUTE, clock=lambda: now_s)
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


def test_gateways_that_keep_naming_other_secrets_from_the_start_delay_the_first_change_only_briefly() -> None:
    now_s = 100.0
    store = Store([Kind.SECRET, Kind.GATEWAY], clock=lambda: now_s)
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
