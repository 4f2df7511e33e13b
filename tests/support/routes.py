"""Short forms for a document, a request, and its outcome."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from proxy import document, routing
from proxy.heads import Field

DOOR = routing.socket_door("", 8080)


def document_of(*routes: dict[str, Any], **settings: Any) -> document.Document:
    """A checked document."""
    return document.decode(json.dumps({**settings, "routes": routes}).encode())


def table_of(*routes: dict[str, Any], **settings: Any) -> routing.Table:
    """A compiled document with one listener for every host on port 8080, unless `settings` say otherwise."""
    settings.setdefault("listeners", [{"name": "web", "port": 8080}])
    return routing.compile_table(document_of(*routes, **settings))


def route(name: str, *matches: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A route with one rule; its backend's address contains the route's name."""
    rule = {"matches": list(matches), "backends": [backend(name)]}
    return {"name": name, "rules": [{**rule, **fields.pop("rule", {})}], **fields}


def backend(name: str, **fields: Any) -> dict[str, Any]:
    return {"address": f"{name}.test:80", **fields}


def path(value: str, type_: str = "PathPrefix", **conditions: Any) -> dict[str, Any]:
    """A match on the path, with further conditions."""
    return {"path": {"type": type_, "value": value}, **conditions}


def headers(**wanted: str) -> list[dict[str, str]]:
    """Exact conditions on header fields or query parameters."""
    return [{"name": name, "value": value} for name, value in wanted.items()]


def request(url: str, method: str = "GET", **fields: str) -> routing.PlainHead:
    """A head from `host/path?query`; keywords are header fields, with `_` for `-`."""
    host, slash, rest = url.partition("/")
    pairs = tuple((name.replace("_", "-").lower().encode(), value.encode()) for name, value in fields.items())
    return routing.PlainHead(method.encode(), host.encode(), (slash + rest).encode(), pairs)


def head_of(plain: dict[str, Any]) -> routing.PlainHead:
    """The head that the reference router reads as text: host, path, query, method, and headers as pairs."""
    target = plain["path"] + (f"?{plain['query']}" if plain["query"] else "")
    fields = tuple((name.encode(), value.encode()) for name, value in plain["headers"])
    return routing.PlainHead(plain["method"].encode(), plain["host"].encode(), target.encode(), fields)


class Sender:
    """A sender whose requests reach backends with these fields, see `routing.Sender`."""

    def __init__(self, *fields: Field, is_trusted: bool = False) -> None:
        self.is_trusted = is_trusted
        self.asked: list[str] = []
        """The listeners for which the fields were asked for."""
        self._fields = fields

    def forwarded_fields(self, listener: routing.Listener) -> Sequence[Field]:
        self.asked.append(listener.name)
        return self._fields


def draws(*values: float) -> Callable[[], float]:
    """Random draws with known outcomes; drawing more of them fails."""
    left: Iterator[float] = iter(values)
    return lambda: next(left)


def taken(table: routing.Table, head: routing.Head, door: str = DOOR, sender: routing.Sender = routing.STRANGER) -> str:
    """The backend that a request goes to, by the name in its address; else the response's status code and reason."""
    decision = routing.decide(table, door, head, draws(0.0), 0.0, sender)
    match decision:
        case routing.Forward(backend=chosen):
            return chosen.spec.addresses[0].partition(".test:")[0]
        case routing.Redirect(status_code=status_code, location=location):
            return f"{status_code} {location.decode()}"
        case routing.Answer(status_code=status_code, reason=reason):
            return f"{status_code} {reason}"


def outcome(decision: routing.Decision) -> str:
    """The place of the rule that decided, as the reference says it; else the reason why none did."""
    if decision.rule is not None:
        return f"{decision.rule.route_name}/{decision.rule.index}"
    assert isinstance(decision, routing.Answer)
    return decision.reason


def forwarded(table: routing.Table, head: routing.Head, *chances: float, now_s: float = 0.0) -> routing.Forward:
    """The decision for a request that must be forwarded."""
    decision = routing.decide(table, DOOR, head, draws(*chances), now_s)
    assert isinstance(decision, routing.Forward), decision
    return decision


def answered(table: routing.Table, head: routing.Head, *chances: float) -> routing.Answer:
    """The decision for a request that must be answered at once."""
    decision = routing.decide(table, DOOR, head, draws(*chances))
    assert isinstance(decision, routing.Answer), decision
    return decision
