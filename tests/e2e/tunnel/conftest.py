"""A backend behind the tunnel."""

from collections.abc import Iterator

import pytest

from tests.support.recordingbackend import RecordingBackend


@pytest.fixture
def backend() -> Iterator[RecordingBackend]:
    with RecordingBackend() as backend:
        yield backend
