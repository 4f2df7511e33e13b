"""Messages of a route's conditions stay readable, however much is wrong."""

from tunnelgw.model.conditions import ConditionType, Reason
from tunnelgw.translate import verdicts
from tunnelgw.translate.remarks import Remarks, findings_of, unresolved

MAX_MESSAGE_CHARS = 32_768
"""Of a condition, by Gateway API."""


def rule(place: int, *unsupported: str) -> Remarks:
    remarks = Remarks(f"rules[{place}]")
    remarks.unsupported += unsupported
    return remarks


def test_a_message_lists_eight_problems_and_counts_the_others() -> None:
    finding, _ = findings_of([rule(place, "name: wrong") for place in range(11)])

    assert finding.type is ConditionType.ACCEPTED
    assert finding.message.startswith("no rule can be served: rules[0].name: wrong; rules[1].name: wrong; ")
    assert finding.message.endswith("rules[7].name: wrong; and 3 more")


def test_eight_problems_are_all_listed() -> None:
    finding, _ = findings_of([rule(place, "name: wrong") for place in range(8)])

    assert finding.message.endswith("; rules[7].name: wrong")


def test_a_long_problem_is_cut() -> None:
    finding, _ = findings_of([rule(0, "x" * 10_000)])

    assert len(finding.message) < 500
    assert finding.message.endswith("x…")


def test_the_longest_message_fits_a_condition() -> None:
    remarks = [rule(place, *["x" * 10_000] * 100) for place in range(16)]
    for each in remarks:
        for place in range(100):
            each.refer(f"backendRefs[{place}]", unresolved(Reason.BACKEND_NOT_FOUND, "y" * 10_000))

    for told in (findings_of(remarks), findings_of([*remarks, rule(16)])):
        assert len(told) == 2
        assert all(len(finding.message) < MAX_MESSAGE_CHARS / 4 for finding in told)


def test_the_reason_is_that_of_the_first_reference_and_all_are_listed() -> None:
    remarks = rule(3)
    remarks.refer("backendRefs[0]", unresolved(Reason.INVALID_KIND, "no kind of backend"))
    remarks.refer("backendRefs[1]", unresolved(Reason.BACKEND_NOT_FOUND, "not there"))

    [finding] = findings_of([remarks])

    assert finding.reason is Reason.INVALID_KIND
    assert finding.message == "rules[3].backendRefs[0]: no kind of backend; rules[3].backendRefs[1]: not there"


def test_the_message_of_a_finding_is_cut_at_its_limit() -> None:
    whole = "x" * verdicts.MAX_MESSAGE
    for make in (verdicts.true, verdicts.false):
        assert make(ConditionType.ACCEPTED, Reason.ACCEPTED, whole).message == whole
        cut = make(ConditionType.ACCEPTED, Reason.ACCEPTED, f"{whole}y").message
        assert (len(cut), cut[-5:]) == (len(whole), "x ...")
