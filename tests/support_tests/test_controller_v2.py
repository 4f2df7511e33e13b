"""The simulated v2 API, rule by rule."""

from typing import Any

import pytest

from tests.support.controller import Controller, Flavour, PutRefusal
from tests.support_tests.callers import Caller, a_record

INVALID = "api.err.StaticDnsRecordInvalidParameters"
EXISTS = "api.err.StaticDnsRecordAlreadyExists"
CNAME_OVERLAP = "api.err.StaticDnsCnameAliasOverlapsWithOtherRecords"
DEVICE_OVERLAP = "api.err.StaticDnsOverlapsWithDeviceLocalDns"
KEY_256 = ".".join(["a" * 63] * 4) + "z"


def record(record_type: str, value: str, key: str = "app.example.com", **more: Any) -> dict[str, Any]:
    return {"key": key, "record_type": record_type, "value": value, **more}


ACCEPTED = [
    record("A", "192.0.2.10", ttl=300),
    record("A", "192.0.2.10", ttl=86400),
    record("A", "192.0.2.10", key="*.example.com"),
    record("A", "192.0.2.10", key=KEY_256),
    record("A", "192.0.2.10", enabled=False),
    record("A", "192.0.2.10", note="an unknown field"),
    record("AAAA", "2001:db8::1", ttl=1),
    record("AAAA", "2001:DB8:0::1"),
    record("CNAME", "target.example.com", ttl=604800),
    record("MX", "mail.example.com", priority=10),
    record("MX", "mail.example.com"),
    record("NS", "192.0.2.53"),
    record("NS", "2001:db8::53"),
    record("SRV", "host.example.com", key="_sip._tcp.example.com", priority=1, weight=2, port=65535),
    record("TXT", "plain"),
    record("TXT", '"heritage=external-dns,external-dns/owner=default"'),
    record("TXT", "with spaces, and a comma"),
    record("TXT", "x" * 255),
    record("TXT", "x" * 200 + "\n" + "y" * 55),
]

REFUSED = [
    (record("PTR", "host.example.com"), "record_type", "Invalid record type"),
    (record("SOA", "host.example.com"), "record_type", "Invalid record type"),
    (record("a", "192.0.2.1"), "record_type", "Invalid record type"),
    (record("A", "2001:db8::1"), "value", "Invalid IPv4 address"),
    (record("A", "host.example.com"), "value", "Invalid IPv4 address"),
    (record("A", "192.0.2.1", ttl=86401), "ttl", "Invalid ttl"),
    (record("A", "192.0.2.1", ttl=-1), "ttl", "Invalid ttl"),
    (record("A", "192.0.2.1", priority=1), "priority", "may not have a value set on the following parameters"),
    (record("AAAA", "192.0.2.1"), "value", "Invalid IPv6 address"),
    (record("AAAA", "::ffff:192.0.2.1"), "value", "Invalid IPv6 address"),
    (record("AAAA", "fe80::1%eth0"), "value", "Invalid IPv6 address"),
    (record("AAAA", "2001:db8::1", weight=1), "weight", "may not have a value set"),
    (record("CNAME", "app.example.com"), "value", "itself"),
    (record("CNAME", "APP.example.com"), "value", "itself"),
    (record("CNAME", "not a host"), "value", "Invalid hostname"),
    (record("CNAME", "target.example.com."), "value", "Invalid hostname"),
    (record("CNAME", "target.example.com", key="*.example.com"), "key", "Invalid hostname"),
    (record("CNAME", "target.example.com", port=1), "port", "may not have a value set"),
    (record("MX", "10 mail.example.com"), "value", "Invalid hostname"),
    (record("MX", "mail.example.com", ttl=300), "ttl", "may not have a value set"),
    (record("MX", "mail.example.com", weight=1), "weight", "may not have a value set"),
    (record("MX", "mail.example.com", priority=65536), "priority", "Invalid priority"),
    (record("NS", "ns.example.com"), "value", "Invalid IP address"),
    (record("NS", "192.0.2.1", ttl=60), "ttl", "may not have a value set"),
    (record("SRV", "host.example.com"), "key", "_service._proto"),
    (record("SRV", "host.example.com", key="_sip.tcp.example.com"), "key", "_service._proto"),
    (record("SRV", "1 2 3 host.example.com", key="_sip._tcp.example.com"), "value", "Invalid hostname"),
    (record("SRV", "host.example.com", key="_sip._tcp.example.com", ttl=9), "ttl", "may not have a value set"),
    (record("TXT", "text", ttl=60), "ttl", "may not have a value set"),
    (record("TXT", 'in"side'), "value", "Double quotes"),
    (record("TXT", '"in"side"'), "value", "Double quotes"),
    (record("TXT", '"open'), "value", "Double quotes"),
    (record("TXT", "x" * 256), "value", "Each line"),
    (record("TXT", "x" * 257), "value", "1-256"),
    (record("TXT", ""), "value", "1-256"),
    (record("A", "192.0.2.1", key=""), "key", "Invalid key"),
    (record("A", "192.0.2.1", key=KEY_256 + "z"), "key", "Invalid key"),
    (record("A", "192.0.2.1", key="app.example.com."), "key", "Invalid key"),
    (record("A", "192.0.2.1", key="my app"), "key", "Invalid key"),
    (record("A", "192.0.2.1", key="a,b"), "key", "Invalid key"),
]


def _label(case: Any) -> str | None:
    return f"{case['record_type']}-{case['value'][:20]}" if isinstance(case, dict) else None


@pytest.mark.parametrize("content", ACCEPTED, ids=_label)
def test_a_good_record_is_stored_as_sent_and_listed(caller: Caller, content: dict[str, Any]) -> None:
    created = caller.v2("POST", content=content)

    assert created.status_code == 200
    stored = created.json()
    known = {name: value for name, value in content.items() if name != "note"}
    defaults = {"enabled": True, "ttl": 0, "priority": 0, "weight": 0, "port": 0}
    assert {"_id": stored["_id"], **defaults, **known} == stored
    assert len(stored["_id"]) == 24
    assert caller.v2("GET").json() == [stored]


@pytest.mark.parametrize(("content", "field", "message"), REFUSED, ids=_label)
def test_a_bad_record_is_refused_with_the_field_named(
    caller: Caller, content: dict[str, Any], field: str, message: str
) -> None:
    answer = caller.v2("POST", content=content)

    assert answer.status_code == 400
    body = answer.json()
    assert (body["code"], body["errorCode"], body["details"]["invalid_fields"]) == (INVALID, 400, [field])
    assert message in body["message"]
    assert caller.controller.rows() == []
    assert caller.controller.resolver_reloads == 0


@pytest.mark.parametrize("body", ["", "null", "[]", "{}", '{"key":1,"record_type":"A","value":"192.0.2.1"}', "{"])
def test_a_malformed_body_is_refused(caller: Caller, body: str) -> None:
    assert caller.v2("POST", data=body).status_code == 400


def test_an_older_release_accepts_keys_of_128_characters_at_most(caller: Caller) -> None:
    caller.controller.quirks.max_key_characters = 128

    assert caller.v2("POST", content=a_record("a" * 128)).status_code == 200
    assert caller.v2("POST", content=a_record("a" * 129)).json()["code"] == INVALID


CONFLICTS = [
    (("A", "192.0.2.10", True), record("A", "192.0.2.10"), EXISTS),
    (("A", "192.0.2.10", False), record("A", "192.0.2.10"), EXISTS),
    (("A", "192.0.2.10", True), record("A", "192.0.2.10", key="APP.example.com"), EXISTS),
    (("CNAME", "one.example.com", True), record("CNAME", "two.example.com"), CNAME_OVERLAP),
    (("CNAME", "one.example.com", True), record("A", "192.0.2.10"), CNAME_OVERLAP),
    (("A", "192.0.2.10", True), record("CNAME", "one.example.com"), CNAME_OVERLAP),
    (("TXT", "text", True), record("CNAME", "one.example.com"), CNAME_OVERLAP),
]


@pytest.mark.parametrize(("present", "content", "code"), CONFLICTS)
def test_conflicting_rows_are_refused(
    caller: Caller, present: tuple[str, str, bool], content: dict[str, Any], code: str
) -> None:
    record_type, value, enabled = present
    caller.controller.add_row("app.example.com", record_type, value, enabled=enabled)

    answer = caller.v2("POST", content=content)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert len(caller.controller.rows()) == 1


def test_several_values_of_one_name_are_several_rows(caller: Caller) -> None:
    for value in ("192.0.2.1", "192.0.2.2"):
        assert caller.v2("POST", content=a_record(value=value)).status_code == 200

    assert [row["value"] for row in caller.v2("GET").json()] == ["192.0.2.1", "192.0.2.2"]


def test_a_device_derived_name_is_not_listed_but_blocks_creation(caller: Caller) -> None:
    derived = caller.controller.add_row("printer.example.com", "A", "192.0.2.9", origin="DERIVED")

    assert caller.v2("GET").json() == []
    answer = caller.v2("POST", content=a_record("printer.example.com"))
    assert (answer.status_code, answer.json()["code"]) == (400, DEVICE_OVERLAP)
    assert caller.v2("DELETE", f"/{derived.id}").status_code == 404
    assert caller.controller.rows() == [derived]


def test_an_update_replaces_the_row_and_keeps_its_id(caller: Caller) -> None:
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")

    answer = caller.v2("PUT", f"/{row.id}", a_record("other.example.com", "192.0.2.2", ttl=60))

    assert answer.status_code == 200
    assert answer.json()["_id"] == row.id
    assert [(r.id, r.key, r.value, r.ttl_s) for r in caller.controller.rows()] == [
        (row.id, "other.example.com", "192.0.2.2", 60)
    ]
    assert caller.v2("GET").json() == [answer.json()]


def test_an_update_is_checked_against_the_other_rows_only(caller: Caller) -> None:
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")
    caller.controller.add_row("app.example.com", "A", "192.0.2.2")

    assert caller.v2("PUT", f"/{row.id}", a_record(value="192.0.2.1", ttl=60)).status_code == 200
    assert caller.v2("PUT", f"/{row.id}", a_record(value="192.0.2.2")).json()["code"] == EXISTS
    answer = caller.v2("PUT", f"/{row.id}", record("CNAME", "x.example.com"))
    assert answer.json()["code"] == CNAME_OVERLAP


def test_a_single_row_may_change_its_type_in_place(caller: Caller) -> None:
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")

    assert caller.v2("PUT", f"/{row.id}", record("CNAME", "x.example.com")).status_code == 200


def test_a_listing_shows_every_write_at_once(caller: Caller) -> None:
    def listed() -> list[str]:
        return [row["value"] for row in caller.v2("GET").json()]

    empty = listed()
    row_id = caller.v2("POST", content=a_record(value="192.0.2.1")).json()["_id"]
    created = listed()
    caller.v2("PUT", f"/{row_id}", a_record(value="192.0.2.2"))
    updated = listed()
    caller.v2("DELETE", f"/{row_id}")

    assert (empty, created, updated, listed()) == ([], ["192.0.2.1"], ["192.0.2.2"], [])


def test_a_second_deletion_finds_nothing(caller: Caller) -> None:
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")

    first, second = caller.v2("DELETE", f"/{row.id}"), caller.v2("DELETE", f"/{row.id}")

    assert (first.status_code, first.content) == (200, b"")
    assert (second.status_code, second.json()["code"]) == (404, "api.err.StaticDnsRecordNotFound")
    assert caller.v2("PUT", f"/{row.id}", a_record()).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_single_row_can_neither_be_read_nor_patched(caller: Caller, method: str) -> None:
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")

    answer = caller.v2(method, f"/{row.id}")

    assert answer.status_code == 405
    assert answer.headers["Content-Type"].startswith("text/html")


def test_the_collection_is_found_with_a_trailing_slash(caller: Caller) -> None:
    assert caller.v2("POST", "/", a_record()).status_code == 200
    assert len(caller.v2("GET", "/").json()) == 1


@pytest.mark.parametrize(("refusal", "status"), [(PutRefusal.EXISTS, 400), (PutRefusal.NOT_ALLOWED, 405)])
def test_put_can_be_refused_altogether(caller: Caller, refusal: PutRefusal, status: int) -> None:
    caller.controller.quirks.put_refusal = refusal
    row = caller.controller.add_row("app.example.com", "A", "192.0.2.1")

    assert caller.v2("PUT", f"/{row.id}", a_record(value="192.0.2.2")).status_code == status
    assert caller.controller.rows() == [row]


def test_create_can_be_refused_by_v2_while_the_integration_api_accepts_it(caller: Caller) -> None:
    caller.controller.quirks.refuses_v2_create = True

    assert caller.v2("POST", content=a_record()).status_code == 400
    policy = {
        "type": "A_RECORD",
        "enabled": True,
        "domain": "a.example",
        "ipv4Address": "192.0.2.1",
        "ttlSeconds": 0,
    }
    assert caller.policies("POST", content=policy).status_code == 201


def test_sites_are_separate_and_an_unknown_one_is_an_error() -> None:
    with Controller(sites=("default", "branch")) as controller, Caller(controller) as caller:
        caller.v2("POST", content=a_record())

        assert caller.call("GET", controller.v2_url.replace("default", "branch")).json() == []
        wrong = caller.call("GET", controller.v2_url.replace("default", "Default"))
        assert (wrong.status_code, wrong.json()["message"]) == (404, "Site does not exist")


@pytest.mark.parametrize(
    ("flavour", "version", "path", "status"),
    [
        (Flavour.UNIFI_OS, "10.4.57", "/proxy/network/v2/api/site/default/static-dns", 200),
        (Flavour.UNIFI_OS, "10.4.57", "/v2/api/site/default/static-dns", 404),
        (Flavour.UNIFI_OS, "10.4.57", "/proxy/network/integration/v1/info", 200),
        (Flavour.UNIFI_OS, "10.1.0", "/proxy/network/integration/v1/info", 200),
        (Flavour.UNIFI_OS, "10.0.162", "/proxy/network/integration/v1/info", 404),
        (Flavour.UNIFI_OS, "8.1.127", "/proxy/network/v2/api/site/default/static-dns", 404),
        (Flavour.CLASSIC, "10.4.57", "/v2/api/site/default/static-dns", 401),
        (Flavour.CLASSIC, "10.4.57", "/proxy/network/v2/api/site/default/static-dns", 404),
        (Flavour.CLASSIC, "10.4.57", "/integration/v1/info", 404),
        (Flavour.CLASSIC, "10.4.57", "/", 404),
    ],
)
def test_paths_depend_on_flavour_and_version(flavour: Flavour, version: str, path: str, status: int) -> None:
    with Controller(flavour=flavour, version=version) as controller, Caller(controller) as caller:
        answer = caller.call("GET", controller.url + path)

        assert answer.status_code == status
        assert answer.headers["Content-Type"].startswith("text/html" if status == 404 else "application/json")
