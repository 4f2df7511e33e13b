"""Who may call: API keys, and cookie sessions with expiry, rotating CSRF tokens and a login limiter.

A session accepts its last few CSRF tokens, so that parallel writers do not invalidate each other. Time comes from a
replaceable clock.
"""

import base64
import secrets
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum

import msgspec

LOGINS_PER_WINDOW = 5
LOGIN_WINDOW_S = 60.0
VALID_CSRF_TOKENS = 16


class Verdict(Enum):
    ADMITTED = "admitted"
    NO_CREDENTIALS = "no credentials, or unknown ones"
    EXPIRED = "the session was valid once"
    BAD_CSRF = "the CSRF token is missing or not of this session"


class LoginRefusal(Enum):
    LIMIT_REACHED = "too many logins"
    WRONG_CREDENTIALS = "wrong user name or password"


class Session:
    def __init__(self, opened_s: float) -> None:
        self.opened_s = opened_s
        self.requests = 0
        self._csrf_tokens: deque[str] = deque(maxlen=VALID_CSRF_TOKENS)
        self.rotate()
        self.cookie = _signed({"csrfToken": self.csrf_token, "jti": secrets.token_hex(8)})

    @property
    def csrf_token(self) -> str:
        return self._csrf_tokens[-1]

    def rotate(self) -> None:
        self._csrf_tokens.append(secrets.token_hex(16))

    def knows_token(self, token: str) -> bool:
        return token in self._csrf_tokens


class Sessions:
    def __init__(self, clock: Callable[[], float], users: dict[str, str], api_keys: set[str]) -> None:
        self._clock = clock
        self._users = users
        self._api_keys = api_keys
        self.lifetime_s = 2 * 3600.0
        self.max_requests: int | None = None
        """A session expires after this many admitted requests."""
        self.rotates_csrf = True
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}
        self._expired: set[str] = set()
        self._login_times_s: deque[float] = deque()
        self.logins = 0
        """Successful logins."""
        self.refused_logins = 0

    def log_in(self, username: str, password: str) -> Session | LoginRefusal:
        with self._lock:
            now_s = self._clock()
            while self._login_times_s and now_s - self._login_times_s[0] >= LOGIN_WINDOW_S:
                self._login_times_s.popleft()
            if len(self._login_times_s) >= LOGINS_PER_WINDOW:
                self.refused_logins += 1
                return LoginRefusal.LIMIT_REACHED
            self._login_times_s.append(now_s)
            if username not in self._users or self._users[username] != password:
                self.refused_logins += 1
                return LoginRefusal.WRONG_CREDENTIALS
            self.logins += 1
            session = Session(now_s)
            self._open[session.cookie] = session
            return session

    def admit_key(self, api_key: str) -> Verdict:
        return Verdict.ADMITTED if api_key in self._api_keys else Verdict.NO_CREDENTIALS

    def admit_session(self, cookie: str, csrf_token: str, *, is_write: bool) -> tuple[Verdict, str]:
        """The verdict, and the new CSRF token if it was rotated (else an empty text)."""
        with self._lock:
            session = self._open.get(cookie)
            if session is None:
                return (Verdict.EXPIRED if cookie in self._expired else Verdict.NO_CREDENTIALS), ""
            if self._is_over(session):
                del self._open[cookie]
                self._expired.add(cookie)
                return Verdict.EXPIRED, ""
            if is_write and not session.knows_token(csrf_token):
                return Verdict.BAD_CSRF, ""
            session.requests += 1
            if not is_write:
                return Verdict.ADMITTED, ""
            if not self.rotates_csrf:
                return Verdict.ADMITTED, ""
            session.rotate()
            return Verdict.ADMITTED, session.csrf_token

    def expire_all(self) -> None:
        with self._lock:
            self._expired.update(self._open)
            self._open.clear()

    def _is_over(self, session: Session) -> bool:
        if self.max_requests is not None and session.requests >= self.max_requests:
            return True
        return self._clock() - session.opened_s >= self.lifetime_s


def _signed(claims: dict[str, str]) -> str:
    """A JSON Web Token, the format of a console's cookie."""
    parts = (b'{"alg":"HS256","typ":"JWT"}', msgspec.json.encode(claims), secrets.token_bytes(32))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
