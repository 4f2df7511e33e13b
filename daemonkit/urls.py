"""Splits a URL (pure)."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_BRACKETED: Final = re.compile(r"\[[^\[\]]*\](?::[^\[\]]*)?")


def split_url(url: str) -> SplitResult:
    """As `urlsplit`, which drops what is beside an IPv6 address in brackets, up to Python 3.13.1. Raises ValueError."""
    parts = urlsplit(url)
    authority = parts.netloc.rpartition("@")[2]
    if "[" in authority and not _BRACKETED.fullmatch(authority):
        raise ValueError("Invalid IPv6 URL")
    return parts
