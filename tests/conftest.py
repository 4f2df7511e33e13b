"""What all tests share: properties take the time they need, since a machine under load is no flaw of what they test."""

import gc

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Ten thousand tests stay until the end; walking them at each collection took a third of the time of properties."""
    gc.collect()
    gc.freeze()
