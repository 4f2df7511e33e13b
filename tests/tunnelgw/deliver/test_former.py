"""Tunnels that nothing names any more are emptied, by the credentials that they had last."""

from __future__ import annotations

import pytest

from daemonkit.secret import Secret
from tunnelgw.deliver.former import FormerTunnels
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Credentials, Tunnel
from tunnelgw.deliver.tunnels import NO_HOSTS

ONE, TWO = (f"6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b1{number}" for number in (1, 2))
OURS = Tunnel(ONE, "", Credentials(Secret("abc")))
OTHER = Tunnel(TWO, "", Credentials(Secret("abc")))
BARRED = Tunnel(ONE, "", Credentials(None, "secret not found"))


def test_a_tunnel_that_is_named_no_more_is_to_be_emptied_until_it_is_named_again() -> None:
    former = FormerTunnels({})
    former.follow({ONE, TWO}, {ONE: OURS, TWO: OTHER})
    assert former.tunnels == ()

    former.follow({TWO}, {TWO: OTHER})
    assert former.tunnels == (OURS,)
    former.follow({ONE}, {ONE: OURS})

    assert former.tunnels == (OTHER,)


def test_credentials_that_went_before_the_tunnel_are_remembered() -> None:
    former = FormerTunnels({})
    former.follow({ONE}, {ONE: OURS})
    former.follow({ONE}, {ONE: BARRED})

    former.follow((), {})

    assert former.tunnels == (OURS,)


def test_a_tunnel_whose_document_somebody_else_keeps_now_is_left_alone() -> None:
    former = FormerTunnels({})
    former.follow({ONE}, {ONE: OURS})

    former.follow({ONE}, {})

    assert former.tunnels == ()


def test_what_a_former_run_left_is_emptied_unless_it_is_named() -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER})

    former.follow({ONE}, {ONE: OURS})

    assert former.tunnels == (OTHER,)


def test_a_tunnel_is_done_with_when_it_is_empty_or_the_provider_refuses(caplog: pytest.LogCaptureFixture) -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER})

    former.settle({ONE: Receipt("t", "digest of names", "digest of names")})
    former.settle({ONE: Receipt("t", NO_HOSTS.digest, "digest of names", "unreachable", attempts=1)})
    assert former.tunnels == (OURS, OTHER)
    former.settle({ONE: Receipt("t", NO_HOSTS.digest, NO_HOSTS.digest)})
    assert former.tunnels == (OTHER,)
    assert not caplog.records
    former.settle({TWO: Receipt("t", NO_HOSTS.digest, "", "authentication failed", is_refusal=True)})

    assert former.tunnels == ()
    assert [record.getMessage() for record in caplog.records] == [
        "tunnel that nothing names any more cannot be emptied"
    ]
