"""Proxies that are replaced under load; `make limits-tunnel` does the same for a minute."""

from tests.e2e.tunnel.rolling import restart_in_turns

RATE_PER_S = 500


def test_a_rolling_restart_under_load_loses_no_request() -> None:
    outcome = restart_in_turns(RATE_PER_S, lambda outcome: outcome.restarts == 2)

    assert not outcome.failures, outcome.failures[:5]
    assert len(outcome.durations_s) >= 7 * RATE_PER_S
