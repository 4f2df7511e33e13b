"""Session persistence: which backend and address a client's session belongs to, kept by the client itself.

The client carries a token in a cookie or header field: fingerprints of the backend and of its address, and two times.
So every worker and every proxy with the same document understands it, and none keeps a list of sessions. A fingerprint
tells nothing about the address; a forged token reaches the backends of the rule and no others, those of weight 0
included: sessions outlive the weight of their backend.

Rules of one host must not share the name of their sessions (GEP-1619): to each, the token of another is none, or one
for a backend that it does not have, and its answer replaces it.
"""

import base64
import binascii
import hashlib
import struct
from functools import lru_cache

import msgspec

from proxy import document
from proxy.routing.head import Field, Head, header

MAX_CLOCK_SKEW_S = 60.0
"""How far ahead the clock of the proxy that made a token may be."""

_NAME = "tunnelgw-session"
_EVERYTHING = frozenset((document.Match(), document.Match(path=document.PathMatch())))
_TOKEN = struct.Struct(">8s8sII")
_TEXT_BYTES = 32
"""Length of a token in base64: 24 bytes, so there is no padding."""


class Session(msgspec.Struct, frozen=True, gc=False):
    """What a valid token says. Times are in seconds since 1970."""

    backend: bytes
    """Fingerprint of the backend's key."""
    address: bytes
    """Fingerprint of the address, to be compared with `fingerprint(address)`."""
    created_s: int
    used_s: int


class Persistence(msgspec.Struct, frozen=True, gc=False):
    """The compiled policy of a rule."""

    name: bytes
    """Of the cookie as written, of the header field in lower case."""
    is_cookie: bool
    absolute_timeout_s: float
    """0: none."""
    idle_timeout_s: float
    """0: none."""
    is_permanent: bool

    def find(self, head: Head, now_s: float) -> Session | None:
        """The session that a request names, unless its time is over."""
        text = _cookie(header(head, b"cookie"), self.name) if self.is_cookie else header(head, self.name)
        session = _decoded(text)
        if session is None or self._is_over(session, now_s):
            return None
        return session

    def _is_over(self, session: Session, now_s: float) -> bool:
        absolute_s, idle_s = self.absolute_timeout_s, self.idle_timeout_s
        if max(session.created_s, session.used_s) > now_s + MAX_CLOCK_SKEW_S:
            return True
        return bool(
            (absolute_s and now_s >= session.created_s + absolute_s) or (idle_s and now_s >= session.used_s + idle_s)
        )

    def response_field(
        self, session: Session | None, backend_key: str, address: str, now_s: float, *, is_secure: bool
    ) -> Field | None:
        """The field that binds the client to `address`, to be added to the response; None when it is bound already.

        The backend and the address are those that answered. A session with an idle timeout is renewed when a tenth of
        that time has passed, so that a busy client is not sent the same cookie over and over.
        """
        backend, bound = fingerprint(backend_key), fingerprint(address)
        created_s = int(now_s)
        if session is not None and session.address == bound:
            is_fresh = not self.idle_timeout_s or now_s < session.used_s + self.idle_timeout_s / 10
            if is_fresh and session.backend == backend:
                return None
            created_s = session.created_s
        text = base64.urlsafe_b64encode(_TOKEN.pack(backend, bound, created_s & 0xFFFFFFFF, int(now_s) & 0xFFFFFFFF))
        if not self.is_cookie:
            return self.name, text
        attributes = b"; Path=/; HttpOnly; SameSite=Lax" + (b"; Secure" if is_secure else b"")
        if self.is_permanent:
            attributes += b"; Max-Age=%d" % max(0, int(created_s + self.absolute_timeout_s - now_s))
        return b"set-cookie", self.name + b"=" + text + attributes


def session_name(rule: document.Rule, route: document.Route) -> str:
    """The name of sessions to which the document gives none.

    Of two rules with the same matches on the same listeners, one gets all requests of a host. So these tell apart all
    rules that a client of one host may meet, and no change to another rule changes them.
    """
    place = (route.kind, sorted(set(route.listeners)))
    if place == ("http", []) and _EVERYTHING.issuperset(rule.matches):
        return _NAME
    return f"{_NAME}-{fingerprint(msgspec.json.encode((*place, rule.matches)).decode()).hex()}"


def compile_persistence(rule: document.Rule, route: document.Route) -> Persistence | None:
    policy = rule.session_persistence
    if not policy:
        return None
    is_cookie = policy.type == "Cookie"
    name = policy.session_name or session_name(rule, route)
    name = name if is_cookie else name.lower()
    return Persistence(
        name.encode(),
        is_cookie,
        document.seconds(policy.absolute_timeout or ""),
        document.seconds(policy.idle_timeout or ""),
        policy.lifetime_type == "Permanent",
    )


@lru_cache(maxsize=4096)
def fingerprint(text: str) -> bytes:
    """Eight bytes that stand for a backend's key or an address."""
    return hashlib.sha256(text.encode()).digest()[:8]


def _cookie(cookies: bytes | None, name: bytes) -> bytes | None:
    """The first of that name. Searched for, since all else in a long list of cookies then costs nothing worth mention,
    and not by a regular expression: there may be thousands of names, more than are kept compiled.
    """
    if not cookies:
        return None
    sought = name + b"="
    start = 0
    while (at := cookies.find(sought, start)) >= 0:
        # What the last one that was found has behind it is its value.
        before = cookies[start:at].rstrip(b" \t")
        is_first = not before and not start
        start = at + len(sought)
        if is_first or before.endswith(b";"):
            end = cookies.find(b";", start)
            return cookies[start : end if end >= 0 else None].strip()
    return None


def _decoded(text: bytes | None) -> Session | None:
    if text is None or len(text) != _TEXT_BYTES:
        return None
    try:
        return Session(*_TOKEN.unpack(base64.b64decode(text, altchars=b"-_", validate=True)))
    except (binascii.Error, struct.error):  # the latter: it ends in padding, so it is shorter
        return None
