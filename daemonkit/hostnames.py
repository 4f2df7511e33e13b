"""Host names that no lookup takes (pure)."""

import re
from typing import Final

_LABELS: Final = re.compile(r"[^.]{1,63}(?:\.[^.]{1,63})*\.?")
_MOST_CHARACTERS: Final = 254
"""With a final dot."""


def has_dns_lengths(host: str) -> bool:
    """Whether labels and name are as long as DNS lets them be (RFC 1035, 2.3.4). For an empty or a longer label
    `socket` raises UnicodeError. Names of other scripts are not judged, since they are longer in DNS than here."""
    return not host.isascii() or (len(host) <= _MOST_CHARACTERS and _LABELS.fullmatch(host) is not None)
