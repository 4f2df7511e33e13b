"""Logins and the admission of calls: the verdicts of `sessions`, expressed as HTTP for the flavour."""

import secrets
from http.cookies import SimpleCookie
from typing import assert_never

import msgspec

from tests.support.controller.answers import (
    Answer,
    Request,
    classic_error,
    front_end_error,
    html_answer,
    integration_error,
    json_answer,
    login_error,
    v2_error,
)
from tests.support.controller.faults import WRITES
from tests.support.controller.quirks import ExpiredAnswer, Quirks
from tests.support.controller.routes import API_KEYS_SINCE, Flavour, Route, Section, parsed_version
from tests.support.controller.sessions import LoginRefusal, Session, Sessions, Verdict

LOGIN_PAGE = html_answer(200, "Log in")
NOT_AUTHENTICATED = "api.err.UserNotAuthenticated"
INVALID_CSRF = "api.err.InvalidCsrf"


class _Credentials(msgspec.Struct):
    username: str
    password: str


class Gatekeeper:
    def __init__(self, sessions: Sessions, quirks: Quirks, flavour: Flavour, version: str) -> None:
        self._sessions = sessions
        self._quirks = quirks
        self._is_classic = flavour is Flavour.CLASSIC
        self._takes_keys = parsed_version(version) >= API_KEYS_SINCE and not self._is_classic
        self._cookie_name = "unifises" if self._is_classic else "TOKEN"

    def log_in(self, request: Request) -> Answer:
        try:
            credentials = msgspec.json.decode(request.body, type=_Credentials)
        except msgspec.DecodeError:
            return login_error(400, "INVALID_PAYLOAD", "username and password are wanted")
        match self._sessions.log_in(credentials.username, credentials.password):
            case LoginRefusal.LIMIT_REACHED:
                return login_error(
                    429, "AUTHENTICATION_FAILED_LIMIT_REACHED", "You have reached the login attempt limit"
                )
            case LoginRefusal.WRONG_CREDENTIALS:
                return login_error(403, "AUTHENTICATION_FAILED_INVALID_CREDENTIALS", "Invalid username or password")
            case Session() as session:
                return self._welcome(session, credentials.username)
            case other:
                assert_never(other)

    def admit(self, request: Request, route: Route) -> tuple[Answer | None, str]:
        """A refusal or None, and the CSRF token that the response must announce (or an empty text)."""
        api_key = request.headers.get("x-api-key")
        if api_key is not None or route.section is Section.INTEGRATION:
            is_known = self._takes_keys and self._sessions.admit_key(api_key or "") is Verdict.ADMITTED
            return (None if is_known else self._stranger(request, route)), ""
        cookies = SimpleCookie(request.headers.get("cookie", ""))
        cookie = cookies[self._cookie_name].value if self._cookie_name in cookies else ""
        csrf_token = request.headers.get("x-csrf-token", "")
        verdict, new_token = self._sessions.admit_session(cookie, csrf_token, is_write=route.operation in WRITES)
        match verdict:
            case Verdict.ADMITTED:
                return None, new_token if self._quirks.tells_csrf_token else ""
            case Verdict.NO_CREDENTIALS if not self._quirks.treats_strangers_as_expired:
                return self._shown_out(self._stranger(request, route)), ""
            case Verdict.NO_CREDENTIALS | Verdict.EXPIRED:
                return self._shown_out(self._expired()), ""
            case Verdict.BAD_CSRF:
                return self._bad_csrf(), ""
            case other:
                assert_never(other)

    def _welcome(self, session: Session, username: str) -> Answer:
        cookie = f"{self._cookie_name}={session.cookie}; Path=/; HttpOnly"
        token = [("X-CSRF-Token", session.csrf_token)] if self._quirks.tells_csrf_token else []
        if self._is_classic:
            welcome = json_answer(200, {"meta": {"rc": "ok"}, "data": []})
            token.append(("Set-Cookie", f"csrf_token={session.csrf_token}; Path=/"))
        else:
            welcome = json_answer(200, {"username": username, "status": "ACTIVE"})
            cookie += "; SameSite=None; Partitioned"  # since UniFi OS 4
        return welcome.with_headers(("Set-Cookie", cookie), *token)

    def _stranger(self, request: Request, route: Route) -> Answer:
        if route.section is Section.INTEGRATION:
            code = "api.authentication.missing-credentials"
            return integration_error(401, code, "Missing or invalid credentials", request.path)
        return classic_error(401, NOT_AUTHENTICATED) if self._is_classic else front_end_error(401, "Unauthorized")

    def _expired(self) -> Answer:
        match self._quirks.expired_answer:
            case ExpiredAnswer.UNAUTHORIZED if self._is_classic:
                return classic_error(401, NOT_AUTHENTICATED)
            case ExpiredAnswer.UNAUTHORIZED:
                return v2_error(401, NOT_AUTHENTICATED, "Session expired")
            case ExpiredAnswer.INVALID_CSRF:
                return self._bad_csrf()
            case ExpiredAnswer.OBJECT:
                return classic_error(200, "api.err.LoginRequired")
            case ExpiredAnswer.REDIRECT:
                return Answer(302, headers=(("Location", "/login"),))
            case ExpiredAnswer.PAGE:
                return LOGIN_PAGE
            case other:
                assert_never(other)

    def _shown_out(self, refusal: Answer) -> Answer:
        if not self._quirks.welcomes_strangers:
            return refusal
        cookie = f"balancer={secrets.token_hex(8)}; Path=/; Max-Age=604800"
        return refusal.with_headers(("X-CSRF-Token", secrets.token_hex(16)), ("Set-Cookie", cookie))

    def _bad_csrf(self) -> Answer:
        return (
            classic_error(403, INVALID_CSRF) if self._is_classic else v2_error(403, INVALID_CSRF, "Invalid CSRF token")
        )
