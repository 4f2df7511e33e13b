"""The core tests, with the limits of the suite itself. `make conformance` runs all that we claim."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.conformance.__main__ import NOT_POSSIBLE
from tests.conformance.results import Summary
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here
from tests.support.tied import tied

CORE_TESTS = 41
"""37 for HTTP, and four for gRPC beside those that both have."""
TIMEOUT_S = 900.0


@pytest.mark.timeout(TIMEOUT_S + 60.0)
def test_all_core_tests_for_http_and_grpc_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.conformance", "--core", "--out", str(tmp_path)]

    done = subprocess.run(tied(command), cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    if done.returncode == NOT_POSSIBLE:
        not_possible_here(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=Summary)
    assert len(summary.passed) == CORE_TESTS
