"""Splits URLs as a person writes them (pure)."""

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import SplitResult, urlsplit

_DROPPED: Final = re.compile(r"[\t\r\n]")
_SECOND_SCHEME: Final = re.compile(r"[a-z]+://[a-z0-9][a-z0-9+.-]*://", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[^:\[\]]*)?")
_QUOTED_ZONE: Final = re.compile(r"(?<=[0-9A-Fa-f:])%25(?=[^%\[\]]+\])")


def split_url(url: str) -> SplitResult:
    """As `urlsplit`, but also raises ValueError for two schemes, or an IPv6 address without brackets, which that takes,
    and for what it drops: tabs, line breaks and, up to Python 3.13.1, text beside an address in brackets. The zone of
    an IPv6 address may follow `%`, or `%25`, as RFC 6874 writes it in URLs; it is returned after `%`."""
    if _DROPPED.search(url):
        raise ValueError("it contains a tab or a line break")
    if _SECOND_SCHEME.match(url):  # the host would be `http`, with an empty port
        raise ValueError("its scheme is written twice")
    parts = urlsplit(url)
    if not _AUTHORITY.fullmatch(parts.netloc.rpartition("@")[2]):
        raise ValueError("want a name and at most a port; an IPv6 address is written in brackets, as in [fd00::1]")
    return parts._replace(netloc=_QUOTED_ZONE.sub("%", parts.netloc))


def lacks_interface(host: str) -> bool:
    """Whether it is a link-local IPv6 address without a zone, to which nothing can be sent."""
    try:
        address = IPv6Address(host)
    except ValueError:
        return False
    return address.is_link_local and not address.scope_id
