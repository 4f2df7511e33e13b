"""What the simulated controller reports about the resolver: reloads, breakages, gaps; and about the calls received."""

import pytest

from tests.support.controller import Controller, Operation
from tests.support.controller.resolver import fits_one_line
from tests.support_tests.callers import Caller, a_record


def test_each_committed_write_reloads_once_and_a_refused_one_never(caller: Caller) -> None:
    row_id = caller.v2("POST", content=a_record()).json()["_id"]
    caller.v2("POST", content=a_record())
    caller.v2("PUT", f"/{row_id}", a_record(ttl=60))
    caller.v2("GET")
    caller.v2("DELETE", f"/{row_id}")
    caller.v2("DELETE", f"/{row_id}")

    assert caller.controller.resolver_reloads == 3
    assert caller.controller.calls.writes == {Operation.CREATE: 2, Operation.DELETE: 2, Operation.UPDATE: 1}
    assert caller.controller.calls.count("create", api="v2", status=400) == 1
    assert [call.method for call in caller.controller.calls.log] == ["POST", "POST", "PUT", "GET", "DELETE", "DELETE"]
    assert caller.controller.calls.log[-1].path == "v2/static-dns/{id}"


@pytest.mark.parametrize(
    "content",
    [
        a_record(value="192.0.2.1"),
        {"key": "app.example.com", "record_type": "CNAME", "value": "two.example.com"},
    ],
)
def test_old_firmware_stores_overlapping_cnames_which_break_the_resolver(
    caller: Caller, content: dict[str, str]
) -> None:
    caller.controller.quirks.accepts_cname_overlap = True
    caller.controller.add_row("app.example.com", "CNAME", "one.example.com")
    assert not caller.controller.resolver_is_broken

    assert caller.v2("POST", content=content).status_code == 200
    assert caller.controller.resolver_is_broken
    assert "CNAME beside other records" in caller.controller.resolver_breakages[0]


def test_cnames_that_lead_back_to_their_name_break_the_resolver(controller: Controller) -> None:
    controller.add_row("one.example.com", "CNAME", "two.example.com")
    last = controller.add_row("two.example.com", "CNAME", "three.example.com")
    assert not controller.resolver_is_broken

    with Caller(controller) as caller:
        cname = {"key": "two.example.com", "record_type": "CNAME", "value": "One.example.com"}
        assert caller.v2("PUT", f"/{last.id}", cname).status_code == 200

    assert "CNAME loop" in controller.resolver_breakages[0]


def test_a_disabled_cname_beside_other_records_breaks_nothing_until_enabled(controller: Controller) -> None:
    controller.quirks.accepts_cname_overlap = True
    disabled = controller.add_row("app.example.com", "CNAME", "one.example.com", enabled=False)
    controller.add_row("app.example.com", "A", "192.0.2.1")
    assert not controller.resolver_is_broken

    with Caller(controller) as caller:
        cname = {"key": "app.example.com", "record_type": "CNAME", "value": "one.example.com", "enabled": True}
        assert caller.v2("PUT", f"/{disabled.id}", cname).status_code == 200
    assert controller.resolver_is_broken


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("plain", True),
        ("v=spf1", True),
        ('"with, comma and space"', True),
        (r'"escaped \" quote"', True),
        ("a,b", False),
        ("a b", False),
        ('"a" b', False),
        ('"open', False),
        (r'"open\"', False),
        ('"a\nb"', False),
        ("a\nb", False),
        ("", False),
        ("x" * 994, True),
        ("x" * 995, False),
    ],
)
def test_a_value_must_fit_the_line_format(value: str, fits: bool) -> None:
    assert fits_one_line("app.example.com", value) is fits


def test_a_text_that_v2_accepts_can_break_the_resolver(caller: Caller) -> None:
    content = {"key": "app.example.com", "record_type": "TXT", "value": "a,b"}

    assert caller.v2("POST", content=content).status_code == 200
    assert caller.controller.resolver_is_broken


class TickingClock:
    """Advances by one second with each reading."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def test_an_update_in_place_leaves_no_gap_and_a_replacement_does() -> None:
    with Controller(clock=TickingClock()) as controller, Caller(controller) as caller:
        row = controller.add_row("app.example.com", "A", "192.0.2.1")
        caller.v2("PUT", f"/{row.id}", a_record(value="192.0.2.2"))
        assert (controller.names_ever_empty, controller.max_gap_s) == (set(), 0.0)

        caller.v2("DELETE", f"/{row.id}")
        assert (controller.names_ever_empty, controller.names_with_gaps) == ({"app.example.com"}, set())
        caller.v2("POST", content=a_record(value="192.0.2.3"))

        assert controller.names_with_gaps == {"app.example.com"}
        assert controller.max_gap_s == 1.0


def test_a_gap_of_one_type_is_seen_although_the_name_has_other_rows(caller: Caller) -> None:
    controller = caller.controller
    row = controller.add_row("app.example.com", "A", "192.0.2.1")
    controller.add_row("app.example.com", "TXT", "text")
    caller.v2("DELETE", f"/{row.id}")
    caller.v2("POST", content=a_record(value="192.0.2.3"))

    assert controller.names_with_gaps == set()
    assert controller.record_sets_with_gaps == {"app.example.com A"}
    assert controller.max_record_set_gap_s > 0


def test_adding_before_removing_leaves_no_gap_and_disabling_does(caller: Caller) -> None:
    controller = caller.controller
    old = controller.add_row("app.example.com", "A", "192.0.2.1")
    new = caller.v2("POST", content=a_record(value="192.0.2.2")).json()["_id"]
    caller.v2("DELETE", f"/{old.id}")
    assert controller.names_ever_empty == set()

    caller.v2("PUT", f"/{new}", a_record(value="192.0.2.2", enabled=False))
    assert controller.names_ever_empty == {"app.example.com"}


def test_findings_can_be_reset_while_rows_stay(caller: Caller) -> None:
    controller = caller.controller
    row_id = caller.v2("POST", content=a_record()).json()["_id"]
    caller.v2("DELETE", f"/{row_id}")
    controller.add_row("app.example.com", "TXT", "a b")

    controller.reset_findings()

    assert (controller.resolver_reloads, controller.resolver_is_broken, controller.names_ever_empty) == (
        0,
        False,
        set(),
    )
    assert (controller.calls.count(), len(controller.calls.log), len(controller.rows())) == (0, 0, 1)
