"""Which exchanges the access log shows, and how."""

import msgspec

OFF = "off"
ERRORS = "errors"
ALL = "all"

CHOICES = (OFF, ERRORS, ALL)


class AccessLogSettings(msgspec.Struct, frozen=True):
    """`errors` are exchanges that ended with 5xx, without a response or with one that broke off."""

    mode: str = ERRORS
    sample: float = 1.0
    """The share of other exchanges that is logged with `all`."""
    format: str = "json"
    """As for the daemon's log."""
