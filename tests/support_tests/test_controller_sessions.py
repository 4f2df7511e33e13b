"""Credentials of the simulated controller: keys, logins, CSRF tokens, expiry, the login limiter."""

import pytest
import requests

from tests.support.controller import Controller, ExpiredAnswer, Flavour
from tests.support_tests.callers import Caller, a_record

COOKIE_NAMES = {Flavour.UNIFI_OS: {"TOKEN"}, Flavour.CLASSIC: {"unifises", "csrf_token"}}


class Clock:
    """Advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def log_in(caller: Caller, password: str = "") -> requests.Response:
    controller = caller.controller
    content = {"username": controller.username, "password": password or controller.password}
    answer = caller.call("POST", controller.login_url, content)
    if answer.ok:
        caller.session.headers["X-CSRF-Token"] = answer.headers["X-CSRF-Token"]
    return answer


def test_without_a_valid_key_the_front_end_answers_401(controller: Controller) -> None:
    for headers in ({}, {"X-API-KEY": "wrong"}):
        with Caller(controller, headers) as caller:
            answer = caller.v2("GET")

            assert (answer.status_code, answer.json()) == (401, {"error": {"code": 401, "message": "Unauthorized"}})


def test_api_keys_are_unknown_before_version_9() -> None:
    with Controller(version="8.6.9") as controller, Caller(controller) as caller:
        assert caller.v2("GET").status_code == 401


def test_a_self_hosted_application_knows_no_api_keys_whatever_its_version() -> None:
    with Controller(flavour=Flavour.CLASSIC) as controller, Caller(controller) as caller:
        answer = caller.v2("GET")

        assert (answer.status_code, answer.json()["meta"]["msg"]) == (401, "api.err.UserNotAuthenticated")


@pytest.mark.parametrize("flavour", Flavour)
def test_a_login_permits_reading_and_with_the_csrf_token_writing(flavour: Flavour) -> None:
    with Controller(flavour=flavour) as controller, Caller(controller, {}) as caller:
        assert log_in(caller).status_code == 200

        assert {cookie.name for cookie in caller.session.cookies} == COOKIE_NAMES[flavour]
        assert caller.v2("GET").json() == []
        assert caller.v2("POST", content=a_record()).status_code == 200
        del caller.session.headers["X-CSRF-Token"]
        assert caller.v2("GET").status_code == 200
        assert caller.v2("POST", content=a_record(value="192.0.2.11")).status_code == 403
        assert controller.sessions.logins == 1


def test_the_csrf_token_rotates_and_old_ones_expire(controller: Controller) -> None:
    with Caller(controller, {}) as caller:
        log_in(caller)
        first = caller.session.headers["X-CSRF-Token"]
        for number in range(20):
            answer = caller.v2("POST", content=a_record(value=f"192.0.2.{number}"))
            assert answer.status_code == 200
            caller.session.headers["X-CSRF-Token"] = answer.headers["X-Updated-CSRF-Token"]

        caller.session.headers["X-CSRF-Token"] = first
        answer = caller.v2("POST", content=a_record(value="192.0.2.99"))

        assert (answer.status_code, answer.json()["code"]) == (403, "api.err.InvalidCsrf")


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize(
    ("expired_answer", "status"),
    [
        (ExpiredAnswer.UNAUTHORIZED, 401),
        (ExpiredAnswer.INVALID_CSRF, 403),
        (ExpiredAnswer.OBJECT, 200),
        (ExpiredAnswer.REDIRECT, 302),
        (ExpiredAnswer.PAGE, 200),
    ],
)
def test_an_expired_session_is_answered_in_one_of_five_ways(
    flavour: Flavour, expired_answer: ExpiredAnswer, status: int
) -> None:
    with Controller(flavour=flavour) as controller, Caller(controller, {}) as caller:
        controller.quirks.expired_answer = expired_answer
        log_in(caller)
        controller.expire_sessions()

        answer = caller.v2("GET")

        assert answer.status_code == status
        if expired_answer in (ExpiredAnswer.REDIRECT, ExpiredAnswer.PAGE):
            assert not answer.content.startswith((b"[", b"{"))
        else:
            assert isinstance(answer.json(), dict)
        assert log_in(caller).status_code == 200
        assert caller.v2("GET").json() == []


def test_a_session_ends_after_a_number_of_requests(controller: Controller) -> None:
    controller.sessions.max_requests = 2
    with Caller(controller, {}) as caller:
        log_in(caller)

        assert [caller.v2("GET").status_code for _ in range(3)] == [200, 200, 401]


def test_a_session_ends_after_two_hours() -> None:
    clock = Clock()
    with Controller(clock=clock) as controller, Caller(controller, {}) as caller:
        log_in(caller)
        clock.now_s += 7199
        before = caller.v2("GET").status_code
        clock.now_s += 1

        assert (before, caller.v2("GET").status_code) == (200, 401)


@pytest.mark.parametrize("flavour", Flavour)
def test_a_wrong_password_is_403(flavour: Flavour) -> None:
    with Controller(flavour=flavour) as controller, Caller(controller, {}) as caller:
        answer = log_in(caller, "wrong")

        assert (answer.status_code, answer.json()["code"]) == (403, "AUTHENTICATION_FAILED_INVALID_CREDENTIALS")
        assert controller.sessions.refused_logins == 1


def test_the_sixth_login_within_a_minute_is_429() -> None:
    clock = Clock()
    with Controller(clock=clock) as controller, Caller(controller, {}) as caller:
        assert [log_in(caller).status_code for _ in range(5)] == [200] * 5

        sixth = log_in(caller)
        clock.now_s += 60
        later = log_in(caller)

        assert (sixth.status_code, sixth.json()["code"]) == (429, "AUTHENTICATION_FAILED_LIMIT_REACHED")
        assert later.status_code == 200


def test_the_login_path_of_the_other_flavour_is_a_html_page(controller: Controller) -> None:
    with Caller(controller, {}) as caller:
        answer = caller.call("POST", controller.url + "/api/login", {})

    assert (answer.status_code, answer.headers["Content-Type"].split(";")[0]) == (404, "text/html")
