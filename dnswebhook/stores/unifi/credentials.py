"""How a call authenticates: with an API key, or with a login session that is renewed when the controller has ended it.

A session is a cookie and a CSRF token; the controller may end it at any time and may replace the token in any reply.
Some consoles send the token only inside the cookie, and some send one to everybody, logged in or not. Logins are the
dangerous part, because the console locks an account after a few refused ones. So one thread logs in while the others
wait for the result, and after a refusal nobody tries again for 15 s, doubling up to 10 min. In the meantime, calls fail
at once. If a fresh session is refused before any call in it has succeeded, this counts as a refused login.
"""

import math
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Protocol

import msgspec

from daemonkit.logs import get_logger
from daemonkit.retryafter import retry_after_s
from daemonkit.secret import Secret
from daemonkit.waits import doubling
from dnswebhook.deadline import Deadline
from dnswebhook.errors import CredentialsRefused, RecordError, StoreTimeout, StoreUnreachable, excerpt
from dnswebhook.stores.observed import Observe, observed
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi.address import Flavour, login_path
from dnswebhook.stores.unifi.transport import NoReply, Reply, Request, Transport

log = get_logger(__name__)

FIRST_LOGIN_PAUSE_S = 15.0
MAX_LOGIN_PAUSE_S = 600.0
_MAX_COOKIES = 32
_STATUS_UNAUTHORIZED = 401
_STATUS_SECOND_FACTOR = 499
_HINT_EXCHANGED = "with the password that was read at the start: restart dnswebhook after changing it"
_HINT_IN_FRONT = (
    "if the password is right, wait: a server in front of the controller may have answered, or a console that restarts"
)
_HINT_LOCAL = "give UNIFI_USER a local account without one, or use an API key, and restart dnswebhook"
_HINT_ROLE = "if reading works and writing does not, make UNIFI_USER an administrator of the site"
_HINT_WAIT = "do not restart dnswebhook until then, since it logs in when it starts; an API key needs no logins"


class Ticket(msgspec.Struct, frozen=True):
    """What one attempt of a call was sent with."""

    headers: dict[str, str]
    generation: int = 0
    """Counts logins; 0 for an API key."""
    number: int = 0
    """Increases with each attempt in a session."""


class Credentials(Protocol):
    def ticket(self, deadline: Deadline, /) -> Ticket:
        """Logs in first if there is no session; raises StoreError."""

    def learn(self, ticket: Ticket, reply: Reply, /) -> None:
        """Record what the reply changes: a rotated CSRF token, a replaced cookie, the proof that the session works."""

    def is_expired(self, ticket: Ticket, reply: Reply, /) -> bool:
        """Whether the reply says that the session of `ticket` is over, so that a renewal may help."""

    def is_outdated(self, ticket: Ticket, /) -> bool:
        """Whether a parallel call has learned a newer CSRF token or cookie of the same session."""

    def renew(self, ticket: Ticket, refusal: Reply, deadline: Deadline, /) -> bool:
        """Make `ticket()` return something newer than `ticket`, which got `refusal`. True if this call logged in."""


class KeyCredentials:
    def __init__(self, key: Secret) -> None:
        self.headers = {"X-API-KEY": key.reveal()}
        self._ticket = Ticket(self.headers)

    def ticket(self, _deadline: Deadline) -> Ticket:
        return self._ticket

    def learn(self, _ticket: Ticket, _reply: Reply) -> None:
        """Does nothing: a key never changes."""

    def is_expired(self, _ticket: Ticket, _reply: Reply) -> bool:
        return False

    def is_outdated(self, _ticket: Ticket) -> bool:
        return False

    def renew(self, _ticket: Ticket, _refusal: Reply, _deadline: Deadline) -> bool:
        raise CredentialsRefused("an API key cannot be renewed")


class _Claims(msgspec.Struct, frozen=True, rename="camel"):
    csrf_token: str = ""


_claims_decoder = msgspec.json.Decoder(_Claims)


class _Session(msgspec.Struct, frozen=True):
    generation: int
    cookies: dict[str, str]
    csrf_token: str
    is_proven: bool = False
    """Whether at least one call was accepted in this session."""
    shows_pages: bool = False
    """Whether a call was answered with a page before any was accepted."""
    learned_from: int = 0
    """The number of the attempt whose reply brought the token and the cookies."""

    def headers(self) -> dict[str, str]:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        if self.csrf_token:
            headers["X-CSRF-Token"] = self.csrf_token
        return headers


class SessionCredentials:
    def __init__(
        self,
        user: str,
        password: Secret,
        flavour: Flavour,
        transport: Transport,
        observe: Observe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._user = user
        self._password = password
        self._path = login_path(flavour)
        self._transport = transport
        self._observe = observe
        self._clock = clock
        self._login_lock = threading.Lock()
        """Held during a login: any thread that needs the session has to wait for it."""
        self._state_lock = threading.Lock()
        self._session: _Session | None = None
        self._logins = 0
        self._logged_in_s = 0.0
        self._numbers = count(1)
        self._pauses = _login_pauses()
        self._next_login_s = 0.0
        self._last_refusal = ("", "")
        """Why the last login was refused, and what to do about it."""

    def ticket(self, deadline: Deadline) -> Ticket:
        session = self._session
        if session is None:
            self._renew_from(0, None, deadline)
            session = self._session
            if session is None:
                raise CredentialsRefused("the login session ended at once")
        return Ticket(session.headers(), session.generation, next(self._numbers))

    def learn(self, ticket: Ticket, reply: Reply) -> None:
        if reply.status_code == _STATUS_UNAUTHORIZED:
            return  # the session is over: token and cookies in the reply are for a new visitor
        if replies.is_page(reply):
            self._learn_page(ticket)  # for a new visitor, too
            return
        token = _csrf_token(reply)
        is_proof = reply.is_success and not self.is_expired(ticket, reply) and not self._is_about_site(ticket, reply)
        with self._state_lock:
            session = self._session
            if session is None or session.generation != ticket.generation:
                return
            # Replies of parallel calls may arrive here in another order: an older one must not replace newer values.
            is_news = bool(token or reply.cookies) and ticket.number >= session.learned_from
            if is_news or (is_proof and not session.is_proven):
                self._session = msgspec.structs.replace(
                    session,
                    cookies=_updated(session.cookies, reply.cookies) if is_news else session.cookies,
                    csrf_token=(token if is_news else "") or session.csrf_token,
                    is_proven=session.is_proven or is_proof,
                    learned_from=ticket.number if is_news else session.learned_from,
                )
                if is_proof:
                    self._pauses = _login_pauses()

    def _learn_page(self, ticket: Ticket) -> None:
        with self._state_lock:
            session = self._session
            if session is not None and session.generation == ticket.generation and not session.is_proven:
                self._session = msgspec.structs.replace(session, shows_pages=True)

    def is_expired(self, ticket: Ticket, reply: Reply) -> bool:
        """True for 401, 403, and a success with an object where an array was requested, or with an error that asks to
        log in; also for a redirect or a page, which may be that for logging in. Not if the user lacks a permission, or
        the reply may be about the site: no login helps there."""
        if reply.status_code in (_STATUS_UNAUTHORIZED, 403):
            has_permission = not replies.error_body(reply).words.endswith("NoPermission")
            return has_permission and not self._is_about_site(ticket, reply)
        if replies.is_page(reply):
            return not self._is_page_usual(ticket)
        if not reply.is_success:
            return False
        if reply.request.wants_array:
            return reply.body[:64].lstrip()[:1] == b"{" and not self._is_about_site(ticket, reply)
        error = replies.error_inside_success(reply)
        return error is not None and replies.is_session_word(error.words)

    def _is_about_site(self, ticket: Ticket, reply: Reply) -> bool:
        """Whether it concerns the site. If the session has worked before, only the next session's reply is believed;
        another thread may have opened that one while this reply was on its way."""
        session = self._session
        is_fresh = session is not None and session.generation == ticket.generation and not session.is_proven
        return is_fresh and replies.is_about_site(replies.error_body(reply))

    def _is_page_usual(self, ticket: Ticket) -> bool:
        """Whether a page says nothing about the session, since there was one right after the login, too: a console that
        is starting serves pages before its Network application runs, and others may do so in place of one call only.
        After a while the session may be over as well."""
        session = self._session
        is_usual = session is not None and session.generation == ticket.generation and session.shows_pages
        return is_usual and self._clock() < self._logged_in_s + MAX_LOGIN_PAUSE_S

    def is_outdated(self, ticket: Ticket) -> bool:
        session = self._session
        return session is not None and session.generation == ticket.generation and session.headers() != ticket.headers

    def renew(self, ticket: Ticket, refusal: Reply, deadline: Deadline) -> bool:
        return self._renew_from(ticket.generation, refusal, deadline)

    def _renew_from(self, stale_generation: int, seen: Reply | None, deadline: Deadline) -> bool:
        if not self._login_lock.acquire(timeout=max(deadline.remaining_s, 0)):
            raise StoreTimeout("waiting for another thread's login took too long")
        try:
            with self._state_lock:  # otherwise a parallel `learn` could restore a dropped session
                session = self._session
                if session is not None and session.generation != stale_generation:
                    return False
                is_unproven = session is not None and not session.is_proven
                refusal = seen if is_unproven and seen is not None and not replies.is_page(seen) else None
                if refusal is not None:
                    self._session = None
            if refusal is not None:
                message = f"the controller refused a session that it had just opened: {replies.described(refusal)}"
                raise self._pause(message, hint=_HINT_ROLE)
            with observed(self._observe, "login", self._clock):
                self._login(deadline)
            return True
        finally:
            self._login_lock.release()

    def _login(self, deadline: Deadline) -> None:
        pause_s = self._next_login_s - self._clock()
        if pause_s > 0:
            raise CredentialsRefused(f"not logged in again yet: {self._told_refusal(pause_s)}")
        password = self._password.reveal()
        form = {"username": self._user, "password": password, "remember": True, "rememberMe": True}
        # As long as the deadline allows: a login that is given up is begun anew, and counts as one more.
        body = msgspec.json.encode(form)
        request = Request("POST", self._path, body, secrets=(password,), timeout_factor=math.inf)
        try:
            reply = self._transport.exchange(request, {}, deadline)
        except NoReply as failure:
            raise failure.error from failure
        failure_seen = replies.failure_of(reply)
        if failure_seen is not None:
            failure_seen = self._refusal(reply) or failure_seen
        if isinstance(failure_seen, RecordError):  # a login is about no record: without a session, all calls fail
            failure_seen = StoreUnreachable(f"{replies.described(reply)}; {replies.HINT_FLAVOUR}")
        if failure_seen is not None:
            raise failure_seen
        # Not quoted: the response to a successful login may contain tokens.
        answered = f"POST {self._path} answered {reply.status_code} {reply.content_type}"
        if replies.is_page(reply):  # nobody has looked at the password, and cookies are for a visitor
            raise StoreUnreachable(f"{answered}, want JSON; {replies.HINT_FLAVOUR}, or {replies.HINT_RESTARTING}")
        cookies = dict(reply.cookies)
        if not cookies:
            raise self._pause(f"{answered} without a session cookie; {replies.HINT_FLAVOUR}")
        self._logins += 1
        self._logged_in_s = self._clock()
        with self._state_lock:
            self._session = _Session(self._logins, cookies, _csrf_token(reply))
        log.info("logged in to the controller", logins=self._logins)

    def _refusal(self, reply: Reply) -> CredentialsRefused | None:
        """The error for a login that was understood and refused, as opposed to one that met a restarting console; a
        success has an error inside it. The data that comes with an error is not quoted: it may be half of a login."""
        body = replies.error_body(reply)
        # The words of a self-hosted application: api.err.Ubic2faTokenRequired.
        if reply.status_code == _STATUS_SECOND_FACTOR or "2fa" in body.words.lower():
            message = "the account asks for a second factor, want a local account without one"
            return self._pause(message, hint=_HINT_LOCAL)
        if reply.status_code == 429:
            asked_s = retry_after_s(reply.headers) or 0.0
            return self._pause(f"too many logins: {body.text_in(reply)}", asked_s, _HINT_WAIT)
        is_refusal = reply.is_success or reply.status_code in (_STATUS_UNAUTHORIZED, 403)
        if is_refusal or (reply.status_code == 400 and replies.is_json(reply)):
            text = body.text_in(reply) or _told_without_data(reply)
            # A self-hosted application sends this for every unknown path, including a console's login.
            is_unknown_path = replies.is_session_word(body.words) or replies.is_about_site(body)
            hint = replies.HINT_FLAVOUR if is_unknown_path else _HINT_EXCHANGED
            if not replies.is_json(reply):
                hint = f"{hint}; {_HINT_IN_FRONT}"
            return self._pause(f"login as UNIFI_USER refused with {reply.status_code}: {text}", hint=hint)
        return None

    def _pause(self, message: str, at_least_s: float = 0.0, hint: str = _HINT_EXCHANGED) -> CredentialsRefused:
        pause_s = min(max(next(self._pauses), at_least_s), MAX_LOGIN_PAUSE_S)
        self._next_login_s = self._clock() + pause_s
        self._last_refusal = (message, hint)
        return CredentialsRefused(self._told_refusal(pause_s))

    def _told_refusal(self, pause_s: float) -> str:
        message, hint = self._last_refusal
        moment = datetime.now(UTC) + timedelta(seconds=pause_s)
        return f"{message}; next login attempt at {moment:%Y-%m-%dT%H:%M:%SZ}, {hint}"


def _told_without_data(reply: Reply) -> str:
    """The beginning of a refusal that has none of the known formats."""
    if b'"data"' in reply.body:
        return "an error without a message"
    return excerpt(reply.quotable[:1000].decode("utf-8", "replace")) or "empty body"


def _login_pauses() -> Iterator[float]:
    return doubling(FIRST_LOGIN_PAUSE_S, MAX_LOGIN_PAUSE_S)


def _updated(cookies: Mapping[str, str], news: Mapping[str, str]) -> dict[str, str]:
    """Those of the login come first, and stay. If each reply brought another one, requests would grow until they were
    refused."""
    return dict(islice({**cookies, **news}.items(), max(_MAX_COOKIES, len(cookies))))


def _csrf_token(reply: Reply) -> str:
    """From a header field, else from its own cookie (self-hosted application), else from inside a console's cookie."""
    if told := reply.headers.get("X-Updated-CSRF-Token") or reply.headers.get("X-CSRF-Token"):
        return told
    cookies = reply.cookies
    return cookies.get("csrf_token") or next(filter(None, map(_claimed_token, cookies.values())), "")


def _claimed_token(cookie: str) -> str:
    """The CSRF token in a JSON Web Token, which has three parts; the second contains the claims."""
    parts = cookie.split(".")
    if len(parts) != 3:
        return ""
    try:
        return _claims_decoder.decode(urlsafe_b64decode(parts[1] + "==")).csrf_token
    except (ValueError, RecursionError):
        return ""
