"""The HTTP server with well-behaved clients: addresses, bodies, keep-alive, overload, drain."""

import contextlib
import errno
import gc
import logging
import os
import queue
import resource
import select
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import trustme
from cryptography.hazmat.primitives import serialization

from daemonkit import filereading, wsgirequest
from daemonkit.addresses import ListenAddress
from daemonkit.lifecycle import StartFailed
from daemonkit.logformat import FIELDS_ATTRIBUTE, line_of
from daemonkit.logs import get_logger
from daemonkit.wsgi import HttpServer
from daemonkit.wsgirequest import Connection
from daemonkit.wsgistreams import Input
from tests.daemonkit.conftest import EchoApp, Serve
from tests.daemonkit.rawhttp import DEADLINE_S, RawClient
from tests.support.lettinggo import uncollected
from tests.support.limits import open_files_limited
from tests.support.requirements import not_possible_here
from tests.support.watches import watches_refused

CHUNKED = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_port_0_is_replaced_by_the_port_that_the_kernel_chose(serve: Serve) -> None:
    server = serve("127.0.0.1:0")

    assert server.bound_address.port > 0
    assert str(server.bound_address) == f"127.0.0.1:{server.bound_address.port}"


def test_a_port_without_a_host_is_served_dual_stack(serve: Serve) -> None:
    server = serve(":0")

    for family in (socket.AF_INET, socket.AF_INET6):
        with RawClient(server.bound_address.port, family) as client:
            assert client.get().status_code == 200


def test_an_ipv6_address_is_served(serve: Serve) -> None:
    server = serve("[::1]:0")

    with RawClient(server.bound_address.port, socket.AF_INET6) as client:
        assert client.get().body == b"GET / 0"


@pytest.mark.parametrize(
    ("address", "others"), [("127.0.0.1:0", ["127.0.0.2", "::1"]), ("[::1]:0", ["127.0.0.1"])], ids=["IPv4", "IPv6"]
)
def test_a_server_is_reachable_at_no_other_address_than_its_own(serve: Serve, address: str, others: list[str]) -> None:
    port = serve(address).bound_address.port

    for other in others:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, port), DEADLINE_S)


def test_a_unix_socket_is_served_with_mode_0660_and_removed_at_stop(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    server = serve(f"unix:{path}")

    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with RawClient(path=str(path)) as client:
        assert client.get().status_code == 200
    server.stop()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced_and_one_in_use_is_refused(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    serve(f"unix:{path}")

    with pytest.raises(OSError, match=r"cannot listen on unix:.*another process listens there"):
        serve(f"unix:{path}")
    with RawClient(path=str(path)) as client:
        assert client.get().status_code == 200


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["its queue is full", "datagrams"])
def test_a_unix_socket_that_takes_no_connection_is_in_use(
    serve: Serve, tmp_path: Path, kind: socket.SocketKind
) -> None:
    """The error was only that a resource is temporarily unavailable, or that the protocol is wrong."""
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX, kind) as other, contextlib.ExitStack() as waiting:
        other.bind(str(path))
        if kind is socket.SOCK_STREAM:
            other.listen(0)
            client = waiting.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(path))

        with pytest.raises(OSError, match=r"cannot listen on unix:.*another process listens there"):
            serve(f"unix:{path}")
    assert path.is_socket()


_AS_ANOTHER_USER = """
import os, sys
from daemonkit.addresses import ListenAddress
from daemonkit.listening import open_listener
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    open_listener(ListenAddress.parse(sys.argv[1]))
except OSError as error:
    print(error)
"""


def test_a_stale_unix_socket_of_another_user_is_named_as_what_is_in_the_way() -> None:
    """The advice was to choose a directory that this user may write to, which it was."""
    if os.geteuid() != 0:
        not_possible_here("only root can become another user")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        path = f"{directory}/api.sock"
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        Path(path).chmod(0o660)

        said = subprocess.run(
            [sys.executable, "-c", _AS_ANOTHER_USER, f"unix:{path}"], capture_output=True, text=True, check=True
        ).stdout

    assert f"cannot listen on unix:{path}: a socket of another user exists there; remove it, or choose" in said


def test_a_file_that_is_not_a_socket_is_not_removed(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")

    with pytest.raises(OSError, match="a file that is not a socket exists there; remove it"):
        serve(f"unix:{tmp_path}/precious")
    assert (tmp_path / "precious").read_text() == "x"
    with pytest.raises(NotADirectoryError, match="Not a directory; choose a path in a directory"):
        serve(f"unix:{tmp_path}/precious/below")


def test_a_port_in_use_is_an_error_that_names_the_address(serve: Serve) -> None:
    taken = serve().bound_address

    with pytest.raises(OSError, match=f"cannot listen on {taken}: Address already in use"):
        serve(str(taken))


def test_tls_is_served_while_a_client_that_never_completes_its_handshake_blocks_no_other(
    serve: Serve, tmp_path: Path
) -> None:
    ca = trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    # The session has to complete its handshake, and the silent client to time out, within this.
    server = serve(tls=(str(tmp_path / "both.pem"), str(tmp_path / "both.pem")), threads=1, header_timeout_s=2.0)
    port = server.bound_address.port

    with RawClient(port) as silent, RawClient(port) as plain, requests.Session() as session:
        silent.send(b"\x16\x03\x01")
        plain.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        session.verify = str(tmp_path / "ca.pem")
        session.trust_env = False
        for size in (1, 100_000):
            answer = session.post(f"https://127.0.0.1:{port}/x", data=b"x" * size, timeout=DEADLINE_S)
            assert answer.text == f"POST /x {size}"
        assert plain.is_closed_by_server()
        assert silent.is_closed_by_server()


@pytest.mark.parametrize(
    ("chain", "key", "flaw"),
    [
        ("bad.pem", "key.pem", "no certificate in PEM format in {}/bad.pem"),
        ("chain.pem", "bad.pem", "no private key in PEM format in {}/bad.pem"),
        ("chain.pem", "chain.pem", "no private key in PEM format in {}/chain.pem"),
        ("chain.pem", "nowhere.pem", "cannot read {}/nowhere.pem: No such file or directory"),
        ("chain.pem", "", "cannot read {}: Is a directory"),
        ("chain.pem", "other.pem", "KEY_VALUES_MISMATCH"),
        ("chain.pem", "locked.pem", "the private key in {}/locked.pem is encrypted, want it without a passphrase"),
    ],
)
def test_an_unusable_certificate_fails_the_start_with_the_file_and_the_fault(
    serve: Serve, tmp_path: Path, chain: str, key: str, flaw: str
) -> None:
    authority = trustme.CA()
    issued, other = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "chain.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    other.private_key_pem.write_to_path(str(tmp_path / "other.pem"))
    (tmp_path / "bad.pem").write_text("neither")
    key_of_other = serialization.load_pem_private_key(other.private_key_pem.bytes(), None)
    locked = key_of_other.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    )
    (tmp_path / "locked.pem").write_bytes(locked)

    with pytest.raises(StartFailed, match="cannot use the certificate chain") as failed:
        serve(tls=(str(tmp_path / chain), str(tmp_path / key)))

    assert flaw.format(tmp_path) in str(failed.value)


class Renewal:
    """Files of a certificate chain and its key."""

    def __init__(self, folder: Path) -> None:
        self.chain, self.key = folder / "chain.pem", folder / "key.pem"
        self._authority = trustme.CA()
        self._written_s = 0
        self.renew()

    def renew(self) -> None:
        self.issue()
        self.write_chain()
        self.write_key()

    def issue(self) -> None:
        self._issued = self._authority.issue_cert("127.0.0.1")

    def write_chain(self) -> None:
        self._write(self.chain, self._issued.cert_chain_pems[0].bytes())

    def write_key(self) -> None:
        self._write(self.key, self._issued.private_key_pem.bytes())

    def _write(self, file: Path, content: bytes) -> None:
        file.write_bytes(content)
        # Months later than before: times of files tick every 10 ms on some systems, in which all of this may happen.
        self._written_s += 10_000_000
        os.utime(file, (self._written_s, self._written_s))

    def is_presented_at(self, port: int) -> bool:
        presented = ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S)
        return presented.encode() == self._issued.cert_chain_pems[0].bytes()


def test_new_connections_get_a_renewed_certificate_which_is_read_once(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files = Renewal(tmp_path)
    port = serve(tls=(str(files.chain), str(files.key))).bound_address.port
    assert files.is_presented_at(port)

    files.renew()

    assert files.is_presented_at(port)
    assert files.is_presented_at(port)
    assert caplog.messages.count("certificate renewed") == 1


def test_a_half_renewed_certificate_is_logged_once_and_the_previous_one_stays_in_use(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Renewal(tmp_path)
    port = serve(tls=(str(files.chain), str(files.key))).bound_address.port
    before = ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S)

    files.issue()
    files.write_chain()

    for _ in range(3):
        assert ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S) == before
    (line,) = [
        line for line in map(line_of, caplog.records) if str(line["msg"]).startswith("cannot renew the certificate")
    ]
    assert "KEY_VALUES_MISMATCH" in str(line["error"])
    files.write_key()
    assert files.is_presented_at(port)


def test_a_half_renewed_certificate_leaves_nothing_for_the_garbage_collector(serve: Serve, tmp_path: Path) -> None:
    files = Renewal(tmp_path)
    server = serve(tls=(str(files.chain), str(files.key)))
    files.issue()
    files.write_chain()
    with uncollected() as garbage_of:
        for _ in range(2):
            ssl.get_server_certificate(("127.0.0.1", server.bound_address.port), timeout=DEADLINE_S)
        server.drain(time.monotonic() + DEADLINE_S)

        assert garbage_of("daemonkit") == []


def test_a_key_from_a_pipe_is_not_read_again_when_the_chain_is_renewed(serve: Serve, tmp_path: Path) -> None:
    files = Renewal(tmp_path)
    key = files.key.read_bytes()
    files.key.unlink()
    os.mkfifo(files.key)
    writing = threading.Thread(target=files.key.write_bytes, args=[key], daemon=True)
    writing.start()
    port = serve(tls=(str(files.chain), str(files.key))).bound_address.port
    writing.join(DEADLINE_S)
    before = ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S)

    files.issue()
    files.write_chain()

    assert ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S) == before


def test_a_pipe_into_which_nobody_writes_fails_the_start(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for a writer without a word."""
    monkeypatch.setattr(filereading, "WRITER_S", 0.1)
    files = Renewal(tmp_path)
    files.key.unlink()
    os.mkfifo(files.key)

    with pytest.raises(StartFailed, match=f"cannot read {files.key}: nobody has written into this pipe for 0.1 s"):
        serve(tls=(str(files.chain), str(files.key)))


def test_an_empty_pipe_in_place_of_the_key_fails_the_start(serve: Serve, tmp_path: Path) -> None:
    files = Renewal(tmp_path)
    files.key.unlink()
    os.mkfifo(files.key)
    told: list[str] = []

    def start() -> None:
        with pytest.raises(StartFailed) as failed:
            serve(tls=(str(files.chain), str(files.key)))
        told.append(str(failed.value))

    threads = [threading.Thread(target=act, daemon=True) for act in (start, lambda: files.key.write_bytes(b""))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)

    (text,) = told
    assert f"cannot use the certificate chain in {files.chain} with the private key in {files.key}" in text


def test_a_connection_is_kept_for_further_requests(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        first, second = client.get("/1"), client.get("/2")

    assert (first.body, second.body) == (b"GET /1 0", b"GET /2 0")
    assert "connection" not in first.fields
    assert first.fields["server"] == "echo"


@pytest.mark.parametrize("option", ["close", "Close", "TE, close"])
def test_a_client_may_ask_to_close(serve: Serve, option: str) -> None:
    with RawClient(serve().bound_address.port) as client:
        assert client.get(extra=f"Connection: {option}\r\n").fields["connection"] == "close"
        assert client.is_closed_by_server()


def test_http_1_0_is_answered_and_closed_unless_kept_alive(serve: Serve) -> None:
    port = serve().bound_address.port

    with RawClient(port) as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert client.answer().status_code == 200
        assert client.is_closed_by_server()
    with RawClient(port) as client:
        for _ in range(2):
            client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            fields = client.answer().fields
            assert (fields["connection"], fields["keep-alive"]) == ("Keep-Alive", f"timeout={DEADLINE_S:.0f}")


@pytest.mark.parametrize(
    ("line", "served"),
    [
        (b"GET http://a.test/url HTTP/1.1", b"a.test /url "),
        (b"GET HTTP://a.test:80/url?http://b/ HTTP/1.1", b"a.test:80 /url?http://b/ http://b/"),
        (b"GET http://[::1]:8080/url HTTP/1.1", b"[::1]:8080 /url "),
        (b"GET http://a.test HTTP/1.1", b"GET / 0"),
        (b"GET http://a.test?q HTTP/1.1", b"GET / 0"),
        (b"OPTIONS http://a.test/url HTTP/1.1", b"a.test /url "),
        (b"OPTIONS http://a.test HTTP/1.1", b"OPTIONS /* 0"),
        (b"OPTIONS * HTTP/1.1", b"OPTIONS /* 0"),
    ],
)
def test_a_target_in_absolute_form_is_taken_and_its_authority_replaces_host(
    serve: Serve, line: bytes, served: bytes
) -> None:
    """RFC 9112, 3.2.2."""
    with RawClient(serve().bound_address.port) as client:
        client.send(line + b"\r\nHost: x\r\n\r\n")

        assert client.answer().body == served
        assert client.get("/url").body == b"x /url ", "the next request has its own"


def test_a_target_in_absolute_form_needs_no_host_in_http_1_0(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET http://a.test/url HTTP/1.0\r\n\r\n")

        assert client.answer().body == b"a.test /url "


def test_a_target_of_https_in_absolute_form_is_taken_over_tls(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    port = serve(tls=(str(tmp_path / "both.pem"), str(tmp_path / "both.pem"))).bound_address.port
    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        sock.sendall(b"GET https://a.test/url HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with sock.makefile("rb") as answer:
            assert answer.read().endswith(b"\r\n\r\na.test /url ")


def test_a_response_without_content_has_its_head(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        for _ in range(2):
            client.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.head().fields["content-length"] == str(len("HEAD /x 0"))
        assert client.get().body == b"GET / 0"


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        requests_ = [
            b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (n, n, b"x" * n) for n in range(20)
        ]
        client.send(b"\r\n" + b"".join(requests_))

        assert [client.answer().body for _ in range(20)] == [b"POST /%d %d" % (n, n) for n in range(20)]


def test_a_client_that_half_closes_still_gets_its_response(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        client.socket.shutdown(socket.SHUT_WR)

        assert client.answer().body == b"POST /x 3"
        assert client.is_closed_by_server()


def test_a_request_that_arrives_byte_by_byte_is_understood(serve: Serve) -> None:
    request = CHUNKED + b"3;ext=1\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"
    with RawClient(serve().bound_address.port) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in request:
            client.send(bytes([octet]))

        assert client.answer().body == b"POST /x 3"
        assert client.get("/next").body == b"GET /next 0"


def test_chunked_bodies_are_read_whole(serve: Serve) -> None:
    chunk = b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
    with RawClient(serve().bound_address.port) as client:
        client.send(CHUNKED + chunk * 100 + b"0\r\n\r\n")

        assert client.answer().body == b"POST /x %d" % (0x2000 * 100)
        assert client.get().status_code == 200


EXPECTING = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"


@pytest.mark.parametrize(
    "expectation", [b"100-continue", b"100-Continue", b"100-continue\r\nExpect: 100-continue", b"other, 100-continue"]
)
def test_expect_100_continue_is_answered_before_the_body(serve: Serve, expectation: bytes) -> None:
    """RFC 9110, 10.1.1: the value is a list and case-insensitive."""
    with RawClient(serve().bound_address.port) as client:
        for path in (b"/1", b"/2"):
            client.send(EXPECTING.replace(b"100-continue", expectation) % path)
            assert client.answer().status_code == 100
            client.send(b"abc")
            assert client.answer().body == b"POST " + path + b" 3"
        assert client.get().body == b"GET / 0"


def test_a_body_that_came_with_its_head_is_not_asked_for(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(EXPECTING % b"/x" + b"abc")
        assert client.answer().body == b"POST /x 3"
        client.send(b"GET / HTTP/1.1\n")
        assert client.answer().status_code == 400, "what comes next is not its body either"


def test_a_body_is_not_asked_for_once_the_answer_has_begun(serve: Serve) -> None:
    """A 100 there would be read as a part of the answer."""
    with RawClient(serve().bound_address.port) as client, client.socket.makefile("rb") as answer:
        client.send(EXPECTING % b"/late")
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
        client.send(b"abc")

        assert answer.read().endswith(b"\r\n\r\n6\r\nbegun \r\n1\r\n3\r\n0\r\n\r\n")


def test_a_body_that_the_app_does_not_read_is_not_asked_for(serve: Serve) -> None:
    """Its client was asked to upload what was refused. It may send it nevertheless, so the connection ends."""
    with RawClient(serve().bound_address.port) as client:
        client.send(EXPECTING % b"/unread")
        answer = client.answer()
        assert (answer.status_code, answer.body, answer.fields["connection"]) == (200, b"unread", "close")
        client.send(b"GET")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed_by_server()


def test_an_expectation_of_http_1_0_is_ignored(serve: Serve) -> None:
    """RFC 9110, 10.1.1: such a client would take 100 for the response."""
    with RawClient(serve().bound_address.port) as client:
        client.send((EXPECTING % b"/x").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert select.select([client.socket], [], [], 0.1)[0] == []
        client.send(b"abc")
        assert client.answer().body == b"POST /x 3"


def test_a_small_body_that_the_app_left_unread_does_not_disturb_the_next_request(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET")
        assert client.answer().body == b"unread"
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nGET\r\n0\r\n\r\n")
        assert client.answer().body == b"unread"
        assert client.get().body == b"GET / 0"


def test_a_small_body_that_the_app_left_unread_may_arrive_a_little_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsgirequest, "_SKIP_TIMEOUT_S", DEADLINE_S)
    with RawClient(serve(body_timeout_s=2 * DEADLINE_S).bound_address.port) as client:
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        assert select.select([client.socket], [], [], 0.1)[0] == []
        client.send(b"GET")
        assert client.answer().body == b"unread"
        assert client.get().body == b"GET / 0"


def test_a_body_that_the_app_left_unread_and_that_does_not_arrive_delays_the_answer_only_a_little(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsgirequest, "_SKIP_TIMEOUT_S", 0.1)
    with RawClient(serve(body_timeout_s=2 * DEADLINE_S).bound_address.port) as client:
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        answer = client.answer()
        assert (answer.body, answer.fields["connection"]) == (b"unread", "close")


def test_a_large_body_that_the_app_left_unread_closes_the_connection_after_the_answer(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)

        answer = client.answer()
        assert (answer.body, answer.fields["connection"]) == (b"unread", "close")
        assert client.is_closed_by_server()


def test_a_client_that_asked_to_close_can_send_a_large_body_that_the_app_left_unread(serve: Serve) -> None:
    """A reset would keep it from reading the answer."""
    with RawClient(serve().bound_address.port) as client:
        client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5000000\r\n\r\n")
        client.send(b"x" * 5_000_000)

        assert client.answer().body == b"unread"
        assert client.is_closed_by_server()


def test_the_right_to_wait_for_an_unread_body_comes_back_once_a_client_has_ended(serve: Serve) -> None:
    """Only one of so few threads has it at a time."""
    port = serve(threads=1).bound_address.port
    for _ in range(3):
        with RawClient(port) as client:
            client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5000000\r\n\r\n")
            client.send(b"x" * 5_000_000)

            assert client.answer().body == b"unread"
            assert client.is_closed_by_server()


@pytest.mark.parametrize("path", ["/closing", "/closing/broken"])
def test_an_answer_is_closed_once_it_is_sent_or_has_failed(serve: Serve, app: EchoApp, path: str) -> None:
    """PEP 3333."""
    with RawClient(serve().bound_address.port) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        assert app.entered.acquire(timeout=DEADLINE_S)


def test_a_response_without_length_is_sent_in_chunks(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.answer().fields["transfer-encoding"] == "chunked"
        while not client.is_closed_by_server() and not client._buffer.endswith(b"0\r\n\r\n"):
            client._more()
        assert client._buffer == b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"


@pytest.mark.parametrize("path", ["/boom", "/exit"])
def test_an_exception_of_the_app_is_answered_500_and_logged_with_its_stack(
    serve: Serve, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    port = serve(threads=1).bound_address.port

    for _ in range(3):
        with RawClient(port) as client:
            answer = client.get(path)
            assert answer.status_code == 500
            assert answer.json == {"error": "internal error", "message": "bug in the server, see its log"}
            assert client.is_closed_by_server()

    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "request failed"
    ] * 3


def test_what_filled_the_memory_is_released_before_its_lack_is_logged_and_answered(serve: Serve, app: EchoApp) -> None:
    """There was no memory for that: nothing was logged or answered, and the thread was lost."""
    is_released: list[bool] = []

    class Watching(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            is_released.append(app.held is not None and app.held() is None)

    watching = Watching(logging.ERROR)
    logging.getLogger("tests.wsgi").addHandler(watching)
    try:
        with RawClient(serve(threads=1).bound_address.port) as client:
            assert client.get("/full").status_code == 500
    finally:
        logging.getLogger("tests.wsgi").removeHandler(watching)

    assert is_released == [True]


def test_a_response_that_fails_in_the_middle_ends_without_its_last_chunk(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET /broken-stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer().status_code == 200
        while client._more():
            pass
        assert client._buffer == b"1\r\na\r\n"


def test_200_parallel_keep_alive_clients_are_all_served(serve: Serve) -> None:
    port = serve(threads=16, header_timeout_s=DEADLINE_S).bound_address.port
    everybody = threading.Barrier(200)

    def visit(number: int) -> int:
        with RawClient(port) as client:
            everybody.wait(DEADLINE_S)
            return sum(client.get(f"/{number}").body == b"GET /%d 0" % number for _ in range(5))

    with ThreadPoolExecutor(200) as pool:
        assert sum(pool.map(visit, range(200))) == 1000


def test_requests_beyond_threads_and_queue_are_answered_503(serve: Serve, app: EchoApp) -> None:
    port = serve(threads=1, request_queue=1).bound_address.port
    with RawClient(port) as running, RawClient(port) as one, RawClient(port) as other:
        running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        waiting = {client.socket: client for client in (one, other)}
        for client in waiting.values():
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

        # One of the two fits into the queue.
        (answered, *_), _, _ = select.select(list(waiting), [], [], DEADLINE_S)
        refusal = waiting.pop(answered).answer()
        app.release.set()

        assert (refusal.status_code, refusal.fields["retry-after"]) == (503, "1")
        assert refusal.json["error"] == "service unavailable"
        assert running.answer().status_code == 200
        assert [client.answer().status_code for client in waiting.values()] == [200]


def test_connections_beyond_the_limit_are_answered_503_until_a_request_is_done(
    serve: Serve, app: EchoApp, caplog: pytest.LogCaptureFixture
) -> None:
    port = serve(max_connections=2).bound_address.port
    with RawClient(port) as running, RawClient(port) as other:
        for client in (running, other):
            client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
            assert app.entered.acquire(timeout=DEADLINE_S)
        assert [_status_of_a_new_client(port) for _ in range(3)] == [503] * 3
        line = next(entry for entry in caplog.records if entry.message == "overloaded, answering 503")
        _, fields, _ = getattr(line, FIELDS_ATTRIBUTE)
        assert fields["client"] == "127.0.0.1"

        app.release.set()
        assert [client.answer().status_code for client in (running, other)] == [200, 200]
        # Answered, but the server may not have taken the connections back yet.
        assert _eventually(lambda: _status_of_a_new_client(port) == 200)


def test_a_client_beyond_the_limit_that_sends_nothing_is_answered_503_and_delays_no_other(
    serve: Serve, app: EchoApp
) -> None:
    port = serve(max_connections=1).bound_address.port
    with RawClient(port) as running:
        running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        with RawClient(port) as silent:
            assert silent.answer().status_code == 503
            assert silent.is_closed_by_server()
            assert _status_of_a_new_client(port) == 503
        app.release.set()
        assert running.answer().status_code == 200


def test_a_client_beyond_the_limit_replaces_a_connection_without_a_request_or_else_the_longest_idle(
    serve: Serve, app: EchoApp, caplog: pytest.LogCaptureFixture
) -> None:
    # With one free thread, an answer to `newer` shows that the thread is done with `older`.
    port = serve(threads=2, max_connections=3).bound_address.port
    with RawClient(port) as running, RawClient(port) as older, RawClient(port) as half_sent:
        assert older.get().status_code == 200
        half_sent.send(b"GET / HTTP/1.1\r\n")
        running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)

        with RawClient(port) as newer:
            assert newer.get().status_code == 200
            refusal = half_sent.answer()
            assert (refusal.status_code, refusal.fields["retry-after"]) == (503, "1")
            with RawClient(port) as newest:
                assert newest.get().status_code == 200
                assert older.is_closed_by_server()
                assert newer.get().status_code == 200
        app.release.set()
        assert running.answer().status_code == 200
    assert "too many connections, closing the longest idle one" in caplog.messages


def test_a_client_beyond_the_limit_replaces_one_that_has_begun_its_next_request_which_is_answered_503(
    serve: Serve,
) -> None:
    port = serve(max_connections=1).bound_address.port
    with RawClient(port) as older:
        assert older.get().status_code == 200
        older.send(b"GET / HTTP/1.1\r\n")
        # A new client is refused until the server knows that the first request is over.
        assert _eventually(lambda: _status_of_a_new_client(port) == 200)

        assert older.answer().status_code == 503
        assert older.is_closed_by_server()


def test_fields_of_several_lines_reach_the_app_as_one(serve: Serve) -> None:
    """RFC 9110, 5.3."""
    with RawClient(serve().bound_address.port) as client:
        assert client.get("/role", extra="X-Role: a\r\nx-role: b\r\n").body == b"a, b"


def test_connections_leave_enough_descriptors_for_other_parts_of_the_process(serve: Serve) -> None:
    files = 4 * (len(os.listdir("/proc/self/fd")) + 20)  # noqa: PTH208 - numbers, not paths
    with open_files_limited(0, files):
        port = serve(max_connections=512).bound_address.port

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in range(files // 4)]
        assert [client.get().status_code for client in clients] == [200] * len(clients)
        assert _status_of_a_new_client(port) == 200
        # One of the first: an answer arrives a moment before its connection counts as idle.
        (gone,), _, _ = select.select([client.socket for client in clients], [], [], DEADLINE_S)
        assert gone.recv(1) == b"", "one more would be too many"


def test_a_lack_of_descriptors_fails_the_start(app: EchoApp) -> None:
    server = HttpServer("short", ListenAddress.parse("127.0.0.1:0"), app, log=get_logger("x"))
    server.bind()
    try:
        with open_files_limited(0, 0), pytest.raises(OSError, match="Too many open files"):
            server.start()
    finally:
        server.stop()


def test_a_lack_of_descriptors_while_serving_is_logged_and_delays_new_clients(serve: Serve) -> None:
    said: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.put(record.getMessage())

    port = serve().bound_address.port
    log, listening = logging.getLogger("tests.wsgi"), Listening(logging.WARNING)
    log.addHandler(listening)
    with RawClient(port) as served, socket.socket() as late:
        assert served.get().status_code == 200
        try:
            with open_files_limited(0, 3):  # with less, poll() fails, too
                late.connect(("127.0.0.1", port))
                assert said.get(timeout=DEADLINE_S) == "cannot accept a connection"
                assert served.get().status_code == 200
        finally:
            log.removeHandler(listening)
        late.settimeout(DEADLINE_S)
        late.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert late.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_seccomp_profile_that_forbids_getrlimit_fails_the_start_with_the_call_to_allow(
    app: EchoApp, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_resource: int) -> tuple[int, int]:
        raise OSError(code, os.strerror(code))

    server = HttpServer("narrow", ListenAddress.parse("127.0.0.1:0"), app, log=get_logger("x"))
    monkeypatch.setattr(resource, "getrlimit", refused)
    try:
        with pytest.raises(StartFailed, match="allow the system call prlimit64"):
            server.start()
    finally:
        server.stop()


def _status_of_a_new_client(port: int) -> int:
    with RawClient(port) as client:
        return client.get().status_code


def test_an_app_can_see_that_its_client_has_gone(serve: Serve, app: EchoApp) -> None:
    port = serve().bound_address.port
    with RawClient(port) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        client_gone = app.gone[-1]
        assert client_gone() is False
        client.send(b"GET /pipelined HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client_gone() is False

    assert _eventually(client_gone)


def test_an_app_can_see_that_a_connection_has_ended(serve: Serve, app: EchoApp) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.get(extra="Connection: close\r\n")
        assert client.is_closed_by_server()
        assert _eventually(app.gone[-1])


def test_connections_that_the_kernel_does_not_watch_are_closed_and_the_server_goes_on(
    serve: Serve, app: EchoApp, caplog: pytest.LogCaptureFixture
) -> None:
    port = serve(threads=2).bound_address.port

    for _ in range(3):  # more than there are threads
        app.release.clear()
        with RawClient(port) as kept, RawClient(port) as slow:
            kept.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
            assert app.entered.acquire(timeout=DEADLINE_S)
            with watches_refused(Connection):
                app.release.set()
                assert kept.answer().status_code == 200
                assert kept.is_closed_by_server()
                slow.send(b"GET / HT")
                assert slow.is_closed_by_server()
        with RawClient(port) as fresh:
            assert fresh.get().status_code == 200

    lines = {record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING}
    assert lines == {"cannot watch a connection, closing it"}


def _eventually(is_true: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + DEADLINE_S
    waiter = threading.Event()
    while not is_true():
        if time.monotonic() >= deadline_s:
            return False
        waiter.wait(0.01)
    return True


def test_draining_finishes_running_requests_closes_idle_connections_and_accepts_nothing(
    serve: Serve, app: EchoApp
) -> None:
    server = serve()
    port = server.bound_address.port
    with RawClient(port) as running, RawClient(port) as idle:
        assert idle.get().status_code == 200
        running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)

        drain = threading.Thread(target=server.drain, args=(time.monotonic() + DEADLINE_S,))
        drain.start()
        assert idle.is_closed_by_server()
        assert _eventually(lambda: _is_refused(port))
        app.release.set()

        answer = running.answer()
        assert (answer.status_code, answer.fields["connection"]) == (200, "close")
        assert running.is_closed_by_server()
        drain.join(DEADLINE_S)
        assert not drain.is_alive()


def test_an_idle_connection_is_closed_even_if_draining_begins_as_it_is_handed_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    has_data = Input.has_data

    def drain_meanwhile(source: Input) -> bool:
        """A worker thread calls this after it has checked that connections are kept."""
        if threading.current_thread().name.startswith("CP Server"):
            server.drain(time.monotonic() + 0.3)
        return has_data(source)

    monkeypatch.setattr(Input, "has_data", drain_meanwhile)

    with RawClient(server.bound_address.port) as client:
        assert client.get().status_code == 200
        assert client.is_closed_by_server()


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_server_that_ends_does_not_remove_the_unix_socket_of_its_successor(
    serve: Serve, app: EchoApp, tmp_path: Path
) -> None:
    path = tmp_path / "api.sock"
    first = serve(f"unix:{path}")
    with RawClient(path=str(path)) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        first.drain(time.monotonic())
        assert _eventually(lambda: _is_refused_at(path))

        serve(f"unix:{path}")
        app.release.set()
        first.stop()

    with RawClient(path=str(path)) as client:
        assert client.get().status_code == 200


def _is_refused_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == errno.ECONNREFUSED


@pytest.mark.parametrize("is_running", [False, True])
def test_a_server_that_stops_logs_whether_it_cut_off_requests(
    serve: Serve, app: EchoApp, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    server = serve()
    with RawClient(server.bound_address.port) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        if not is_running:
            app.release.set()
            server.drain(time.monotonic() + DEADLINE_S)

        server.stop()

    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged == ["requests still running, cut off"] * is_running


def test_requests_that_outlast_the_drain_before_a_stop_are_logged_as_cut_off(
    serve: Serve, app: EchoApp, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    with RawClient(server.bound_address.port) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        server.drain(time.monotonic())

        server.stop()

    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged == ["requests still running, cut off"]


def test_a_drain_ends_at_its_deadline_even_when_a_request_does_not(serve: Serve, app: EchoApp) -> None:
    server = serve()
    with RawClient(server.bound_address.port) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        began_s = time.monotonic()

        server.drain(time.monotonic() + 0.3)

        assert 0.25 < time.monotonic() - began_s < 5


def test_twenty_rounds_leave_no_descriptor_and_no_thread_behind(serve: Serve) -> None:
    def visit() -> None:
        server = serve(threads=2)
        with RawClient(server.bound_address.port) as client:
            assert client.get().status_code == 200
        server.drain(time.monotonic() + DEADLINE_S)
        server.stop()

    visit()
    before = (len(list(Path("/proc/self/fd").iterdir())), threading.active_count())
    for _ in range(20):
        visit()

    assert _eventually(lambda: threading.active_count() <= before[1])
    assert len(list(Path("/proc/self/fd").iterdir())) <= before[0] + 1


def test_the_bound_address_is_unknown_before_the_start(app: EchoApp) -> None:
    server = HttpServer("early", ListenAddress.parse(":0"), app, log=get_logger("x"))

    with pytest.raises(RuntimeError, match="has not started"):
        _ = server.bound_address


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    ],
    ids=["of a GET", "with a body that came unasked"],
)
def test_a_connection_that_has_ended_leaves_nothing_for_the_garbage_collector(
    serve: Serve, app: EchoApp, request_: bytes
) -> None:
    server = serve()
    gc.collect()
    gc.disable()
    try:
        with RawClient(server.bound_address.port) as client:
            client.send(request_)
            assert client.answer().status_code == 200
        server.stop()
        app.gone.clear()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(one).__qualname__ for one in gc.garbage if type(one).__module__ == Connection.__module__}
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
