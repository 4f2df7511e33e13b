"""A tunnel's ingress document as a target, against the simulated provider."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from daemonkit.secret import Secret
from tests.support.controller.faults import Reply, Reset
from tests.support.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider
from tests.support.provider.provider import Tunnel
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.receipts import RemarkKind
from tunnelgw.deliver.tunnels import KNOCK, HostnamesParcel, TunnelTarget
from tunnelgw.provider.client import ProviderClient
from tunnelgw.provider.ingress import marker
from tunnelgw.provider.tunnel import Pass, TunnelDocument, TunnelRef

OURS = marker("tunnel-gateway-controller")
FOREIGN = "http://somebody.example"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


class Sent:
    """A target, and the passes that it reported."""

    def __init__(self, provider: Provider, token: str = TOKEN) -> None:
        self.passes: list[Pass] = []
        client = ProviderClient(Secret(token), provider.url)
        document = TunnelDocument(client, TunnelRef(TUNNEL_ID, ACCOUNT_ID), OURS)
        self.target = TunnelTarget("tunnel", document, self.passes.append, client.close)

    def deliver(self, parcel: HostnamesParcel) -> list[tuple[RemarkKind, str]]:
        try:
            return [(remark.kind, remark.subject) for remark in self.target.deliver(parcel)]
        finally:
            self.target.close()


def test_a_foreign_rule_is_reported_once_whether_it_conflicts_or_not(provider: Provider) -> None:
    rules = [{"hostname": name, "service": FOREIGN} for name in ("z.example", "a.example", "z.example")]
    rules[2]["path"] = "/other"
    provider.write({"ingress": [*rules, {"service": "http_status:404"}]})
    sent = Sent(provider)

    remarks = sent.deliver(HostnamesParcel.of({"a.example", "b.example"}))

    assert remarks == [(RemarkKind.CONFLICT, "a.example"), (RemarkKind.FOREIGN_RULE, "z.example")]
    assert [found.was_written for found in sent.passes] == [True]
    assert provider.hostnames == ["b.example", "z.example", "a.example", "z.example", "*"]


def test_a_write_is_checked_soon_and_less_and_less_often_if_somebody_else_keeps_replacing_it(
    provider: Provider,
) -> None:
    """Two controllers that adopt the same hostname would otherwise write it every few seconds for ever."""
    sent, one, more = Sent(provider), HostnamesParcel.of({"a.example"}), HostnamesParcel.of({"a.example", "b.example"})
    looks_s = []
    for parcel in (one, one, one, more):
        provider.write({"ingress": [{"service": "http_status:404"}]})
        sent.deliver(parcel)
        looks_s.append(sent.target.look_soon_s)

    sent.deliver(more)

    ranges_s = ((5, 10), (10, 20), (20, 40), (5, 10))
    assert all(least <= look <= most for look, (least, most) in zip(looks_s, ranges_s, strict=True)), looks_s
    assert sent.target.look_soon_s == math.inf


def test_a_write_whose_response_was_lost_is_checked_soon_too(provider: Provider) -> None:
    """Another writer that had read the document before may still replace it."""
    sent, parcel = Sent(provider), HostnamesParcel.of({"a.example"})
    provider.fault(Reset(after_commit=True), "write", count=1)
    with pytest.raises(Undelivered):
        sent.deliver(parcel)

    sent.deliver(parcel)
    assert 5 <= sent.target.look_soon_s <= 10

    sent.deliver(parcel)
    assert sent.target.look_soon_s == math.inf


@pytest.mark.parametrize(
    ("change", "said"),
    [({"deleted_at": "2026-01-01T00:00:00Z"}, "was deleted at"), ({"config_src": "local"}, "is configured locally")],
)
def test_a_regular_visit_notices_that_the_tunnel_was_deleted_or_migrated_although_its_document_can_be_read(
    provider: Provider, change: dict[str, str], said: str
) -> None:
    sent, parcel = Sent(provider), HostnamesParcel.of({"a.example"})
    for _ in ("write", "look again"):
        sent.deliver(parcel)
    assert (provider.calls["tunnel"], provider.calls["read"]) == (1, 2)
    for name, value in change.items():
        setattr(provider.tunnel, name, value)

    for hostnames in (parcel, HostnamesParcel.of({"b.example"})):
        with pytest.raises(Undelivered, match=said) as caught:
            sent.deliver(hostnames)
        assert caught.value.is_refusal

    for name in change:
        setattr(provider.tunnel, name, getattr(Tunnel(TUNNEL_ID), name))
    assert sent.deliver(parcel) == []


def test_an_empty_hostname_is_every_host(provider: Provider) -> None:
    assert Sent(provider).deliver(HostnamesParcel.of([""])) == []

    assert provider.hostnames == ["*"]
    assert provider.tunnel.config is not None
    assert provider.tunnel.config["ingress"] == [{"service": OURS}]


def test_a_knock_leaves_the_document_alone(provider: Provider) -> None:
    sent = Sent(provider)

    assert sent.deliver(KNOCK) == []
    assert (sent.passes, provider.calls["read"], provider.calls["write"]) == ([], 0, 0)


@pytest.mark.parametrize("parcel", [KNOCK, HostnamesParcel.of({"a.example"})], ids=["knock", "hostnames"])
def test_a_wrong_token_is_a_problem_of_credentials(provider: Provider, parcel: HostnamesParcel) -> None:
    with pytest.raises(Undelivered) as caught:
        Sent(provider, token="wrong").deliver(parcel)

    assert caught.value.is_credential_problem


def test_retry_after_and_ray_id_of_the_provider_s_429_are_passed_on(provider: Provider) -> None:
    headers = (("Retry-After", "300"), ("CF-RAY", "8f1-FRA"))
    provider.fault(Reply(status=429, headers=headers), count=1)

    with pytest.raises(Undelivered) as caught:
        Sent(provider).deliver(KNOCK)

    told = caught.value
    assert (told.retry_after_s, told.trace, told.is_refusal, told.is_credential_problem) == (
        300,
        "8f1-FRA",
        False,
        False,
    )


def test_equal_hostnames_are_an_equal_parcel() -> None:
    assert HostnamesParcel.of(["b.example", "a.example"]) == HostnamesParcel.of(["a.example", "b.example", "b.example"])
    assert HostnamesParcel.of([""]) == HostnamesParcel.of(["*"])
    assert HostnamesParcel.of(["a.example"]).digest != HostnamesParcel.of(["b.example"]).digest


@pytest.mark.parametrize("parcel", [KNOCK, HostnamesParcel.of({"a.example"})], ids=["knock", "hostnames"])
def test_a_tunnel_configured_locally_refuses(provider: Provider, parcel: HostnamesParcel) -> None:
    provider.tunnel.config_src = "local"

    with pytest.raises(Undelivered, match="config_src local") as caught:
        Sent(provider).deliver(parcel)

    assert caught.value.is_refusal
