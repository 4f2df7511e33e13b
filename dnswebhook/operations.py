"""The vocabulary of a plan: single writes, their order, and what was set aside. Plain frozen values."""

import msgspec

from dnswebhook.model import Record, RecordSpec
from dnswebhook.vouchers import Voucher
from dnswebhook.wishes import Refusal, SetKey, Skip


class Create(msgspec.Struct, frozen=True):
    spec: RecordSpec


class Update(msgspec.Struct, frozen=True):
    """Rewrite `record` in place into `spec`: same name, same type."""

    record: Record
    spec: RecordSpec


class Delete(msgspec.Struct, frozen=True):
    record: Record


class Switch(msgspec.Struct, frozen=True):
    """Remove all of `remove`, then add all of `add`; put back what was removed when nothing came, nor can come late."""

    remove: tuple[Record, ...]
    add: tuple[RecordSpec, ...]


class CreateTogether(msgspec.Struct, frozen=True):
    """Add all of `specs`; when one cannot be added, take back the others."""

    specs: tuple[RecordSpec, ...]


Operation = Create | CreateTogether | Update | Delete | Switch


class Step(msgspec.Struct, frozen=True):
    """Left out unless all of `needs` succeeded, positions of earlier steps of the strand, and one of `needs_one_of`, if
    there are any."""

    operation: Operation
    needs: tuple[int, ...] = ()
    needs_one_of: tuple[int, ...] = ()


class Strand(msgspec.Struct, frozen=True):
    """Steps to be taken one after the other; strands may run side by side."""

    name: str
    steps: tuple[Step, ...]


class Plan(msgspec.Struct, frozen=True):
    strands: tuple[Strand, ...]
    refusals: tuple[Refusal, ...] = ()
    """Wanted, but impossible: the call ends as a partial failure."""
    skips: tuple[Skip, ...] = ()
    """Left alone on purpose: no failure."""
    vanishing_sets: tuple[SetKey, ...] = ()
    """Record sets of which nothing would remain."""
    vouchers: tuple[Voucher, ...] = ()
    """Ownership records that come, go or see theirs rewritten, to be noted until their records have followed."""
