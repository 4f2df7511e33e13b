"""What can go wrong between us and a store, typed by consequence: one class per answer and per next step.

Stores raise nothing else: errors of the operating system, urllib3, ssl, sqlite3 and JSON are converted where they are
met, with the cause chained. Messages say what was seen and what was wanted; they may appear in logs and answers, so
they never contain secrets, and foreign text in them is cut (`excerpt`).
"""

MAX_FOREIGN_TEXT = 256


def excerpt(text: str, limit: int = MAX_FOREIGN_TEXT) -> str:
    """Foreign text fit for a message: one line, at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class StoreError(Exception):
    """Base of everything that a store raises."""

    reason = "error"
    """Closed set of words, used as metric label."""
    is_systemic = True
    """True: the next call would fail alike (the store is away); False: only this record is concerned."""
    is_pending = False
    """True: a create whose row was not seen, though the store may still add it, or may have done so."""


class StoreUnreachable(StoreError):
    """No usable answer: connection refused or reset, name resolution, TLS, 5xx, HTML where JSON was wanted."""

    reason = "unreachable"


class StoreRestarting(StoreUnreachable):
    """5xx, or a connection that breaks off: waiting may help, changing a setting does not."""


class StoreTimeout(StoreError):
    """The store took longer than the deadline of the call."""

    reason = "timeout"


class CredentialsRefused(StoreError):
    """The store rejected the API key, or the session could not be renewed."""

    reason = "credentials"


class RateLimited(StoreError):
    """The store asked for a longer pause than the deadline allows."""

    reason = "rate_limited"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreFailed(StoreError):
    """The store itself is broken or full: disk full, read-only directory, database damaged."""

    reason = "store_failed"


class CapabilitiesUnknown(StoreError):
    """Which API the controller has is not known yet, so what it can hold is not known either."""

    reason = "unknown_api"


class RecordError(StoreError):
    """This one record is refused; others may well succeed."""

    reason = "refused"
    is_systemic = False


class AlreadyExists(RecordError):
    """A row with this name, type and value is there already."""

    reason = "exists"


class NotFound(RecordError):
    """The row is gone."""

    reason = "not_found"


class Overlaps(RecordError):
    """A CNAME would share its name with other records, or a device owns the name."""

    reason = "overlap"


class UpdateUnsupported(RecordError):
    """This store cannot change this row in place: add the new value and remove the old one instead."""

    reason = "update_unsupported"
