"""The edge's addresses, looked up at name servers of the tests."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest
import trustme

from daemonkit import wholenames
from daemonkit.addresses import ListenAddress
from daemonkit.logformat import line_of
from proxy.supervisor.edgefinder import DiscoveredEdge, NamedEdge
from proxy.tunnel.addresses import EdgeAddress, IpVersion
from proxy.tunnel.discovery import DiscoveryFailed, DnsOverTls

SRV = "_v2-origintunneld._tcp.argotunnel.com."
RECORDS = ("1 1 7844 localhost.", "2 1 7844 nowhere.invalid.", "3 1 7844 unused.invalid.")


def answer(wire: bytes, records: tuple[str, ...], asked: list[str]) -> bytes:
    query = dns.message.from_wire(wire)
    name = query.question[0].name.to_text()
    asked.append(name)
    response = dns.message.make_response(query)
    if records and name == SRV:
        response.answer.append(dns.rrset.from_text(name, 60, "IN", "SRV", *records))
    else:
        response.set_rcode(dns.rcode.NXDOMAIN)
    return response.to_wire()


class NameServer:
    """Over UDP, as the host's resolver."""

    def __init__(self, records: tuple[str, ...], host: str = "127.0.0.1") -> None:
        self.asked: list[str] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((host, 0))
        self.host, self.port = self._sock.getsockname()
        self._records = records
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, client = self._sock.recvfrom(4096)
                if not wire:
                    return
                self._sock.sendto(answer(wire, self._records, self.asked), client)

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (self.host, self.port))
        self._sock.close()


@contextlib.contextmanager
def resolver(records: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer(records)
    found = dns.resolver.Resolver(configure=False)
    found.nameservers, found.port = ["127.0.0.1"], server.port
    monkeypatch.setattr(dns.resolver, "Resolver", lambda: found)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def over_tls(
    records: tuple[str, ...], directory: Path, monkeypatch: pytest.MonkeyPatch, said: bytes | None = None
) -> Iterator[tuple[DnsOverTls, list[str]]]:
    """`said` is sent in the place of an answer."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(directory / "system.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("resolver.example").configure_cert(context)
    asked: list[str] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError), context.wrap_socket(self.request, server_side=True) as sock:
                (size,) = struct.unpack("!H", sock.recv(2))
                reply = answer(sock.recv(size), records, asked)
                sock.sendall(struct.pack("!H", len(reply)) + reply if said is None else said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address: Any = server.server_address
        yield DnsOverTls("127.0.0.1", address[1], "resolver.example", 10.0), asked
        server.shutdown()


def test_discovery_finds_two_regions_with_the_port_of_the_srv_record(monkeypatch: pytest.MonkeyPatch) -> None:
    with resolver(RECORDS, monkeypatch) as server:
        first, second = DiscoveredEdge("").find()
    assert EdgeAddress("127.0.0.1", 7844) in first
    assert second == ()
    assert server.asked == [SRV]


def test_the_srv_name_has_the_region_of_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with resolver((), monkeypatch) as server, pytest.raises(DiscoveryFailed, match="_fed-v2-origintunneld"):
        DiscoveredEdge("fed", DnsOverTls("127.0.0.1", 1, "localhost", 1.0)).find()
    assert server.asked == ["_fed-v2-origintunneld._tcp.argotunnel.com."]


def test_discovery_falls_back_to_dns_over_tls_if_the_resolver_has_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with resolver((), monkeypatch), over_tls(RECORDS, tmp_path, monkeypatch) as (fallback, asked):
        first, _ = DiscoveredEdge("", fallback).find()
    assert EdgeAddress("127.0.0.1", 7844) in first
    assert asked == [SRV]


@pytest.mark.parametrize(
    "content", [b"nameserver 127.0.0.1:53\n", b"# f\xfcr zuhause\nnameserver 127.0.0.1\n"], ids=["port", "Latin-1"]
)
def test_discovery_falls_back_to_dns_over_tls_if_resolv_conf_cannot_be_used(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "resolv.conf"
    file.write_bytes(content)
    monkeypatch.setattr(dns.resolver, "Resolver", partial(dns.resolver.Resolver, str(file)))
    with over_tls(RECORDS, tmp_path, monkeypatch) as (fallback, asked):
        first, _ = DiscoveredEdge("", fallback).find()
    assert EdgeAddress("127.0.0.1", 7844) in first
    assert asked == [SRV]


def test_a_changed_resolv_conf_is_used_for_the_next_lookup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    ports: dict[str, int] = {}

    class OfHost(dns.resolver.Resolver):
        def __init__(self) -> None:
            super().__init__(configure=False)
            self.nameserver_ports = ports
            self.read_resolv_conf(str(file))

    monkeypatch.setattr(dns.resolver, "Resolver", OfHost)
    monkeypatch.setattr(dns.resolver, "default_resolver", None)
    nobody = DnsOverTls("127.0.0.1", 1, "localhost", 1.0)
    with (
        contextlib.closing(NameServer(())) as former,
        contextlib.closing(NameServer(RECORDS, "127.0.0.2")) as present,
    ):
        ports.update({former.host: former.port, present.host: present.port})
        file.write_text(f"nameserver {former.host}\n")
        with pytest.raises(DiscoveryFailed, match="does not exist"):
            DiscoveredEdge("", nobody).find()
        file.write_text(f"nameserver {present.host}\n")
        first, _ = DiscoveredEdge("", nobody).find()
    assert EdgeAddress("127.0.0.1", 7844) in first
    assert (former.asked, present.asked) == ([SRV], [SRV])


def test_an_answer_over_tls_counts_only_with_the_right_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with resolver((), monkeypatch), over_tls(RECORDS, tmp_path, monkeypatch) as (fallback, asked):
        stranger = DnsOverTls(fallback.ip, fallback.port, "other.example", 10.0)
        with pytest.raises(DiscoveryFailed, match="--edge"):
            DiscoveredEdge("", stranger).find()
    assert asked == []


def test_an_answer_whose_names_are_long_chains_of_pointers_costs_little(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """dnspython 2.8 followed 8,000 pointers for each record: 2.4 s for this answer (CVE-2026-114605)."""
    question = b"\x01a\x00" + struct.pack("!HH", 33, 1)
    opening = b"\xc0\x0c" + struct.pack("!HHIH", 65280, 1, 0, 16_000)
    at = 12 + len(question) + len(opening)
    chain_of_pointers = b"".join(struct.pack("!H", 0xC000 | each) for each in (12, *range(at, at + 15_998, 2)))
    record = struct.pack("!HHHIH", 0xC000 | at + 15_998, 65281, 1, 0, 0)
    body = question + opening + chain_of_pointers + 300 * record
    message = struct.pack("!HHHHHH", 1, 0x8180, 1, 301, 0, 0) + body

    said = struct.pack("!H", len(message)) + message
    with resolver((), monkeypatch), over_tls((), tmp_path, monkeypatch, said) as (fallback, asked):
        began_s = time.thread_time()
        with pytest.raises(DiscoveryFailed):
            DiscoveredEdge("", fallback).find()
        assert time.thread_time() - began_s < 1
    assert asked == [SRV]


@pytest.mark.parametrize("said", [b"", b"\x00", b"\x00\xffcut", b"\x00\x04junk"], ids=["end", "cut", "short", "junk"])
def test_if_dns_over_tls_fails_too_the_first_error_is_reported(
    said: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with resolver((), monkeypatch), over_tls(RECORDS, tmp_path, monkeypatch, said) as (fallback, asked):
        with pytest.raises(DiscoveryFailed, match=r"^SRV _v2.* does not exist"):
            DiscoveredEdge("", fallback).find()
        assert asked == [SRV]


def test_named_addresses_make_two_regions_and_names_that_do_not_exist_are_left_out() -> None:
    named = ["127.0.0.1:1", "nowhere.invalid:2", "127.0.0.3:3", "[::1]:4"]
    regions = NamedEdge([ListenAddress.parse(text) for text in named]).find()
    assert regions == ((EdgeAddress("127.0.0.1", 1), EdgeAddress("::1", 4)), (EdgeAddress("127.0.0.3", 3),))


@pytest.mark.parametrize(
    ("version", "ip"),
    [(IpVersion.AUTO, "2001:db8::1"), (IpVersion.IPV4, "192.0.2.1"), (IpVersion.IPV6, "2001:db8::1")],
)
def test_a_dual_stack_name_is_its_first_address_of_an_allowed_family(
    version: IpVersion, ip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("2001:db8::1", 1, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("192.0.2.1", 1)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_question, **_kind: found)

    assert ((EdgeAddress(ip, 1),), ()) == NamedEdge([ListenAddress.parse("edge.example:1")], version).find()


class Names:
    """In the place of the host's resolver: `errors` by host; `blocked` names get the answer of a DNS filter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, int] = {}
        self.blocked: set[str] = set()
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, **_kind: Any) -> list[Any]:
        self.asked.append(host)
        host = host.rstrip(".")
        if host in self.errors:
            raise socket.gaierror(self.errors[host], "no answer")
        if host in self.blocked:
            return [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("0.0.0.0", port)),
                (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::", port, 0, 0)),
            ]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (f"192.0.2.{len(host)}", port))]


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "discovered"])
def test_a_host_whose_lookup_fails_keeps_its_addresses_until_it_is_known_not_to_exist(
    is_named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, aa = EdgeAddress("192.0.2.1", 7844), EdgeAddress("192.0.2.2", 7844)
    records = ("1 1 7844 a.", "2 1 7844 aa.")
    finder = NamedEdge([ListenAddress("a", 7844), ListenAddress("aa", 7844)]) if is_named else DiscoveredEdge("")
    names = Names(monkeypatch)
    with resolver(records, monkeypatch):
        names.errors = {"aa": socket.EAI_AGAIN}
        assert [*chain(*finder.find())] == [a], "it had none before"
        names.errors = {}
        assert [*finder.find()] == [(a,), (aa,)]
        caplog.clear()

        names.errors = {"aa": socket.EAI_AGAIN}
        assert [*finder.find()] == [(a,), (aa,)]
        assert [line_of(record)["msg"] for record in caplog.records] == [
            "cannot look up a host of the edge again, its known addresses stay in use"
        ]
        for error in (socket.EAI_NONAME, socket.EAI_AGAIN):
            names.errors = {"aa": error}
            assert [*chain(*finder.find())] == [a]
        names.errors = {"a": socket.EAI_AGAIN, "aa": socket.EAI_AGAIN}
        with pytest.raises(DiscoveryFailed, match="no address"):
            finder.find()


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "discovered"])
def test_a_host_that_a_dns_filter_blocks_keeps_the_addresses_it_had(
    is_named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, aa = EdgeAddress("192.0.2.1", 7844), EdgeAddress("192.0.2.2", 7844)
    finder = NamedEdge([ListenAddress("a", 7844), ListenAddress("aa", 7844)]) if is_named else DiscoveredEdge("")
    names = Names(monkeypatch)
    with resolver(("1 1 7844 a.", "2 1 7844 aa."), monkeypatch):
        names.blocked = {"aa"}
        assert [*chain(*finder.find())] == [a]
        (line,) = [line_of(record) for record in caplog.records]
        assert "the answer is 0.0.0.0 and ::, so a DNS filter blocks this name" in str(line["error"])
        names.blocked = set()
        assert [*finder.find()] == [(a,), (aa,)]

        names.blocked = {"aa"}
        assert [*finder.find()] == [(a,), (aa,)]
        names.blocked = {"a", "aa"}
        with pytest.raises(DiscoveryFailed, match="no address"):
            finder.find()


def test_the_unspecified_address_may_be_named_as_edge() -> None:
    assert NamedEdge([ListenAddress("0.0.0.0", 7844)]).find() == ((EdgeAddress("0.0.0.0", 7844),), ())


def test_discovered_hosts_are_looked_up_without_search_domains_unless_in_the_hosts_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts_file = tmp_path / "hosts"
    monkeypatch.setattr(wholenames, "HOSTS_FILE", hosts_file)
    names = Names(monkeypatch)
    records = ("1 1 7844 region1.example.", "2 1 7844 region2.example.")
    with resolver(records, monkeypatch):
        DiscoveredEdge("").find()
        assert names.asked == ["region1.example.", "region2.example."]

        hosts_file.write_text("# 192.0.2.1 region1.example\n192.0.2.2 other.example Region2.example # ours\n")
        DiscoveredEdge("").find()
    assert names.asked[2:] == ["region1.example.", "region2.example"]


def test_names_of_the_operator_are_looked_up_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    NamedEdge([ListenAddress("edge", 7844)]).find()
    assert names.asked == ["edge"]


def test_a_nonexistent_host_is_named_in_the_error() -> None:
    with pytest.raises(DiscoveryFailed, match=r"nowhere\.invalid: no such host"):
        NamedEdge([ListenAddress.parse("nowhere.invalid:1")]).find()


@pytest.mark.parametrize("host", ["a..example", "x" * 64 + ".example"])
def test_an_invalid_host_name_is_reported_like_a_nonexistent_one(host: str) -> None:
    with pytest.raises(DiscoveryFailed, match=r"example: no such host \(.*label"):
        NamedEdge([ListenAddress.parse(f"{host}:1")]).find()
