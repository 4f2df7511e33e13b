"""TLS doors on loopback: certificates of an authority of our own, listeners with them, and clients that trust it."""

import contextlib
import socket
import ssl
from typing import Any

import trustme

from proxy.routing import socket_door
from tests.proxy.doors.rig import Rig, ask, connect, listening_socket, port_of, table_of

CA = trustme.CA()
OTHER_CA = trustme.CA()


def pem_of(*names: str, key_type: trustme.KeyType = trustme.KeyType.ECDSA) -> dict[str, str]:
    leaf = CA.issue_cert(*names, key_type=key_type)
    chain = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
    return {"certificate": chain, "privateKey": leaf.private_key_pem.bytes().decode()}


def ca_pem(ca: trustme.CA) -> str:
    return ca.cert_pem.bytes().decode()


def https(name: str, *certificates: dict[str, str], hostname: str | None = None, **tls: Any) -> dict[str, Any]:
    listener: dict[str, Any] = {"name": name, "protocol": "HTTPS", "tls": {"certificates": certificates, **tls}}
    return listener | ({"hostname": hostname} if hostname else {})


class TLSRig(Rig):
    def open(self, *listeners: dict[str, Any], **settings: Any) -> "TLSRig":
        sock = listening_socket()
        self.port = port_of(sock)
        self.reload(*listeners, sock=sock, **settings)
        return self

    def reload(self, *listeners: dict[str, Any], sock: socket.socket | None = None, **settings: Any) -> None:
        table = table_of(*({**one, "address": "127.0.0.1", "port": self.port} for one in listeners), **settings)
        sockets = {} if sock is None else {socket_door("127.0.0.1", self.port): sock}
        self.use(table, sockets)

    def handshake(
        self, server_name: str | None = "a.example", *alpn: str, context: ssl.SSLContext | None = None
    ) -> ssl.SSLSocket:
        context = context or client_context(*alpn)
        return context.wrap_socket(connect(self.port), server_hostname=server_name)


def client_context(*alpn: str, checks: bool = True) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    context.check_hostname = False
    if not checks:
        context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def client_hello(server_name: str = "a.example") -> bytes:
    """The first that a client sends."""
    output = ssl.MemoryBIO()
    connection = client_context().wrap_bio(ssl.MemoryBIO(), output, server_hostname=server_name)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return output.read()


def names_of(sock: ssl.SSLSocket) -> set[str]:
    certificate = sock.getpeercert()
    assert certificate is not None
    return {str(pair[1]) for pair in certificate["subjectAltName"]}


def status_of(sock: ssl.SSLSocket, path: str = "/hello") -> int:
    ask(sock, path)
    return int(sock.recv(65536).split()[1])


A = pem_of("a.example")
B = pem_of("b.example")
WILD = pem_of("*.wild.example")
