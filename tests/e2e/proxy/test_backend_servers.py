"""nginx and nghttpd as backends: HTTP/1.1 and HTTP/2, in clear and over TLS, verified or refused, whole or cut off."""

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.e2e.proxy.doors import through_both_doors
from tests.support.asking import ask
from tests.support.certificates import Authority, Issued
from tests.support.gateway import Gateway, route_to
from tests.support.h2peer import H2Client
from tests.support.programs import program, run
from tests.support.recordingbackend import RecordingBackend
from tests.support.servers import Server, nghttpd, nginx
from tests.support.socketbackend import Dialogue, SocketBackend

SAID = b"hello\n"


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    yield authority
    authority.close()


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Issued:
    return authority.issue("backend.internal")


@pytest.fixture(scope="module", params=["nginx", "nghttpd"])
def tls_server(request: pytest.FixtureRequest, certificate: Issued) -> Iterator[Server]:
    with nginx(certificate) if request.param == "nginx" else nghttpd(certificate) as server:
        (server.root / "hello.txt").write_bytes(SAID)
        yield server


def test_nginx_answers_in_clear(gateway: Gateway) -> None:
    with nginx() as server:
        (server.root / "hello.txt").write_bytes(SAID)
        gateway.serve(route_to(server.address))

        answer = ask(gateway.clear[1], "/hello.txt")

    assert (200, SAID) == (answer.status_code, answer.body)


def test_nghttpd_answers_in_clear(gateway: Gateway) -> None:
    with nghttpd() as server:
        (server.root / "hello.txt").write_bytes(SAID)
        gateway.serve(route_to(server.address, protocol="h2c"))

        answer = ask(gateway.clear[1], "/hello.txt")

    assert (200, SAID) == (answer.status_code, answer.body)


def test_a_server_over_tls_is_verified_and_answers(gateway: Gateway, authority: Authority, tls_server: Server) -> None:
    tls = {"serverName": "backend.internal", "ca": authority.pem}
    gateway.serve(route_to(tls_server.address, protocol="https", tls=tls))

    answers = [ask(gateway.clear[1], "/hello.txt") for _ in range(3)]

    assert [(200, SAID)] * 3 == [(answer.status_code, answer.body) for answer in answers]


@pytest.mark.parametrize("body", [None, SAID], ids=["GET", "POST"])
@pytest.mark.parametrize("most_requests", [12, 200])
def test_no_request_is_lost_when_a_backend_sends_goaway(
    gateway: Gateway,
    authority: Authority,
    certificate: Issued,
    tmp_path: Path,
    body: bytes | None,
    most_requests: int,
) -> None:
    """As nginx does after `keepalive_requests`: its GOAWAY excludes requests in flight."""
    (tmp_path / "body").write_bytes(body or b"")
    upload = [] if body is None else ["-d", str(tmp_path / "body")]
    with nginx(certificate, f"keepalive_requests {most_requests};") as server:
        tls = {"serverName": "backend.internal", "ca": authority.pem}
        gateway.serve(route_to(server.address, protocol="https", tls=tls))

        command = [program("h2load", "nghttp2-client"), "-n", "2000", "-c", "4", "-m", "16", *upload]
        report = run([*command, gateway.url_of("/hello")], timeout_s=60).stdout.decode()

    assert "status codes: 2000 2xx" in report, report


def test_an_unknown_authority_is_refused(gateway: Gateway, tls_server: Server) -> None:
    stranger = Authority()
    try:
        tls = {"serverName": "backend.internal", "ca": stranger.pem}
        gateway.serve(route_to(tls_server.address, protocol="https", tls=tls))

        answer = ask(gateway.clear[1], "/hello.txt")
    finally:
        stranger.close()

    assert 502 == answer.status_code
    assert SAID not in answer.body


def test_a_certificate_of_a_private_authority_is_refused_by_default(gateway: Gateway, tls_server: Server) -> None:
    gateway.serve(route_to(tls_server.address, protocol="https", tls={"serverName": "backend.internal"}))

    assert 502 == ask(gateway.clear[1], "/hello.txt").status_code


@pytest.mark.parametrize("name", ["other.internal", "internal", "sub.backend.internal"])
def test_a_certificate_for_another_name_is_refused(
    gateway: Gateway, authority: Authority, tls_server: Server, name: str
) -> None:
    tls = {"serverName": name, "ca": authority.pem}
    gateway.serve(route_to(tls_server.address, protocol="https", tls=tls))

    assert 502 == ask(gateway.clear[1], "/hello.txt").status_code


URI = "spiffe://cluster.example/ns/default/sa/web"
NAMES = [
    # asked for -> accepted
    ([{"hostname": "backend.internal"}], True),
    ([{"hostname": "other.internal"}], False),
    ([{"hostname": "other.internal"}, {"hostname": "backend.internal"}], True),
    ([{"uri": URI}], True),
    ([{"uri": URI + "2"}], False),
    ([{"uri": URI.upper()}], False),
    ([{"uri": URI + "2"}, {"uri": URI}], True),
]


@pytest.mark.parametrize(("names", "is_accepted"), NAMES)
def test_alternative_names_replace_the_server_name(
    gateway: Gateway, authority: Authority, names: list[dict[str, str]], is_accepted: bool
) -> None:
    certificate = authority.issue_with_uri("backend.internal", URI)
    context = authority.server_context(certificate)
    with RecordingBackend(tls=context) as backend:
        tls = {"serverName": "only-sent.internal", "ca": authority.pem, "subjectAltNames": names}
        gateway.serve(route_to(backend.address, protocol="https", tls=tls))

        answer = ask(gateway.clear[1], "/")

        assert (200 if is_accepted else 502) == answer.status_code
        assert is_accepted == bool(backend.received)


@pytest.mark.parametrize("shows_certificate", [True, False])
def test_a_backend_that_requires_a_client_certificate_gets_the_configured_one(
    gateway: Gateway, authority: Authority, certificate: Issued, shows_certificate: bool
) -> None:
    context = authority.server_context(certificate)
    context.load_verify_locations(str(authority.file))
    context.verify_mode = ssl.CERT_REQUIRED
    tls: dict[str, object] = {"serverName": "backend.internal", "ca": authority.pem}
    if shows_certificate:
        tls["clientCertificate"] = authority.issue("gateway.internal").pair
    with RecordingBackend(tls=context) as backend:
        gateway.serve(route_to(backend.address, protocol="https", tls=tls))

        answer = ask(gateway.clear[1], "/")

        assert (200 if shows_certificate else 502) == answer.status_code


def test_a_rotated_authority_is_used_at_once(gateway: Gateway, authority: Authority, certificate: Issued) -> None:
    stranger = Authority()
    with RecordingBackend(tls=authority.server_context(certificate)) as backend:
        for pem, status_code in ((authority.pem, 200), (stranger.pem, 502), (authority.pem, 200)):
            tls = {"serverName": "backend.internal", "ca": pem}
            gateway.serve(route_to(backend.address, protocol="https", tls=tls))

            assert status_code == ask(gateway.clear[1], "/").status_code
    stranger.close()


def test_the_private_keys_of_a_document_are_never_shown(gateway: Gateway, authority: Authority) -> None:
    pair = authority.issue("gateway.internal").pair
    tls = {"serverName": "backend.internal", "ca": authority.pem, "clientCertificate": pair}
    gateway.serve(route_to("127.0.0.1:1", protocol="https", tls=tls))

    shown = requests.get(f"{gateway.api}/config", timeout=10).text

    assert "PRIVATE KEY" not in shown + gateway.tail
    assert "<redacted sha256:" in json.dumps(json.loads(shown))


@through_both_doors
def test_a_body_delimited_by_close_over_tls_is_complete_only_after_close_notify(
    gateway: Gateway, authority: Authority, certificate: Issued
) -> None:
    def script(dialogue: Dialogue) -> None:
        is_whole = dialogue.read_request().startswith(b"GET /whole ")
        dialogue.send(b"HTTP/1.1 200 OK\r\n\r\n" + SAID)
        if is_whole and isinstance(dialogue.sock, ssl.SSLSocket):
            dialogue.sock.unwrap()

    with SocketBackend(script, authority.server_context(certificate)) as backend:
        tls = {"serverName": "backend.internal", "ca": authority.pem}
        gateway.serve(route_to(backend.address, protocol="https", tls=tls))
        assert ask(gateway.clear[1], "/whole").body == SAID
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(gateway.clear[1], "/cut")
        with H2Client(gateway.clear[1]) as client:
            whole, cut = client.request("/whole"), client.request("/cut")
            client.wait_for(lambda: client.is_reset(cut), "RST_STREAM")
            client.wait_for(lambda: client.has_ended(whole), "the end of the body")
            assert not client.has_ended(cut)
        line = gateway.wait_for_line(lambda line: "without close_notify" in line, "the reason in the access log", 30.0)

    assert json.loads(line)["reason"] == "reset"
