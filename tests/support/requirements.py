"""What a test does on a machine that lacks something which not every machine has: a program, a privilege.

It is skipped and says why; with `TUNNELGW_TESTS_REQUIRE_ALL=1`, as in continuous integration, it fails instead.
"""

import os
from typing import NoReturn

import pytest


def not_possible_here(reason: str) -> NoReturn:
    if os.environ.get("TUNNELGW_TESTS_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
