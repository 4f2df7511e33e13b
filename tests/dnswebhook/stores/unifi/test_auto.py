"""Which API is used, when that is decided, and what is remembered of it."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import CapabilitiesUnknown, CredentialsRefused, RateLimited, StoreTimeout, StoreUnreachable
from dnswebhook.model import RecordSpec
from dnswebhook.stores.unifi.store import UnifiStore
from tests.dnswebhook.stores.unifi.conftest import PATIENCE_S, OpenStore
from tests.support.controller import Controller, ExpiredAnswer, Hang, Reply, Reset, faults
from tests.support.oddfiles import in_its_place

SPEC = RecordSpec("app.example.com", "A", "192.0.2.10", 300)
FILE = "unifi-api.json"


@pytest.mark.parametrize(
    ("flavour", "version", "chosen"),
    [
        ("unifi-os", "10.4.57", "unifi integration"),
        ("unifi-os", "10.1.85", "unifi integration"),
        ("unifi-os", "10.0.162", "unifi v2"),
        ("unifi-os", "9.0.108", "unifi v2"),
        ("classic", "10.4.57", "unifi v2"),
    ],
)
@pytest.mark.parametrize("changes", [{}, {"flavour": "right"}], ids=["flavour unknown", "flavour set"])
def test_the_api_follows_from_flavour_and_version(
    open_store: OpenStore, deadline: Deadline, flavour: str, version: str, chosen: str, changes: dict[str, Any]
) -> None:
    if changes:
        changes = {"flavour": "os" if flavour == "unifi-os" else "classic"}
    with Controller(flavour=flavour, version=version) as controller:
        if flavour == "classic":  # which takes no keys
            changes = {**changes, "user": controller.username, "password": Secret(controller.password)}
        store = open_store(controller, **changes)
        store.create(SPEC, deadline)

        assert store.capabilities().store == chosen
        assert [record.spec for record in store.list_records(deadline).records] == [SPEC]


def test_user_and_password_select_v2_whatever_the_version(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    store = open_store(controller, user=controller.username, password=Secret(controller.password))
    store.list_records(deadline)

    assert store.capabilities().store == "unifi v2"


def password_of(controller: Controller, password: str = "") -> dict[str, Any]:
    return {"user": controller.username, "password": Secret(password or controller.password)}


@pytest.mark.parametrize("flavour", ["unifi-os", "classic"])
@pytest.mark.parametrize("answer", list(ExpiredAnswer))
@pytest.mark.parametrize("other_paths", ["not found", "page"])
def test_a_controller_is_recognised_whatever_it_shows_to_those_who_are_not_logged_in(
    open_store: OpenStore, deadline: Deadline, flavour: str, answer: ExpiredAnswer, other_paths: str
) -> None:
    with Controller(flavour=flavour) as controller:
        controller.quirks.treats_strangers_as_expired = True
        controller.quirks.expired_answer = answer
        if other_paths == "page":
            controller.fault(faults.html_page(200), on="other")
        store = open_store(controller, **password_of(controller))
        store.create(SPEC, deadline)

        assert [record.spec for record in store.list_records(deadline).records] == [SPEC]
        assert controller.sessions.logins == 1


@pytest.mark.parametrize("flavour", ["unifi-os", "classic"])
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", ["", "Unauthorized"])
def test_a_controller_that_refuses_strangers_without_json_is_recognised_by_its_login(
    open_store: OpenStore, deadline: Deadline, flavour: str, status: int, body: str
) -> None:
    with Controller(flavour=flavour) as controller:
        refusal = Reply(status=status, body=body, content_type="text/plain" if body else "")
        controller.fault(refusal, on="list", count=1)  # before the login
        store = open_store(controller, **password_of(controller))
        store.create(SPEC, deadline)

        assert [record.spec for record in store.list_records(deadline).records] == [SPEC]
        assert controller.sessions.logins == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Reply(status=405, body='{"message":"Method Not Allowed"}'),
        Reply(status=400, body="<h1>Bad Request</h1>", content_type="text/html"),
    ],
    ids=["method not allowed", "bad request"],
)
def test_a_path_that_takes_no_logins_is_not_the_right_one_however_it_says_so(
    open_store: OpenStore, deadline: Deadline, refusal: Reply
) -> None:
    with Controller(flavour="classic") as controller:
        controller.quirks.treats_strangers_as_expired = True
        controller.quirks.expired_answer = ExpiredAnswer.PAGE
        controller.fault(faults.html_page(200), on="other", count=1)
        controller.fault(refusal, on="other")  # to the login of a console
        store = open_store(controller, **password_of(controller))
        store.list_records(deadline)

        assert controller.sessions.logins == 1


@pytest.mark.parametrize("flavour", ["unifi-os", "classic"])
def test_a_wrong_password_is_tried_once_where_pages_are_shown_and_named_as_the_cause(
    open_store: OpenStore, deadline: Deadline, flavour: str
) -> None:
    with Controller(flavour=flavour) as controller:
        controller.quirks.treats_strangers_as_expired = True
        controller.quirks.expired_answer = ExpiredAnswer.PAGE
        store = open_store(controller, **password_of(controller, "wrong"))
        for _ in range(3):
            with pytest.raises(CredentialsRefused, match="AUTHENTICATION_FAILED_INVALID_CREDENTIALS"):
                store.list_records(deadline)

        assert controller.sessions.refused_logins == 1


def test_pages_at_every_path_decide_nothing(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    """As from a console that is starting."""
    page = controller.fault(faults.html_page(200))
    store = open_store(controller, state_dir=tmp_path, **password_of(controller))
    with pytest.raises(StoreUnreachable, match=r"POST /api/auth/login .*POST /api/login .*UNIFI_FLAVOUR"):
        store.list_records(deadline)
    assert list(tmp_path.iterdir()) == []

    controller.faults.remove(page)
    store.list_records(deadline)
    assert controller.sessions.logins == 1


def test_with_a_key_no_login_is_tried_where_pages_are_shown(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.fault(faults.html_page(200))
    with pytest.raises(StoreUnreachable, match="no Network application"):
        open_store(controller).list_records(deadline)

    assert controller.sessions.logins + controller.sessions.refused_logins == 0


def test_an_info_with_an_old_version_selects_v2(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.fault(Reply(status=200, body='{"applicationVersion":"9.5.21"}'), on="info")
    store = open_store(controller)
    store.list_records(deadline)

    assert store.capabilities().store == "unifi v2"


def test_a_web_page_in_place_of_the_info_selects_v2(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    """As of a server that answers every unknown path with its first page."""
    controller.fault(faults.html_page(200), on="info")
    store = open_store(controller)
    store.list_records(deadline)

    assert store.capabilities().store == "unifi v2"


def test_capabilities_are_unknown_until_the_controller_was_reached(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    store = open_store(controller)
    with pytest.raises(CapabilitiesUnknown, match="has not been reached yet"):
        store.capabilities()
    store.probe(deadline)

    assert store.capabilities().store == "unifi integration"


@pytest.mark.parametrize("api", ["v2", "integration"])
def test_a_fixed_api_is_known_at_once(controller: Controller, open_store: OpenStore, api: str) -> None:
    assert open_store(controller, api=api).capabilities().store == f"unifi {api}"


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        (Reply(status=401, body='{"code":"api.authentication.missing-credentials"}'), CredentialsRefused),
        (Reply(status=403, body='{"error":{"code":403}}'), CredentialsRefused),
        (faults.bad_gateway(), StoreUnreachable),
        (Reply(status=500), StoreUnreachable),
        (Reset(), StoreUnreachable),
        (Hang(), StoreTimeout),
        (faults.rate_limited("300"), RateLimited),
    ],
    ids=repr,
)
def test_a_transient_failure_decides_nothing(
    controller: Controller,
    open_store: OpenStore,
    deadline: Deadline,
    tmp_path: Path,
    effect: faults.Effect,
    error: type[Exception],
) -> None:
    # Short only where it is used up: otherwise a pause of the machine would cause another failure.
    timeout_s = 0.3 if isinstance(effect, Hang) else PATIENCE_S
    store = open_store(controller, state_dir=tmp_path, request_timeout_s=timeout_s)
    controller.fault(effect)
    with pytest.raises(error):
        store.list_records(deadline)
    with pytest.raises(CapabilitiesUnknown):
        store.capabilities()

    assert list(tmp_path.iterdir()) == []


def test_the_api_is_decided_once_the_controller_recovers(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    store = open_store(controller)
    fault = controller.fault(faults.bad_gateway())
    with pytest.raises(StoreUnreachable):
        store.probe(deadline)
    controller.faults.remove(fault)
    store.probe(deadline)

    assert store.capabilities().store == "unifi integration"


def test_the_error_for_a_host_that_is_not_a_controller_names_both_paths(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.fault(faults.html_page(404))

    with pytest.raises(StoreUnreachable, match=r"/proxy/network/v2/.* 404 .*GET /v2/.* 404 .*UNIFI_FLAVOUR"):
        open_store(controller).list_records(deadline)


# Remembering


def decided(controller: Controller, open_store: OpenStore, deadline: Deadline, state_dir: Path) -> None:
    store = open_store(controller, state_dir=state_dir)
    store.list_records(deadline)
    store.close()


def test_the_decision_survives_a_restart_while_the_controller_is_down(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    decided(controller, open_store, deadline, tmp_path)
    url = controller.url
    controller.stop()

    assert open_store(controller, base_url=url, state_dir=tmp_path).capabilities().store == "unifi integration"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


DEEP = b'{"base_url":"","more":' + b"[" * 10_000


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"base_url":1}', b"null", DEEP], ids=lambda it: it[:9])
def test_a_damaged_file_is_ignored_and_replaced(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / FILE).write_bytes(damage)
    store = open_store(controller, state_dir=tmp_path)
    with pytest.raises(CapabilitiesUnknown):
        store.capabilities()
    store.list_records(deadline)

    assert b"integration" in (tmp_path / FILE).read_bytes()


@in_its_place
def test_something_else_in_place_of_the_file_is_ignored_and_replaced(
    controller: Controller,
    open_store: OpenStore,
    deadline: Deadline,
    tmp_path: Path,
    put_odd_file: Callable[[Path], None],
) -> None:
    put_odd_file(tmp_path / FILE)
    store = open_store(controller, state_dir=tmp_path)
    with pytest.raises(CapabilitiesUnknown):
        store.capabilities()
    store.list_records(deadline)

    assert b"integration" in (tmp_path / FILE).read_bytes()


@pytest.mark.parametrize(
    "changes",
    [{"base_url": "https://other.lan"}, {"flavour": "classic"}, {"user": "dns", "password": Secret("p")}],
    ids=repr,
)
def test_a_decision_for_other_settings_is_ignored(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path, changes: dict[str, Any]
) -> None:
    decided(controller, open_store, deadline, tmp_path)
    store = open_store(controller, state_dir=tmp_path, **changes)
    try:
        name = store.capabilities().store
    except CapabilitiesUnknown:
        name = "unknown"

    assert name != "unifi integration"


def test_a_state_directory_that_cannot_be_written_is_no_obstacle(
    controller: Controller, open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    store = open_store(controller, state_dir=tmp_path / "absent")
    store.list_records(deadline)

    assert store.capabilities().store == "unifi integration"


def test_a_remembered_decision_is_checked_before_it_is_used(
    open_store: OpenStore, deadline: Deadline, tmp_path: Path
) -> None:
    with Controller(version="10.4.57") as newer:
        decided(newer, open_store, deadline, tmp_path)
        port = newer.port
    with Controller(version="9.4.0", port=port) as older:
        store = open_store(older, state_dir=tmp_path)
        store.list_records(deadline)

        assert store.capabilities().store == "unifi v2"


# Changing


def upgraded(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    """The store was decided for v2; now the controller says that it has the integration API."""
    controller.faults.clear()
    store.probe(deadline)


def test_an_upgrade_is_noticed_by_a_probe_and_adopted_by_the_next_listing(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.fault(faults.html_page(404), on="info")
    store = open_store(controller)
    record = store.create(SPEC, deadline)
    upgraded(store, controller, deadline)
    before_listing = store.capabilities().store
    second = store.create(RecordSpec("second.example.com", "A", "192.0.2.1"), deadline)
    records = store.list_records(deadline).records

    assert before_listing == "unifi v2"
    assert store.capabilities().store == "unifi integration"
    assert {row.id for row in records}.isdisjoint({record.id, second.id})


def test_a_record_of_the_old_api_is_written_through_the_old_api(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.fault(faults.html_page(404), on="info")
    store = open_store(controller)
    record = store.create(SPEC, deadline)
    upgraded(store, controller, deadline)
    store.list_records(deadline)
    store.delete(record, deadline)

    assert controller.rows() == []
    assert controller.calls.count("delete", api="v2", status=200) == 1


@pytest.mark.parametrize(
    "fault", [faults.html_page(404), faults.html_page(200), faults.unavailable(), faults.empty_body(404)]
)
def test_a_console_that_restarts_does_not_look_like_a_downgrade(
    controller: Controller, open_store: OpenStore, deadline: Deadline, fault: Reply
) -> None:
    """The other API has other limits: for one pass long texts would be dropped, hence deleted."""
    store = open_store(controller)
    store.list_records(deadline)
    controller.fault(fault)
    with pytest.raises(StoreUnreachable):
        store.probe(Deadline.after(1))
    controller.faults.clear()
    store.list_records(deadline)

    assert store.capabilities().store == "unifi integration"


def test_a_downgrade_that_the_other_api_confirms_is_adopted(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    store = open_store(controller)
    store.list_records(deadline)
    controller.fault(faults.html_page(404), on="info")
    store.probe(deadline)
    store.list_records(deadline)

    assert store.capabilities().store == "unifi v2"


def test_a_downgrade_is_noticed_by_the_listing_that_fails(open_store: OpenStore, deadline: Deadline) -> None:
    with Controller(version="10.4.57") as newer:
        store = open_store(newer)
        store.list_records(deadline)
        port = newer.port
    with Controller(version="9.4.0", port=port):
        with pytest.raises(StoreUnreachable, match="404"):
            store.list_records(deadline)
        store.list_records(deadline)

        assert store.capabilities().store == "unifi v2"
