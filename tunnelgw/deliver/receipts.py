"""The result of a delivery, from which statuses, readiness and metrics are made. Pure."""

from enum import StrEnum

import msgspec


class RemarkKind(StrEnum):
    PORT = "port"
    """A proxy holds the document, but cannot apply a part of it now; `subject` is the path of the field."""
    REPLACED = "replaced"
    """A proxy holds the document, but keeps losing it, or somebody else keeps sending it other ones."""
    CONFLICT = "conflict"
    """Somebody else has a rule for the hostname `subject`, so ours is left out."""
    FOREIGN_RULE = "foreign rule"
    """The ingress document has somebody else's rule for the hostname `subject`, which is kept."""


class Remark(msgspec.Struct, frozen=True):
    """Something that people should know about what a target holds."""

    kind: RemarkKind
    subject: str
    message: str


class Receipt(msgspec.Struct, frozen=True):
    """The newest result for one target. It never expires: if a target that answered before is silent now, `held` stays,
    with `error` beside it."""

    target: str
    """Its name for people: `http://10.0.0.7:8082`, or `tunnel 6f1c...`."""
    wanted: str
    """Digest of what the target should hold."""
    held: str = ""
    """Digest of what the target last said it holds; empty: it has never said."""
    error: str = ""
    """Why it does not hold what is wanted, or could not be asked; empty: all is well."""
    is_refusal: bool = False
    """The same delivery will be refused again until a person changes something."""
    is_credential_problem: bool = False
    """Our credentials were refused, or we have none."""
    is_starting: bool = False
    """The target has never been reached, but may still be starting: `error` is no failure yet."""
    attempts: int = 0
    """How many attempts have failed in a row."""
    remarks: tuple[Remark, ...] = ()
    """About what the target held when it last answered."""

    @property
    def failure(self) -> str:
        """Why it does not hold what is wanted, or not for long; empty: all is well, or it may still be starting."""
        return "" if self.is_starting else self.error or self.replaced

    @property
    def is_current(self) -> bool:
        return self.held == self.wanted and not self.error and not self.replaced

    @property
    def replaced(self) -> str:
        """The message if what the target holds keeps being lost or replaced; empty: it is not."""
        return next((remark.message for remark in self.remarks if remark.kind is RemarkKind.REPLACED), "")
