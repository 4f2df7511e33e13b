"""What the tests of a folder share."""

from pathlib import Path

import pytest

from tests.tunnelgw.sources.directory.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
