"""`tunnel-check` reports each step of setting up a tunnel, and a remedy where one fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from ssl import PEM_FOOTER, PEM_HEADER, SSLContext

import pytest

from daemonkit import logs
from proxy.commands.tunnelcheck import check_tunnel
from proxy.tunnel import dialling, links
from proxy.tunnel.capnp import MAX_MESSAGE_BYTES
from proxy.tunnel.dialling import make_context
from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES
from tests.support.daemon import Daemon
from tests.support.edge.behaviour import Behaviour, unauthorized
from tests.support.edge.edge import Edge

DONE_S = 60.0


def told(edge: Edge, *arguments: str, token: str = "", addresses: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Exit code and lines."""
    given = ["--edge", ",".join(addresses or edge.addresses), "--edge-ca-file", str(edge.ca_file), *arguments]
    with Daemon("proxy", ["tunnel-check", *given], {"TUNNEL_TOKEN": token or edge.tunnel.token}) as command:
        return command.wait(DONE_S), list(command.lines)


def test_a_working_tunnel_passes_every_step() -> None:
    with Edge() as edge:
        code, lines = told(edge, "--register")
        assert code == 0
        assert [line.split()[0] for line in lines] == ["ok"] * 6
        assert str(edge.tunnel.tunnel_id) in lines[0]
        assert "registered at LIS" in lines[-1]
        assert edge.ledger.unregistrations == 1
        assert edge.tunnel.token not in "\n".join(lines)


def test_nothing_is_registered_unless_asked_for() -> None:
    with Edge() as edge:
        code, lines = told(edge)
        assert (code, len(lines)) == (0, 5)
        assert not edge.ledger.registrations


def test_a_locally_managed_tunnel_gets_no_configuration() -> None:
    with Edge() as edge:
        edge.behave(Behaviour(is_remotely_managed=False))
        code, lines = told(edge, "--register")
        assert (code, [line.split()[0] for line in lines]) == (0, ["ok"] * 6)
        assert edge.ledger.unregistrations == 1
        assert not any(record.local_configurations for record in edge.ledger.records)


def test_an_unresolvable_address_is_left_out_with_its_reason() -> None:
    with Edge() as edge:
        code, lines = told(edge, addresses=["nowhere.invalid:7844", *edge.addresses])
        (line,) = (line for line in lines if "left out" in line)
        assert (code, "nowhere.invalid: no such host" in line) == (0, True)


def test_a_failed_step_names_a_remedy() -> None:
    with Edge() as edge:
        edge.refuse(edge.addresses[0])
        edge.plan(Behaviour(), Behaviour(refusal=unauthorized()))
        code, lines = told(edge, "--register")
        assert code == 1
        assert lines[3].startswith("FAIL")
        assert "Connection refused; allow outgoing TCP" in lines[3]
        assert lines[3].endswith("if only one IP version fails, select the other with --edge-ip-version")
        assert lines[4].startswith("ok")
        assert lines[5].startswith("FAIL")
        assert "copy its token again" in lines[5]
        code, lines = told(edge, token="no token")
        assert (code, len(lines)) == (1, 1)
        assert "no token" not in lines[0].removeprefix("FAIL  token")


def test_addresses_of_the_wrong_ip_version_are_reported_with_the_option() -> None:
    with Edge() as edge:
        code, lines = told(edge, "--edge-ip-version", "6")
        assert (code, len(lines)) == (1, 2)
        assert lines[1].endswith(f"{edge.addresses[1]}, which --edge-ip-version 6 asks for")


def test_the_source_address_is_a_step_of_its_own_and_is_used() -> None:
    with Edge() as edge:
        code, lines = told(edge, "--edge-bind-address", "127.0.0.2")
        assert (code, len(lines)) == (0, 6)
        assert lines[1].split() == ["ok", "source", "127.0.0.2"]
        assert {record.source for record in edge.ledger.records} == {"127.0.0.2"}
        code, lines = told(edge, "--edge-bind-address", "192.0.2.1")
        assert (code, len(lines)) == (1, 2)
        assert lines[1].startswith("FAIL  source")
        assert lines[1].endswith("192.0.2.1: Cannot assign requested address, want an address that this host has")


def test_an_unresolvable_given_address_is_reported_without_mentioning_srv() -> None:
    with Edge() as edge:
        code, lines = told(edge, addresses=["nowhere.invalid:7844"])
        assert (code, len(lines)) == (1, 2)
        assert "nowhere.invalid: no such host" in lines[1]
        assert lines[1].endswith("; check the DNS of this host")


@pytest.mark.parametrize("content", ["", "no certificate", f"{PEM_HEADER}\nAAAA\n{PEM_FOOTER}\n"])
def test_a_ca_file_without_a_certificate_fails_the_roots_step(content: str, tmp_path: Path) -> None:
    file = tmp_path / "roots.pem"
    file.write_text(content)
    with Edge() as edge:
        code, lines = told(edge, "--edge-ca-file", str(file))
        assert (code, len(lines)) == (1, 3)
        wanted = f"--edge-ca-file {file}: cannot read certificates (PEM) from it: "
        assert lines[2].startswith(f"FAIL  roots         {wanted}")


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (Behaviour(exception="a bug of the edge"), "a bug of the edge; the edge has a problem of its own"),
        (Behaviour(drops_at_register=True), "; try again; if it happens again, check --edge"),
        (Behaviour(location="L" * MAX_MESSAGE_BYTES), "; what answers does not speak the edge's protocol"),
    ],
    ids=["exception", "dropped", "malformed"],
)
def test_each_registration_failure_names_a_remedy(behaviour: Behaviour, said: str) -> None:
    with Edge() as edge:
        edge.plan(Behaviour(), Behaviour(), behaviour)
        code, lines = told(edge, "--register")
        assert (code, len(lines)) == (1, 6)
        assert said in lines[5]


def test_loss_of_full_size_packets_is_reported_although_the_tunnel_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, whose ClientHello can be made as large as that of newer TLS libraries."""

    def wordy(roots: str) -> SSLContext:
        context = make_context(roots)
        context.set_alpn_protocols([name * 200 for name in "abcdef"])
        return context

    monkeypatch.setattr(logs, "setup", lambda *_: None)
    monkeypatch.setattr(links, "make_context", wordy)
    monkeypatch.setattr(dialling, "HANDSHAKE_TIMEOUT_S", 3.0)
    with Edge(["127.0.0.1:0"]) as edge:
        edge.lose_large(SMALL_SEGMENT_BYTES + 100)
        given = ["--edge", edge.addresses[0], "--edge-ca-file", str(edge.ca_file)]
        code = check_tunnel([*given, "--register"], {"TUNNEL_TOKEN": edge.tunnel.token})
    lines = capsys.readouterr().out.splitlines()
    assert (code, [line.split()[0] for line in lines]) == (0, ["ok"] * 5)
    assert all("full-size packets are lost on the way" in line for line in lines[-2:])
