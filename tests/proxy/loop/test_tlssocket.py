"""TLS a record at a time: what a client can have a call take."""

import fcntl
import socket
import ssl
import struct
import termios
import threading
from pathlib import Path

import pytest
import trustme

from proxy.loop.tlssocket import TlsSocket
from tests.proxy.loop.keyupdates import key_updates
from tests.proxy.loop.sides import tcp_pair


def connected(tmp_path: Path) -> tuple[TlsSocket, ssl.SSLSocket, Path]:
    """Our side, which does not block, and a client."""
    authority, secrets = trustme.CA(), tmp_path / "secrets"
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("a.example").configure_cert(server)
    authority.configure_trust(client)
    client.keylog_filename = str(secrets)
    raw_ours, raw_theirs = tcp_pair()
    raw_ours.setblocking(True)
    peers: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: peers.append(client.wrap_socket(raw_theirs, server_hostname="a.example")))
    thread.start()
    ours = TlsSocket(raw_ours, server)
    ours.settimeout(10)
    ours.do_handshake()
    thread.join(10)
    ours.setblocking(False)
    return ours, peers[0], secrets


def waiting_bytes(sock: socket.socket) -> int:
    size_bytes: int = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]
    return size_bytes


def test_a_call_takes_one_change_of_keys_however_many_have_come(tmp_path: Path) -> None:
    ours, client, secrets = connected(tmp_path)
    with ours, client:
        updates = key_updates(20, client, secrets)
        socket.socket.send(client, updates)
        for number in range(1, 21):
            with pytest.raises(ssl.SSLWantReadError):
                ours.recv(65536)
            assert waiting_bytes(ours) == len(updates) * (20 - number) // 20
