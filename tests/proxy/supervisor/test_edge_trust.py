"""The edge's published root certificates: fetched over HTTPS, trusted by their fingerprints only, kept."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import http.server
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trustme

from proxy.commands.edgeca import write_roots
from proxy.supervisor import edgetrust
from proxy.supervisor.edgetrust import (
    NAME,
    PUBLISHED,
    PublishedRoot,
    PublishedRoots,
    TrustUnavailable,
    edge_trust,
    fetch,
)
from tests.proxy.site import DEADLINE_S, eventually
from tests.support.certificates import bare_ca
from tests.support.lettinggo import uncollected
from tests.support.oddfiles import in_its_place
from tests.support.socketbackend import Dialogue, SocketBackend


class Publisher:
    """A web site with two certificates, whose own certificate the system store of the test verifies."""

    def __init__(self, directory: Path, authority: trustme.CA) -> None:
        self.requests = 0
        self.store = directory / "system.pem"
        authority.cert_pem.write_to_path(str(self.store))
        self.pages = {f"/{name}.pem": trustme.CA().cert_pem.bytes().decode() for name in ("ecc", "rsa")}
        publisher = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.requests += 1
                page = publisher.pages.get(self.path, "nothing here").encode()
                self.send_response(200 if self.path in publisher.pages else 404)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = server_context(authority)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def published(self) -> tuple[PublishedRoot, ...]:
        base = f"https://localhost:{self._server.server_address[1]}"
        return tuple(PublishedRoot(base + path, fingerprint(page)) for path, page in self.pages.items())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def fingerprint(pem: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    publisher = Publisher(tmp_path, trustme.CA())
    monkeypatch.setenv("SSL_CERT_FILE", str(publisher.store))
    yield publisher
    publisher.close()


@pytest.fixture
def system_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    return authority


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def test_roots_are_fetched_once_and_kept(publisher: Publisher, tmp_path: Path) -> None:
    state = tmp_path / "state"
    published = publisher.published
    roots = PublishedRoots(state, published).roots()
    assert roots.count("BEGIN CERTIFICATE") == 2
    assert (state / NAME).read_text() == roots
    assert (state / NAME).stat().st_mode & 0o777 == 0o600

    assert PublishedRoots(state, published).roots() == roots
    assert publisher.requests == 2


def test_roots_are_kept_in_memory_without_a_state_directory(publisher: Publisher) -> None:
    trust = PublishedRoots(None, publisher.published)
    assert trust.roots() == trust.roots()
    assert publisher.requests == 2


def test_a_certificate_with_another_fingerprint_is_not_trusted(publisher: Publisher, tmp_path: Path) -> None:
    published = publisher.published
    publisher.pages["/rsa.pem"] = trustme.CA().cert_pem.bytes().decode()
    with pytest.raises(TrustUnavailable) as refused:
        PublishedRoots(tmp_path / "state", published).roots()
    assert published[1].sha256 in str(refused.value)
    assert fingerprint(publisher.pages["/rsa.pem"]) in str(refused.value)
    assert not (tmp_path / "state" / NAME).exists()


def test_two_certificates_in_the_place_of_one_are_not_trusted(publisher: Publisher) -> None:
    published = publisher.published
    publisher.pages["/ecc.pem"] += trustme.CA().cert_pem.bytes().decode()
    with pytest.raises(TrustUnavailable):
        fetch(published)


def test_roots_that_were_altered_in_the_state_directory_are_fetched_again(publisher: Publisher, tmp_path: Path) -> None:
    published = publisher.published
    (tmp_path / NAME).write_text(trustme.CA().cert_pem.bytes().decode() * 2)
    roots = PublishedRoots(tmp_path, published).roots()
    assert [
        fingerprint(part + "-----END CERTIFICATE-----") for part in roots.split("-----END CERTIFICATE-----")[:2]
    ] == [root.sha256 for root in published]
    assert publisher.requests == 2


@in_its_place
def test_something_else_in_place_of_the_kept_roots_is_replaced(
    publisher: Publisher, tmp_path: Path, put_odd_file: Callable[[Path], None]
) -> None:
    put_odd_file(tmp_path / NAME)

    roots = PublishedRoots(tmp_path, publisher.published).roots()

    assert (tmp_path / NAME).read_text() == roots
    assert publisher.requests == 2


class HangingDisk:
    """Nothing in `directory` can be opened until `answers` is set, at most for twice the deadline of a test."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        usual = os.open

        def hang(path: str | Path, *more: int, **named: int) -> int:
            if Path(path).parent == directory:
                assert self.answers.wait(2 * DEADLINE_S)
            return usual(path, *more, **named)

        monkeypatch.setattr(os, "open", hang)
        monkeypatch.setattr(edgetrust, "DISK_S", 0.1)


def test_a_hanging_disk_is_not_waited_for_and_gets_the_fetched_roots_in_the_end(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The tunnel dialled nothing and logged nothing for as long as the disk hung."""
    state = tmp_path / "state"
    disk = HangingDisk(state, monkeypatch)

    roots = PublishedRoots(state, publisher.published).roots()

    assert roots.count("BEGIN CERTIFICATE") == 2
    assert [record.message for record in caplog.records] == [
        "cannot read the edge's roots in the state directory",
        "cannot keep the edge's roots",
    ]
    disk.answers.set()
    eventually(lambda: (state / NAME).is_file() and (state / NAME).read_text() == roots, "the disk has them")


def test_roots_on_a_disk_that_has_hung_are_used_by_a_later_attempt_if_they_cannot_be_fetched(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = publisher.published
    roots = PublishedRoots(tmp_path, published).roots()
    publisher.pages = dict.fromkeys(publisher.pages, "moved")
    disk = HangingDisk(tmp_path, monkeypatch)
    trust = PublishedRoots(tmp_path, published)
    for _ in range(3):
        with pytest.raises(TrustUnavailable):
            trust.roots()
    assert [thread.name for thread in threading.enumerate()].count("edge-roots") == 1

    disk.answers.set()

    assert eventually_given(trust) == roots


def eventually_given(trust: PublishedRoots) -> str:
    given: list[str] = []

    def is_given() -> bool:
        with contextlib.suppress(TrustUnavailable):
            given.append(trust.roots())
        return bool(given)

    eventually(is_given, "the roots")
    return given[0]


@in_its_place
def test_an_edge_ca_file_is_a_regular_file_since_it_is_read_again(
    tmp_path: Path, put_odd_file: Callable[[Path], None]
) -> None:
    """A pipe was waited for without end, at the start or at the first search for the edge."""
    put_odd_file(tmp_path / "edge.pem")

    with pytest.raises(TrustUnavailable, match=r"cannot read --edge-ca-file .*edge\.pem: it (is|has more than) "):
        edge_trust(str(tmp_path / "edge.pem"), None).roots()


@pytest.mark.parametrize("url", ["https://localhost:1/x.pem", "https://nowhere.invalid/x.pem"])
def test_a_failed_download_is_reported_with_the_command_that_helps(url: str) -> None:
    with pytest.raises(TrustUnavailable, match="fetch them elsewhere with `tunnelgw-proxy edge-ca`"):
        PublishedRoots(None, (PublishedRoot(url, "0" * 64),)).roots()


def test_the_edge_ca_command_without_internet_access_says_where_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert not write_roots("-", (PublishedRoot("https://nowhere.invalid/x.pem", "0" * 64),))
    said = capsys.readouterr().err
    assert said.endswith("; run it where there is Internet access, and copy the file\n")
    assert "`tunnelgw-proxy edge-ca`" not in said


def test_an_edge_ca_file_without_certificates_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "edge.pem"
    file.write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(TrustUnavailable, match=r"--edge-ca-file .*edge\.pem: cannot read certificates \(PEM\)"):
        edge_trust(str(file), None).roots()


def test_a_site_that_the_system_trust_store_does_not_verify_is_refused(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(TrustUnavailable, match="certificate verify failed"):
        fetch(publisher.published)


def without_its_root() -> trustme.CA:
    return trustme.CA().create_child_ca()


@pytest.mark.parametrize("authority", [bare_ca, without_its_root])
def test_an_authority_of_the_system_is_trusted_as_by_other_programs(
    authority: Callable[[], trustme.CA], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Publisher(tmp_path, authority())) as publisher:
        monkeypatch.setenv("SSL_CERT_FILE", str(publisher.store))

        assert fetch(publisher.published).count("BEGIN CERTIFICATE") == 2


def test_an_answer_whose_chunk_has_a_negative_size_is_refused_instead_of_read_to_the_end_of_the_connection(
    system_authority: trustme.CA,
) -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * 100_000)

    with (
        SocketBackend(answer, tls=server_context(system_authority)) as site,
        pytest.raises(TrustUnavailable, match="a chunk of -1 bytes"),
    ):
        fetch([PublishedRoot(f"https://localhost:{site.port}/", "")])


def test_an_answer_that_comes_byte_by_byte_is_given_up(
    system_authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the tunnel would wait for it without end, and without a word in the log."""
    monkeypatch.setattr("proxy.supervisor.edgetrust._ANSWER_S", 0.3)

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with contextlib.suppress(OSError):  # our side has closed
            for _ in range(1000):
                dialogue.send(b"x")
                dialogue.backend.over.wait(0.02)

    with (
        SocketBackend(answer, tls=server_context(system_authority)) as site,
        pytest.raises(TrustUnavailable, match=r"the answer was not complete after 0\.3 s"),
    ):
        fetch([PublishedRoot(f"https://localhost:{site.port}/", "")])


def test_the_body_of_a_redirect_is_not_read(system_authority: trustme.CA) -> None:
    """It may have any length."""
    published = f"{system_authority.cert_pem.bytes().decode().strip()}\n"
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(published)).hexdigest()

    def answer(dialogue: Dialogue) -> None:
        if b"GET /moved " in dialogue.read_request():
            dialogue.send(b"HTTP/1.1 200 OK\r\n\r\n" + published.encode())
        else:
            dialogue.send(b"HTTP/1.1 302 Found\r\nLocation: /moved\r\nContent-Length: %d\r\n\r\nhere" % 2**50)
            dialogue.backend.over.wait(DEADLINE_S)

    with SocketBackend(answer, tls=server_context(system_authority)) as site:
        assert fetch([PublishedRoot(f"https://localhost:{site.port}/", fingerprint)]) == published


def test_the_connection_of_an_error_is_closed_at_once(system_authority: trustme.CA) -> None:
    """Not by the garbage collector, some attempts later."""
    closed = threading.Event()

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\nsorry")
        with contextlib.suppress(ConnectionError):
            dialogue.receive()
        closed.set()

    gc.disable()
    try:
        with SocketBackend(answer, tls=server_context(system_authority)) as site:
            with pytest.raises(TrustUnavailable, match="Not Found"):
                fetch([PublishedRoot(f"https://localhost:{site.port}/", "")])
            assert closed.wait(DEADLINE_S)
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["/ecc.pem", "/gone.pem"])
def test_a_download_leaves_no_reference_cycle_whatever_its_outcome(publisher: Publisher, path: str) -> None:
    """It would hold the authorities of the system until the garbage collector runs, once a minute while it fails."""
    root = publisher.published[0]
    wanted = msgspec.structs.replace(root, url=root.url.replace("/ecc.pem", path))
    with uncollected() as garbage_of:
        with contextlib.suppress(TrustUnavailable):
            fetch([wanted])

        assert garbage_of("proxy") == []


def test_an_attempt_to_download_from_nobody_leaves_no_reference_cycle() -> None:
    with uncollected() as garbage_of:
        with pytest.raises(TrustUnavailable, match="refused"):
            fetch([PublishedRoot("https://localhost:1/x.pem", "0" * 64)])

        assert garbage_of("proxy") == []


def test_an_edge_ca_file_that_cannot_be_used_leaves_no_reference_cycle(tmp_path: Path) -> None:
    (tmp_path / "edge.pem").touch()
    trust = edge_trust(str(tmp_path / "edge.pem"), None)
    with uncollected() as garbage_of:
        with contextlib.suppress(TrustUnavailable):
            trust.roots()

        assert garbage_of("proxy") == []


@pytest.mark.parametrize(
    ("places", "times"), [("1234567890", 4), ("1", 2), ("1212121212", 3)], ids=["on and on", "to itself", "to and fro"]
)
def test_redirects_are_followed_a_few_times_only(system_authority: trustme.CA, places: str, times: int) -> None:
    """Each answer has a time limit of its own."""
    asked: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        asked.append(dialogue.read_request())
        place = places[(len(asked) - 1) % len(places)]
        dialogue.send(b"HTTP/1.1 302 Found\r\nLocation: /%s\r\n\r\n" % place.encode())

    with (
        SocketBackend(answer, tls=server_context(system_authority)) as site,
        pytest.raises(TrustUnavailable, match=r"/: redirected too often: Found$"),
    ):
        fetch([PublishedRoot(f"https://localhost:{site.port}/", "")])
    assert len(asked) == times


@pytest.mark.parametrize("scheme", ["http", "HTTP", "ftp"])
def test_a_redirect_away_from_https_is_refused(system_authority: trustme.CA, scheme: str) -> None:
    """There, urllib would limit each read alone."""

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 302 Found\r\nLocation: %b://localhost:1/a\r\n\r\n" % scheme.encode())

    with (
        SocketBackend(answer, tls=server_context(system_authority)) as site,
        pytest.raises(TrustUnavailable, match=f"it redirects to {scheme.lower()}://localhost:1/a, want https"),
    ):
        fetch([PublishedRoot(f"https://localhost:{site.port}/", "")])


def test_the_edge_ca_command_writes_a_file_that_edge_ca_file_accepts(
    publisher: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "roots.pem"
    assert write_roots(str(out), publisher.published)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(out))
    assert len(context.get_ca_certs()) == 2
    assert not write_roots(str(tmp_path / "no" / "directory"), publisher.published)
    assert "cannot write" in capsys.readouterr().err


def test_the_fingerprints_are_those_of_the_fact_sheet() -> None:
    assert [root.sha256[:8] for root in PUBLISHED] == ["aa63697a", "d3c7e85c"]
    assert all(root.url.startswith("https://developers.cloudflare.com/ssl/static/") for root in PUBLISHED)


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nshort"], ids=["SSH", "half"]
)
def test_a_server_that_does_not_speak_http_is_reported_with_the_command_that_helps(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            sock, _ = listening.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(said)

        thread = threading.Thread(target=talk)
        thread.start()
        root = PublishedRoot(f"http://127.0.0.1:{listening.getsockname()[1]}/ecc.pem", "0" * 64)
        with pytest.raises(TrustUnavailable, match="edge-ca"):
            PublishedRoots(None, [root]).roots()
        thread.join(30)
