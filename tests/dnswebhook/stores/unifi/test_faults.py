"""Each fault of a real controller over real HTTP: which error it becomes, and what the controller holds afterwards."""

import email.utils
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from daemonkit.logformat import FIELDS_ATTRIBUTE, describe_error
from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import (
    AlreadyExists,
    CredentialsRefused,
    NotFound,
    RateLimited,
    RecordError,
    StoreError,
    StoreTimeout,
    StoreUnreachable,
)
from dnswebhook.model import RecordSpec
from dnswebhook.stores.unifi import integrationrows, v2rows
from dnswebhook.stores.unifi.integration import IntegrationStore
from dnswebhook.stores.unifi.store import UnifiStore
from tests.dnswebhook.stores.unifi.conftest import OpenStore
from tests.support.controller import Controller, Hang, Huge, Reply, Reset, Slow, Truncate, faults

SPEC = RecordSpec("app.example.com", "A", "192.0.2.10", 300)
OTHER = RecordSpec("app.example.com", "A", "192.0.2.11", 300)


def calls(controller: Controller, operation: str) -> int:
    """Includes abandoned calls: a call is counted when it ends."""
    controller.calls.wait_until_idle()
    return sum(count for (_, called, _), count in controller.calls.calls.items() if called == operation)


# Repetition


@pytest.mark.parametrize("effect", [Reply(status=500), faults.bad_gateway(), Reset(), Truncate()], ids=repr)
def test_a_listing_survives_a_passing_fault(
    store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect
) -> None:
    store.create(SPEC, deadline)
    controller.fault(effect, on="list", count=2)

    assert [record.spec for record in store.list_records(deadline).records] == [SPEC]


@pytest.mark.parametrize(
    "effect", [Reply(status=500), faults.bad_gateway(), Reset(), Reset(after_commit=True)], ids=repr
)
def test_an_update_survives_a_passing_fault(
    store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(effect, on="update", count=1)
    store.update(record, OTHER, deadline)

    assert [row.value for row in controller.rows()] == [OTHER.value]


def test_an_update_needs_no_row_in_its_answer(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(Reply(status=200, body=" \n"), on="update", count=1)

    assert store.update(record, OTHER, deadline).spec == OTHER


def test_an_update_answered_with_something_other_than_a_row_is_an_error(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(faults.garbage(), on="update")

    with pytest.raises(StoreUnreachable):
        store.update(record, OTHER, deadline)


@pytest.mark.parametrize(
    "effect",
    [faults.html_page(), faults.garbage(), Reply(status=200, body="signing in", content_type="text/plain")],
    ids=repr,
)
def test_a_delete_answered_with_something_other_than_its_row_is_an_error(
    store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect
) -> None:
    """A starting console answers everything with its page; the ownership record would be removed, and its row stay."""
    record = store.create(SPEC, deadline)
    controller.fault(effect, on="delete")

    with pytest.raises(StoreUnreachable):
        store.delete(record, deadline)
    assert len(controller.rows()) == 1


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_404_of_the_console_in_front_of_the_application_does_not_count_as_row_not_found(
    store: UnifiStore, controller: Controller, deadline: Deadline, operation: str
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(Reply(status=404, body='{"error":{"code":404,"message":"Not Found"}}'), on=operation)

    with pytest.raises(StoreUnreachable, match=r"404.*Not Found"):
        store.update(record, OTHER, deadline) if operation == "update" else store.delete(record, deadline)
    assert [row.value for row in controller.rows()] == [SPEC.value]


@pytest.mark.parametrize(("status", "body"), [(204, ""), (200, " \n"), (200, "{}")])
def test_a_delete_needs_no_row_in_its_answer(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int, body: str
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(Reply(status=status, body=body, after_commit=True), on="delete", count=1)

    store.delete(record, deadline)

    assert controller.rows() == []


def test_a_delete_that_was_carried_out_before_the_reset_is_found_gone(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    record = store.create(SPEC, deadline)
    controller.fault(Reset(after_commit=True), on="delete", count=1)

    with pytest.raises(NotFound):
        store.delete(record, deadline)
    assert controller.rows() == []


def test_a_lasting_502_page_is_unreachable_and_quoted(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.fault(faults.bad_gateway())

    with pytest.raises(StoreUnreachable, match=r"GET /proxy/network/.* 502 text/html: .*Bad Gateway.*restarting"):
        store.list_records(deadline)


# Creates whose outcome is unclear


@pytest.mark.parametrize(
    "effect",
    [
        Reset(after_commit=True),
        Truncate(),
        Hang(after_commit=True),
        faults.bad_gateway(after_commit=True),
        Reply(status=200, after_commit=True),
        Reply(status=200, body="{}", after_commit=True),
        Reply(status=201, body="<html>", content_type="text/html", after_commit=True),
    ],
    ids=repr,
)
def test_a_create_that_was_carried_out_is_found_by_listing(
    hasty_store: UnifiStore,
    controller: Controller,
    deadline: Deadline,
    effect: faults.Effect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    controller.fault(effect, on="create", count=1)
    record = hasty_store.create(SPEC, deadline)

    assert record.spec == SPEC
    assert record in hasty_store.list_records(deadline).records
    assert calls(controller, "create") == 1
    (line,) = [entry for entry in caplog.records if entry.message == "create confirmed by listing"]
    _, fields, _ = getattr(line, FIELDS_ATTRIBUTE)
    assert fields == {"name": SPEC.name, "type": SPEC.type}


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        (Reset(), StoreUnreachable),
        (faults.bad_gateway(), StoreUnreachable),
        (faults.garbage(), StoreUnreachable),
        (Reply(status=500), StoreUnreachable),
        (Hang(), StoreTimeout),
    ],
    ids=repr,
)
def test_a_create_that_was_not_carried_out_is_never_repeated(
    hasty_store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect, error: type[Exception]
) -> None:
    controller.fault(effect, on="create", count=1)

    with pytest.raises(error):
        hasty_store.create(SPEC, deadline)
    assert calls(controller, "create") == 1
    assert controller.rows() == []


@pytest.mark.parametrize(
    ("effect", "is_pending"),
    [
        (Hang(), True),
        (Reset(), True),
        (Reply(status=504), True),  # the proxy in front of the application has given up waiting for it
        (faults.bad_gateway(), False),
    ],
    ids=repr,
)
def test_an_unanswered_create_may_still_be_carried_out(
    hasty_store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect, is_pending: bool
) -> None:
    controller.fault(effect, on="create", count=1)

    with pytest.raises(StoreError) as failure:
        hasty_store.create(SPEC, deadline)
    assert failure.value.is_pending == is_pending


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_create_answered_with_another_row_is_not_taken_for_that_row(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str, is_stored: bool
) -> None:
    """Undoing the create would remove that row."""
    theirs = store.create(OTHER, deadline)
    rows = v2rows if api == "v2" else integrationrows
    answer = {**msgspec.json.decode(rows.body_of(OTHER)), "_id": theirs.id, "id": theirs.id}
    controller.fault(
        Reply(status=200, body=msgspec.json.encode(answer).decode(), after_commit=is_stored), on="create", count=1
    )

    if is_stored:
        record = store.create(SPEC, deadline)
        assert record.spec == SPEC
        assert record.id != theirs.id
    else:
        with pytest.raises(StoreUnreachable, match="want the row that was sent"):
            store.create(SPEC, deadline)


def test_an_unclear_create_beside_a_disabled_twin_exists_already(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    controller.add_row(SPEC.name, SPEC.type, SPEC.value, SPEC.ttl_s, enabled=False)
    controller.fault(Reset(), on="create", count=1)

    with pytest.raises(AlreadyExists, match="disabled"):
        store.create(SPEC, deadline)


@pytest.mark.parametrize("effect", [Reset(), faults.bad_gateway()], ids=["reset", "502"])
def test_an_unclear_create_while_listing_fails_too_keeps_its_own_error_and_may_yet_be_seen(
    store: UnifiStore, controller: Controller, deadline: Deadline, effect: Reset | Reply
) -> None:
    """Its ownership record must stay until a listing has shown whether the row is there."""
    store.list_records(deadline)
    controller.fault(effect, on="create")
    controller.fault(faults.bad_gateway(), on="list")

    with pytest.raises(StoreUnreachable, match="POST") as failure:
        store.create(SPEC, deadline)
    assert "listing failed too" in failure.value.__notes__[0]
    assert failure.value.is_pending


# Time


@pytest.mark.parametrize("effect", [Hang(), Slow(delay_s=30)], ids=repr)
def test_a_call_ends_at_its_deadline_whatever_the_controller_does(
    controller: Controller, open_store: OpenStore, api: str, effect: faults.Effect
) -> None:
    store = open_store(controller, api=api, request_timeout_s=60)
    store.list_records(Deadline.after(10))  # one-time requests take none of the time
    controller.fault(effect, on="list")
    began = time.monotonic()

    with pytest.raises(StoreTimeout, match=r"no complete answer within"):
        store.list_records(Deadline.after(0.6))
    assert time.monotonic() - began < 2


def test_a_call_without_time_left_is_not_sent(store: UnifiStore, controller: Controller) -> None:
    with pytest.raises(StoreTimeout):
        store.create(SPEC, Deadline.after(-1))
    assert calls(controller, "create") == 0


def test_a_stopping_process_repeats_nothing(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    store.list_records(deadline)
    controller.reset_findings()
    controller.fault(faults.bad_gateway(), on="list")
    stop = threading.Event()
    stop.set()

    with pytest.raises(StoreUnreachable):
        store.list_records(Deadline.after(10, stop))
    assert calls(controller, "list") == 1


# 429


@pytest.mark.parametrize("retry_after", ["0", ""])
def test_429_is_waited_out_for_every_method(
    controller: Controller, open_store: OpenStore, deadline: Deadline, api: str, retry_after: str
) -> None:
    hits: list[None] = []
    store = open_store(controller, api=api, on_rate_limited=lambda: hits.append(None))
    for operation in ("create", "update", "list", "delete"):
        controller.fault(faults.rate_limited(retry_after), on=operation, count=1)
    record = store.create(SPEC, deadline)
    store.update(record, OTHER, deadline)
    listed = store.list_records(deadline).records
    store.delete(listed[0], deadline)

    assert controller.rows() == []
    assert len(hits) == 4


@pytest.mark.parametrize("form", ["seconds", "HTTP date"])
def test_the_retry_after_of_a_429_is_respected(
    store: UnifiStore, controller: Controller, deadline: Deadline, form: str
) -> None:
    store.list_records(deadline)
    began = time.monotonic()
    # A date has no fractions: two seconds from now are at least one.
    retry_after = "1" if form == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
    controller.fault(faults.rate_limited(retry_after), on="create", count=1)
    store.create(SPEC, deadline)

    assert time.monotonic() - began > 0.9


@pytest.mark.parametrize("operation", ["create", "list"])
def test_429_beyond_the_deadline_is_raised_with_its_retry_after(
    store: UnifiStore, controller: Controller, deadline: Deadline, operation: str
) -> None:
    controller.fault(faults.rate_limited("300"), on=operation)

    with pytest.raises(RateLimited, match="429") as refusal:
        store.create(SPEC, deadline) if operation == "create" else store.list_records(deadline)
    assert refusal.value.retry_after_s == 300
    assert calls(controller, operation) == 1


def test_429_pauses_all_workers_of_the_store(store: UnifiStore, controller: Controller) -> None:
    store.list_records(Deadline.after(10))
    controller.fault(faults.rate_limited("300"), on="create", count=1)

    def refused(number: int) -> bool:
        try:
            store.create(RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1"), Deadline.after(5))
        except RateLimited:
            return True
        return False

    assert refused(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(refused, range(1, 50)))
    assert calls(controller, "create") == 1


# Refusals


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_says_what_to_check_and_hides_the_key(
    controller: Controller, open_store: OpenStore, deadline: Deadline, api: str, status: int
) -> None:
    store = open_store(controller, api=api, api_key=Secret("wrong-key-4711"), flavour="os")
    controller.fault(Reply(status=status, body=f'{{"error":{{"code":{status},"message":"Unauthorized"}}}}'))

    with pytest.raises(CredentialsRefused, match=f"{status}.*API key") as refusal:
        store.list_records(deadline)
    assert "4711" not in str(refusal.value)


@pytest.mark.parametrize("status", [400, 409, 422])
def test_an_unknown_refusal_is_an_error_of_one_record(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int
) -> None:
    body = '{"code":"api.err.Whatever","message":"no","details":{"invalid_fields":["ttl"]}}'
    controller.fault(Reply(status=status, body=body), on="create")

    with pytest.raises(RecordError, match=r"api.err.Whatever: no \(invalid fields: ttl\)") as refusal:
        store.create(SPEC, deadline)
    assert type(refusal.value) is RecordError


@pytest.mark.parametrize(
    "body",
    [
        '{"code":"api.err.StaticDnsRecordAlreadyExists","message":null,"details":{"invalid_fields":null}}',
        '{"code":"api.err.StaticDnsRecordAlreadyExists","message":["exists"],"details":"exists"}',
        '{"code":null,"meta":{"rc":"error","msg":"api.err.StaticDnsRecordAlreadyExists"},"error":[]}',
    ],
    ids=["null", "other shapes", "null code"],
)
def test_an_error_is_understood_although_a_member_of_it_is_null_or_of_another_shape(
    store: UnifiStore, controller: Controller, deadline: Deadline, body: str
) -> None:
    store.create(SPEC, deadline)
    controller.fault(Reply(status=400, body=body), on="create")

    with pytest.raises(AlreadyExists):
        store.create(SPEC, deadline)


def test_an_error_inside_status_200_is_an_error(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    body = '{"meta":{"rc":"error","msg":"api.err.StaticDnsRecordAlreadyExists"},"data":[]}'
    store.create(SPEC, deadline)
    controller.fault(Reply(status=200, body=body), on="create")

    with pytest.raises(AlreadyExists):
        store.create(SPEC, deadline)


# Wrong answers


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (faults.html_page(), r"200 text/html.*UniFi OS.*UNIFI_FLAVOUR"),
        (faults.empty_body(), "empty body.*want JSON"),
        (Reply(status=200, body='{"a":1}'), "not the JSON that was wanted"),
        (faults.garbage(), "not the JSON that was wanted"),
        (Reply(status=404, body='{"code":"api.err.NoSiteContext"}'), "UNIFI_SITE"),
        (Reply(status=404, body="<html>", content_type="text/html"), "UNIFI_FLAVOUR"),
    ],
    ids=repr,
)
def test_the_error_for_an_answer_that_is_not_a_listing_describes_it(
    store: UnifiStore, controller: Controller, deadline: Deadline, effect: faults.Effect, said: str
) -> None:
    store.create(SPEC, deadline)
    controller.fault(effect, on="list")

    with pytest.raises(StoreUnreachable, match=said):
        store.list_records(deadline)


def test_a_huge_reply_is_cut_off(controller: Controller, open_store: OpenStore, deadline: Deadline, api: str) -> None:
    store = open_store(controller, api=api, max_response_bytes=100_000)
    controller.fault(Huge(size_bytes=5_000_000), on="list")

    with pytest.raises(StoreUnreachable, match="longer than the limit of 100000 bytes"):
        store.list_records(deadline)


@pytest.mark.parametrize("location", ["https://evil.example.net/proxy/network/v2", "/login", ""])
def test_a_redirect_is_not_followed(
    store: UnifiStore, controller: Controller, deadline: Deadline, location: str
) -> None:
    controller.fault(Reply(status=302, headers=(("Location", location),)), on="list")

    with pytest.raises(StoreUnreachable, match=r"a redirect to (evil\.example\.net|the same host).*UNIFI_HOST"):
        store.list_records(deadline)


@pytest.mark.parametrize(
    "page",
    [
        '{"offset":0,"limit":200,"count":0,"totalCount":50,"data":[]}',
        '{"offset":0,"limit":200,"count":1,"totalCount":1000000,"data":[{"id":"x"}]}',
        '{"offset":0}',
    ],
    ids=["empty", "one-row-of-a-million", "no-count"],
)
def test_nonsense_pages_end_a_listing(
    controller: Controller, open_store: OpenStore, deadline: Deadline, page: str
) -> None:
    controller.fault(Reply(status=200, body=page), on="list")

    with pytest.raises(StoreUnreachable):
        open_store(controller, api="integration").list_records(deadline)

    assert controller.calls.count("list", api="integration", status=200) == 1


@pytest.mark.parametrize("count", [1, 2], ids=["fewer than the total", "more than there are in the page"])
def test_a_number_of_rows_that_never_settles_ends_a_listing_with_that_reason(
    controller: Controller, open_store: OpenStore, deadline: Deadline, count: int
) -> None:
    row = '{"id":"1","type":"A_RECORD","domain":"a.b","ipv4Address":"192.0.2.1"}'
    page = f'{{"offset":0,"limit":200,"count":{count},"totalCount":2,"data":[{row}]}}'
    controller.fault(Reply(status=200, body=page), on="list")

    with pytest.raises(StoreUnreachable, match="changed during each of 5 listings"):
        open_store(controller, api="integration").list_records(deadline)


# Where the controller is


def test_a_controller_that_is_down_is_unreachable_and_one_that_returns_is_used_again(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    store.create(SPEC, deadline)
    controller.stop()
    with pytest.raises(StoreUnreachable, match="cannot connect"):
        store.list_records(deadline)
    controller.start()

    assert len(store.list_records(deadline).records) == 1


def test_a_restart_between_two_calls_goes_unnoticed(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    store.create(SPEC, deadline)
    controller.stop()
    controller.start()
    store.create(OTHER, deadline)

    assert len(controller.rows()) == 2


def test_the_error_for_a_name_that_does_not_resolve_quotes_it(controller: Controller, open_store: OpenStore) -> None:
    store = open_store(controller, api="v2", flavour="os", base_url="http://controller.invalid")

    with pytest.raises((StoreUnreachable, StoreTimeout), match=r"controller\.invalid"):
        store.list_records(Deadline.after(3))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), r"cannot be resolved: .*not known; "),
        (None, r"was not resolved within \d\.\d s; "),
    ],
    ids=["unknown", "silent"],
)
def test_a_name_that_does_not_resolve_is_not_taken_for_a_controller_that_is_down(
    controller: Controller,
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
    answer: socket.gaierror | None,
    words: str,
) -> None:
    """Otherwise a person would look at the controller and at firewalls, and never at DNS."""
    store = open_store(controller, api="v2", flavour="os", base_url="http://unifi.lan")
    is_over = threading.Event()

    def name_server(*_: object, **__: object) -> list[object]:
        if answer is not None:
            raise answer
        is_over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", name_server)
    try:
        with pytest.raises((StoreUnreachable, StoreTimeout), match=words + "does DNS on this machine know it") as told:
            store.list_records(Deadline.after(1))
    finally:
        is_over.set()

    assert "is the controller up" not in str(told.value)
    assert "firewall" not in str(told.value)


def test_the_error_for_a_wrong_site_names_the_known_ones_or_its_option(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    with pytest.raises(StoreUnreachable, match=r"no site 'home', the controller has: default \(Default\)"):
        open_store(controller, api="integration", site="home").list_records(deadline)
    with pytest.raises(StoreUnreachable, match=r"Site does not exist.*UNIFI_SITE"):
        open_store(controller, api="v2", site="home").list_records(deadline)


class Forgotten:
    """A site id that is forgotten, as by a failing listing, after it has been read twice."""

    def __init__(self) -> None:
        self.site_id: str | None = None
        self.looks = 0

    def __get__(self, _store: IntegrationStore, _class: type | None = None) -> str | None:
        self.looks += 1
        return self.site_id if self.looks <= 2 else None

    def __set__(self, _store: IntegrationStore, site_id: str | None) -> None:
        self.site_id, self.looks = site_id, 0


def test_writes_go_to_the_site_even_if_a_failing_listing_forgets_its_id_meanwhile(
    monkeypatch: pytest.MonkeyPatch, open_store: OpenStore, controller: Controller, deadline: Deadline
) -> None:
    monkeypatch.setattr(IntegrationStore, "_site_id", Forgotten(), raising=False)
    store = open_store(controller, api="integration")

    for record in [store.create(spec, deadline) for spec in (SPEC, OTHER)]:
        store.delete(record, deadline)

    assert controller.rows() == []
    assert controller.calls.writes == {"create": 2, "update": 0, "delete": 2}


def test_each_site_has_its_own_rows(open_store: OpenStore, deadline: Deadline, api: str) -> None:
    with Controller(sites=("default", "second")) as controller:
        open_store(controller, api=api, site="second").create(SPEC, deadline)

        assert controller.rows("default") == []
        assert len(controller.rows("second")) == 1


def test_the_error_for_a_wrong_flavour_names_its_option(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    with pytest.raises(StoreUnreachable, match=r"GET /v2/api/site/default/static-dns answered 404.*UNIFI_FLAVOUR"):
        open_store(controller, api="v2", flavour="classic").list_records(deadline)


@pytest.mark.parametrize("status", [200, 401, 404, 422, 500])
@pytest.mark.parametrize("shape", ['{"message":"X-API-KEY: %s"}', "<p>X-API-KEY: %s"])
def test_an_answer_that_repeats_the_api_key_does_not_bring_it_into_the_error(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int, shape: str
) -> None:
    controller.fault(Reply(status=status, body=shape % controller.api_key), on="list")

    with pytest.raises(StoreError, match="<redacted>") as raised:
        store.list_records(deadline)

    assert controller.api_key not in describe_error(raised.value)
