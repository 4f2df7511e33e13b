"""The vocabulary of a plan: single writes, their order, and what was set aside. Plain frozen values."""

import msgspec

from dnswebhook.model import Record, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.wishes import Refusal, SetKey, Skip


class Create(msgspec.Struct, frozen=True):
    spec: RecordSpec


class Update(msgspec.Struct, frozen=True):
    """Rewrite `record` in place as `spec`: same name, same type."""

    record: Record
    spec: RecordSpec


class Delete(msgspec.Struct, frozen=True):
    record: Record


class Switch(msgspec.Struct, frozen=True):
    """Remove all of `remove`, then add all of `add`; if nothing was added, nor can still appear, undo the removal."""

    remove: tuple[Record, ...]
    add: tuple[RecordSpec, ...]


class CreateTogether(msgspec.Struct, frozen=True):
    """Add all of `specs`; if one cannot be added, remove the others again."""

    specs: tuple[RecordSpec, ...]


Operation = Create | CreateTogether | Update | Delete | Switch


class Step(msgspec.Struct, frozen=True):
    """Carried out only if all steps in `needs` succeeded, and at least one of `needs_one_of` unless that is empty; both
    hold positions of earlier steps in the strand."""

    operation: Operation
    needs: tuple[int, ...] = ()
    needs_one_of: tuple[int, ...] = ()


class Strand(msgspec.Struct, frozen=True):
    """Steps to be carried out in sequence; strands may run in parallel."""

    name: str
    steps: tuple[Step, ...]


class Plan(msgspec.Struct, frozen=True):
    strands: tuple[Strand, ...]
    refusals: tuple[Refusal, ...] = ()
    """Requested, but impossible: the call ends as a partial failure."""
    skips: tuple[Skip, ...] = ()
    """Left alone on purpose: not a failure."""
    vanishing_sets: tuple[SetKey, ...] = ()
    """Record sets that would be removed completely."""
    notes: tuple[Note, ...] = ()
    """Ownership records that come or go, or whose records are rewritten; noted until both agree."""
