"""The simulated integration API, rule by rule."""

from typing import Any

import pytest

from tests.support.controller import Controller, generated_drafts
from tests.support_tests.callers import Caller, a_policy

VALIDATION = "api.dns.policy.validation."
COMMON = {"enabled": True, "domain": "app.example.com"}
A = {**COMMON, "type": "A_RECORD", "ipv4Address": "192.0.2.10", "ttlSeconds": 300}
AAAA = {**COMMON, "type": "AAAA_RECORD", "ipv6Address": "2001:db8::1", "ttlSeconds": 0}
CNAME = {**COMMON, "type": "CNAME_RECORD", "targetDomain": "target.example.com", "ttlSeconds": 604800}
MX = {**COMMON, "type": "MX_RECORD", "mailServerDomain": "mail.example.com", "priority": 10}
TXT = {**COMMON, "type": "TXT_RECORD", "text": '"heritage=external-dns,external-dns/owner=default"'}
SRV = {
    **COMMON,
    "type": "SRV_RECORD",
    "service": "_sip",
    "protocol": "_tcp",
    "serverDomain": "host.example.com",
    "port": 5060,
    "priority": 1,
    "weight": 2,
}
FORWARD = {**COMMON, "type": "FORWARD_DOMAIN", "ipAddress": "192.0.2.53|2001:db8::53"}
ALL = [A, AAAA, CNAME, MX, TXT, SRV, FORWARD]


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**base, **changes}


def without(base: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in base.items() if other != name}


REFUSED = [
    (changed(MX, ttlSeconds=0), "api.request.unknown-property", "'$.ttlSeconds'"),
    (changed(TXT, ttlSeconds=300), "api.request.unknown-property", "'$.ttlSeconds'"),
    (changed(SRV, ttlSeconds=300), "api.request.unknown-property", "'$.ttlSeconds'"),
    (changed(FORWARD, ttlSeconds=300), "api.request.unknown-property", "'$.ttlSeconds'"),
    (changed(A, metadata={"origin": "USER_DEFINED"}), "api.request.unknown-property", "'$.metadata'"),
    (changed(A, id="x"), "api.request.unknown-property", "'$.id'"),
    (without(A, "ttlSeconds"), "api.request.missing-property", "'$.ttlSeconds'"),
    (without(AAAA, "ttlSeconds"), "api.request.missing-property", "'$.ttlSeconds'"),
    (without(CNAME, "ttlSeconds"), "api.request.missing-property", "'$.ttlSeconds'"),
    (without(A, "enabled"), "api.request.missing-property", "'$.enabled'"),
    (without(MX, "priority"), "api.request.missing-property", "'$.priority'"),
    (changed(A, ttlSeconds="300"), "api.request.invalid-body", "'$.ttlSeconds'"),
    (changed(A, ttlSeconds=True), "api.request.invalid-body", "'$.ttlSeconds'"),
    (changed(A, type="PTR_RECORD"), "api.request.invalid-body", "'$.type'"),
    (changed(A, ttlSeconds=86401), VALIDATION + "out-of-range", "'$.ttlSeconds'"),
    (changed(AAAA, ttlSeconds=-1), VALIDATION + "out-of-range", "'$.ttlSeconds'"),
    (changed(CNAME, ttlSeconds=604801), VALIDATION + "out-of-range", "'$.ttlSeconds'"),
    (changed(MX, priority=65536), VALIDATION + "out-of-range", "'$.priority'"),
    (changed(A, domain="a" * 128), VALIDATION + "invalid-domain", "'$.domain'"),
    (changed(A, domain=""), VALIDATION + "invalid-domain", "'$.domain'"),
    (changed(CNAME, targetDomain="a" * 128), VALIDATION + "invalid-domain", "'$.targetDomain'"),
    (changed(SRV, serverDomain="a" * 128), VALIDATION + "invalid-domain", "'$.serverDomain'"),
    (changed(MX, mailServerDomain="a" * 128), VALIDATION + "invalid-domain", "'$.mailServerDomain'"),
    (changed(A, ipv4Address="2001:db8::1"), VALIDATION + "invalid-ipv4-address", "'$.ipv4Address'"),
    (changed(AAAA, ipv6Address="::ffff:192.0.2.1"), VALIDATION + "invalid-ipv6-address", "'$.ipv6Address'"),
    (changed(CNAME, domain="*.example.com"), VALIDATION + "invalid-hostname", "'$.targetDomain'"),
    (changed(CNAME, targetDomain="app.example.com"), VALIDATION + "invalid-hostname", "'$.targetDomain'"),
    (changed(SRV, service="sip"), VALIDATION + "invalid-service", "'$.service'"),
    (changed(SRV, protocol="tcp"), VALIDATION + "invalid-protocol", "'$.protocol'"),
    (changed(FORWARD, ipAddress="ns.example.com"), VALIDATION + "invalid-ip-address", "'$.ipAddress'"),
    (changed(TXT, text="a,b"), VALIDATION + "txt-not-quoted", "'$.text'"),
    (changed(TXT, text='"a"b"'), VALIDATION + "txt-incorrectly-quoted", "'$.text'"),
    (changed(TXT, text="x" * 1025), VALIDATION + "txt-length", "'$.text'"),
]


@pytest.mark.parametrize("content", ALL, ids=lambda content: str(content["type"]))
def test_every_type_can_be_created_read_updated_and_deleted(caller: Caller, content: dict[str, Any]) -> None:
    created = caller.policies("POST", content=content)
    assert created.status_code == 201
    policy_id = created.json()["id"]

    assert created.json() == {"id": policy_id, "metadata": {"origin": "USER_DEFINED"}, **content}
    assert caller.policies("GET", f"/{policy_id}").json() == created.json()
    disabled = caller.policies("PUT", f"/{policy_id}", changed(content, enabled=False))
    assert (disabled.status_code, disabled.json()["enabled"]) == (200, False)
    assert caller.policies("DELETE", f"/{policy_id}").status_code == 200
    assert caller.policies("DELETE", f"/{policy_id}").status_code == 404
    assert caller.controller.rows() == []


@pytest.mark.parametrize(("content", "code", "place"), REFUSED)
def test_a_bad_policy_is_refused(caller: Caller, content: dict[str, Any], code: str, place: str) -> None:
    answer = caller.policies("POST", content=content)

    assert answer.status_code == 400
    body = answer.json()
    assert (body["statusCode"], body["statusName"], body["code"]) == (400, "BAD_REQUEST", code)
    assert place in body["message"]
    assert caller.controller.rows() == []


@pytest.mark.parametrize(
    "content",
    [
        changed(A, domain="a" * 127),
        changed(A, ttlSeconds=86400),
        changed(TXT, text="x" * 1024),
        changed(A, domain="*.example.com"),
    ],
)
def test_the_limits_themselves_are_accepted(caller: Caller, content: dict[str, Any]) -> None:
    assert caller.policies("POST", content=content).status_code == 201


def test_each_kind_of_conflict_is_400_with_its_own_code(caller: Caller) -> None:
    caller.policies("POST", content=A)
    caller.controller.add_row("printer.example.com", "A", "192.0.2.9", origin="DERIVED")

    codes = [
        caller.policies("POST", content=content).json()["code"]
        for content in (A, changed(CNAME, domain="app.example.com"), changed(A, domain="printer.example.com"))
    ]

    assert codes == [
        f"{VALIDATION}record-already-exists",
        f"{VALIDATION}cname-alias-overlap",
        f"{VALIDATION}overlap-with-local-dns",
    ]


def test_both_apis_show_one_store(caller: Caller) -> None:
    caller.policies("POST", content=SRV)

    row = caller.v2("GET").json()[0]

    assert (row["key"], row["record_type"], row["value"]) == ("_sip._tcp.app.example.com", "SRV", "host.example.com")
    assert (row["priority"], row["weight"], row["port"], row["ttl"]) == (1, 2, 5060, 0)
    assert caller.v2("DELETE", f"/{row['_id']}").status_code == 200
    assert caller.policies("GET").json()["totalCount"] == 0


def test_derived_rows_are_listed_and_cannot_be_written(caller: Caller) -> None:
    derived = caller.controller.add_row("printer.example.com", "A", "192.0.2.9", origin="DERIVED")

    listed = caller.policies("GET").json()["data"][0]

    assert listed["metadata"] == {"origin": "DERIVED"}
    assert caller.policies("DELETE", f"/{listed['id']}").status_code == 400
    assert caller.policies("PUT", f"/{listed['id']}", a_policy()).status_code == 400
    assert caller.controller.rows() == [derived]


def page(caller: Caller, query: str) -> dict[str, Any]:
    content: dict[str, Any] = caller.policies("GET", query).json()
    return content


def test_pages_hold_25_rows_by_default_and_200_at_most(caller: Caller) -> None:
    caller.controller.add_rows(generated_drafts(250))

    first, last = page(caller, ""), page(caller, "?offset=200&limit=200")

    assert (first["offset"], first["limit"], first["count"], first["totalCount"]) == (0, 25, 25, 250)
    assert (last["count"], last["totalCount"], len(last["data"])) == (50, 250, 50)
    assert page(caller, "?offset=250")["count"] == 0
    for query in ("?limit=201", "?offset=-1", "?limit=x"):
        assert caller.policies("GET", query).status_code == 400


def test_rows_can_move_between_pages_and_settle(caller: Caller) -> None:
    caller.controller.add_rows(generated_drafts(60))
    caller.controller.quirks.page_shifts = 2

    totals = [page(caller, f"?offset={offset}")["totalCount"] for offset in (0, 25, 0, 25, 50)]

    assert totals == [60, 61, 61, 60, 60]
    assert len(caller.controller.rows()) == 60


def test_policies_can_be_filtered(caller: Caller) -> None:
    caller.controller.add_rows(generated_drafts(30))
    expressions = {
        "domain.eq('host-00007.bulk.example.com')": 1,
        "domain.like('host-0000*')": 10,
        "and(type.eq('A_RECORD'), domain.like('*7.bulk.example.com'))": 3,
        "or(domain.eq('host-00001.bulk.example.com'),domain.eq('host-00002.bulk.example.com'))": 2,
    }

    counts = {
        expression: caller.policies("GET", params={"filter": expression}).json()["totalCount"]
        for expression in expressions
    }

    assert counts == expressions
    for bad in ("domain", "secret.eq('x')", "domain.eq(x)", "domain.eq('x') or", "and(domain.eq('x')"):
        assert caller.policies("GET", params={"filter": bad}).status_code == 400


def test_sites_are_listed_with_both_names() -> None:
    with Controller(sites=("default", "branch")) as controller, Caller(controller) as caller:
        url = f"{controller.integration_url}/sites"

        listed = caller.call("GET", url).json()
        branch = caller.call("GET", url, params={"filter": "internalReference.eq('branch')"}).json()["data"]

        assert [site["internalReference"] for site in listed["data"]] == ["default", "branch"]
        assert [site["id"] for site in branch] == [controller.sites["branch"].uuid]
        wrong = caller.call("GET", f"{url}/default/dns/policies")
        assert (wrong.status_code, wrong.json()["code"]) == (404, "api.site.not-found")


def test_info_returns_the_version(caller: Caller) -> None:
    answer = caller.call("GET", f"{caller.controller.integration_url}/info")

    assert answer.json() == {"applicationVersion": "10.4.57"}


def test_rows_created_through_v2_can_share_one_id_that_deletes_them_all(caller: Caller) -> None:
    caller.controller.quirks.shared_bucket_ids = True
    caller.policies("POST", content=a_policy("mine.example.com"))
    caller.controller.add_rows(generated_drafts(3))

    ids = [policy["id"] for policy in page(caller, "")["data"]]

    assert len(ids) == 4
    assert len(set(ids)) == 2
    assert caller.policies("DELETE", f"/{ids[-1]}").status_code == 200
    assert [row.key for row in caller.controller.rows()] == ["mine.example.com"]


@pytest.mark.parametrize("headers", [{}, {"X-API-KEY": "wrong"}, {"Cookie": "TOKEN=x"}])
def test_requests_without_the_api_key_are_401(controller: Controller, headers: dict[str, str]) -> None:
    with Caller(controller, headers) as caller:
        answer = caller.policies("GET")

    assert (answer.status_code, answer.json()["code"]) == (401, "api.authentication.missing-credentials")
