"""What became of a delivery: the value that statuses, readiness and metrics are made of. Pure."""

from enum import StrEnum

import msgspec


class RemarkKind(StrEnum):
    PORT = "port"
    """A proxy holds the document, but cannot do a part of it now: `subject` is the path of the field."""
    REPLACED = "replaced"
    """A proxy holds the document, but not for long: somebody else keeps sending it others."""
    CONFLICT = "conflict"
    """Somebody else's rule has the hostname `subject`."""
    FOREIGN_RULE = "foreign rule"
    """Somebody else's rule for the hostname `subject` is in the ingress document, and stays."""


class Remark(msgspec.Struct, frozen=True):
    """Something people should know about what a target holds."""

    kind: RemarkKind
    subject: str
    message: str


class Receipt(msgspec.Struct, frozen=True):
    """The newest word on one target. It never expires: a target that answered once and is silent now keeps what it
    held, with the error beside it."""

    target: str
    """For people: `http://10.0.0.7:8082`, or `tunnel 6f1c...`."""
    wanted: str
    """Digest of what the target should hold."""
    held: str = ""
    """Digest of what it last said it holds; empty: never said so."""
    error: str = ""
    """Why it does not hold what is wanted, or could not be asked; empty when all is well."""
    is_refusal: bool = False
    """The same delivery will be refused again until somebody changes something."""
    is_credential_problem: bool = False
    """We are not let in, or have nothing to show."""
    is_starting: bool = False
    """Nobody was ever there, for so short a time that it may be on its way up: `error` is no failure yet."""
    attempts: int = 0
    """Failed ones in a row."""
    remarks: tuple[Remark, ...] = ()
    """About what it held when it last said so."""

    @property
    def failure(self) -> str:
        """Why it does not hold what is wanted, or not for long; empty when all is well or to be waited for."""
        return "" if self.is_starting else self.error or self.replaced

    @property
    def is_current(self) -> bool:
        return self.held == self.wanted and not self.error and not self.replaced

    @property
    def replaced(self) -> str:
        """Who keeps putting something else in its place, in words; empty: nobody does."""
        return next((remark.message for remark in self.remarks if remark.kind is RemarkKind.REPLACED), "")
