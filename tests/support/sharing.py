"""How several processes of pytest share the files with tests.

An API server takes 20 s of CPU to start, and some all the time even if nobody asks it. So the files that use one are
run by as few processes as their length allows. Files that wait are mixed with those that compute, and no long one is
last.
"""

import zlib
from typing import Final

_WITH_API_SERVER: Final = {
    "tests/e2e/controller/": 2,
    "tests/e2e/test_external_dns": 1,
    "tests/helm/test_secrets": 1,
    "tests/helm/test_upgrades": 1,
    "tests/tunnelgw/sources/": 1,
}
"""The processes that run the files whose names begin so. What is missing here costs time only."""
_LONG: Final = {
    "tests/conformance/test_core.py",
    "tests/e2e/controller/test_releases.py",
    "tests/e2e/test_histories.py",
    "tests/e2e/test_store_faults.py",
    "tests/e2e/tunnel/test_connections.py",
    "tests/e2e/tunnel/test_contract.py",
    "tests/helm/test_installed.py",
    "tests/systemd/test_units_at_work.py",
    "tests/test_docs.py",
    "tests/tunnelgw/sources/kubernetes/test_watch_answers.py",
}
"""A minute or more each, with no API server or one of its own."""


def unit_of(file: str) -> str:
    """What one process runs as a whole: some files, or `file` alone, which is named as in ids of tests."""
    if file not in _LONG:
        for start, processes in _WITH_API_SERVER.items():
            if file.startswith(start):
                folder = start.rpartition("/")[0]
                return f"{folder} {zlib.crc32(file.encode()) % processes}"
    return file


def place_of(file: str) -> tuple[float, str]:
    """The key by which files are sorted."""
    unit = unit_of(file)
    share = zlib.crc32(unit.encode()) / 2**32
    if unit != file:
        share *= 0.0 if file.startswith("tests/e2e/") else 0.4
    elif file in _LONG:
        share *= 0.4
    return share, unit
