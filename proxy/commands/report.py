"""The result of `explain` for one request at one door, as plain values: printed as JSON, or by `explainview`."""

import msgspec

from proxy.routing import Answer, BackendShare, Explanation, Forward, HeaderEdits, MatchPlace, Miss, Redirect

_FIXED = "fixed"
_HANDLED = frozenset({_FIXED, "preflight"})
"""Reasons of responses that a route asks for; all others mean that something is missing."""
_MAX_TEXT = 120


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is done with the request if every random choice selects the first option."""

    action: str
    """forward, redirect or answer."""
    status_code: int = 0
    reason: str = ""
    text: str = ""
    """The beginning of a fixed response's body, in which a controller gives the reason for it."""
    location: str = ""
    backend: str = ""
    addresses: tuple[str, ...] = ()
    authority: str = ""
    path: str = ""
    removed_headers: tuple[str, ...] = ()
    added_headers: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    door: str
    host: str
    path: str
    listener: str | None
    listener_hostname: str
    other_listeners: tuple[str, ...]
    winner: MatchPlace | None
    runner_up: MatchPlace | None
    decided_by: str | None
    filters: tuple[str, ...]
    backends: tuple[BackendShare, ...]
    outcome: Outcome
    misses: tuple[Miss, ...]
    is_routed: bool
    """A route matches the request and can handle it."""


def report_of(explanation: Explanation) -> Report:
    decision = explanation.decision
    is_routed = not isinstance(decision, Answer) or decision.reason in _HANDLED
    shared = {name: getattr(explanation, name) for name in Report.__struct_fields__ if hasattr(explanation, name)}
    return Report(**shared, outcome=_outcome(explanation), is_routed=is_routed)


def _outcome(explanation: Explanation) -> Outcome:
    match explanation.decision:
        case Forward() as forward:
            return Outcome(
                "forward",
                backend=forward.backend.key,
                addresses=forward.backend.spec.addresses,
                authority=_text(forward.authority),
                path=_text(forward.path),
                removed_headers=_removed(forward.request_edits),
                added_headers=_added(forward.request_edits),
                mirrors=tuple(mirror.key for mirror in forward.mirrors),
            )
        case Redirect() as redirect:
            return Outcome("redirect", status_code=redirect.status_code, location=_text(redirect.location))
        case Answer() as answer:
            body = answer.body if answer.reason == _FIXED else b""
            return Outcome("answer", status_code=answer.status_code, reason=answer.reason, text=_beginning(body))


def _removed(edits: HeaderEdits | None) -> tuple[str, ...]:
    """Names of headers that are removed and not set again."""
    if edits is None:
        return ()
    return tuple(sorted(_text(name) for name in edits.drop - {name for name, _ in edits.append}))


def _added(edits: HeaderEdits | None) -> tuple[str, ...]:
    return tuple(f"{_text(name)}: {_text(value)}" for name, value in edits.append) if edits is not None else ()


def _beginning(body: bytes) -> str:
    line = _text(body).strip().partition("\n")[0].rstrip()
    line = "".join(each if each.isprintable() else " " for each in line)  # others may control a terminal
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
