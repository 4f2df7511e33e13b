"""One tunnel's ingress document, kept as wanted: read, compared by meaning, written only if it differs.

Every pass reads first, since others write the same document; what they wrote since is reported, and kept. A write whose
outcome is unclear is settled by the next pass. Only one thread may call.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec

from tunnelgw.provider.client import Account, Configuration, ProviderClient
from tunnelgw.provider.errors import AuthenticationFailed, NotThere, OldAnswer, ProviderUnreachable, Refused
from tunnelgw.provider.ingress import Config, Revision, revise


class TunnelRef(msgspec.Struct, frozen=True):
    tunnel_id: str
    account_id: str = ""
    """Empty: the only account that the token lists."""
    remedy: str = "set accountID in the GatewayClassConfig"
    """What to do if the token lists no account, or several; ends the error's message."""


class Pass(msgspec.Struct, frozen=True):
    """The result of one look at the document."""

    version: int
    """The version of the document that the provider has now."""
    was_written: bool
    revision: Revision
    foreign_edits: int = 0
    """How many versions others wrote since the last pass, or between our reading and our writing; the latter are
    lost."""
    may_be_ours: bool = False
    """Nothing was written now, but what is there may be from the previous pass, whose answer was lost."""


class TunnelDocument:
    def __init__(
        self, client: ProviderClient, tunnel: TunnelRef, service: str, *, adopt: bool = False, is_dry_run: bool = False
    ) -> None:
        """`service` is the marker of our rules; `adopt` and `is_dry_run` are the options of these names."""
        self._client = client
        self._tunnel = tunnel
        self._service = service
        self._adopt = adopt
        self._is_dry_run = is_dry_run
        self._account_id = tunnel.account_id
        self._is_checked = False
        self._last_version: int | None = None
        self._is_write_unclear = False
        """Whether the last write may have been carried out, or not."""
        self._doubted_version: int | None = None
        """The version of the previous answer, if it was older than the last known one."""

    def check(self) -> None:
        """Raises ProviderError unless the tunnel can be configured here."""
        self._is_checked = False
        with self._doubting():
            tunnel = self._client.tunnel(self._account(), self._tunnel.tunnel_id)
        if tunnel.config_src == "local":
            raise Refused(
                f"tunnel {tunnel.id} is configured locally (config_src local), so its connectors ignore the ingress "
                "document: migrate it in the provider's dashboard, or create a tunnel that is configured remotely"
            )
        self._is_checked = True

    def compare(self, hostnames: Collection[str]) -> tuple[Configuration, Revision]:
        """What the provider has, and what it should be changed to. Raises ProviderError."""
        found = self._client.configuration(self._account(), self._tunnel.tunnel_id)
        return found, revise(found.config, hostnames, self._service, adopt=self._adopt)

    def keep(self, hostnames: Collection[str], *, check_again: bool = False) -> Pass:
        """Make the provider have rules of ours for exactly `hostnames`. Raises ProviderError.

        `check_again`: the tunnel may have been deleted since the last check. The provider only marks it as deleted, so
        its document may still be readable.
        """
        if check_again or not self._is_checked:
            self.check()
        with self._doubting():
            return self._keep(hostnames)

    def _keep(self, hostnames: Collection[str]) -> Pass:
        found, revision = self.compare(hostnames)
        self._require_news(found.version)
        foreign_edits = 0 if self._last_version is None else max(0, found.version - self._last_version)
        self._last_version = found.version
        was_unclear, self._is_write_unclear = self._is_write_unclear, False
        if not revision.is_changed or self._is_dry_run:
            return Pass(found.version, False, revision, foreign_edits, may_be_ours=was_unclear)
        self._last_version, self._is_write_unclear = None, True  # until the answer is here
        written, our_edits = self._write(revision.config)
        self._last_version, self._is_write_unclear = written.version, False
        foreign_edits += max(0, written.version - found.version - our_edits)
        return Pass(written.version, True, revision, foreign_edits)

    def _write(self, config: Config) -> tuple[Configuration, int]:
        """The new configuration, and how many versions are ours, or may be.

        Tried once more if the provider answers with an error of its own (5xx), and does not ask to wait: if one of its
        two machines is bad and gets every second call, each pass would read successfully and fail to write.
        """
        try:
            return self._client.put_configuration(self._account(), self._tunnel.tunnel_id, config), 1
        except ProviderUnreachable as error:
            if not error.has_answered or error.retry_after_s:
                raise
        return self._client.put_configuration(self._account(), self._tunnel.tunnel_id, config), 2

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """After AuthenticationFailed or NotThere, what was determined at the start is determined again: the tunnel may
        have been deleted, or the token, without changing, may have been given access to another account.
        """
        try:
            yield
        except (AuthenticationFailed, NotThere):
            self._account_id, self._is_checked = self._tunnel.account_id, False
            raise

    def _require_news(self, version: int) -> None:
        """Versions only rise, so a lower one is an outdated answer, without what was written since. An answer that
        comes twice is believed: otherwise we might never write again.
        """
        last, doubted, self._doubted_version = self._last_version, self._doubted_version, None
        if last is not None and version < last and version != doubted:
            self._doubted_version = version
            raise OldAnswer(
                f"read configuration: the provider answered version {version} of the ingress document, which was at "
                f"{last}: asking again in {OldAnswer.retry_after_s:g} s"
            )

    def _account(self) -> str:
        if not self._account_id:
            accounts = self._accounts()
            if len(accounts) != 1:
                names = ", ".join(f"{account.name} {account.id}" for account in accounts[:5])
                raise NotThere(
                    f"the token lists {len(accounts)} accounts{f' ({names})' if names else ''}, want exactly one: "
                    f"{self._tunnel.remedy}"
                )
            self._account_id = accounts[0].id
        return self._account_id

    def _accounts(self) -> list[Account]:
        try:
            return self._client.accounts()
        except Refused as error:
            # A token that belongs to an account instead of a person may not list accounts.
            refused = Refused(f"{error}: {self._tunnel.remedy}")
            refused.ray = error.ray
            raise refused from error
