"""Max-Forwards: how many more hops a request about the path itself may take (RFC 9110, 7.6.2). Pure."""

from typing import Final

from proxy.heads import Fields, RequestHead
from proxy.routing import Answer

METHODS: Final = frozenset((b"OPTIONS", b"TRACE"))
"""With other methods it is an ordinary field."""

_NAME: Final = b"max-forwards"
_MOST: Final = 2**31 - 1
_REASON: Final = "max_forwards"
# There is nothing to tell about a path that ends here, and only the backend may see what a request holds.
_LAST_HOP: Final = {
    b"OPTIONS": Answer(204, _REASON),
    b"TRACE": Answer(405, _REASON, b"the request may go no further\n", ((b"allow", b"OPTIONS"),)),
}


def last_hop(asked: RequestHead) -> Answer | None:
    """The answer to a request that may go no further."""
    return _LAST_HOP[asked.method] if _hops(asked.fields) == 0 else None


def counted_down(fields: Fields) -> Fields:
    """The fields with one hop less. A value that is not a single number is passed on unchanged."""
    hops = _hops(fields)
    if not hops:
        return fields
    left = b"%d" % (min(hops, _MOST) - 1)
    return [(name, left if name == _NAME else value) for name, value in fields]


def _hops(fields: Fields) -> int | None:
    values = [value for name, value in fields if name == _NAME]
    if len(values) != 1 or not values[0].isdigit():
        return None
    # A longer number is more than anybody counts, and Python refuses to parse thousands of digits.
    digits = values[0].lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= len(str(_MOST)) else _MOST
