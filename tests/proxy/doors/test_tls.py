"""TLS doors: choice by server name, ALPN, client certificates, 421, sessions, and changes of the configuration."""

import os
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from h2.errors import ErrorCodes

from proxy.doors.lingeringclose import MAX_S, LingeringClose
from proxy.doors.tls import MAX_SESSIONS
from proxy.loop import Transport
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import WAIT_S, ask, connect, read_all, read_until
from tests.proxy.doors.tlsrig import (
    CA,
    OTHER_CA,
    WILD,
    A,
    B,
    TLSRig,
    ca_pem,
    client_context,
    client_hello,
    https,
    names_of,
    pem_of,
    status_of,
)
from tests.support.descriptors import open_descriptors
from tests.support.watches import watches_refused


def test_alpn_decides_the_protocol() -> None:
    with TLSRig().open(https("l", A)) as rig:
        with rig.handshake("a.example", "h2", "http/1.1") as sock:
            assert "h2" == sock.selected_alpn_protocol()
            client = H2Client(sock)
            assert b"hello\n" == client.get("/hello").body
            assert bytes(300_000) == client.get("/bulk/300000").body
        with rig.handshake("a.example", "http/1.1") as sock:
            assert 200 == status_of(sock)
        with rig.handshake("a.example") as sock:
            assert 200 == status_of(sock)
        arrivals = [rig.services.begun.get_nowait().client.arrival for _ in range(4)]
        assert ["HTTP/2", "HTTP/2", "HTTP/1.1", "HTTP/1.1"] == [arrival.protocol for arrival in arrivals]
        assert {b"https"} == {arrival.scheme for arrival in arrivals}


def test_a_listener_negotiates_only_its_configured_alpn() -> None:
    with TLSRig().open(https("l", A, alpn=["http/1.1"])) as rig, rig.handshake("a.example", "h2", "http/1.1") as sock:
        assert "http/1.1" == sock.selected_alpn_protocol()


@pytest.mark.parametrize(
    ("server_name", "expected"),
    [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("b.example", "b.example"),
        ("x.wild.example", "*.wild.example"),
        ("x.y.wild.example", "a.example"),
        ("unknown.example", "a.example"),
        (None, "a.example"),
    ],
)
def test_the_certificate_that_matches_the_server_name_is_served(server_name: str | None, expected: str) -> None:
    with TLSRig().open(https("l", A, B, WILD)) as rig, rig.handshake(server_name) as sock:
        assert {expected} == names_of(sock)


def test_a_client_gets_the_certificate_with_a_key_type_it_supports() -> None:
    rsa = pem_of("a.example", key_type=trustme.KeyType.RSA)
    with TLSRig().open(https("l", A, rsa)) as rig:
        for cipher, kind in (("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA"), ("ECDHE-RSA-AES128-GCM-SHA256", "RSA")):
            context = client_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(cipher)
            with rig.handshake(context=context) as sock:
                assert kind in str(sock.cipher())


def test_listeners_of_one_door_serve_their_own_certificates() -> None:
    listeners = (https("any", A), https("b", B, hostname="b.example"), https("w", WILD, hostname="*.wild.example"))
    with TLSRig().open(*listeners) as rig:
        for server_name, expected in (
            ("b.example", "b.example"),
            ("x.wild.example", "*.wild.example"),
            ("other.example", "a.example"),
            (None, "a.example"),
        ):
            with rig.handshake(server_name) as sock:
                assert {expected} == names_of(sock)


@pytest.mark.parametrize("server_name", ["other.example", None])
def test_a_name_that_no_listener_has_is_refused_with_an_alert(server_name: str | None) -> None:
    with TLSRig().open(https("b", B, hostname="b.example")) as rig:
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            rig.handshake(server_name)
        rig.wait_for_connections(0)
        assert {"tls": 1} == rig.door_stats.refused


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused() -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with TLSRig().open(https("l", A)) as rig, pytest.raises(ssl.SSLError):
        rig.handshake(context=context)


def test_ciphers_that_http2_forbids_are_refused_in_old_versions_of_tls_too() -> None:
    """RFC 9113, 9.2.2: HTTP/2 clients may refuse such a connection with INADEQUATE_SECURITY."""
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    with TLSRig().open(https("l", A)) as rig:
        with pytest.raises(ssl.SSLError):
            rig.handshake(context=context)
        context.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")
        with rig.handshake(context=context) as sock:
            assert "ECDHE-ECDSA-AES128-GCM-SHA256" == (sock.cipher() or [""])[0]


# -- client certificates -----------------------------------------------------------------------------------------------


def with_certificate(ca: trustme.CA, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    ca.issue_cert("client@example.org").configure_cert(context)
    return context


def is_served(rig: TLSRig, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> bool:
    try:
        with context.wrap_socket(connect(rig.port), server_hostname="a.example", session=session) as sock:
            return status_of(sock) == 200
    except (ssl.SSLError, ConnectionError, IndexError):
        return False


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_clients_with_a_valid_certificate_are_served_when_one_is_required(version: ssl.TLSVersion) -> None:
    with TLSRig().open(https("l", A, clientValidation={"ca": ca_pem(OTHER_CA)})) as rig:
        without = client_context()
        without.maximum_version = version

        assert is_served(rig, with_certificate(OTHER_CA, version))
        assert not is_served(rig, with_certificate(CA, version))
        assert not is_served(rig, without)
        assert 1 == rig.services.begun.qsize()
        rig.wait_for(lambda: rig.door_stats.refused == {"tls": 2}, "two refusals")


def is_refused(rig: TLSRig, times: int) -> bool:
    return rig.door_stats.refused.get("tls") == times


def test_a_client_without_a_certificate_gets_the_alert_even_after_sending_its_request() -> None:
    with TLSRig().open(https("l", A, clientValidation={"ca": ca_pem(OTHER_CA)})) as rig:
        for number in range(1, 11):
            with rig.handshake("a.example", context=client_context()) as sock:
                # In TLS 1.3 its handshake is complete: what it sends now arrives after our alert.
                rig.wait_for(partial(is_refused, rig, number), "the refusal")
                for _ in range(3):
                    sock.sendall(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 60000\r\n\r\n" + bytes(20_000))
                with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED|certificate required"):
                    sock.recv(1)
        rig.wait_for_connections(0)
        assert {"tls": 10} == rig.door_stats.refused


def test_a_refused_client_that_does_not_close_is_closed_after_a_moment() -> None:
    with TLSRig().open(https("l", A, hostname="a.example")) as rig, rig.connect() as client:
        client.sendall(client_hello("b.example"))

        assert b"\x15" == client.recv(1)
        rig.wait_for_connections(1)
        rig.pass_time(2)
        rig.wait_for_connections(0)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_the_insecure_fallback_every_client_is_served(version: ssl.TLSVersion) -> None:
    validation = {"ca": ca_pem(OTHER_CA), "mode": "AllowInsecureFallback"}
    with TLSRig().open(https("l", A, clientValidation=validation)) as rig:
        assert is_served(rig, with_certificate(OTHER_CA, version))
        assert is_served(rig, with_certificate(CA, version))
        assert is_served(rig, client_context())


def test_client_validation_cannot_be_bypassed_through_another_listener() -> None:
    """Neither by its server name, nor by resuming its session."""
    strict = https("strict", A, hostname="a.example", clientValidation={"ca": ca_pem(OTHER_CA)})
    with TLSRig().open(strict, https("open", B, hostname="b.example")) as rig:
        context = client_context()
        with rig.handshake("b.example", context=context) as sock:
            sock.sendall(b"GET /hello HTTP/1.1\r\nHost: b.example\r\n\r\n")
            read_until(sock, b"hello\n")
            session = sock.session
            assert session is not None
            sock.sendall(b"GET /hello HTTP/1.1\r\nHost: a.example\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 421 ")

        assert not is_served(rig, context)
        assert not is_served(rig, context, session=session)


# -- 421 ---------------------------------------------------------------------------------------------------------------


def test_a_connection_in_clear_is_served_no_more_when_its_port_has_become_one_for_tls() -> None:
    with TLSRig().open({"name": "web"}) as rig, rig.connect() as client:
        ask(client)
        read_until(client, b"hello\n")
        rig.reload(https("web", A))
        ask(client)

        assert client.recv(65536).startswith(b"HTTP/1.1 421 ")


def test_a_host_of_another_listener_is_answered_421_and_the_connection_goes_on() -> None:
    names = pem_of("a.example", "b.example")
    with TLSRig().open(https("a", names, hostname="a.example"), https("b", names, hostname="b.example")) as rig:
        with rig.handshake("a.example", "h2") as sock:
            client = H2Client(sock)
            assert 200 == client.get("/hello", authority="a.example").status_code
            assert 421 == client.get("/hello", authority="b.example").status_code
            head = client.get("/hello", method="HEAD", authority="b.example")
            assert (421, b"") == (head.status_code, head.body)
            assert 200 == client.get("/hello", authority="c.example").status_code
        assert {"misdirected": 2} == rig.door_stats.refused


def test_an_http2_connection_from_before_a_change_of_requirements_refuses_requests_and_finishes_others() -> None:
    """Unprocessed, so that clients send them again over a new connection; those of gRPC do so for no status code."""
    with TLSRig().open(https("web", A)) as rig, rig.handshake("a.example", "h2") as sock:
        client = H2Client(sock)
        running = client.ask("/count", method="POST", has_body=True)
        client.send(running, b"begun")
        rig.services.begun.get(timeout=WAIT_S)
        rig.reload(https("web", A, clientValidation={"ca": ca_pem(OTHER_CA)}))
        refused = client.answer(client.ask("/count", method="POST", has_body=True))
        assert (ErrorCodes.REFUSED_STREAM, {}) == (refused.reset_code, refused.headers)
        assert {running} == {goaway.last_stream_id for goaway in client.goaways}
        client.send(running, b"ended", ends=True)

        assert 200 == client.answer(running).status_code
        client.read_until(lambda: client.is_closed)
        assert rig.services.begun.empty()
        assert {"misdirected": 1} == rig.door_stats.refused


def test_an_early_response_and_its_reset_are_in_separate_tls_records() -> None:
    """curl 7.88 does not see a response in a TLS record that also resets its stream."""
    with TLSRig().open(https("web", A)) as rig, H2Client(rig.handshake("a.example", "h2")) as client:
        answer = client.answer(client.ask("/early", method="POST", has_body=True))

        assert (413, b"too much\n") == (answer.status_code, answer.body)
        assert (True, None) == (answer.has_ended, answer.reset_code)
        client.read_until(lambda: answer.reset_code is not None)
        assert ErrorCodes.NO_ERROR == answer.reset_code


def test_a_misdirected_upload_is_answered_421_before_its_end() -> None:
    names = pem_of("a.example", "b.example")
    with TLSRig().open(https("a", names, hostname="a.example"), https("b", names, hostname="b.example")) as rig:
        with rig.handshake("a.example", "h2") as sock:
            client = H2Client(sock)
            answer = client.answer(client.ask("/count", method="POST", authority="b.example", has_body=True))
            assert (True, None) == (answer.has_ended, answer.reset_code)
            client.read_until(lambda: answer.reset_code is not None)
            assert (421, ErrorCodes.NO_ERROR) == (answer.status_code, answer.reset_code)
        with rig.handshake("a.example") as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: b.example\r\nContent-Length: 10\r\n\r\n")
            assert read_all(sock).startswith(b"HTTP/1.1 421 ")


# -- sessions and configuration ----------------------------------------------------------------------------------------


def session_is_resumed(rig: TLSRig, between: Callable[[], None]) -> bool:
    context = client_context()
    with rig.handshake(context=context) as sock:
        assert 200 == status_of(sock)
        session = sock.session
    between()
    with context.wrap_socket(connect(rig.port), server_hostname="a.example", session=session) as sock:
        assert 200 == status_of(sock)
        return sock.session_reused is True


def test_a_session_is_resumed_even_after_a_change_that_does_not_affect_its_listener() -> None:
    with TLSRig().open(https("l", A)) as rig:
        assert session_is_resumed(rig, lambda: None)
        assert session_is_resumed(rig, lambda: rig.reload(https("l", A), mergeSlashes=False))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("takes_tickets", [True, False])
@pytest.mark.parametrize("before", [{}, {"clientValidation": {"ca": ca_pem(CA)}}])
def test_a_session_of_before_does_not_stand_in_for_the_client_certificate_that_a_change_demands(
    version: ssl.TLSVersion, takes_tickets: bool, before: dict[str, Any]
) -> None:
    context = client_context()
    context.maximum_version = version
    context.options |= 0 if takes_tickets else ssl.OP_NO_TICKET
    CA.issue_cert("client.example").configure_cert(context)
    with TLSRig().open(https("l", A, **before)) as rig:
        with rig.handshake(context=context) as sock:
            assert 200 == status_of(sock)
            session = sock.session
        rig.reload(https("l", A, clientValidation={"ca": ca_pem(OTHER_CA)}))

        with (
            pytest.raises(ssl.SSLError, match="ALERT"),
            context.wrap_socket(connect(rig.port), server_hostname="a.example", session=session) as sock,
        ):
            status_of(sock)
        assert rig.services.begun.qsize() == 1


def test_clients_without_tickets_make_a_door_keep_few_sessions_and_cost_others_none() -> None:
    """OpenSSL would keep 20,480 for each certificate, with all that the clients' own certificates hold."""

    def session_after(context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession, bool]:
        sock = context.wrap_socket(connect(rig.port), server_hostname="a.example", session=session)
        with sock:
            ask(sock, extra="Connection: close\r\n")
            assert read_all(sock).startswith(b"HTTP/1.1 200 ")
            assert sock.session is not None
            return sock.session, sock.session_reused is True

    with TLSRig().open(https("l", A)) as rig:
        taking, keeping = client_context(), client_context()
        for context in (taking, keeping):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        keeping.options |= ssl.OP_NO_TICKET
        (ticket, _), (session, _) = session_after(taking, None), session_after(keeping, None)
        assert session_after(keeping, session)[1]

        for _ in range(2 * MAX_SESSIONS):
            assert not session_after(keeping, None)[1]
        assert not session_after(keeping, session)[1]
        assert session_after(taking, ticket)[1]


def test_a_changed_certificate_is_served_to_the_next_client() -> None:
    with TLSRig().open(https("l", A)) as rig, rig.handshake() as kept:
        assert 200 == status_of(kept)
        rig.reload(https("l", B))

        with rig.handshake() as sock:
            assert {"b.example"} == names_of(sock)
        assert 200 == status_of(kept)


@pytest.mark.usefixtures("with_an_error")
def test_a_mismatched_key_disables_only_its_listener() -> None:
    bad = {"certificate": A["certificate"], "privateKey": B["privateKey"]}
    with TLSRig().open(https("bad", bad, hostname="a.example"), https("b", B, hostname="b.example")) as rig:
        with pytest.raises(ssl.SSLError, match="INTERNAL_ERROR"):
            rig.handshake("a.example")
        with rig.handshake("b.example") as sock:
            sock.sendall(b"GET /hello HTTP/1.1\r\nHost: b.example\r\n\r\n")
            assert read_until(sock, b"hello\n")


def test_a_key_leaves_no_descriptor_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with TLSRig().open(https("l", A)) as rig:
        before = set(open_descriptors(os.getpid()))
        with rig.handshake():
            pass
        rig.wait_for_connections(0)
        after = set(open_descriptors(os.getpid()))

    assert not any("memfd" in link for link in after - before)
    assert not list(tmp_path.iterdir())


def test_a_client_that_cannot_be_watched_after_its_handshake_does_not_keep_the_worker_from_ending() -> None:
    with TLSRig().open(https("l", A)) as rig:
        with watches_refused(Transport) as refused, rig.handshake():
            rig.wait_for(lambda: refused() > 0, "the refusal")
            rig.wait_for_connections(0)
        rig.call(rig.drain)

        assert rig.is_idle.wait(WAIT_S)


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
def test_a_client_that_cannot_be_watched_after_its_handshake_counts_as_refused(protocol: str) -> None:
    with TLSRig().open(https("l", A)) as rig, watches_refused(Transport) as refused:
        with rig.handshake("a.example", protocol):
            rig.wait_for(lambda: refused() > 0, "the refusal")
            rig.wait_for_connections(0)

        assert rig.door_stats.refused == {"descriptors": 1}


def test_a_client_that_is_refused_gets_its_answer_though_the_kernel_does_not_watch_for_its_end() -> None:
    with watches_refused(LingeringClose), TLSRig().open(https("l", A)) as rig, connect(rig.port) as client:
        ask(client)

        assert b"this port speaks https" in read_all(client)
        rig.pass_time(MAX_S)
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"tls": 1}


def test_a_client_that_is_refused_and_then_closes_is_waited_for_no_longer() -> None:
    with TLSRig().open(https("l", A)) as rig, connect(rig.port) as client:
        ask(client)
        read_all(client)
        rig.call(lambda: rig.hold_time(2 * WAIT_S))
        client.close()

        rig.wait_for_connections(0)


def test_large_bodies_pass_through_tls_both_ways() -> None:
    size_bytes = 4 * 1024 * 1024
    with TLSRig().open(https("l", A)) as rig, rig.handshake("a.example", "h2") as sock:
        sock.settimeout(WAIT_S)
        client = H2Client(sock)
        stream_id = client.ask("/echo", method="POST", has_body=True)
        client.send(stream_id, bytes(size_bytes), ends=True)

        assert size_bytes == len(client.answer(stream_id).body)
