"""The webhook over WSGI: which status code each bad request and each failure of the store gets, row by row."""

import io
import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from daemonkit.logformat import line_of
from dnswebhook.errors import (
    AlreadyExists,
    CapabilitiesUnknown,
    CredentialsRefused,
    NotFound,
    Overlaps,
    RateLimited,
    RecordError,
    StoreError,
    StoreFailed,
    StoreRestarting,
    StoreTimeout,
    StoreUnreachable,
    UpdateUnsupported,
)
from dnswebhook.model import Record, RecordSpec
from tests.support.memory_store import MemoryStore
from tests.support.webhook_site import (
    ENDPOINT,
    MAX_BODY_BYTES,
    MEDIA_TYPE,
    NEW,
    OTHER,
    ROW,
    BuildSite,
    Site,
    assert_error,
)

# Requests that the real client cannot make.


@pytest.mark.parametrize("path", ["/nowhere", "/records/", "/records//", "/healthz", "/applychanges", "/Records"])
def test_an_unknown_path_is_404_and_never_redirected(site: BuildSite, path: str) -> None:
    assert_error(site().get(path), 404, "not found")


@pytest.mark.parametrize(
    ("method", "path", "answer", "told"),
    [
        ("GET", "/nowhere", "not found", "want one of GET /, GET /records, POST /records, POST /adjustendpoints"),
        ("DELETE", "/records", "method not allowed", "this path allows GET, HEAD, POST"),
        ("POST", "/records", "unsupported media type", f"body is 'text/html', want '{MEDIA_TYPE}'"),
    ],
)
def test_a_refusal_is_logged_with_the_category_and_the_message_that_the_client_got(
    site: BuildSite, caplog: pytest.LogCaptureFixture, method: str, path: str, answer: str, told: str
) -> None:
    with caplog.at_level("INFO"):
        site().client.open(path, method=method, content_type="text/html")

    (line,) = [line_of(record) for record in caplog.records if record.getMessage() == "request refused"]
    assert (line["answer"], line["error"]) == (answer, told)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:8888", ""])
@pytest.mark.parametrize("path", ["/records", "/adjustendpoints"])
def test_a_page_in_a_browser_writes_no_records(site: BuildSite, path: str, origin: str) -> None:
    """Without a content type, a browser sends such a request of a foreign page without a CORS preflight."""
    here = site()
    body = json.dumps({"Create": [ENDPOINT]} if path == "/records" else [ENDPOINT])
    response = here.client.post(path, data=body, headers={"Origin": origin})

    assert_error(response, 403, "forbidden")
    assert not here.store.rows
    assert 200 == here.get("/records").status_code


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    "host", ["page.example", "page.example:8888", "localhost.page.example", "127.0.0.1.nip.io:8888"]
)
@pytest.mark.parametrize("path", ["/", "/records"])
def test_a_name_that_somebody_has_pointed_at_loopback_reads_nothing(
    site: BuildSite, client: str, host: str, path: str
) -> None:
    """A web page of that name could (DNS rebinding)."""
    headers = {"Host": host, "Accept-Language": "en"}
    response = site().client.get(path, headers=headers, environ_overrides={"REMOTE_ADDR": client})

    assert_error(response, 403, "forbidden")


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("127.0.0.1", "localhost:8888"),
        ("127.0.0.1", "127.0.0.1:8888"),
        ("::1", "[::1]:8888"),
        ("127.0.0.1", "dnswebhook:8888"),
        ("192.0.2.1", "dnswebhook.example:8888"),
        ("", "dnswebhook.example"),
    ],
)
def test_a_browser_may_use_an_address_a_name_without_a_dot_and_elsewhere_any(
    site: BuildSite, client: str, host: str
) -> None:
    headers = {"Host": host, "Accept-Language": "en"}
    response = site().client.get("/records", headers=headers, environ_overrides={"REMOTE_ADDR": client})

    assert response.status_code == 200


@pytest.mark.parametrize("host", ["localhost:8888", "localhost.localdomain:8888", "dnswebhook.example"])
def test_external_dns_may_use_any_name_also_behind_a_proxy_on_the_same_host(site: BuildSite, host: str) -> None:
    response = site().client.get("/records", headers={"Host": host}, environ_overrides={"REMOTE_ADDR": "127.0.0.1"})

    assert response.status_code == 200


@pytest.mark.parametrize("path", ["", "//"])
def test_an_empty_path_is_the_root_without_a_redirect(site: BuildSite, path: str) -> None:
    response = site().client.get("/", environ_overrides={"PATH_INFO": path})

    assert 200 == response.status_code


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/records", "GET, HEAD, POST"),
        ("PUT", "/records", "GET, HEAD, POST"),
        ("OPTIONS", "/records", "GET, HEAD, POST"),
        ("GET", "/adjustendpoints", "POST"),
        ("FOO", "/adjustendpoints", "POST"),
    ],
)
def test_a_wrong_method_is_405_with_the_allowed_ones(site: BuildSite, method: str, path: str, allowed: str) -> None:
    response = site().client.open(path, method=method)

    assert allowed in assert_error(response, 405, "method not allowed")
    assert allowed == response.headers["Allow"]


@pytest.mark.parametrize("path", ["/", "/records"])
@pytest.mark.parametrize("accept", ["text/html", "image/png, text/plain", "application/xml"])
def test_an_accept_header_without_any_json_is_406(site: BuildSite, path: str, accept: str) -> None:
    assert MEDIA_TYPE in assert_error(site().get(path, accept), 406, "not acceptable")


def test_adjusting_is_406_for_a_client_that_takes_no_json(site: BuildSite) -> None:
    response = site().client.post("/adjustendpoints", data=b"[]", headers={"Accept": "text/html"})

    assert_error(response, 406, "not acceptable")


@pytest.mark.parametrize("path", ["/records", "/adjustendpoints"])
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_body_with_a_foreign_content_type_is_415(site: BuildSite, path: str, content_type: str) -> None:
    here = site()

    assert_error(here.post(path, {"create": [NEW]}, content_type), 415, "unsupported media type")
    assert [] == here.store.calls


@pytest.mark.parametrize("path", ["/records", "/adjustendpoints"])
@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"create":[}', b"\xff\xfe", b'{"create":' + b"[" * 100_000])
def test_a_body_that_is_not_json_is_400(site: BuildSite, path: str, body: bytes) -> None:
    assert_error(site().post(path, body), 400, "malformed JSON")


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/records", {"create": [NEW, {"recordType": "A"}]}, "create[1].dnsName"),
        ("/records", {"updateNew": [{"dnsName": "a", "recordTTL": "x"}]}, "updateNew[0].recordTTL"),
        ("/records", {"Delete": [{"dnsName": "a", "targets": "x"}]}, "delete[0].targets"),
        ("/records", {"create": 5}, "create"),
        ("/records", {"create": [5]}, "create[0]"),
        ("/records", [], "body"),
        ("/records", None, "body"),
        ("/adjustendpoints", [{"dnsName": 5}], "[0].dnsName"),
        ("/adjustendpoints", {"endpoints": [{"dnsName": 5}]}, "endpoints[0].dnsName"),
        ("/adjustendpoints", {}, "endpoints"),
        ("/adjustendpoints", 5, "body"),
    ],
)
def test_a_bad_field_is_400_with_its_place_and_nothing_is_applied(
    site: BuildSite, path: str, body: Any, place: str
) -> None:
    here = site()

    assert assert_error(here.post(path, body), 400, "invalid request").startswith(f"{place}:")
    assert [] == here.store.calls


def padded(size: int) -> bytes:
    return b'{"create":[]}'.ljust(size)


def chunked(here: Site, body: bytes) -> TestResponse:
    """Sends without Content-Length; a server would end the input after the last chunk."""
    stream = io.BytesIO(body)
    return here.client.post("/records", input_stream=stream, headers={"Transfer-Encoding": "chunked"})


def announced(size: int) -> dict[str, str]:
    return {"CONTENT_LENGTH": str(size)}


def test_a_body_of_exactly_the_limit_passes(site: BuildSite) -> None:
    assert 204 == site().post("/records", padded(MAX_BODY_BYTES)).status_code
    assert 204 == chunked(site(), padded(MAX_BODY_BYTES)).status_code


def test_a_body_of_one_byte_more_is_413_and_the_connection_ends(site: BuildSite) -> None:
    for response in (site().post("/records", padded(MAX_BODY_BYTES + 1)), chunked(site(), padded(MAX_BODY_BYTES + 1))):
        assert "at most 5242880 bytes" in assert_error(response, 413, "body too large")
        assert "close" == response.headers["Connection"]


def test_an_announced_body_that_is_too_large_is_not_read(site: BuildSite) -> None:
    stream = io.BytesIO(b"x" * 100)

    response = site().client.post("/records", input_stream=stream, environ_overrides=announced(MAX_BODY_BYTES + 1))

    assert_error(response, 413, "body too large")
    assert 0 == stream.tell()


def test_a_body_that_ends_early_is_400(site: BuildSite) -> None:
    here = site()

    stream = io.BytesIO(b'{"create":[]}')
    response = here.client.post("/records", input_stream=stream, environ_overrides=announced(100))

    assert "13 bytes, want the announced 100" in assert_error(response, 400, "malformed JSON")


# Failures of the store.

STORE_FAILURES = [
    (StoreUnreachable("refused"), 502, "store unreachable"),
    (StoreRestarting("502"), 502, "store unreachable"),
    (StoreTimeout("slow"), 504, "store timed out"),
    (CredentialsRefused("bad key"), 502, "credentials refused"),
    (RateLimited("slow down", 42.4), 503, "rate limited"),
    (StoreFailed("disk full"), 500, "store failed"),
    (CapabilitiesUnknown("which?"), 503, "controller unknown"),
]
RECORD_FAILURES = [RecordError("no"), Overlaps("CNAME"), UpdateUnsupported("no"), AlreadyExists("there"), NotFound("?")]


def _subclasses(kind: type[StoreError]) -> set[type[StoreError]]:
    return {kind, *(found for child in kind.__subclasses__() for found in _subclasses(child))}


def test_the_tables_name_every_error_that_a_store_can_raise() -> None:
    named = {type(error) for error, _, _ in STORE_FAILURES} | set(map(type, RECORD_FAILURES)) | {StoreError}

    assert named == {kind for kind in _subclasses(StoreError) if kind.__module__ == "dnswebhook.errors"}


@pytest.mark.parametrize(("error", "status_code", "category"), STORE_FAILURES)
@pytest.mark.parametrize("operation", ["list", "create"])
def test_a_failure_of_the_store_has_its_status_code_for_every_call(
    site: BuildSite, operation: str, error: StoreError, status_code: int, category: str
) -> None:
    here = site()
    here.store.fail(operation, error)
    responses = [here.post("/records", {"create": [NEW]})]
    if operation == "list":
        responses.append(here.get("/records"))

    for response in responses:
        assert str(error) in assert_error(response, status_code, category)
        assert (status_code == 503) is ("Retry-After" in response.headers)
    assert [error] * len(responses) == here.store_errors


@pytest.mark.parametrize("error", [*RECORD_FAILURES, StoreError("other")])
@pytest.mark.parametrize("operation", ["list", "create", "update", "delete"])
def test_no_failure_of_the_store_is_answered_with_a_status_code_on_which_the_client_exits(
    site: BuildSite, operation: str, error: StoreError
) -> None:
    here = site(ROW)
    here.store.fail(operation, error)
    old, new = ENDPOINT, {**ENDPOINT, "targets": ["192.0.2.9"]}

    responses = [
        here.post("/records", {"create": [NEW], "updateOld": [old], "updateNew": [new]}),
        here.post("/records", {"delete": [new]}),
    ]
    if operation == "list":
        responses.append(here.get("/records"))

    assert all(response.status_code == 204 or 500 <= response.status_code <= 510 for response in responses)


@pytest.mark.parametrize(("asked_s", "told"), [(42.4, "42"), (0.3, "1")])
def test_the_retry_after_of_the_controller_is_passed_on_in_whole_seconds_but_never_as_none(
    site: BuildSite, asked_s: float, told: str
) -> None:
    here = site()
    here.store.fail("list", RateLimited("slow down", asked_s))

    assert told == here.get("/records").headers["Retry-After"]


def test_a_pause_that_the_controller_asks_for_in_the_middle_of_an_apply_is_passed_on(site: BuildSite) -> None:
    here = site()
    here.store.fail("create", RateLimited("slow down", 42.4), name="other.example.com")

    response = here.post("/records", {"create": [NEW, OTHER]})

    assert_error(response, 503, "rate limited")
    assert "42" == response.headers["Retry-After"]


def test_a_listing_that_the_stop_broke_off_is_503_and_not_the_fault_of_the_store(site: BuildSite) -> None:
    here = site()
    here.store.fail("list", StoreTimeout("waited in vain"))
    here.stop.set()

    assert_error(here.get("/records"), 503, "stopping")


def test_adjusting_is_503_while_the_api_is_unknown(site: BuildSite) -> None:
    here = site()
    here.store.limits = CapabilitiesUnknown("not known yet")

    response = here.post("/adjustendpoints", [ENDPOINT])

    assert_error(response, 503, "controller unknown")
    assert int(response.headers["Retry-After"]) > 0


def test_a_partial_failure_is_500_after_the_rest_was_applied_and_its_error_is_reported(site: BuildSite) -> None:
    here = site()
    error = StoreUnreachable("reset")
    here.store.fail("create", error, name="new.example.com")

    message = assert_error(here.post("/records", {"create": [NEW, OTHER]}), 500, "partial failure")

    assert "1 applied, 1 failed: new.example.com A: reset" == message
    assert {("other.example.com", "A", "192.0.2.3")} == here.store.live
    assert [error] == here.store_errors


def test_a_record_that_can_never_be_held_is_500_after_the_rest_was_applied(site: BuildSite) -> None:
    here = site()
    impossible = {"dnsName": "bad.example.com", "recordType": "A", "targets": ["nonsense"]}

    assert "nonsense" in assert_error(here.post("/records", {"create": [impossible, NEW]}), 500, "partial failure")
    assert {("new.example.com", "A", "192.0.2.2")} == here.store.live


def test_the_delete_guard_is_500(site: BuildSite) -> None:
    rows = [Record(str(n), f"host-{n}.example.com", "A", "192.0.2.1") for n in range(20)]
    here = site(*rows, max_delete_share=0.5)

    response = here.post("/records", {"delete": [{**ENDPOINT, "dnsName": row.name} for row in rows]})

    assert "--max-delete-share" in assert_error(response, 500, "delete guard")
    assert 20 == len(here.store.live)


def test_a_bug_is_left_to_the_server_which_answers_500(site: BuildSite) -> None:
    class Defective(MemoryStore):
        def create(self, spec: RecordSpec, deadline: Any) -> Record:
            raise ZeroDivisionError("a bug")

    here = Site(Defective())
    try:
        with pytest.raises(ZeroDivisionError):
            here.post("/records", {"create": [NEW]})
    finally:
        here.provider.close()
