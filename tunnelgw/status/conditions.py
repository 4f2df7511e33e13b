"""Merges conditions by type, as Gateway API requires: ours are set to the findings, those of others stay unchanged.

`lastTransitionTime` changes only if `status` does. All of our conditions carry the generation of the spec that was
evaluated, including those that did not change. A status that was written for a newer generation than ours is left
alone.
"""

from collections.abc import Collection, Sequence

from tunnelgw.model.conditions import Condition, ConditionType, Finding

MAX_MESSAGE_CHARACTERS = 32_768
MAX_CONDITIONS = 8
"""The limit for an object, a listener or a parent; the API server refuses a status with more."""


class Outdated(Exception):
    """The stored status is about a newer generation than the object that was evaluated. To be tried again later."""


def merge_conditions(
    current: Sequence[Condition],
    findings: Sequence[Finding],
    owned: Collection[ConditionType],
    generation: int,
    now: str,
) -> tuple[Condition, ...]:
    """The conditions that the status should hold; equal to `current` if nothing changed. Raises Outdated.

    `owned`: the types that we write on this kind of entry; those without a finding are dropped. If the conditions of
    others leave no room for all `findings`, the last ones are left out. `now`: RFC 3339 to the second.
    """
    ours = {*owned, *(finding.type.value for finding in findings)}
    room = max(0, MAX_CONDITIONS - sum(condition.type not in ours for condition in current))
    found = {finding.type.value: finding for finding in findings[:room]}
    newest = max((condition.observed_generation for condition in current if condition.type in ours), default=0)
    if newest > generation:
        raise Outdated(f"the status is about generation {newest}, the object at hand is generation {generation}")
    merged: list[Condition] = []
    for condition in current:
        finding = found.pop(condition.type, None)
        if finding is not None:
            merged.append(_condition(finding, generation, now, condition))
        elif condition.type not in ours:
            merged.append(condition)
    merged += [_condition(finding, generation, now, None) for finding in found.values()]
    return tuple(merged)


def _condition(finding: Finding, generation: int, now: str, last: Condition | None) -> Condition:
    is_transition = last is None or last.status != finding.status
    return Condition(
        type=finding.type.value,
        status=finding.status.value,
        reason=finding.reason.value,
        message=finding.message[:MAX_MESSAGE_CHARACTERS],
        last_transition_time=now if last is None or is_transition else last.last_transition_time,
        observed_generation=generation,
    )
