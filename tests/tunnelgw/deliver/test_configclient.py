"""Whatever answers at the address of a config API is an ordinary failure for the courier.

Anyone who may write a GatewayConfig chooses such addresses, so any server may be there.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemonkit.logformat import describe_error
from daemonkit.secret import Secret
from tests.proxy.site import reserved_port
from tests.support.certificates import Authority
from tests.support.socketbackend import Dialogue, SocketBackend
from tunnelgw.deliver import configclient
from tunnelgw.deliver.configclient import ConfigClient, ConfigEndpoint, Loaded, Problem, VersionConflict
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.proxies import DocumentParcel, ProxyTarget

PARCEL = DocumentParcel("digest", (b"}",))
NESTED = b"[" * 20_000 + b"]" * 20_000


def target_at(backend: SocketBackend, answer_timeout_s: float = 30.0) -> ProxyTarget:
    endpoint = ConfigEndpoint(f"http://{backend.address}")
    return ProxyTarget(endpoint, ConfigClient(endpoint, None, answer_timeout_s))


def test_a_server_that_does_not_speak_tls_is_reported_as_such() -> None:
    def answer(dialogue: Dialogue) -> None:
        assert dialogue.receive()
        dialogue.answer(b"")

    with SocketBackend(answer) as backend:
        endpoint = ConfigEndpoint(f"https://{backend.address}")
        target = ProxyTarget(endpoint, ConfigClient(endpoint, None))

        with pytest.raises(Undelivered, match=r"^no answer: \[SSL[^;]*\(no TLS is spoken there: is it http\?\)$"):
            target.deliver(PARCEL)

        target.close()


def test_a_proxy_that_wants_https_is_reported_with_a_hint_at_the_scheme() -> None:
    """It closes the connection on a plaintext request."""

    def answer(dialogue: Dialogue) -> None:
        assert dialogue.receive()

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        with pytest.raises(Undelivered, match=r"; is it up, and is the scheme right \(http or https\)\?$"):
            client.loaded()

        client.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "https://127.0.0.1:{port}", "unix:/nowhere/{port}.sock"])
def test_an_address_without_a_listener_is_reported_as_absent(url: str) -> None:
    with reserved_port() as port:
        client = ConfigClient(ConfigEndpoint(url.format(port=port)), None)

        with pytest.raises(Undelivered, match="is the proxy up, and is the address right") as told:
            client.loaded()

        client.close()
    assert told.value.is_absent


def test_a_server_that_closes_the_connection_is_not_absent() -> None:
    with SocketBackend(lambda dialogue: None) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        with pytest.raises(Undelivered) as told:
            client.loaded()

        client.close()
    assert not told.value.is_absent


WELL = b"Configuration-Version: 1"


def test_a_connection_that_the_proxy_has_closed_meanwhile_is_replaced() -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", WELL)

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        for number in (1, 2):
            assert client.loaded() == Loaded(1)
            backend.wait_for_connections(number)
            backend.wait_until_closed()

        assert backend.accepted == 2
        client.close()


def test_after_a_closed_connection_each_visit_opens_one_new_connection_at_most() -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        if dialogue.number in (1, 4):
            dialogue.answer(b"", WELL)

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)
        assert client.loaded() == Loaded(1)
        backend.wait_until_closed()

        for accepted in (2, 3):
            with pytest.raises(Undelivered, match="no answer"):
                client.loaded()
            assert backend.accepted == accepted

        assert client.loaded() == Loaded(1)
        client.close()


def test_after_a_malformed_response_a_new_connection_is_used() -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        if dialogue.number == 1:
            dialogue.send(b"what?\r\n\r\n")
            assert dialogue.receive_idle() == b""
        else:
            dialogue.answer(b"", WELL)

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)
        with pytest.raises(Undelivered, match="no answer: what"):
            client.loaded()

        assert client.loaded() == Loaded(1)
        assert backend.accepted == 2
        client.close()


def test_a_proxy_s_certificate_is_verified_for_the_server_name_in_the_options_in_place_of_its_address() -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", WELL)

    with closing(Authority()) as authority:
        ca_file, tls = str(authority.file), authority.server_context(authority.issue("proxy.example"))
        with SocketBackend(answer, tls) as backend:
            url = f"https://{backend.address}"
            named = ConfigClient(ConfigEndpoint(url, ca_file, "proxy.example"), None)
            addressed, distrusting = (
                ConfigClient(ConfigEndpoint(url, *which), None) for which in ((ca_file,), ("", "proxy.example"))
            )

            assert named.loaded() == Loaded(1)
            with pytest.raises(Undelivered, match=r"certificate verify failed: IP address mismatch[^;]*$"):
                addressed.loaded()
            with pytest.raises(Undelivered, match=r"certificate verify failed: .*name it \(--proxy-ca-file\)$"):
                distrusting.loaded()
            named.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://fd00::1:8082", r"an IPv6 address is written in brackets, as in \[fd00::1\]"),
        ("http://proxy:80800", "Port out of range 0-65535"),
        ("http://proxy:0", ""),
        ("proxy:8082", ""),
    ],
)
def test_a_url_of_an_unknown_form_is_refused_with_the_reason(url: str, reason: str) -> None:
    wanted = rf"^config API '{re.escape(url)}', want http://host:port, https://host:port or unix:/path"
    with pytest.raises(ValueError, match=rf"{wanted} \(.*{reason}\)$" if reason else f"{wanted}$"):
        ConfigClient(ConfigEndpoint(url), None)


def test_a_ca_file_that_cannot_be_used_is_refused_in_place_of_trusting_the_system_s_authorities(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.touch()

    for unusable in (missing, empty):
        with pytest.raises(ValueError, match=f"^CA file {re.escape(str(unusable))}: "):
            ConfigClient(ConfigEndpoint("https://127.0.0.1:8082", str(unusable)), None)


def test_a_new_ca_in_the_ca_file_is_trusted_at_the_next_connection() -> None:
    """cert-manager changes CA and certificate of a Secret at once; a half-written file changes nothing."""

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", WELL)

    with ExitStack() as stack:
        before, after = (stack.enter_context(closing(Authority())) for _ in range(2))
        backend = stack.enter_context(SocketBackend(answer, after.server_context(after.issue("proxy.example"))))
        endpoint = ConfigEndpoint(f"https://{backend.address}", str(before.file), "proxy.example")
        client = stack.enter_context(closing(ConfigClient(endpoint, None)))
        with pytest.raises(Undelivered, match="certificate verify failed"):
            client.loaded()

        before.file.write_bytes(after.file.read_bytes())
        assert client.loaded() == Loaded(1)
        client.close()

        before.file.write_bytes(after.file.read_bytes()[:100])
        assert client.loaded() == Loaded(1)


def test_the_certificate_of_an_endpoint_with_a_dns_name_is_verified_for_that_name() -> None:
    """The server name in the options is that of the shared proxies; a GatewayConfig names other ones."""

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", WELL)

    with ExitStack() as stack:
        authority = stack.enter_context(closing(Authority()))
        tls = authority.server_context(authority.issue("localhost"))
        backend = stack.enter_context(SocketBackend(answer, tls))
        url = f"https://localhost:{backend.address.rpartition(':')[2]}"
        client = ConfigClient(ConfigEndpoint(url, str(authority.file), "proxy.example"), None)

        assert client.loaded() == Loaded(1)
        client.close()


def test_documents_and_lists_of_problems_may_be_long() -> None:
    document = b'{"routes":[%s]}' % b",".join([b"{}"] * 1_000_000)
    problems = [{"path": f"listeners[{number}].port", "message": "in use"} for number in range(200)]
    told = json.dumps({"version": 1, "problems": problems}).encode()

    def answer(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            dialogue.answer(document if request.startswith(b"GET") else told)

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        assert client.document() == document
        assert len(client.put(b"{}").problems) == len(problems)
        client.close()


def test_a_document_in_pieces_arrives_whole() -> None:
    pieces = (b'{"version":1', *(b"%07d" % number for number in range(40_000)), b"x" * 300_000, b"", b"}")
    received: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        received.append(dialogue.read_request().partition(b"\r\n\r\n")[2])
        dialogue.answer(b'{"version":1}')

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        assert client.put(*pieces).version == 1
        client.close()

    assert received == [b"".join(pieces)]


@pytest.mark.parametrize("version", [b"", b"-1", b"\xb2", b"9" * 5000, b"1 2", b"one"])
def test_an_invalid_configuration_version_is_a_failure(version: bytes) -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b"", b"Configuration-Version: " + version)

    with SocketBackend(answer) as backend:
        target = target_at(backend)

        with pytest.raises(Undelivered, match="answered 200 to HEAD /config"):
            target.deliver(PARCEL)

        target.close()


@pytest.mark.parametrize("status", [b"200 OK", b"409 Conflict", b"500 Oops", b"700 What"])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"\xff", b'{"version":%s}' % (b"9" * 5000), b'{"x":%s}' % NESTED, b'{"problems":%s}' % NESTED],
    ids=["nothing", "a list", "no text", "a huge number", "nested", "nested problems"],
)
def test_a_malformed_response_is_a_failure(status: bytes, body: bytes) -> None:
    def answer(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            dialogue.answer(body if request.startswith(b"PUT") else b"", status=_status_of(request, status))

    with SocketBackend(answer) as backend:
        target = target_at(backend)

        with pytest.raises(Undelivered) as raised:
            target.deliver(PARCEL)

        assert len(str(raised.value)) < 1000
        target.close()


def test_a_conflict_that_names_no_version_is_a_refusal_like_others() -> None:
    """It is not a proxy's: those name the version that is loaded."""

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.answer(b'{"message":"locked"}', status=b"409 Conflict")

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)
        with pytest.raises(Undelivered, match=r"^answered 409 to PUT /config: locked$") as raised:
            client.put(b"{}")

        assert raised.value.is_refusal
        client.close()


@pytest.mark.parametrize("status", [b"200 OK", b"409 Conflict"])
def test_an_answer_that_is_cut_off_is_reported_as_such(status: bytes) -> None:
    """And not as that of another program, or of a proxy with another document."""

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        if dialogue.number == 1:
            dialogue.send(b"HTTP/1.1 " + status + b'\r\nContent-Length: 30\r\n\r\n{"version":1')
        else:
            dialogue.answer(b'{"version":1}')

    with SocketBackend(answer) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)
        with pytest.raises(Undelivered, match="its answer to PUT /config ended after 12 of 30 bytes"):
            client.put(b"{}")

        assert client.put(b"{}").version == 1
        client.close()


def test_a_proxy_may_take_longer_to_answer_than_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large document takes seconds, and a PUT waits for the workers."""
    monkeypatch.setattr(configclient, "CONNECT_TIMEOUT_S", 0.2)

    def answer_late(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.backend.over.wait(0.6)
        dialogue.answer(b'{"version":1}')

    with SocketBackend(answer_late) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), None)

        assert client.put(b"{}").version == 1
        client.close()


def test_a_response_that_trickles_in_is_aborted_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0  # goes on with each byte: a proxy that is late itself would count as silent

    def drip(dialogue: Dialogue) -> None:
        nonlocal now_s
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 ")
        until_s = time.monotonic() + 15
        while time.monotonic() < until_s and not dialogue.backend.over.wait(0.02):
            dialogue.send(b"2")
            now_s += 10.0

    monkeypatch.setattr("daemonkit.timedresponse.time", SimpleNamespace(monotonic=lambda: now_s))
    with SocketBackend(drip) as backend:
        target = target_at(backend, 30.0)

        with pytest.raises(Undelivered, match=r"the answer was not complete after 30 s"):
            target.deliver(PARCEL)

        target.close()


@pytest.mark.parametrize(
    ("status", "is_refusal"),
    [
        (b"400 No", True),
        (b"401 No", True),
        (b"413 No", True),
        (b"499 No", True),
        (b"500 No", False),
        (b"503 No", False),
    ],
)
def test_a_4xx_of_a_proxy_is_a_refusal_and_a_5xx_is_not(status: bytes, is_refusal: bool) -> None:
    def answer(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            dialogue.answer(b"", status=_status_of(request, status))

    with SocketBackend(answer) as backend:
        target = target_at(backend)

        with pytest.raises(Undelivered) as raised:
            target.deliver(PARCEL)

        assert raised.value.is_refusal is is_refusal
        target.close()


def _status_of(request: bytes, status: bytes) -> bytes:
    return status if request.startswith(b"PUT") else b"404 Not Found"


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 400 Bad Request\r\nContent-Length: {length}\r\n\r\n{said}",
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{said}",
        "-ERR {said}\r\n",
    ],
)
@pytest.mark.parametrize("shape", ['{{"message":"{token}","problems":[{{"path":"{token}"}}]}}', "Bearer {token}"])
def test_an_answer_that_repeats_the_token_does_not_bring_it_into_the_error(answer: str, shape: str) -> None:
    token = "a-token-of-the-proxy"
    said = shape.format(token=token)

    def respond(dialogue: Dialogue) -> None:
        assert dialogue.receive()
        dialogue.send(answer.format(said=said, length=len(said)).encode())

    with SocketBackend(respond) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), Secret(token))

        with closing(client), pytest.raises(Undelivered) as raised:
            client.put(b"{}")

        assert token not in describe_error(raised.value)


@pytest.mark.parametrize("token", ["a-token-of-the-proxy", "port"])
def test_problems_that_repeat_the_token_are_told_without_it(token: str) -> None:
    """They become part of a status, which more people read than the Secret."""

    def respond(dialogue: Dialogue) -> None:
        dialogue.read_request()
        problem = b'{"path":"listeners[0].port","message":"Bearer %b"}' % token.encode()
        dialogue.answer(b'{"version":1,"problems":[%b]}' % problem)

    with SocketBackend(respond) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), Secret(token))

        with closing(client):
            assert client.put(b"{}").problems == (Problem("listeners[0].port", "Bearer <redacted>"),)


@pytest.mark.parametrize("token", ["42", "version", "loaded", "409"])
def test_an_answer_is_understood_whatever_the_token_is(token: str) -> None:
    """It is taken out of what is quoted only: any token, however bad, may be a word of the answer."""
    answers = iter([(b"200 OK", b'{"version":42,"changed":true}'), (b"409 Conflict", b'{"error":"","loaded":42}')])

    def respond(dialogue: Dialogue) -> None:
        for status, said in answers:
            dialogue.read_request()
            dialogue.answer(said, status=status)

    with SocketBackend(respond) as backend:
        client = ConfigClient(ConfigEndpoint(f"http://{backend.address}"), Secret(token))

        with closing(client):
            assert client.put(b"{}").version == 42
            with pytest.raises(VersionConflict):
                client.put(b"{}")
