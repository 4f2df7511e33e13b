"""Extracts response fields from the one field in which a connector sends them."""

import base64
import re

from proxy.heads import Fields

_RAW_BASE64 = re.compile(rb"[A-Za-z0-9+/]*")


def deserialize(serialized: bytes) -> Fields:
    """Raises ValueError. Empty entries are skipped."""
    return [_entry(entry) for entry in serialized.split(b";") if entry]


def _entry(entry: bytes) -> tuple[bytes, bytes]:
    name, colon, value = entry.partition(b":")
    if not colon or b":" in value:
        raise ValueError(f"entry {entry[:64]!r}, want one colon")
    return _decode(name), _decode(value)


def _decode(text: bytes) -> bytes:
    if not _RAW_BASE64.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError(f"{text[:64]!r}, want base64 without padding")
    return base64.b64decode(text + b"=" * (-len(text) % 4))
