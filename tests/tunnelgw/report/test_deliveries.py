"""What statuses say of deliveries."""

from __future__ import annotations

import msgspec

from proxy.document import Listener
from tunnelgw.deliver.receipts import Receipt, Remark, RemarkKind
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.refs import ParentRef
from tunnelgw.report.deliveries import Answers, conflicts, delivered, unbound, with_conflicts
from tunnelgw.translate.verdicts import ObjectId, ParentVerdict, RouteVerdict, TunnelHost

HELD = Receipt("http://10.0.0.1:8082", "d", "d")
DOWN = Receipt("http://10.0.0.2:8082", "d", error="connection refused")
TUNNEL = Receipt("tunnel 6f1c", "h", "h")
CONFLICT = Remark(RemarkKind.CONFLICT, "a.example", "a.example is somebody else's")


def said(finding: Finding) -> tuple[Status, Reason, str]:
    assert finding.type is ConditionType.DELIVERED
    return finding.status, finding.reason, finding.message


def test_proxies_that_hold_the_wanted_document_are_counted() -> None:
    assert said(delivered(Answers([HELD], 1, TUNNEL))) == (
        Status.TRUE,
        Reason.DELIVERED,
        "held by 1 proxy and tunnel 6f1c",
    )
    assert said(delivered(Answers([HELD, HELD], 2, None))) == (Status.TRUE, Reason.DELIVERED, "held by 2 proxies")


def test_a_failed_target_is_named_with_the_reason() -> None:
    tunnel = msgspec.structs.replace(TUNNEL, error="authentication failed")

    status, reason, message = said(delivered(Answers([HELD, DOWN], 2, tunnel)))

    assert (status, reason) == (Status.FALSE, Reason.DELIVERY_FAILED)
    assert message == "proxy http://10.0.0.2:8082: connection refused; tunnel 6f1c: authentication failed"


def test_a_proxy_whose_document_somebody_else_keeps_replacing_does_not_count_as_holding_it() -> None:
    contested = msgspec.structs.replace(HELD, remarks=(Remark(RemarkKind.REPLACED, HELD.target, "by somebody else"),))

    assert said(delivered(Answers([HELD, contested], 2, None))) == (
        Status.FALSE,
        Reason.DELIVERY_FAILED,
        f"proxy {HELD.target}: by somebody else",
    )
    assert (HELD.is_current, contested.is_current) == (True, False)


def test_proxies_that_open_another_tunnel_come_first_among_reasons_whether_or_not_all_is_delivered() -> None:
    misled = "the token of tunnel b, want that of tunnel a"

    held = said(delivered(Answers([HELD], 1, TUNNEL, misled=misled)))
    assert held == (Status.FALSE, Reason.DELIVERY_FAILED, f"held by 1 proxy and tunnel 6f1c, but {misled}")
    failed = msgspec.structs.replace(TUNNEL, error="tunnel not found")
    message = said(delivered(Answers([HELD], 1, failed, misled=misled)))[2]
    assert message == f"{misled}; tunnel 6f1c: tunnel not found"


def test_of_many_failures_some_are_shown_and_the_others_counted() -> None:
    many = [msgspec.structs.replace(DOWN, target=f"p{number}") for number in range(7)]

    message = said(delivered(Answers(many, 7, None)))[2]

    assert "p4: " in message
    assert "p5" not in message
    assert message.endswith("; and 2 more")
    assert said(delivered(Answers(many[:5], 5, None)))[2].endswith("p4: connection refused"), "no others"


def test_a_proxy_that_has_not_answered_yet_is_pending() -> None:
    assert said(delivered(Answers([HELD], 2, None))) == (
        Status.UNKNOWN,
        Reason.PENDING,
        "1 of 2 proxies have not answered yet",
    )


def test_a_proxy_that_may_be_starting_is_pending_and_named() -> None:
    starting = msgspec.structs.replace(DOWN, is_starting=True)

    assert said(delivered(Answers([HELD, starting], 3, None))) == (
        Status.UNKNOWN,
        Reason.PENDING,
        "2 of 3 proxies have not answered yet (proxy http://10.0.0.2:8082: connection refused)",
    )


def test_a_remark_that_names_no_listener_of_ours_is_ignored() -> None:
    for place in ("listeners[1].port", "listeners[x]", "routes[0]", f"listeners[{'9' * 5000}].port"):
        remark = Remark(RemarkKind.PORT, place, "in use")

        web = [Listener("infra/gw/web", gateway="infra/gw")]

        assert unbound(web, msgspec.structs.replace(HELD, remarks=(remark,)), web) == {}


def test_delivered_is_pending_until_the_provider_has_the_hostnames() -> None:
    assert said(delivered(Answers([HELD], 1, None, has_tunnel=True))) == (
        Status.UNKNOWN,
        Reason.PENDING,
        "the provider has not got the hostnames yet",
    )
    assert said(delivered(Answers([HELD], 1, TUNNEL, has_tunnel=True)))[0] is Status.TRUE


def test_a_data_plane_without_proxies_is_not_delivered() -> None:
    status, _, message = said(delivered(Answers([], 0, None)))

    assert status is Status.FALSE
    assert "--proxy-endpoints" in message


def test_a_conflict_is_reported_on_the_gateway_and_by_hostname() -> None:
    everything = Remark(RemarkKind.CONFLICT, "*", "the catch-all is somebody else's")
    tunnel = msgspec.structs.replace(TUNNEL, remarks=(CONFLICT, everything))

    told = f"held by 1 proxy and tunnel 6f1c, but {CONFLICT.message}; {everything.message}"
    assert said(delivered(Answers([HELD], 1, tunnel))) == (Status.FALSE, Reason.DELIVERY_FAILED, told)
    assert conflicts({"6f1c": tunnel}) == {
        TunnelHost("6f1c", "a.example"): CONFLICT.message,
        TunnelHost("6f1c", ""): everything.message,
    }


def test_a_foreign_rule_that_is_kept_is_not_a_conflict() -> None:
    kept = Remark(RemarkKind.FOREIGN_RULE, "theirs.example", "a rule for theirs.example that is not ours is kept")
    tunnel = msgspec.structs.replace(TUNNEL, remarks=(kept,))

    assert said(delivered(Answers([HELD], 1, tunnel)))[0] is Status.TRUE
    assert conflicts({"6f1c": tunnel}) == {}


def test_a_route_s_conflict_is_reported_for_the_parents_with_that_hostname_and_tunnel() -> None:
    accepted = Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED)
    refused = Finding(ConditionType.ACCEPTED, Status.FALSE, Reason.NOT_ALLOWED_BY_LISTENERS)
    ours, other = TunnelHost("6f1c", "a.example"), TunnelHost("77aa", "a.example")
    verdict = RouteVerdict(
        (
            ParentVerdict(ParentRef("tunnel"), (accepted,), (TunnelHost("6f1c", "b.example"), ours)),
            ParentVerdict(ParentRef("direct"), (accepted,)),
            ParentVerdict(ParentRef("other-tunnel"), (accepted,), (other,)),
            ParentVerdict(ParentRef("refused"), (refused,)),
        )
    )

    first, *others = with_conflicts(verdict, {ours: "theirs"}).parents

    assert first.findings[0] == accepted
    assert (first.findings[1].reason, first.findings[1].message) == (Reason.HOSTNAME_CONFLICT, "theirs")
    assert tuple(others) == verdict.parents[1:]


def test_ports_that_cannot_be_bound_are_reported_on_their_listeners() -> None:
    listeners = [
        Listener("infra/gw/web", gateway="infra/gw"),
        Listener("infra/gw/shop/set/web", gateway="infra/gw"),
        Listener("infra/gw/other", gateway="infra/gw"),
        Listener("infra/gw/two", gateway="infra/gw"),
        Listener("infra/gw/two@2001:db8::2", gateway="infra/gw"),
        Listener("infra/gw@443", gateway="infra/gw"),
    ]
    remarks = (
        Remark(RemarkKind.PORT, "routes[0]", "of no listener"),
        Remark(RemarkKind.PORT, "listeners[0].port", "in use"),
        Remark(RemarkKind.PORT, "listeners[1].port", "permission denied"),
        Remark(RemarkKind.PORT, "listeners[4].port", "no such address"),
        Remark(RemarkKind.PORT, "listeners[5].port", "nobody's"),
        Remark(RemarkKind.PORT, "listeners[9].port", "of an older document"),
    )

    found = unbound(listeners, msgspec.structs.replace(HELD, remarks=remarks), listeners)

    assert found == {
        ObjectId(Kind.GATEWAY, Key("infra", "gw")): {
            "web": "proxy http://10.0.0.1:8082: in use",
            "two": "proxy http://10.0.0.1:8082: no such address",
        },
        ObjectId(Kind.LISTENER_SET, Key("shop", "set")): {"web": "proxy http://10.0.0.1:8082: permission denied"},
    }


def test_a_port_that_cannot_be_bound_is_reported_on_all_listeners_that_share_it() -> None:
    listeners = [
        Listener("infra/gw/a", address="192.0.2.1", port=443),
        Listener("infra/gw/b", address="192.0.2.1", port=443),
        Listener("infra/gw/shop/set/c", address="192.0.2.1", port=443),
        Listener("infra/young/d", address="192.0.2.1", port=443),
        Listener("infra/young/web", address="192.0.2.1", port=80),
        Listener("infra/young/other", address="192.0.2.2", port=443),
        Listener("infra/young/tunnel", tunnel=True),
    ]
    remark = Remark(RemarkKind.PORT, "listeners[0].port", "in use")

    found = unbound(listeners, msgspec.structs.replace(HELD, remarks=(remark,)), listeners)

    why = "proxy http://10.0.0.1:8082: in use"
    assert found == {
        ObjectId(Kind.GATEWAY, Key("infra", "gw")): {"a": why, "b": why},
        ObjectId(Kind.LISTENER_SET, Key("shop", "set")): {"c": why},
        ObjectId(Kind.GATEWAY, Key("infra", "young")): {"d": why},
    }


def test_a_port_that_cannot_be_bound_is_not_reported_on_a_listener_that_has_left_it() -> None:
    api, web = Listener("infra/gw/api", port=80), Listener("infra/gw/web", port=80)
    remark = Remark(RemarkKind.PORT, "listeners[0].port", "in use")

    found = unbound(
        [api, web], msgspec.structs.replace(HELD, remarks=(remark,)), [web, Listener("infra/gw/api", port=8080)]
    )

    assert found == {ObjectId(Kind.GATEWAY, Key("infra", "gw")): {"web": "proxy http://10.0.0.1:8082: in use"}}
