"""Bad requests and bad clients against the running daemon: each gets the fitting error, and affects no other client.

After every test the daemon has to answer a good call, and at the end its log must hold no bug. Where a client takes its
time, the call deadline is short, so that it is seen off within the test.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemonkit.rawhttp import Answer, RawClient
from tests.support.client_model import MEDIA_TYPE
from tests.support.daemon import Daemon

MAX_BODY_BYTES = 5_242_880
MAX_RSS_MIB = 128
LEVELS = 400_000
"""Python 3.14 recurses as deep as a thread's stack allows: 8 MiB hold 200,000 levels of skipped values."""
CONVERSATION_S = 60.0

GOOD = {"dnsName": "good.example.org", "recordType": "A", "targets": ["192.0.2.1"], "recordTTL": 300}
POSTS = [("/records", "create"), ("/adjustendpoints", "endpoints")]
posts = pytest.mark.parametrize(("path", "key"), POSTS, ids=["apply", "adjust"])


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With the arguments that a test gives it, see `impatient`."""
    env = {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": str(tmp_path_factory.mktemp("state"))}
    with Daemon.dnswebhook(env, ["--grace-period", "5s", *getattr(request, "param", [])]) as daemon:
        yield daemon
        assert daemon.stop() == 0, daemon.tail
    bugs = [entry for entry in daemon.log if entry["level"] == "ERROR" or "stack" in entry]
    assert not bugs
    assert len(daemon.log) == len(daemon.lines), "lines that are no JSON object"


impatient = pytest.mark.parametrize("daemon", [["--call-deadline", "2s"]], indirect=True, ids=["impatient"])


@pytest.fixture(scope="module")
def port(daemon: Daemon) -> int:
    return int(daemon.address("api").rpartition(":")[2])


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with RawClient(port) as client:
        yield client


@pytest.fixture(autouse=True)
def _serves_others_afterwards(daemon: Daemon, port: int) -> Iterator[None]:
    yield
    with RawClient(port) as good:
        answer = good.get("/records", f"Accept: {MEDIA_TYPE}\r\n")
    assert (answer.status_code, answer.fields["content-type"]) == (200, MEDIA_TYPE), daemon.tail
    assert isinstance(answer.json, list)


def head(path: str, *fields: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: webhook", *fields, "", ""]).encode()


def post(client: RawClient, path: str, body: bytes, content_type: str = MEDIA_TYPE) -> Answer:
    client.send(head(path, f"Content-Type: {content_type}", f"Content-Length: {len(body)}") + body)
    return client.answer()


def refusal(answer: Answer) -> tuple[int, str]:
    """Status code and category; every refusal says what was wrong."""
    content = answer.json
    assert sorted(content) == ["error", "message"], content
    assert content["error"], content
    assert content["message"], content
    return answer.status_code, content["error"]


# Bodies.


@posts
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"create": [{"dnsName": "a.example.org"',
        b"{} {}",
        b"create",
        b"\0",
        b'{"create": [}]',
        b'{"\xff": 1}',
        b"<html></html>",
        b"\xef\xbb\xbf{}",
    ],
)
def test_malformed_json_is_refused(client: RawClient, path: str, key: str, body: bytes) -> None:
    assert refusal(post(client, path, body)) == (400, "malformed JSON")


@posts
@pytest.mark.parametrize("body", [b'"text"', b"5", b"true", b"-0.5"])
def test_json_of_another_type_is_refused(client: RawClient, path: str, key: str, body: bytes) -> None:
    assert refusal(post(client, path, body)) == (400, "invalid request")


@pytest.mark.parametrize("body", [b"null", b"[]", b'[{"dnsName":"a.example.org"}]'])
def test_changes_that_are_not_an_object_are_refused(client: RawClient, body: bytes) -> None:
    assert refusal(post(client, "/records", body)) == (400, "invalid request")


@pytest.mark.parametrize("body", [b"{}", b'{"create":[]}', b'{"items":[]}'])
def test_an_object_without_endpoints_is_refused_rather_than_taken_for_no_endpoints(
    client: RawClient, body: bytes
) -> None:
    assert refusal(post(client, "/adjustendpoints", body)) == (400, "invalid request")


def test_null_is_the_same_as_an_empty_list(client: RawClient) -> None:
    assert post(client, "/adjustendpoints", b"null").json == []
    assert post(client, "/adjustendpoints", b'{"endpoints":null}').json == {"endpoints": []}
    assert (
        post(client, "/records", b'{"create":null,"updateOld":null,"updateNew":null,"delete":null}').status_code == 204
    )


def test_an_endpoint_without_a_name_is_refused_with_its_path_by_apply_and_dropped_by_adjust(
    client: RawClient,
) -> None:
    """A user can write a DNSEndpoint without a name: external-dns has it adjusted, and would exit on a 400."""
    bodies = [f'{{"{key}":[{json.dumps(GOOD)},{{"recordType":"A"}}]}}'.encode() for _, key in POSTS]

    applied, adjusted = [post(client, path, body) for (path, _), body in zip(POSTS, bodies, strict=True)]

    assert refusal(applied) == (400, "invalid request")
    assert applied.json["message"].startswith(f"{POSTS[0][1]}[1].dnsName"), applied.json
    assert (adjusted.status_code, adjusted.json) == (200, {POSTS[1][1]: [GOOD]})


@posts
@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("5", ""),
        ("null", ""),
        ("[]", ""),
        ('{"dnsName":null}', ".dnsName"),
        ('{"dnsName":5}', ".dnsName"),
        ('{"dnsName":"a","recordType":["A"]}', ".recordType"),
        ('{"dnsName":"a","targets":"192.0.2.1"}', ".targets"),
        ('{"dnsName":"a","targets":["192.0.2.1",1]}', ".targets[1]"),
        ('{"dnsName":"a","recordTTL":"300"}', ".recordTTL"),
        ('{"dnsName":"a","recordTTL":1.5}', ".recordTTL"),
        ('{"dnsName":"a","recordTTL":9223372036854775808}', ".recordTTL"),
        (f'{{"dnsName":"a","recordTTL":{"9" * 400}}}', ".recordTTL"),
        ('{"dnsName":"a","labels":[]}', ".labels"),
        ('{"dnsName":"a","labels":{"owner":5}}', ".labels"),
        ('{"dnsName":"a","providerSpecific":{}}', ".providerSpecific"),
        ('{"dnsName":"a","providerSpecific":[{"name":5}]}', ".providerSpecific[0].name"),
    ],
)
def test_a_bad_field_is_refused_with_its_path(
    client: RawClient, path: str, key: str, endpoint: str, place: str
) -> None:
    body = f'{{"{key}":[{json.dumps(GOOD)},{endpoint}]}}'.encode()

    answer = post(client, path, body)

    assert refusal(answer) == (400, "invalid request")
    assert answer.json["message"].startswith(f"{key}[1]{place}"), answer.json


@posts
@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 1_000_000, "0." + "3" * 1_000_000])
def test_a_number_out_of_range_is_refused(client: RawClient, path: str, key: str, number: str) -> None:
    body = f'{{"{key}":[{{"dnsName":"a","recordTTL":{number}}}]}}'.encode()

    assert refusal(post(client, path, body))[0] == 400


def test_an_out_of_range_ttl_is_adjusted_rather_than_refused(client: RawClient) -> None:
    """A DNSEndpoint may have any int64, and a 4xx would make external-dns exit for everybody."""
    wanted = [{**GOOD, "recordTTL": ttl_s} for ttl_s in (-5, -(2**63), 2**63 - 1)]

    answer = post(client, "/adjustendpoints", json.dumps(wanted).encode())

    assert answer.status_code == 200
    assert all(0 <= endpoint["recordTTL"] < 2**31 for endpoint in answer.json)


@posts
@pytest.mark.parametrize(
    "body",
    [
        b"[" * LEVELS + b"]" * LEVELS,
        b"[" * LEVELS,
        b'{"a":' * LEVELS + b"1" + b"}" * LEVELS,
        b'{"KEY":' + b"[" * LEVELS + b"]" * LEVELS + b"}",
        b'{"KEY":[{"dnsName":"a","unknown":' + b"[" * LEVELS + b"]" * LEVELS + b"}]}",
        b'{"KEY":[{"dnsName":"a","labels":' + b'{"a":' * LEVELS + b"1" + b"}" * LEVELS + b"}]}",
    ],
    ids=["arrays", "open arrays", "objects", "in the list", "in an unknown field", "in labels"],
)
def test_deep_nesting_is_refused(client: RawClient, path: str, key: str, body: bytes) -> None:
    assert refusal(post(client, path, body.replace(b"KEY", key.encode())))[0] == 400


# Sizes.


def padded(body: bytes, size_bytes: int) -> bytes:
    return body + b" " * (size_bytes - len(body))


def chunked(body: bytes, chunk_bytes: int = 100_000) -> bytes:
    parts = [body[start : start + chunk_bytes] for start in range(0, len(body), chunk_bytes)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_body_of_exactly_the_limit_is_read_whole(client: RawClient) -> None:
    body = padded(json.dumps([GOOD]).encode(), MAX_BODY_BYTES)

    assert post(client, "/adjustendpoints", body).json == [GOOD]

    client.send(head("/adjustendpoints", f"Content-Type: {MEDIA_TYPE}", "Transfer-Encoding: chunked") + chunked(body))
    assert client.answer().json == [GOOD]
    assert post(client, "/records", padded(b"{}", MAX_BODY_BYTES)).status_code == 204


@posts
def test_a_content_length_above_the_limit_is_refused_before_the_body_is_sent(
    client: RawClient, path: str, key: str
) -> None:
    client.send(head(path, f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {MAX_BODY_BYTES + 1}"))

    answer = client.answer()

    assert refusal(answer) == (413, "body too large")
    assert answer.fields["connection"] == "close"
    assert client.is_closed_by_server()


@posts
def test_a_chunked_body_above_the_limit_is_refused(client: RawClient, path: str, key: str) -> None:
    body = padded(b"{}", MAX_BODY_BYTES + 1)
    client.send(head(path, f"Content-Type: {MEDIA_TYPE}", "Transfer-Encoding: chunked") + chunked(body))

    assert refusal(client.answer())[0] == 413
    assert client.is_closed_by_server()


def test_a_head_that_is_too_large_is_refused(client: RawClient) -> None:
    client.send(head("/records", f"X-Padding: {'x' * 70_000}", method="GET"))

    assert refusal(client.answer())[0] == 431


# Routes and media types.


@pytest.mark.parametrize("path", ["/nowhere", "/records/", "/Records", "/records/1", "/%00", "/healthz"])
def test_an_unknown_path_is_not_found(client: RawClient, path: str) -> None:
    assert refusal(client.get(path)) == (404, "not found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/records", "GET, HEAD, POST"),
        ("PUT", "/records", "GET, HEAD, POST"),
        ("GET", "/adjustendpoints", "POST"),
        ("POST", "/", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(
    client: RawClient, method: str, path: str, allowed: str
) -> None:
    client.send(head(path, "Content-Length: 0", method=method))

    answer = client.answer()

    assert refusal(answer) == (405, "method not allowed")
    assert answer.fields["allow"] == allowed


@posts
@pytest.mark.parametrize("content_type", ["text/xml", "image/png", "multipart/form-data; boundary=x"])
def test_a_body_of_an_unsupported_media_type_is_refused(
    client: RawClient, path: str, key: str, content_type: str
) -> None:
    assert refusal(post(client, path, b"{}", content_type)) == (415, "unsupported media type")


@pytest.mark.parametrize("path", ["/", "/records"])
@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/xml"])
def test_an_accept_field_without_our_media_type_is_refused(client: RawClient, path: str, accept: str) -> None:
    assert refusal(client.get(path, f"Accept: {accept}\r\n")) == (406, "not acceptable")


# Clients that do not speak HTTP properly, or not at all.


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 80 + b"\n",
        b"GET\r\n\r\n",
        b"GET /records\r\n\r\n",
        b"GET /records HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /records HTTP/1.1\r\n\r\n",
        b"GET /records HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /records HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
        b"POST /records HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /records HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /records HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnot hexadecimal\r\n",
    ],
)
def test_invalid_http_is_refused_and_the_connection_closed(client: RawClient, garbage: bytes) -> None:
    client.send(garbage)

    assert refusal(client.answer())[0] in (400, 505)
    assert client.is_closed_by_server()


def test_pipelined_requests_are_answered_in_their_order(client: RawClient) -> None:
    body = json.dumps([GOOD]).encode()
    adjust = head("/adjustendpoints", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}") + body
    client.send(head("/nowhere", method="GET") + adjust + head("/", method="GET") + adjust)

    answers = [client.answer() for _ in range(4)]

    assert [answer.status_code for answer in answers] == [404, 200, 200, 200]
    assert [GOOD] == answers[1].json == answers[3].json
    assert "domainFilter" in answers[2].json


def test_a_client_that_half_closes_inside_the_body_is_answered_400(client: RawClient) -> None:
    client.send(head("/records", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 100") + b'{"create":[')
    client.socket.shutdown(socket.SHUT_WR)

    assert refusal(client.answer())[0] == 400
    assert client.is_closed_by_server()


def test_a_listing_reaches_a_client_that_has_half_closed(client: RawClient) -> None:
    client.send(head("/records", f"Accept: {MEDIA_TYPE}", method="GET"))
    client.socket.shutdown(socket.SHUT_WR)

    assert client.answer().status_code == 200
    assert client.is_closed_by_server()


def test_an_apply_of_a_client_that_has_half_closed_is_done_or_refused(port: int) -> None:
    """It may have disconnected: then nobody would learn of the outcome, and the change is left for the next pass."""
    body = json.dumps({"create": [{**GOOD, "dnsName": "half-closed.example.org"}]}).encode()
    with RawClient(port) as client:
        client.send(head("/records", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}") + body)
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.answer()

    with RawClient(port) as other:
        is_held = "half-closed" in other.get("/records").body.decode()
    assert answer.status_code == 204 if is_held else refusal(answer) == (503, "caller gone")


def test_a_client_that_vanishes_inside_the_body_changes_nothing(port: int) -> None:
    body = json.dumps({"create": [{**GOOD, "dnsName": "vanished.example.org"}]}).encode()
    with RawClient(port) as client:
        client.send(head("/records", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}") + body[:-1])

    with RawClient(port) as other:
        assert "vanished" not in other.get("/records").body.decode()


def trickled(client: RawClient, octet: bytes) -> Answer:
    """The answer to a client that sends an octet every 50 ms until it is answered."""
    client.socket.settimeout(0.05)
    for _ in range(int(20 / 0.05)):
        client.send(octet)
        try:
            return client.answer()
        except TimeoutError:
            continue
    raise AssertionError("no answer within 20 s")


@impatient
def test_a_body_that_trickles_in_is_answered_503_at_the_call_deadline(
    client: RawClient,
) -> None:
    client.send(head("/records", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 100000"))

    answer = trickled(client, b" ")

    assert refusal(answer) == (503, "deadline passed")
    assert answer.fields["retry-after"]
    assert answer.fields["connection"] == "close"


@impatient
def test_silent_and_slow_clients_are_disconnected_and_delay_no_other(port: int) -> None:
    """They outnumber the threads; good calls are answered meanwhile."""
    silent = [RawClient(port) for _ in range(20)]
    slow_heads = [RawClient(port) for _ in range(20)]
    try:
        for client in slow_heads:
            client.send(b"GET /records HTTP/1.1\r\nX-Slow: ")
        with RawClient(port) as good:
            assert good.get("/records").status_code == 200
        for client in slow_heads:
            assert refusal(client.answer())[0] == 408
        assert all(client.is_closed_by_server() for client in silent)
    finally:
        for client in (*silent, *slow_heads):
            client.socket.close()


# Many at once.


class Conversation(threading.Thread):
    """One client of many: some calls of each kind, on one connection or on one for each call."""

    def __init__(self, port: int, number: int, start: threading.Barrier) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.wrong: list[str] = []
        self._number = number
        self._start_together = start
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CONVERSATION_S)
        self._is_kept = number % 3 > 0

    def run(self) -> None:
        name = f"client-{self._number}.example.org"
        mine = {**GOOD, "dnsName": name, "targets": [f"198.51.100.{self._number}"]}
        self._start_together.wait(CONVERSATION_S)
        try:
            self._expect("GET", "/", None, 200, lambda value: "domainFilter" in value)
            self._expect("POST", "/adjustendpoints", [mine], 200, lambda value: value == [mine])
            self._expect("POST", "/records", {"create": [mine]}, 204)
            self._expect("GET", "/records", None, 200, lambda value: value.count(mine) == 1)
            self._expect("POST", "/records", {"create": [{"recordType": "A"}]}, 400)
            self._expect("POST", "/records", {"delete": [mine]}, 204)
            self._expect("GET", "/records", None, 200, lambda value: all(each["dnsName"] != name for each in value))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.wrong.append(f"{self.name}: {error!r}")
        finally:
            self._connection.close()

    def _expect(self, method: str, path: str, body: Any, status_code: int, is_right: Any = None) -> None:
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != status_code or (is_right and not is_right(json.loads(answer))):
            self.wrong.append(f"{self.name}: {method} {path}: {response.status} {answer[:200]!r}")
        if not self._is_kept:
            self._connection.close()


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def test_two_hundred_clients_at_once_are_all_answered_correctly_in_bounded_memory(daemon: Daemon, port: int) -> None:
    start = threading.Barrier(200)
    conversations = [Conversation(port, number, start) for number in range(200)]
    for conversation in conversations:
        conversation.start()
    for conversation in conversations:
        conversation.join(CONVERSATION_S)

    assert not any(conversation.is_alive() for conversation in conversations)
    assert [wrong for conversation in conversations for wrong in conversation.wrong] == []
    assert rss_mib(daemon.pid) < MAX_RSS_MIB
