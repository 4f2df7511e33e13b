"""Statuses are written by threads: each object's newest update, retried until it succeeds, by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from daemonkit.logformat import FIELDS_ATTRIBUTE
from tests.tunnelgw.sources.objects import make, route
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.refs import ParentRef
from tunnelgw.report.statusqueue import (
    BRIEF_CONFLICTS,
    FIRST_PAUSE_S,
    MAX_COMMON_PAUSE_S,
    MAX_PAUSE_S,
    RETRY_EVERY_S,
    StatusQueue,
)
from tunnelgw.sources.writing import Outcome, Written
from tunnelgw.status.compose import Author, StatusUpdate
from tunnelgw.translate.verdicts import ObjectId, ParentVerdict, RouteVerdict

WAIT_S = 30.0
WEB = ObjectId(Kind.HTTP_ROUTE, Key("default", "web"))


def update(
    message: str, *, version: str = "1", name: str = "web", stored: object = None
) -> dict[ObjectId, StatusUpdate]:
    """`stored`: the status that the object has."""
    finding = Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED, message)
    item = route(name, metadata={"resourceVersion": version, "generation": 1}, status=stored or {"parents": []})
    verdict = RouteVerdict((ParentVerdict(ParentRef("gw"), (finding,)),))
    return {ObjectId(Kind.HTTP_ROUTE, Key("default", name)): StatusUpdate(item, verdict)}


class Server:
    """Takes statuses as a test wants it to; remembers their messages."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.is_down = False
        self.retry_after_s = 0.0
        self.written: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.changed = threading.Condition()
        self.busy: set[Key] = set()

    def write(self, kind: Kind, item: Object, status: bytes) -> Written:
        message = msgspec.json.decode(status)["parents"][0]["conditions"][0]["message"]
        with self.changed:
            assert item.key not in self.busy, "two threads write one object"
            self.busy.add(item.key)
            self.written.append(f"{message} for {item.metadata.resource_version}")
            self.changed.notify_all()
        self.open.wait(WAIT_S)
        with self.changed:
            self.busy.discard(item.key)
            if self.is_down:
                return Written(Outcome.FAILED, "503 ServiceUnavailable", True, self.retry_after_s)
            outcome = self.outcomes.pop(0) if self.outcomes else Outcome.WRITTEN
        return Written(outcome, "for the sake of the test" if outcome is not Outcome.WRITTEN else "")

    def wait_for(self, *written: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.written) >= len(written), WAIT_S), self.written
        assert self.written[: len(written)] == [*written]


class Office:
    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.leads = True
        self.outcomes: list[str] = []
        self.noted = threading.Condition()
        self.stop = threading.Event()
        author = Author("tests.example/controller", ())
        self.left_out: list[tuple[str, ...]] = []
        self.was_asked = threading.Event()
        """Whether we lead."""
        self.queue = StatusQueue(
            server,
            author,
            stop=self.stop,
            may_write=self._may_write,
            observe=self._note,
            on_left_out=self._note_left_out,
            clock=clock,
        )

    def _may_write(self) -> bool:
        self.was_asked.set()
        return self.leads

    def _note(self, kind: str, outcome: str) -> None:
        assert kind == Kind.HTTP_ROUTE
        with self.noted:
            self.outcomes.append(outcome)
            self.noted.notify_all()

    def _note_left_out(self, id_: ObjectId, item: Object, left_out: tuple[ParentRef, ...]) -> None:
        assert id_ == ObjectId(Kind.HTTP_ROUTE, item.key)
        self.left_out.append(tuple(ref.name for ref in left_out))

    def wait_for(self, *outcomes: str) -> None:
        with self.noted:
            assert self.noted.wait_for(lambda: len(self.outcomes) >= len(outcomes), WAIT_S), self.outcomes
        assert self.outcomes[: len(outcomes)] == [*outcomes]


@contextmanager
def working(server: Server, threads: int = 2, clock: Callable[[], float] = time.monotonic) -> Iterator[Office]:
    office = Office(server, clock)
    started = [threading.Thread(target=office.queue.run, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    yield office
    office.stop.set()
    server.open.set()
    office.queue.wake()
    for thread in started:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_an_update_is_written() -> None:
    server = Server()
    with working(server) as office:
        office.queue.want(update("one"))

        office.wait_for("written")
        server.wait_for("one for 1")
        assert office.queue.depth == 0


def test_parents_left_out_of_a_full_status_are_reported_with_each_update() -> None:
    foreign = {"parentRef": {"name": "gw"}, "controllerName": "example.net/other", "conditions": []}
    item = route("web", metadata={"resourceVersion": "1"}, status={"parents": [foreign] * 32})
    full = {WEB: msgspec.structs.replace(update("one")[WEB], item=item)}
    server = Server()
    with working(server) as office:
        office.queue.want(full)
        office.wait_for("unchanged")
        office.queue.want(update("two"))
        office.wait_for("unchanged", "written")

        assert office.left_out == [("gw",), ()]


def test_while_a_write_is_under_way_only_the_newest_of_further_updates_is_kept() -> None:
    server = Server()
    server.open.clear()
    with working(server) as office:
        office.queue.want(update("one"))
        server.wait_for("one for 1")
        for number, message in enumerate(("two", "three"), start=2):
            office.queue.want(update(message, version=str(number)))
        office.queue.want(update("other", name="other"))
        server.wait_for("one for 1", "other for 1")  # the second thread is free for other objects

        server.open.set()

        server.wait_for("one for 1", "other for 1", "three for 3")
        office.wait_for("written", "written", "written")


@pytest.mark.parametrize(("count", "latest"), [(1, 2), (2, 3)])
def test_slow_writes_of_one_kind_do_not_delay_other_kinds(count: int, latest: int) -> None:
    """For example, when its webhook does not answer. All of its writes would otherwise precede later updates."""
    server, stop = Server(), threading.Event()
    queue = StatusQueue(
        server,
        Author("tests.example/c", ()),
        stop=stop,
        may_write=lambda: True,
        observe=lambda *_: None,
        on_left_out=lambda *_: None,
    )
    threads = [threading.Thread(target=queue.run, daemon=True) for _ in range(count)]
    server.open.clear()
    for name in "abcdef":
        queue.want(update(name, name=name))
    for thread in threads:
        thread.start()
    with server.changed:
        assert server.changed.wait_for(lambda: len(server.written) == len(threads), WAIT_S)
    (like,) = update("g").values()
    item = make(Kind.GRPC_ROUTE, "g", {"parentRefs": [{"name": "gw"}]}, namespace="default")
    queue.want({ObjectId(Kind.GRPC_ROUTE, item.key): msgspec.structs.replace(like, item=item)})

    server.open.set()

    with server.changed:
        assert server.changed.wait_for(lambda: len(server.written) == 7, WAIT_S)
    (place,) = [place for place, told in enumerate(server.written) if told.startswith("g ")]
    assert place <= latest, server.written
    stop.set()
    queue.wake()
    for thread in threads:
        thread.join(WAIT_S)


def test_a_newer_update_waits_for_the_retry_of_a_failed_write_unless_another_has_led_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backoff.full_jitter", lambda _cap_s: 3600.0)
    server = Server()
    server.outcomes = [Outcome.FAILED]
    with working(server, threads=1) as office:
        office.queue.want(update("one"))
        office.wait_for("failed")

        office.queue.want(update("two", version="2") | update("other", name="other"))
        office.wait_for("failed", "written")
        assert (server.written, office.queue.depth) == (["one for 1", "other for 1"], 1)

        office.queue.forget()
        office.queue.want(update("three", version="3"))
        office.wait_for("failed", "written", "written")
        assert server.written[2:] == ["three for 3"]


def test_a_failed_write_is_retried() -> None:
    server = Server()
    server.outcomes = [Outcome.FAILED, Outcome.FAILED]
    with working(server) as office:
        office.queue.want(update("one"))

        office.wait_for("failed", "failed", "written")
        server.wait_for("one for 1", "one for 1", "one for 1")


def test_while_the_server_is_down_only_one_of_the_waiting_statuses_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.is_down = True
    now_s = 100.0
    with working(server, threads=1, clock=lambda: now_s) as office:
        office.queue.want({**update("one"), **update("two", name="two"), **update("three", name="three")})
        office.wait_for("failed")
        assert office.queue.depth == 3

        server.is_down = False
        now_s += MAX_COMMON_PAUSE_S
        office.queue.wake()

        server.wait_for("one for 1", "two for 1", "three for 1", "one for 1")
        office.wait_for("failed", "written", "written", "written")
    assert caplog.messages == ["status could not be written, retrying"]


def test_a_failed_write_is_not_retried_before_the_server_s_retry_after(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.is_down, server.retry_after_s = True, 30.0
    with working(server, clock=lambda: 100.0) as office:
        office.queue.want(update("one"))
        office.wait_for("failed")

    (record,) = caplog.records
    _, fields, _ = getattr(record, FIELDS_ATTRIBUTE)
    assert fields["delay_s"] >= 30.0


@pytest.mark.parametrize("is_down", [True, False])
def test_a_success_resets_the_backoff_however_many_writes_failed_at_once(is_down: bool) -> None:
    names = ("one", "two", "three", "four")
    server = Server()
    now_s = 100.0
    with working(server, threads=len(names), clock=lambda: now_s) as office:
        for number in range(1, 11):
            server.is_down = is_down
            server.outcomes = [] if is_down else [Outcome.FAILED] * len(names)
            server.open.clear()
            server.written, office.outcomes = [], []
            for name in names:
                office.queue.want(update(name, version=str(number), name=name))
            with server.changed:
                assert server.changed.wait_for(lambda: len(server.written) == len(names), WAIT_S)
            server.open.set()
            office.wait_for(*["failed"] * len(names))

            server.is_down = False
            now_s += 2 * FIRST_PAUSE_S
            office.queue.wake()

            office.wait_for(*["failed"] * len(names), *["written"] * len(names))


@pytest.mark.parametrize("is_down", [True, False])
def test_a_failed_write_does_not_replace_a_newer_update(is_down: bool) -> None:
    server = Server()
    server.open.clear()
    server.is_down = is_down
    server.outcomes = [Outcome.FAILED]
    with working(server) as office:
        office.queue.want(update("one"))
        server.wait_for("one for 1")
        office.queue.want(update("two", version="2"))

        server.open.set()
        office.wait_for("failed")
        server.is_down = False

        server.wait_for("one for 1", "two for 2")


def test_many_failed_writes_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.outcomes = [Outcome.FAILED] * 3
    with working(server, clock=lambda: 100.0) as office:
        office.queue.want({**update("one"), **update("two", name="two"), **update("three", name="three")})

        office.wait_for("failed", "failed", "failed")

    assert caplog.messages == ["status could not be written, retrying"]


def test_repeatedly_failing_writes_are_retried_one_at_a_time_until_one_succeeds() -> None:
    """A missing permission for a kind: thousands of statuses, each of which could be retried twice a minute."""
    names = ("one", "two", "three")
    server = Server()
    server.outcomes = [Outcome.FAILED] * (len(names) + 1)
    now_s = 100.0
    with working(server, threads=1, clock=lambda: now_s) as office:
        office.queue.want({id_: each for name in names for id_, each in update(name, name=name).items()})
        office.wait_for(*["failed"] * 3)

        now_s += MAX_PAUSE_S  # all are due
        office.queue.wake()
        office.wait_for(*["failed"] * 4)
        office.queue.want(update("new", name="new"))
        office.wait_for(*["failed"] * 4, "written")

        now_s += RETRY_EVERY_S
        office.queue.wake()
        office.wait_for(*["failed"] * 4, *["written"] * 3)
    again = ("one for 1", "new for 1", "two for 1", "three for 1")
    assert server.written[3:7] == [*again]  # whether the one that failed twice is due already is a matter of chance


def test_statuses_that_wait_for_a_retry_are_not_scanned_by_each_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ten thousand statuses that may not be written, that took a third of a core permanently."""
    count, retries = 1_000, 20
    looks = 0
    due_s = StatusQueue._due_s

    def counted(queue: StatusQueue, id_: ObjectId) -> float:
        nonlocal looks
        looks += 1
        return due_s(queue, id_)

    monkeypatch.setattr(StatusQueue, "_due_s", counted)
    server = Server()
    server.outcomes = [Outcome.FAILED] * (count + retries + 100)
    with working(server, threads=4) as office:
        office.queue.want({id_: one for at in range(count) for id_, one in update("x", name=f"r{at}").items()})
        office.wait_for(*[Outcome.FAILED] * count)
        looks = 0
        office.wait_for(*[Outcome.FAILED] * (count + retries))

        assert office.queue.depth >= count - 4
        assert looks <= (retries + 1) * count


def test_after_conflicts_statuses_are_not_retried_one_at_a_time() -> None:
    names = ("one", "two", "three")
    server = Server()
    server.outcomes = [Outcome.CONFLICT] * (len(names) + 1)
    now_s = 100.0
    with working(server, threads=1, clock=lambda: now_s) as office:
        office.queue.want({id_: each for name in names for id_, each in update(name, name=name).items()})
        office.wait_for(*["conflict"] * 3)

        now_s += MAX_PAUSE_S
        office.queue.wake()

        office.wait_for(*["conflict"] * 4, "written", "written")


def test_after_conflicts_that_last_statuses_are_retried_one_at_a_time() -> None:
    """The watch is broken, so no new version arrives: ten thousand statuses made a thousand requests each second."""
    names = ("one", "two", "three")
    early = ["conflict"] * (len(names) * (BRIEF_CONFLICTS + 1))
    server = Server()
    server.outcomes = [Outcome.CONFLICT] * (len(early) + 1)
    now_s = 100.0
    with working(server, threads=1, clock=lambda: now_s) as office:
        office.queue.want({id_: each for name in names for id_, each in update(name, name=name).items()})
        for done in range(len(names), len(early) + 1, len(names)):
            office.wait_for(*early[:done])
            now_s += MAX_PAUSE_S  # all are due
            office.queue.wake()
        office.wait_for(*early, "conflict")

        office.queue.want(update("newer", name="two", version="2"))
        office.wait_for(*early, "conflict", "written")
        assert office.queue.depth == 2

        now_s += RETRY_EVERY_S + MAX_PAUSE_S
        office.queue.wake()
        office.wait_for(*early, "conflict", *["written"] * 3)
    assert server.written[len(early) + 1] == "newer for 2"


def test_after_a_conflict_the_newer_version_is_written_at_once() -> None:
    server = Server()
    server.outcomes = [Outcome.CONFLICT]
    with working(server, clock=lambda: 100.0) as office:  # the retry of the older one is never due
        office.queue.want(update("one"))
        office.wait_for("conflict")

        office.queue.want(update("two", version="2"))

        server.wait_for("one for 1", "two for 2")


def test_a_conflict_without_a_newer_version_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An intermediary before the API server may answer so."""
    server = Server()
    server.outcomes = [Outcome.CONFLICT]
    with working(server) as office:
        office.queue.want(update("one"))

        office.wait_for("conflict", "written")
    assert not caplog.messages


def test_an_invalid_status_is_logged_once_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    server.outcomes = [Outcome.INVALID, Outcome.INVALID]
    with working(server) as office:
        office.queue.want(update("one"))
        office.wait_for("invalid", "invalid", "written")
        assert office.queue.depth == 0
    assert caplog.messages == ["status refused, retrying"]


def test_a_stored_status_of_a_newer_generation_is_logged_and_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    condition = {"type": "Accepted", "status": "False", "reason": "Said", "message": "", "observedGeneration": 7}
    ours = {
        "parentRef": {"name": "gw"},
        "controllerName": "tests.example/controller",
        "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    with working(server) as office:
        office.queue.want(update("one", stored={"parents": [ours]}))
        office.wait_for("conflict")
        assert office.queue.depth == 0
    assert server.written == []
    [line] = caplog.records
    assert line.getMessage() == "status left as it is"
    _, fields, _ = getattr(line, FIELDS_ATTRIBUTE)
    assert fields == {"kind": "HTTPRoute", "name": "default/web"}


@pytest.mark.parametrize(
    ("newer", "written"),
    [(update("two"), "two for 1"), (update("one", version="2"), "one for 2")],
    ids=["status", "object"],
)
@pytest.mark.parametrize("is_in_hand", [False, True], ids=["between two attempts", "while it is tried"])
def test_after_an_invalid_status_a_newer_update_is_written_at_once(
    newer: dict[ObjectId, StatusUpdate], written: str, *, is_in_hand: bool
) -> None:
    """A user who has seen the refusal and edits the object does not wait for the next attempt."""
    server = Server()
    server.outcomes = [Outcome.INVALID]
    with working(server, clock=lambda: 0.0) as office:  # no pause ends
        if is_in_hand:
            server.open.clear()
        office.queue.want(update("one"))
        server.wait_for("one for 1")
        if not is_in_hand:
            office.wait_for("invalid")
            office.queue.want(update("one"))

        office.queue.want(newer)
        server.open.set()

        office.wait_for("invalid", "written")
        assert server.written == ["one for 1", written]
        assert office.queue.depth == 0


@pytest.mark.parametrize("is_in_hand", [False, True], ids=["between two attempts", "while it is tried"])
def test_the_status_of_a_deleted_object_is_not_retried(*, is_in_hand: bool) -> None:
    """An API server that forbids the write does so for objects that do not exist, too."""
    server = Server()
    server.outcomes = [Outcome.FAILED]
    with working(server, clock=lambda: 0.0) as office:  # it is not tried again before its object has gone
        if is_in_hand:
            server.open.clear()
        office.queue.want(update("one"))
        server.wait_for("one for 1")
        if not is_in_hand:
            office.wait_for("failed")

        office.queue.want({WEB: None})
        server.open.set()

        office.wait_for("failed")
        assert office.queue.depth == 0
        office.queue.want(update("anew"))
        office.wait_for("failed", "written")
        assert server.written == ["one for 1", "anew for 1"]


def test_updates_that_are_forgotten_are_not_written() -> None:
    server = Server()
    with working(server) as office:
        office.leads = False
        office.queue.want(update("one"))

        office.queue.forget()
        office.leads = True
        office.queue.want(update("other", name="other"))

        server.wait_for("other for 1")
        office.wait_for("written")
        assert len(server.written) == 1


@pytest.mark.parametrize("is_down", [False, True], ids=["this write fails", "every write fails"])
def test_an_update_that_is_being_written_when_we_lose_the_lead_is_not_tried_again(is_down: bool) -> None:
    """The server that does not answer is often the reason for the loss, and when we lead again, the status is old."""
    server = Server()
    server.is_down, server.outcomes = is_down, [Outcome.FAILED]
    server.open.clear()
    with working(server, threads=1) as office:
        office.queue.want(update("one"))
        server.wait_for("one for 1")

        office.leads = False
        office.queue.forget()
        server.open.set()
        office.wait_for(Outcome.FAILED)

        assert office.queue.depth == 0


def test_while_another_leads_updates_wait() -> None:
    server = Server()
    with working(server, threads=1) as office:
        assert office.was_asked.wait(WAIT_S)
        office.leads = False
        office.was_asked.clear()
        office.queue.want(update("one"))
        assert office.was_asked.wait(WAIT_S)
        assert office.queue.depth == 1
        assert not server.written

        office.leads = True
        office.queue.wake()

        server.wait_for("one for 1")
