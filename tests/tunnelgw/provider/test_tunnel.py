"""One tunnel's document kept as wanted, pass by pass, against the simulated provider."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle

import msgspec
import pytest

from daemonkit.secret import Secret
from tests.support.controller.faults import Reply, Reset
from tests.support.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider
from tunnelgw.provider.client import ProviderClient
from tunnelgw.provider.errors import AuthenticationFailed, NotThere, ProviderUnreachable, Refused
from tunnelgw.provider.ingress import marker
from tunnelgw.provider.tunnel import TunnelDocument, TunnelRef

OURS = marker("tunnel-gateway-controller")


def document(client: ProviderClient, account_id: str = ACCOUNT_ID, *, is_dry_run: bool = False) -> TunnelDocument:
    return TunnelDocument(client, TunnelRef(TUNNEL_ID, account_id), OURS, is_dry_run=is_dry_run)


def test_a_pass_reads_before_it_writes_and_a_second_one_writes_nothing(
    provider: Provider, client: ProviderClient
) -> None:
    kept = document(client)
    assert kept.keep({"a.example"}).was_written

    second = kept.keep({"a.example"})

    assert not second.was_written
    assert (provider.calls["tunnel"], provider.calls["read"], provider.calls["write"]) == (1, 2, 1)
    assert provider.hostnames == ["a.example", "*"]


def test_a_foreign_edit_between_two_passes_is_reported_and_kept(provider: Provider, client: ProviderClient) -> None:
    kept = document(client)
    kept.keep({"a.example"})
    provider.write({"ingress": [{"hostname": "z.example", "service": "http://x"}, {"service": "http_status:404"}]})

    after = kept.keep({"a.example"})

    assert (after.foreign_edits, after.revision.foreign, after.was_written) == (1, ("z.example",), True)
    assert provider.hostnames == ["a.example", "z.example", "*"]


def test_a_foreign_edit_is_reported_once_if_there_is_nothing_to_write(
    provider: Provider, client: ProviderClient
) -> None:
    kept = document(client)
    kept.keep({"a.example"})
    config = provider.tunnel.config
    assert config is not None
    ours, catch_all = config["ingress"]
    provider.write({**config, "ingress": [ours, {"hostname": "z.example", "service": "http://x"}, catch_all]})

    passes = [kept.keep({"a.example"}) for _ in range(2)]

    assert [(each.foreign_edits, each.was_written) for each in passes] == [(1, False), (0, False)]


def test_a_dry_run_writes_nothing_and_reports_what_it_would_change(provider: Provider, client: ProviderClient) -> None:
    would = document(client, is_dry_run=True).keep({"a.example"})

    assert not would.was_written
    assert would.revision.added == ("a.example",)
    assert provider.calls["write"] == 0


def test_a_write_whose_response_was_lost_is_found_by_the_next_pass(provider: Provider, client: ProviderClient) -> None:
    kept = document(client)
    provider.fault(Reset(after_commit=True), "write", count=1)
    with pytest.raises(ProviderUnreachable):
        kept.keep({"a.example"})

    after = kept.keep({"a.example"})

    assert not after.was_written
    assert after.may_be_ours
    assert after.foreign_edits == 0, "it was our own"
    assert provider.tunnel.version == 1
    assert not kept.keep({"a.example"}).may_be_ours


@pytest.mark.parametrize("is_first_bad", [False, True])
def test_a_provider_that_fails_every_second_call_gets_the_document(provider: Provider, *, is_first_bad: bool) -> None:
    """A load balancer with one bad backend of two: each call would succeed if it was repeated."""
    machines = cycle([is_first_bad, not is_first_bad])

    def balance(call: str) -> None:
        if next(machines):
            provider.fault(Reply(status=502, body="<html>bad gateway</html>"), count=1)

    client = ProviderClient(Secret(TOKEN), provider.url, before_call=balance)
    kept = document(client, "")

    for _ in range(5):
        with suppress(ProviderUnreachable):
            kept.keep({"a.example"})

    assert provider.hostnames == ["a.example", "*"]
    client.close()


def test_a_write_that_was_made_twice_is_not_a_foreign_edit(provider: Provider, client: ProviderClient) -> None:
    provider.fault(Reply(status=504, body="", after_commit=True), "write", count=1)

    found = document(client).keep({"a.example"})

    assert (found.version, found.was_written, found.foreign_edits) == (2, True, 0)


def test_a_write_answered_with_retry_after_is_not_repeated_at_once(provider: Provider, client: ProviderClient) -> None:
    provider.fault(Reply(status=503, body="", headers=(("Retry-After", "120"),)), "write", count=1)

    with pytest.raises(ProviderUnreachable) as caught:
        document(client).keep({"a.example"})

    assert (caught.value.retry_after_s, provider.calls["write"]) == (120, 1)


def test_a_foreign_edit_between_our_read_and_our_write_is_reported(
    provider: Provider,
) -> None:
    """It is overwritten: the last write wins, and the provider has no conditional update."""
    theirs = {"ingress": [{"hostname": "z.example", "service": "http://x"}, {"service": "http_status:404"}]}

    def be_quicker(call: str) -> None:
        if call == "write configuration":
            provider.write(theirs)

    client = ProviderClient(Secret(TOKEN), provider.url, before_call=be_quicker)

    found = document(client).keep({"a.example"})

    assert (found.foreign_edits, found.was_written) == (1, True)
    assert provider.hostnames == ["a.example", "*"]
    client.close()


@pytest.mark.parametrize(
    ("prevented", "made"), [("read tunnel", (0, 0)), ("read configuration", (1, 0)), ("write configuration", (1, 1))]
)
def test_each_call_can_be_prevented_at_the_last_moment(
    provider: Provider, prevented: str, made: tuple[int, int]
) -> None:
    def prevent(call: str) -> None:
        if call == prevented:
            raise PermissionError("another controller leads now")

    client = ProviderClient(Secret(TOKEN), provider.url, before_call=prevent)

    with pytest.raises(PermissionError):
        document(client).keep({"a.example"})

    assert (provider.calls["tunnel"], provider.calls["read"], provider.calls["write"]) == (*made, 0)
    client.close()


def test_without_an_account_id_the_only_listed_account_is_used(provider: Provider, client: ProviderClient) -> None:
    assert document(client, "").keep({"a.example"}).was_written

    provider.accounts.append("f" * 32)
    with pytest.raises(NotThere, match=r"lists 2 accounts.*want exactly one: set accountID"):
        document(client, "").keep({"a.example"})
    provider.accounts.clear()
    with pytest.raises(NotThere, match="lists 0 accounts, want exactly one"):
        document(client, "").keep({"a.example"})


def test_a_token_that_may_not_list_accounts_works_once_the_account_id_is_set(
    provider: Provider, client: ProviderClient
) -> None:
    """An account-owned token; the error says which field to set, and where."""
    provider.lists_accounts = False

    with pytest.raises(Refused, match=r"1001 List accounts .*: set accountID in the GatewayClassConfig$") as refused:
        document(client, "").keep({"a.example"})
    assert refused.value.ray

    assert document(client).keep({"a.example"}).was_written


def test_the_account_is_looked_up_again_after_the_token_was_given_another(
    provider: Provider, client: ProviderClient
) -> None:
    """That is done in the dashboard, and the token itself stays the same."""
    wrong = "f" * 32
    provider.accounts[:] = [wrong]
    kept = document(client, "")
    with pytest.raises(NotThere, match="check tunnelID and accountID"):
        kept.keep({"a.example"})

    provider.accounts[:] = [ACCOUNT_ID]
    assert kept.keep({"a.example"}).was_written

    provider.accounts[:] = [wrong]
    provider.tunnel.account_id = wrong
    with pytest.raises(AuthenticationFailed):
        kept.keep({"b.example"})
    assert kept.keep({"b.example"}).was_written
    assert provider.hostnames == ["b.example", "*"]


def test_a_tunnel_that_was_deleted_meanwhile_is_reported_as_deleted(provider: Provider, client: ProviderClient) -> None:
    kept = document(client)
    kept.keep({"a.example"})
    provider.tunnel.deleted_at = "2026-05-04T03:02:01Z"
    provider.fault(Reply(status=404, body="{}"), "read")

    with pytest.raises(NotThere, match="check tunnelID and accountID"):
        kept.keep({"a.example"})
    with pytest.raises(NotThere, match="was deleted at 2026-05-04T03:02:01Z: create one, and change tunnelID"):
        kept.keep({"a.example"})


def test_a_tunnel_that_is_configured_locally_is_refused_before_anything_is_written(
    provider: Provider, client: ProviderClient
) -> None:
    provider.tunnel.config_src = "local"

    with pytest.raises(Refused, match="configured locally"):
        document(client).keep({"a.example"})
    assert provider.calls["write"] == 0


def test_a_stale_read_from_before_our_own_write_is_not_used(provider: Provider, client: ProviderClient) -> None:
    kept = document(client)
    kept.keep({"a.example", "b.example"})
    before = msgspec.structs.replace(provider.tunnel)
    kept.keep({"a.example"})
    provider.tunnels[TUNNEL_ID] = before

    with pytest.raises(ProviderUnreachable, match=r"version 1 .* was at 2") as caught:
        kept.keep({"a.example", "b.example"})

    assert caught.value.retry_after_s > 0
    provider.tunnels[TUNNEL_ID] = provider.tunnel
    after = kept.keep({"a.example", "b.example"})
    assert (after.was_written, after.foreign_edits) == (True, 0)
    assert provider.hostnames == ["a.example", "b.example", "*"]


def test_an_older_version_that_the_provider_returns_again_is_used(provider: Provider, client: ProviderClient) -> None:
    kept = document(client)
    kept.keep({"a.example", "b.example"})
    before = msgspec.structs.replace(provider.tunnel)
    kept.keep({"a.example"})
    provider.tunnels[TUNNEL_ID] = before
    with pytest.raises(ProviderUnreachable):
        kept.keep({"a.example"})

    after = kept.keep({"a.example"})

    assert (after.version, after.was_written, after.revision.removed) == (2, True, ("b.example",))
