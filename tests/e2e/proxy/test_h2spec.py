"""h2spec, strict, against the HTTP/2 server side in clear and over TLS: every case must pass."""

import pytest

from tests.support.gateway import Gateway, route_to
from tests.support.programs import built_program, run
from tests.support.recordingbackend import RecordingBackend

CASES = 146


@pytest.mark.parametrize("transport", ["h2c", "tls"])
def test_every_case_passes(gateway: Gateway, backend: RecordingBackend, transport: str) -> None:
    gateway.serve(route_to(backend.address))
    _, port = gateway.tls if transport == "tls" else gateway.clear
    options = ["--tls", "--insecure"] if transport == "tls" else []

    command = [str(built_program("h2spec")), "--strict", "--timeout", "5", "--host", "localhost", "--port", str(port)]
    done = run([*command, *options], timeout_s=100)

    report = done.stdout.decode()
    failures = report[max(report.find("Failures:"), 0) :]
    assert f"{CASES} tests, {CASES} passed, 0 skipped, 0 failed" in report, failures
    assert 0 == done.returncode
