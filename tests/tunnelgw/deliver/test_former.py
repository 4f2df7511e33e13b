"""Tunnels that nothing names any more are emptied, with the credentials that they had last."""

from __future__ import annotations

import msgspec
import pytest

from daemonkit.secret import Secret
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.former import REFUSALS, FormerTunnels
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Tunnel
from tunnelgw.deliver.tunnels import NO_HOSTS

ONE, TWO = (f"6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b1{number}" for number in (1, 2))
OURS = Tunnel(ONE, "", Credentials(Secret("abc")))
OTHER = Tunnel(TWO, "", Credentials(Secret("abc")))
RENEWED = Tunnel(ONE, "", Credentials(Secret("def")))
BARRED = Tunnel(ONE, "", Credentials(None, "secret not found"))
NOW_S = 1_000.0


def to_empty(former: FormerTunnels) -> tuple[Tunnel, ...]:
    return former.tunnels(NOW_S)


def test_a_tunnel_that_is_no_longer_named_is_to_be_emptied_until_it_is_named_again() -> None:
    former = FormerTunnels({}, 0.0)
    former.follow({ONE, TWO}, {ONE: OURS, TWO: OTHER}, NOW_S, is_certain=True)
    assert to_empty(former) == ()

    former.follow({TWO}, {TWO: OTHER}, NOW_S, is_certain=True)
    assert to_empty(former) == (OURS,)
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)

    assert to_empty(former) == (OTHER,)


def test_credentials_that_were_removed_before_the_tunnel_are_remembered() -> None:
    former = FormerTunnels({}, 0.0)
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)
    former.follow({ONE}, {ONE: BARRED}, NOW_S, is_certain=True)

    former.follow((), {}, NOW_S, is_certain=True)

    assert to_empty(former) == (OURS,)


def test_of_several_credentials_the_last_usable_ones_are_remembered() -> None:
    former = FormerTunnels({}, 0.0)
    for tunnel in (BARRED, OURS, RENEWED):
        former.follow({ONE}, {ONE: tunnel}, NOW_S, is_certain=True)

    former.follow((), {}, NOW_S, is_certain=True)

    assert to_empty(former) == (RENEWED,)


def test_a_tunnel_that_never_had_usable_credentials_is_to_be_emptied_without_any() -> None:
    former = FormerTunnels({}, 0.0)
    former.follow({ONE}, {ONE: BARRED}, NOW_S, is_certain=True)

    former.follow((), {}, NOW_S, is_certain=True)

    assert to_empty(former) == (BARRED,)


def test_a_tunnel_whose_document_somebody_else_keeps_now_is_left_alone() -> None:
    former = FormerTunnels({}, 0.0)
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)

    former.follow({ONE}, {}, NOW_S, is_certain=True)
    former.follow((), {}, NOW_S, is_certain=True)

    assert to_empty(former) == ()


def test_tunnels_that_a_former_run_left_are_emptied_unless_named() -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER}, 0.0)

    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)

    assert to_empty(former) == (OTHER,)


def test_while_an_object_cannot_be_read_nothing_is_emptied_and_nothing_is_forgotten() -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER}, 0.0)

    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=False)
    assert to_empty(former) == ()
    former.follow((), {}, NOW_S, is_certain=False)
    assert to_empty(former) == ()
    former.follow((), {}, NOW_S, is_certain=True)

    assert set(to_empty(former)) == {OURS, OTHER}


def test_credentials_are_remembered_while_the_object_that_names_their_tunnel_cannot_be_read() -> None:
    former = FormerTunnels({}, 0.0)
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)
    former.follow((), {}, NOW_S, is_certain=False)
    former.follow({ONE}, {ONE: BARRED}, NOW_S, is_certain=True)

    former.follow((), {}, NOW_S, is_certain=True)

    assert to_empty(former) == (OURS,)


def test_a_tunnel_that_is_named_again_while_another_object_cannot_be_read_is_not_emptied() -> None:
    former = FormerTunnels({ONE: OURS}, 0.0)
    former.follow((), {}, NOW_S, is_certain=True)
    assert to_empty(former) == (OURS,)

    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=False)
    assert to_empty(former) == ()
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)

    assert to_empty(former) == ()


def test_a_receipt_from_while_a_tunnel_was_named_does_not_settle_it() -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER}, 0.0)
    former.follow((), {}, NOW_S, is_certain=True)
    unclear = Receipt("t", "digest of names", NO_HOSTS.digest, "the answer was not complete", attempts=1)
    refused = Receipt("t", "digest of names", "", "Bad Configuration", is_refusal=True, attempts=1)

    former.settle({ONE: unclear, TWO: refused}, NOW_S)

    assert to_empty(former) == (OURS, OTHER)


def test_a_tunnel_is_settled_when_it_is_empty_or_the_provider_keeps_refusing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    former = FormerTunnels({ONE: OURS, TWO: OTHER}, 0.0)
    former.follow((), {}, NOW_S, is_certain=True)

    former.settle({ONE: Receipt("t", "digest of names", "digest of names")}, NOW_S)
    former.settle({ONE: Receipt("t", NO_HOSTS.digest, "digest of names", "unreachable", attempts=2 * REFUSALS)}, NOW_S)
    assert to_empty(former) == (OURS, OTHER)
    former.settle({ONE: Receipt("t", NO_HOSTS.digest, NO_HOSTS.digest)}, NOW_S)
    assert to_empty(former) == (OTHER,)
    assert not caplog.records
    refused = Receipt("t", NO_HOSTS.digest, "", "authentication failed", is_refusal=True, attempts=REFUSALS - 1)
    former.settle({TWO: refused}, NOW_S)
    assert to_empty(former) == (OTHER,)
    assert not caplog.records
    former.settle({TWO: msgspec.structs.replace(refused, attempts=REFUSALS)}, NOW_S)

    assert to_empty(former) == ()
    assert [record.getMessage() for record in caplog.records] == [
        "tunnel that nothing names any more cannot be emptied"
    ]


def test_a_tunnel_that_is_empty_before_the_grace_period_is_over_is_not_settled() -> None:
    """Hostnames that were wanted shortly before it was left may be written after that receipt."""
    former = FormerTunnels({}, 10.0)
    former.follow({ONE}, {ONE: OURS}, NOW_S, is_certain=True)
    former.follow((), {}, NOW_S, is_certain=True)

    former.settle({ONE: Receipt("t", NO_HOSTS.digest, NO_HOSTS.digest)}, NOW_S + 1)
    assert former.tunnels(NOW_S + 10) == (OURS,)
    former.settle({ONE: Receipt("t", NO_HOSTS.digest, NO_HOSTS.digest)}, NOW_S + 11)

    assert former.tunnels(NOW_S + 12) == ()


def test_a_tunnel_is_emptied_only_after_it_was_left_with_certainty_for_the_grace_period() -> None:
    former = FormerTunnels({ONE: OURS}, 10.0)
    former.follow((), {}, NOW_S, is_certain=True)
    assert former.tunnels(NOW_S + 9.9) == ()
    assert former.tunnels(NOW_S + 10) == (OURS,)

    former.follow((), {}, NOW_S + 11, is_certain=False)
    assert former.tunnels(NOW_S + 60) == ()
    former.follow((), {}, NOW_S + 61, is_certain=True)
    former.follow((), {}, NOW_S + 70, is_certain=True)

    assert former.tunnels(NOW_S + 70) == ()
    assert former.tunnels(NOW_S + 71) == (OURS,)
