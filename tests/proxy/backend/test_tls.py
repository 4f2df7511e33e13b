"""TLS to backends: which certificates are trusted, what is offered, and what errors say."""

import datetime
import gc
import os
import ssl
import threading
from pathlib import Path

import h2.events
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from h2.errors import ErrorCodes
from msgspec.structs import replace

from proxy import document
from proxy.backend.stream import Failure, Reason
from proxy.backend.tls import Trust, make_context
from proxy.loop import Handshake, TlsSocket
from tests.proxy.backend.h2peer import H2Peer, answers, speaks
from tests.proxy.backend.servers import OK, PATIENCE_S, Backend, Behaviour, Conn, backend
from tests.proxy.backend.world import Answer, Owed, World, world
from tests.support.limits import out_of_descriptors
from tests.support.watches import watches_refused

SPIFFE = "spiffe://cluster.local/ns/a/sa/b"
LAST_WORDS = b"so long" * 100_000
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def server_context(authority: trustme.CA, *names: str, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def https(
    peer: Backend,
    authority: trustme.CA,
    name: str = "a.example",
    *,
    subject_alt_names: tuple[document.SubjectAltName, ...] = (),
    client_certificate: document.Certificate | document.Unset = document.UNSET,
) -> document.Backend:
    spec = document.BackendTLS(
        server_name=name,
        ca=pem(authority),
        subject_alt_names=subject_alt_names,
        client_certificate=client_certificate,
    )
    return document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=spec)


def answer_once(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")


def either(spoken: list[str | None], by_http2: Behaviour, answer: bytes) -> Behaviour:
    """HTTP/2 or `answer`, by what was agreed on, which is noted in `spoken`."""

    def behave(conn: Conn) -> None:
        assert isinstance(conn.sock, ssl.SSLSocket)
        spoken.append(conn.sock.selected_alpn_protocol())
        if spoken[-1] == "h2":
            by_http2(conn)
        else:
            conn.serve(answer)

    return behave


def failure_of(w: World) -> Failure:
    failure = w.fetch().failure
    assert failure is not None
    assert failure.is_unprocessed
    return failure


def test_a_backend_with_the_expected_name_is_trusted(authority: trustme.CA) -> None:
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(https(peer, authority))
        assert [w.fetch().status_code for _ in range(3)] == [200, 200, 200]
        assert peer.connections == 1


def test_http2_is_used_if_the_backend_selects_it(authority: trustme.CA) -> None:
    context = server_context(authority, "a.example", alpn=("h2",))
    with backend(speaks(), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        requests = [w.get() for _ in range(5)]
        w.until(lambda: all(a.is_over for a in requests))

        assert {a.status_code for a in requests} == {200}
        assert peer.connections == 1


def test_an_upgrade_by_get_uses_http1_even_if_other_requests_use_http2(authority: trustme.CA) -> None:
    def either(conn: Conn) -> None:
        assert isinstance(conn.sock, ssl.SSLSocket)
        if conn.sock.selected_alpn_protocol() == "h2":
            speaks()(conn)
        else:
            conn.request()
            conn.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhi")
            conn.wait_for_end()

    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert w.fetch().status_code == 200
        answer = w.get(protocol=b"websocket")
        w.until(lambda: bytes(answer.body) == b"hi")

        assert answer.status_code == 101
        assert peer.connections == 2


def test_an_upgrade_by_post_uses_http1_even_if_other_requests_use_http2(authority: trustme.CA) -> None:
    spoken: list[str | None] = []
    switched = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: DERP\r\nconnection: upgrade\r\n\r\nhi"
    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either(spoken, speaks(answers), switched), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert w.fetch().status_code == 200
        answer = w.get(method=b"POST", protocol=b"DERP")
        w.until(lambda: bytes(answer.body) == b"hi")

        assert answer.status_code == 101
        assert spoken == ["h2", "http/1.1"]


def test_connection_authentication_uses_http1_even_if_other_requests_use_http2(authority: trustme.CA) -> None:
    spoken: list[str | None] = []
    mine = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine"
    alice, bob = object(), object()
    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either(spoken, speaks(answers), mine), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        before = w.fetch(client=alice)
        login = w.fetch(client=alice, fields=[(b"authorization", b"NTLM TlRM")])
        after = [w.fetch(client=alice), w.fetch(client=bob), w.fetch(client=alice)]

        assert [bytes(a.body) == b"mine" for a in (before, login, *after)] == [False, True, True, False, True]
        assert spoken == ["h2", "http/1.1"]


def test_after_http_1_1_required_all_requests_except_grpc_use_http1(authority: trustme.CA) -> None:
    """IIS sends it for resources with Windows authentication, in a reset of the first stream."""
    spoken: list[str | None] = []

    def refuse(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.reset_stream(event.stream_id, ErrorCodes.HTTP_1_1_REQUIRED)

    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either(spoken, speaks(refuse), OK), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        failure = w.fetch().failure
        after = [w.fetch().status_code for _ in range(2)]
        call = w.fetch(method=b"POST", fields=[(b"content-type", b"application/grpc")]).failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.blames_address) == (Reason.RESET, True, False)
        assert after == [200, 200]
        assert call is not None
        assert call.error_code == ErrorCodes.HTTP_1_1_REQUIRED
        assert spoken == ["h2", "http/1.1"]


def test_http_1_1_required_holds_although_other_requests_fail_later(authority: trustme.CA) -> None:
    spoken: list[str | None] = []

    def refuse(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.reset_stream(event.stream_id, ErrorCodes.HTTP_1_1_REQUIRED)

    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either(spoken, speaks(refuse), b"nonsense\r\n\r\n"), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        reasons = [answer.failure.reason for answer in (w.fetch() for _ in range(3)) if answer.failure]

        assert reasons == [Reason.RESET, Reason.PROTOCOL, Reason.PROTOCOL]
        assert spoken == ["h2", "http/1.1", "http/1.1"]


def test_a_grpc_call_uses_http2_whatever_its_authorization_scheme(authority: trustme.CA) -> None:
    with backend(speaks(answers), tls=server_context(authority, "a.example", alpn=("h2",))) as peer, world() as w:
        w.use(https(peer, authority))
        fields = [(b"content-type", b"application/grpc+proto"), (b"authorization", b"Negotiate YII=")]

        assert w.fetch(method=b"POST", fields=fields).status_code == 200
        assert w.backend().connections == 1


def test_grpc_web_with_connection_authentication_uses_http1(authority: trustme.CA) -> None:
    """ASP.NET clients use it where Windows authentication needs HTTP/1.1."""
    spoken: list[str | None] = []

    def either(conn: Conn) -> None:
        assert isinstance(conn.sock, ssl.SSLSocket)
        spoken.append(conn.sock.selected_alpn_protocol())
        (speaks(answers) if spoken[-1] == "h2" else lambda it: it.serve(OK))(conn)

    context = server_context(authority, "a.example", alpn=("h2", "http/1.1"))
    with backend(either, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        fields = [(b"content-type", b"application/grpc-web+proto"), (b"authorization", b"Negotiate YII=")]

        assert w.fetch(method=b"POST", fields=fields).status_code == 200
        assert spoken == ["http/1.1"]


def test_after_a_switch_the_end_of_the_clients_bytes_ends_both_directions(authority: trustme.CA) -> None:
    received: list[bytes] = []

    def chat(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhi")
        conn.wait_for_end()
        received.append(conn.buffer)

    with backend(chat, tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(https(peer, authority))
        answer = w.get(protocol=b"websocket")
        w.until(lambda: bytes(answer.body) == b"hi")
        owed = Owed()
        assert answer.request is not None
        answer.request.send_data(LAST_WORDS, True, owed)
        w.until(lambda: answer.is_over)
        w.until(lambda: w.backend().connections == 0)

        assert answer.has_ended
        assert owed.released_bytes == len(LAST_WORDS)
    assert received == [LAST_WORDS]


def test_a_websockets_last_frame_is_answered_although_the_client_has_ended_with_it(authority: trustme.CA) -> None:
    def chat(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhi")
        conn.read_until(LAST_WORDS)
        conn.send(b"bye")

    with backend(chat, tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(https(peer, authority))
        answer = w.get(protocol=b"websocket")
        w.until(lambda: bytes(answer.body) == b"hi")
        assert answer.request is not None
        answer.request.send_data(LAST_WORDS, True, Owed())
        w.until(lambda: answer.is_over)

        assert answer.has_ended
        assert bytes(answer.body) == b"hibye"


def test_several_requests_before_alpn_is_known_are_all_answered(authority: trustme.CA) -> None:
    with backend(tls=server_context(authority, "a.example", alpn=("http/1.1",))) as peer, world() as w:
        w.use(https(peer, authority))
        requests = [w.get() for _ in range(5)]
        w.until(lambda: all(a.is_over for a in requests))

        assert {a.status_code for a in requests} == {200}


def test_a_failed_handshake_fails_one_of_the_waiting_requests(authority: trustme.CA) -> None:
    """Each has a connection of its own once the backend is known to speak HTTP/1.1."""
    shaken: list[str | None] = []

    def break_second(_sock: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int | None:
        shaken.append(name)
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if len(shaken) == 2 else None

    context = server_context(authority, "a.example")
    context.sni_callback = break_second
    with backend(answer_once, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert w.fetch().status_code == 200
        requests = [w.get() for _ in range(3)]
        w.until(lambda: all(a.is_over for a in requests))

        assert [a.failure.reason for a in requests if a.failure] == [Reason.TLS]
        assert [a.status_code for a in requests if a.head] == [200, 200]


def test_another_name_is_refused_and_the_error_has_both_names(authority: trustme.CA) -> None:
    with backend(tls=server_context(authority, "other.example")) as peer, world() as w:
        w.use(https(peer, authority))
        failure = failure_of(w)

        assert failure.reason is Reason.TLS
        assert "certificate for other.example, want one for a.example" in failure.detail
        assert w.backend().connections == 0


def test_a_certificate_of_an_untrusted_authority_is_refused(authority: trustme.CA) -> None:
    with backend(tls=server_context(trustme.CA(), "a.example")) as peer, world() as w:
        w.use(https(peer, authority))
        failure = failure_of(w)

        assert failure.reason is Reason.TLS
        assert "certificate not trusted" in failure.detail
        assert "`tls.ca`" in failure.detail


def test_a_certificate_that_is_not_for_servers_is_refused_for_its_usages_not_for_its_authority(tmp_path: Path) -> None:
    certificate, key = self_signed(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
    failure = refusal_of_own(certificate, key, tmp_path)

    assert failure.reason is Reason.TLS
    assert failure.detail.endswith(", want one whose key usages, and those of its authority, are for servers")


def test_an_intermediate_authority_may_be_configured_without_its_root(authority: trustme.CA) -> None:
    below = authority.create_child_ca()
    with backend(tls=server_context(below, "a.example")) as peer, world() as w:
        w.use(https(peer, below))

        assert w.fetch().status_code == 200


def test_the_authorities_of_the_system_are_used_when_none_are_configured(authority: trustme.CA) -> None:
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        spec = document.BackendTLS(server_name="a.example")
        w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=spec))

        assert "a CA that this system trusts" in failure_of(w).detail


def test_a_backend_without_tls_is_refused(authority: trustme.CA) -> None:
    def plain(conn: Conn) -> None:
        conn.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        conn.wait_for_end()

    with backend(plain) as peer, world() as w:
        w.use(https(peer, authority))
        assert failure_of(w).reason is Reason.TLS


def test_the_failure_of_a_handshake_that_the_backend_cuts_off_says_so(authority: trustme.CA) -> None:
    def cut_off(conn: Conn) -> None:
        conn.sock.recv(1)
        conn.reset()

    with backend(cut_off) as peer, world() as w:
        w.use(https(peer, authority))
        failure = failure_of(w)

        assert failure.reason is Reason.TLS
        assert "TLS handshake failed: Connection reset by peer" in failure.detail


def test_requests_that_waited_for_alpn_get_connections_of_their_own_over_http_1(authority: trustme.CA) -> None:
    """The first connection is occupied as long as its request lasts."""
    all_there = threading.Barrier(4)

    def meet(conn: Conn) -> None:
        conn.request()
        all_there.wait(PATIENCE_S)
        conn.send(OK)

    with backend(meet, tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(https(peer, authority))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: all_there.n_waiting == 3)
        all_there.wait(PATIENCE_S)
        w.until(lambda: all(answer.is_over for answer in answers))

        assert [answer.status_code for answer in answers] == [200, 200, 200]


def test_a_slow_handshake_ends_with_the_connect_timeout(authority: trustme.CA) -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(https(peer, authority), connect_timeout="3s")
        answer = w.get()
        w.until(lambda: peer.connections == 1)
        w.pass_time(4)
        w.until(lambda: answer.is_over)

        assert answer.failure is not None
        assert answer.failure.reason is Reason.CONNECT_TIMEOUT
        assert f"in the TLS handshake with {peer.address}" in answer.failure.detail
        w.until(lambda: w.backend().connections == 0)


def test_subject_alt_names_replace_the_server_name_in_validation(authority: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("real.example").configure_cert(context)
    wanted = (document.SubjectAltName(uri=SPIFFE), document.SubjectAltName(hostname="real.example"))
    with backend(tls=context) as peer, world() as w:
        w.use(https(peer, authority, subject_alt_names=wanted))
        assert w.fetch().status_code == 200
        w.use(https(peer, authority, subject_alt_names=wanted[:1]))

        assert f"certificate for real.example, want one for {SPIFFE}" in failure_of(w).detail


def test_a_uri_in_the_certificate_matches_only_that_uri(tmp_path: Path) -> None:
    certificate, key = self_signed(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(SPIFFE)]))
    (tmp_path / "pair.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    with backend(tls=context) as peer, world() as w:

        def use(*names: document.SubjectAltName) -> None:
            tls = document.BackendTLS(server_name="a.example", ca=certificate, subject_alt_names=names)
            w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))

        use(document.SubjectAltName(uri=SPIFFE))
        assert w.fetch().status_code == 200
        use(document.SubjectAltName(uri=SPIFFE + "x"))
        assert failure_of(w).reason is Reason.TLS
        use()
        assert failure_of(w).reason is Reason.TLS


def test_a_certificate_with_an_unsupported_kind_of_name_is_refused_at_once(tmp_path: Path) -> None:
    """OpenSSL accepts it. The request used to wait until the connect timeout."""
    party = bytes.fromhex("3007 a505 a103 0c0178")  # an ediPartyName (RFC 5280, 4.2.1.6)
    certificate, key = self_signed(x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, party))
    failure = refusal_of_own(certificate, key, tmp_path)

    assert failure.reason is Reason.TLS
    assert "certificate that cannot be read: " in failure.detail


def test_a_common_name_that_is_no_text_is_refused_with_the_reason(tmp_path: Path) -> None:
    """OpenSSL accepts a BIT STRING there, by which `cryptography` raises TypeError, and KeyError for others (45)."""
    certificate, key = self_signed(x509.BasicConstraints(ca=False, path_length=None), "\0.example")
    octets = ssl.PEM_cert_to_DER_cert(certificate).replace(b"\x0c\x09\0.example", b"\x03\x09\0.example")
    failure = refusal_of_own(ssl.DER_cert_to_PEM_cert(octets), key, tmp_path)

    assert failure.reason is Reason.TLS
    assert "certificate that cannot be read: " in failure.detail


@pytest.mark.parametrize(
    ("common_name", "wanted"), [("UniFi", "unifi"), ("a.example", "a.example"), ("192.0.2.1", "192.0.2.1")]
)
def test_a_directly_trusted_certificate_without_names_is_valid_for_its_common_name(
    tmp_path: Path, common_name: str, wanted: str
) -> None:
    """Appliances, including the UniFi controller in a container, generate such certificates."""
    certificate, key = self_signed(x509.BasicConstraints(ca=False, path_length=None), common_name)
    (tmp_path / "pair.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    with backend(tls=context) as peer, world() as w:

        def use(name: str, *names: document.SubjectAltName) -> None:
            ca = f"# of the appliance\n{certificate}"
            tls = document.BackendTLS(server_name=name, ca=ca, subject_alt_names=names)
            w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))

        use(wanted)
        assert w.fetch().status_code == 200
        use("b.example")
        assert f"certificate for {common_name}" in failure_of(w).detail


def test_a_short_key_is_accepted_in_a_directly_trusted_certificate(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    certificate = issued(key, key, x509.SubjectAlternativeName([x509.DNSName("a.example")]), "a.example", "a.example")
    (tmp_path / "pair.pem").write_text(certificate + in_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=1")
    context.load_cert_chain(tmp_path / "pair.pem")
    with backend(tls=context) as peer, world() as w:
        tls = document.BackendTLS(server_name="a.example", ca=certificate)
        w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))

        assert 200 == w.fetch().status_code


def test_the_common_name_is_ignored_when_only_the_issuer_is_trusted(tmp_path: Path) -> None:
    """The issuer may have certified the same common name for others."""
    authority, authority_key = self_signed(x509.BasicConstraints(ca=True, path_length=None), "authority")
    issuer_key = serialization.load_pem_private_key(authority_key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key, no_ca = ec.generate_private_key(ec.SECP256R1()), x509.BasicConstraints(ca=False, path_length=None)
    (tmp_path / "pair.pem").write_text(issued(key, issuer_key, no_ca, "a.example", "authority") + in_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    with backend(tls=context) as peer, world() as w:
        tls = document.BackendTLS(server_name="a.example", ca=authority)
        w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))

        assert "certificate for no names, want one for a.example" in failure_of(w).detail


def refusal_of_own(certificate: str, key: str, folder: Path) -> Failure:
    """Of a request to a backend whose certificate is itself in `ca`, and refused all the same."""
    (folder / "pair.pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    with backend(tls=context) as peer, world() as w:
        tls = document.BackendTLS(server_name="a.example", ca=certificate)
        w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))
        return failure_of(w)


def self_signed(extension: x509.ExtensionType, common_name: str = "a.example") -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    return issued(key, key, extension, common_name, common_name), in_pem(key)


def issued(
    key: Key,
    issuer_key: Key,
    extension: x509.ExtensionType,
    common_name: str,
    issuer: str,
) -> str:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(named(issuer), named(common_name), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(extension, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def in_pem(key: Key) -> str:
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret.decode()


def test_our_certificate_is_presented_when_the_backend_requests_it(authority: trustme.CA) -> None:
    context = server_context(authority, "a.example")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    ours = authority.issue_cert("client.example")
    pair = document.Certificate(
        certificate="".join(blob.bytes().decode() for blob in ours.cert_chain_pems),
        private_key=ours.private_key_pem.bytes().decode(),
    )
    with backend(tls=context) as peer, world() as w:
        w.use(https(peer, authority, client_certificate=pair))
        assert w.fetch().status_code == 200
        w.use(https(peer, authority))

        assert w.fetch().failure is not None


def test_a_lack_of_descriptors_is_not_a_tls_failure_and_is_temporary(authority: trustme.CA) -> None:
    ours = authority.issue_cert("client.example")
    pair = document.Certificate(
        certificate=ours.cert_chain_pems[0].bytes().decode(), private_key=ours.private_key_pem.bytes().decode()
    )
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(https(peer, authority, client_certificate=pair))
        with out_of_descriptors():
            failure = failure_of(w)

        assert failure.reason is Reason.OVERLOAD
        assert w.fetch().status_code == 200


def test_the_authorities_of_the_system_are_used_again_after_a_lack_of_descriptors(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL does not report that it could not open their file, and contexts are cached."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    spec = document.BackendTLS(server_name="a.example")
    make_context(spec, ["http/1.1"])  # otherwise its imports would fail
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=spec))
        with out_of_descriptors():
            failure = failure_of(w)

        assert failure.reason is Reason.OVERLOAD
        assert w.fetch().status_code == 200


def test_the_time_to_read_certificates_is_not_taken_for_that_of_a_lookup(authority: trustme.CA) -> None:
    with backend() as peer, world() as w:
        w.clock.stop()
        w.use(https(peer, authority), connect_timeout="3s")
        answer = w.get()
        w.pass_time(4)

        assert answer.failure is not None
        assert answer.failure.reason is Reason.CONNECT_TIMEOUT
        assert answer.failure.detail == f"{peer.address}: timed out after 3 s reading the certificates for TLS"


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_an_authority_file_of_the_system_without_certificates_is_no_error(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    context = make_context(document.BackendTLS(server_name="a.example"), ["http/1.1"])

    assert context.cert_store_stats()["x509"] == 0


def test_a_key_leaves_no_descriptor(authority: trustme.CA) -> None:
    ours = authority.issue_cert("client.example")
    pair = document.Certificate(
        certificate=ours.cert_chain_pems[0].bytes().decode(), private_key=ours.private_key_pem.bytes().decode()
    )
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    make_context(document.BackendTLS(server_name="a.example", client_certificate=pair), ["http/1.1"])

    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


@pytest.mark.parametrize("broken", ["ca", "clientCertificate.certificate", "clientCertificate.privateKey"])
def test_an_unreadable_setting_is_named_and_no_key_is_revealed(authority: trustme.CA, broken: str) -> None:
    junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    is_sound = broken.endswith("privateKey")
    chain = authority.issue_cert("client.example").cert_chain_pems[0].bytes().decode() if is_sound else junk
    pair = document.Certificate(certificate=chain, private_key=secret)
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        if broken == "ca":
            tls = document.BackendTLS(server_name="a.example", ca=junk)
            w.use(document.Backend(name="b", addresses=(peer.address,), protocol="https", tls=tls))
        else:
            w.use(https(peer, authority, client_certificate=pair))
        failure = failure_of(w)

        assert failure.reason is Reason.TLS
        assert f"tls.{broken}: " in failure.detail
        assert "c2VjcmV0" not in failure.detail
        assert peer.connections == 0


def test_keys_and_authorities_of_a_removed_backend_are_freed(authority: trustme.CA) -> None:
    """Certificates are renewed many times over the years."""
    name = "leaves.example"
    with backend(tls=server_context(authority, name)) as peer, world() as w:
        w.use(https(peer, authority, name))
        assert w.fetch().status_code == 200
        w.use()
        w.turns()
        w.pass_time(61)
        w.use()
        w.turns()
        gc.collect()

        assert not [one for one in gc.get_objects() if isinstance(one, Trust) and name in repr(one)]


def test_an_encrypted_key_is_refused_without_a_password_prompt() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    certificate, _ = self_signed(x509.SubjectAlternativeName([x509.DNSName("c.example")]))
    pair = document.Certificate(certificate=certificate, private_key=key.decode())

    with pytest.raises(ValueError, match=r"clientCertificate\.privateKey: .*unencrypted"):
        make_context(document.BackendTLS(server_name="a.example", client_certificate=pair), ["h2"])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_on_new_connections(authority: trustme.CA, version: ssl.TLSVersion) -> None:
    context = server_context(authority, "a.example")
    context.maximum_version = version
    with backend(answer_once, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert [w.fetch().status_code for _ in range(3)] == [200, 200, 200]

        assert peer.resumed[0] is False
        assert any(peer.resumed)


class Reads:
    """How often a session has been read, which leaks memory in Python before 3.12.8."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read: property = vars(TlsSocket)["session"]

        def session(sock: TlsSocket) -> object:
            self.count += 1
            return read.__get__(sock)

        monkeypatch.setattr(TlsSocket, "session", property(session))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_that_is_resumed_repeatedly_is_read_once(
    authority: trustme.CA, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    context = server_context(authority, "a.example")
    context.maximum_version = version
    with backend(answer_once, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        for _ in range(4):
            assert w.fetch().status_code == 200
            w.pass_time(3600)

        assert peer.resumed == [False, True, True, True]
        assert reads.count == 1


def test_sessions_of_a_backend_that_resumes_none_are_read_once_in_ten_minutes(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    context = server_context(authority, "a.example")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    counts = []
    with backend(answer_once, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        for _ in range(4):
            assert w.fetch().status_code == 200
            counts.append(reads.count)
            w.pass_time(301)

        assert not any(peer.resumed)
        assert counts == [1, 1, 2, 2]


def test_sessions_are_resumed_over_http2_too(authority: trustme.CA) -> None:
    def answer_and_go(peer: H2Peer, event: h2.events.Event) -> None:
        answers(peer, event)
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.close_connection()

    context = server_context(authority, "a.example", alpn=("h2",))
    with backend(speaks(answer_and_go), tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        for _ in range(3):
            assert w.fetch().status_code == 200
            w.until(lambda: not w.backend().connections)

        assert peer.resumed[0] is False
        assert any(peer.resumed)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_whose_resumption_failed_is_not_used_again(authority: trustme.CA, version: ssl.TLSVersion) -> None:
    def refuse_resumed(sock: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        return ssl.ALERT_DESCRIPTION_DECRYPT_ERROR if sock.session_reused else None

    context = server_context(authority, "a.example")
    context.maximum_version = version
    context.sni_callback = refuse_resumed
    with backend(answer_once, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert w.fetch().status_code == 200
        assert failure_of(w).reason is Reason.TLS

        assert w.fetch().status_code == 200
        assert peer.resumed == [False, False]


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256", "AES256-SHA"])
def test_a_backend_with_only_old_ciphers_is_supported(authority: trustme.CA, cipher: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("a.example", key_type=trustme.KeyType.RSA).configure_cert(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    with backend(tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert 200 == w.fetch().status_code


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"])
def test_old_ciphers_are_not_used_if_there_is_a_better_one(authority: trustme.CA, cipher: str) -> None:
    spoken: list[str] = []

    def behave(conn: Conn) -> None:
        assert isinstance(conn.sock, ssl.SSLSocket)
        spoken.append((conn.sock.cipher() or ("",))[0])
        conn.serve(OK)

    context = server_context(authority, "a.example")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    # The order of the client decides; that of the server has the old one first.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(f"ECDHE-ECDSA-AES256-SHA:{cipher}")
    with backend(behave, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        assert 200 == w.fetch().status_code
        assert [cipher] == spoken


UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nall of it"
WITH_LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nall of it"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def answer_and_end(response: bytes, *, says_so: bool) -> Behaviour:
    """With close_notify, or only at the TCP level, as anybody on the path can."""

    def behave(conn: Conn) -> None:
        conn.request()
        conn.send(response)
        if says_so and isinstance(conn.sock, ssl.SSLSocket):
            conn.sock.unwrap()

    return behave


def answer_of(authority: trustme.CA, version: ssl.TLSVersion, behaviour: Behaviour) -> Answer:
    context = server_context(authority, "a.example")
    context.maximum_version = version
    with backend(behaviour, tls=context) as peer, world() as w:
        w.use(https(peer, authority))
        return w.fetch()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_delimited_by_close_is_complete_after_close_notify(
    authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    answer = answer_of(authority, version, answer_and_end(UNTIL_CLOSE, says_so=True))

    assert answer.failure is None
    assert answer.body == b"all of it"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_delimited_by_close_is_incomplete_without_close_notify(
    authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    answer = answer_of(authority, version, answer_and_end(UNTIL_CLOSE, says_so=False))

    assert answer.failure is not None
    assert answer.failure.reason is Reason.RESET
    assert "without close_notify" in answer.failure.detail


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("response", [WITH_LENGTH, CHUNKED])
def test_a_body_with_its_own_framing_is_complete_without_close_notify(
    authority: trustme.CA, version: ssl.TLSVersion, response: bytes
) -> None:
    answer = answer_of(authority, version, answer_and_end(response, says_so=False))

    assert answer.failure is None
    assert answer.body == b"all of it"


def test_a_handshake_that_the_kernel_does_not_watch_takes_no_place_for_ever(authority: trustme.CA) -> None:
    with backend(tls=server_context(authority, "a.example")) as peer, world() as w:
        one = replace(https(peer, authority), circuit=document.Circuit(max_connections=1))
        w.use(one, connect_timeout="0s")
        with watches_refused(Handshake, 2):
            failures = [failure_of(w) for _ in range(2)]

        assert [Reason.OVERLOAD] * 2 == [failure.reason for failure in failures]
        assert w.fetch().status_code == 200
