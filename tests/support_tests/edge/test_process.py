"""The simulated edge as a process of its own, as demos use it."""

import signal
import sys
from pathlib import Path

from proxy.tunnel.controlevents import Registered, RegistrationFailed
from tests.support.process import Process
from tests.support.programs import curl
from tests.support_tests.edge.connector import WAIT_S, Connector

CLI = [sys.executable, "-m", "tests.support.edge"]


def said(process: Process, word: str) -> str:
    """Returns the rest of the first line that begins with `word`."""
    return process.wait_for_line(lambda line: line.startswith(word + " "), word, WAIT_S).partition(" ")[2]


def test_the_output_of_the_edge_suffices_to_register_and_to_send_requests(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    with Process("edge", [*CLI, "--ca-out", str(ca_file), "--location", "OPO"]) as process:
        token, front = said(process, "token"), said(process, "front")
        with Connector(said(process, "edge"), ca_file, token) as connector:
            answer = connector.wait_for_event()
            assert isinstance(answer, Registered)
            assert "OPO" == answer.details.location
            process.wait_for_line(lambda line: "registered, index 0 of 1.2.3" in line, "the registration", WAIT_S)
            assert b"hello\n" == curl(f"{front}/hello").stdout
        process.wait_for_line(lambda line: "over, closed by the connector" in line, "the end", WAIT_S)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(WAIT_S)


def test_a_connector_trusts_the_next_run_when_the_authority_is_kept(tmp_path: Path) -> None:
    ca_file, authority = tmp_path / "ca.pem", tmp_path / "authority.pem"
    options = ["--authority", str(authority), "--ca-out", str(ca_file)]
    with Process("edge", [*CLI, *options]) as process:
        first, token = said(process, "edge"), said(process, "token")
    assert 0o600 == authority.stat().st_mode & 0o777

    before = ca_file.read_bytes()
    with Process("edge", [*CLI, *options, "--listen", first]) as process:
        assert (first, token) == (said(process, "edge"), said(process, "token"))
        with Connector(first, ca_file, token) as connector:
            assert isinstance(connector.wait_for_event(), Registered)
    assert before == ca_file.read_bytes()


def test_the_edge_rejects_connectors_on_demand(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    cause = "Unauthorized: Invalid tunnel secret"
    with Process("edge", [*CLI, "--ca-out", str(ca_file), "--reject", cause]) as process:
        with Connector(said(process, "edge"), ca_file, said(process, "token")) as connector:
            answer = connector.wait_for_event()
            connector.wait_until_closed()
        assert isinstance(answer, RegistrationFailed)
        assert cause == answer.error
        process.wait_for_line(lambda line: "over, closed after the refusal" in line, "the end", WAIT_S)
