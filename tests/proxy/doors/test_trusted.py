"""Whose word about their own clients is believed."""

import pytest

from proxy.doors.trusted import TrustedProxies


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
def test_addresses_and_networks_are_trusted(address: str, expected: bool) -> None:
    trusted = TrustedProxies(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "fe80::/10"])

    assert expected == trusted.trusts(address)


def test_without_any_nobody_is_trusted() -> None:
    assert not TrustedProxies([]).trusts("127.0.0.1")
