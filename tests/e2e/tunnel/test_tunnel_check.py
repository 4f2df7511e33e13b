"""`tunnel-check` tells each step of a tunnel, and what helps where one fails."""

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


def test_all_is_well_with_a_tunnel_that_works() -> None:
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


def test_a_tunnel_that_is_not_remotely_managed_is_left_as_it_is() -> None:
    with Edge() as edge:
        edge.behave(Behaviour(is_remotely_managed=False))
        code, lines = told(edge, "--register")
        assert (code, [line.split()[0] for line in lines]) == (0, ["ok"] * 6)
        assert edge.ledger.unregistrations == 1
        assert not any(record.local_configurations for record in edge.ledger.records)


def test_an_address_that_is_left_out_is_told_with_its_reason() -> None:
    with Edge() as edge:
        code, lines = told(edge, addresses=["nowhere.invalid:7844", *edge.addresses])
        (line,) = (line for line in lines if "left out" in line)
        assert (code, "nowhere.invalid: no such host" in line) == (0, True)


def test_a_step_that_fails_comes_with_what_helps() -> None:
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


def test_addresses_that_are_none_of_the_version_are_told_with_what_asks_for_it() -> None:
    with Edge() as edge:
        code, lines = told(edge, "--edge-ip-version", "6")
        assert (code, len(lines)) == (1, 2)
        assert lines[1].endswith(f"{edge.addresses[1]}, which --edge-ip-version 6 asks for")


def test_the_address_that_connections_come_from_is_a_step_of_its_own_and_is_used() -> None:
    with Edge() as edge:
        code, lines = told(edge, "--edge-bind-address", "127.0.0.2")
        assert (code, len(lines)) == (0, 6)
        assert lines[1].split() == ["ok", "source", "127.0.0.2"]
        assert {record.source for record in edge.ledger.records} == {"127.0.0.2"}
        code, lines = told(edge, "--edge-bind-address", "192.0.2.1")
        assert (code, len(lines)) == (1, 2)
        assert lines[1].startswith("FAIL  source")
        assert lines[1].endswith("192.0.2.1: Cannot assign requested address, want an address that this host has")


def test_an_address_that_does_not_exist_is_told_without_a_word_of_srv() -> None:
    with Edge() as edge:
        code, lines = told(edge, addresses=["nowhere.invalid:7844"])
        assert (code, len(lines)) == (1, 2)
        assert "nowhere.invalid: no such host" in lines[1]
        assert lines[1].endswith("; check the DNS of this host")


@pytest.mark.parametrize("content", ["", "no certificate", f"{PEM_HEADER}\nAAAA\n{PEM_FOOTER}\n"])
def test_a_file_without_an_authority_is_what_is_wrong_and_not_the_way_to_the_edge(content: str, tmp_path: Path) -> None:
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
def test_each_way_in_which_a_registration_ends_comes_with_what_helps(behaviour: Behaviour, said: str) -> None:
    with Edge() as edge:
        edge.plan(Behaviour(), Behaviour(), behaviour)
        code, lines = told(edge, "--register")
        assert (code, len(lines)) == (1, 6)
        assert said in lines[5]


def test_packets_of_full_size_that_are_lost_on_the_way_are_told_and_do_not_keep_the_tunnel_from_working(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, whose first words can be made as large as newer TLS libraries have them."""

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
