"""What earlier calls have done and answered, as far as the plan of a later call depends on it (pure)."""

from collections.abc import Collection

import msgspec

from dnswebhook.model import Record
from dnswebhook.vouchers import Voucher
from dnswebhook.wishes import SetKey


class Past(msgspec.Struct, frozen=True):
    told: Collection[Record] | None
    """The last listing that external-dns got; None if that was before our start. Its requests are based on that listing
    or on an earlier one."""
    noted: Collection[Voucher]
    """What earlier calls have left open."""
    removed: Collection[Voucher]
    """The ownership records that they have removed, or tried to, since that listing; the latest is last."""
    insisted: Collection[SetKey]
    """The sets that the last call refused because they came without an ownership record; empty after a listing."""
