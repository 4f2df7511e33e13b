"""Which addresses connections get, and which they get next."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel.addresses import AUTO_RETURN_S, EdgeAddress, EdgeAddresses, IpVersion, static_regions
from proxy.tunnel.failures import FailureCause


def v4(number: int) -> EdgeAddress:
    return EdgeAddress(f"192.0.2.{number}", 7844)


def v6(number: int) -> EdgeAddress:
    return EdgeAddress(f"2001:db8::{number}", 7844)


def first(_count: int) -> int:
    return 0


def last(count: int) -> int:
    return count - 1


ONE, TWO = [v4(1), v4(2)], [v4(11), v4(12)]


@pytest.mark.parametrize("draw", [first, last])
def test_connections_are_spread_over_both_regions(draw: Callable[[int], int]) -> None:
    addresses = EdgeAddresses([ONE, TWO], IpVersion.AUTO, draw)
    given_out = [addresses.address_for(index) for index in range(4)]

    assert {*ONE, *TWO} == set(given_out)
    assert 1 == sum(address in ONE for address in given_out[:2])
    assert None is addresses.address_for(4)


def test_the_choice_between_equal_regions_is_random() -> None:
    assert v4(1) == EdgeAddresses([ONE, TWO], IpVersion.AUTO, first).address_for(0)
    assert v4(12) == EdgeAddresses([ONE, TWO], IpVersion.AUTO, last).address_for(0)


def test_a_connection_keeps_its_address_when_it_reconnects() -> None:
    addresses = EdgeAddresses([ONE, TWO], IpVersion.AUTO, first)

    assert addresses.address_for(3) == addresses.address_for(3)
    assert 3 == addresses.free_count


def test_a_connection_whose_address_fails_gets_another_one() -> None:
    addresses = EdgeAddresses([ONE], IpVersion.AUTO, first)

    assert v4(1) == addresses.address_for(0)
    assert v4(2) == addresses.another_for(0, 0.0)
    assert v4(1) == addresses.another_for(0, 0.0)


def test_the_only_address_is_free_again_after_it_failed() -> None:
    addresses = EdgeAddresses([[v4(1)]], IpVersion.AUTO, first)
    addresses.address_for(0)

    assert None is addresses.another_for(0, 0.0)
    assert v4(1) == addresses.address_for(0)


def test_addresses_that_two_hosts_share_count_once() -> None:
    addresses = EdgeAddresses([[v4(1), v4(1)], [v4(1)]], IpVersion.AUTO, first)

    assert v4(1) == addresses.address_for(0)
    assert None is addresses.address_for(1)


FAMILIES = {
    "IPv4 alone": (IpVersion.IPV4, [v6(1), v4(1)], {v4(1)}),
    "IPv6 alone": (IpVersion.IPV6, [v4(1), v6(1)], {v6(1)}),
    "the resolver prefers IPv4": (IpVersion.AUTO, [v4(1), v6(1), v4(2)], {v4(1), v4(2)}),
    "the resolver prefers IPv6": (IpVersion.AUTO, [v6(1), v4(1)], {v6(1)}),
    "nothing of that family": (IpVersion.IPV6, [v4(1)], set()),
}


@pytest.mark.parametrize(("ip_version", "resolved", "usable"), FAMILIES.values(), ids=FAMILIES)
def test_only_addresses_of_the_configured_family_are_used(
    ip_version: IpVersion, resolved: list[EdgeAddress], usable: set[EdgeAddress]
) -> None:
    addresses = EdgeAddresses([resolved], ip_version, first)

    assert len(usable) == addresses.free_count
    assert usable == {addresses.address_for(index) for index in range(len(usable))}


def test_the_configured_family_stays_whatever_fails() -> None:
    addresses = EdgeAddresses([[v6(1), v6(2), v4(1)]], IpVersion.IPV6, first)
    addresses.address_for(0)

    assert v6(2) == addresses.another_for(0, 0.0)
    assert v6(1) == addresses.another_for(0, 0.0)


def test_a_failed_ipv4_address_does_not_lead_to_ipv6_if_the_resolver_prefers_ipv4() -> None:
    addresses = EdgeAddresses([[v4(1), v4(2), v6(1)]], IpVersion.AUTO, first)
    addresses.address_for(0)

    assert v4(2) == addresses.another_for(0, 0.0)
    assert v4(1) == addresses.another_for(0, 0.0)


def test_no_family_is_better_than_the_other_before_an_address_has_failed() -> None:
    addresses = EdgeAddresses([[v4(1), v4(2)], [v6(1), v6(2), v6(3)]], IpVersion.AUTO, first)

    assert v6(1) == addresses.address_for(0)


def test_a_failed_ipv4_address_does_not_make_ipv4_preferred() -> None:
    addresses = EdgeAddresses([[v4(1), v4(2)], [v6(1), v6(2), v6(3)]], IpVersion.AUTO, first, {0: v4(1)})

    assert v6(1) == addresses.another_for(0, 0.0)


def test_without_a_region_there_is_no_address() -> None:
    addresses = EdgeAddresses([], IpVersion.AUTO, first)

    assert None is addresses.address_for(0)
    assert None is addresses.another_for(0, 0.0)


class TestFallbackToIpv4:
    def site(self) -> EdgeAddresses:
        addresses = EdgeAddresses([[v6(1), v6(2), v4(1), v4(2)]], IpVersion.AUTO, first)
        assert v6(1) == addresses.address_for(0)
        return addresses

    def test_a_failed_ipv6_address_switches_its_region_to_ipv4(self) -> None:
        addresses = self.site()

        assert v4(1) == addresses.another_for(0, 100.0)
        assert v4(2) == addresses.address_for(1)

    def test_a_failed_ipv4_address_switches_the_region_back(self) -> None:
        addresses = self.site()
        addresses.another_for(0, 100.0)

        assert v6(1) == addresses.another_for(0, 101.0)

    def test_after_an_answer_of_the_edge_the_family_stays_while_it_has_another_address(self) -> None:
        addresses = self.site()

        assert v6(2) == addresses.another_for(0, 100.0, was_reached=True)
        addresses.another_for(0, 100.0)
        assert v4(1) == addresses.address_for(0)
        assert v4(2) == addresses.another_for(0, 101.0, was_reached=True)
        assert v4(1) == addresses.address_for(1)
        assert v6(1) == addresses.another_for(0, 102.0, was_reached=True)

    def test_another_failed_ipv6_address_switches_the_region_back_after_ten_minutes_only(self) -> None:
        addresses = self.site()
        assert v6(2) == addresses.address_for(1)
        addresses.another_for(0, 100.0)

        assert v4(2) == addresses.another_for(1, 101.0)

        late = self.site()
        late.address_for(1)
        late.another_for(0, 100.0)
        assert v6(1) == late.another_for(1, 100.0 + AUTO_RETURN_S)

    def test_without_ipv4_addresses_a_region_stays_with_ipv6(self) -> None:
        addresses = EdgeAddresses([[v6(1), v6(2)]], IpVersion.AUTO, first)
        addresses.address_for(0)

        assert v6(2) == addresses.another_for(0, 0.0)

    def test_the_next_address_is_ipv4_whatever_its_region(self) -> None:
        for draw in (first, last):
            addresses = EdgeAddresses([[v6(1), v6(2), v4(1)], [v6(11), v6(12), v4(11)]], IpVersion.AUTO, draw)
            failed = addresses.address_for(0)
            assert failed is not None
            assert failed.is_ipv6

            another = addresses.another_for(0, 0.0)

            assert another is not None
            assert not another.is_ipv6

    def test_a_new_search_within_ten_minutes_does_not_switch_the_region_back(self) -> None:
        before = self.site()
        before.another_for(0, 100.0)

        for now_s, expected in ((101.0, v4(2)), (100.0 + AUTO_RETURN_S, v6(1))):
            found = EdgeAddresses([[v6(1), v6(2), v4(1), v4(2)]], IpVersion.AUTO, first)
            found.go_on(before, now_s)
            assert found.address_for(1) == expected

    def test_a_failed_ipv6_address_after_a_new_search_switches_back_after_ten_minutes_only(self) -> None:
        before = self.site()
        before.another_for(0, 100.0)
        found = EdgeAddresses([[v6(1), v6(2), v6(3), v4(1), v4(2)]], IpVersion.AUTO, first, {0: v6(1), 1: v6(2)})
        found.go_on(before, 101.0)

        assert v4(1) == found.another_for(0, 99.0 + AUTO_RETURN_S)
        assert v6(1) == found.another_for(1, 100.0 + AUTO_RETURN_S)

    def test_a_new_search_keeps_a_region_that_has_switched_back(self) -> None:
        before = self.site()
        before.another_for(0, 100.0)
        assert v6(1) == before.another_for(0, 101.0)
        found = EdgeAddresses([[v6(1), v6(2), v4(1), v4(2)]], IpVersion.AUTO, first)

        found.go_on(before, 102.0)

        assert v6(2) == found.address_for(1)

    @pytest.mark.parametrize("now_there", [[v6(1), v6(2)], [v4(2), v6(1)], [v4(2)]])
    def test_a_new_search_switches_to_ipv4_only_where_it_is_the_second_choice(
        self, now_there: list[EdgeAddress]
    ) -> None:
        before = self.site()
        before.another_for(0, 100.0)
        found = EdgeAddresses([now_there], IpVersion.AUTO, first)

        found.go_on(before, 101.0)

        assert now_there[0] == found.address_for(1)

    def test_the_other_region_keeps_its_family_before_and_after_a_new_search(self) -> None:
        regions = [[v6(1), v6(2), v4(1)], [v6(11), v6(12), v6(13), v4(11)]]
        before = EdgeAddresses(regions, IpVersion.AUTO, first, {0: v6(1)})
        before.another_for(0, 100.0)
        found = EdgeAddresses(regions, IpVersion.AUTO, first)

        found.go_on(before, 101.0)

        for addresses in (before, found):
            assert v6(11) == addresses.address_for(1)


@given(
    st.integers(0, 5),
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["have", "rotate"]), st.integers(0, 5)), max_size=30),
    st.randoms(use_true_random=False),
)
def test_no_two_connections_ever_share_an_address(
    one: int, two: int, steps: list[tuple[str, int]], chance: Random
) -> None:
    regions = [[v4(number) for number in range(one)], [v4(100 + number) for number in range(two)]]
    addresses = EdgeAddresses(regions, IpVersion.AUTO, chance.randrange)
    held: dict[int, EdgeAddress] = {}
    for step, index in steps:
        before = held.pop(index, None)
        if step == "have":
            got = addresses.address_for(index)
            assert before in (None, got)
        else:
            got = addresses.another_for(index, 0.0)
            assert got is None or got != before
        if got is not None:
            held[index] = got
        assert len(set(held.values())) == len(held)
        assert one + two == addresses.free_count + len(held)


def test_connections_keep_their_addresses_of_a_previous_search() -> None:
    addresses = EdgeAddresses([[v4(1), v4(2)]], IpVersion.AUTO, lambda _: 0, {1: v4(1), 2: v4(9)})

    assert addresses.free_count == 1
    assert addresses.address_for(0) == v4(2)
    assert addresses.address_for(1) == v4(1)
    assert addresses.address_for(2) == v4(9)
    assert addresses.another_for(2, 0.0) is None


def test_a_new_search_that_finds_the_next_address_of_a_connection_keeps_it() -> None:
    before = EdgeAddresses([[v4(1), v4(2), v4(3)]], IpVersion.AUTO, first, {0: v4(1), 1: v4(2), 2: v4(3)})
    addresses = EdgeAddresses([[v4(1), v4(2), v4(4)]], IpVersion.AUTO, last, {1: v4(2)})

    addresses.go_on(before, 0.0)

    assert addresses.address_for(0) == v4(1)
    assert addresses.address_for(2) == v4(4)


def test_an_address_that_another_connection_has_taken_is_not_kept() -> None:
    before = EdgeAddresses([[v4(1), v4(2)]], IpVersion.AUTO, first, {0: v4(1)})
    addresses = EdgeAddresses([[v4(1), v4(2)]], IpVersion.AUTO, first, {1: v4(1)})

    addresses.go_on(before, 0.0)

    assert addresses.address_for(0) == v4(2)


def test_addresses_named_by_an_operator_make_up_two_regions() -> None:
    assert ((v4(1), v4(3)), (v4(2), v4(4))) == static_regions([v4(1), v4(2), v4(3), v4(4)])


def test_ipv6_addresses_are_shown_in_brackets() -> None:
    assert ("192.0.2.1:7844", "[2001:db8::1]:7844") == (str(v4(1)), str(v6(1)))


@pytest.mark.parametrize(
    ("cause", "is_of_address"),
    [
        (FailureCause.DIAL, True),
        (FailureCause.TLS, True),
        (FailureCause.SILENT, True),
        (FailureCause.DUPLICATE, True),
        (FailureCause.UNAUTHORIZED, False),
        (FailureCause.REFUSED, False),
        (FailureCause.EXCEPTION, False),
        (FailureCause.MALFORMED, False),
        (FailureCause.LOST, False),
    ],
)
def test_only_failures_that_may_depend_on_the_address_change_it(cause: FailureCause, is_of_address: bool) -> None:
    assert is_of_address == cause.is_of_address
