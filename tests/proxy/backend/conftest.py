import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_bugs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The loop goes on after a handler that raises, so that without this a test would, too."""
    yield
    assert not [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
