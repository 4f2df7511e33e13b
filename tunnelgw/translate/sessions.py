"""Session persistence of a rule, as a part of the document."""

from hashlib import blake2s

from proxy import document
from tunnelgw.model.part import Part
from tunnelgw.model.routes import CookieConfig, HeaderConfig, SessionPersistence
from tunnelgw.translate.parts import carry, excerpt
from tunnelgw.translate.remarks import Remarks


class _Flat(Part, frozen=True):
    """The API's fields, placed as in the document."""

    session_name: str | None = None
    absolute_timeout: str | None = None
    idle_timeout: str | None = None
    type: str = "Cookie"
    lifetime_type: str = "Session"


def persistence_of(
    policy: SessionPersistence | None, rule: str, remarks: Remarks
) -> document.SessionPersistence | document.Unset:
    """`rule` identifies the rule among all rules of all routes."""
    if policy is None:
        return document.UNSET
    is_cookie = policy.type == "Cookie"
    cookie = policy.cookie or policy.cookie_config or CookieConfig()
    name = policy.session_name or (cookie if is_cookie else policy.header or HeaderConfig()).name
    if not name and is_cookie:
        # Rules of one host must not share a cookie: each would end the sessions of the others.
        name = f"tunnelgw-{blake2s(rule.encode(), digest_size=4).hexdigest()}"
    if cookie.path != "/":
        remarks.unsupported.append(f"sessionPersistence.cookie.path: {excerpt(cookie.path)} is not served, want /")
    flat = _Flat(name or None, policy.absolute_timeout, policy.idle_timeout, policy.type, cookie.lifetime_type)
    return carry(flat, document.SessionPersistence, "sessionPersistence", remarks) or document.UNSET
