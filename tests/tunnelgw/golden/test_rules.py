"""Golden cases of rules, filters, matches, backends and backend TLS policies: one YAML file for each question.

rows       which rows of rows.yaml it covers
services   Services of namespace apps with port 80, each with its addresses
objects    all other objects, in namespace apps unless they say otherwise
listeners  of the document; one for HTTP on port 80 unless given. A route's sectionName names them
expect     findings    of routes: all of them, by object; a route that is not named has ResolvedRefs True alone.
                       What stands behind the colon is a part of the message
           policies    of BackendTLSPolicies likewise, by Gateway
           backends    fields of the document's backends, by name; `only: true` says that there are no others
           rules       fields of the rules of a route in the document, by object
requests   what becomes of requests: `ask` (method and URL), `fields`, `chance`; then any of `to` (backend or
           status code), `path`, `host`, `location`, `mirrors`, `grpc`; or `shares`, percent by backend or code
"""

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from proxy import routing
from tests.tunnelgw.golden.certificates import with_certificates
from tests.tunnelgw.translate.world import CERTIFICATE, WEB, World, in_words, object_of, outcome, service
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.policies import policy_verdict

CASES = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
_HEALTHY = ["ResolvedRefs True ResolvedRefs"]
"""The conditions of a route without problems."""
_PORTS = {"http": 80, "https": 443}
_DRAWS = 1000
"""How many requests the shares of backends are counted over."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_rules_and_backends(path: Path) -> None:
    case = with_certificates(yaml.safe_load(path.read_text()))
    assert case["rows"]
    assert not case.keys() - {"rows", "services", "objects", "listeners", "expect", "requests"}
    world = _world(case)
    expect = case.get("expect", {})

    _check_findings(world.findings(), expect.get("findings", {}))
    _check_policies(world, expect.get("policies", {}))
    listeners = [_listener(listener) for listener in case.get("listeners", [WEB])]
    document = world.document(listeners)
    plain = msgspec.json.decode(msgspec.json.encode(document))
    _check_backends(plain.get("backends", []), expect.get("backends", {}))
    _check_rules({route["name"]: route["rules"] for route in plain.get("routes", [])}, expect.get("rules", {}))
    table = routing.compile_table(document)
    for request in case.get("requests", []):
        _check_request(table, request)


def _world(case: dict[str, Any]) -> World:
    plain = list(case.get("objects", []))
    for name, addresses in case.get("services", {}).items():
        plain += service(name, addresses)
    return World(map(object_of, plain))


def _listener(plain: dict[str, Any]) -> dict[str, Any]:
    if plain.get("protocol") == "HTTPS":
        return {**plain, "tls": {"certificates": [CERTIFICATE]}}
    return plain


def _check_findings(seen: dict[str, Any], wanted: dict[str, list[str]]) -> None:
    assert wanted.keys() <= seen.keys()
    for name, findings in seen.items():
        _check_conditions(name, in_words(findings), wanted.get(name, _HEALTHY))


def _check_policies(world: World, wanted: dict[str, dict[str, list[str]]]) -> None:
    seen = {}
    for key in world.snapshot.all(Kind.BACKEND_TLS_POLICY):
        verdict = world.queries.ask(policy_verdict, key)
        seen[str(key)] = {str(ancestor.gateway): in_words(ancestor.findings) for ancestor in verdict.ancestors}
    for name, gateways in wanted.items():
        assert seen[name].keys() == gateways.keys()
        for gateway, findings in gateways.items():
            _check_conditions(f"{name} on {gateway}", seen[name][gateway], findings)


def _check_conditions(name: str, seen: list[str], wanted: list[str]) -> None:
    """Conditions word for word, messages in part."""
    assert [text.partition(":")[0] for text in seen] == [text.partition(":")[0] for text in wanted], (name, seen)
    for text, part in zip(seen, wanted, strict=True):
        assert part.partition(":")[2].strip() in text, (name, seen)


def _check_backends(seen: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
    by_name = {entry["name"]: entry for entry in seen}
    if wanted.pop("only", False):
        assert by_name.keys() == wanted.keys()
    for name, fields in wanted.items():
        assert name in by_name, by_name.keys()
        _check_part(by_name[name], fields, name)


def _check_rules(seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, rules in wanted.items():
        assert len(seen.get(name, [])) == len(rules), seen
        for rule, fields in zip(seen.get(name, []), rules, strict=True):
            _check_part(rule, fields, name)


def _check_part(seen: Any, wanted: Any, at: str) -> None:
    """Objects may have more fields than wanted, except that null says "absent"; lists and values are equal."""
    if not isinstance(wanted, dict) or not isinstance(seen, dict):
        assert seen == wanted, at
        return
    for field, value in wanted.items():
        if value is None:
            assert field not in seen, at
        else:
            assert field in seen, (at, seen)
            _check_part(seen[field], value, f"{at}.{field}")


def _check_request(table: routing.Table, request: dict[str, Any]) -> None:
    method, _, url = request.pop("ask").partition(" ")
    parts = urlsplit(url)
    door = routing.socket_door("", parts.port or _PORTS[parts.scheme])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = tuple((name.encode(), value.encode()) for name, value in request.pop("fields", {}).items())
    head = routing.PlainHead(method.encode(), parts.netloc.encode(), path.encode(), fields)
    chance = request.pop("chance", 0.0)
    if "shares" in request:
        drawn = Counter(outcome(table, door, head, (draw + 0.5) / _DRAWS)["to"] for draw in range(_DRAWS))
        assert {name: 100 * count / _DRAWS for name, count in drawn.items()} == request["shares"], url
        return
    seen = outcome(table, door, head, chance)
    assert {field: seen.get(field) for field in request} == request, (method, url)


def test_a_policy_that_does_not_exist_has_no_ancestors() -> None:
    world = World([])

    assert world.queries.ask(policy_verdict, Key("apps", "none")).ancestors == ()
