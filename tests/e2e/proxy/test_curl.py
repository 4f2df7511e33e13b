"""curl as the client: every protocol it speaks, and what HTTP allows in requests and responses."""

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Gateway, route_to
from tests.support.programs import curl
from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.servers import Server, nginx
from tests.support.socketbackend import Dialogue, SocketBackend

# scheme, options, the version of the response: a server sends its own, also to HTTP/1.0 clients
PROTOCOLS = {
    "http/1.0": ("http", ["--http1.0"], "1.1"),
    "http/1.1": ("http", ["--http1.1"], "1.1"),
    "h2c": ("http", ["--http2-prior-knowledge"], "2"),
    "http/1.1 over tls": ("https", ["--http1.1"], "1.1"),
    "h2 over tls": ("https", ["--http2"], "2"),
    "http/1.1 to the edge": ("http", ["--http1.1"], "1.1"),
    "h2c to the edge": ("http", ["--http2-prior-knowledge"], "2"),
}
"""An edge forwards its requests through the tunnel."""
MIB = 1 << 20


def each(*protocols: str) -> pytest.MarkDecorator:
    """With the gateway that clients of the protocol reach."""
    ways = [("tunnel" if "edge" in protocol else "listener", protocol) for protocol in protocols]
    return pytest.mark.parametrize(("gateway", "protocol"), ways, indirect=["gateway"])


each_protocol = each(*PROTOCOLS)


def fetch(gateway: Gateway, protocol: str, path: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """The body of a response that must have come in this protocol."""
    scheme, options, version = PROTOCOLS[protocol]
    certificate = ["--cacert", str(gateway.doors.authority.file)]
    url = gateway.url_of(path, scheme=scheme)
    done = curl(*options, *certificate, "--write-out", "%{stderr}%{http_version}", *arguments, url, stdin=stdin)
    assert done.returncode == 0, (done.returncode, done.stderr, gateway.tail)
    assert done.stderr.decode().endswith(version)
    return done.stdout


@pytest.fixture(scope="module")
def files() -> Iterator[Server]:
    with nginx() as server:
        (server.root / "digits").write_bytes(b"0123456789")
        (server.root / "large").write_bytes(bytes(range(256)) * 32768)
        yield server


@each(*(name for name in PROTOCOLS if "edge" not in name))
def test_a_request_reaches_the_backend_with_its_target_and_fields(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    gateway.serve(route_to(backend.address))

    shown: dict[str, Any] = json.loads(
        fetch(gateway, protocol, "/a/b?c=d%20e", "-H", "X-Color: blue", "-H", "X-Empty;")
    )

    headers = dict(shown["headers"])
    scheme = PROTOCOLS[protocol][0]
    port = (gateway.tls if scheme == "https" else gateway.clear)[1]
    assert ("GET", "/a/b?c=d%20e") == (shown["method"], shown["target"])
    assert (f"localhost:{port}", "blue", "") == (headers["host"], headers["x-color"], headers["x-empty"])
    assert (scheme, "127.0.0.1", str(port)) == (
        headers["x-forwarded-proto"],
        headers["x-forwarded-for"],
        headers["x-forwarded-port"],
    )
    assert not {"connection", "keep-alive", "http2-settings", "upgrade"} & headers.keys()


@each_protocol
@pytest.mark.parametrize("size_bytes", [0, 1, 16384, 3 * MIB + 1])
def test_uploads_arrive_whole(
    gateway: Gateway, backend: RecordingBackend, tmp_path: Path, protocol: str, size_bytes: int
) -> None:
    gateway.serve(route_to(backend.address))
    body = (b"0123456789abcdef" * (size_bytes // 16 + 1))[:size_bytes]
    file = tmp_path / "body"
    file.write_bytes(body)

    shown = json.loads(fetch(gateway, protocol, "/upload", "-X", "POST", "--data-binary", f"@{file}"))

    assert (size_bytes, hashlib.sha256(body).hexdigest()) == (shown["body_bytes"], shown["body_sha256"])


@each(*(name for name in PROTOCOLS if name != "http/1.0"))
def test_uploads_of_unknown_length_arrive_whole(gateway: Gateway, backend: RecordingBackend, protocol: str) -> None:
    gateway.serve(route_to(backend.address))
    body = b"streamed " * 40000

    shown = json.loads(fetch(gateway, protocol, "/upload", "-T", "-", "-X", "PUT", stdin=body))

    assert hashlib.sha256(body).hexdigest() == shown["body_sha256"]
    assert "chunked" == dict(shown["headers"])["transfer-encoding"]


@each_protocol
def test_downloads_arrive_whole(gateway: Gateway, files: Server, protocol: str) -> None:
    gateway.serve(route_to(files.address))

    assert (files.root / "large").read_bytes() == fetch(gateway, protocol, "/large")


@each("http/1.1", "h2c", "h2 over tls", "h2c to the edge")
def test_range_and_conditional_requests_are_answered_by_the_backend(
    gateway: Gateway, files: Server, protocol: str
) -> None:
    gateway.serve(route_to(files.address))

    assert b"345" == fetch(gateway, protocol, "/digits", "-r", "3-5")
    parts = fetch(gateway, protocol, "/digits", "-r", "0-1,8-9", "-i")
    assert b"content-type: multipart/byteranges" in parts.lower()
    assert b"416" in fetch(gateway, protocol, "/digits", "-r", "20-30", "-i").splitlines()[0]
    etag = next(
        line for line in fetch(gateway, protocol, "/digits", "-I").splitlines() if line.lower().startswith(b"etag:")
    )
    answer = fetch(gateway, protocol, "/digits", "-i", "-H", f"If-None-Match: {etag[5:].strip().decode()}")
    assert b"304" in answer.splitlines()[0]


@each("http/1.1", "http/1.1 over tls", "h2 over tls")
def test_a_response_sent_before_the_upload_ends_reaches_the_client(gateway: Gateway, protocol: str) -> None:
    """Not over h2c, where curl 7.88 may lose such a response."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gateway.serve(route_to(f"127.0.0.1:{nobody.getsockname()[1]}"))
        for _ in range(5):
            said = fetch(gateway, protocol, "/", "--data-binary", "@-", "-o", "-", "-D", "-", stdin=bytes(3 * MIB))

            assert b" 502" in said.partition(b"\r\n")[0]


@each_protocol
def test_whitespace_around_a_field_value_is_removed(gateway: Gateway, backend: RecordingBackend, protocol: str) -> None:
    """It is not part of the value (RFC 9110, 5.5), but curl sends it."""
    gateway.serve(route_to(backend.address))

    fetch(gateway, protocol, "/", "--user-agent", "agent ", "--header", "X-Spaced: \t a\t")
    (received,) = backend.wait_for_requests(1)

    assert ("agent", "a") == (received.value("user-agent"), received.value("x-spaced"))


@each_protocol
def test_a_response_to_head_has_content_length_and_no_body(gateway: Gateway, files: Server, protocol: str) -> None:
    gateway.serve(route_to(files.address))

    answer = fetch(gateway, protocol, "/digits", "-I")

    assert b"content-length: 10" in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


@each(*(name for name in PROTOCOLS if name != "http/1.0"))
def test_expect_100_continue_is_answered_before_the_body_is_sent(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    """curl would wait for it longer than this test may take."""
    gateway.serve(route_to(backend.address))

    waits = ["--expect100-timeout", "60", "-H", "Expect: 100-continue"]
    shown = json.loads(fetch(gateway, protocol, "/", *waits, "--data-binary", "hello"))

    assert hashlib.sha256(b"hello").hexdigest() == shown["body_sha256"]


@each("http/1.1", "h2c", "h2 over tls", "h2c to the edge")
def test_chunked_responses_keep_their_trailers(gateway: Gateway, backend: RecordingBackend, protocol: str) -> None:
    backend.respond = lambda _: Reply(
        headers=(("Trailer", "X-Sum"),), chunks=(b"one ", b"two"), trailers=(("X-Sum", "7"),)
    )
    gateway.serve(route_to(backend.address))

    answer = fetch(gateway, protocol, "/", "-i", "-H", "TE: trailers")

    assert b"one two" in answer
    assert b"x-sum: 7" in answer.lower()


@each("http/1.1", "h2c", "h2 over tls", "h2c to the edge")
def test_te_trailers_is_forwarded_with_te_listed_in_connection(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    """RFC 9110, 10.1.4: a cache as the backend would forward it otherwise. Firefox sends it with each request."""
    gateway.serve(route_to(backend.address))

    for _ in range(3):
        fetch(gateway, protocol, "/", "-H", "TE: trailers")

    said = [(request.value("connection"), request.value("te")) for request in backend.received]
    assert [("te", "trailers")] * 3 == said


@each_protocol
@pytest.mark.parametrize("status_code", [204, 304, 404, 418, 500, 599, 600, 999])
def test_the_backends_status_code_is_forwarded(
    gateway: Gateway, backend: RecordingBackend, protocol: str, status_code: int
) -> None:
    backend.respond = lambda _: Reply(status_code=status_code, headers=(("X-From", "backend"),))
    gateway.serve(route_to(backend.address))

    answer = fetch(gateway, protocol, "/", "-i").lower()

    assert str(status_code).encode() in answer.splitlines()[0]
    assert b"x-from: backend" in answer


def test_an_http_1_0_client_gets_a_body_of_unknown_length_ended_by_the_connection(
    gateway: Gateway, backend: RecordingBackend
) -> None:
    backend.respond = lambda _: Reply(chunks=(b"a" * 1000, b"b" * 1000))
    gateway.serve(route_to(backend.address))

    answer = fetch(gateway, "http/1.0", "/", "-i")

    assert answer.endswith(b"\r\n\r\n" + b"a" * 1000 + b"b" * 1000)
    assert b"transfer-encoding" not in answer.lower()


@each("http/1.1", "http/1.1 over tls", "h2 over tls")
def test_several_requests_share_a_connection_on_both_sides(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    """Not with prior knowledge of HTTP/2, where curl 7.88 fails to use its own connection again."""
    gateway.serve(route_to(backend.address))
    scheme, options, _ = PROTOCOLS[protocol]
    urls = [gateway.url_of(f"/{number}", scheme=scheme) for number in range(5)]

    authority = str(gateway.doors.authority.file)
    done = curl(*options, "--cacert", authority, "--write-out", "%{stderr}%{num_connects} ", *urls)

    assert b"1 0 0 0 0 " == done.stderr
    assert [f"/{number}" for number in range(5)] == [request.target for request in backend.received]
    assert 1 == len({request.connection for request in backend.received})


@each_protocol
def test_a_host_without_a_route_is_answered_404_with_the_request_id_of_the_log(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    gateway.serve(route_to(backend.address, hostnames=["elsewhere.example"]))

    head, _, body = fetch(gateway, protocol, "/nowhere", "-i").lower().partition(b"\r\n\r\n")

    request_id = next(line for line in head.splitlines() if line.startswith(b"x-request-id:")).split()[1].decode()
    assert b"404" in head.splitlines()[0]
    assert request_id in body.decode()
    line = gateway.access_line(request_id)
    assert (404, "no_route") == (line["status_code"], line["reason"])
    assert [] == backend.received


@each("http/1.1", "h2c")
def test_an_unregistered_method_is_forwarded_unchanged(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    gateway.serve(route_to(backend.address))

    for method in ("LIST", "VERSION-CONTROL", "frobnicate"):
        assert method == json.loads(fetch(gateway, protocol, "/", "-X", method))["method"]


@each("http/1.1", "h2c")
def test_options_asterisk_is_answered_404_with_an_explanation(
    gateway: Gateway, backend: RecordingBackend, protocol: str
) -> None:
    gateway.serve(route_to(backend.address))

    body = fetch(gateway, protocol, "/", "-X", "OPTIONS", "--request-target", "*")

    assert b"404 not found: OPTIONS * is not supported: routes match only paths" == body.splitlines()[0]
    assert [] == backend.received


def test_hop_by_hop_fields_are_not_forwarded(gateway: Gateway, backend: RecordingBackend) -> None:
    def answer(received: Received) -> Reply:
        hops = (("Connection", "close, X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5"), ("X-End", "2"))
        return Reply(headers=hops, body=received.as_json())

    backend.respond = answer
    gateway.serve(route_to(backend.address))
    hops = ["-H", "Connection: keep-alive, X-Mine", "-H", "X-Mine: 1", "-H", "Proxy-Connection: keep-alive"]

    head, _, body = fetch(gateway, "http/1.1", "/", "-i", *hops, "-H", "TE: gzip").partition(b"\r\n\r\n")

    sent = {name for name, _ in json.loads(body)["headers"]}
    assert not {"x-mine", "proxy-connection", "connection", "te"} & sent
    assert b"x-end: 2" in head.lower()
    assert b"x-hop" not in head.lower()
    assert b"keep-alive:" not in head.lower()


@each_protocol
def test_content_length_of_a_204_is_not_forwarded(gateway: Gateway, protocol: str) -> None:
    """RFC 9110, 8.6; curl resets an HTTP/2 stream for it."""

    def say_nothing_at_length(dialogue: Dialogue) -> None:
        while dialogue.read_request():
            dialogue.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")

    with SocketBackend(say_nothing_at_length) as backend:
        gateway.serve(route_to(backend.address))

        head = fetch(gateway, protocol, "/", "-i")

    assert b"204" == head.split()[1]
    assert b"content-length" not in head.lower()
