"""Revising the ingress document: our rules as wanted, foreign ones as they were."""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from tests.support.provider import rules
from tunnelgw.provider.ingress import EVERYTHING, Conflict, marker, revise

OURS = marker("tunnel-gateway-controller")
CATCH_ALL = {"service": "http_status:404"}


def ours(hostname: str) -> dict[str, str]:
    return {"hostname": hostname, "service": OURS}


def theirs(hostname: str, **more: Any) -> dict[str, Any]:
    return {"hostname": hostname, "service": "http://10.0.0.9:80", **more}


def config(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ingress": [*parts, CATCH_ALL], **more}


WITHOUT_RULES = pytest.mark.parametrize(
    "current",
    [None, {}, {"ingress": None}, {"ingress": []}, {"ingress": [None, 5]}, {"warp-routing": {"enabled": True}}],
)


@WITHOUT_RULES
@pytest.mark.parametrize("adopt", [False, True])
def test_a_tunnel_without_rules_stays_as_it_is_while_there_are_no_hostnames_for_it(
    current: dict[str, Any] | None, adopt: bool
) -> None:
    """It may be somebody's private network, named by a configuration that nothing uses."""
    assert not revise(current, [], OURS, adopt=adopt).is_changed


@WITHOUT_RULES
def test_a_new_tunnel_gets_a_rule_for_each_hostname_and_a_catch_all(current: dict[str, Any] | None) -> None:
    revision = revise(current, ["b.example", "a.example"], OURS)

    assert revision.config["ingress"] == [ours("a.example"), ours("b.example"), CATCH_ALL]
    assert revision.is_changed
    assert revision.added == ("a.example", "b.example")
    assert {key: value for key, value in revision.config.items() if key != "ingress"} == {
        key: value for key, value in (current or {}).items() if key != "ingress"
    }


def test_a_last_rule_with_a_path_is_not_a_catch_all() -> None:
    some_paths = {"path": "/legacy", "service": "http://10.0.0.9:80"}

    revision = revise({"ingress": [some_paths]}, ["a.example"], OURS)

    assert revision.config["ingress"] == [ours("a.example"), some_paths, CATCH_ALL]


@pytest.mark.parametrize("adopt", [False, True])
def test_a_foreign_rule_for_one_hostname_right_before_our_catch_all_is_not_a_catch_all(*, adopt: bool) -> None:
    current = {"ingress": [theirs("theirs.example"), {"service": OURS}]}

    kept = revise(current, [EVERYTHING], OURS, adopt=adopt)
    left = revise(current, [], OURS, adopt=adopt)

    assert not kept.is_changed
    assert (kept.conflicts, kept.foreign) == ((), ("theirs.example",))
    assert left.config["ingress"] == [theirs("theirs.example"), CATCH_ALL]


def test_a_document_that_means_the_same_is_not_written_again() -> None:
    first = revise(None, ["a.example", "*.b.example"], OURS)
    shown = rules.read_back(dict(first.config))

    second = revise(shown, ["*.b.example", "a.example"], OURS)

    assert not second.is_changed
    assert (second.added, second.removed) == ((), ())


def test_hostnames_no_longer_wanted_are_removed_and_missing_ones_added() -> None:
    current = config(ours("gone.example"), ours("kept.example"))

    revision = revise(current, ["kept.example", "back.example"], OURS)

    assert revision.config["ingress"] == [ours("back.example"), ours("kept.example"), CATCH_ALL]
    assert (revision.added, revision.removed) == (("back.example",), ("gone.example",))


def test_foreign_rules_and_keys_are_kept_in_their_order_and_reported() -> None:
    one = theirs("z.example", path="/x", originRequest={"noTLSVerify": True}, unknown=[1])
    two = theirs("y.example")
    current = config(one, ours("gone.example"), two, **{"originRequest": {"connectTimeout": 5}, "future": {"k": 1}})

    revision = revise(current, ["a.example"], OURS)

    assert revision.config == config(
        ours("a.example"), one, two, **{"originRequest": {"connectTimeout": 5}, "future": {"k": 1}}
    )
    assert revision.foreign == ("z.example", "y.example")


def test_after_the_last_hostname_is_removed_only_foreign_rules_and_the_catch_all_remain() -> None:
    last = {"service": "http://10.0.0.1:8000"}
    current = {"ingress": [ours("a.example"), theirs("b.example"), last]}

    revision = revise(current, [], OURS)

    assert revision.config["ingress"] == [theirs("b.example"), last]
    assert revision.foreign == ("b.example", EVERYTHING)


def test_our_exact_hostnames_come_before_foreign_wildcards() -> None:
    revision = revise(config(theirs("*.example")), ["a.example"], OURS)

    assert revision.config["ingress"] == [ours("a.example"), theirs("*.example"), CATCH_ALL]


def test_our_wildcards_come_before_foreign_rules_for_every_host() -> None:
    some_paths = {"path": "/legacy", "service": "http://10.0.0.9:80"}

    revision = revise(config(some_paths), ["*.example"], OURS)

    assert revision.config["ingress"] == [ours("*.example"), some_paths, CATCH_ALL]


@pytest.mark.parametrize(
    ("foreign", "wanted", "arranged"),
    [
        (["/acme", "g.example"], ["*.example"], ["/acme", "g.example", "*.example!"]),
        (["/acme", "g.example", "*.example"], ["*.example"], ["/acme", "g.example", "*.example"]),
        (["*.example/acme", "x.dev.example"], ["*.dev.example"], ["*.example/acme", "x.dev.example", "*.dev.example!"]),
        (
            ["/acme", "g.b.example"],
            ["*.example", "*.b.example"],
            ["/acme", "g.b.example", "*.b.example!", "*.example!"],
        ),
        # A rule behind one that covers it is unreachable anyway.
        (["*.example", "x.b.example"], ["*.b.example"], ["*.b.example!", "*.example", "x.b.example"]),
        (["a.example", "/acme", "b.other"], ["*.example"], ["a.example", "*.example!", "/acme", "b.other"]),
        (["g.example/one", "/acme"], ["*.example"], ["g.example/one", "*.example!", "/acme"]),
    ],
)
def test_our_wildcards_do_not_shadow_foreign_rules_for_hostnames_below_them(
    foreign: list[str], wanted: list[str], arranged: list[str]
) -> None:
    """Rules in short form: the hostname, then the path; ours with `!`."""

    def rule(short: str) -> dict[str, str]:
        hostname, slash, path = short.partition("/")
        return {
            **({"hostname": hostname.rstrip("!")} if hostname else {}),
            **({"path": slash + path} if path else {}),
            "service": OURS if short.endswith("!") else "http://10.0.0.9:80",
        }

    revision = revise(config(*map(rule, foreign)), wanted, OURS)

    assert revision.config["ingress"] == [*map(rule, arranged), CATCH_ALL]


@pytest.mark.parametrize(
    ("foreign", "wanted"),
    [
        ("b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example", "xn--bcher-kva.example"),
        ("*.B\N{LATIN CAPITAL LETTER U WITH DIAERESIS}cher.example", "*.xn--bcher-kva.example"),
    ],
)
def test_a_foreign_rule_in_unicode_is_for_the_same_hostname_in_ascii(foreign: str, wanted: str) -> None:
    revision = revise(config(theirs(foreign)), [wanted], OURS)

    assert not revision.is_changed
    assert revision.conflicts == (Conflict(wanted, "http://10.0.0.9:80"),)


def test_a_foreign_rule_with_an_invalid_hostname_stays_as_it_is() -> None:
    foreign = theirs("*.\N{SNOWMAN}-.example")

    assert revise(config(foreign), ["a.example"], OURS).config["ingress"] == [ours("a.example"), foreign, CATCH_ALL]


def test_a_foreign_rule_for_one_path_of_every_host_does_not_conflict_with_our_catch_all() -> None:
    health = {"path": "^/health", "service": "http://10.0.0.9:80"}

    for adopt in (False, True):
        revision = revise(config(health), ["*"], OURS, adopt=adopt)
        assert revision.config["ingress"] == [health, {"service": OURS}]
        assert revision.conflicts == ()


def test_the_order_of_wildcards_is_deterministic() -> None:
    wildcards = [f"*.{letter}.example" for letter in ascii_lowercase]

    revision = revise(None, wildcards, OURS)

    assert revision.config["ingress"] == [*map(ours, wildcards), CATCH_ALL]


def test_our_wildcards_come_after_more_specific_foreign_rules() -> None:
    current = config(theirs("x.b.example"), theirs("*.example"))

    revision = revise(current, ["*.b.example", "*.a.b.example", "*.other"], OURS)

    assert revision.config["ingress"] == [
        theirs("x.b.example"),
        ours("*.a.b.example"),
        ours("*.b.example"),
        theirs("*.example"),
        ours("*.other"),
        CATCH_ALL,
    ]


def test_a_foreign_rule_for_our_hostname_is_a_conflict_until_it_is_adopted() -> None:
    foreign = theirs("A.example", path="/admin")
    current = config(foreign)

    revision = revise(current, ["a.example"], OURS)

    assert not revision.is_changed
    assert revision.conflicts == (Conflict("a.example", "http://10.0.0.9:80", "/admin"),)
    adopted = revise(current, ["a.example"], OURS, adopt=True)
    assert adopted.config["ingress"] == [ours("a.example"), CATCH_ALL]
    assert adopted.conflicts == ()


def test_adopting_a_hostname_leaves_a_foreign_catch_all_alone() -> None:
    last = {"service": "http://10.0.0.1:8000"}

    revision = revise({"ingress": [theirs("a.example"), last]}, ["a.example"], OURS, adopt=True)

    assert revision.config["ingress"] == [ours("a.example"), last]


def test_routes_for_every_host_replace_only_a_placeholder_catch_all_unless_adopting() -> None:
    assert revise(config(), [EVERYTHING], OURS).config["ingress"] == [{"service": OURS}]
    foreign = {"ingress": [{"service": "http://10.0.0.1:8000"}]}

    revision = revise(foreign, [EVERYTHING], OURS)

    assert revision.config["ingress"] == foreign["ingress"]
    assert revision.conflicts == (Conflict(EVERYTHING, "http://10.0.0.1:8000"),)
    adopted = revise(foreign, [EVERYTHING], OURS, adopt=True)
    assert adopted.config["ingress"] == [{"service": OURS}]
    assert adopted.foreign == (), "what is replaced is not kept"
    assert revise({"ingress": [{"service": OURS}]}, [], OURS).config["ingress"] == [CATCH_ALL]


LABELS = st.sampled_from(["a", "b", "c"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
HOSTNAMES = st.one_of(NAMES, NAMES.map(lambda name: f"*.{name}"))
FOREIGN = st.builds(
    lambda hostname, path, origin: theirs(hostname, **({"path": path} if path else {}), originRequest=origin),
    HOSTNAMES,
    st.sampled_from(["", "/x"]),
    st.sampled_from([{}, {"noTLSVerify": True}]),
)
DOCUMENTS = st.lists(st.one_of(FOREIGN, HOSTNAMES.map(ours)), max_size=6).map(lambda parts: config(*parts))


def taken_by(document: dict[str, Any], host: str) -> str:
    """The service of the first rule that fits, by host alone, as the edge decides."""
    for rule in document["ingress"]:
        hostname = rule.get("hostname") or "*"
        if hostname in ("*", host) or (hostname.startswith("*.") and host.endswith(hostname[1:])):
            return str(rule["service"])
    raise AssertionError("no catch-all")


@given(current=DOCUMENTS, wanted=st.sets(HOSTNAMES, max_size=4), adopt=st.booleans())
def test_any_revised_document_is_valid_and_a_second_revision_changes_nothing(
    current: dict[str, Any], wanted: set[str], adopt: bool
) -> None:
    revision = revise(current, wanted, OURS, adopt=adopt)

    after = dict(revision.config)
    assert rules.problem_of(after) is None
    foreign_before = [rule for rule in current["ingress"][:-1] if rule["service"] != OURS]
    foreign_after = [rule for rule in after["ingress"][:-1] if rule["service"] != OURS]
    if adopt:
        assert foreign_after == [rule for rule in foreign_before if rule["hostname"] not in wanted]
    else:
        assert foreign_after == foreign_before
    conflicting = {conflict.hostname for conflict in revision.conflicts}
    assert {rule["hostname"] for rule in after["ingress"][:-1] if rule["service"] == OURS} == wanted - conflicting
    again = revise(rules.read_back(after), wanted, OURS, adopt=adopt)
    assert not again.is_changed


@given(current=DOCUMENTS, first=st.sets(HOSTNAMES, max_size=4), second=st.sets(HOSTNAMES, max_size=4))
def test_two_controllers_of_one_tunnel_leave_each_others_document_alone(
    current: dict[str, Any], first: set[str], second: set[str]
) -> None:
    for _ in range(2):
        current = dict(revise(current, first, OURS).config)
        current = dict(revise(current, second, marker("another")).config)

    assert not revise(current, first, OURS).is_changed
    assert not revise(current, second, marker("another")).is_changed


def test_the_order_of_rules_counts_where_a_request_matches_several() -> None:
    wildcard, exact, path = theirs("*.example.org"), ours("a.example.org"), theirs("", path="/x")

    assert not revise(config(exact, wildcard, path), {"a.example.org"}, OURS).is_changed
    assert not revise(config(theirs("b.example"), exact, wildcard), {"a.example.org"}, OURS).is_changed
    assert revise(config(wildcard, exact), {"a.example.org"}, OURS).is_changed
    assert revise(config(path, exact), {"a.example.org"}, OURS).is_changed


@given(current=DOCUMENTS, wanted=st.sets(NAMES, max_size=4))
def test_requests_for_our_exact_hostnames_always_reach_us(current: dict[str, Any], wanted: set[str]) -> None:
    revision = revise(current, wanted, OURS)

    conflicting = {conflict.hostname for conflict in revision.conflicts}
    assert {taken_by(dict(revision.config), host) for host in wanted - conflicting} <= {OURS}


def covers(general: str, hostname: str) -> bool:
    return general == "*" or (general.startswith("*.") and hostname.endswith(general[1:]))


def place_among(arranged: list[dict[str, Any]], wildcard: str) -> int:
    """Found by a linear search, where `revise` looks up hostnames."""
    covering = [place for place, rule in enumerate(arranged) if covers(rule["hostname"], wildcard)]
    end = next((place for place in covering if not arranged[place].get("path")), len(arranged))
    below = [
        place + 1
        for place, rule in enumerate(arranged[:end])
        if rule["hostname"] != wildcard and covers(wildcard, rule["hostname"])
    ]
    return max(max(below, default=0), covering[0] if covering else end)


FEW_LABELS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)
FEW_WILDCARDS = FEW_LABELS.map("*.{}".format)
RULES = st.builds(
    lambda hostname, path: theirs(hostname, **({"path": path} if path else {})),
    FEW_LABELS | FEW_WILDCARDS | st.just("*"),
    st.sampled_from(["", "/x"]),
)


@given(st.lists(RULES, max_size=7), st.sets(FEW_WILDCARDS, max_size=7))
def test_our_wildcards_are_placed_as_by_a_linear_search(foreign: list[dict[str, Any]], wanted: set[str]) -> None:
    expected = list(foreign)
    for wildcard in sorted(wanted - {rule["hostname"] for rule in foreign}, key=lambda name: (len(name), name)):
        expected.insert(place_among(expected, wildcard), ours(wildcard))

    assert revise(config(*foreign), wanted, OURS).config["ingress"] == [*expected, CATCH_ALL]


@pytest.mark.parametrize("foreign", [0, 1])
def test_placing_wildcards_takes_time_linear_in_their_number(foreign: int) -> None:
    """Three thousand took 5 s, in each pass over the tunnel."""

    def calls(wildcards: int) -> int:
        names = [f"t{at}.example.com" for at in range(wildcards)]
        current = config(*(theirs(f"a.{name}") for name in names * foreign))
        return calls_of(lambda: revise(current, [f"*.{name}" for name in names], OURS))

    assert calls(400) < 5 * calls(100)
