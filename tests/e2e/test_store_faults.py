"""The daemon while its controller misbehaves: every answer is one that external-dns survives, and it all heals.

Whatever goes wrong: only status codes 200, 204 and 500 to 510 come out, each refusal says what is wrong, no secret is
in it or in the log, the other names of the same call reach their final state, and the next passes end with exactly the
wanted rows. The deadline of a call is 2 s where the controller hangs, so that this costs the tests little; where much
must be done within the call, it is longer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import formatdate
from pathlib import Path

import pytest
import requests

from dnswebhook.model import Changes, Endpoint
from tests.support.client_model import Pass, SoftError
from tests.support.client_plan import Planner
from tests.support.client_registry import Registered, TxtRegistry
from tests.support.controller import (
    ExpiredAnswer,
    Hang,
    Huge,
    PutRefusal,
    Reset,
    Slow,
    Truncate,
    faults,
)
from tests.support.controller import Reply as Answer
from tests.support.controller.faults import Effect
from tests.support.controller.simulator import API_KEY, PASSWORD, USERNAME
from tests.support.daemon import Daemon
from tests.support.desired import HeldRow
from tests.support.passes import OWNER_ID, Loop, assert_survived, endpoint, rows_of
from tests.support.storeviews import UnifiView

CALL_DEADLINE = ["--call-deadline", "2s"]
PATIENT_DEADLINE = ["--call-deadline", "6s"]
PAST_PATIENCE_S = 6.5
DEADLINE_S = 30.0
SECRETS = (API_KEY, PASSWORD)

FOREIGN = {
    HeldRow("nas.lan", "A", "198.51.100.1"),
    HeldRow("changed.example.org", "TXT", '"kept, by hand"'),
    HeldRow("theirs.example.org", "CNAME", "elsewhere.example.net"),
    HeldRow("struck-new.example.org", "A", "198.51.100.2", kind="disabled"),
}
SAME = endpoint("same.example.org", "A", "192.0.2.1", ttl_s=60)
BEFORE = [
    SAME,
    endpoint("changed.example.org", "A", "192.0.2.2", "192.0.2.3", ttl_s=60),
    endpoint("alias.example.org", "CNAME", "one.example.net", ttl_s=60),
    endpoint("turned.example.org", "A", "192.0.2.4", ttl_s=60),
    endpoint("gone.example.org", "A", "192.0.2.5", ttl_s=60),
    endpoint("struck-changed.example.org", "A", "192.0.2.6", ttl_s=60),
    endpoint("struck-gone.example.org", "A", "192.0.2.7", ttl_s=60),
]
AFTER = [
    SAME,
    endpoint("changed.example.org", "A", "192.0.2.3", "192.0.2.22", ttl_s=60),
    endpoint("alias.example.org", "CNAME", "two.example.net", ttl_s=60),
    endpoint("turned.example.org", "CNAME", "three.example.net", ttl_s=60),
    endpoint("new.example.org", "AAAA", "2001:db8::1", ttl_s=60),
    endpoint("struck-changed.example.org", "A", "192.0.2.66", ttl_s=60),
    endpoint("struck-new.example.org", "A", "192.0.2.8", ttl_s=60),
]


def daemon_on(
    view: UnifiView, env: Mapping[str, str] | None = None, arguments: Sequence[str] = PATIENT_DEADLINE
) -> Daemon:
    return Daemon.dnswebhook({**view.env, **(env or {})}, arguments)


def rarely_probing_daemon_on(view: UnifiView, directory: Path, *constants: str) -> Daemon:
    """A dnswebhook in which these pauses around its probes are an hour long, so that only a failed call can
    be what changes its readiness."""
    lines = [f"readiness.{constant} = 3600.0" for constant in constants]
    program = ["from dnswebhook import cli, readiness", *lines, "cli.main()"]
    (directory / "rarely_probing.py").write_text("\n".join(program))
    addresses = ["--api-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]
    return Daemon("rarely_probing", ["run", *addresses, *PATIENT_DEADLINE], {**view.env, "PYTHONPATH": str(directory)})


class Rig:
    """A daemon on a controller, and the loop of external-dns on that daemon."""

    def __init__(self, view: UnifiView, daemon: Daemon) -> None:
        self.view = view
        self.controller = view.controller
        self.daemon = daemon
        self.loop = Loop(daemon.url("api"))

    def begin(self) -> None:
        """Everything works, and the rows of BEFORE are held beside the foreign ones."""
        self.heal()
        self.view.clear()
        self.view.add(FOREIGN)
        self.loop = Loop(self.daemon.url("api"))
        assert self.loop.settle(BEFORE), self.daemon.tail
        self.view.start_counting()

    def heal(self) -> None:
        self.controller.faults.clear()
        self.controller.release_hangs()
        self.controller.calls.wait_until_idle(DEADLINE_S)

    def assert_ends_with(self, desired: list[Endpoint]) -> None:
        """After some passes exactly these and the foreign rows are held; sent once more, they cause no write."""
        assert self.loop.settle(desired), self.daemon.tail
        assert self.view.held() == rows_of(desired) | FOREIGN
        assert not self.controller.resolver_breakages
        self.view.start_counting()
        self.loop.apply_changes(
            TxtRegistry(OWNER_ID).write(Changes(create=tuple(desired)), Registered((), frozenset()))
        )
        assert self.view.writes == 0
        self.assert_clean()

    def assert_clean(self) -> None:
        assert_survived(self.loop.replies)
        shown = "\n".join([*self.daemon.lines, *(reply.body.decode() for reply in self.loop.replies)])
        assert [secret for secret in SECRETS if secret in shown] == []
        assert [entry for entry in self.daemon.log if "stack" in entry] == []

    def readyz(self) -> requests.Response:
        return requests.get(f"{self.daemon.url('health')}/readyz", timeout=DEADLINE_S)


def shared_rig(api: str, state_dir: Path, arguments: Sequence[str]) -> Iterator[Rig]:
    view = UnifiView(api, state_dir)
    with daemon_on(view, arguments=arguments) as daemon:
        yield Rig(view, daemon)
        assert daemon.stop() == 0, daemon.tail
    view.close()


@pytest.fixture(scope="module", params=["v2", "integration"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    yield from shared_rig(request.param, tmp_path_factory.mktemp("state"), CALL_DEADLINE)


@pytest.fixture(scope="module", params=["v2", "integration"])
def shared_patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    yield from shared_rig(request.param, tmp_path_factory.mktemp("state"), PATIENT_DEADLINE)


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.begin()
    return shared


@pytest.fixture
def patient(shared_patient: Rig) -> Rig:
    shared_patient.begin()
    return shared_patient


@pytest.fixture(params=["v2", "integration"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnifiView]:
    view = UnifiView(request.param, tmp_path)
    yield view
    view.close()


only_v2 = pytest.mark.parametrize("view", ["v2"], indirect=True)
only_integration = pytest.mark.parametrize("view", ["integration"], indirect=True)


# Faults of the whole controller.


def refused(status: int) -> Answer:
    return Answer(status=status, body='{"code":"api.err.Anything","message":"no"}')


EVERYWHERE: dict[str, tuple[Callable[[], Effect], set[int]]] = {
    "400": (lambda: refused(400), {502}),
    "401": (lambda: refused(401), {502}),
    "403": (lambda: refused(403), {502}),
    "404": (lambda: refused(404), {502}),
    "404 page": (lambda: faults.html_page(404), {502}),
    "429 for a second": (lambda: faults.rate_limited("1"), {503}),
    "429 until a moment": (lambda: faults.rate_limited(formatdate(time.time() + 2, usegmt=True)), {503}),
    "500": (lambda: refused(500), {502, 503}),
    "502 page": (faults.bad_gateway, {502, 503}),
    "302": (lambda: Answer(status=302, headers=(("Location", "/login"),)), {502}),
    "a page": (faults.html_page, {502}),
    "an object for an array": (faults.object_instead_of_array, {502}),
    "garbage": (faults.garbage, {502}),
    "nothing": (faults.empty_body, {502}),
    "too much": (lambda: Huge(size_bytes=80 * 1024 * 1024), {502}),
    "half": (Truncate, {502, 503}),
    "a reset": (Reset, {502, 503}),
}
TOO_LATE: dict[str, Callable[[], Effect]] = {"silence": Hang, "an answer too late": lambda: Slow(delay_s=2.5)}


@pytest.mark.parametrize("fault", EVERYWHERE)
def test_the_daemon_survives_a_controller_that_answers_everything_wrongly(patient: Rig, fault: str) -> None:
    effect, status_codes = EVERYWHERE[fault]
    outlive(patient, effect(), status_codes)


@pytest.mark.parametrize("fault", TOO_LATE)
def test_the_daemon_survives_a_controller_that_answers_everything_too_late(rig: Rig, fault: str) -> None:
    outlive(rig, TOO_LATE[fault](), {503, 504})


def outlive(rig: Rig, effect: Effect, status_codes: set[int]) -> None:
    rig.controller.fault(effect)

    outcome = rig.loop.try_pass(AFTER)

    assert isinstance(outcome, SoftError), outcome
    assert rig.loop.replies[-1].status_code in status_codes, rig.loop.replies[-1]
    assert rig.view.held() == rows_of(BEFORE) | FOREIGN
    rig.heal()
    rig.assert_ends_with(AFTER)


@pytest.mark.parametrize(
    "fault", ["400", "401", "403", "429 for a second", "500", "502 page", "a page", "garbage", "a reset"]
)
def test_the_daemon_survives_a_controller_that_lists_but_refuses_every_write(rig: Rig, fault: str) -> None:
    rig.controller.fault(EVERYWHERE[fault][0](), "write")

    outcome = rig.loop.try_pass(AFTER)

    assert isinstance(outcome, SoftError), outcome
    assert FOREIGN <= rig.view.held()
    rig.heal()
    rig.assert_ends_with(AFTER)


# Faults on one name only.

ON_ONE_NAME: dict[str, Callable[[], Effect]] = {
    "400": lambda: refused(400),
    "409": lambda: refused(409),
    "500": lambda: refused(500),
    "502 page": faults.bad_gateway,
    "502 page after commit": lambda: faults.bad_gateway(after_commit=True),
    "garbage after commit": lambda: Answer(status=200, body="{[", after_commit=True),
    "half": Truncate,
    "a reset": Reset,
    "a reset after commit": lambda: Reset(after_commit=True),
    "silence": Hang,
    "silence after commit": lambda: Hang(after_commit=True),
    "an answer too late": lambda: Slow(delay_s=PAST_PATIENCE_S, after_commit=True),
}


def without_struck(rows: set[HeldRow]) -> set[HeldRow]:
    return {row for row in rows if "struck" not in row.name}


@pytest.mark.parametrize("fault", ON_ONE_NAME)
def test_faults_on_some_names_do_not_affect_the_others(patient: Rig, fault: str) -> None:
    struck = patient.controller.fault(ON_ONE_NAME[fault](), "write", name="struck-*")

    patient.loop.try_pass(AFTER)

    assert struck.strikes >= 3
    assert without_struck(patient.view.held()) == without_struck(rows_of(AFTER) | FOREIGN)
    patient.heal()
    patient.assert_ends_with(AFTER)


@pytest.mark.parametrize("fault", ["400", "502 page", "a reset", "a reset after commit", "silence after commit"])
def test_no_record_is_written_if_its_ownership_record_could_not_be_written(patient: Rig, fault: str) -> None:
    patient.controller.fault(ON_ONE_NAME[fault](), "create", name="a-struck-*")

    patient.loop.try_pass(AFTER)

    names = {row.name for row in patient.view.held() - FOREIGN}
    assert "struck-new.example.org" not in names or "a-struck-new.example.org" in names
    assert without_struck(patient.view.held()) == without_struck(rows_of(AFTER) | FOREIGN)
    patient.heal()
    patient.assert_ends_with(AFTER)


def test_a_row_that_somebody_else_removed_meanwhile_is_recreated_or_counts_as_removed(patient: Rig) -> None:
    """A 404 after the listing; for a delete it counts as success."""
    patient.controller.fault(refused(404), "update", name="struck-*")

    assert isinstance(patient.loop.try_pass(AFTER), Pass)

    patient.heal()
    patient.assert_ends_with(AFTER)


@pytest.mark.parametrize(("before_s", "after_s"), [(300, 60), (60, 300)])
def test_a_ttl_written_to_some_rows_of_a_set_only_reaches_the_others_in_the_next_pass(
    rig: Rig, before_s: int, after_s: int
) -> None:
    before, after = (
        endpoint("several.example.org", "A", "192.0.2.1", "192.0.2.2", "192.0.2.3", ttl_s=ttl_s)
        for ttl_s in (before_s, after_s)
    )
    assert rig.loop.settle([before])
    rig.controller.fault(refused(400), "update", nth=2, count=1)

    assert isinstance(rig.loop.try_pass([after]), SoftError)

    rig.heal()
    rig.assert_ends_with([after])


# Unreachable, and back again.


@pytest.mark.parametrize("api", ["auto", "v2", "integration"])
def test_a_controller_unreachable_at_the_start_is_waited_for(tmp_path: Path, api: str) -> None:
    view = UnifiView("integration" if api == "auto" else api, tmp_path)
    view.add(FOREIGN)
    view.controller.stop()
    with daemon_on(view, {"UNIFI_API": api}) as daemon:
        rig = Rig(view, daemon)
        assert rig.loop.negotiate().include == ()
        if api == "auto":
            assert isinstance(rig.loop.try_pass(AFTER), SoftError)
            adjusted = requests.post(f"{daemon.url('api')}/adjustendpoints", data=b"[]", timeout=DEADLINE_S)
            assert (adjusted.status_code, adjusted.json()["error"]) == (503, "controller unknown")
            assert adjusted.headers["Retry-After"]
        else:
            assert len(rig.loop.adjust_endpoints(AFTER)) == len(AFTER)
        daemon.wait_for_message("record store is not ready")
        ready = rig.readyz()
        message = ready.json()["message"]
        assert ready.status_code == 503
        assert message == "the record store cannot be reached"

        assert isinstance(rig.loop.try_pass(AFTER), SoftError)
        view.controller.start()
        rig.assert_ends_with(AFTER)
        daemon.wait_for_message("record store is ready", DEADLINE_S)
        assert rig.readyz().status_code == 200
        assert daemon.stop() == 0, daemon.tail
    view.close()


def test_a_controller_that_becomes_unreachable_between_calls_is_probed_at_once_and_waited_for(
    view: UnifiView, tmp_path: Path
) -> None:
    with rarely_probing_daemon_on(view, tmp_path, "PROBE_INTERVAL_S") as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        daemon.wait_for_message("record store is ready")
        view.controller.stop()

        assert isinstance(rig.loop.try_pass(AFTER), SoftError)
        assert rig.loop.replies[-1].status_code == 502
        daemon.wait_for_message("record store is not ready")
        assert (rig.readyz().status_code, rig.readyz().json()["status"]) == (503, "error")
        alive = requests.get(f"{daemon.url('health')}/healthz", timeout=DEADLINE_S)
        assert alive.status_code == 200

        view.controller.start()
        rig.assert_ends_with(AFTER)


def test_refused_credentials_are_reported_by_readiness_before_the_next_probe(view: UnifiView, tmp_path: Path) -> None:
    with rarely_probing_daemon_on(view, tmp_path, "PROBE_INTERVAL_S", "MIN_PAUSE_S") as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        daemon.wait_for_message("record store is ready")
        view.controller.fault(refused(401))

        assert isinstance(rig.loop.try_pass(AFTER), SoftError)

        ready = rig.readyz()
        assert (ready.status_code, ready.json()["message"]) == (503, "the record store refuses the credentials")
        rig.heal()
        rig.assert_ends_with(AFTER)


def test_the_controllers_retry_after_is_passed_on_to_the_client(view: UnifiView) -> None:
    view.controller.fault(faults.rate_limited("60"))
    with daemon_on(view) as daemon:
        answer = requests.get(f"{daemon.url('api')}/records", timeout=DEADLINE_S)

        assert (answer.status_code, answer.json()["error"]) == (503, "rate limited")
        assert 30 <= int(answer.headers["Retry-After"]) <= 60


# Logins.


@only_v2
@pytest.mark.parametrize("expired_answer", ExpiredAnswer)
def test_a_session_that_expires_in_the_middle_of_an_apply_is_renewed(
    view: UnifiView, expired_answer: ExpiredAnswer
) -> None:
    controller = view.controller
    controller.quirks.expired_answer = expired_answer
    env = {name: value for name, value in view.env.items() if name != "UNIFI_API_KEY"}
    env |= {"UNIFI_USER": USERNAME, "UNIFI_PASS": PASSWORD}
    with Daemon.dnswebhook(env, PATIENT_DEADLINE) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        logins = controller.sessions.logins
        controller.sessions.max_requests = 12  # for two listings and more than 15 writes

        outcome = rig.loop.try_pass(AFTER)

        assert isinstance(outcome, Pass), outcome
        assert sum(controller.calls.writes.values()) > 15
        assert controller.sessions.logins >= logins + 2
        assert controller.sessions.refused_logins == 0
        controller.sessions.max_requests = None
        rig.assert_ends_with(AFTER)


# What some firmware does.


@only_v2
@pytest.mark.parametrize("put_refusal", [PutRefusal.EXISTS, PutRefusal.NOT_ALLOWED])
def test_rows_that_cannot_be_changed_are_replaced_without_a_gap(view: UnifiView, put_refusal: PutRefusal) -> None:
    view.controller.quirks.put_refusal = put_refusal
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()

        assert isinstance(rig.loop.try_pass(AFTER), Pass), daemon.tail

        # A CNAME has to be removed before the next one can be created on its name.
        assert view.controller.names_with_gaps == {"alias.example.org", "turned.example.org"}
        rig.assert_ends_with(AFTER)


@pytest.mark.parametrize("put_refusal", [PutRefusal.NONE, PutRefusal.EXISTS])
def test_hosts_that_swap_preferences_or_weights_are_all_held_after_one_pass(
    view: UnifiView, put_refusal: PutRefusal
) -> None:
    """The controller identifies such a row by its host alone, so it refuses a successor beside it."""
    view.controller.quirks.put_refusal = put_refusal
    mail, service = "mail.example.org", "_sip._tcp.example.org"
    before = [
        endpoint(mail, "MX", "10 mx1.example.org", "20 mx2.example.org"),
        endpoint(service, "SRV", "1 9 5060 blue.example.org.", "1 1 5060 green.example.org."),
    ]
    after = [
        endpoint(mail, "MX", "10 mx2.example.org", "20 mx1.example.org"),
        endpoint(service, "SRV", "1 1 5060 blue.example.org.", "1 9 5060 green.example.org."),
    ]
    with daemon_on(view) as daemon:
        loop = Loop(daemon.url("api"), planner=Planner(managed_types=frozenset({"MX", "SRV"})))
        assert loop.settle(before), daemon.tail

        assert isinstance(loop.try_pass(after), Pass), daemon.tail

        assert view.held() == rows_of(after)
        assert view.controller.names_ever_empty == set()
        assert loop.settle(after, max_passes=1), daemon.tail


@only_v2
def test_a_cname_whose_create_completes_late_meets_no_other_cname_on_its_name(view: UnifiView) -> None:
    """Without updates the old row is deleted first; firmware of that age accepts a second CNAME as well."""
    view.controller.quirks.put_refusal = PutRefusal.EXISTS
    view.controller.quirks.accepts_cname_overlap = True
    with daemon_on(view, {"UNIFI_REQUEST_TIMEOUT": "500ms"}) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        late = view.controller.fault(Slow(delay_s=2.0), "create", name="alias.example.org", count=1)

        assert isinstance(rig.loop.try_pass(AFTER), SoftError)

        assert late.strikes == 1
        rig.heal()
        assert view.controller.resolver_breakages == []
        rig.assert_ends_with(AFTER)


@only_v2
@pytest.mark.parametrize("count", [1, None], ids=["once", "always"])
def test_no_record_is_added_beside_a_cname_whose_removal_was_confirmed_and_not_done(
    view: UnifiView, count: int | None
) -> None:
    """An empty answer is how the controller confirms a removal, and what a console in a restart may send."""
    view.controller.quirks.put_refusal = PutRefusal.EXISTS
    view.controller.quirks.accepts_cname_overlap = True
    to_address = [*AFTER[:2], endpoint("alias.example.org", "A", "192.0.2.9", ttl_s=60), *AFTER[3:]]
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        for desired in (AFTER, to_address):
            rig.begin()
            for name in ("alias.example.org", "turned.example.org"):
                view.controller.fault(faults.empty_body(), "delete", name=name, count=count)

            rig.loop.try_pass(desired)

            assert view.controller.resolver_breakages == []
            rig.heal()
            rig.assert_ends_with(desired)


@only_v2
@pytest.mark.parametrize(("put_refusal", "write"), [(PutRefusal.NONE, "update"), (PutRefusal.EXISTS, "delete")])
def test_no_second_cname_is_added_when_somebody_replaces_it_meanwhile(
    view: UnifiView, put_refusal: PutRefusal, write: str
) -> None:
    controller = view.controller
    controller.quirks.accepts_cname_overlap = True
    controller.quirks.put_refusal = put_refusal
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        hang = controller.fault(Hang(), write, name="alias.example.org", count=1)
        passing = threading.Thread(target=rig.loop.try_pass, args=(AFTER,))
        passing.start()
        hang.wait_for_strikes(timeout_s=DEADLINE_S)
        (row,) = [row for row in controller.rows() if row.key == "alias.example.org"]
        key = {"X-API-KEY": controller.api_key}
        assert requests.delete(f"{controller.v2_url}/{row.id}", headers=key, timeout=DEADLINE_S).ok
        controller.add_row("alias.example.org", "CNAME", "exchanged.example.net")
        controller.release_hangs()
        passing.join(DEADLINE_S)

        assert controller.resolver_breakages == []
        rig.assert_ends_with(AFTER)


@only_v2
def test_refused_creates_do_not_prevent_updates_and_deletes(view: UnifiView) -> None:
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        view.controller.quirks.refuses_v2_create = True

        assert isinstance(rig.loop.try_pass(AFTER), SoftError)

        held = view.held()
        assert HeldRow("gone.example.org", "A", "192.0.2.5", 60) not in held
        assert HeldRow("changed.example.org", "A", "192.0.2.22", 60) in held
        assert HeldRow("turned.example.org", "A", "192.0.2.4", 60) in held, "an old answer is better than none"
        view.controller.quirks.refuses_v2_create = False
        rig.assert_ends_with(AFTER)


@pytest.mark.parametrize("struck", ["turned.example.org", "aaaa-turned.example.org"], ids=["record", "ownership"])
def test_an_address_stays_until_its_replacement_of_the_other_family_is_written(view: UnifiView, struck: str) -> None:
    turned = [each for each in BEFORE if each.dns_name != "turned.example.org"]
    turned.append(endpoint("turned.example.org", "AAAA", "2001:db8::4", ttl_s=60))
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        fault = view.controller.fault(faults.bad_gateway(), "create", name=struck)

        assert isinstance(rig.loop.try_pass(turned), SoftError)

        assert fault.strikes
        assert HeldRow("turned.example.org", "A", "192.0.2.4", 60) in view.held()
        assert HeldRow("turned.example.org", "AAAA", "2001:db8::4", 60) not in view.held()
        rig.heal()
        assert rig.loop.settle(turned)
        assert "turned.example.org" not in view.controller.names_ever_empty
        rig.assert_ends_with(turned)


def test_an_unwanted_address_is_removed_although_the_mx_on_its_name_cannot_be_written(view: UnifiView) -> None:
    """Neither for one that is refused in each pass, nor for one that the controller refuses now."""
    changed = [each for each in BEFORE if each.dns_name not in ("gone.example.org", "struck-gone.example.org")]
    changed.append(endpoint("struck-gone.example.org", "MX", "10 mail.example.net"))
    in_the_way = HeldRow("gone.example.org", "MX", "10 mail.example.net", kind="disabled")
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        view.add({in_the_way})
        rig.loop = Loop(daemon.url("api"), planner=Planner(OWNER_ID, managed_types=frozenset({"A", "CNAME", "MX"})))
        fault = view.controller.fault(faults.bad_gateway(), "create", name="struck-gone.example.org")

        rig.loop.try_pass([*changed, endpoint("gone.example.org", "MX", "10 mail.example.net")])

        assert fault.strikes
        assert {"192.0.2.5", "192.0.2.7"}.isdisjoint(row.value for row in view.held())
        rig.heal()
        assert rig.loop.settle(changed)
        assert view.held() == rows_of(changed) | FOREIGN | {in_the_way}
        rig.assert_clean()


def test_disabled_rows_and_rows_derived_by_the_controller_stay_unchanged(view: UnifiView) -> None:
    in_the_way = {
        HeldRow("new.example.org", "AAAA", "2001:db8::1", kind="disabled"),
        HeldRow("gone.example.org", "A", "198.51.100.9", kind="disabled"),
        HeldRow("printer.example.org", "A", "198.51.100.10", kind="derived"),
    }
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)
        rig.begin()
        view.add(in_the_way)
        wanted = [*AFTER, endpoint("printer.example.org", "A", "192.0.2.9", ttl_s=60)]

        assert isinstance(rig.loop.try_pass(wanted), SoftError)

        # The controller holds the very value of `new`, disabled; `printer` is a device's own name.
        possible = [each for each in AFTER if each.dns_name != "new.example.org"]
        held = {row for row in view.held() if row.name != "a-printer.example.org"}
        assert held == rows_of(possible) | FOREIGN | in_the_way
        assert "disabled row" in json.loads(rig.loop.replies[-1].body)["message"]
        rig.assert_clean()


@only_integration
def test_a_row_that_shares_its_id_with_others_is_never_written(view: UnifiView) -> None:
    """Rows created over the older API: deleting one would delete them all."""
    view.controller.quirks.shared_bucket_ids = True
    ours = [endpoint("old.example.org", "A", "192.0.2.1", ttl_s=60)]
    for row in [*FOREIGN, *rows_of(ours)]:
        kind = row.kind == "user"
        view.controller.add_row(row.name, row.type, row.value, row.ttl_s, kind, made_by="v2")
    with daemon_on(view) as daemon:
        rig = Rig(view, daemon)

        outcome = rig.loop.try_pass(AFTER)

        assert isinstance(outcome, SoftError)
        message = json.loads(rig.loop.replies[-1].body)["message"]
        assert "UNIFI_API=v2" in message
        assert "delete the row in the controller's UI" in message
        assert view.held() == rows_of([*ours, *AFTER]) | FOREIGN
        rig.assert_clean()
