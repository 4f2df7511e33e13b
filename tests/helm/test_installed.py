"""The chart at work: walk.py, in a network namespace of its own."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.namespace import NotPossible, entering
from tests.kube.kubeenv import find_program, find_programs
from tests.support.kube_fixtures import require
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here
from tests.support.tied import tied

TIMEOUT_S = 300.0


@pytest.mark.timeout(TIMEOUT_S + 60.0)
def test_the_chart_installs_serves_upgrades_and_uninstalls(tmp_path: Path) -> None:
    for name in ("helm", "conformance", "gateway-api-crds"):
        require(partial(find_program, name))
    require(find_programs)
    walk = Path(__file__).with_name("walk.py")
    pytest_ = [sys.executable, "-m", "pytest", str(walk), "-p", "no:xdist", "-x", "--timeout=240"]
    try:
        command = entering([*pytest_, f"--basetemp={tmp_path / 'walk'}", "-p", "no:cacheprovider"])
    except NotPossible as lack:
        not_possible_here(str(lack))

    done = subprocess.run(tied(command), cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
