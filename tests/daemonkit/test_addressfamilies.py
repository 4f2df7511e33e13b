"""Which addresses urllib3 asks the resolver for."""

import socket
from pathlib import Path

import pytest
from urllib3.util import connection

from daemonkit.addressfamilies import try_usable

LOOPBACK = "00000000000000000000000000000001 01 80 10 80       lo\n"


@pytest.mark.parametrize(
    ("addresses", "family"),
    [(LOOPBACK, socket.AF_UNSPEC), ("", socket.AF_INET), (None, socket.AF_UNSPEC)],
    ids=["a host with IPv6", "a host without", "an unknown one"],
)
def test_ipv6_is_tried_unless_the_host_has_no_address_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: str | None, family: int
) -> None:
    monkeypatch.setattr(connection, "HAS_IPV6", family == socket.AF_INET)
    file = tmp_path / "if_inet6"
    if addresses is not None:
        file.write_text(addresses)

    try_usable(file)

    assert connection.allowed_gai_family() == family
