"""`tunnel-check` tells each step of a tunnel, and what helps where one fails."""

from __future__ import annotations

from tests.support.daemon import Daemon
from tests.support.edge.behaviour import Behaviour, unauthorized
from tests.support.edge.edge import Edge

DONE_S = 60.0


def told(edge: Edge, *arguments: str, token: str = "") -> tuple[int, list[str]]:
    """Exit code and lines."""
    given = ["--edge", ",".join(edge.addresses), "--edge-ca-file", str(edge.ca_file), *arguments]
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


def test_a_step_that_fails_comes_with_what_helps() -> None:
    with Edge() as edge:
        edge.refuse(edge.addresses[0])
        edge.plan(Behaviour(), Behaviour(refusal=unauthorized()))
        code, lines = told(edge, "--register")
        assert code == 1
        assert lines[3].startswith("FAIL")
        assert "Connection refused; let outgoing TCP" in lines[3]
        assert lines[4].startswith("ok")
        assert lines[5].startswith("FAIL")
        assert "copy its token again" in lines[5]
        code, lines = told(edge, token="no token")
        assert (code, len(lines)) == (1, 1)
        assert "no token" not in lines[0].removeprefix("FAIL  token")
