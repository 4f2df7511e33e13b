"""Names in the proxy's document, made from names of objects, which joined may be longer than the document allows."""

import hashlib
import re

from proxy.document import TIMESTAMP, UNSET, Unset
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.verdicts import ObjectId

MAX_LENGTH = 512
_DIGITS = 32

_TIMESTAMP = re.compile(TIMESTAMP)


def listener_name(gateway: Key, owner: ObjectId, listener: str) -> str:
    """`namespace/gateway/listener`, or for a ListenerSet's listener `namespace/gateway/setnamespace/set/listener`."""
    within = "" if owner.kind is Kind.GATEWAY else f"{owner.key}/"
    return short(f"{gateway}/{within}{listener}")


def short(name: str) -> str:
    """The name, or if it is too long, its beginning and a digest of the whole."""
    if len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name[: MAX_LENGTH - _DIGITS - 1]}~{digest}"


def created_at(timestamp: str) -> str | Unset:
    """The timestamp, or if it is not in UTC to the second, UNSET, which counts as youngest."""
    return timestamp if _TIMESTAMP.match(timestamp) else UNSET
