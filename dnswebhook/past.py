"""What earlier calls have done and answered, as far as the plan of a later call depends on it (pure)."""

from collections.abc import Collection

import msgspec

from dnswebhook.model import Record
from dnswebhook.vouchers import Voucher
from dnswebhook.wishes import SetKey


class Past(msgspec.Struct, frozen=True):
    told: Collection[Record] | None
    """The last listing that external-dns got; None if that was before our start. What it asks for is based on that one,
    or on an earlier one."""
    noted: Collection[Voucher]
    """What earlier calls have left open."""
    removed: Collection[Voucher]
    """The ownership records that they have removed, or tried to, since that listing; the latest is last."""
    insisted: Collection[SetKey]
    """The sets that were refused in the last call because they came without an ownership record; empty after a
    listing."""
