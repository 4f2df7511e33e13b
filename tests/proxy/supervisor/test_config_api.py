"""PUT and GET /config: authentication, size limits, media types, and the responses."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import requests

from tests.proxy.site import DEADLINE_S, TOKEN, Proxy, ask, fixed, reserved_port

SOUND_TARGET = {"address": "127.0.0.1:3000"}
ROUTE = {"hostnames": ["a.example"], "backends": [SOUND_TARGET]}
JUNK = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
BROKEN_TARGET = {
    "address": "127.0.0.1:3000",
    "protocol": "https",
    "tls": {"serverName": "b.example", "ca": JUNK},
}


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with Proxy("--max-document", "64KiB") as running:
        yield running


def raw(proxy: Proxy, request: bytes) -> bytes:
    """All that is received until the proxy closes the connection."""
    host, _, port = proxy.address("config").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
        sock.sendall(request)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    return answer


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "tökén"])
def test_without_the_token_put_and_get_are_refused(proxy: Proxy, token: str | None) -> None:
    given = None if token is None else token.encode().decode("latin-1")
    for response in (proxy.put({"routes": [ROUTE]}, token=given), proxy.get(token=given)):
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert response.json()["error"] == "unauthorized"
        assert TOKEN not in response.text


def test_another_scheme_than_bearer_is_refused_and_its_case_does_not_matter(proxy: Proxy) -> None:
    refused = proxy.put({"routes": []}, token=None, Authorization=f"Basic {TOKEN}")
    assert (refused.status_code, "want `Authorization: Bearer <token>`" in refused.json()["message"]) == (401, True)
    assert proxy.put({"routes": []}, token=None, Authorization=f"bEARER {TOKEN}").status_code == 200


def test_many_refusals_make_few_log_lines_and_none_shows_a_token() -> None:
    with Proxy() as proxy:
        for _ in range(50):
            assert proxy.get(token="guess-of-a-token").status_code == 401
        proxy.wait_for_message("config request refused")
        lines = proxy.lines_of("config request refused")
        assert 1 <= len(lines) <= 5
        assert not any("guess-of-a-token" in line or TOKEN in line for line in proxy.lines)


def test_nothing_of_a_body_that_is_too_large_is_read(proxy: Proxy) -> None:
    head = (
        f"PUT /config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {64 * 1024 + 1}\r\n\r\n"
    )

    answer = raw(proxy, head.encode())

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"65537 bytes, want at most 65536" in answer


def test_a_chunked_body_that_grows_too_large_is_refused(proxy: Proxy) -> None:
    response = requests.put(
        proxy.config_url,
        data=iter([b" " * 16384] * 5),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        timeout=DEADLINE_S,
    )

    assert response.status_code == 413


def test_a_document_of_exactly_the_limit_is_taken(proxy: Proxy) -> None:
    document = b'{"routes":[]}'

    assert proxy.put(document + b" " * (64 * 1024 - len(document))).status_code == 200


def test_the_default_limit_is_64_mib() -> None:
    with Proxy() as proxy:
        head = f"PUT /config HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 67108865\r\n\r\n"

        assert raw(proxy, head.encode()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml"])
def test_a_media_type_other_than_json_is_refused(proxy: Proxy, media_type: str) -> None:
    response = proxy.put({"routes": []}, **{"Content-Type": media_type})

    assert response.status_code == 415
    assert "application/json" in response.json()["message"]


@pytest.mark.parametrize(("coding", "status_code"), [("gzip", 415), ("x, identity", 415), ("Identity", 200), ("", 200)])
def test_a_content_coding_is_refused_with_415(proxy: Proxy, coding: str, status_code: int) -> None:
    response = proxy.put({"routes": []}, **{"Content-Encoding": coding})

    assert response.status_code == status_code
    if status_code == 415:
        assert f"Content-Encoding is '{coding}', want the document as plain JSON" == response.json()["message"]
        assert "identity" == response.headers["Accept-Encoding"]


@pytest.mark.parametrize(
    ("name", "value", "status_code", "words"),
    [
        ("Content-Range", "bytes 10-90/91", 400, "want the whole document"),
        ("If-Match", '"41"', 412, "documents have no entity tags; to replace only the document that you have read"),
        ("If-Match", "*", 200, ""),
        ("If-None-Match", "*", 412, "If-None-Match is '*', and a configuration is loaded"),
        ("If-None-Match", '"41"', 200, ""),
    ],
)
def test_a_partial_put_and_a_failed_precondition_change_nothing(
    proxy: Proxy, name: str, value: str, status_code: int, words: str
) -> None:
    proxy.use({"routes": []})
    before = proxy.get().headers["Configuration-Version"]

    response = proxy.put({"routes": [ROUTE]}, **{name: value})

    assert response.status_code == status_code
    assert words in response.json().get("message", "")
    assert (proxy.get().headers["Configuration-Version"] == before) == (status_code != 200)


def test_before_the_first_document_if_match_fails_and_if_none_match_holds() -> None:
    with Proxy() as proxy:
        refused = proxy.put({"routes": []}, **{"If-Match": "*"})
        assert (refused.status_code, refused.json()["message"]) == (
            412,
            "If-Match is '*', and no configuration is loaded yet",
        )
        assert proxy.get().status_code == 404

        assert proxy.put({"routes": []}, **{"If-None-Match": "*"}).status_code == 200


@pytest.mark.parametrize(
    "media_type", ["application/json; charset=utf-8", "Application/JSON", "application/x+json", ""]
)
def test_any_json_media_type_or_none_is_accepted(proxy: Proxy, media_type: str) -> None:
    assert proxy.put({"routes": []}, **{"Content-Type": media_type}).status_code == 200


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"routes": [{"hostnames": ["a.example"], "colour": 1}]}, "routes[0].colour"),
        ({"routes": [{"hostnames": None}]}, "routes[0].hostnames"),
        ({"listeners": [{"name": "a", "port": 70000}]}, "listeners[0].port"),
        ({"routes": [{"backends": [{"address": "127.0.0.1:3000"}]}, {"backends": [{"address": "x"}]}]}, "routes[1]"),
    ],
)
def test_an_invalid_document_is_refused_with_the_path_of_the_problem(
    proxy: Proxy, document: dict[str, object], path: str
) -> None:
    response = proxy.put(document)

    assert response.status_code == 400
    problems = response.json()["problems"]
    assert problems[0]["path"].startswith(path)
    assert problems[0]["message"]
    assert path in response.json()["message"]


def test_all_problems_are_reported_at_once(proxy: Proxy) -> None:
    response = proxy.put({"routes": [{"hostnames": ["A"]}, {"hostnames": ["B"]}]})

    assert [problem["path"] for problem in response.json()["problems"]] == [
        "routes[0].hostnames[0]",
        "routes[1].hostnames[0]",
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"null", b"[" * 5000])
def test_bytes_that_are_not_a_document_are_refused(proxy: Proxy, body: bytes) -> None:
    response = proxy.put(body)

    assert response.status_code == 400
    assert response.json()["error"] == "bad document"


def test_other_methods_are_answered_405_with_allow_and_other_paths_404(proxy: Proxy) -> None:
    deleted = requests.delete(proxy.config_url, timeout=DEADLINE_S)
    unknown = requests.get(f"{proxy.url('config')}/configs", timeout=DEADLINE_S)

    assert (deleted.status_code, unknown.status_code) == (405, 404)
    assert {"GET", "PUT"} <= set(deleted.headers["Allow"].replace(",", " ").split())


def test_a_404_and_the_index_list_the_known_paths(proxy: Proxy) -> None:
    misspelt = requests.get(f"{proxy.url('config')}/config/", timeout=DEADLINE_S).json()["message"]
    index = requests.get(f"{proxy.url('config')}/", timeout=DEADLINE_S).json()

    assert misspelt == "nothing at '/config/', want one of /, /config, /healthz, /readyz, /readyz/direct, /metrics"
    assert index == {"paths": ["/config", "/healthz", "/readyz", "/readyz/direct", "/metrics"]}


def test_before_the_first_document_get_is_answered_404_and_the_proxy_is_not_ready() -> None:
    with Proxy() as proxy:
        assert proxy.get().status_code == 404
        for part in ("", "direct"):
            assert proxy.readiness(part) == (503, "no configuration is loaded yet")

        proxy.use({"routes": [ROUTE]})

        for part in ("", "direct"):
            assert proxy.readiness(part) == (200, "ready")


def test_the_loaded_document_is_shown_with_its_version_and_without_its_keys() -> None:
    from tests.proxy.supervisor.certificates import certificate

    pair = certificate("a.example")
    with Proxy() as proxy, reserved_port() as port:
        listener = {
            "name": "s",
            "address": "127.0.0.1",
            "port": port,
            "protocol": "HTTPS",
            "tls": {"certificates": [pair]},
        }
        proxy.use({"version": 7, "listeners": [listener], "routes": [ROUTE]})

        shown = proxy.get()

        assert shown.json()["version"] == 7
        seen = shown.json()["listeners"][0]["tls"]["certificates"][0]
        assert seen["certificate"] == pair["certificate"]
        assert seen["privateKey"].startswith("<redacted sha256:")
        assert not any("PRIVATE KEY" in line for line in (shown.text, *proxy.lines))


def test_the_version_alone_can_be_asked_for(proxy: Proxy) -> None:
    proxy.put({"version": 10**9, "routes": [ROUTE]})
    headers = {"Authorization": f"Bearer {TOKEN}"}

    with requests.Session() as session:
        heads = [session.head(proxy.config_url, headers=headers, timeout=DEADLINE_S) for _ in range(2)]
        got = session.get(proxy.config_url, headers=headers, timeout=DEADLINE_S)

    assert [head.headers["Configuration-Version"] for head in heads] == ["1000000000"] * 2
    assert "Content-Length" not in heads[0].headers, "0 would be that of no document"
    assert (got.headers["Configuration-Version"], got.json()["version"]) == ("1000000000", 10**9)
    assert requests.head(proxy.config_url, timeout=DEADLINE_S).status_code == 401


def test_an_expired_certificate_is_served_and_logged_once() -> None:
    from tests.proxy.supervisor.certificates import certificate

    pair = certificate("a.example", not_after=datetime(2024, 2, 29, 12, tzinfo=UTC))
    with Proxy() as proxy, reserved_port() as port:
        listener = {"name": "s", "address": "127.0.0.1", "port": port, "protocol": "HTTPS"}
        document = {"listeners": [{**listener, "tls": {"certificates": [pair]}}]}
        proxy.use(document)
        proxy.use({**document, "routes": [ROUTE]})

        assert ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S) in pair["certificate"]
        proxy.wait_for_message("configuration loaded", document_version=2)
        told = [line for line in proxy.log if line["msg"] == "certificate has expired, clients will refuse it"]
        assert [(line["listener"], line["expired_at"]) for line in told] == [("s", "2024-02-29T12:00:00+00:00")]


def test_a_certificate_that_openssl_cannot_use_is_refused_with_its_path(proxy: Proxy) -> None:
    from tests.proxy.supervisor.certificates import certificate

    pair = {**certificate("a.example"), "privateKey": certificate("b.example")["privateKey"]}
    listener = {"name": "s", "port": 8443, "protocol": "HTTPS", "tls": {"certificates": [pair]}}

    response = proxy.put({"listeners": [listener]})

    assert response.status_code == 400
    assert response.json()["problems"][0]["path"] == "listeners[0].tls.certificates[0]"


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ({"backends": [BROKEN_TARGET]}, "backends[0].tls.ca"),
        (
            {"backends": [SOUND_TARGET], "filters": {"requestMirrors": [{"backend": BROKEN_TARGET}]}},
            "filters.requestMirrors[0].backend.tls.ca",
        ),
        (
            {"backends": [{**SOUND_TARGET, "filters": {"requestMirrors": [{"backend": BROKEN_TARGET}]}}]},
            "backends[0].filters.requestMirrors[0].backend.tls.ca",
        ),
    ],
    ids=["a backend", "a mirror of the rule", "a mirror of a backend"],
)
def test_a_ca_that_openssl_cannot_read_is_refused_with_its_path(proxy: Proxy, rule: dict[str, Any], path: str) -> None:
    response = proxy.put({"routes": [{"rules": [rule]}]})

    assert response.status_code == 400
    assert [problem["path"] for problem in response.json()["problems"]] == [f"routes[0].rules[0].{path}"]


def test_requests_are_served_as_soon_as_the_put_is_answered(proxy: Proxy) -> None:
    with reserved_port() as port:
        for number in range(10):
            proxy.use(fixed(port, f"answer {number}"))
            assert ask(port).text == f"answer {number}"
