"""Max-Forwards: how many more hops a request may take that asks about the way itself (RFC 9110, 7.6.2). Pure."""

from typing import Final

from proxy.heads import Fields, RequestHead
from proxy.routing import Answer

METHODS: Final = frozenset((b"OPTIONS", b"TRACE"))
"""Of others it is a field like any."""

_NAME: Final = b"max-forwards"
_MOST: Final = 2**31 - 1
_REASON: Final = "max_forwards"
# With nothing to tell about a way that ends here; and what a request holds is shown to nobody but the backend.
_LAST_HOP: Final = {
    b"OPTIONS": Answer(204, _REASON),
    b"TRACE": Answer(405, _REASON, b"the request may go no further\n", ((b"allow", b"OPTIONS"),)),
}


def last_hop(asked: RequestHead) -> Answer | None:
    """The answer to a request that may go no further."""
    return _LAST_HOP[asked.method] if _hops(asked.fields) == 0 else None


def counted_down(fields: Fields) -> Fields:
    """The fields with one hop less. A value that is no single number says nothing, and is passed on."""
    hops = _hops(fields)
    if not hops:
        return fields
    left = b"%d" % (min(hops, _MOST) - 1)
    return [(name, left if name == _NAME else value) for name, value in fields]


def _hops(fields: Fields) -> int | None:
    values = [value for name, value in fields if name == _NAME]
    if len(values) != 1 or not values[0].isdigit():
        return None
    # What is longer is larger than anybody counts, and Python refuses to read thousands of digits.
    digits = values[0].lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= len(str(_MOST)) else _MOST
