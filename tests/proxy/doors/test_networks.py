"""Peers by their addresses."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.doors.networks import Networks, networks_of
from tests.support.counting import calls_of


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("2001:db8::1", True),
        ("fe80::1%eth0", True),
        ("unix", False),
        ("", False),
    ],
)
def test_networks_contain_addresses(address: str, expected: bool) -> None:
    networks = Networks(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "fe80::/10"])

    assert expected == networks.contain(address)


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.8"), ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3")],
)
def test_ipv4_networks_may_be_written_as_ipv4_mapped_ipv6(network: str, inside: str, outside: str) -> None:
    networks = Networks([network])

    assert networks.contain(inside)
    assert not networks.contain(outside)


def test_an_empty_list_of_networks_contains_nothing() -> None:
    assert not Networks([]).contain("127.0.0.1")


# Of few addresses, so that networks lie in each other and side by side, and peers in and between them.
BYTES = st.sampled_from([0, 1, 2, 3, 127, 128, 254, 255])
V4 = st.builds("{}.0.{}.{}".format, BYTES, BYTES, BYTES)
V6 = st.builds("::{:x}:{:x}".format, BYTES, BYTES)
NETWORKS = st.one_of(
    st.builds("{}/{}".format, V4, st.integers(0, 32)), st.builds("{}/{}".format, V6, st.integers(0, 128)), V4, V6
)


@given(st.lists(NETWORKS, max_size=8), st.lists(V4 | V6, min_size=1, max_size=8))
def test_networks_contain_what_one_of_them_contains(networks: list[str], peers: list[str]) -> None:
    each = [ipaddress.ip_network(network, strict=False) for network in networks]

    found = [Networks(networks).contain(peer) for peer in peers]

    assert found == [any(ipaddress.ip_address(peer) in network for network in each) for peer in peers]


def test_lookup_in_thousands_of_networks_costs_no_more_than_in_one() -> None:
    few, many = Networks(["10.0.0.1"]), Networks([f"10.{at // 250}.{at % 250}.1" for at in range(10_000)])

    assert calls_of(lambda: many.contain("10.39.249.2")) == calls_of(lambda: few.contain("10.39.249.2"))


def test_equal_networks_of_two_documents_are_the_same_object() -> None:
    assert networks_of(("192.0.2.0/24",)) is networks_of(("192.0.2.0/24",))
