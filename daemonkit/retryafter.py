"""How long a server asks clients to wait."""

import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After` in either form (RFC 9110, 10.2.3); None if there is no valid value.

    A date is compared with the response's own `Date`, if it has one, since the server's clock may differ from ours.
    `headers` must look names up without regard to case.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until = _http_date(text)
    if until is None:
        return None
    now = _http_date(headers.get("Date", "")) or datetime.now(UTC)
    return max((until - now).total_seconds(), 0.0)


def _http_date(text: str) -> datetime | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
