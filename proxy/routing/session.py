"""Session persistence: the client itself stores which backend and address its session belongs to.

The client sends a token in a cookie or header field: hashes (fingerprints) of the backend and of its address, the time
of creation and that of last use. Every worker and every proxy with the same document understands it, and none keeps a
list of sessions. A forged token can only choose among the backends of the rule, including those of weight 0, since
existing sessions stay with a backend whose weight becomes 0.

Rules of one host must not use the same session name (GEP-1619): each would find the other's token useless, and replace
it in its response.
"""

import base64
import binascii
import hashlib
import struct
from functools import lru_cache

import msgspec

from proxy import document
from proxy.heads import Field
from proxy.routing.head import Head, header

MAX_CLOCK_SKEW_S = 60.0
"""How far the clock of the proxy that made a token may be ahead of ours."""

_MAX_AGE_S = 400 * 86_400
"""Of the cookie of a permanent session that no timeout ends. Browsers keep no cookie longer (RFC 6265bis, 5.5)."""
_NAME = "tunnelgw-session"
_EVERYTHING = frozenset((document.Match(), document.Match(path=document.PathMatch())))
_TOKEN = struct.Struct(">8s8sII")
_TEXT_BYTES = 32
"""Length of a token in base64: 24 bytes, so there is no padding."""


class Session(msgspec.Struct, frozen=True, gc=False):
    """The content of a valid token. Times are in seconds since 1970."""

    backend: bytes
    """Fingerprint of the backend's key."""
    address: bytes
    """Fingerprint of the address, to be compared with `fingerprint(address)`."""
    created_s: int
    used_s: int


class Persistence(msgspec.Struct, frozen=True, gc=False):
    """The compiled policy of a rule."""

    name: bytes
    """Name of the cookie as configured, or of the header field in lower case."""
    is_cookie: bool
    absolute_timeout_s: float
    """0: none."""
    idle_timeout_s: float
    """0: none."""
    is_permanent: bool

    def find(self, head: Head, now_s: float) -> Session | None:
        """The session in a request's token; None if there is no valid token, or it has expired."""
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
        """The response field that binds the client to the backend and address that answered; None if no new one is
        needed.

        A session with an idle timeout gets a new token only after a tenth of that timeout, so that a busy client is not
        sent one with every response.
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
            left_s = created_s + self.absolute_timeout_s - now_s if self.absolute_timeout_s else _MAX_AGE_S
            attributes += b"; Max-Age=%d" % max(0, int(left_s))
        return b"set-cookie", self.name + b"=" + text + attributes


def session_name(rule: document.Rule, route: document.Route) -> str:
    """The default name of a rule's sessions, derived from its matches and the route's kind and listeners.

    Of two rules for a host with the same matches on the same listeners, only one ever gets requests. So the name is
    different for all rules that a client of one host may meet, and does not depend on other rules.
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
    """The first eight bytes of the SHA-256 of a backend's key or an address."""
    return hashlib.sha256(text.encode()).digest()[:8]


def _cookie(cookies: bytes | None, name: bytes) -> bytes | None:
    """The value of the first cookie with this name.

    Uses bytes.find, which skips other cookies of a long list quickly. A regular expression would do too, but there may
    be thousands of names, more than `re` keeps compiled.
    """
    if not cookies:
        return None
    sought = name + b"="
    start = 0
    while (at := cookies.find(sought, start)) >= 0:
        # After an occurrence that was rejected, `start` is inside a value, so an empty `before` begins no cookie.
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
    except (binascii.Error, struct.error):  # the latter if it ends in padding, and so is too short
        return None
