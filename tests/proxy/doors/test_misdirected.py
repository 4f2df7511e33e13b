"""Which hosts may be asked for over a connection, by the listener that its server name chose."""

import pytest

from proxy.doors.misdirected import Misdirection
from proxy.routing import Door
from tests.proxy.doors.rig import plain, table_of


class Entry:
    entrance: Door | None


def entry_of(*hostnames: str | None) -> Entry:
    listeners = [
        plain(80, f"l{place}", **({"hostname": hostname} if hostname else {}))
        for place, hostname in enumerate(hostnames)
    ]
    entry = Entry()
    entry.entrance = table_of(*listeners).doors["127.0.0.1:80"]
    return entry


LISTENERS = (None, "second.example", "*.wild.example", "deep.wild.example")

CASES = [
    # server name, host, misdirected: the table of the semantics sheet, 4.5
    ("example.org", "example.org", False),
    ("example.org", "unknown.example", False),
    ("example.org", "second.example", True),
    ("example.org", "a.wild.example", True),
    (None, "example.org", False),
    (None, "second.example", True),
    ("second.example", "second.example", False),
    ("second.example", "SECOND.example:8443", False),
    ("second.example", "example.org", True),
    ("second.example", "unknown.example", True),
    ("a.wild.example", "b.wild.example", False),
    ("a.wild.example", "b.c.wild.example", False),
    ("a.wild.example", "deep.wild.example", True),
    ("deep.wild.example", "a.wild.example", True),
]


@pytest.mark.parametrize(("server_name", "host", "expected"), CASES)
def test_a_host_of_another_listener_is_misdirected(server_name: str | None, host: str, expected: bool) -> None:
    check = Misdirection(server_name.encode() if server_name else None, entry_of(*LISTENERS))

    assert expected == check.is_misdirected(host.encode())
    assert expected == check.is_misdirected(host.encode())


def test_a_host_that_no_listener_serves_is_left_to_routing() -> None:
    check = Misdirection(b"a.example", entry_of("a.example", "b.example"))

    assert check.is_misdirected(b"b.example")
    assert not check.is_misdirected(b"c.example")


def test_a_new_table_is_asked_again() -> None:
    entry = entry_of("a.example", "b.example")
    check = Misdirection(b"a.example", entry)
    assert check.is_misdirected(b"b.example")

    entry.entrance = entry_of(None).entrance
    assert not check.is_misdirected(b"b.example")
    entry.entrance = None
    assert not check.is_misdirected(b"b.example")
