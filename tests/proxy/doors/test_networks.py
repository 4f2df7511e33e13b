"""Peers by their addresses."""

import pytest

from proxy.doors.networks import Networks


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
def test_networks_of_ipv4_may_be_spelled_as_sockets_of_both_families_show_them(
    network: str, inside: str, outside: str
) -> None:
    networks = Networks([network])

    assert networks.contain(inside)
    assert not networks.contain(outside)


def test_without_any_network_nobody_is_within() -> None:
    assert not Networks([]).contain("127.0.0.1")
