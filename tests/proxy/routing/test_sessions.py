"""Session persistence: a client keeps its backend and address until the session expires or they are gone."""

import base64
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import routing
from proxy.heads import Field
from proxy.routing.session import MAX_CLOCK_SKEW_S
from tests.support.counting import calls_of
from tests.support.routes import backend, forwarded, headers, path, request, route, table_of

NOW_S = 1_700_000_000.0


def table_with(*backends: dict[str, Any], **policy: Any) -> routing.Table:
    chosen = backends or (backend("a"), backend("b"))
    return table_of(route("r", rule={"backends": list(chosen), "sessionPersistence": policy}))


def persistence(table: routing.Table) -> routing.Persistence:
    policy = forwarded(table, request("h/"), 0.0).rule.persistence
    assert policy is not None
    return policy


def binding(table: routing.Table, name: str, now_s: float = NOW_S) -> bytes:
    """The value of the field that binds a new client to the backend of this name."""
    field = persistence(table).response_field(None, f"http://{name}.test:80", f"{name}.test:80", now_s, is_secure=False)
    assert field is not None
    return field[1]


def cookie(value: bytes) -> routing.PlainHead:
    pair = value.partition(b";")[0]
    return routing.PlainHead(b"GET", b"h", b"/", ((b"cookie", b"x=1"), (b"cookie", pair), (b"cookie", b"y=2")))


def names_session(table: routing.Table, *fields: bytes) -> bool:
    head = routing.PlainHead(b"GET", b"h", b"/", tuple((b"cookie", value) for value in fields))
    return forwarded(table, head, 0.0, now_s=NOW_S).session is not None


def name_of(decision: routing.Forward) -> str:
    return decision.backend.spec.addresses[0].partition(".")[0]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_cookie_binds_its_client_to_backend_and_address(name: str) -> None:
    table = table_with()

    decision = forwarded(table, cookie(binding(table, name)), now_s=NOW_S + 1)

    assert name == name_of(decision)
    assert decision.session is not None
    assert routing.fingerprint(f"{name}.test:80") == decision.session.address


def test_a_header_binds_its_client_too() -> None:
    table = table_with(type="Header", sessionName="X-Session")
    head = routing.PlainHead(b"GET", b"h", b"/", ((b"x-session", binding(table, "b")),))

    assert b"x-session" == persistence(table).name
    assert "b" == name_of(forwarded(table, head, now_s=NOW_S))


def shop(*rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A route whose rules have sessions without a name."""
    backends = [backend("a"), backend("b")]
    return {"rules": [{"backends": backends, "sessionPersistence": {}, **rule} for rule in rules], **fields}


def names(*routes: dict[str, Any]) -> list[str]:
    """Of the sessions of all rules, in their order."""
    listeners = [{"name": "web", "port": 8080}, {"name": "admin", "port": 8081}]
    compiled = table_of(*routes, listeners=listeners).routes
    return [rule.persistence.name.decode() for one in compiled.values() for rule in one.rules if rule.persistence]


API = {"matches": [path("/api")]}


def test_a_client_of_several_rules_keeps_its_session_with_each() -> None:
    table = table_of(shop(API, {}))
    targets = {"h/api": "a", "h/": "b"}
    jar = []
    for target, name in targets.items():
        policy = forwarded(table, request(target), 0.0).rule.persistence
        assert policy is not None
        field = policy.response_field(None, f"http://{name}.test:80", f"{name}.test:80", NOW_S, is_secure=False)
        assert field is not None
        jar.append(field[1].partition(b";")[0].decode())

    heads = [request(target, cookie="; ".join(jar)) for target in targets]

    assert ["a", "b"] == [name_of(forwarded(table, head, now_s=NOW_S)) for head in heads]


def test_rules_of_one_host_have_sessions_of_different_names() -> None:
    everything = {"matches": [path("/")]}
    by_header = {"matches": [path("/", headers=headers(x="1"))]}
    sessions = names(
        shop(API, by_header, everything, hostnames=["a.example"], name="one"),
        shop(everything, API, hostnames=["a.example"], listeners=["admin"]),
        shop({}, hostnames=["a.example"], kind="grpc"),
    )

    assert len(set(sessions)) == len(sessions) == 6


@pytest.mark.parametrize("matches", [[], [{}], [path("/")], [path("/"), {}]])
def test_the_sessions_of_a_rule_that_matches_everything_have_a_plain_name(matches: list[dict[str, Any]]) -> None:
    assert ["tunnelgw-session"] == names(shop({"matches": matches}, hostnames=["a.example"], name="shop"))


def test_the_session_name_of_a_rule_does_not_depend_on_other_rules_and_routes() -> None:
    alone = shop(API, listeners=["web", "admin"])
    other = {"name": "later", "backends": [backend("c")], **API}
    (before,) = names(alone)

    assert before.startswith("tunnelgw-session-")
    assert before == names(shop({}, hostnames=["b.example"]), {**alone, "listeners": ["admin", "web"]})[1]
    assert before == names(shop({"matches": [path("/b")]}, other, name="shop", listeners=["web", "admin"]))[1]
    assert before != names(shop({"matches": [path("/api"), path("/b")]}, listeners=["web", "admin"]))[0]


def test_a_header_without_a_name_is_in_lower_case_and_one_with_a_name_is_taken_as_it_is() -> None:
    header = {**API, "sessionPersistence": {"type": "Header"}}
    named = {**API, "sessionPersistence": {"type": "Header", "sessionName": "Tunnelgw-Session"}}
    (unnamed,) = names(shop(header))

    assert (unnamed.lower(), "tunnelgw-session") == (unnamed, names(shop(named))[0])


def test_without_a_session_weights_decide() -> None:
    decision = forwarded(table_with(), request("h/"), 0.99, now_s=NOW_S)

    assert "b" == name_of(decision)
    assert decision.session is None


AROUND = [
    (b"", b"", True),
    (b"a=1; ", b"; b=2", True),
    (b"a=1;", b";b=2", True),
    (b"a=1;\t ", b" \t; b", True),
    (b"a; ", b"", True),
    (b"; ;", b";;", True),
    (b"x", b"", False),
    (b"a=", b"", False),
    (b"x-", b"", False),
    (b"a=1 ", b"", False),
    (b'a="', b'"', False),
    (b"x-tunnelgw-session= ", b"", False),
]


@pytest.mark.parametrize(("before", "after", "is_found"), AROUND)
def test_a_cookie_is_found_by_its_whole_name_wherever_it_stands(before: bytes, after: bytes, is_found: bool) -> None:
    table = table_with()
    pair = binding(table, "b").partition(b";")[0]

    assert names_session(table, before + pair + after) is is_found


def test_the_first_cookie_of_a_name_counts() -> None:
    table = table_with()
    pair = binding(table, "b").partition(b";")[0]

    assert not names_session(table, b"tunnelgw-session=", pair)
    assert names_session(table, pair, b"tunnelgw-session=")


FORGED = [b"", b"x", b"A" * 31, b"A" * 32, b"A" * 30 + b"==", b"A" * 31 + b"=", b"!" * 32, b"\xff" * 32, b"A" * 33]


@pytest.mark.parametrize("token", FORGED)
def test_an_invalid_token_is_not_a_session(token: bytes) -> None:
    head = routing.PlainHead(b"GET", b"h", b"/", ((b"cookie", b"tunnelgw-session=" + token),))

    assert forwarded(table_with(), head, 0.0, now_s=NOW_S).session is None


def test_a_session_of_a_backend_that_left_the_rule_is_over() -> None:
    token = binding(table_with(), "b")

    decision = forwarded(table_with(backend("a"), backend("c")), cookie(token), 0.99, now_s=NOW_S)

    assert "c" == name_of(decision)
    assert decision.session is None


def test_weight_zero_keeps_its_sessions_and_gets_no_new_ones() -> None:
    token = binding(table_with(), "b")
    draining = table_with(backend("a"), backend("b", weight=0))

    assert "b" == name_of(forwarded(draining, cookie(token), now_s=NOW_S))
    assert "a" == name_of(forwarded(draining, request("h/"), 0.999, now_s=NOW_S))


LIFETIMES = [
    ({}, 1e9, True),
    ({"absoluteTimeout": "1h"}, 3599, True),
    ({"absoluteTimeout": "1h"}, 3600, False),
    ({"absoluteTimeout": "1h"}, 86_400, False),
    ({"idleTimeout": "10m"}, 599, True),
    ({"idleTimeout": "10m"}, 600, False),
    ({"idleTimeout": "1s", "absoluteTimeout": "1h"}, 2, False),
    ({}, -MAX_CLOCK_SKEW_S + 1, True),
    ({}, -MAX_CLOCK_SKEW_S - 1, False),
]


@pytest.mark.parametrize(("policy", "age_s", "is_valid"), LIFETIMES)
def test_sessions_end_by_age_and_by_idleness(policy: dict[str, Any], age_s: float, is_valid: bool) -> None:
    table = table_with(**policy)
    token = binding(table, "b")

    decision = forwarded(table, cookie(token), 0.0, now_s=NOW_S + age_s)

    assert is_valid == (decision.session is not None)


@pytest.mark.parametrize(("created_s", "used_s"), [(MAX_CLOCK_SKEW_S, 0.0), (0.0, MAX_CLOCK_SKEW_S)])
def test_the_times_of_a_session_may_be_ahead_by_the_clock_skew_at_most(created_s: float, used_s: float) -> None:
    table = table_with(idleTimeout="1h", absoluteTimeout="2h")

    def is_valid(more_s: float) -> bool:
        ahead_s = [int(NOW_S + second_s + (more_s if second_s else 0)) for second_s in (created_s, used_s)]
        token = struct.pack(">8s8sII", *map(routing.fingerprint, ("http://b.test:80", "b.test:80")), *ahead_s)
        return (
            forwarded(table, cookie(b"tunnelgw-session=" + base64.urlsafe_b64encode(token)), 0.0, now_s=NOW_S).session
            is not None
        )

    assert is_valid(0)
    assert not is_valid(1)


def test_a_bound_client_is_sent_its_cookie_again_only_to_keep_it_from_idling_out() -> None:
    table = table_with(idleTimeout="100s", absoluteTimeout="1h")
    policy = persistence(table)
    session = forwarded(table, cookie(binding(table, "a")), now_s=NOW_S).session

    def renewed(now_s: float) -> Field | None:
        return policy.response_field(session, "http://a.test:80", "a.test:80", now_s, is_secure=True)

    assert renewed(NOW_S + 9) is None
    field = renewed(NOW_S + 11)
    assert field is not None
    later = forwarded(table, cookie(field[1]), now_s=NOW_S + 105).session
    assert later is not None
    assert (NOW_S, NOW_S + 11) == (later.created_s, later.used_s)


def test_a_bound_client_whose_session_does_not_idle_out_is_not_sent_its_cookie_again() -> None:
    table = table_with()
    session = forwarded(table, cookie(binding(table, "a")), now_s=NOW_S).session

    assert session is not None
    policy = persistence(table)
    assert policy.response_field(session, "http://a.test:80", "a.test:80", NOW_S + 1e6, is_secure=True) is None


def test_another_address_makes_another_session() -> None:
    table = table_with()
    session = forwarded(table, cookie(binding(table, "a")), now_s=NOW_S).session

    field = persistence(table).response_field(session, "http://a.test:80", "a2.test:80", NOW_S, is_secure=False)

    assert field is not None


def of_addresses(*names: str) -> dict[str, Any]:
    return {"addresses": [f"{name}.test:80" for name in names]}


@pytest.mark.parametrize("names", ["cba", "ab", "abcd"])
def test_a_session_survives_changes_of_the_other_addresses(names: str) -> None:
    """The key of a backend without a name is its addresses; the session's absolute timeout is not extended."""
    policy = {"absoluteTimeout": "1h"}
    before, after = table_with(of_addresses(*"abc"), **policy), table_with(of_addresses(*names), **policy)
    key = forwarded(before, request("h/")).backend.key
    first = persistence(before).response_field(None, key, "b.test:80", NOW_S, is_secure=False)
    assert first is not None

    decision = forwarded(after, cookie(first[1]), now_s=NOW_S + 10)

    assert decision.session is not None
    assert routing.fingerprint("b.test:80") == decision.session.address
    next_ = persistence(after).response_field(
        decision.session, decision.backend.key, "b.test:80", NOW_S + 10, is_secure=False
    )
    assert next_ is not None
    renewed = forwarded(after, cookie(next_[1]), now_s=NOW_S + 20)
    assert renewed.session is not None
    assert (NOW_S, NOW_S + 10) == (renewed.session.created_s, renewed.session.used_s)


def test_a_session_whose_address_has_left_is_over() -> None:
    before, after = table_with(of_addresses(*"abc")), table_with(of_addresses(*"ac"))
    key = forwarded(before, request("h/")).backend.key
    field = persistence(before).response_field(None, key, "b.test:80", NOW_S, is_secure=False)
    assert field is not None

    assert forwarded(after, cookie(field[1]), now_s=NOW_S).session is None


@pytest.mark.parametrize("weight", [0, 1])
def test_a_session_whose_backend_has_no_address_any_more_is_over(weight: int) -> None:
    """As at the end of a rollout: the new version gets all requests."""
    field = persistence(table_with()).response_field(None, "a", "a.test:80", NOW_S, is_secure=False)
    assert field is not None
    bound = cookie(field[1])
    gone = {"backend": "a", "weight": weight}
    policy: dict[str, Any] = {"backends": [gone, backend("b", weight=99)], "sessionPersistence": {}}
    table = table_of(route("r", rule=policy), backends=[{"name": "a", "addresses": []}])

    decision = forwarded(table, bound, 0.99, now_s=NOW_S)

    assert name_of(decision) == "b"
    assert decision.session is None


def test_the_backend_of_a_session_is_preferred_over_others_with_the_same_address() -> None:
    table = table_with(of_addresses(*"ab"), of_addresses(*"bc"))
    key = forwarded(table, request("h/"), 0.99).backend.key
    field = persistence(table).response_field(None, key, "b.test:80", NOW_S, is_secure=False)
    assert field is not None

    assert key == forwarded(table, cookie(field[1]), 0.0, now_s=NOW_S).backend.key


def test_a_permanent_cookie_has_max_age_and_is_http_only() -> None:
    policy = persistence(table_with(absoluteTimeout="1h", lifetimeType="Permanent", sessionName="sid"))

    field = policy.response_field(None, "k", "a:1", NOW_S, is_secure=True)

    assert field is not None
    assert b"set-cookie" == field[0]
    value, *attributes = field[1].split(b"; ")
    assert value.startswith(b"sid=")
    assert [b"Path=/", b"HttpOnly", b"SameSite=Lax", b"Secure", b"Max-Age=3600"] == attributes


def test_a_permanent_cookie_without_a_time_limit_lasts_as_long_as_browsers_keep_one() -> None:
    """A Max-Age of 0 would delete it at once."""
    policy = persistence(table_with(absoluteTimeout="0s", lifetimeType="Permanent"))

    field = policy.response_field(None, "k", "a:1", NOW_S, is_secure=False)

    assert field is not None
    assert b"Max-Age=34560000" in field[1].split(b"; ")


def test_a_cookie_keeps_the_spelling_of_its_name_and_is_secure_over_tls_alone() -> None:
    """A browser takes no secure cookie over plain HTTP."""
    policy = persistence(table_with(sessionName="Sid"))

    field = policy.response_field(None, "k", "a:1", NOW_S, is_secure=False)

    assert field is not None
    value, *attributes = field[1].split(b"; ")
    assert value.startswith(b"Sid=")
    assert [b"Path=/", b"HttpOnly", b"SameSite=Lax"] == attributes


def test_a_session_cookie_has_no_max_age() -> None:
    assert b"Max-Age" not in binding(table_with(absoluteTimeout="1h"), "a")


TOKEN = base64.urlsafe_b64encode(struct.pack(">8s8sII", b"b" * 8, b"a" * 8, int(NOW_S), int(NOW_S)))


@given(
    st.lists(st.sampled_from([b"s=", b"s", b"=", b";", b" ", b"\t", b"x", TOKEN, b"; s="]), max_size=12).map(b"".join)
)
def test_the_cookie_of_a_session_is_the_first_of_its_name(cookies: bytes) -> None:
    found = re.search(rb"(?:^|;)[ \t]*s=([^;]*)", cookies)
    wanted = found is not None and found[1].strip() == TOKEN

    policy = routing.Persistence(b"s", True, 0.0, 0.0, False)
    session = policy.find(routing.PlainHead(b"GET", b"h", b"/", ((b"cookie", cookies),)), NOW_S)

    assert wanted is (session is not None)


def test_finding_a_session_costs_no_more_with_thousands_of_session_names() -> None:
    """Beyond a thousand names, whose compiled forms were cached, each request took a tenth of a millisecond more."""
    head = routing.PlainHead(b"GET", b"h", b"/", ((b"cookie", b"a=b; c=d"),))

    def calls(rules: int) -> int:
        """Of looks through all of them, after the first one."""
        policies = [routing.Persistence(b"s-%d" % at, True, 0.0, 0.0, False) for at in range(rules)]

        def look() -> None:
            for policy in policies:
                policy.find(head, NOW_S)

        look()
        return calls_of(look)

    assert calls(3_000) <= 300 * calls(10)
