"""`POST /adjustendpoints` in bytes: shapes, and what is remembered from one pass to the next."""

import io
import json
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.logformat import JsonFormatter, line_of
from dnswebhook import wire
from dnswebhook.adjuster import Adjuster
from dnswebhook.canonical import DropReason
from dnswebhook.domains import ProtectedNames
from dnswebhook.fit import Drop
from dnswebhook.model import Record
from dnswebhook.served import Served
from dnswebhook.stores.unifi import integrationrows, v2rows
from tests.dnswebhook.planning import NOTHING_SERVED
from tests.support.counting import calls_of
from tests.support.strategies import endpoints

V2 = v2rows.CAPABILITIES
INTEGRATION = integrationrows.CAPABILITIES


class Desk:
    """An adjuster, and the drops that it reported."""

    def __init__(self, *protected: str) -> None:
        self.drops: list[Drop] = []
        self.adjuster = Adjuster(ProtectedNames(protected), self.drops.append)

    def answer(self, body: Any, capabilities: Any = V2, served: Served = NOTHING_SERVED) -> bytes:
        octets = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.adjuster.adjust(octets, capabilities, served)

    def adjust(self, body: Any, capabilities: Any = V2, served: Served = NOTHING_SERVED) -> Any:
        return json.loads(self.answer(body, capabilities, served))

    @property
    def reasons(self) -> list[DropReason]:
        return [drop.reason for drop in self.drops]


def a(name: str, *targets: str, **more: Any) -> dict[str, Any]:
    return {"dnsName": name, "recordType": "A", "targets": list(targets or ("192.0.2.1",)), **more}


BAD = {"dnsName": "bad.example.com", "recordType": "A", "targets": ["nonsense"]}


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"[]", b"[]"),
        (b"null", b"[]"),
        (b" \n[ ]\n", b"[]"),
        (b'{"endpoints":[]}', b'{"endpoints":[]}'),
        (b'{"endpoints":null}', b'{"endpoints":[]}'),
        (b' {"Endpoints": []}', b'{"endpoints":[]}'),
    ],
)
def test_the_answer_has_the_shape_of_the_request_and_is_never_null(body: bytes, answer: bytes) -> None:
    assert answer == Desk().answer(body)


def test_bare_and_wrapped_requests_get_the_same_endpoints() -> None:
    wanted = [a("App.example.com."), BAD, a("b.example.com", recordTTL=90000)]

    bare, wrapped = Desk().adjust(wanted), Desk().adjust({"endpoints": wanted})

    assert bare == wrapped["endpoints"]
    assert [("app.example.com", 0), ("b.example.com", 86400)] == [(e["dnsName"], e["recordTTL"]) for e in bare]


PLAIN = b'"dnsName":"a.example.com","targets":["192.0.2.1"],"recordType":"A"'


def test_a_canonical_endpoint_is_answered_byte_for_byte() -> None:
    body = b"[{" + PLAIN + b', "recordTTL": 300,"labels":{"owner":"me"}}]'

    assert Desk().answer(body) == body


@pytest.mark.parametrize(
    "octets",
    [
        PLAIN,
        PLAIN + b',"recordTTL":null',
        PLAIN + b',"recordTTL":0,"labels":null',
        PLAIN + b',"recordTTL":0,"labels":{}',
        PLAIN + b',"recordTTL":0,"providerSpecific":[]',
        PLAIN + b',"recordTTL":0,"providerSpecific":null',
        PLAIN + b',"recordTTL":0,"setIdentifier":""',
        PLAIN + b',"recordTTL":0,"unknown":1',
        PLAIN.replace(b"dnsName", b"DNSName") + b',"recordTTL":0',
        PLAIN.replace(b"a.ex", b"A.ex") + b',"recordTTL":0',
        PLAIN.replace(b"192.0.2.1", b'192.0.2.1","192.0.2.1') + b',"recordTTL":0',
    ],
)
def test_an_answer_has_every_required_key_and_no_empty_one(octets: bytes) -> None:
    exact = b'[{"dnsName":"a.example.com","recordType":"A","targets":["192.0.2.1"],"recordTTL":0}]'

    assert exact == Desk().answer(b"[{" + octets + b"}]")


def test_a_remembered_result_is_the_same_bytes_in_any_order() -> None:
    desk = Desk()
    wanted = [a(f"Host-{number}.example.com", labels={"owner": "x"}) for number in range(20)]

    first = desk.adjust(wanted)
    again = desk.adjust(wanted[::-1])

    assert first == again[::-1]
    assert desk.answer(wanted) == Desk().answer(wanted)


def test_a_changed_endpoint_is_adjusted_anew() -> None:
    desk = Desk()
    desk.adjust([a("app.example.com", "192.0.2.1")])

    assert ["192.0.2.2"] == desk.adjust([a("app.example.com", "192.0.2.2")])[0]["targets"]


def test_drops_are_counted_on_every_pass_but_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            desk.adjust([BAD, a("app.example.com")])

    assert [DropReason.INVALID_TARGET, DropReason.NO_TARGETS] * 3 == desk.reasons
    assert 2 == len([record for record in caplog.records if "endpoint dropped" in record.getMessage()])


def test_long_values_are_cut_in_the_log_of_a_drop() -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("dnswebhook.adjuster").addHandler(handler)
    try:
        Desk().adjust([{"dnsName": "x" * 100_000, "recordType": "y" * 100_000}, a("app.example.com", "z" * 100_000)])
    finally:
        logging.getLogger("dnswebhook.adjuster").removeHandler(handler)

    assert 3 == len(lines.getvalue().splitlines())
    assert len(lines.getvalue()) < 5000


def test_endpoints_that_a_pass_did_not_contain_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()

    with caplog.at_level(logging.WARNING):
        desk.adjust([BAD])
        desk.adjust([])
        desk.adjust([BAD])

    assert 4 == len([record for record in caplog.records if "endpoint dropped" in record.getMessage()])


def test_remembered_results_are_forgotten_when_the_capabilities_change() -> None:
    desk = Desk()
    wanted = [{"dnsName": "app.example.com", "recordType": "CNAME", "targets": ["h.example.net"], "recordTTL": 604800}]

    assert [86400, 604800, 86400] == [
        desk.adjust(wanted, capabilities)[0]["recordTTL"] for capabilities in (V2, INTEGRATION, V2)
    ]


def test_a_body_that_is_refused_leaves_the_memory_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.adjust([BAD])

    with pytest.raises(wire.WireError, match=r"\[1\].dnsName"):
        desk.adjust([a("app.example.com"), {"dnsName": 5}])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        desk.adjust([BAD])

    assert [] == [record for record in caplog.records if "endpoint dropped" in record.getMessage()]


@pytest.mark.parametrize(
    "nameless",
    [
        {"recordType": "A", "targets": ["192.0.2.1"]},
        {"recordType": "A", "targets": ["192.0.2.1"], "other": 1},
        {"dnsName": "", "recordType": "A", "targets": ["192.0.2.1"]},
    ],
)
def test_an_endpoint_without_a_name_is_left_out_and_the_others_stay(nameless: dict[str, Any]) -> None:
    """A DNSEndpoint may lack it, and external-dns sends it on: a refusal would end external-dns at each start."""
    desk = Desk()

    assert ["app.example.com"] == [e["dnsName"] for e in desk.adjust([nameless, a("app.example.com")])]
    assert [DropReason.INVALID_NAME] == desk.reasons


def test_the_place_of_a_bad_field_is_named_in_either_shape() -> None:
    wanted = [a("app.example.com"), a("b.example.com", recordTTL="soon")]

    with pytest.raises(wire.WireError, match=r"^\[1\]\.recordTTL"):
        Desk().answer(wanted)
    with pytest.raises(wire.WireError, match=r"^endpoints\[1\]\.recordTTL"):
        Desk().answer({"endpoints": wanted})


def test_a_drop_is_not_logged_again_when_only_properties_change(caplog: pytest.LogCaptureFixture) -> None:
    """external-dns attaches the properties of an Ingress with several names to a different name in each pass."""
    desk = Desk()
    both: list[dict[str, Any]] = [
        {"dnsName": name, "recordType": "CNAME", "targets": ["b.net", "a.net"]} for name in ("x.lan", "y.lan")
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            desk.adjust(both)
            both = [{**both[1], "providerSpecific": [{}]}, both[0]]
        desk.adjust([])
        desk.adjust(both)

    names = [line_of(record)["name"] for record in caplog.records]
    assert ["x.lan", "x.lan", "y.lan", "y.lan"] == sorted(map(str, names))
    assert [DropReason.SURPLUS_CNAME_TARGET] * 6 == desk.reasons


def test_sets_that_differ_only_by_identifier_are_joined_at_the_place_of_the_first() -> None:
    desk = Desk()
    wanted = [
        a("first.example.com"),
        a("app.example.com", "192.0.2.2", setIdentifier="blue", recordTTL=300),
        a("between.example.com"),
        a("App.example.com", "192.0.2.1", setIdentifier="green", recordTTL=60),
    ]

    for _ in range(2):  # worked out, then remembered
        adjusted = desk.adjust(wanted)

        assert ["first.example.com", "app.example.com", "between.example.com"] == [e["dnsName"] for e in adjusted]
        assert (["192.0.2.1", "192.0.2.2"], 60) == (adjusted[1]["targets"], adjusted[1]["recordTTL"])
        assert "setIdentifier" not in adjusted[1]


def test_one_set_with_an_identifier_stays_alone_once_the_other_is_gone() -> None:
    desk = Desk()
    blue = a("app.example.com", "192.0.2.2", setIdentifier="blue")
    green = a("app.example.com", "192.0.2.1", setIdentifier="green")

    desk.adjust([blue, green])

    assert [["192.0.2.2"]] == [endpoint["targets"] for endpoint in desk.adjust([blue])]


def test_the_same_endpoint_twice_in_one_body_is_answered_twice() -> None:
    """external-dns resolves such conflicts itself."""
    assert 2 == len(Desk().adjust([a("app.example.com"), a("app.example.com")]))


def test_protected_names_are_left_out() -> None:
    desk = Desk("*.lan")

    assert ["app.example.com"] == [e["dnsName"] for e in desk.adjust([a("nas.lan"), a("app.example.com")])]
    assert [DropReason.PROTECTED] == desk.reasons


def test_whether_a_record_is_desired_is_answered_in_constant_time() -> None:
    """A listing asks for each ownership record that an apply left open: for all, when the store was refusing."""
    desk = Desk()
    names = [f"host-{number}.example.com" for number in range(10_000)]
    desk.adjust([a(name) for name in names])

    answers: set[bool | None] = set()
    calls = calls_of(lambda: answers.update(desk.adjuster.is_desired(name, "A") for name in names))

    assert {True} == answers
    assert desk.adjuster.is_desired(names[0], "AAAA") is False
    assert calls < 50 * len(names)
    desk.adjust([a("new.example.com")])
    assert (False, True) == tuple(desk.adjuster.is_desired(name, "A") for name in (names[0], "new.example.com"))


def test_foreign_properties_are_removed_and_labels_stay_as_they_are() -> None:
    labels = {"owner": "Default", "resource": "ingress/Ns/App"}
    wanted = a("app.example.com", labels=labels, providerSpecific=[{"name": "aws/x", "value": "1"}])

    adjusted = Desk().adjust([wanted])[0]

    assert labels == adjusted["labels"]
    assert "providerSpecific" not in adjusted


@given(st.lists(endpoints().filter(lambda endpoint: endpoint.dns_name != ""), max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_adjusting_an_answer_changes_nothing_and_memory_makes_no_difference(wanted: list[Any], wrapped: bool) -> None:
    body = wire.join_endpoints(map(wire.encode_endpoint, wanted), wrapped)
    desk = Desk()

    once = desk.answer(body)

    assert once == desk.answer(body) == Desk().answer(body)
    assert once == Desk().answer(once)
    assert len(msgspec.json.decode(once)["endpoints"] if wrapped else msgspec.json.decode(once)) <= len(wanted)


def test_a_record_beyond_the_limits_of_the_store_stays_while_it_is_served_and_each_change_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    name = ".".join(["x" * 60, "y" * 60, "example.com"])
    wanted = [a(name)]

    def served() -> Served:
        return Served([Record("1", name, "A", "192.0.2.1")])

    assert [name] == [each["dnsName"] for each in desk.adjust(wanted, V2)]
    with caplog.at_level(logging.WARNING):
        kept = [desk.adjust(wanted, INTEGRATION, served()) for _ in range(3)]
        is_desired = desk.adjuster.is_desired(name, "A")
        gone = [desk.adjust(wanted, INTEGRATION, Served([])) for _ in range(3)]

    assert [[name]] * 3 == [[each["dnsName"] for each in answer] for answer in kept]
    assert is_desired
    assert [[]] * 3 == gone
    assert [DropReason.NAME_TOO_LONG] * 3 == desk.reasons
    logged = [record.getMessage() for record in caplog.records]
    assert ["endpoint left as it is in the store", "endpoint dropped"] == logged


@pytest.mark.parametrize("beside", [(), ("10 mail.example.net",)])
def test_a_target_beyond_the_limits_of_the_store_is_left_out_only_until_it_is_served(beside: tuple[str, ...]) -> None:
    desk = Desk()
    long = "20 " + ".".join(["x" * 60, "y" * 60, "example.com"])
    wanted = [{"dnsName": "app.example.com", "recordType": "MX", "targets": [*beside, long]}]

    answers = [
        desk.adjust(wanted, INTEGRATION, Served(rows))
        for rows in ([], [Record("1", "app.example.com", "MX", long)], [])
    ]

    assert [[*beside], [*beside, long], [*beside]] == [
        [target for each in answer for target in each["targets"]] for answer in answers
    ]
