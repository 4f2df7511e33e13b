"""What earlier calls have done and told, as far as the plan of a later one depends on it (pure)."""

from collections.abc import Collection

import msgspec

from dnswebhook.model import Record
from dnswebhook.vouchers import Voucher
from dnswebhook.wishes import SetKey


class Past(msgspec.Struct, frozen=True):
    told: Collection[Record] | None
    """The listing that external-dns was given last, None if that was before our start. What it asks for follows from
    that one, or from one before."""
    noted: Collection[Voucher]
    """What earlier calls have left open."""
    removed: Collection[Voucher]
    """The ownership records that they have removed since that listing, or wanted to, the latest last."""
    insisted: Collection[SetKey]
    """The sets that the last call was refused for want of an ownership record, if no listing has come since."""
