"""Shapes of HTTPRoute and GRPCRoute."""

import re
from typing import Any, Final

from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.sources.directory.schema import filters
from tunnelgw.sources.directory.schema.common import (
    COOKIE_NAME,
    DURATION,
    HEADER_NAME,
    HEADER_VALUE,
    HOSTNAME,
    NAME,
    NAMESPACE,
    PATH,
    PORT,
    SECTION,
    group,
    kind,
    needs_by,
    port_of_reference,
    told_apart,
)
from tunnelgw.sources.directory.schema.shapes import Fields, Items, Number, Shape, Text

_MOST_MATCHES: Final = 128
_ROOT: Final = {"type": "PathPrefix", "value": "/"}
_NOT_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F", "#")
_NOT_AT_ENDS: Final = ("/..", "/.")
_PATH: Final = re.compile(PATH)
_UNITS_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def _path(match: Any) -> str | None:
    value = match["value"]
    if match["type"] == "RegularExpression":
        return None
    if not value.startswith("/"):
        return f"{value!r} does not start with '/'"
    for part in _NOT_IN_PATHS:
        if part in value:
            return f"{value!r} contains {part!r}"
    for end in _NOT_AT_ENDS:
        if value.endswith(end):
            return f"{value!r} ends with {end!r}"
    return None if _PATH.fullmatch(value) else f"{value!r} has characters that paths cannot have"


def _few_matches(rules: Any) -> str | None:
    count = sum(len(rule.get("matches", ())) for rule in rules)
    return f"has {count} matches in all rules, more than {_MOST_MATCHES}" if count > _MOST_MATCHES else None


def _distinct_names(rules: Any) -> str | None:
    names = [rule["name"] for rule in rules if "name" in rule]
    twice = next((name for name in names if names.count(name) > 1), None)
    return f"name {twice} occurs twice" if twice else None


def _no_backend_for_redirect(rule: Any) -> str | None:
    if rule.get("backendRefs") and any("requestRedirect" in each for each in rule.get("filters", ())):
        return "filter RequestRedirect must not be used together with backendRefs"
    return None


def _prefix_for_replacement(rule: Any) -> str | None:
    """The replaced prefix must be known, so there must be exactly one match, and that by prefix."""
    matches = rule.get("matches", ())
    if len(matches) == 1 and matches[0]["path"]["type"] == "PathPrefix":
        return None
    lists = [rule.get("filters", ()), *(ref.get("filters", ()) for ref in rule.get("backendRefs", ()))]
    for each in (each for several in lists for each in several):
        for field in ("requestRedirect", "urlRewrite"):
            if "replacePrefixMatch" in each.get(field, {}).get("path", {}):
                return f"replacePrefixMatch in {field} needs exactly one match, of type PathPrefix"
    return None


def _timeouts(timeouts: Any) -> str | None:
    if "request" in timeouts and "backendRequest" in timeouts:
        whole, part = _milliseconds(timeouts["request"]), _milliseconds(timeouts["backendRequest"])
        if whole and part > whole:
            return "backendRequest is longer than request"
    return None


def _milliseconds(duration: str) -> int:
    return sum(int(number) * _UNITS_MS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", duration))


def _persistence(persistence: Any) -> str | None:
    lasting = persistence.get("cookie", {}).get("lifetimeType") == "Permanent"
    if lasting and "absoluteTimeout" not in persistence:
        return "absoluteTimeout is missing, which lifetimeType Permanent needs"
    return None


def _grpc_method(method: Any) -> str | None:
    if "service" not in method and "method" not in method:
        return "one of service and method must be set"
    if method["type"] == "Exact":
        if not _GRPC_SERVICE.fullmatch(method.get("service", "a")):
            return f"{method['service']!r} is not a valid service name"
        if not _GRPC_METHOD.fullmatch(method.get("method", "a")):
            return f"{method['method']!r} is not a valid method name"
    return None


_GRPC_SERVICE = re.compile(r"\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*", re.IGNORECASE | re.ASCII)
_GRPC_METHOD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_MATCH_TYPE = Text(words=("Exact", "RegularExpression"), default="Exact")


def _values(value: Text) -> Items:
    fields: dict[str, Shape] = {"type": _MATCH_TYPE, "name": HEADER_NAME, "value": value}
    return Items(Fields(fields, "name", "value"), 0, 16, unique_by="name")


def _route(rule: Fields, default_rules: list[Any] | None = None) -> Fields:
    parent: dict[str, Shape] = {
        "group": group(GATEWAY_API),
        "kind": kind("Gateway"),
        "name": NAME,
        "namespace": NAMESPACE,
        "sectionName": SECTION,
        "port": PORT,
    }
    rules = [_few_matches, _distinct_names]
    listed = (
        Items(rule, 1, 16, rules=rules, default=default_rules) if default_rules else Items(rule, 0, 16, rules=rules)
    )
    return Fields(
        {
            "parentRefs": Items(Fields(parent, "name"), 0, 32, rules=told_apart("sectionName", "port")),
            "hostnames": Items(HOSTNAME, 0, 16),
            "useDefaultGateways": Text(words=("All", "None")),
            "rules": listed,
        }
    )


def _rule(
    match: Fields, kinds: Items, *rules: Any, default: Any = None, extra: dict[str, Shape] | None = None
) -> Fields:
    backend: dict[str, Shape] = {
        **filters.BACKEND_FIELDS,
        "weight": Number(0, 1_000_000, default=1),
        "filters": kinds,
    }
    matches = Items(match, 0, 64, default=default) if default else Items(match, 0, 64)
    return Fields(
        {
            "name": SECTION,
            "matches": matches,
            "filters": kinds,
            "backendRefs": Items(Fields(backend, "name", rules=[port_of_reference]), 0, 16),
            "sessionPersistence": _PERSISTENCE,
            **(extra or {}),
        },
        rules=rules,
    )


_PERSISTENCE = Fields(
    {
        "absoluteTimeout": DURATION,
        "type": Text(words=("Cookie", "Header"), default="Cookie"),
        "cookie": Fields(
            {
                "name": COOKIE_NAME,
                "path": Text(0, 1024, default="/"),
                "lifetimeType": Text(words=("Permanent", "Session"), default="Session"),
            }
        ),
        "header": Fields({"name": HEADER_NAME}, "name"),
    },
    rules=[needs_by("type", {"Cookie": "cookie", "Header": "header"}), _persistence],
    instead={"sessionName": "cookie.name or header.name", "cookieConfig": "cookie"},
)
_HTTP_MATCH = Fields(
    {
        "path": Fields(
            {
                "type": Text(words=("Exact", "PathPrefix", "RegularExpression"), default="PathPrefix"),
                "value": Text(0, 1024, default="/"),
            },
            rules=[_path],
            default=_ROOT,
        ),
        "headers": _values(HEADER_VALUE),
        "queryParams": _values(Text(1, 1024)),
        "method": Text(words=filters.METHODS),
    }
)
_HTTP_RULE = _rule(
    _HTTP_MATCH,
    filters.HTTP,
    _no_backend_for_redirect,
    _prefix_for_replacement,
    default=[{"path": _ROOT}],
    extra={
        "timeouts": Fields({"request": DURATION, "backendRequest": DURATION}, rules=[_timeouts]),
        "retry": Fields(
            {"codes": Items(Number(400, 599), is_set=True), "attempts": Number(0, default=1), "backoff": DURATION}
        ),
    },
)
HTTP_ROUTE = _route(_HTTP_RULE, [{"matches": [{"path": _ROOT}]}])

_GRPC_MATCH = Fields(
    {
        "method": Fields(
            {"type": _MATCH_TYPE, "service": Text(0, 1024), "method": Text(0, 1024)}, rules=[_grpc_method]
        ),
        "headers": _values(Text(1, 4096)),
    }
)
GRPC_ROUTE = _route(_rule(_GRPC_MATCH, filters.GRPC))
