"""openssl s_client at the TLS listeners: versions, certificates by SNI, client certificates, misdirected requests."""

import base64
import contextlib
import http.client
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.asking import ask, connect
from tests.support.certificates import Authority, Issued, rsassa_pss
from tests.support.gateway import Gateway, route_to
from tests.support.h2peer import H2Client
from tests.support.ports import LOOPBACK
from tests.support.programs import program, run
from tests.support.recordingbackend import RecordingBackend

GET = b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Spoken:
    """What `openssl s_client` said."""

    exit_code: int
    text: str

    @property
    def status_code(self) -> int:
        """Of the response; 0 for none."""
        found = re.search(r"HTTP/1\.1 (\d{3}) ", self.text)
        return int(found[1]) if found else 0


def s_client(gateway: Gateway, *options: str, name: str = "a.example", host: str | None = None) -> Spoken:
    """A GET whose Host is `name` unless it is given."""
    address = f"{LOOPBACK}:{gateway.tls[1]}"
    servername = ["-servername", name] if name else ["-noservername"]
    command = [program("openssl"), "s_client", "-connect", address, *servername, "-ign_eof", *options]
    done = run(command, stdin=GET % (host or name or "a.example").encode(), timeout_s=20)
    return Spoken(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))


def listener(gateway: Gateway, name: str, certificates: list[Issued], **fields: Any) -> dict[str, Any]:
    tls = {"certificates": [certificate.pair for certificate in certificates], **fields.pop("tls", {})}
    place = {"name": name, "address": LOOPBACK, "port": gateway.tls[1], "protocol": "HTTPS"}
    return {**place, "tls": tls, **fields}


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    yield authority
    authority.close()


@pytest.fixture(scope="module")
def named(authority: Authority) -> dict[str, Issued]:
    return {name: authority.issue(name) for name in ("a.example", "b.example", "*.wild.example")}


def shown_names(spoken: Spoken) -> list[str]:
    """Of the certificate that the server showed."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", spoken.text, re.DOTALL)
    assert found, spoken.text
    text = run(
        [program("openssl"), "x509", "-noout", "-ext", "subjectAltName"], stdin=found[0].encode()
    ).stdout.decode()
    return re.findall(r"DNS:(\S+?)(?:,|\s|$)", text)


@pytest.mark.parametrize(("option", "version"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_tls_1_2_and_tls_1_3_are_supported(
    gateway: Gateway, backend: RecordingBackend, option: str, version: str
) -> None:
    gateway.serve(route_to(backend.address))

    spoken = s_client(gateway, option)

    assert 200 == spoken.status_code
    assert f"New, {version}" in spoken.text


@pytest.mark.parametrize("option", ["-tls1_2", "-tls1_3"])
def test_a_certificate_with_an_rsassa_pss_key_is_served(
    gateway: Gateway, backend: RecordingBackend, option: str
) -> None:
    pss = listener(gateway, "pss", [], tls={"certificates": [rsassa_pss("a.example")]})
    gateway.serve(route_to(backend.address), listeners=[pss])

    spoken = s_client(gateway, option)

    assert 200 == spoken.status_code
    # OpenSSL calls it RSA-PSS, or since 3.5 rsa_pss_pss_sha256.
    assert re.search("Peer signature type: rsa[-_]pss", spoken.text, re.IGNORECASE)


@pytest.mark.parametrize("option", ["-tls1", "-tls1_1"])
def test_older_tls_versions_are_refused(gateway: Gateway, backend: RecordingBackend, option: str) -> None:
    """The client is willing: at security level 0 openssl still speaks them."""
    gateway.serve(route_to(backend.address))

    spoken = s_client(gateway, option, "-cipher", "ALL:@SECLEVEL=0")

    assert 0 == spoken.status_code
    assert re.search("alert protocol version|unsupported protocol|no protocols available", spoken.text)


SNI = [
    ("a.example", "a.example"),
    ("A.EXAMPLE", "a.example"),
    ("b.example", "b.example"),
    ("x.wild.example", "*.wild.example"),
    ("unknown.example", "a.example"),
    ("", "a.example"),
]


@pytest.mark.parametrize(("name", "expected"), SNI)
def test_the_certificate_is_chosen_by_sni(
    gateway: Gateway, backend: RecordingBackend, named: dict[str, Issued], name: str, expected: str
) -> None:
    """Without a matching one, the first is shown."""
    gateway.serve(route_to(backend.address), listeners=[listener(gateway, "all", list(named.values()))])

    spoken = s_client(gateway, name=name)

    assert [expected] == shown_names(spoken)
    assert 200 == spoken.status_code


@pytest.mark.parametrize(("name", "expected"), [("a.example", "a.example"), ("b.example", "b.example")])
def test_listeners_on_one_port_have_their_own_certificates(
    gateway: Gateway, backend: RecordingBackend, named: dict[str, Issued], name: str, expected: str
) -> None:
    listeners = [listener(gateway, host, [named[host]], hostname=host) for host in ("a.example", "b.example")]
    gateway.serve(route_to(backend.address), listeners=listeners)

    spoken = s_client(gateway, name=name)

    assert ([expected], 200) == (shown_names(spoken), spoken.status_code)


MISDIRECTED = [
    # SNI, Host -> status code
    ("b.example", "b.example", 200),
    ("b.example", "a.example", 421),
    ("b.example", "unknown.example", 421),
    ("unknown.example", "b.example", 421),
    ("unknown.example", "unknown.example", 404),
    ("unknown.example", "other.example", 404),
]


@pytest.mark.parametrize(("name", "host", "status_code"), MISDIRECTED)
def test_a_request_for_a_host_of_another_listener_is_misdirected(
    gateway: Gateway,
    backend: RecordingBackend,
    named: dict[str, Issued],
    name: str,
    host: str,
    status_code: int,
) -> None:
    listeners = [
        listener(gateway, "every", [named["a.example"]]),
        listener(gateway, "a", [named["a.example"]], hostname="a.example"),
        listener(gateway, "b", [named["b.example"]], hostname="b.example"),
    ]
    gateway.serve(route_to(backend.address, listeners=["a", "b"]), listeners=listeners)

    assert status_code == s_client(gateway, name=name, host=host).status_code


@pytest.mark.parametrize(
    ("offered", "wanted", "chosen"),
    [
        ("h2,http/1.1", ["h2", "http/1.1"], "h2"),
        ("http/1.1,h2", ["h2", "http/1.1"], "h2"),
        ("http/1.1", ["h2", "http/1.1"], "http/1.1"),
        ("h2,http/1.1", ["http/1.1"], "http/1.1"),
    ],
)
def test_the_protocol_is_negotiated_by_alpn(
    gateway: Gateway, named: dict[str, Issued], offered: str, wanted: list[str], chosen: str
) -> None:
    gateway.serve(listeners=[listener(gateway, "all", [named["a.example"]], tls={"alpn": wanted})])

    address = f"{LOOPBACK}:{gateway.tls[1]}"
    command = [program("openssl"), "s_client", "-connect", address, "-servername", "a.example", "-alpn", offered]

    assert f"ALPN protocol: {chosen}".encode() in run(command, timeout_s=20).stdout


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_sessions_are_resumed(
    lone_gateway: Gateway, backend: RecordingBackend, tmp_path_factory: pytest.TempPathFactory, version: str
) -> None:
    lone_gateway.serve(route_to(backend.address))
    ticket = str(tmp_path_factory.mktemp("tls") / "session.pem")
    s_client(lone_gateway, version, "-sess_out", ticket)

    attempts = [s_client(lone_gateway, version, "-sess_in", ticket) for _ in range(3)]

    assert all("Reused, TLSv1" in spoken.text for spoken in attempts)
    assert {200} == {spoken.status_code for spoken in attempts}


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_client_with_a_session_ticket_of_another_worker_is_served(
    gateway: Gateway, backend: RecordingBackend, tmp_path_factory: pytest.TempPathFactory, version: str
) -> None:
    """Each of the two workers has ticket keys of its own, and chance decides which one accepts a connection."""
    gateway.serve(route_to(backend.address))
    ticket = str(tmp_path_factory.mktemp("tls") / "session.pem")
    s_client(gateway, version, "-sess_out", ticket)

    attempts = [s_client(gateway, version, "-sess_in", ticket) for _ in range(12)]

    assert {200} == {spoken.status_code for spoken in attempts}


CLIENTS = [
    # mode, certificate of the client -> served
    ("AllowValidOnly", "ours", True),
    ("AllowValidOnly", "a stranger's", False),
    ("AllowValidOnly", "none", False),
    ("AllowInsecureFallback", "ours", True),
    ("AllowInsecureFallback", "a stranger's", True),
    ("AllowInsecureFallback", "none", True),
]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize(("mode", "shown", "is_served"), CLIENTS)
def test_client_certificates_are_verified_as_the_mode_says(
    gateway: Gateway,
    backend: RecordingBackend,
    authority: Authority,
    named: dict[str, Issued],
    mode: str,
    shown: str,
    is_served: bool,
    version: str,
) -> None:
    tls = {"clientValidation": {"ca": authority.pem, "mode": mode}}
    gateway.serve(route_to(backend.address), listeners=[listener(gateway, "all", [named["a.example"]], tls=tls)])
    stranger = Authority()
    options = {
        "ours": ["-cert", str(authority.issue("client.example").file)],
        "a stranger's": ["-cert", str(stranger.issue("client.example").file)],
        "none": [],
    }[shown]
    if options:
        options += ["-key", options[1]]

    spoken = s_client(gateway, version, *options)
    stranger.close()

    assert (200 if is_served else 0) == spoken.status_code, spoken.text
    assert is_served == bool(backend.received)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_backends_get_the_required_client_certificate_even_in_a_resumed_session(
    lone_gateway: Gateway,
    backend: RecordingBackend,
    authority: Authority,
    named: dict[str, Issued],
    tmp_path_factory: pytest.TempPathFactory,
    version: str,
) -> None:
    tls = {"clientValidation": {"ca": authority.pem}}
    listeners = [listener(lone_gateway, "all", [named["a.example"]], tls=tls)]
    lone_gateway.serve(route_to(backend.address), listeners=listeners, forwarding={"clientCert": True})
    issued = authority.issue("client.example")
    ticket = str(tmp_path_factory.mktemp("tls") / "session.pem")

    first = s_client(lone_gateway, version, "-cert", str(issued.file), "-key", str(issued.file), "-sess_out", ticket)
    again = s_client(lone_gateway, version, "-sess_in", ticket)

    assert (first.status_code, again.status_code) == (200, 200)
    assert "Reused, TLSv1" in again.text
    leaf = x509.load_pem_x509_certificate(issued.chain_pem.encode()).public_bytes(Encoding.DER)
    value = f":{base64.b64encode(leaf).decode()}:"
    assert [received.value("client-cert") for received in backend.received] == [value, value]


def test_a_rotated_certificate_is_shown_to_the_next_client(
    gateway: Gateway, backend: RecordingBackend, named: dict[str, Issued]
) -> None:
    for name in ("a.example", "b.example"):
        gateway.serve(route_to(backend.address), listeners=[listener(gateway, "all", [named[name]])])

        assert [name] == shown_names(s_client(gateway, name="x.example"))


REFUSED = -1
"""Over HTTP/2: not processed, to be sent again over a new connection."""


def plain_listener(gateway: Gateway) -> dict[str, Any]:
    return {"name": "all", "address": LOOPBACK, "port": gateway.tls[1]}


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
@pytest.mark.parametrize("before", ["in clear", "without validation", "by another authority"])
def test_a_connection_from_before_a_change_of_client_validation_is_turned_away(
    gateway: Gateway,
    backend: RecordingBackend,
    authority: Authority,
    named: dict[str, Issued],
    before: str,
    protocol: str,
) -> None:
    """A connection can be kept for ever, so its client would never be asked for a certificate."""
    certificates, validation = [named["a.example"]], {"clientValidation": {"ca": gateway.doors.authority.pem}}
    other = {"clientValidation": {"ca": authority.pem}}
    first = plain_listener(gateway)
    if before != "in clear":
        tls = other if before == "by another authority" else {}
        first = listener(gateway, "all", certificates, tls=tls)
    context = authority.client_context(protocol)
    context.check_hostname = False
    context.load_cert_chain(authority.issue("client.example").file)
    gateway.serve(route_to(backend.address), listeners=[first])
    with kept_connection(gateway.tls[1], None if before == "in clear" else context, protocol) as ask_again:
        assert 200 == ask_again()

        gateway.serve(route_to(backend.address), listeners=[listener(gateway, "all", certificates, tls=validation)])
        backend.forget()

        assert (421 if protocol == "http/1.1" else REFUSED) == ask_again()
        assert not backend.received


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_a_tls_connection_is_not_served_by_a_cleartext_listener(
    gateway: Gateway, backend: RecordingBackend, authority: Authority, named: dict[str, Issued], protocol: str
) -> None:
    """Its redirects, for one, are meant for cleartext clients."""
    context = authority.client_context(protocol)
    context.check_hostname = False
    gateway.serve(route_to(backend.address), listeners=[listener(gateway, "all", [named["a.example"]])])
    with kept_connection(gateway.tls[1], context, protocol) as ask_again:
        assert 200 == ask_again()

        gateway.serve(route_to(backend.address), listeners=[plain_listener(gateway)])

        assert (421 if protocol == "http/1.1" else REFUSED) == ask_again()


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_a_kept_connection_is_not_served_by_a_listener_that_takes_its_port_later(
    gateway: Gateway, backend: RecordingBackend, named: dict[str, Issued], protocol: str
) -> None:
    """Nor in the moments in which a connection that was just used still accepts requests."""
    gateway.serve(route_to(backend.address), listeners=[plain_listener(gateway)])
    with kept_connection(gateway.tls[1], None, protocol) as ask_again:
        assert 200 == ask_again()

        for listeners in ([], [listener(gateway, "all", [named["a.example"]])]):
            elsewhere = {"name": "other", "address": LOOPBACK, "port": gateway.clear[1]}
            gateway.serve(route_to(backend.address), listeners=[elsewhere, *listeners])
        backend.forget()

        # Refused, or left without an answer where the connection has been closed meanwhile.
        with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
            ask_again()
        assert not backend.received


@contextlib.contextmanager
def kept_connection(port: int, tls: ssl.SSLContext | None, protocol: str) -> Iterator[Callable[[], int]]:
    """Each call sends a request over the same connection, and returns the status code, or REFUSED."""
    if protocol == "h2":
        with H2Client(port, tls) as peer:

            def ask_again() -> int:
                stream_id = peer.request()
                peer.wait_for(lambda: peer.has_ended(stream_id) or peer.is_refused(stream_id), "an answer")
                return REFUSED if peer.is_refused(stream_id) else int(peer.head(stream_id)[":status"])

            yield ask_again
    else:
        with contextlib.closing(connect(port, tls)) as connection:
            yield lambda: ask(port, connection=connection).status_code


def test_plain_http_on_a_tls_port_is_answered_400(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))

    answer = ask(gateway.tls[1])

    assert 400 == answer.status_code
    assert b"https" in answer.body


def test_garbage_instead_of_a_handshake_does_not_disturb_others(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))
    too_long = b"\x16\x03\x01\xff\xff" + b"\x00" * 100
    for nonsense in (too_long, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01", b"\x00" * 600):
        with socket.create_connection(gateway.tls, timeout=20) as sock, contextlib.suppress(OSError):
            sock.sendall(nonsense)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass

    assert 200 == s_client(gateway).status_code
