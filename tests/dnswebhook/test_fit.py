"""What of a record set a store can hold: every reason for a drop, and the limits one octet below and above."""

import pytest

from dnswebhook.canonical import DropReason
from dnswebhook.fit import MAX_NAMED_DROPS, Fitted, fit
from dnswebhook.model import Capabilities, Record
from dnswebhook.served import Served
from dnswebhook.stores.unifi import integrationrows, v2rows
from tests.dnswebhook.planning import NOTHING_SERVED
from tests.support.memory_store import CAPABILITIES

INTEGRATION = integrationrows.CAPABILITIES
V2 = v2rows.CAPABILITIES


def fitted(
    name: str,
    record_type: str,
    *targets: str,
    ttl_s: int = 0,
    capabilities: Capabilities = CAPABILITIES,
    reserved_octets: int = 0,
) -> Fitted:
    return fit(name, record_type, targets, ttl_s, capabilities, NOTHING_SERVED, reserved_octets)


def reasons(result: Fitted) -> list[DropReason]:
    return [drop.reason for drop in result.drops]


def name_of(octets: int) -> str:
    """A name of exactly so many octets."""
    labels = "x" * 49 + "."
    return (labels * (octets // 50) + "y" * (octets % 50)) if octets % 50 else labels * (octets // 50 - 1) + "z" * 50


def test_names_and_targets_come_out_canonical_sorted_and_once() -> None:
    result = fitted("App.Example.COM.", "A", "192.0.2.9", "192.0.2.1", " 192.0.2.9")

    assert Fitted("app.example.com", "A", ("192.0.2.1", "192.0.2.9"), 0) == result


@pytest.mark.parametrize(
    ("name", "record_type", "target", "reason"),
    [
        ("app.example.com", "LOC", "x", DropReason.UNSUPPORTED_TYPE),
        ("app.example.com", "NS", "ns.example.com", DropReason.UNSUPPORTED_TYPE),
        ("app.example.com", "a", "192.0.2.1", DropReason.UNSUPPORTED_TYPE),
        ("sp ace.example.com", "A", "192.0.2.1", DropReason.INVALID_NAME),
        ("a-*.example.com", "A", "192.0.2.1", DropReason.INVALID_NAME),
        ("example.com", "SRV", "1 2 3 h.example.com.", DropReason.INVALID_NAME),
        ("sip._udp.example.com", "SRV", "1 2 3 h.example.com.", DropReason.INVALID_NAME),
        ("_sip._udp", "SRV", "1 2 3 h.example.com.", DropReason.INVALID_NAME),
        (name_of(254), "A", "192.0.2.1", DropReason.NAME_TOO_LONG),
        ("*.example.com", "CNAME", "host.example.net", DropReason.UNSUPPORTED_WILDCARD),
    ],
)
def test_a_set_that_cannot_be_held_is_dropped_whole_with_its_reason(
    name: str, record_type: str, target: str, reason: DropReason
) -> None:
    result = fitted(name, record_type, target)

    assert () == result.values
    assert [reason] == reasons(result)
    assert "" == result.drops[0].target
    assert result.drops[0].detail


@pytest.mark.parametrize(
    ("record_type", "target", "reason"),
    [
        ("A", "host.example.com", DropReason.INVALID_TARGET),
        ("CNAME", "two words", DropReason.INVALID_TARGET),
        ("CNAME", "App.example.com.", DropReason.INVALID_TARGET),
        ("CNAME", name_of(254), DropReason.TARGET_TOO_LONG),
        ("MX", f"10 {name_of(254)}", DropReason.TARGET_TOO_LONG),
        ("TXT", "x" * 256, DropReason.TARGET_TOO_LONG),
        ("TXT", "ü" * 127, DropReason.TARGET_TOO_LONG),
    ],
)
def test_a_target_that_cannot_be_held_is_dropped_and_then_none_is_left(
    record_type: str, target: str, reason: DropReason
) -> None:
    result = fitted("app.example.com", record_type, target)

    assert () == result.values
    assert [reason, DropReason.NO_TARGETS] == reasons(result)
    assert target == result.drops[0].target


def test_a_valid_target_stays_when_an_invalid_one_is_dropped() -> None:
    result = fitted("app.example.com", "A", "192.0.2.300", "192.0.2.1")

    assert ("192.0.2.1",) == result.values
    assert [DropReason.INVALID_TARGET] == reasons(result)


def test_a_set_without_targets_says_so() -> None:
    assert [DropReason.NO_TARGETS] == reasons(fitted("app.example.com", "A"))


@pytest.mark.parametrize("record_type", ["CNAME", "DNAME"])
def test_of_several_targets_of_an_alias_the_lowest_stays_in_any_order(record_type: str) -> None:
    holds_both = Capabilities("test", {"CNAME": 0, "DNAME": 0}, 253, 253, 255, frozenset())
    targets = ("c.example.net", "A.example.net", "b.example.net")

    for order in (targets, targets[::-1]):
        result = fitted("app.example.com", record_type, *order, capabilities=holds_both)

        assert ("a.example.net",) == result.values
        assert [DropReason.SURPLUS_CNAME_TARGET] * 2 == reasons(result)
        assert ["b.example.net", "c.example.net"] == [drop.target for drop in result.drops]


@pytest.mark.parametrize(
    ("record_type", "reason", "count"),
    [("A", DropReason.INVALID_TARGET, 1000), ("CNAME", DropReason.SURPLUS_CNAME_TARGET, 999)],
)
def test_of_many_targets_that_are_dropped_the_first_are_named_and_all_are_counted(
    record_type: str, reason: DropReason, count: int
) -> None:
    result = fitted("app.example.com", record_type, *(f"host-{number}" for number in range(1000)))

    alike = [drop for drop in result.drops if drop.reason is reason]
    assert MAX_NAMED_DROPS + 1 == len(alike)
    assert count == sum(drop.count for drop in alike)
    assert all(drop.target.startswith("host-") for drop in alike[:MAX_NAMED_DROPS])
    assert f"{count - MAX_NAMED_DROPS} more targets" == alike[-1].detail


def test_two_spellings_of_one_alias_target_count_as_one() -> None:
    result = fitted("app.example.com", "CNAME", "host.example.net.", "HOST.example.net")

    assert Fitted("app.example.com", "CNAME", ("host.example.net",), 0) == result


@pytest.mark.parametrize(
    ("record_type", "wanted_s", "kept_s"),
    [
        ("A", 0, 0),
        ("A", 300, 300),
        ("A", 86400, 86400),
        ("A", 86401, 86400),
        ("A", 2**40, 86400),
        ("A", -5, 0),
        ("TXT", 300, 0),
    ],
)
def test_a_ttl_is_clamped_and_cleared_where_the_type_has_none(record_type: str, wanted_s: int, kept_s: int) -> None:
    target = "192.0.2.1" if record_type == "A" else "text"

    assert kept_s == fitted("app.example.com", record_type, target, ttl_s=wanted_s).ttl_s


@pytest.mark.parametrize(
    ("capabilities", "reserved_octets", "longest"), [(V2, 0, 253), (V2, 6, 247), (INTEGRATION, 0, 127)]
)
def test_the_longest_name_leaves_room_for_the_reserve(
    capabilities: Capabilities, reserved_octets: int, longest: int
) -> None:
    fits = fitted(name_of(longest), "A", "192.0.2.1", capabilities=capabilities, reserved_octets=reserved_octets)
    does_not = fitted(
        name_of(longest + 1), "A", "192.0.2.1", capabilities=capabilities, reserved_octets=reserved_octets
    )

    assert ("192.0.2.1",) == fits.values
    assert [DropReason.NAME_TOO_LONG] == reasons(does_not)


@pytest.mark.parametrize(("capabilities", "longest"), [(V2, 255), (INTEGRATION, 873)])
def test_the_longest_text_is_counted_in_octets_with_its_quotes(capabilities: Capabilities, longest: int) -> None:
    quoted = '"' + "a " * ((longest - 2) // 2) + ("a" if longest % 2 else "") + '"'

    assert longest == len(quoted)
    assert (quoted,) == fitted("app.example.com", "TXT", quoted, capabilities=capabilities).values
    assert () == fitted("app.example.com", "TXT", f'"x{quoted[1:]}', capabilities=capabilities).values


@pytest.mark.parametrize("capabilities", [V2, INTEGRATION])
def test_the_longest_text_of_the_longest_name_fits_a_line_of_dnsmasq_s_configuration(
    capabilities: Capabilities,
) -> None:
    held = fitted(
        name_of(capabilities.max_name_octets), "TXT", "a" * capabilities.max_text_octets, capabilities=capabilities
    )

    (text,) = held.values
    strings = [text[start : start + 255] for start in range(0, len(text), 255)]
    line = ",".join([f"txt-record={held.name}", *(f'"{string}"' for string in strings)])
    assert len(line) < 1024


@pytest.mark.parametrize(("record_type", "held"), [("A", True), ("AAAA", True), ("TXT", False), ("MX", False)])
def test_a_wildcard_is_held_only_for_the_types_that_the_store_supports(record_type: str, held: bool) -> None:
    targets = {"A": "192.0.2.1", "AAAA": "2001:db8::1", "TXT": "x", "MX": "10 m.example.com"}

    assert held is bool(fitted("*.example.com", record_type, targets[record_type]).values)


@pytest.mark.parametrize("capabilities", [V2, INTEGRATION, CAPABILITIES])
@pytest.mark.parametrize("name", ["*", "*."])
def test_a_wildcard_for_all_names_is_dropped(name: str, capabilities: Capabilities) -> None:
    everything = fitted(name, "A", "192.0.2.1", capabilities=capabilities)

    assert () == everything.values
    assert [DropReason.UNSUPPORTED_WILDCARD] == reasons(everything)


def test_the_ownership_record_of_a_wildcard_can_be_held() -> None:
    assert ("x",) == fitted("a-*.example.com", "TXT", "x").values


# Records beyond a limit that are served nevertheless.


def served(name: str, record_type: str, *values: str) -> Served:
    return Served([Record(value, name, record_type, value, 300) for value in values])


def held_as_served(name: str, record_type: str, targets: tuple[str, ...], listing: Served, ttl_s: int = 0) -> Fitted:
    return fit(name, record_type, targets, ttl_s, integrationrows.CAPABILITIES, listing, 6)


def test_values_served_under_a_name_that_is_too_long_for_the_store_stay() -> None:
    name = name_of(137)
    listing = served(name, "A", "192.0.2.1", "192.0.2.2")

    result = held_as_served(name.upper() + ".", "A", ("192.0.2.2", "192.0.2.1"), listing, ttl_s=60)

    assert (name, ("192.0.2.1", "192.0.2.2"), ()) == (result.name, result.values, result.drops)
    assert 0 == result.ttl_s  # another one would take a write, which is refused
    assert "name of 137 octets" in result.limit


def test_no_value_is_added_under_a_served_name_that_is_too_long_for_the_store() -> None:
    name = name_of(137)
    listing = served(name, "A", "192.0.2.1", "192.0.2.3")

    result = held_as_served(name, "A", ("192.0.2.1", "192.0.2.2", "x"), listing)

    assert ("192.0.2.1",) == result.values
    assert [(DropReason.NAME_TOO_LONG, "192.0.2.2"), (DropReason.NAME_TOO_LONG, "x")] == [
        (drop.reason, drop.target) for drop in result.drops
    ]


@pytest.mark.parametrize(
    ("name", "record_type", "value"),
    [
        ("app.example.com", "CNAME", name_of(137)),
        ("app.example.com", "MX", f"10 {name_of(137)}"),
        ("_x._tcp.example.com", "SRV", f"0 0 1 {name_of(137)}."),
        ("app.example.com", "TXT", "x" * 1000),
        ("*.example.com", "CNAME", "host.example.net"),
    ],
)
def test_a_value_that_the_store_would_refuse_stays_only_if_it_is_served(
    name: str, record_type: str, value: str
) -> None:
    other = served("other.example.com", record_type, value)

    assert () == held_as_served(name, record_type, (value,), other).values
    assert () == held_as_served(name, record_type, (value,), served(name, "A", value)).values
    result = held_as_served(name, record_type, (value,), served(name, record_type, value), ttl_s=60)
    assert (value,) == result.values
    assert 0 == result.ttl_s  # another one would take a write, which is refused


def test_a_value_that_the_store_accepts_is_added_beside_one_that_it_would_refuse() -> None:
    long = f"10 {name_of(137)}"

    result = held_as_served("app.example.com", "MX", ("20 b.example.net", long), served("app.example.com", "MX", long))

    assert (long, "20 b.example.net") == result.values


def test_an_invalid_name_does_not_stay_even_if_it_is_served() -> None:
    listing = served("a*b.example.com", "A", "192.0.2.1")

    assert () == held_as_served("a*b.example.com", "A", ("192.0.2.1",), listing).values


def test_an_invalid_target_does_not_stay_even_if_it_is_served() -> None:
    listing = served("app.example.com", "CNAME", "not a host")

    assert () == held_as_served("app.example.com", "CNAME", ("not a host",), listing).values
