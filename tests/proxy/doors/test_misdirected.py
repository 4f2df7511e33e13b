"""Which hosts may be asked for over a connection, by the listener that its server name chose."""

import pytest

from proxy.document import UNSET, ClientValidation
from proxy.doors.misdirected import IN_CLEAR, Admission, Misdirection
from proxy.routing import Door
from tests.proxy.doors.rig import plain, table_of


class Entry:
    entrance: Door | None
    admissions: dict[str, Admission]

    def admission_to(self, listener: str) -> Admission:
        return self.admissions.get(listener, UNSET)


def entry_of(*hostnames: str | None, **admissions: Admission) -> Entry:
    """Names of listeners are l0, l1 ...; `admissions` to some of them."""
    listeners = [
        plain(80, f"l{place}", **({"hostname": hostname} if hostname else {}))
        for place, hostname in enumerate(hostnames)
    ]
    entry = Entry()
    entry.entrance = table_of(*listeners).doors["127.0.0.1:80"]
    entry.admissions = admissions
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
def test_whether_a_host_is_misdirected_depends_on_the_listener_of_the_server_name(
    server_name: str | None, host: str, expected: bool
) -> None:
    check = Misdirection(server_name.encode() if server_name else None, entry_of(*LISTENERS), UNSET)

    assert expected == check.is_misdirected(host.encode())
    assert expected == check.is_misdirected(host.encode())


def test_a_host_that_no_listener_serves_is_left_to_routing() -> None:
    check = Misdirection(b"a.example", entry_of("a.example", "b.example"), UNSET)

    assert check.is_misdirected(b"b.example")
    assert not check.is_misdirected(b"c.example")


def test_a_new_table_applies_to_existing_connections() -> None:
    entry = entry_of("a.example", "b.example")
    check = Misdirection(b"a.example", entry, UNSET)
    assert check.is_misdirected(b"b.example")

    entry.entrance = entry_of(None).entrance
    assert not check.is_misdirected(b"b.example")
    entry.entrance = None
    assert check.is_misdirected(b"b.example")


def test_a_connection_whose_server_name_has_no_listener_any_more_is_misdirected() -> None:
    entry = entry_of("a.example", "b.example")
    check = Misdirection(b"a.example", entry, UNSET)
    assert not check.is_misdirected(b"a.example")

    entry.entrance = entry_of("b.example").entrance
    assert check.is_misdirected(b"b.example")


OURS, THEIRS = ClientValidation(ca="ours"), ClientValidation(ca="theirs")
FALLBACK = ClientValidation(ca="ours", mode="AllowInsecureFallback")

ADMISSIONS = [
    # at the handshake, now, misdirected
    (UNSET, OURS, True),
    (OURS, THEIRS, True),
    (FALLBACK, OURS, True),
    (OURS, OURS, False),
    (OURS, UNSET, True),
    (IN_CLEAR, UNSET, True),
    (IN_CLEAR, OURS, True),
    (UNSET, IN_CLEAR, True),
    (IN_CLEAR, IN_CLEAR, False),
]


@pytest.mark.parametrize(("gone_through", "wanted", "expected"), ADMISSIONS)
def test_a_connection_whose_handshake_had_other_tls_settings_than_now_is_misdirected(
    gone_through: Admission, wanted: Admission, expected: bool
) -> None:
    check = Misdirection(b"a.example", entry_of("a.example", l0=wanted), gone_through)

    assert expected == check.is_misdirected(b"a.example")
    assert expected == check.is_outdated


def test_a_connection_to_a_listener_whose_requirements_are_the_same_is_not_outdated_by_those_of_others() -> None:
    check = Misdirection(b"a.example", entry_of("a.example", "b.example", l0=UNSET, l1=OURS), UNSET)

    assert check.is_misdirected(b"b.example")
    assert not check.is_outdated


def test_a_connection_whose_port_or_listener_has_gone_is_outdated() -> None:
    entry = entry_of("b.example", l0=UNSET)
    check = Misdirection(b"a.example", entry, UNSET)

    assert check.is_outdated
    entry.entrance = None
    assert check.is_outdated


def test_a_connection_without_client_validation_is_misdirected_when_its_host_moves_to_a_listener_with_it() -> None:
    """Its handshake was made with the listener that served the host before."""
    check = Misdirection(b"a.example", entry_of(None, "a.example", l0=UNSET, l1=OURS), UNSET)

    assert check.is_misdirected(b"a.example")


def test_without_tls_no_host_is_misdirected() -> None:
    check = Misdirection(None, entry_of(None, "a.example", l0=IN_CLEAR, l1=IN_CLEAR), IN_CLEAR)

    assert not check.is_misdirected(b"a.example")
    assert not check.is_misdirected(b"b.example")
