"""Backends of a rule: shares by weight, the answers of broken references, mirrors, and header changes."""

import random
from collections import Counter
from typing import Any

import pytest

from proxy import routing
from tests.support.routes import answered, backend, forwarded, path, request, route, table_of, taken

EMPTY = {"name": "empty"}
INVALID = {"respond": {"statusCode": 500, "body": "no such Service"}}


def shares(*backends: dict[str, Any], count: int = 4000, **settings: Any) -> Counter[str]:
    """What happens to `count` requests: name of the backend, or status code."""
    table = table_of(route("r", rule={"backends": list(backends)}), **settings)
    draw = random.Random(7).random
    seen: Counter[str] = Counter()
    for _ in range(count):
        decision = routing.decide(table, routing.socket_door("", 8080), request("h/"), draw)
        if isinstance(decision, routing.Forward):
            seen[decision.backend.spec.addresses[0].partition(".test:")[0]] += 1
        else:
            seen[str(decision.status_code)] += 1
    return seen


WEIGHTS = [
    ([backend("a", weight=3), {**INVALID, "weight": 1}], {"a": 0.75, "500": 0.25}),
    ([{"backend": "empty", "weight": 3}, {**INVALID, "weight": 1}], {"503": 0.75, "500": 0.25}),
    ([backend("a"), backend("b")], {"a": 0.5, "b": 0.5}),
    ([backend("a", weight=0), backend("b", weight=5)], {"b": 1.0}),
    ([backend("a", weight=5), backend("b", weight=0)], {"a": 1.0}),
    ([backend("a", weight=1_000_000), backend("b", weight=1)], {"a": 1.0}),
    ([backend("a", weight=0), backend("b", weight=0)], {"500": 1.0}),
    ([backend("a", weight=0)], {"500": 1.0}),
    ([INVALID], {"500": 1.0}),
    ([{"backend": "empty"}], {"503": 1.0}),
    ([], {"500": 1.0}),
]


@pytest.mark.parametrize(("backends", "expected"), WEIGHTS)
def test_shares_follow_weights_and_broken_references_keep_theirs(
    backends: list[dict[str, Any]], expected: dict[str, float]
) -> None:
    count = 4000
    seen = shares(*backends, count=count, backends=[EMPTY])

    assert set(seen) <= set(expected)
    for name, share in expected.items():
        # Three standard deviations of a binomial distribution.
        assert abs(seen[name] - share * count) <= 3 * (count * share * (1 - share)) ** 0.5 + 1


@pytest.mark.parametrize("backends", [[], [INVALID], [{"backend": "empty"}], [backend("a", weight=0)]])
def test_the_response_header_fields_of_a_rule_are_set_on_its_errors_too(backends: list[dict[str, Any]]) -> None:
    filters = {
        "cors": {"allowOrigins": ["https://a.example"]},
        "responseHeaderModifier": {"set": [{"name": "X-Mine", "value": "1"}]},
    }
    table = table_of(route("r", rule={"backends": backends, "filters": filters}), backends=[EMPTY])

    edits = answered(table, request("h/", origin="https://a.example")).response_edits

    assert edits is not None
    assert {b"x-mine", b"access-control-allow-origin"} <= dict(edits.append).keys()


@pytest.mark.parametrize(("draw", "chosen"), [(0.0, "a"), (0.2499, "a"), (0.25, "b"), (0.9999999, "b")])
def test_the_random_draw_alone_chooses_by_weight(draw: float, chosen: str) -> None:
    table = table_of(route("r", rule={"backends": [backend("a", weight=1), backend("b", weight=3)]}))

    assert chosen == forwarded(table, request("h/"), draw).backend.spec.addresses[0].partition(".")[0]


def test_the_choice_among_backends_leaves_host_and_target_as_they_are() -> None:
    table = table_of(route("r", rule={"backends": [backend("a"), backend("b")]}))

    decision = routing.decide(table, routing.socket_door("", 8080), request("a.example:8080/a?b"), lambda: 0.9)

    assert isinstance(decision, routing.Forward)
    assert (b"a.example:8080", b"/a?b") == (decision.authority, decision.path)


def test_fixed_answers_carry_their_body_and_a_status_for_grpc() -> None:
    answer = answered(table_of(route("r", rule={"backends": [INVALID]})), request("h/"))

    assert (500, b"no such Service", 14) == (answer.status_code, answer.body, answer.grpc_status)
    assert ((b"content-type", b"text/plain; charset=utf-8"),) == answer.headers


def test_a_rule_may_respond_by_itself() -> None:
    response = {"statusCode": 200, "body": "{}", "contentType": " application/json\t"}
    table = table_of(route("r", rule={"backends": [], "respond": response}))

    answer = answered(table, request("h/"))

    assert (200, b"{}", ((b"content-type", b"application/json"),)) == (answer.status_code, answer.body, answer.headers)


def test_a_response_without_a_body_has_no_content_type() -> None:
    table = table_of(route("r", rule={"backends": [], "respond": {"statusCode": 204}}))

    answer = answered(table, request("h/"))

    assert (204, b"", ()) == (answer.status_code, answer.body, answer.headers)


def test_equal_references_share_one_backend_and_others_have_their_own() -> None:
    tls = {"protocol": "https", "tls": {"serverName": "a.example"}}
    other = {"protocol": "https", "tls": {"serverName": "b.example"}}
    table = table_of(
        route("one", path("/1"), rule={"backends": [{"address": "a:1"}]}),
        route("two", path("/2"), rule={"backends": [{"addresses": ["a:1"]}]}),
        route("three", path("/3"), rule={"backends": [{"address": "a:1", "protocol": "h2c"}]}),
        route("four", path("/4"), rule={"backends": [{"address": "a:1", **tls}]}),
        route("five", path("/5"), rule={"backends": [{"address": "a:1", **other}]}),
    )

    backends = [forwarded(table, request(f"h/{place}")).backend for place in range(1, 6)]

    assert backends[0] is backends[1]
    assert 4 == len({one.key for one in backends}) == len(table.backends)
    assert all(table.backends[one.key] is one for one in backends)


def test_policies_reach_the_decision() -> None:
    rule = {
        "timeouts": {"request": "1m30s", "backendRequest": "500ms"},
        "retry": {"attempts": 3, "codes": [500, 503], "backoff": "100ms"},
    }

    compiled = forwarded(table_of(route("r", rule=rule)), request("h/")).rule

    assert (90.0, 0.5) == (compiled.request_timeout_s, compiled.backend_timeout_s)
    assert routing.RetryPolicy(3, frozenset({500, 503}), 0.1, True, 65536) == compiled.retry


@pytest.mark.parametrize(("text", "expected"), [("0s", 0.0), (None, None)])
def test_a_request_timeout_of_zero_is_not_the_default_timeout(text: str | None, expected: float | None) -> None:
    timeouts = {"request": text} if text else {}

    assert (
        expected == forwarded(table_of(route("r", rule={"timeouts": timeouts})), request("h/")).rule.request_timeout_s
    )


MIRRORS = [
    ({}, 1.0),
    ({"percent": 20}, 0.2),
    ({"percent": 0}, 0.0),
    ({"percent": 100}, 1.0),
    ({"fraction": {"numerator": 35}}, 0.35),
    ({"fraction": {"numerator": 25, "denominator": 50}}, 0.5),
]


@pytest.mark.parametrize(("fields", "share"), MIRRORS)
def test_mirrors_copy_their_share_of_requests(fields: dict[str, Any], share: float) -> None:
    count = 500
    mirror = {"backend": {"address": "copy.test:80"}, **fields}
    table = table_of(route("r", rule={"filters": {"requestMirrors": [mirror]}}))
    draw = random.Random(3).random

    decisions = [routing.decide(table, routing.socket_door("", 8080), request("h/"), draw) for _ in range(count)]
    copies = sum(len(decision.mirrors) for decision in decisions if isinstance(decision, routing.Forward))

    assert abs(copies - share * count) <= 3 * (count * share * (1 - share)) ** 0.5


def test_several_mirrors_are_drawn_one_by_one_rule_before_backend() -> None:
    mirrors = [{"backend": {"address": f"m{number}:1"}, "percent": 50} for number in range(3)]
    own = {"requestMirrors": mirrors[2:]}
    rule = {"filters": {"requestMirrors": mirrors[:2]}, "backends": [backend("r", filters=own)]}

    decision = forwarded(table_of(route("r", rule=rule)), request("h/"), 0.49, 0.5, 0.0)

    assert ["m0:1", "m2:1"] == [copy.spec.addresses[0] for copy in decision.mirrors]


def test_header_modifiers_overwrite_append_and_remove_whatever_the_case() -> None:
    modifier = {
        "set": [{"name": "X-Set", "value": "new"}, {"name": "x-set", "value": "ignored"}],
        "add": [{"name": "X-Add", "value": "more"}, {"name": "X-Fresh", "value": "fresh"}],
        "remove": ["X-Gone", "x-absent"],
    }
    table = table_of(route("r", rule={"filters": {"requestHeaderModifier": modifier}}))
    head = request("h/", X_Set="old", X_Add="some", X_Gone="1", X_Kept="kept")

    edits = forwarded(table, head).request_edits

    assert edits is not None
    assert [
        (b"x-add", b"some"),
        (b"x-kept", b"kept"),
        (b"x-set", b"new"),
        (b"x-add", b"more"),
        (b"x-fresh", b"fresh"),
    ] == edits.apply(head.fields)


@pytest.mark.parametrize(
    ("modifier", "sent", "expected"),
    [
        ({"add": ["b=2"]}, "a=1", b"a=1; b=2"),
        ({"add": ["b=2"]}, None, b"b=2"),
        ({"add": ["b=2"]}, "", b"b=2"),
        ({"set": ["b=2"], "add": ["c=3"]}, "a=1", b"b=2; c=3"),
    ],
)
def test_cookies_are_added_to_the_one_cookie_field_of_a_request(
    modifier: dict[str, list[str]], sent: str | None, expected: bytes
) -> None:
    """Servers take the first of several, or join them by a comma, which ends no cookie."""
    changes = {verb: [{"name": "Cookie", "value": value} for value in values] for verb, values in modifier.items()}
    head = request("h/", X_Other="x", **({} if sent is None else {"Cookie": sent}))

    for added, wanted in (("Cookie", expected + b"; own=1"), ("X-Own", expected)):
        own = {"filters": {"requestHeaderModifier": {"add": [{"name": added, "value": "own=1"}]}}}
        rule = {"filters": {"requestHeaderModifier": changes}, "backends": [backend("r", **own)]}
        edits = forwarded(table_of(route("r", rule=rule)), head).request_edits

        assert edits is not None
        changed = edits.apply(head.fields)
        assert (b"cookie", wanted) in changed
        assert len(changed) == (2 if added == "Cookie" else 3)


def test_a_cookie_that_a_backend_adds_to_other_fields_of_its_rule_joins_the_one_cookie_field() -> None:
    general, own = ({"requestHeaderModifier": {"add": [{"name": n, "value": "own=1"}]}} for n in ("X-Own", "Cookie"))
    rule = {"filters": general, "backends": [backend("r", filters=own)]}
    edits = forwarded(table_of(route("r", rule=rule)), request("h/", cookie="a=1")).request_edits

    assert edits is not None
    assert sorted(edits.apply([(b"cookie", b"a=1")])) == [(b"cookie", b"a=1; own=1"), (b"x-own", b"own=1")]


def test_the_header_modifiers_of_a_backend_apply_after_those_of_the_rule() -> None:
    def modifier(value: str) -> dict[str, Any]:
        fields = [{"name": "x-set", "value": value}]
        return {"set": fields, "add": [{"name": "x-add", "value": value}], "remove": [f"x-{value}"]}

    names = ("requestHeaderModifier", "responseHeaderModifier")
    filters = {name: modifier("rule") for name in names}
    own = {name: modifier("own") for name in names}
    table = table_of(route("r", rule={"filters": filters, "backends": [backend("r", filters=own)]}))

    decision = forwarded(table, request("h/"))

    assert decision.request_edits == decision.response_edits
    assert decision.request_edits is not None
    assert [(b"x-add", b"rule"), (b"x-set", b"own"), (b"x-add", b"own")] == decision.request_edits.apply(
        [(b"x-rule", b"1"), (b"x-own", b"1"), (b"x-set", b"1")]
    )


def test_joined_edits_do_the_same_as_one_after_the_other() -> None:
    generator = random.Random(11)

    def edits() -> routing.HeaderEdits:
        names = [b"a", b"b", b"c"]
        drop = frozenset(generator.sample(names, generator.randint(0, 3)))
        return routing.HeaderEdits(drop, tuple((name, b"%d" % generator.randint(0, 9)) for name in names[:2]))

    fields = [(name, b"v") for name in (b"a", b"b", b"c", b"d", b"a")]
    for _ in range(50):
        first, second = edits(), edits()

        assert second.apply(first.apply(fields)) == first.then(second).apply(fields)


def test_a_rule_without_filters_has_no_edits() -> None:
    decision = forwarded(table_of(route("r")), request("h/"))

    assert decision.request_edits is None
    assert decision.response_edits is None
    assert "r" == taken(table_of(route("r")), request("h/"))
