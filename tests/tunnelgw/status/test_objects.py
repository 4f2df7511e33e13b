"""Statuses of whole objects: what is written, and when nothing is."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import GatewayAddress, RouteGroupKind
from tunnelgw.model.meta import NO_STATUS, Key
from tunnelgw.model.refs import ParentRef
from tunnelgw.status.entries import Entry, Writer
from tunnelgw.status.objects import (
    Delivery,
    Patch,
    class_status,
    gateway_status,
    listener_set_status,
    policy_status,
    route_status,
)
from tunnelgw.translate.verdicts import (
    ClassVerdict,
    GatewayVerdict,
    ListenerSetVerdict,
    ListenerVerdict,
    ParentVerdict,
    RouteVerdict,
    false,
    true,
)

NOW, LATER = "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
ACCEPTED = true(ConditionType.ACCEPTED, Reason.ACCEPTED)
RESOLVED = true(ConditionType.RESOLVED_REFS, Reason.RESOLVED_REFS)
INVALID = false(ConditionType.PROGRAMMED, Reason.INVALID, "not accepted")
DELIVERED = true(ConditionType.DELIVERED, Reason.DELIVERED)
FAILED = false(ConditionType.DELIVERED, Reason.DELIVERY_FAILED, "proxy 10.0.0.7: refused")
HELD, NOT_HELD = Delivery(True, DELIVERED), Delivery(False, FAILED)
LISTENER = ListenerVerdict("web", (ACCEPTED, RESOLVED), (RouteGroupKind("HTTPRoute"),), 2)
GATEWAY = GatewayVerdict(
    (ACCEPTED, RESOLVED), "shared", "", (GatewayAddress("192.0.2.1"),), (LISTENER,), attached_listener_sets=1
)
AUTHOR = "tunnelgw.dev/tunnel-gateway-controller"


def writer(generation: int, now: str, author: str = AUTHOR) -> Writer:
    return Writer(author, "apps", generation, now)


WRITER = writer(4, NOW)


def stored(patch: Patch | None) -> msgspec.Raw:
    assert patch is not None
    return msgspec.Raw(msgspec.json.encode(patch))


def conditions(part: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in part["conditions"]}


def test_a_gateway_is_programmed_as_soon_as_a_proxy_holds_its_document() -> None:
    patch = gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW))

    assert patch is not None
    assert conditions(patch) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "tunnelgw.dev/Delivered": ("True", "Delivered"),
    }
    assert patch["addresses"] == [{"type": "IPAddress", "value": "192.0.2.1"}]
    assert patch["attachedListenerSets"] == 1
    (listener,) = patch["listeners"]
    assert (listener["name"], listener["attachedRoutes"]) == ("web", 2)
    assert listener["supportedKinds"] == [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]
    assert conditions(listener)["Programmed"] == ("True", "Programmed")


def test_an_unchanged_status_is_not_written_again() -> None:
    first = stored(gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW)))

    assert gateway_status(first, GATEWAY, HELD, writer(3, LATER)) is None


def test_a_gateway_stays_programmed_when_proxies_fail_later() -> None:
    first = stored(gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW)))

    patch = gateway_status(first, GATEWAY, NOT_HELD, writer(3, LATER))

    assert patch is not None
    assert conditions(patch)["Programmed"] == conditions(patch["listeners"][0])["Programmed"] == ("True", "Programmed")
    assert conditions(patch)["tunnelgw.dev/Delivered"] == ("False", "DeliveryFailed")


def test_programmed_as_set_by_another_controller_is_not_kept_on_a_gateway() -> None:
    theirs = gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW))
    assert theirs is not None
    theirs["conditions"] = [each for each in theirs["conditions"] if each["type"] != ConditionType.DELIVERED]
    of_a_tunnelgw_too = gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW, "example.net/tunnels"))
    with_ours_left = gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW))
    assert with_ours_left is not None
    (delivered,) = (each for each in with_ours_left["conditions"] if each["type"] == ConditionType.DELIVERED)
    delivered["observedGeneration"] = 2

    for before in (theirs, of_a_tunnelgw_too, with_ours_left):
        patch = gateway_status(stored(before), GATEWAY, NOT_HELD, writer(3, LATER))

        assert patch is not None
        assert (
            conditions(patch)["Programmed"] == conditions(patch["listeners"][0])["Programmed"] == ("False", "Pending")
        )


def test_programmed_as_set_by_another_tunnelgw_is_not_kept_on_a_listener_set() -> None:
    verdict = ListenerSetVerdict(Key("infra", "gw"), "shared", (ACCEPTED,), (LISTENER,))
    theirs = stored(listener_set_status(NO_STATUS, verdict, HELD, writer(2, NOW, "example.net/tunnels")))

    patch = listener_set_status(theirs, verdict, NOT_HELD, writer(2, LATER))

    assert patch is not None
    assert conditions(patch)["Programmed"] == conditions(patch["listeners"][0])["Programmed"] == ("False", "Pending")


def test_a_new_generation_is_not_programmed_before_a_proxy_holds_it() -> None:
    first = stored(gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW)))

    patch = gateway_status(first, GATEWAY, NOT_HELD, writer(4, LATER))

    assert patch is not None
    assert conditions(patch)["Programmed"] == ("False", "Pending")
    assert conditions(patch["listeners"][0])["Programmed"] == ("False", "Pending")


def test_an_invalid_gateway_is_not_programmed_even_if_a_proxy_holds_its_document() -> None:
    verdict = msgspec.structs.replace(GATEWAY, findings=(ACCEPTED, INVALID))

    patch = gateway_status(NO_STATUS, verdict, HELD, writer(3, NOW))

    assert patch is not None
    assert conditions(patch)["Programmed"] == ("False", "Invalid")


def test_failed_deliveries_are_a_condition_of_their_own() -> None:
    patch = gateway_status(NO_STATUS, GATEWAY, Delivery(True, FAILED), writer(3, NOW))

    assert patch is not None
    assert conditions(patch)["tunnelgw.dev/Delivered"] == ("False", "DeliveryFailed")
    assert conditions(patch)["Programmed"] == ("True", "Programmed")


def test_a_listener_whose_port_no_proxy_can_bind_is_not_programmed() -> None:
    patch = gateway_status(NO_STATUS, GATEWAY, Delivery(True, unbound={"web": "address in use"}), writer(3, NOW))

    assert patch is not None
    assert conditions(patch["listeners"][0])["Programmed"] == ("False", "PortUnavailable")
    assert conditions(patch)["Programmed"] == ("True", "Programmed")


def test_removed_listeners_leave_no_entry_and_foreign_conditions_stay() -> None:
    first = gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW))
    assert first is not None
    foreign = {
        "type": "example.net/Scanned",
        "status": "True",
        "reason": "Scanned",
        "message": "",
        "lastTransitionTime": NOW,
        "observedGeneration": 1,
    }
    first["listeners"][0]["conditions"].append(foreign)
    first["listeners"].append({**first["listeners"][0], "name": "gone"})
    first["conditions"].insert(0, foreign)

    patch = gateway_status(stored(first), GATEWAY, HELD, writer(3, LATER))

    assert patch is not None
    assert [listener["name"] for listener in patch["listeners"]] == ["web"]
    assert patch["listeners"][0]["conditions"][-1] == foreign
    assert patch["conditions"][0] == foreign


def test_a_gateway_without_listeners_or_addresses_clears_what_was_there() -> None:
    first = stored(gateway_status(NO_STATUS, GATEWAY, HELD, writer(3, NOW)))
    empty = GatewayVerdict((ACCEPTED,), "shared")

    patch = gateway_status(first, empty, HELD, writer(4, LATER))

    assert patch is not None
    assert (patch["addresses"], patch["listeners"], patch["attachedListenerSets"]) == ([], [], 0)


def test_the_default_status_of_the_crd_is_replaced() -> None:
    begun = {
        "conditions": [
            {
                "type": type_,
                "status": "Unknown",
                "reason": "Pending",
                "message": "Waiting for controller",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
            for type_ in ("Accepted", "Programmed")
        ]
    }

    patch = gateway_status(stored(begun), GATEWAY, HELD, writer(1, NOW))

    assert patch is not None
    assert [each["type"] for each in patch["conditions"]] == [
        *("Accepted", "Programmed", "ResolvedRefs", "tunnelgw.dev/Delivered")
    ]
    assert {each["lastTransitionTime"] for each in patch["conditions"]} == {NOW}


def test_a_class_status_lists_the_supported_features() -> None:
    verdict = ClassVerdict((ACCEPTED,))

    patch = class_status(NO_STATUS, verdict, ["Gateway", "HTTPRoute"], writer(1, NOW))

    assert patch is not None
    assert patch["supportedFeatures"] == [{"name": "Gateway"}, {"name": "HTTPRoute"}]
    assert class_status(stored(patch), verdict, ["Gateway", "HTTPRoute"], writer(1, LATER)) is None


def test_a_class_status_lists_no_features_with_an_unknown_release_whose_schema_for_them_may_differ() -> None:
    unknown = Finding(ConditionType.SUPPORTED_VERSION, Status.FALSE, Reason.UNSUPPORTED_VERSION, "v1.1.0")
    verdict = ClassVerdict((ACCEPTED, unknown))

    patch = class_status(stored({"supportedFeatures": ["Gateway"]}), verdict, ["Gateway", "HTTPRoute"], writer(1, NOW))

    assert patch is not None
    assert conditions(patch) == {"Accepted": ("True", "Accepted"), "SupportedVersion": ("False", "UnsupportedVersion")}
    assert "supportedFeatures" not in patch
    assert class_status(stored(patch), verdict, ["Gateway", "HTTPRoute"], writer(1, LATER)) is None


def test_a_listener_set_has_conditions_and_listeners_of_its_own() -> None:
    verdict = ListenerSetVerdict(Key("infra", "gw"), "shared", (ACCEPTED,), (LISTENER,))

    patch = listener_set_status(NO_STATUS, verdict, HELD, writer(2, NOW))

    assert patch is not None
    assert conditions(patch) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "tunnelgw.dev/Delivered": ("True", "Delivered"),
    }
    later = listener_set_status(stored(patch), verdict, NOT_HELD, writer(2, LATER))
    assert later is not None
    assert conditions(later)["Programmed"] == ("True", "Programmed")


def test_a_listener_set_has_the_delivered_condition_too_with_the_controller_s_name() -> None:
    verdict = ListenerSetVerdict(Key("infra", "gw"), "shared", (ACCEPTED,), (LISTENER,))
    finding = Finding(ConditionType.DELIVERED, Status.FALSE, Reason.DELIVERY_FAILED, "no answer")

    patch = listener_set_status(NO_STATUS, verdict, Delivery(True, finding), writer(2, NOW))

    assert patch is not None
    assert conditions(patch)["tunnelgw.dev/Delivered"] == ("False", "DeliveryFailed")
    assert patch["conditions"][-1]["message"] == f"{AUTHOR}: no answer"
    assert listener_set_status(stored(patch), verdict, Delivery(True, finding), writer(2, LATER)) is None


def test_a_route_status_has_an_entry_for_each_parent_of_ours_and_is_not_written_twice() -> None:
    verdict = RouteVerdict((ParentVerdict(ParentRef("gw"), (ACCEPTED, RESOLVED)),))

    patch, _ = route_status(NO_STATUS, verdict, WRITER)

    assert patch is not None
    assert conditions(json.loads(bytes(patch["parents"][0]))) == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
    }
    assert route_status(stored(patch), verdict, WRITER) == (None, ())


def test_a_route_without_parents_of_ours_loses_our_entries() -> None:
    patch, _ = route_status(NO_STATUS, RouteVerdict((ParentVerdict(ParentRef("gw"), (ACCEPTED,)),)), WRITER)
    first = stored(patch)

    assert route_status(first, RouteVerdict(()), WRITER) == ({"parents": []}, ())
    assert route_status(NO_STATUS, RouteVerdict(()), WRITER) == (None, ())


def test_a_policy_status_has_an_entry_for_each_gateway_it_concerns() -> None:
    ancestors = [Entry(ParentRef("gw", namespace="infra"), (ACCEPTED, RESOLVED))]

    patch, _ = policy_status(NO_STATUS, ancestors, WRITER)

    assert patch is not None
    assert json.loads(bytes(patch["ancestors"][0]))["ancestorRef"]["namespace"] == "infra"
    assert policy_status(stored(patch), ancestors, WRITER) == (None, ())
