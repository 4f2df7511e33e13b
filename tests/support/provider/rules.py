"""The provider's checks of an ingress document, and how it changes one on the way back."""

from __future__ import annotations

from typing import Any


def problem_of(config: Any) -> str | None:
    """Why a PUT is refused; None if it is accepted."""
    if not isinstance(config, dict):
        return "config must be an object"
    rules = config.get("ingress")
    if not isinstance(rules, list) or not rules:
        return "at least one ingress rule is needed"
    for number, rule in enumerate(rules, 1):
        if not isinstance(rule, dict) or not rule.get("service"):
            return f"rule {number} has no service"
        if (reason := _hostname_problem(rule.get("hostname") or "")) is not None:
            return f"rule {number}: {reason}"
        is_catch_all = rule.get("hostname") in (None, "", "*") and not rule.get("path")
        if is_catch_all and number < len(rules):
            return f"rule {number} matches all requests, and is not the last one"
        if number == len(rules) and not is_catch_all:
            return "the last rule must match all requests"
    return None


def _hostname_problem(hostname: str) -> str | None:
    if ":" in hostname:
        return f"hostname {hostname!r} has a port"
    if "*" in hostname[1:]:
        return f"hostname {hostname!r}: * is allowed only as the first character"
    return None


def read_back(config: dict[str, Any]) -> dict[str, Any]:
    """The document as the provider returns it: with empty parts added."""
    rules = [{"originRequest": {}, **rule} for rule in config["ingress"]]
    return {"warp-routing": {"enabled": False}, **config, "ingress": rules}
