"""The end of a listening socket: its accept queue is served, and later clients reach the next listener."""

import socket

import pytest

from proxy.doors.synfilter import drop_new_handshakes


def listener(family: socket.AddressFamily, port: int = 0) -> socket.socket:
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
    sock.listen(100)
    sock.settimeout(10)
    return sock


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_accept_queue_is_kept_and_no_connection_is_added(family: socket.AddressFamily) -> None:
    with listener(family) as sock, socket.create_connection(sock.getsockname()[:2], timeout=10) as early:
        drop_new_handshakes(sock)
        with pytest.raises(TimeoutError):
            socket.create_connection(sock.getsockname()[:2], timeout=0.2)

        accepted, _ = sock.accept()
        with accepted:
            early.sendall(b"still there")
            assert b"still there" == accepted.recv(100)


def test_a_late_client_reaches_the_next_listener_by_its_second_syn() -> None:
    with listener(socket.AF_INET) as sock:
        place = sock.getsockname()
        drop_new_handshakes(sock)
        with socket.socket() as client:
            client.setblocking(False)
            client.connect_ex(place)
            successor = listener(socket.AF_INET, place[1])
            sock.close()
            with successor:
                accepted, address = successor.accept()
                with accepted:
                    assert client.getsockname() == address
