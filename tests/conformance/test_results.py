"""Verdicts out of the suite's log."""

from pathlib import Path

from tests.conformance.results import Summary, read_results

LOG = """\
=== RUN   TestConformance/One
--- PASS: TestConformance/One/1_request (0.01s)
\x16--- PASS: TestConformance/One (1.25s)
--- FAIL: TestConformance/Two/a/1_request (0.01s)
--- FAIL: TestConformance/Two/a (0.01s)
--- FAIL: TestConformance/Two (0.02s)
    --- SKIP: TestConformance/Three (0.00s)
--- FAIL: TestConformance (9.00s)
"""


def results(tmp_path: Path, text: str, exit_code: int) -> Summary:
    log = tmp_path / "suite.log"
    log.write_text(text)
    summary = read_results(log, "1.6.1", exit_code, 9.04)
    summary.is_quiet = True
    return summary


def test_tests_are_told_from_their_cases_and_of_those_the_innermost_that_failed_are_named(tmp_path: Path) -> None:
    summary = results(tmp_path, LOG, 1)

    assert (summary.passed, summary.failed, summary.skipped) == (["One"], ["Two"], ["Three"])
    assert summary.failed_cases == ["Two/a/1_request"]
    assert not summary.is_success


def test_a_suite_that_ended_before_its_first_test_is_no_success(tmp_path: Path) -> None:
    assert not results(tmp_path, "", 0).is_success
    assert not results(tmp_path, "--- PASS: TestConformance/One (1.25s)\n", 2).is_success
    assert results(tmp_path, "--- PASS: TestConformance/One (1.25s)\n", 0).is_success


def test_a_controller_that_goes_on_writing_is_no_success(tmp_path: Path) -> None:
    summary = results(tmp_path, "--- PASS: TestConformance/One (1.25s)\n", 0)
    summary.is_quiet = False

    assert not summary.is_success
