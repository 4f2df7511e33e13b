"""Login sessions over real HTTP: renewal, CSRF rotation, and what happens when the controller refuses."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace
from urllib3 import HTTPHeaderDict

from daemonkit.logformat import describe_error
from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import CredentialsRefused, StoreError, StoreUnreachable
from dnswebhook.model import RecordSpec
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi import transport as transports
from dnswebhook.stores.unifi.address import Flavour, v2_path
from dnswebhook.stores.unifi.client import Client
from dnswebhook.stores.unifi.credentials import FIRST_LOGIN_PAUSE_S, MAX_LOGIN_PAUSE_S, SessionCredentials
from dnswebhook.stores.unifi.retry import RetryPolicy
from dnswebhook.stores.unifi.settings import UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore
from dnswebhook.stores.unifi.transport import Transport
from tests.dnswebhook.stores.unifi.conftest import OpenStore
from tests.support.controller import Controller, ExpiredAnswer, Reply, Reset, Slow
from tests.support.controller.faults import html_page

SPEC = RecordSpec("app.example.com", "A", "192.0.2.10", 300)
SECOND_FACTOR = (
    '{"meta":{"rc":"error","msg":"api.err.Ubic2faTokenRequired"},'
    '"data":[{"mfa_cookie":"half-a-login","authenticators":[{"type":"email","email":"admin@example.com"}]}]}'
)
WITHOUT_A_MESSAGE = '{"meta":{"rc":"error"},"data":[{"mfa_cookie":"half-a-login"}]}'
OTHER = RecordSpec("app.example.com", "A", "192.0.2.11", 300)
HINTS = (replies.HINT_FLAVOUR, replies.HINT_KEY, replies.HINT_SITE)
UNAUTHORIZED = transports.Reply(transports.Request("POST", "/"), 401, "application/json", HTTPHeaderDict(), b"{}")


@pytest.fixture(params=["unifi-os", "classic"])
def controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    with Controller(flavour=request.param, version="9.0.108") as controller:
        yield controller


@pytest.fixture
def store(controller: Controller, open_store: OpenStore) -> UnifiStore:
    return open_store(controller, user=controller.username, password=Secret(controller.password))


def test_one_login_serves_many_calls(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    for number in range(5):
        store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), deadline)
        store.list_records(deadline)

    assert controller.sessions.logins == 1
    assert len(controller.rows()) == 5


@pytest.mark.parametrize("answer", list(ExpiredAnswer))
@pytest.mark.parametrize("operation", ["list", "create", "update", "delete"])
def test_an_expired_session_is_renewed_and_the_call_repeated_whole(
    store: UnifiStore, controller: Controller, deadline: Deadline, answer: ExpiredAnswer, operation: str
) -> None:
    record = store.create(SPEC, deadline)
    controller.quirks.expired_answer = answer
    controller.expire_sessions()
    wanted = {"list": [SPEC.value], "create": [SPEC.value, OTHER.value], "update": [OTHER.value], "delete": []}
    match operation:
        case "list":
            store.list_records(deadline)
        case "create":
            store.create(OTHER, deadline)
        case "update":
            store.update(record, OTHER, deadline)
        case "delete":
            store.delete(record, deadline)

    assert [row.value for row in controller.rows()] == wanted[operation]
    assert controller.sessions.logins == 2


@pytest.mark.parametrize("operation", ["list", "create", "update", "delete"])
@pytest.mark.parametrize(
    "body",
    [
        '{"data":[],"meta":{"msg":"api.err.LoginRequired","rc":"error"}}',
        '{ "data" : [ ] , "meta" : { "msg" : "api.err.LoginRequired" , "rc" : "error"}}',
        '{ "meta" : { "rc" : "error" , "msg" : "api.err.LoginRequired"} , "data" : [ ]}',
    ],
    ids=["data first", "data first with spaces", "with spaces"],
)
def test_a_session_is_renewed_however_the_error_inside_a_success_is_spelled(
    store: UnifiStore, controller: Controller, deadline: Deadline, body: str, operation: str
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(Reply(status=200, body=body), on=operation, count=1)
    match operation:
        case "list":
            store.list_records(deadline)
        case "create":
            store.create(OTHER, deadline)
        case "update":
            store.update(record, OTHER, deadline)
        case "delete":
            store.delete(record, deadline)

    assert controller.sessions.logins == 2


@pytest.mark.parametrize("answer", [answer for answer in ExpiredAnswer if answer is not ExpiredAnswer.OBJECT])
def test_an_expired_session_is_renewed_although_each_refusal_sets_another_token_and_cookie(
    store: UnifiStore, controller: Controller, deadline: Deadline, answer: ExpiredAnswer
) -> None:
    record = store.create(SPEC, deadline)
    controller.quirks.expired_answer = answer
    controller.quirks.welcomes_strangers = True
    controller.expire_sessions()
    store.update(record, OTHER, deadline)

    assert [row.value for row in controller.rows()] == [OTHER.value]
    assert controller.sessions.logins == 2


def test_parallel_calls_renew_a_session_although_each_refusal_sets_another_token_and_cookie(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    store.list_records(deadline)
    controller.quirks.welcomes_strangers = True
    controller.expire_sessions()
    specs = [RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(20)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda spec: store.create(spec, deadline), specs))

    assert len(controller.rows()) == 20
    assert controller.sessions.logins == 2


def test_a_csrf_token_that_is_only_in_the_cookie_is_found_there(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.quirks.tells_csrf_token = False
    controller.sessions.rotates_csrf = False
    store.create(SPEC, deadline)

    assert [row.value for row in controller.rows()] == [SPEC.value]
    assert controller.sessions.logins == 1


def test_each_session_that_ends_during_parallel_writes_costs_one_login(
    store: UnifiStore, controller: Controller
) -> None:
    controller.sessions.max_requests = 30
    specs = [RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(80)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda spec: store.create(spec, Deadline.after(20)), specs))

    assert len(controller.rows()) == 80
    assert controller.sessions.logins == 3


@contextmanager
def session_at(controller: Controller) -> Iterator[SessionCredentials]:
    settings = settings_for(controller)
    transport = Transport(settings)
    session = SessionCredentials(settings.user, settings.password, flavour_of(controller), transport, lambda *_: None)
    with closing(transport):
        yield session


def settings_for(controller: Controller) -> UnifiSettings:
    return UnifiSettings(base_url=controller.url, user=controller.username, password=Secret(controller.password))


def flavour_of(controller: Controller) -> Flavour:
    return Flavour.OS if controller.flavour == "unifi-os" else Flavour.CLASSIC


def reply_with(name: str, value: str) -> transports.Reply:
    headers = HTTPHeaderDict({name: value})
    return transports.Reply(transports.Request("GET", "/"), 200, "application/json", headers, b"[]")


def test_a_reply_that_is_processed_late_does_not_restore_an_older_token(
    controller: Controller, deadline: Deadline
) -> None:
    """It would be refused for all parallel writers, and cost a login."""
    with session_at(controller) as session:
        early, late = session.ticket(deadline), session.ticket(deadline)
        session.learn(late, reply_with("X-Updated-CSRF-Token", "second"))
        session.learn(early, reply_with("X-Updated-CSRF-Token", "first"))

        assert session.ticket(deadline).headers["X-CSRF-Token"] == "second"
        assert session.is_outdated(early)


def test_a_reply_to_an_ended_session_does_not_change_the_next_one(controller: Controller, deadline: Deadline) -> None:
    """With the token and the cookie of the ended one, all calls would be refused, as if the new session were bad."""
    with session_at(controller) as session:
        early, late = session.ticket(deadline), session.ticket(deadline)
        session.learn(early, reply_with("Set-Cookie", "visit=x"))
        assert session.renew(early, UNAUTHORIZED, deadline)
        renewed = session.ticket(deadline).headers

        session.learn(late, reply_with("X-Updated-CSRF-Token", "of-the-ended-one"))
        session.learn(late, reply_with("Set-Cookie", f"{renewed['Cookie'].partition('=')[0]}=of-the-ended-one"))

        assert session.ticket(deadline).headers == renewed


def test_replies_that_each_set_another_cookie_do_not_make_requests_grow(
    controller: Controller, deadline: Deadline
) -> None:
    with session_at(controller) as session:
        login = session.ticket(deadline).headers["Cookie"]
        name = login.partition("=")[0]
        for number in range(1000):
            session.learn(session.ticket(deadline), reply_with("Set-Cookie", f"visit{number}=x"))
        session.learn(session.ticket(deadline), reply_with("Set-Cookie", f"{name}=renewed"))

        cookies = session.ticket(deadline).headers["Cookie"]
        assert len(cookies) < len(login) + 1000
        assert cookies.startswith(f"{name}=renewed; ")


def test_a_session_that_another_call_has_renewed_meanwhile_costs_no_second_login(
    controller: Controller, deadline: Deadline
) -> None:
    with session_at(controller) as session:
        one, other = session.ticket(deadline), session.ticket(deadline)
        session.learn(one, transports.Reply(transports.Request("GET", "/"), 200, "", HTTPHeaderDict(), b"[]"))

        assert session.renew(one, UNAUTHORIZED, deadline) is True
        assert session.renew(other, UNAUTHORIZED, deadline) is False

    assert controller.sessions.logins == 2


def test_a_refused_session_is_not_restored_by_a_reply_that_is_processed_at_that_moment(
    controller: Controller, deadline: Deadline
) -> None:
    """The next call would be sent with it, and its refusal would double the pause."""
    is_learning, has_been_refused = threading.Event(), threading.Event()

    class SlowlyRead(transports.Reply, frozen=True):
        @property
        def cookies(self) -> dict[str, str]:
            is_learning.set()
            has_been_refused.wait(0.5)
            return {}

    headers = HTTPHeaderDict({"X-Updated-CSRF-Token": "second"})
    reply = SlowlyRead(transports.Request("POST", "/"), 404, "application/json", headers, b"{}")
    with session_at(controller) as session, ThreadPoolExecutor(1) as pool:
        one, other = session.ticket(deadline), session.ticket(deadline)
        learning = pool.submit(session.learn, one, reply)
        assert is_learning.wait(10.0)
        with pytest.raises(CredentialsRefused, match="just opened"):
            session.renew(other, UNAUTHORIZED, deadline)
        has_been_refused.set()
        learning.result(10.0)

        with pytest.raises(CredentialsRefused, match="not logged in"):
            session.ticket(deadline)


def test_a_refused_login_is_not_repeated_soon(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    outcomes: list[tuple[str, str]] = []
    wrong = Secret("hunter2")
    store = open_store(
        controller, lambda operation, outcome, _: outcomes.append((operation, outcome)), user="dns", password=wrong
    )
    for _ in range(10):
        with pytest.raises(CredentialsRefused, match="next login attempt at 20") as refusal:
            store.list_records(deadline)
        assert "hunter2" not in str(refusal.value)
        assert str(refusal.value).endswith("restart dnswebhook after changing it")

    assert controller.sessions.refused_logins == 1
    assert ("login", "credentials") in outcomes


def test_pauses_between_refused_logins_double_up_to_ten_minutes(controller: Controller, deadline: Deadline) -> None:
    settings = UnifiSettings(base_url=controller.url, user="dns", password=Secret("wrong"))
    flavour = flavour_of(controller)
    now = [1000.0]
    transport = Transport(settings)
    session = SessionCredentials("dns", Secret("wrong"), flavour, transport, lambda *_: None, lambda: now[0])
    attempts_at: list[float] = []
    while len(attempts_at) < 9:
        refused_before = controller.sessions.refused_logins
        with pytest.raises(CredentialsRefused):
            session.ticket(deadline)
        if controller.sessions.refused_logins > refused_before:
            attempts_at.append(now[0])
        now[0] += 5
    transport.close()

    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts_at)]
    assert pauses == [15, 30, 60, 120, 240, 480, 600, 600]


def test_a_session_that_has_worked_begins_the_pauses_anew(controller: Controller, deadline: Deadline) -> None:
    settings = settings_for(controller)
    refusal = Reply(status=401, body='{"code":"AUTHENTICATION_FAILED_INVALID_CREDENTIALS"}')
    now = [1000.0]
    with closing(Transport(settings)) as transport:
        session = SessionCredentials(
            settings.user, settings.password, flavour_of(controller), transport, lambda *_: None, lambda: now[0]
        )
        controller.fault(refusal, on="login", count=3)
        for _ in range(3):
            with pytest.raises(CredentialsRefused, match="INVALID_CREDENTIALS"):
                session.ticket(deadline)
            now[0] += MAX_LOGIN_PAUSE_S
        ticket = session.ticket(deadline)
        session.learn(ticket, reply_with("X-Nothing", "new"))
        controller.fault(refusal, on="login", count=1)
        with pytest.raises(CredentialsRefused, match="INVALID_CREDENTIALS"):
            session.renew(ticket, UNAUTHORIZED, deadline)
        now[0] += FIRST_LOGIN_PAUSE_S

        assert session.renew(ticket, UNAUTHORIZED, deadline)


def test_the_login_limiter_counts_as_refused_credentials(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    body = '{"code":"AUTHENTICATION_FAILED_LIMIT_REACHED","message":"You have reached the login attempt limit"}'
    controller.fault(Reply(status=429, body=body), on="login")
    for _ in range(3):  # each says why, and what to do: external-dns shows none of it, and the first may be long ago
        with pytest.raises(CredentialsRefused, match=r"LIMIT_REACHED.* next login attempt at .* do not restart"):
            store.list_records(deadline)

    assert controller.calls.count("login", api="session", status=429) == 1


def test_the_pause_that_the_login_limiter_asks_for_is_kept(controller: Controller, deadline: Deadline) -> None:
    """A login within it begins the limiter's own pause anew."""
    settings = settings_for(controller)
    now = [1000.0]
    controller.fault(Reply(status=429, headers=(("Retry-After", "300"),)), on="login", count=1)
    with closing(Transport(settings)) as transport:
        session = SessionCredentials(
            settings.user, settings.password, flavour_of(controller), transport, lambda *_: None, lambda: now[0]
        )
        for _ in range(3):
            with pytest.raises(CredentialsRefused, match="too many logins"):
                session.ticket(deadline)
            now[0] += 99.0
        now[0] += 3.0

        assert session.ticket(deadline)
    assert controller.calls.count("login", api="session", status=429) == 1


def test_the_error_of_a_user_without_write_permission_quotes_the_controller_and_names_the_role(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.fault(Reply(status=403, body='{"error":{"code":403,"message":"Forbidden"}}'), on="create")
    with pytest.raises(CredentialsRefused, match=r"answered 403 .*Forbidden"):
        store.create(SPEC, deadline)
    for _ in range(2):  # from here on no session has ever worked
        with pytest.raises(CredentialsRefused, match=r"answered 403 .*Forbidden.* make UNIFI_USER an administrator"):
            store.create(SPEC, deadline)


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("has_worked", [False, True])
def test_a_site_that_the_controller_does_not_know_costs_no_logins(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int, has_worked: bool
) -> None:
    if has_worked:
        store.list_records(deadline)
    body = '{"meta":{"rc":"error","msg":"api.err.NoSiteContext"},"data":[]}'
    controller.fault(Reply(status=status, body=body), on="list")
    for _ in range(4):
        with pytest.raises(StoreUnreachable, match="check UNIFI_SITE"):
            store.list_records(deadline)

    assert controller.sessions.logins == (2 if has_worked else 1)  # the first session may have expired


@pytest.mark.parametrize("status", [200, 401])
def test_a_reply_about_the_site_to_the_ended_session_is_not_believed_because_another_thread_has_just_logged_in(
    controller: Controller, deadline: Deadline, status: int
) -> None:
    meanwhile: list[Callable[[], object]] = []

    class Overtaken(Transport):
        """What happens `meanwhile` precedes the arrival of the next reply."""

        def exchange(
            self, request: transports.Request, headers: Mapping[str, str], deadline: Deadline
        ) -> transports.Reply:
            reply = super().exchange(request, headers, deadline)
            while meanwhile:
                meanwhile.pop()()
            return reply

    with session_at(controller) as session, closing(Overtaken(settings_for(controller))) as transport:
        client = Client(transport, session, RetryPolicy(lambda: None))
        listing = transports.Request("GET", v2_path(flavour_of(controller), "default"), wants_array=True)
        client.call(listing, deadline)
        old = session.ticket(deadline)
        body = '{"meta":{"rc":"error","msg":"api.err.NoSiteContext"},"data":[]}'
        controller.fault(Reply(status=status, body=body), on="list", count=1)
        meanwhile.append(lambda: session.renew(old, UNAUTHORIZED, deadline))

        assert client.call(listing, deadline).body == b"[]"

    assert controller.sessions.logins == 2


@pytest.mark.parametrize("code", ["api.err.LoginRequired", "api.err.NoSiteContext"])
def test_a_login_path_that_the_controller_does_not_know_is_not_reported_as_wrong_password(
    store: UnifiStore, controller: Controller, deadline: Deadline, code: str
) -> None:
    body = '{"meta":{"rc":"error","msg":"' + code + '"},"data":[]}'
    controller.fault(Reply(status=401, body=body), on="login")
    for _ in range(2):
        with pytest.raises(CredentialsRefused, match=f"{code}.*check UNIFI_HOST and UNIFI_FLAVOUR") as refusal:
            store.list_records(deadline)
        assert "password" not in str(refusal.value)


INSTEAD_OF_THE_APPLICATION = [html_page(), Reply(status=302, headers=(("Location", "/login"),))]


@pytest.mark.parametrize("page", INSTEAD_OF_THE_APPLICATION, ids=["page", "redirect"])
def test_a_console_that_logs_in_before_its_application_runs_costs_one_login_and_no_pause(
    store: UnifiStore, controller: Controller, deadline: Deadline, page: Reply
) -> None:
    store.list_records(deadline)
    starting = controller.fault(page, on="list")
    for _ in range(4):
        with pytest.raises(StoreUnreachable, match=r"want JSON|a redirect"):
            store.list_records(deadline)
    controller.faults.remove(starting)

    assert store.list_records(deadline).records == ()
    assert controller.sessions.logins == 2


@pytest.mark.parametrize("page", INSTEAD_OF_THE_APPLICATION, ids=["page", "redirect"])
def test_a_page_in_place_of_a_login_is_no_refusal(
    store: UnifiStore, controller: Controller, deadline: Deadline, page: Reply
) -> None:
    store.list_records(deadline)
    controller.expire_sessions()
    starting = controller.fault(page)
    for _ in range(2):
        with pytest.raises(StoreUnreachable, match=r"POST /api/\S*login answered"):
            store.list_records(deadline)
    controller.faults.remove(starting)

    assert store.list_records(deadline).records == ()


def test_a_page_in_place_of_a_login_is_no_session_although_it_sets_a_cookie(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    visitors = (("Set-Cookie", "unifises=visitor; Path=/"), ("Set-Cookie", "TOKEN=visitor; Path=/"))
    starting = controller.fault(replace(html_page(), headers=visitors), on="login")
    with pytest.raises(StoreUnreachable, match=r"POST /api/\S*login answered"):
        store.list_records(deadline)
    controller.faults.remove(starting)

    assert store.list_records(deadline).records == ()


@pytest.mark.parametrize("page", INSTEAD_OF_THE_APPLICATION, ids=["page", "redirect"])
def test_a_call_that_is_always_answered_with_a_page_costs_one_login_although_others_succeed(
    store: UnifiStore, controller: Controller, deadline: Deadline, page: Reply
) -> None:
    """The console counts logins, and refuses more after a few in a minute."""
    controller.fault(page, on="create")
    for _ in range(4):
        assert store.list_records(deadline).records == ()
        with pytest.raises(StoreUnreachable, match=r"want JSON|a redirect"):
            store.create(SPEC, deadline)

    assert controller.sessions.logins == 2


def test_a_session_in_which_there_were_only_pages_is_renewed_after_a_while_without_a_pause(
    controller: Controller, deadline: Deadline
) -> None:
    """It may have been lost before its first call reached the application. Nobody has refused it."""
    settings = settings_for(controller)
    page = transports.Reply(transports.Request("GET", "/"), 302, "", HTTPHeaderDict({"Location": "/login"}), b"")
    now = [1000.0]
    with closing(Transport(settings)) as transport:
        session = SessionCredentials(
            settings.user, settings.password, flavour_of(controller), transport, lambda *_: None, lambda: now[0]
        )
        for _ in range(3):
            ticket = session.ticket(deadline)
            session.learn(ticket, page)
            assert not session.is_expired(ticket, page)
            now[0] += MAX_LOGIN_PAUSE_S
            session.learn(ticket, page)
            assert session.is_expired(ticket, page)
            assert session.renew(ticket, page, deadline)

    assert controller.sessions.logins == 4


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=499, body='{"code":"MFA_AUTH_REQUIRED","data":{"mfaCookie":"half-a-login"}}'),
        Reply(status=400, body=SECOND_FACTOR),
        Reply(status=200, body=SECOND_FACTOR),
    ],
    ids=["console", "self-hosted application", "self-hosted application with status 200"],
)
def test_a_second_factor_is_explained_and_not_asked_for_again_soon(
    store: UnifiStore, controller: Controller, deadline: Deadline, reply: Reply
) -> None:
    """Each attempt sends its owner another mail, or another question to the phone."""
    controller.fault(reply, on="login")

    for _ in range(3):
        with pytest.raises(CredentialsRefused, match="local account without") as refusal:
            store.list_records(deadline)
        assert "half-a-login" not in str(refusal.value)
    assert controller.calls.count(operation="login") == 1


@pytest.mark.parametrize("status", [200, 400, 401, 403])
def test_a_login_is_refused_by_its_error_whatever_the_status(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int
) -> None:
    body = '{"meta":{"rc":"error","msg":"api.err.Invalid"},"data":[]}'
    controller.fault(Reply(status=status, body=body), on="login")

    for _ in range(3):
        with pytest.raises(CredentialsRefused, match=r"api\.err\.Invalid"):
            store.list_records(deadline)
    assert controller.calls.count(operation="login") == 1


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply(status=status, body=WITHOUT_A_MESSAGE) for status in (200, 400, 401, 403)),
        Reply(status=200, body=WITHOUT_A_MESSAGE, content_type="text/plain"),
    ],
    ids=lambda reply: f"{reply.status} {reply.content_type}",
)
def test_the_data_that_comes_with_a_refused_login_is_not_quoted(
    store: UnifiStore, controller: Controller, deadline: Deadline, reply: Reply
) -> None:
    controller.fault(reply, on="login")

    for _ in range(2):
        with pytest.raises(CredentialsRefused, match="error without a message") as refusal:
            store.list_records(deadline)
        assert "half-a-login" not in str(refusal.value)
    assert controller.calls.count(operation="login") == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", ["", "<h1>Forbidden</h1>"])
def test_a_login_is_refused_by_its_status_whatever_the_body(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int, body: str
) -> None:
    """A server in front of the application may answer; whether the account is locked by these is not known."""
    controller.fault(Reply(status=status, body=body, content_type="text/html" if body else ""), on="login")

    for _ in range(3):
        said = f"UNIFI_USER refused with {status}: {body or 'empty body'}; .*, or a console that restarts"
        with pytest.raises(CredentialsRefused, match=said):
            store.list_records(deadline)
    assert controller.calls.count(operation="login") == 1


def test_a_login_that_fails_in_a_restart_is_retried_at_the_next_call(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.fault(Reset(), on="login", count=1)
    with pytest.raises(StoreUnreachable):
        store.list_records(deadline)

    assert store.list_records(deadline).records == ()


def test_a_login_may_take_longer_than_other_calls(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    """Given up and begun anew, it would never end, and the console counts how many there are in a minute."""
    controller.fault(Slow(delay_s=3.0), on="login")
    store = open_store(
        controller,
        api="v2",
        flavour=flavour_of(controller),
        user=controller.username,
        password=Secret(controller.password),
        request_timeout_s=2.0,
    )

    assert store.list_records(deadline).records == ()
    assert controller.sessions.logins == 1


def test_fresh_sessions_that_are_always_refused_do_not_lock_the_account(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.fault(Reply(status=401, body='{"error":{"code":401,"message":"Unauthorized"}}'), on="list")
    for _ in range(10):
        with pytest.raises(CredentialsRefused):
            store.list_records(deadline)

    assert controller.sessions.logins <= 2


@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 422, 429, 500])
@pytest.mark.parametrize(
    "shape", ['{"code":"api.err.Odd","message":"seen %s"}', '{"meta":{"rc":"error","msg":"%s"}}', "%s"]
)
def test_a_login_that_is_refused_with_its_own_password_does_not_show_it(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int, shape: str
) -> None:
    controller.fault(Reply(status=status, body=shape % controller.password), on="login")

    with pytest.raises(StoreError) as raised:
        store.list_records(deadline)

    assert controller.password not in describe_error(raised.value)


@pytest.mark.parametrize("password", ["api", "error", "meta", "msg", "site"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, '{"meta":{"rc":"error","msg":"api.err.LoginRequired"},"data":[]}'),
        (200, '{"meta":{"rc":"error","msg":"api.err.Invalid"},"data":[]}'),
        (401, '{"meta":{"rc":"error","msg":"api.err.LoginRequired"},"data":[]}'),
        (401, '{"code":"odd","message":"site does not exist"}'),
    ],
)
def test_a_password_that_is_a_word_of_the_answer_does_not_change_what_a_refused_login_means(
    controller: Controller, open_store: OpenStore, deadline: Deadline, password: str, status: int, body: str
) -> None:
    seen = []
    for each in (password, "quite another"):
        store = open_store(controller, user=controller.username, password=Secret(each))
        controller.fault(Reply(status=status, body=body), on="login")
        with pytest.raises(StoreError) as raised:
            store.list_records(deadline)
        seen.append((type(raised.value), [hint for hint in HINTS if hint in str(raised.value)]))

    assert seen[0] == seen[1]


def test_a_refused_login_does_not_show_the_password_however_the_answer_escapes_it(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    password = "pass/word&7"
    store = open_store(controller, user=controller.username, password=Secret(password))
    controller.fault(Reply(status=400, body=r'{"code":"odd","message":"seen \u0070ass\/word\u00267"}'), on="login")

    with pytest.raises(CredentialsRefused, match="seen <redacted>") as raised:
        store.list_records(deadline)

    assert password not in describe_error(raised.value)
