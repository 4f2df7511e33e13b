"""The real helm, and an API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.chart import Helm
from tests.support.kube_fixtures import kube
from tests.support.programs import built_program

__all__ = ["kube"]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(built_program("helm"), tmp_path)
