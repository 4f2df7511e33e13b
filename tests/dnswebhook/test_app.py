"""The webhook over WSGI: the answers to valid requests, their shape and their time limits."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from daemonkit.logformat import line_of
from dnswebhook.domains import DomainFilter
from dnswebhook.errors import CapabilitiesUnknown, StoreUnreachable
from tests.support.lettinggo import lets_go
from tests.support.memory_store import WAIT_S
from tests.support.webhook_site import ENDPOINT, MEDIA_TYPE, NEW, OTHER, ROW, BuildSite, assert_error


def test_negotiation_is_one_object_for_both_kinds_of_reader(site: BuildSite) -> None:
    response = site(domain_filter=DomainFilter(["example.com"], ["private.example.com"])).get("/")

    assert 200 == response.status_code
    assert MEDIA_TYPE == response.headers["Content-Type"]
    assert {
        "domainFilter": {
            "filters": ["example.com"],
            "exclude": ["private.example.com"],
            "regexFilter": "",
            "regexExclude": "",
        },
        "include": ["example.com"],
        "exclude": ["private.example.com"],
    } == json.loads(response.data)


def test_negotiation_works_while_the_store_is_down(site: BuildSite) -> None:
    here = site()
    here.store.fail("list", StoreUnreachable("gone"))
    here.store.limits = CapabilitiesUnknown("unknown")

    assert 200 == here.get("/").status_code


@pytest.mark.parametrize(
    ("accept", "content_type", "is_wrapped"),
    [
        (MEDIA_TYPE, MEDIA_TYPE, False),
        ("application/external.dns.webhook+json; version=1", MEDIA_TYPE, False),
        ("Application/External.DNS.Webhook+JSON;version=1", MEDIA_TYPE, False),
        ("application/json", "application/json", True),
        (f"application/json, {MEDIA_TYPE}", MEDIA_TYPE, False),
        (f"application/json, {MEDIA_TYPE};q=0.5", "application/json", True),
        ("*/*", MEDIA_TYPE, True),
        (None, MEDIA_TYPE, True),
        ("", MEDIA_TYPE, True),
    ],
)
def test_records_are_bare_for_the_webhook_media_type_and_wrapped_otherwise(
    site: BuildSite, accept: str | None, content_type: str, is_wrapped: bool
) -> None:
    response = site(ROW).get("/records", accept)

    assert 200 == response.status_code
    assert content_type == response.headers["Content-Type"]
    assert ({"endpoints": [ENDPOINT]} if is_wrapped else [ENDPOINT]) == json.loads(response.data)


@pytest.mark.parametrize(("accept", "body"), [(MEDIA_TYPE, b"[]"), ("application/json", b'{"endpoints":[]}')])
def test_an_empty_store_is_an_empty_list_never_null(site: BuildSite, accept: str, body: bytes) -> None:
    assert body == site().get("/records", accept).data


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ([ENDPOINT], [ENDPOINT]),
        ({"endpoints": [ENDPOINT]}, {"endpoints": [ENDPOINT]}),
        (None, []),
        ([], []),
        ({"endpoints": None}, {"endpoints": []}),
    ],
)
def test_adjusting_answers_in_the_shape_of_the_request(site: BuildSite, body: Any, answer: Any) -> None:
    response = site().post("/adjustendpoints", body)

    assert 200 == response.status_code
    assert MEDIA_TYPE == response.headers["Content-Type"]
    assert answer == json.loads(response.data)


@pytest.mark.parametrize("key", ["create", "Create", "CREATE"])
def test_an_apply_is_answered_204_without_a_body(site: BuildSite, key: str) -> None:
    here = site()

    response = here.post("/records", {key: [NEW], "updateOld": None, "Delete": [], "extra": {"a": 1}})

    assert (204, b"") == (response.status_code, response.data)
    assert {("new.example.com", "A", "192.0.2.2")} == here.store.live


@pytest.mark.parametrize("body", [{}, {"create": None}, {"Create": None, "UpdateOld": None}, {"delete": []}])
def test_an_apply_of_nothing_is_a_success(site: BuildSite, body: Any) -> None:
    assert 204 == site().post("/records", body).status_code


@pytest.mark.parametrize("content_type", [MEDIA_TYPE, "application/json", "application/json; charset=utf-8", None, ""])
def test_an_apply_needs_neither_accept_nor_an_exact_content_type(site: BuildSite, content_type: str | None) -> None:
    assert 204 == site().post("/records", {"create": [NEW]}, content_type).status_code


@pytest.mark.parametrize("path", ["/", "/records"])
def test_head_is_get_without_the_body(site: BuildSite, path: str) -> None:
    here = site(ROW)
    head = here.client.head(path, headers={"Accept": MEDIA_TYPE})

    assert (200, b"") == (head.status_code, head.data)
    assert MEDIA_TYPE == head.headers["Content-Type"]
    assert len(here.get(path).data) == int(head.headers["Content-Length"])


def test_every_response_has_a_unique_request_id(site: BuildSite) -> None:
    here = site()

    assert 2 == len({here.get(path).headers["X-Request-Id"] for path in ("/", "/nowhere")})


# Time.


def test_a_call_that_waits_beyond_its_deadline_is_answered_503_with_retry_after(
    site: BuildSite, caplog: pytest.LogCaptureFixture
) -> None:
    here = site()
    gate = here.store.halt("create")
    impatient = here.client_with(0.05)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(here.post, "/records", {"create": [NEW]})
        gate.wait_for_arrivals()
        late = [impatient.post("/records", json={"create": [OTHER]}), impatient.get("/records")]
        gate.open()

        assert 204 == first.result(WAIT_S).status_code
    for response in late:
        assert "lists anew" in assert_error(response, 503, "deadline passed")
        assert int(response.headers["Retry-After"]) > 0
    assert "DNSWEBHOOK_CALL_DEADLINE" in str(line_of(caplog.records[-1])["remedy"])


def test_a_process_that_stops_writes_nothing_more_and_answers_503(site: BuildSite) -> None:
    here = site()
    here.stop.set()

    response = here.post("/records", {"create": [NEW]})

    assert "1 not tried" in assert_error(response, 503, "stopping")
    assert "Retry-After" in response.headers
    assert [] == here.store.calls


def test_a_caller_that_hung_up_while_it_was_queued_changes_nothing(site: BuildSite) -> None:
    here = site()

    response = here.post("/records", {"create": [NEW]}, environ_overrides={"daemonkit.client_gone": lambda: True})

    assert_error(response, 503, "caller gone")
    assert [] == here.store.calls


# Metrics.


def test_requests_are_counted_by_route_and_status_code(site: BuildSite) -> None:
    here = site(ROW)
    for path in ("/", "/records", "/nowhere"):
        here.get(path)
    here.post("/records", b"{")
    count = "dnswebhook_http_request_duration_seconds_count"

    assert 1 == here.metric(count, route="negotiate", status_code="200")
    assert 1 == here.metric(count, route="records", status_code="200")
    assert 1 == here.metric(count, route="none", status_code="404")
    assert 1 == here.metric(count, route="apply", status_code="400")
    assert 0 == here.metric(count, route="apply", status_code="204")


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/", "GET", b""),
        ("/records", "GET", b""),
        ("/adjustendpoints", "POST", json.dumps([NEW]).encode()),
        ("/records", "POST", json.dumps({"create": [NEW]}).encode()),
        ("/records", "POST", b"no json"),
        ("/nothing", "GET", b""),
    ],
)
def test_a_call_leaves_nothing_to_the_garbage_collector(site: BuildSite, path: str, method: str, body: bytes) -> None:
    assert lets_go(site(ROW).client.application, path, method, body)
