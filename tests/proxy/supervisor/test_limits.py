"""The limit of open files, in a process of its own."""

import resource
import subprocess
import sys

from tests.support.process import REPOSITORY

CODE = """
import resource
from proxy.supervisor.limits import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
raise_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits_after(hard: int) -> list[int]:
    run = [sys.executable, "-c", CODE.format(hard=hard)]
    return [int(word) for word in subprocess.check_output(run, cwd=REPOSITORY, text=True).split()]


def test_the_soft_limit_becomes_the_hard_one() -> None:
    assert limits_after(512) == [512, 512]


def test_a_limit_that_cannot_be_raised_stays() -> None:
    assert limits_after(256) == [256, 256]


def test_the_soft_limit_is_raised_to_about_a_million_at_most() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, _ = limits_after(hard)

    assert soft == (min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20)
