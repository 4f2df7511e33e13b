"""The problems of a route's rules, collected during translation, and the conditions that report them.

There are three kinds of problems. Values that the proxy does not know, and filters that exclude each other, take the
rule out of service. A reference that leads nowhere affects only the requests that would have gone there.
"""

from collections.abc import Iterable, Sequence

from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.translate.verdicts import false, true

_RESOLVED = true(ConditionType.RESOLVED_REFS, Reason.RESOLVED_REFS)
_MAX_TOLD = 8
"""How many problems a message lists; it is for people to read."""
_MAX_PROBLEM_CHARS = 400


def unresolved(reason: Reason, message: str) -> Finding:
    """The finding for a reference that cannot be followed."""
    return false(ConditionType.RESOLVED_REFS, reason, message)


class Remarks:
    """The problems of one rule. Each message begins with the rule's path in the route."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.unsupported: list[str] = []
        self.incompatible: list[str] = []
        self.unresolved: list[Finding] = []

    @property
    def is_refused(self) -> bool:
        """Whether the rule cannot be served as it is written."""
        return bool(self.unsupported or self.incompatible)

    @property
    def problems(self) -> list[str]:
        return [f"{self.at}.{text}" for text in (*self.incompatible, *self.unsupported)]

    def refer(self, at: str, finding: Finding) -> None:
        """Add a reference, at this path in the rule, that cannot be followed."""
        message = f"{self.at}.{at}: {finding.message}"
        self.unresolved.append(unresolved(finding.reason, message))


def findings_of(rules: Sequence[Remarks]) -> tuple[Finding, ...]:
    """The conditions that a route's rules determine: ResolvedRefs always, others only if something is wrong."""
    refused = [remarks for remarks in rules if remarks.is_refused]
    references = [finding for remarks in rules for finding in remarks.unresolved]
    resolved = _RESOLVED
    if references:
        # References fail for different reasons, but a condition has only one: the first one's. The message lists all.
        resolved = unresolved(references[0].reason, _told(finding.message for finding in references))
    return (*_acceptance(refused, len(rules)), resolved)


def _acceptance(refused: Sequence[Remarks], rules: int) -> Iterable[Finding]:
    if not refused:
        return
    told = _told(problem for remarks in refused for problem in remarks.problems)
    if len(refused) < rules:
        places = ", ".join(remarks.at for remarks in refused)
        message = f"Dropped Rule {places}, whose requests are answered 500: {told}"
        yield true(ConditionType.PARTIALLY_INVALID, Reason.UNSUPPORTED_VALUE, message)
    else:
        is_incompatible = not any(remarks.unsupported for remarks in refused)
        reason = Reason.INCOMPATIBLE_FILTERS if is_incompatible else Reason.UNSUPPORTED_VALUE
        yield false(ConditionType.ACCEPTED, reason, f"no rule can be served: {told}")


def _told(problems: Iterable[str]) -> str:
    listed = [_cut(problem) for problem in problems]
    told = "; ".join(listed[:_MAX_TOLD])
    return told if len(listed) <= _MAX_TOLD else f"{told}; and {len(listed) - _MAX_TOLD} more"


def _cut(problem: str) -> str:
    return problem if len(problem) <= _MAX_PROBLEM_CHARS else f"{problem[: _MAX_PROBLEM_CHARS - 1]}…"
