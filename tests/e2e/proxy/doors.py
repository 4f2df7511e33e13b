"""Tests that hold for requests of direct listeners and for those of the tunnel alike."""

import pytest

_DOORS = ("listener", "tunnel")

through_both_doors = pytest.mark.parametrize("gateway", _DOORS, indirect=True)
through_both_doors_alone = pytest.mark.parametrize("lone_gateway", _DOORS, indirect=True)
"""With one worker."""
