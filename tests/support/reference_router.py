"""The order of precedence once more, written for readability and not for speed: it checks every match of every route.

Works on the plain JSON of a document, and on request heads as text; regular expressions are Python's own. It shares no
code with the router that it verifies.
"""

import re
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote

Json: TypeAlias = dict[str, Any]

MAX_TIME = "9999"
UNRESERVED = re.compile("[A-Za-z0-9._~-]")
IN_PATHS = "!$&'()*+,;=:@/"
"""What a path may contain besides unreserved characters (RFC 3986, 3.3)."""


def verdict(document: Json, port: int, head: Json) -> str:
    """`route/index of rule` of the match that wins, or the reason why there is none.

    `head` has host (the authority as sent), path, query and method as text, and headers as pairs in lower case.
    """
    path = normal(head["path"], merges_slashes=document.get("mergeSlashes", True))
    if path is None:
        return "bad_path"
    host = host_of(head["host"])
    covering = [one for one in document["listeners"] if one["port"] == port and host_fits(hostname_of(one), host)]
    if not covering:
        return "no_listener"
    listener = min(covering, key=lambda one: host_rank(hostname_of(one)))
    seen = {**head, "path": path}
    candidates = [
        (rank, f"{route['name']}/{rule_index}")
        for route in document["routes"]
        if listener["name"] in route.get("listeners", [listener["name"]])
        and (route.get("kind") != "grpc" or is_call(head))
        for hostname in route.get("hostnames") or [""]
        if host_fits(hostname, host)
        for rule_index, rule in enumerate(route["rules"])
        for match_index, match in enumerate(rule.get("matches") or [{}])
        if match_fits(match, rule, seen)
        for kind in [route.get("kind") != "grpc"]
        for rank in [(host_rank(hostname), kind, match_rank(match), *route_rank(route), rule_index, match_index)]
    ]
    return min(candidates)[1] if candidates else "no_route"


def hostname_of(listener: Json) -> str:
    return str(listener.get("hostname", ""))


def host_of(authority: str) -> str:
    """In lower case, without port and final dot."""
    return re.sub(r"\.?(:\d+)?$", "", authority).lower()


def host_fits(hostname: str, host: str) -> bool:
    if hostname.startswith("*."):
        return host.endswith(hostname[1:]) and len(host) > len(hostname) - 1
    return hostname in ("", host)


def host_rank(hostname: str) -> tuple[int, int]:
    """Exact names first, then wildcards, then none; of two, the longer."""
    kind = 2 if not hostname else 1 if hostname.startswith("*.") else 0
    return kind, -len(hostname)


def match_rank(match: Json) -> tuple[int, ...]:
    method = 2 if "method" not in match else 0 if match["method"] == "OPTIONS" else 1
    counts = (-len(header_conditions(match)), -len(query_conditions(match)))
    return (*(call_rank(match["grpc"]) if "grpc" in match else path_rank(path_of(match))), method, *counts)


def path_rank(path: Json) -> tuple[int, int, int]:
    kind = ["Exact", "RegularExpression", "PathPrefix"].index(path["type"])
    return kind, -len(path["value"].rstrip("/") if path["type"] == "PathPrefix" else path["value"]), 0


def call_rank(call: Json) -> tuple[int, int, int]:
    """Expressions rank behind names of services, before names of methods alone."""
    service, method = call.get("service", ""), call.get("method", "")
    if call.get("type") == "RegularExpression":
        return 1, -len(service), -len(method)
    return 0 if service else 2, -len(service), -len(method)


def route_rank(route: Json) -> tuple[str, str]:
    return route.get("createdAt", MAX_TIME), route["name"]


def is_of_clients(name: str) -> bool:
    """Whether a field of this name describes a client; an unknown client's own ones count for nothing."""
    plain = re.sub("[^a-z0-9]", "-", name)
    return (
        re.fullmatch("(x-forwarded|cf)-.*|forwarded|x-real-ip|true-client-ip|client-cert(-chain)?", plain) is not None
    )


def match_fits(match: Json, rule: Json, head: Json) -> bool:
    """A preflight fits, too, if the rule has CORS and may get the request that the preflight announces."""
    method, names = announced(head) if "cors" in rule.get("filters", {}) else (None, [])
    query = first_values(parse_qsl(head["query"], keep_blank_values=True))
    return (
        (call_fits(match["grpc"], head["path"]) if "grpc" in match else path_fits(path_of(match), head["path"]))
        and match.get("method", head["method"]) in (head["method"], method)
        and all(
            name in names or value_fits(wanted, header_value(head, name))
            for name, wanted in header_conditions(match).items()
        )
        and all(value_fits(wanted, query.get(name)) for name, wanted in query_conditions(match).items())
    )


def announced(head: Json) -> tuple[str | None, list[str]]:
    """Method and names of header fields of the request after a preflight; of no use for other requests."""
    method = header_value(head, "access-control-request-method")
    if head["method"] != "OPTIONS" or method is None or header_value(head, "origin") is None:
        return None, []
    names = re.split(" *, *", (header_value(head, "access-control-request-headers") or "").lower())
    return method, [name for name in names if not is_of_clients(name)]


def is_call(head: Json) -> bool:
    return re.match(r"application/grpc($|[+;])", header_value(head, "content-type") or "") is not None


def header_conditions(match: Json) -> dict[str, Json]:
    """By name in lower case; of two whose names differ only in case, the first counts."""
    return {wanted["name"].lower(): wanted for wanted in reversed(match.get("headers", []))}


def query_conditions(match: Json) -> dict[str, Json]:
    """By name; of two with the same name, the first counts."""
    return {wanted["name"]: wanted for wanted in reversed(match.get("queryParams", []))}


def header_value(head: Json, name: str) -> str | None:
    """Fields of one name as one list (RFC 9110, 5.3), cookies as RFC 9113 joins them."""
    values = [value for key, value in head["headers"] if key == name and not is_of_clients(name)]
    if len(values) < 2:
        return values[0] if values else None
    return ("; " if name == "cookie" else ", ").join(value for value in values if value)


def first_values(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(reversed(pairs))


def path_of(match: Json) -> Json:
    """The condition on the path in the form of requests; expressions are written for that form."""
    path = {"type": "PathPrefix", "value": "/", **match.get("path", {})}
    is_text = path["type"] != "RegularExpression"
    return {**path, "value": normal(path["value"], merges_slashes=False)} if is_text else path


def path_fits(wanted: Json, path: str) -> bool:
    value = wanted["value"]
    if wanted["type"] == "Exact":
        return bool(path == value)
    if wanted["type"] == "RegularExpression":
        return re.fullmatch(value, path) is not None
    elements = [element for element in value.split("/") if element]
    return path.split("/")[1 : len(elements) + 1] == elements


def call_fits(wanted: Json, path: str) -> bool:
    service, _, method = path[1:].rpartition("/")
    type_ = wanted.get("type", "Exact")
    return all(
        value_fits({"type": type_, "value": wanted[key]}, value)
        for key, value in [("service", service), ("method", method)]
        if key in wanted
    )


def value_fits(wanted: Json, value: str | None) -> bool:
    if value is None:
        return False
    if wanted.get("type") == "RegularExpression":
        return re.fullmatch(wanted["value"], value) is not None
    return bool(value == wanted["value"])


def normal(path: str, *, merges_slashes: bool) -> str | None:
    """The normal form of a path, as docs/proxy-document.md describes it; None if it has none."""
    if not path.startswith("/") or re.search(r"[\\#]|%(?![0-9A-Fa-f]{2})|%00", path):
        return None
    path = re.sub("(?s)%..|.", lambda found: spelled(found.group()), path)
    if merges_slashes:
        path = re.sub("/+", "/", path)
    if re.search(r"/\.\.?;", path):
        return None
    path = fully(r"/\.(/|$)", path)
    path = fully(r"/(?!\.\./)[^/]*/\.\.(/|$)", path)
    hidden = re.search(r"(/|%2F|%5C)\.\.?(/|;|%2F|%5C|$)", path)
    return None if hidden else path


def spelled(piece: str) -> str:
    """A character or a percent-encoded octet in its only spelling."""
    if len(piece) == 1:
        return quote(piece, safe=IN_PATHS)
    character = chr(int(piece[1:], 16))
    return character if UNRESERVED.fullmatch(character) else piece.upper()


def fully(pattern: str, path: str) -> str:
    """Replaces what matches by a slash, one after the other, until nothing does."""
    while (shorter := re.sub(pattern, "/", path, count=1)) != path:
        path = shorter
    return path
