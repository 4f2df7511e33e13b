"""Proxies of deleted Gateways: which are emptied, when, with whose token, and for how long that is tried."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from daemonkit.secret import Secret
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.departed import PATIENCE_S, DepartedProxies, Served
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Author, Plane
from tunnelgw.translate.gateways import SHARED

GRACE_S = 10.0
NOW_S = 1_000.0
LATER_S = NOW_S + GRACE_S
URL, OTHER_URL = "http://10.20.0.7:8082", "http://10.20.0.8:8082"
TOKEN = Credentials(Secret("abc"))
NO_TOKEN = Credentials(None, "secret not found")
DONE = Receipt(URL, "nothing", "nothing")
REFUSED = Receipt(URL, "nothing", "", "401", is_refusal=True, attempts=1)
UNREACHABLE = Receipt(URL, "nothing", "", "connection refused", attempts=9)
GATEWAY = "shop/gw"
CREATED = "2026-01-01T00:00:00Z"
BEFORE = "2025-12-31T00:00:00Z"
SERVED = Served(Author(GATEWAY, CREATED), TOKEN)


def plane(*urls: str, token: Credentials = TOKEN, taken: Collection[str] = (), created_at: str = CREATED) -> Plane:
    return Plane(urls, token, frozenset(taken), created_at)


def departed_from(planes: dict[str, Plane]) -> DepartedProxies:
    """Whose Gateways all have gone by NOW_S."""
    departed = DepartedProxies(GRACE_S)
    departed.follow(planes, lambda _: True, NOW_S)
    departed.follow({}, lambda _: False, NOW_S)
    return departed


def test_a_proxy_is_emptied_once_its_gateway_has_been_gone_for_the_grace_period() -> None:
    departed = departed_from({GATEWAY: plane(URL, OTHER_URL)})

    assert departed.proxies(LATER_S - 0.1) == {}
    assert departed.proxies(LATER_S) == {URL: SERVED, OTHER_URL: SERVED}
    departed.settle({URL: DONE}, LATER_S)
    assert departed.proxies(LATER_S) == {OTHER_URL: SERVED}


def test_a_proxy_is_left_alone_when_its_gateway_comes_back_with_or_without_it() -> None:
    for planes in ({GATEWAY: plane(URL)}, {GATEWAY: plane(OTHER_URL)}, {}):
        departed = departed_from({GATEWAY: plane(URL)})

        departed.follow(planes, lambda _: True, NOW_S + 5)

        assert departed.proxies(LATER_S) == {}


def test_a_proxy_that_its_gateway_no_longer_names_is_emptied_only_with_the_gateway() -> None:
    departed = DepartedProxies(GRACE_S)
    departed.follow({GATEWAY: plane(URL)}, lambda _: True, NOW_S)
    departed.follow({GATEWAY: plane(OTHER_URL)}, lambda _: True, NOW_S)
    assert departed.proxies(LATER_S) == {}

    departed.follow({}, lambda _: False, LATER_S)

    assert departed.proxies(LATER_S + GRACE_S).keys() == {URL, OTHER_URL}


def test_the_grace_period_starts_anew_if_the_gateway_was_back_meanwhile() -> None:
    departed = departed_from({GATEWAY: plane(URL)})
    departed.follow({}, lambda _: True, NOW_S + 5)
    departed.follow({}, lambda _: False, NOW_S + 6)

    assert departed.proxies(NOW_S + 6 + GRACE_S - 0.1) == {}
    assert departed.proxies(NOW_S + 6 + GRACE_S) == {URL: SERVED}


def test_a_proxy_that_another_gateway_or_the_shared_document_has_taken_over_is_not_emptied() -> None:
    for name in ("shop/other", SHARED):
        departed = departed_from({GATEWAY: plane(URL)})

        departed.follow({name: plane(URL)}, lambda name: name != GATEWAY, NOW_S + 5)

        assert departed.proxies(LATER_S) == {}


def test_a_shared_proxy_is_never_emptied_nor_one_that_the_gateway_never_had() -> None:
    planes = {SHARED: plane(URL), GATEWAY: plane(URL, OTHER_URL, taken={URL, OTHER_URL})}

    assert departed_from(planes).proxies(LATER_S) == {}


def test_a_token_that_was_deleted_before_the_gateway_is_remembered_even_if_that_was_made_again_since() -> None:
    departed = DepartedProxies(GRACE_S)
    for token, created_at in ((NO_TOKEN, BEFORE), (TOKEN, BEFORE), (NO_TOKEN, CREATED)):
        departed.follow({GATEWAY: plane(URL, token=token, created_at=created_at)}, lambda _: True, NOW_S)

    departed.follow({}, lambda _: False, NOW_S)

    assert departed.proxies(LATER_S) == {URL: SERVED}


def test_another_gateways_token_is_not_used_for_one_that_never_had_any() -> None:
    departed = DepartedProxies(GRACE_S)
    departed.follow({"shop/other": plane(URL)}, lambda _: True, NOW_S)
    departed.follow({GATEWAY: plane(URL, token=NO_TOKEN)}, lambda _: True, NOW_S)

    departed.follow({}, lambda _: False, NOW_S)

    assert departed.proxies(LATER_S) == {URL: Served(Author(GATEWAY, CREATED), NO_TOKEN)}


@pytest.mark.parametrize(
    ("receipt", "at_s", "is_over"),
    [
        (DONE, LATER_S, True),
        (REFUSED, LATER_S, True),
        (UNREACHABLE, LATER_S + PATIENCE_S - 1, False),
        (UNREACHABLE, LATER_S + PATIENCE_S, True),
        (None, LATER_S + PATIENCE_S, True),
        (DONE, LATER_S - 1, False),
    ],
)
def test_emptying_ends_when_the_proxy_is_empty_refuses_or_is_unreachable_for_ten_minutes(
    caplog: pytest.LogCaptureFixture, receipt: Receipt | None, at_s: float, is_over: bool
) -> None:
    departed = departed_from({GATEWAY: plane(URL)})

    departed.settle({URL: receipt} if receipt else {}, at_s)

    assert (departed.proxies(LATER_S + PATIENCE_S) == {}) is is_over
    said = [record.getMessage() for record in caplog.records]
    is_failure = is_over and receipt not in (None, DONE)  # None: another controller leads, and did it
    assert said == (["proxy of a Gateway that has gone cannot be emptied"] if is_failure else [])
