"""A tunnel's ingress document at the provider as a delivery target."""

import hashlib
import math
import random
from collections.abc import Callable, Iterable

import msgspec

from daemonkit.waits import doubling
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.receipts import Remark, RemarkKind
from tunnelgw.provider.errors import AuthenticationFailed, ProviderError
from tunnelgw.provider.ingress import EVERYTHING
from tunnelgw.provider.tunnel import Pass, TunnelDocument

SETTLE_S = 5.0
"""Longer than another writer takes between reading the document and writing it."""
_LONGEST_S = 3600.0


class HostnamesParcel(msgspec.Struct, frozen=True):
    """The hostnames whose requests should go to a tunnel; None: only check whether our credentials are accepted."""

    digest: str
    hostnames: frozenset[str] | None

    @classmethod
    def of(cls, hostnames: Iterable[str]) -> "HostnamesParcel":
        """An empty hostname stands for every host."""
        wanted = frozenset(hostname or EVERYTHING for hostname in hostnames)
        return cls(hashlib.sha256("\n".join(sorted(wanted)).encode()).hexdigest(), wanted)


NO_HOSTS = HostnamesParcel.of(())
KNOCK = HostnamesParcel("", None)
"""Sent while no proxy can serve hostnames yet, so that bad credentials are reported anyway."""


class TunnelTarget:
    """`on_pass` is called with the result of each look at the document.

    After a write the document is checked again, between `settle_s` and twice that later: the provider keeps whichever
    document it gets last, even from a writer that had read the one before ours. The delay is random, so that two
    writers do not keep writing at the same time. It doubles each time we write the same again, since another writer may
    want something else. Regular visits check the tunnel itself, too.
    """

    def __init__(
        self,
        name: str,
        document: TunnelDocument,
        on_pass: Callable[[Pass], None],
        close: Callable[[], None],
        settle_s: float = SETTLE_S,
    ) -> None:
        self.name = name
        self.look_soon_s = math.inf
        self._settle_s = settle_s
        self._waits = doubling(settle_s, _LONGEST_S)
        self._digest = ""
        """The digest of the last parcel delivered."""
        self._document = document
        self._on_pass = on_pass
        self._close = close

    def close(self) -> None:
        self._close()

    def deliver(self, parcel: HostnamesParcel) -> tuple[Remark, ...]:
        is_regular = parcel.digest == self._digest and self.look_soon_s == math.inf
        self.look_soon_s = math.inf
        try:
            if parcel.hostnames is None:
                self._document.check()
                return ()
            found = self._document.keep(parcel.hostnames, check_again=is_regular)
        except ProviderError as error:
            raise Undelivered(
                str(error),
                retry_after_s=error.retry_after_s,
                is_refusal=error.is_refusal,
                is_credential_problem=isinstance(error, AuthenticationFailed),
                trace=error.ray,
            ) from error
        is_fresh = found.was_written or found.may_be_ours
        if not is_fresh or parcel.digest != self._digest:
            self._waits, self._digest = doubling(self._settle_s, _LONGEST_S), parcel.digest
        if is_fresh:
            self.look_soon_s = next(self._waits) * random.uniform(1.0, 2.0)
        self._on_pass(found)
        return _remarks(found)


def _remarks(found: Pass) -> tuple[Remark, ...]:
    revision = found.revision
    conflicts = [
        Remark(
            RemarkKind.CONFLICT,
            conflict.hostname,
            f"the ingress document has a rule of somebody else for {conflict.hostname} (service {conflict.service}): "
            "remove that rule, or run with --adopt to replace it",
        )
        for conflict in revision.conflicts
    ]
    conflicting = {conflict.hostname for conflict in revision.conflicts}
    foreign = [
        Remark(RemarkKind.FOREIGN_RULE, hostname, f"a rule for {hostname} that is not ours is kept")
        for hostname in dict.fromkeys(revision.foreign)
        if hostname not in conflicting
    ]
    return (*conflicts, *foreign)
