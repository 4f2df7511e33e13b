"""Transports and handshakes over TLS: records, ends, and what only TLS holds back."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise

import pytest
import trustme

from daemonkit.tlssocket import TlsSocket
from proxy.loop import READ_BYTES, Handshake, Loop, Transport
from proxy.loop.output import TLS_RECORD_BYTES
from proxy.loop.tlsinput import TlsInput
from tests.proxy.loop.sides import (
    PATIENCE_S,
    SEND_BUFFER_BYTES,
    Clock,
    Owed,
    Side,
    loop_of,
    receive,
    tcp_pair,
    turns,
    until,
    wait_for_the_end_of,
)
from tests.support.lettinggo import uncollected

FORGED = b"\x17\x03\x03\x00\x20" + bytes(32)
"""A record that cannot be decrypted."""
MANY_BYTES = 4 * 1024 * 1024
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]

Kind = type[ssl.SSLSocket] | type[TlsSocket]
with_both_kinds = pytest.mark.parametrize("kind", [ssl.SSLSocket, TlsSocket])
"""Of the edge, and of clients and backends."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def contexts(authority: trustme.CA, version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("a.example").configure_cert(server)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)
    client.maximum_version = client.minimum_version = version
    return server, client


class TlsLink:
    """Our side is the server, or a client, driven by the loop; a thread has done the peer's part of the handshake."""

    def __init__(
        self,
        loop: Loop,
        authority: trustme.CA,
        version: ssl.TLSVersion,
        *,
        tells_cut_off: bool = False,
        kind: Kind = ssl.SSLSocket,
        is_client: bool = False,
    ) -> None:
        """A client is a `TlsSocket`."""
        server, client = contexts(authority, version)
        ours, raw = tcp_pair(SEND_BUFFER_BYTES)
        peers: list[ssl.SSLSocket] = []

        def shake_hands() -> None:
            if is_client:
                peers.append(server.wrap_socket(raw, server_side=True, suppress_ragged_eofs=False))
            else:
                peers.append(client.wrap_socket(raw, server_hostname="a.example", suppress_ragged_eofs=False))

        thread = threading.Thread(target=shake_hands)
        thread.start()
        done: list[ssl.SSLSocket | TlsSocket] = []
        end_s = loop.now_s + 5

        def fail(_: object, error: OSError) -> None:
            pytest.fail(str(error))

        if kind is TlsSocket:
            own = TlsSocket(ours, client, "a.example") if is_client else TlsSocket(ours, server)
            Handshake(loop, own, end_s, done.append, fail).start()
        else:
            wrapped = server.wrap_socket(
                ours, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=not tells_cut_off
            )
            Handshake(loop, wrapped, end_s, done.append, fail).start()
        until(loop, lambda: bool(done))
        thread.join()
        self.loop = loop
        self.peer = peers[0]
        self.side = Side()
        self.transport = Transport(loop, done[0], self.side)
        self.transport.start()


@contextmanager
def linked(
    authority: trustme.CA,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    *,
    tells_cut_off: bool = False,
    kind: Kind = ssl.SSLSocket,
    is_client: bool = False,
    clock: Clock | None = None,
) -> Iterator[TlsLink]:
    with loop_of(clock) as loop:
        link = TlsLink(loop, authority, version, tells_cut_off=tells_cut_off, kind=kind, is_client=is_client)
        try:
            yield link
        finally:
            link.transport.abort()
            link.peer.close()


@with_both_kinds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sizes", [[1], [16_384], [16_383, 2], [16_385], [100_000, 0, 7], [300_000, 300_000]])
def test_output_of_any_size_arrives_and_credit_comes_back(
    authority: trustme.CA, version: ssl.TLSVersion, sizes: list[int], kind: Kind
) -> None:
    with linked(authority, version, kind=kind) as link:
        data = [bytes([65 + place]) * size for place, size in enumerate(sizes)]
        owed = Owed()
        link.side.output += data
        link.transport.owe(owed, sum(sizes))
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(receive(link.peer, sum(sizes))))
        thread.start()
        until(link.loop, lambda: owed.released_bytes == sum(sizes))
        thread.join()

        assert got == [b"".join(data)]


@with_both_kinds
def test_output_queued_while_a_record_is_half_sent_follows_in_order(authority: trustme.CA, kind: Kind) -> None:
    """OpenSSL wants a refused piece again as it was; more may only come behind it."""
    with linked(authority, kind=kind) as link:
        link.side.output.append(b"a" * MANY_BYTES)
        link.transport.flush_later()
        turns(link.loop)
        assert link.transport.queued_bytes
        for _ in range(3):
            link.side.output += [b"b" * 10, b"c" * 100_000]
            link.transport.flush_later()
            turns(link.loop, 1)
        got: list[bytes] = []
        size_bytes = MANY_BYTES + 3 * 100_010
        thread = threading.Thread(target=lambda: got.append(receive(link.peer, size_bytes)))
        thread.start()
        until(link.loop, lambda: not link.transport.queued_bytes)
        thread.join()

        assert got == [b"a" * MANY_BYTES + (b"b" * 10 + b"c" * 100_000) * 3]


def receive_all(link: TlsLink, size: int) -> None:
    """Until the end, which the peer signals by TCP alone."""

    def send() -> None:
        link.peer.sendall(b"x" * size)
        socket.socket.shutdown(link.peer, socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    until(link.loop, lambda: link.side.has_eof)
    thread.join()


@with_both_kinds
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 16_384, 16_385, MANY_BYTES])
def test_input_of_any_size_comes_through_and_so_does_the_end(
    authority: trustme.CA, version: ssl.TLSVersion, size: int, kind: Kind
) -> None:
    with linked(authority, version, kind=kind) as link:
        receive_all(link, size)

        assert len(link.side.received) == size


def test_sockets_that_are_ready_together_share_what_a_turn_takes(authority: trustme.CA) -> None:
    # Any kernel buffers that much unread; all together are more than one turn reads.
    count, size_bytes = 48, 40_000
    with loop_of() as loop, ExitStack() as stack:
        links = [TlsLink(loop, authority, ssl.TLSVersion.TLSv1_3) for _ in range(count)]
        for link in links:
            stack.callback(link.peer.close)
            stack.callback(link.transport.abort)
            link.transport.pause_reading()
            link.peer.sendall(b"x" * size_bytes)
            link.transport.resume_reading()
        by_turn: list[int] = []

        def is_done() -> bool:
            by_turn.append(sum(len(link.side.received) for link in links))
            return by_turn[-1] == count * size_bytes

        until(loop, is_done)

        assert max(after - before for before, after in pairwise(by_turn)) <= READ_BYTES


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 100, 16_384, 200_000])
@pytest.mark.parametrize("asks", [False, True])
def test_an_end_without_close_notify_is_reported_as_cut_off_when_requested(
    authority: trustme.CA, version: ssl.TLSVersion, size: int, asks: bool
) -> None:
    with linked(authority, version, tells_cut_off=asks) as link:
        receive_all(link, size)

        assert len(link.side.received) == size
        assert link.transport.is_cut_off == asks


@with_both_kinds
@pytest.mark.parametrize("size", [100, 16_384, 200_000])
def test_an_end_by_close_notify_alone_is_seen(authority: trustme.CA, size: int, kind: Kind) -> None:
    """The peer closes TLS and keeps its socket open: no socket event follows once the record was read."""
    with linked(authority, tells_cut_off=True, kind=kind) as link:

        def send() -> None:
            link.peer.sendall(b"x" * size)
            # Waits for our close_notify, which is sent when we finish.
            link.peer.unwrap()

        thread = threading.Thread(target=send)
        thread.start()
        until(link.loop, lambda: link.side.has_eof)
        assert len(link.side.received) == size
        assert not link.transport.is_cut_off
        link.transport.finish()
        turns(link.loop)
        thread.join()


@with_both_kinds
def test_input_before_a_broken_record_is_delivered(authority: trustme.CA, kind: Kind) -> None:
    with linked(authority, kind=kind) as link:
        link.transport.pause_reading()
        link.peer.sendall(b"x" * 50_000)
        raw = socket.socket(fileno=link.peer.detach())
        raw.sendall(b"\x17\x03\x03\x00\x20" + b"?" * 32)
        link.transport.resume_reading()
        until(link.loop, lambda: link.side.error is not None)
        raw.close()

        assert len(link.side.received) == 50_000
        assert isinstance(link.side.error, ssl.SSLError)


def test_input_after_session_tickets_is_delivered_when_sending_discovers_a_reset(
    authority: trustme.CA,
) -> None:
    """As when a large upload is refused on a new connection."""
    with linked(authority, kind=TlsSocket, is_client=True) as link:
        link.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.side.output.append(b"unread, so closing resets")
        link.transport.flush()
        link.peer.sendall(b"no more, please")
        link.peer.close()
        wait_for_the_end_of(link.transport._sock)
        link.side.output.append(b"more")
        link.transport.flush()

        assert link.side.received == b"no more, please"
        assert link.transport.is_closed


def test_a_close_notify_before_a_reset_is_delivered_when_sending_discovers_the_reset(
    authority: trustme.CA,
) -> None:
    with linked(authority, kind=TlsSocket, is_client=True) as link:
        link.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.peer.sendall(b"no more, please")
        link.peer.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            link.peer.unwrap()
        link.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        link.peer.close()
        wait_for_the_end_of(link.transport._sock)
        link.side.output.append(b"more")
        link.transport.flush()

        assert link.side.received == b"no more, please"
        assert link.side.has_eof
        assert link.transport.is_closed


def test_a_paused_reader_that_wants_it_gets_the_rest_before_a_reset_when_it_resumes(authority: trustme.CA) -> None:
    with linked(authority, kind=TlsSocket, is_client=True) as link:
        link.transport.reads_rest_before_loss = True
        link.transport.pause_reading()
        link.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.peer.sendall(b"x" * 50_000)
        link.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        link.peer.close()
        wait_for_the_end_of(link.transport._sock)
        link.side.output.append(b"more")
        link.transport.flush()
        assert not link.transport.is_closed
        link.side.on_read = link.transport.pause_reading
        link.transport.resume_reading()
        turns(link.loop)
        assert not link.transport.is_closed
        link.side.on_read = lambda: None
        link.transport.resume_reading()
        turns(link.loop)

        assert len(link.side.received) == 50_000
        assert link.side.error is not None
        assert not link.side.has_eof


@with_both_kinds
def test_records_that_tls_has_already_read_are_delivered_after_a_pause(authority: trustme.CA, kind: Kind) -> None:
    with linked(authority, kind=kind) as link:
        link.side.on_read = link.transport.pause_reading
        link.peer.sendall(b"x" * 40_000)
        until(link.loop, lambda: bool(link.side.reads))
        turns(link.loop)
        first_bytes = len(link.side.received)
        link.side.on_read = lambda: None
        link.transport.resume_reading()
        until(link.loop, lambda: len(link.side.received) == 40_000)

        assert first_bytes <= 40_000


@pytest.mark.usefixtures("with_an_error")
@with_both_kinds
def test_an_owner_that_raises_outside_a_socket_event_is_notified_too(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: Kind
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    with linked(authority, kind=kind) as link:
        monkeypatch.setattr(link.side, "on_eof", fail)
        link.transport.pause_reading()
        # Records that are full: the end behind them is held back for a call of its own.
        link.peer.sendall(b"x" * 3 * TLS_RECORD_BYTES)
        socket.socket.shutdown(link.peer, socket.SHUT_WR)
        link.transport.resume_reading()
        until(link.loop, lambda: link.transport.is_closed)

        assert isinstance(link.side.error, ConnectionAbortedError)
        assert "bug in the handler of a socket" in caplog.text


@with_both_kinds
@pytest.mark.parametrize("records", [2, 3])
def test_an_error_behind_full_records_leaves_no_reference_cycle(
    authority: trustme.CA, records: int, kind: Kind
) -> None:
    """With it all of those records would stay in memory."""
    with uncollected() as garbage:
        with linked(authority, kind=kind) as link:
            link.transport.pause_reading()
            link.peer.sendall(bytes(records * TLS_RECORD_BYTES))
            socket.socket.sendall(link.peer, FORGED)
            link.transport.resume_reading()
            until(link.loop, partial(getattr, link.transport, "is_closed"))
            assert isinstance(link.side.error, ssl.SSLError)
        del link

        assert not [each for each in garbage("proxy") if isinstance(each, TlsInput)]


@with_both_kinds
def test_finishing_sends_close_notify_after_the_last_byte(authority: trustme.CA, kind: Kind) -> None:
    with linked(authority, kind=kind) as link:
        link.side.output.append(b"last words")
        link.transport.finish()
        turns(link.loop)

        assert receive(link.peer, 10) == b"last words"
        assert link.peer.recv(1) == b""


@with_both_kinds
def test_finishing_sends_queued_output_even_if_close_notify_came_after_full_records(
    authority: trustme.CA, kind: Kind
) -> None:
    with linked(authority, kind=kind) as link:

        def answer() -> None:
            link.side.output.append(b"last words")
            link.transport.finish()

        link.side.on_read = answer
        link.transport.pause_reading()
        link.peer.sendall(b"x" * TLS_RECORD_BYTES)
        link.peer.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            link.peer.unwrap()
        link.peer.settimeout(PATIENCE_S)
        link.transport.resume_reading()
        until(link.loop, lambda: link.side.closed == 1)

        assert link.peer.recv(100) == b"last words"


def test_finishing_sends_close_notify_as_soon_as_the_socket_takes_it(authority: trustme.CA) -> None:
    """Without it the peer cannot tell this end from a truncation by somebody else."""
    clock = Clock()
    with linked(authority, kind=TlsSocket, clock=clock) as link:
        # As when the socket takes the last byte of a response and not one more.
        sent_bytes = TLS_RECORD_BYTES
        with suppress(ssl.SSLWantWriteError):
            while True:
                sent_bytes += link.transport._sock.send(bytes(TLS_RECORD_BYTES))
        link.transport.finish()
        turns(link.loop)
        # Longer than the wait for a peer that has received everything.
        clock.passed_s += 3
        turns(link.loop)
        received: list[int] = []

        def read() -> None:
            received.append(len(receive(link.peer, sent_bytes)))
            received.append(len(link.peer.recv(1)))

        thread = threading.Thread(target=read)
        thread.start()
        until(link.loop, lambda: not thread.is_alive())

    assert received == [sent_bytes, 0]


@with_both_kinds
def test_an_abort_is_not_taken_for_a_clean_end(authority: trustme.CA, kind: Kind) -> None:
    with linked(authority, kind=kind) as link:
        link.transport.abort()

        with pytest.raises(OSError, match=r"reset|EOF"):
            link.peer.recv(1)


def test_a_handshake_that_does_not_end_times_out(authority: trustme.CA) -> None:
    clock = Clock()
    with loop_of(clock) as loop:
        server, _ = contexts(authority, ssl.TLSVersion.TLSv1_3)
        ours, peer = tcp_pair(SEND_BUFFER_BYTES)
        errors: list[OSError] = []
        tls_sock = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        Handshake(loop, tls_sock, loop.now_s + 5, lambda _: pytest.fail("done"), lambda _, e: errors.append(e)).start()
        turns(loop)
        assert not errors
        clock.passed_s += 6
        turns(loop)

        assert isinstance(errors[0], TimeoutError)
        tls_sock.close()
        peer.close()


@with_both_kinds
def test_a_handshake_goes_on_when_the_socket_has_room_again(authority: trustme.CA, kind: Kind) -> None:
    with loop_of() as loop:
        server, client = contexts(authority, ssl.TLSVersion.TLSv1_3)
        ours, raw = tcp_pair(1)
        peer = client.wrap_socket(raw, server_hostname="a.example", do_handshake_on_connect=False)
        peer.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            peer.do_handshake()
        # What fills the socket is not TLS: the peer takes it out before it goes on.
        filling_bytes = 0
        with suppress(BlockingIOError):
            while True:
                filling_bytes += ours.send(bytes(65536))
        done: list[ssl.SSLSocket | TlsSocket] = []
        deadline_s = loop.now_s + PATIENCE_S

        def on_failed(_: object, error: OSError) -> None:
            pytest.fail(str(error))

        tls_sock: ssl.SSLSocket | TlsSocket
        if kind is TlsSocket:
            tls_sock = taken_over = TlsSocket(ours, server)
            Handshake(loop, taken_over, deadline_s, done.append, on_failed).start()
        else:
            tls_sock = wrapped = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
            Handshake(loop, wrapped, deadline_s, done.append, on_failed).start()
        turns(loop)
        assert not done

        def go_on() -> None:
            left_bytes = filling_bytes
            while left_bytes:
                left_bytes -= len(socket.socket.recv(peer, left_bytes))
            peer.do_handshake()

        peer.settimeout(PATIENCE_S)
        thread = threading.Thread(target=go_on)
        thread.start()
        until(loop, lambda: bool(done))
        thread.join()
        tls_sock.close()
        peer.close()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b""])
def test_a_handshake_with_a_peer_that_does_not_speak_tls_fails(authority: trustme.CA, garbage: bytes) -> None:
    with loop_of() as loop:
        server, _ = contexts(authority, ssl.TLSVersion.TLSv1_3)
        ours, peer = tcp_pair(SEND_BUFFER_BYTES)
        errors: list[OSError] = []
        tls_sock = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        Handshake(loop, tls_sock, loop.now_s + 5, lambda _: pytest.fail("done"), lambda _, e: errors.append(e)).start()
        peer.sendall(garbage)
        peer.shutdown(socket.SHUT_WR)
        until(loop, lambda: bool(errors))
        tls_sock.close()
        peer.close()

        assert len(errors) == 1


def test_a_cancelled_handshake_makes_no_callback(authority: trustme.CA) -> None:
    with loop_of() as loop:
        server, _ = contexts(authority, ssl.TLSVersion.TLSv1_3)
        ours, peer = tcp_pair(SEND_BUFFER_BYTES)
        tls_sock = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        handshake = Handshake(
            loop, tls_sock, loop.now_s + 5, lambda _: pytest.fail("done"), lambda _, e: pytest.fail(str(e))
        )
        handshake.start()
        handshake.cancel()
        peer.sendall(b"garbage")
        turns(loop)
        tls_sock.close()
        peer.close()
