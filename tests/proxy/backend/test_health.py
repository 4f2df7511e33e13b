"""The pure rules of health, over any history."""

from hypothesis import given
from hypothesis import strategies as st

from proxy import document
from proxy.backend.health import AddressHealth, Outliers

mostly_failures = st.sampled_from([True, False, False, False])
outcomes = st.lists(st.tuples(st.integers(0, 3), mostly_failures, st.integers(0, 15)), min_size=10, max_size=80)
percents = st.one_of(st.integers(0, 100), st.sampled_from([25, 50, 100]))


@given(outcomes, st.integers(1, 4), percents)
def test_ejections_respect_threshold_maximum_share_and_duration(
    history: list[tuple[int, bool, int]], threshold: int, percent: int
) -> None:
    policy = document.PassiveHealth(consecutive_failures=threshold, ejection_time="10s", max_ejected_percent=percent)
    addresses = [AddressHealth() for _ in range(4)]
    outliers = Outliers(policy, addresses)
    now_s, in_a_row, ejected_at_s = 0.0, [0] * 4, [0.0] * 4
    has_been_ejected = [False] * 4
    for place, is_success, passed_s in history:
        now_s += passed_s
        outliers.restore(now_s)
        next_s = outliers.next_s
        address = addresses[place]
        if is_success:
            outliers.succeeded(address)
            in_a_row[place] = 0
        else:
            in_a_row[place] += 1
            has_room = (outliers.ejected + 1) * 100 <= percent * 4
            is_due = in_a_row[place] >= threshold and address.is_usable and has_room
            if outliers.failed(address, now_s):
                assert in_a_row[place] >= threshold or has_been_ejected[place]
                ejected_at_s[place] = now_s
                has_been_ejected[place] = True
            else:
                assert not is_due
        assert outliers.ejected * 100 <= percent * 4
        assert next_s is None or next_s > now_s
        for other, since_s in zip(addresses, ejected_at_s, strict=True):
            assert other.is_usable or now_s < since_s + 10


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 4), st.integers(1, 4))
def test_probes_change_the_health_only_at_consecutive_thresholds(results: list[bool], down: int, up: int) -> None:
    policy = document.ActiveHealth(unhealthy_threshold=down, healthy_threshold=up)
    address = AddressHealth()
    is_down = False
    for place, result in enumerate(results):
        changed = address.probed(result, policy)
        tail = results[max(0, place + 1 - (up if is_down else down)) : place + 1]
        if changed:
            assert tail == [is_down] * (up if is_down else down)
            is_down = not is_down
        assert address.is_down is is_down


def ejecting(failures: int = 1) -> document.PassiveHealth:
    return document.PassiveHealth(consecutive_failures=failures, ejection_time="10s", max_ejected_percent=100)


def test_late_failures_do_not_extend_an_ejection() -> None:
    """Failures of requests that were sent before the ejection."""
    address = AddressHealth()
    outliers = Outliers(ejecting(), [address, AddressHealth()])
    assert outliers.failed(address, 0.0)

    assert not outliers.failed(address, 9.0)

    outliers.restore(9.0)
    assert outliers.next_s == 10.0
    outliers.restore(10.0)
    assert outliers.next_s is None
    assert address.is_usable


def test_an_ejection_keeps_its_duration_when_new_ones_become_shorter() -> None:
    """Later ejections have the new duration."""
    address, other = AddressHealth(), AddressHealth()
    assert Outliers(ejecting(), [address, other]).failed(address, 0.0)
    shorter = document.PassiveHealth(consecutive_failures=1, ejection_time="1s", max_ejected_percent=100)
    outliers = Outliers(shorter, [address, other])

    assert outliers.failed(other, 1.0)

    assert outliers.next_s == 2.0
    outliers.restore(2.0)
    assert outliers.next_s == 10.0
    assert other.is_usable
    assert not address.is_usable


def test_an_address_whose_time_is_over_is_on_trial() -> None:
    """The next failure ejects it again, and a success ends the trial."""
    address = AddressHealth()
    outliers = Outliers(ejecting(3), [address])
    assert [outliers.failed(address, 0.0) for _ in range(3)] == [False, False, True]
    outliers.restore(10.0)

    assert outliers.failed(address, 10.0)
    outliers.restore(20.0)
    outliers.succeeded(address)

    assert [outliers.failed(address, 20.0) for _ in range(3)] == [False, False, True]


def test_a_failure_over_the_maximum_share_is_not_reported_as_an_ejection() -> None:
    one, other = AddressHealth(), AddressHealth()
    policy = document.PassiveHealth(consecutive_failures=1, ejection_time="10s", max_ejected_percent=50)
    outliers = Outliers(policy, [one, other])

    assert [outliers.failed(one, 0.0), outliers.failed(other, 0.0)] == [True, False]
    assert (one.is_usable, other.is_usable) == (False, True)


def test_ejections_over_the_maximum_share_end_early_when_addresses_leave() -> None:
    """Only as many as exceed it, and those first that would end first."""
    policy = document.PassiveHealth(consecutive_failures=1, ejection_time="10s", max_ejected_percent=50)
    addresses = [AddressHealth() for _ in range(6)]
    before = Outliers(policy, addresses)
    assert [before.failed(address, float(at)) for at, address in enumerate(addresses[:3])] == [True] * 3

    outliers = Outliers(policy, addresses[:4])
    outliers.restore(5.0)

    assert outliers.next_s == 11.0
    assert [address.is_usable for address in addresses[:4]] == [True, False, False, True]


def test_an_address_that_probes_found_down_stays_so_with_a_new_document() -> None:
    policy = document.ActiveHealth(unhealthy_threshold=1, healthy_threshold=2)
    address = AddressHealth()
    address.probed(False, policy)
    address.probed(True, policy)

    address.forget(is_passive=True, is_active=False)

    assert not address.is_usable
    assert address.probed(True, policy)


def test_an_ejected_address_stays_so_with_a_new_document() -> None:
    address = AddressHealth()
    Outliers(ejecting(2), [address]).failed(address, 0.0)
    address.forget(is_passive=False, is_active=True)

    assert Outliers(ejecting(2), [address]).failed(address, 0.0)
    address.forget(is_passive=False, is_active=True)

    assert not address.is_usable


def test_a_health_check_that_is_enabled_again_starts_anew() -> None:
    policy = document.ActiveHealth(unhealthy_threshold=2)
    address = AddressHealth()
    for _ in range(3):
        address.probed(False, policy)
        Outliers(ejecting(2), [address]).failed(address, 0.0)

    address.forget(is_passive=True, is_active=True)

    assert address.is_usable
    assert not address.probed(False, policy)
    assert not Outliers(ejecting(2), [address]).failed(address, 0.0)
