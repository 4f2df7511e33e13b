"""The order of precedence once more, written for readability and not for speed: it checks every match of every route.

Works on the plain JSON of a document with one listener and HTTP routes; regular expressions are Python's own. It shares
no code with the router that it verifies.
"""

import re
from typing import Any
from urllib.parse import parse_qsl

MAX_TIME = "9999"


def best_route(routes: list[dict[str, Any]], head: dict[str, Any]) -> str | None:
    """Name of the route whose match wins; `head` has host, path, query, method and headers as text."""
    candidates = [
        (rank, route["name"])
        for route in routes
        for hostname in route.get("hostnames") or [""]
        if host_fits(hostname, head["host"])
        for rule_index, rule in enumerate(route["rules"])
        for match_index, match in enumerate(rule.get("matches") or [{}])
        if match_fits(match, head) or (answers_preflights(rule) and match_fits(match, announced(match, head)))
        for rank in [(*host_rank(hostname), *match_rank(match), *route_rank(route), rule_index, match_index)]
    ]
    return min(candidates)[1] if candidates else None


def host_fits(hostname: str, host: str) -> bool:
    if hostname.startswith("*."):
        return host.endswith(hostname[1:]) and len(host) > len(hostname) - 1
    return hostname in ("", host)


def host_rank(hostname: str) -> tuple[int, int]:
    """Exact names first, then wildcards, then none; of two, the longer."""
    kind = 2 if not hostname else 1 if hostname.startswith("*.") else 0
    return kind, -len(hostname)


def match_rank(match: dict[str, Any]) -> tuple[int, ...]:
    path = path_of(match)
    kind = ["Exact", "RegularExpression", "PathPrefix"].index(path["type"])
    length = len(path["value"].rstrip("/") if path["type"] == "PathPrefix" else path["value"])
    counts = (-len(match.get("headers", [])), -len(match.get("queryParams", [])))
    method = 2 if "method" not in match else 0 if match["method"] == "OPTIONS" else 1
    return (kind, -length, method, *counts)


def route_rank(route: dict[str, Any]) -> tuple[str, str]:
    return route.get("createdAt", MAX_TIME), route["name"]


def match_fits(match: dict[str, Any], head: dict[str, Any]) -> bool:
    query: dict[str, str] = {}
    for name, value in parse_qsl(head["query"], keep_blank_values=True):
        query.setdefault(name, value)
    return (
        path_fits(path_of(match), head["path"])
        and match.get("method", head["method"]) == head["method"]
        and all(value_fits(wanted, head["headers"].get(wanted["name"])) for wanted in match.get("headers", []))
        and all(value_fits(wanted, query.get(wanted["name"])) for wanted in match.get("queryParams", []))
    )


def answers_preflights(rule: dict[str, Any]) -> bool:
    return "cors" in rule.get("filters", {})


def announced(match: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    """The request after a preflight, in the form most favourable to the match; other requests stay unchanged."""
    given = head["headers"]
    if head["method"] != "OPTIONS" or not {"origin", "access-control-request-method"} <= given.keys():
        return head
    names = given.get("access-control-request-headers", "").replace(" ", "").split(",")
    hoped = {wanted["name"]: wanted["value"] for wanted in match.get("headers", []) if wanted["name"] in names}
    method = "OPTIONS" if match.get("method") == "OPTIONS" else given["access-control-request-method"]
    return {**head, "method": method, "headers": {**given, **hoped}}


def path_of(match: dict[str, Any]) -> dict[str, str]:
    return {"type": "PathPrefix", "value": "/", **match.get("path", {})}


def path_fits(wanted: dict[str, str], path: str) -> bool:
    value = wanted["value"]
    if wanted["type"] == "Exact":
        return path == value
    if wanted["type"] == "RegularExpression":
        return re.fullmatch(value, path) is not None
    elements = [element for element in value.split("/") if element]
    return path.split("/")[1 : len(elements) + 1] == elements


def value_fits(wanted: dict[str, str], value: str | None) -> bool:
    if value is None:
        return False
    if wanted.get("type") == "RegularExpression":
        return re.fullmatch(wanted["value"], value) is not None
    return value == wanted["value"]
