"""TLS one record at a time: how much a peer can make one call process."""

import contextlib
import fcntl
import select
import socket
import ssl
import struct
import termios
import threading
import weakref
from pathlib import Path

import pytest
import trustme

from daemonkit.tlssocket import TlsSocket
from tests.proxy.loop.keyupdates import key_updates
from tests.proxy.loop.sides import tcp_pair


def connected(
    tmp_path: Path, *, is_server: bool = True, beginning: bytes = b""
) -> tuple[TlsSocket, ssl.SSLSocket, Path]:
    """Our side, which does not block, the other one, and where that notes its secrets.

    `beginning` is what the other side sends before its handshake.
    """
    authority, secrets = trustme.CA(), tmp_path / "secrets"
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("a.example").configure_cert(server)
    authority.configure_trust(client)
    server.num_tickets = 0
    (client if is_server else server).keylog_filename = str(secrets)
    raw_ours, raw_theirs = tcp_pair()
    raw_ours.setblocking(True)
    raw_theirs.sendall(beginning)
    peers: list[ssl.SSLSocket] = []

    def shake_hands() -> None:
        if is_server:
            peers.append(client.wrap_socket(raw_theirs, server_hostname="a.example"))
        else:
            peers.append(server.wrap_socket(raw_theirs, server_side=True))

    thread = threading.Thread(target=shake_hands)
    thread.start()
    ours = TlsSocket(raw_ours, server) if is_server else TlsSocket(raw_ours, client, "a.example")
    ours.settimeout(10)
    ours.do_handshake()
    thread.join(10)
    ours.setblocking(False)
    return ours, peers[0], secrets


def waiting_bytes(sock: socket.socket) -> int:
    size_bytes: int = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]
    return size_bytes


def test_a_socket_on_which_tls_cannot_be_set_up_is_closed() -> None:
    ours, peer = tcp_pair()
    with peer:
        with pytest.raises(ValueError, match=r"cannot be an empty string|requires server_hostname"):
            TlsSocket(ours, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "")

        peer.settimeout(10)
        assert peer.recv(1) == b""


@pytest.mark.parametrize("is_server", [True, False], ids=["of a client", "of a backend"])
def test_a_call_processes_one_key_update_however_many_have_arrived(tmp_path: Path, is_server: bool) -> None:
    ours, peer, secrets = connected(tmp_path, is_server=is_server)
    with ours, peer:
        updates = key_updates(20, peer, secrets)
        socket.socket.send(peer, updates)
        ours.setblocking(True)
        ours.recv(len(updates), socket.MSG_PEEK | socket.MSG_WAITALL)
        ours.setblocking(False)
        for number in range(1, 21):
            with pytest.raises(ssl.SSLWantReadError):
                ours.recv(65536)
            assert waiting_bytes(ours) == len(updates) * (20 - number) // 20


def test_a_handshake_call_processes_few_records_however_many_have_arrived() -> None:
    """RFC 5246, 7.4.1.1: clients ignore a HelloRequest during a handshake."""
    raw_ours, peer = tcp_pair()
    requests = b"\x16\x03\x03\0\4\0\0\0\0" * 1_000
    with peer, TlsSocket(raw_ours, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "a.example") as ours:
        peer.sendall(requests)
        ours.setblocking(True)
        ours.recv(len(requests), socket.MSG_PEEK | socket.MSG_WAITALL)
        ours.setblocking(False)

        with pytest.raises(ssl.SSLWantReadError):
            ours.do_handshake()

        assert waiting_bytes(ours) > len(requests) / 2


def test_a_client_that_requests_key_updates_and_does_not_read_them_is_aborted(tmp_path: Path) -> None:
    ours, client, secrets = connected(tmp_path)
    with ours, client:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        updates = memoryview(key_updates(8_000, client, secrets, wants_answers=True))
        client.setblocking(False)

        with pytest.raises(ConnectionAbortedError, match="does not read them"):
            take_all(ours, client, updates)


def take_all(ours: TlsSocket, client: ssl.SSLSocket, records: memoryview) -> None:
    """None of them is data, so it ends with an error alone."""
    while True:
        with contextlib.suppress(BlockingIOError):
            records = records[socket.socket.send(client, records) :]
        assert select.select([ours], [], [], 10)[0], "all has been taken"
        with contextlib.suppress(ssl.SSLWantReadError):
            ours.recv(65536)


@pytest.mark.parametrize("beginning", [b"", b"\x17\x03", b"\x17\x03\x03\0\x30", b"\x17\x03\x03\0\x30abc"])
def test_an_eof_within_a_record_is_an_ordinary_eof(tmp_path: Path, beginning: bytes) -> None:
    ours, client, _ = connected(tmp_path)
    with ours, client:
        socket.socket.send(client, beginning)
        socket.socket.shutdown(client, socket.SHUT_WR)
        end = select.poll()
        end.register(ours, select.POLLRDHUP)
        assert end.poll(10_000), "the end has come"
        while waiting_bytes(ours):
            with contextlib.suppress(ssl.SSLWantReadError):
                assert ours.recv(65536) == b""

        assert [ours.recv(65536), ours.recv(65536)] == [b"", b""]


def test_a_record_without_content_is_no_eof(tmp_path: Path) -> None:
    ours, client, _ = connected(tmp_path, beginning=b"\x16\x03\x01\0\0")
    with ours, client:
        client.sendall(b"hello")
        assert select.select([ours], [], [], 10)[0]

        assert ours.recv(65536) == b"hello"


def test_a_closed_socket_that_is_still_referenced_frees_the_memory_of_openssl(tmp_path: Path) -> None:
    ours, client, _ = connected(tmp_path)
    tls = weakref.ref(ours._tls)
    with client:
        ours.close()
        ours.close()

        assert tls() is None
        assert ours.session is None
