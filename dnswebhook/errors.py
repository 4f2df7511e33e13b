"""Errors between us and a store, typed by consequence: one class per response and per next step.

Stores raise nothing else: errors of the operating system, urllib3, ssl, sqlite3 and JSON are converted where they
occur, with the cause chained. Messages say what was seen and what was expected. They may appear in logs and responses,
so they never contain secrets, and foreign text in them is shortened (`excerpt`).
"""

MAX_FOREIGN_TEXT = 256


def excerpt(text: str, limit: int = MAX_FOREIGN_TEXT) -> str:
    """Foreign text made fit for a message: one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class StoreError(Exception):
    """Base class of everything that a store raises."""

    reason = "error"
    """One of a closed set of words, used as a metric label."""
    is_systemic = True
    """True: the next call would fail in the same way (the store is away); False: only this record is affected."""
    is_pending = False
    """True: a create whose row was not seen, though the store may still add it or have added it."""


class StoreUnreachable(StoreError):
    """No usable response: connection refused or reset, name resolution, TLS, 5xx, HTML instead of JSON."""

    reason = "unreachable"


class StoreRestarting(StoreUnreachable):
    """5xx, or a connection that broke off: waiting may help, changing a setting does not."""


class StoreTimeout(StoreError):
    """The store took longer than the deadline of the call."""

    reason = "timeout"


class CredentialsRefused(StoreError):
    """The store rejected the API key, or the session could not be renewed."""

    reason = "credentials"


class RateLimited(StoreError):
    """The store asked for a pause longer than the deadline allows."""

    reason = "rate_limited"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreFailed(StoreError):
    """The store itself is broken or full: disk full, read-only directory, database damaged."""

    reason = "store_failed"


class CapabilitiesUnknown(StoreError):
    """It is not known yet which API the controller has, so neither is what it can hold."""

    reason = "unknown_api"


class RecordError(StoreError):
    """This one record was refused; others may well succeed."""

    reason = "refused"
    is_systemic = False


class AlreadyExists(RecordError):
    """A row with this name, type and value already exists."""

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
