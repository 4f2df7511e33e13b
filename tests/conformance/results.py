"""What the suite printed, as figures.

The suite's own report counts every parallel test as passed (it is written before they end), so its log is believed.
"""

import re
from pathlib import Path

import msgspec

# With `-test.v=test2json` a verdict is printed as soon as there is one.
_VERDICT = re.compile(r"^\x16?\s*--- (PASS|FAIL|SKIP): TestConformance/(\S+) \(([\d.]+)s\)")


class Summary(msgspec.Struct):
    suite: str
    """Its version."""
    exit_code: int
    duration_s: float
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    failed_cases: list[str]
    """The innermost ones."""
    status_writes: int = 0
    """By the controller."""
    is_quiet: bool = False
    """Whether nobody wrote to the API server any more after the last test."""

    @property
    def is_success(self) -> bool:
        """The exit code counts: trouble before the first test shows up nowhere else."""
        return self.exit_code == 0 and bool(self.passed) and self.is_quiet


def read_results(log: Path, suite: str, exit_code: int, duration_s: float) -> Summary:
    verdicts: dict[str, list[str]] = {"PASS": [], "FAIL": [], "SKIP": []}
    cases: list[str] = []
    for line in log.read_text(errors="replace").splitlines():
        found = _VERDICT.match(line)
        if found is None:
            continue
        verdict, name, _ = found.groups()
        if "/" not in name:
            verdicts[verdict].append(name)
        elif verdict == "FAIL":
            cases.append(name)
    passed, failed, skipped = (sorted(verdicts[verdict]) for verdict in ("PASS", "FAIL", "SKIP"))
    innermost = [case for case in cases if not any(other.startswith(f"{case}/") for other in cases)]
    return Summary(suite, exit_code, round(duration_s, 1), passed, failed, skipped, innermost)
