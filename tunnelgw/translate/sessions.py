"""Session persistence of a rule as the document has it."""

from hashlib import blake2s

from proxy import document
from tunnelgw.model.part import Part
from tunnelgw.model.routes import SessionPersistence
from tunnelgw.translate.parts import carry
from tunnelgw.translate.remarks import Remarks


class _Flat(Part, frozen=True):
    """The API's fields where the document has them."""

    session_name: str | None = None
    absolute_timeout: str | None = None
    idle_timeout: str | None = None
    type: str = "Cookie"
    lifetime_type: str = "Session"


def persistence_of(
    policy: SessionPersistence | None, rule: str, remarks: Remarks
) -> document.SessionPersistence | document.Unset:
    """`rule` says which rule it is among all of the world."""
    if policy is None:
        return document.UNSET
    name = policy.session_name
    if not name and policy.type == "Cookie":
        # Rules of one host must not share a cookie: each would end the sessions of the others.
        name = f"tunnelgw-{blake2s(rule.encode(), digest_size=4).hexdigest()}"
    lifetime_type = policy.cookie_config.lifetime_type if policy.cookie_config else "Session"
    flat = _Flat(name or None, policy.absolute_timeout, policy.idle_timeout, policy.type, lifetime_type)
    return carry(flat, document.SessionPersistence, "sessionPersistence", remarks) or document.UNSET
