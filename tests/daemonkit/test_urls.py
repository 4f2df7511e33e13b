"""URLs as a person writes them, split."""

import pytest

from daemonkit.urls import split_url


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[fe80::1%eth0]:8082", "fe80::1%eth0"),
        ("http://[fe80::1%25eth0]:8082", "fe80::1%eth0"),  # RFC 6874; curl and Go take it
        ("http://[fe80::%25br-1.10]/base", "fe80::%br-1.10"),
        ("http://[fe80::1%25]:8082", "fe80::1%25"),  # an interface by its index
        ("http://host%25:8082", "host%25"),
    ],
)
def test_the_zone_of_an_address_may_be_written_as_in_a_url(url: str, host: str) -> None:
    assert split_url(url).hostname == host
