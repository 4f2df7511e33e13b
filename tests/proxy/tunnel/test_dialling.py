"""Dials that fail: the server is not an edge, or nothing answers."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.dialling import Dialling, make_context
from proxy.tunnel.edgehandshake import EdgeHandshake
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.orders import Ended, Registered
from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES
from tests.proxy.tunnel.rig import Rig, address_of
from tests.support.deafness import lose_data, wait_for_repeats_to
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import PATIENCE_S
from tests.support.limits import out_of_descriptors
from tests.support.ports import LOOPBACK
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.support.watches import watches_refused

WATCH = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""In seconds; the time for what is not taken in milliseconds."""


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Edge() as edge, Rig(edge) as rig:
        yield rig


@contextlib.contextmanager
def nobody_answers() -> Iterator[str]:
    """An address whose accept queue is full: the kernel drops SYNs to it."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(listener.getsockname())
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"


def failure_at(rig: Rig, script: Callable[[Dialogue], None]) -> Ended:
    with SocketBackend(script) as server:
        return rig.wait_for_end(rig.dial(server.address))


def test_a_dial_to_an_address_that_does_not_answer_fails_after_15_seconds(rig: Rig) -> None:
    with nobody_answers() as address:
        number = rig.dial(address)
        rig.pass_time(10)
        assert not rig.reports
        rig.pass_time(6)
        end = rig.wait_for_end(number)
    assert (end.cause, end.error) == (FailureCause.DIAL, "no answer within 15 s")


def test_a_dial_without_a_descriptor_fails_with_the_reason(rig: Rig) -> None:
    with out_of_descriptors():
        end = rig.wait_for_end(rig.dial())
    assert (end.cause, end.error) == (FailureCause.DIAL, "Too many open files")


def test_a_dial_whose_socket_the_kernel_does_not_watch_fails_with_the_reason(rig: Rig) -> None:
    """It costs this dial, and nothing else that the worker does."""
    with watches_refused(Dialling):
        end = rig.wait_for_end(rig.dial())

    assert (end.cause, end.error) == (FailureCause.DIAL, "No space left on device")
    rig.register()


def test_an_immediate_failure_is_reported_later_and_not_if_the_dial_is_cancelled_first(rig: Rig) -> None:
    told: list[object] = []
    context = make_context(rig.edge.authority.pem.decode())
    address = address_of(rig.edge.addresses[0])

    def begin(*, gives_up: bool) -> list[object]:
        dialling = Dialling(rig.loop, address, context, told.append, lambda cause, error: told.append((cause, error)))
        with out_of_descriptors():
            dialling.start()
        if gives_up:
            dialling.cancel()
        return list(told)

    assert not rig.call(lambda: begin(gives_up=True))
    rig.pass_time(60)
    assert not told
    assert not rig.call(lambda: begin(gives_up=False))
    rig.pass_time(60)
    assert told == [(FailureCause.DIAL, "Too many open files")]


def test_a_connection_to_the_edge_has_tcp_keepalive_and_a_user_timeout(rig: Rig) -> None:
    """A vanished edge is noticed both while nothing is sent and while sent data is not acknowledged."""
    shaken: queue.Queue[socket.socket] = queue.Queue()
    context = make_context(rig.edge.authority.pem.decode())
    address = address_of(rig.edge.addresses[0])
    rig.call(lambda: Dialling(rig.loop, address, context, shaken.put, lambda _cause, _error: None).start())

    with shaken.get(timeout=PATIENCE_S) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [(name, sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))) for name in WATCH] == list(
            WATCH.items()
        )


def test_a_pending_dial_can_be_cancelled(rig: Rig) -> None:
    with nobody_answers() as address:
        number = rig.dial(address)
        rig.withdraw(number)
        assert rig.wait_for_end(number).error == "given up before it was registered"
        rig.pass_time(60)
        assert len(rig.reports) == 1


def test_a_dial_cancelled_before_its_handshake_has_begun_ends_without_an_error(rig: Rig) -> None:
    """The handshake's thread may start late on a busy machine."""
    is_given_up, has_ended = threading.Event(), threading.Event()

    class Late(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            assert is_given_up.wait(PATIENCE_S)
            super().do_handshake(block)

        def close(self) -> None:
            super().close()
            has_ended.set()

    context = make_context(rig.edge.authority.pem.decode())
    context.sslsocket_class = Late
    told: list[object] = []
    address = address_of(rig.edge.addresses[0])
    near = socket.create_connection((address.ip, address.port))
    sock = context.wrap_socket(near, server_hostname="x", do_handshake_on_connect=False)

    def begin() -> None:
        handshake = EdgeHandshake(rig.loop, sock, 15, told.append, lambda _sock, error: told.append(error))
        handshake.start()
        handshake.cancel()

    rig.call(begin)
    is_given_up.set()
    assert has_ended.wait(PATIENCE_S)
    assert not told


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n" * 10], ids=["a timeout", "not TLS"])
def test_a_failed_handshake_is_reported_once_and_leaves_neither_thread_nor_frames(rig: Rig, said: bytes) -> None:
    has_ended = threading.Event()

    class Noted(ssl.SSLSocket):
        def close(self) -> None:
            super().close()
            has_ended.set()

    context = make_context(rig.edge.authority.pem.decode())
    context.sslsocket_class = Noted
    told: list[object] = []
    near, far = socket.socketpair()
    with far:
        sock = context.wrap_socket(near, server_hostname="x", do_handshake_on_connect=False)
        rig.call(EdgeHandshake(rig.loop, sock, 15, told.append, lambda _sock, error: told.append(error)).start)
        far.sendall(said)
        if not said:
            rig.pass_time(15)
        assert has_ended.wait(PATIENCE_S)
        rig.pass_time(60)

    (error,) = told
    assert isinstance(error, ssl.SSLError if said else TimeoutError)
    assert error.__traceback__ is None, "it and the socket would keep each other in memory"


def test_a_server_that_does_not_speak_tls_is_a_tls_failure(rig: Rig) -> None:
    end = failure_at(rig, lambda dialogue: dialogue.send(b"SSH-2.0-OpenSSH_9.2\r\n" * 10))
    assert end.cause is FailureCause.TLS
    assert end.error.startswith("TLS failed: ")


def test_a_flood_of_hello_requests_during_a_handshake_blocks_no_other_connection(rig: Rig) -> None:
    """Clients ignore HelloRequest during a handshake (RFC 5246, 7.4.1.1), and the server is not authenticated yet. A
    worker that such a flood blocks is killed."""
    is_flooded = threading.Event()

    def flood(dialogue: Dialogue) -> None:
        while not dialogue.backend.over.is_set():
            dialogue.send(b"\x16\x03\x03\0\4\0\0\0\0" * 2_000)
            is_flooded.set()

    with SocketBackend(flood) as server:
        number = rig.dial(server.address)
        assert is_flooded.wait(PATIENCE_S)
        rig.register()
        rig.pass_time(15)
        end = rig.wait_for_end(number)
    assert (end.cause, end.error) == (FailureCause.TLS, "TLS was not set up within 15 s")


def test_a_server_that_closes_during_the_handshake_is_a_failure_of_the_address(rig: Rig) -> None:
    def hang_up(dialogue: Dialogue) -> None:
        dialogue.sock.recv(1)

    end = failure_at(rig, hang_up)
    assert end.cause is FailureCause.TLS
    assert end.cause.is_of_address


def test_an_authority_of_the_edge_is_trusted_without_the_root_that_signed_it(rig: Rig) -> None:
    host, _, port = rig.edge.addresses[0].rpartition(":")
    leaf = ssl.get_server_certificate((host, int(port)))

    rig.wait_for(Registered, rig.dial(roots=leaf))


@pytest.mark.parametrize("names", [["quic.cftunnel.com"], ["127.0.0.1.nip.example"]])
def test_a_certificate_for_another_name_is_reported_with_the_expected_name(names: list[str]) -> None:
    with Edge(server_names=names) as edge, Rig(edge) as rig:
        end = rig.wait_for_end(rig.dial())
    assert end.cause is FailureCause.TLS
    assert "want one for h2.cftunnel.com" in end.error
    assert "An edge on loopback" in end.error, "the issuer"


def test_an_unusable_address_fails_only_its_own_dial(rig: Rig) -> None:
    assert rig.wait_for_end(rig.dial("[ff02::1]:7844")).cause is FailureCause.DIAL
    rig.register()


def test_an_edge_is_dialled_over_ipv6_too() -> None:
    with Edge(["[::1]:0"]) as edge, Rig(edge) as rig:
        rig.register()

        assert edge.wait_for_registered(1)[0].address.startswith("[::1]:")


@pytest.mark.parametrize(("is_small", "is_less"), [(True, True), (False, False)])
def test_a_dial_for_small_packets_limits_the_segment_size(rig: Rig, is_small: bool, is_less: bool) -> None:
    shaken: queue.Queue[socket.socket] = queue.Queue()
    context = make_context(rig.edge.authority.pem.decode())
    address = address_of(rig.edge.addresses[0])

    def begin() -> None:
        Dialling(rig.loop, address, context, shaken.put, lambda _cause, _error: None, is_small=is_small).start()

    rig.call(begin)
    with shaken.get(timeout=PATIENCE_S) as sock:
        segment_bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    assert (segment_bytes <= SMALL_SEGMENT_BYTES) == is_less


@pytest.mark.parametrize(("is_large", "is_stuck"), [(True, True), (False, False)])
def test_only_a_client_hello_that_fills_a_packet_may_be_lost_because_of_its_size(
    rig: Rig, is_large: bool, is_stuck: bool
) -> None:
    context = make_context(rig.edge.authority.pem.decode())
    context.set_ecdh_curve("prime256v1")  # otherwise OpenSSL 3.5 offers an ML-KEM key share too, which fills a packet
    if is_large:
        context.set_alpn_protocols([name * 200 for name in "abcdef"])
    failed: queue.Queue[FailureCause] = queue.Queue()
    with socket.socket() as listener:
        lose_data(listener)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]

        def begin() -> Dialling:
            dialling = Dialling(
                rig.loop,
                EdgeAddress(LOOPBACK, port),
                context,
                lambda _sock: None,
                lambda cause, _error: failed.put(cause),
            )
            dialling.start()
            return dialling

        dialling = rig.call(begin)
        wait_for_repeats_to(port, 3)
        rig.pass_time(15)
        assert failed.get(timeout=PATIENCE_S) is FailureCause.TLS
    assert dialling.is_stuck == is_stuck
