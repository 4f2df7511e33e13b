"""Responses that a healthy API server gives rarely, and a broken one or a proxy in between might give."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from daemonkit.logformat import FIELDS_ATTRIBUTE
from tests.e2e.controller.fronts import Front
from tests.kube.processes import wait_until
from tests.tunnelgw.sources.kubernetes.running import DEADLINE_S, QUICK, World, running
from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi, Send, listing, route
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.watch import Timing
from tunnelgw.sources.references import WITH_DATA
from tunnelgw.sources.store import Store

GROUP = "/apis/gateway.networking.k8s.io/v1"
ROUTES = f"{GROUP}/httproutes"
SERVICES = "/api/v1/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EXPIRED = {"code": 410, "reason": "Expired", "message": "too old resource version"}


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


def names(world: World) -> set[str]:
    assert world.change is not None
    return {key.name for key in world.change.snapshot.all(Kind.HTTP_ROUTE)}


def fields_of(caplog: pytest.LogCaptureFixture, message: str, kind: str) -> list[dict[str, object]]:
    """The fields of each such line about the kind."""
    found = [getattr(record, FIELDS_ATTRIBUTE)[1] for record in caplog.records if record.getMessage() == message]
    return [fields for fields in found if fields["kind"] == kind]


def query(api: ScriptedApi) -> dict[str, str]:
    return api.asked.get(timeout=60)


def test_a_list_that_expires_between_two_pages_starts_over(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.put((200, listing([route("old")], "5", "page-2")))
    api.lists.put((410, EXPIRED))
    api.lists.put((200, listing([route("a")], "9", "page-2")))
    api.lists.put((200, listing([route("b")], "9")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the whole list")

        assert names(world) == {"a", "b"}
        asked = [query(api) for _ in range(5)]
        assert [each.get("continue") for each in asked] == [None, "page-2", None, "page-2", None]
        assert asked[4]["resourceVersion"] == "9"
        assert (Kind.HTTP_ROUTE, Restart.EXPIRED) in world.restarts


def test_objects_stay_until_the_list_after_an_expired_watch_is_complete(api: ScriptedApi, tmp_path: Path) -> None:
    api.lists.put((200, listing([route("a"), route("b")], "5")))
    api.watches.put(lambda send: send({"type": "ERROR", "object": EXPIRED}))
    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the first list")
        for _ in range(2):
            query(api)
        query(api)  # the second list is requested, but not answered yet
        assert not world.store.wait(0.0)

        api.lists.put((200, listing([route("b"), route("c")], "9")))
        api.watches.put(api.stay)

        world.until(lambda _: names(world) == {"b", "c"}, "the second list")


@pytest.mark.parametrize("has_chunks", [True, False])
def test_an_event_is_read_at_once_with_any_framing_of_the_response(
    api: ScriptedApi, tmp_path: Path, has_chunks: bool
) -> None:
    """A proxy in between may answer in HTTP/1.0."""

    def one_event(send: Send) -> None:
        send({"type": "ADDED", "object": route("new", "6")})
        api.stay(send)

    api.has_chunks = has_chunks
    api.lists.put((200, listing([], "5")))
    api.watches.put(one_event)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda _: names(world) == {"new"}, "the event")


def test_watches_that_are_cut_while_idle_restart_without_long_waits(api: ScriptedApi, tmp_path: Path) -> None:
    """As a load balancer cuts connections that are idle for 20 s. Changes during a wait would be seen late."""

    def cut(_send: Send) -> None:
        assert not api.is_over.wait(0.1)
        raise ConnectionError("silent for too long")

    api.lists.put((200, listing([], "5")))
    for _ in range(20):
        api.watches.put(cut)
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), Timing(watch_s=0.1, first_wait_s=0.01, longest_wait_s=3600.0)):
        assert [query(api).get("resourceVersion") for _ in range(22)] == [None, *["5"] * 21]


def test_a_bookmark_advances_the_version_of_the_next_watch(api: ScriptedApi, tmp_path: Path) -> None:
    def bookmark(send: Send) -> None:
        send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}})

    api.lists.put((200, listing([], "5")))
    api.watches.put(bookmark)
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        assert [query(api).get("resourceVersion") for _ in range(3)] == [None, "5", "77"]
        assert Kind.HTTP_ROUTE not in dict(world.restarts), "a watch that ends after news has not failed"


@pytest.mark.parametrize(
    "rest",
    [
        b'{"type":"ADDED","object":{"metadata":{"na',
        b"not JSON\n",
        b"[]\n",
        b'{"type":5}\n',
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"BOOKMARK","object":[]}\n',
        b'{"type":"ERROR","object":[]}\n',
    ],
)
def test_a_malformed_event_changes_nothing_and_the_watch_continues(
    api: ScriptedApi, tmp_path: Path, rest: bytes
) -> None:
    def broken(send: Send) -> None:
        send({"type": "ADDED", "object": route("a", "6")})
        send(rest)

    def healthy(send: Send) -> None:
        send({"type": "ADDED", "object": route("b", "7")})
        api.stay(send)

    api.lists.put((200, listing([], "5")))
    api.watches.put(broken)
    api.watches.put(healthy)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: Key("default", "b") in change.snapshot.all(Kind.HTTP_ROUTE), "the second watch")

        assert names(world) == {"a", "b"}
        assert [query(api).get("resourceVersion") for _ in range(3)] == [None, "5", "6"]


def test_an_undecodable_object_is_left_out_and_reported_without_affecting_others(
    api: ScriptedApi, tmp_path: Path
) -> None:
    bad = route("bad", spec={"hostnames": "no list"})
    api.lists.put((200, listing([bad, route("good")], "5")))
    api.watches.put(lambda send: send({"type": "MODIFIED", "object": route("bad", "6")}))
    api.watches.put(
        lambda send: send({"type": "MODIFIED", "object": {**bad, "metadata": route("good", "7")["metadata"]}})
    )
    api.watches.put(lambda send: send({"type": "DELETED", "object": route("good", "8")}))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        change = world.until(lambda change: True, "the list")
        assert names(world) <= {"good", "bad"}

        world.until(lambda _: names(world) == {"bad"}, "the corrected one, and not the one that was broken and deleted")
        change = world.until(lambda change: not change.unreadable, "nothing unreadable")
        assert Entry(Kind.HTTP_ROUTE, Key("default", "good")) in world.changed
        assert [query(api).get("resourceVersion") for _ in range(5)] == [None, "5", "6", "7", "8"]
        assert change.snapshot.all(Kind.HTTP_ROUTE).keys() == {Key("default", "bad")}


def test_an_undecodable_object_that_is_deleted_is_not_reported_any_more(api: ScriptedApi, tmp_path: Path) -> None:
    bad = route("bad", "6", spec={"hostnames": "no list"})
    api.lists.put((200, listing([bad, route("good")], "6")))
    api.watches.put(
        lambda send: send({"type": "DELETED", "object": {**bad, "metadata": route("bad", "7")["metadata"]}})
    )
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: names(world) == {"good"} and not change.unreadable, "the end of the report")


@pytest.mark.parametrize("is_seen_in_a_watch", [False, True])
def test_the_report_of_an_undecodable_object_has_its_generation_and_the_path_of_the_field(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_seen_in_a_watch: bool
) -> None:
    bad = route("bad", "6", spec={"hostnames": "no list"})
    if is_seen_in_a_watch:
        api.lists.put((200, listing([], "5")))
        api.watches.put(lambda send: send({"type": "ADDED", "object": bad}))
    else:
        api.lists.put((200, listing([bad], "6")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        change = world.until(lambda change: bool(change.unreadable), "the object")

        [(entry, problem)] = change.unreadable.items()
        assert entry == Entry(Kind.HTTP_ROUTE, Key("default", "bad"))
        assert problem.generation == 3
        assert "$.spec.hostnames" in problem.reason
        (said,) = fields_of(caplog, "object left out", "HTTPRoute")
        assert said["name"] == "default/bad"


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"<html>proxy</html>"),
        (429, {"code": 429, "reason": "TooManyRequests", "message": "storage is initializing"}),
        (403, {"code": 403, "reason": "Forbidden", "message": "no"}),
        (200, b"<html>login</html>"),
        (200, {"items": 5}),
        (200, {"kind": "Status", "metadata": {}, "status": "Success"}),
        (302, b"<html>login</html>"),
        (599, b""),
        (401, {"code": 401, "reason": "Unauthorized"}),
    ],
)
def test_a_failed_list_is_retried_until_it_succeeds(
    api: ScriptedApi, tmp_path: Path, answer: tuple[int, object]
) -> None:
    for _ in range(3):
        api.lists.put(answer)
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the list")

        assert names(world) == {"a"}


@pytest.mark.parametrize(
    ("answer", "told", "level"),
    [
        ((403, {"code": 403, "reason": "Forbidden"}), "watch forbidden, retrying", "ERROR"),
        ((429, {"code": 429, "reason": "TooManyRequests"}), "watch refused, retrying", "WARNING"),
        ((200, b"<html>login</html>"), "watch disconnected, retrying", "INFO"),
    ],
)
def test_a_list_that_fails_repeatedly_is_logged_once(
    api: ScriptedApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: tuple[int, object],
    told: str,
    level: str,
) -> None:
    caplog.set_level("INFO", "tunnelgw")
    for _ in range(3):
        api.lists.put(answer)
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)):
        for _ in range(5):
            query(api)

    said = [(record.getMessage(), record.levelname) for record in caplog.records if "retrying" in record.getMessage()]
    assert said == [(told, level)]


def told_delay_s(caplog: pytest.LogCaptureFixture, msg: str) -> float:
    """The delay in the only line with this message."""
    (record,) = (record for record in caplog.records if record.getMessage() == msg)
    _, fields, _ = getattr(record, FIELDS_ATTRIBUTE)
    return float(fields["delay_s"])


def test_retry_after_is_obeyed(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backoff.full_jitter", lambda cap_s: cap_s / 2)  # a random wait may be close to zero
    caplog.set_level("INFO", "tunnelgw")
    api.retry_after = "30"
    for _ in range(1000):
        api.lists.put((429, {"code": 429, "reason": "TooManyRequests"}))

    with running(api.kubeconfig(tmp_path)) as world:
        query(api)
        assert world.store.wait_listed({*Kind} - {Kind.HTTP_ROUTE}, DEADLINE_S), "others went on"
        # The line is logged after this, even if the source stops in between.
        assert wait_until(lambda: (Kind.HTTP_ROUTE, Restart.REFUSED) in world.restarts, DEADLINE_S)

    assert 30 < told_delay_s(caplog, "watch refused, retrying") < 31
    assert api.asked.empty()


def test_a_server_that_refuses_after_an_outage_is_asked_again_soon(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an API server does for a second or two when it starts, after waits have grown long."""
    monkeypatch.setattr("backoff.full_jitter", lambda cap_s: cap_s)
    caplog.set_level("INFO", "tunnelgw")
    for _ in range(5):
        api.lists.put((200, b"<html>away</html>"))
    api.lists.put((429, {"code": 429, "reason": "TooManyRequests"}))
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)):
        for _ in range(8):
            query(api)

    assert told_delay_s(caplog, "watch refused, retrying") == told_delay_s(caplog, "watch disconnected, retrying")


@contextmanager
def without_services(api: ScriptedApi, tmp_path: Path) -> Iterator[World]:
    """The watch of Services has broken, and is refused; then another watch has received HTTPRoute default/a."""
    is_cut = threading.Event()

    def break_off(_send: Send) -> None:
        is_cut.wait(DEADLINE_S)

    def tell_of_a_route(send: Send) -> None:
        is_cut.wait(DEADLINE_S)
        send({"type": "ADDED", "object": route("a", "6")})
        api.stay(send)

    api.refusals[SERVICES] = break_off
    api.lists.put((200, listing([], "5")))
    api.watches.put(tell_of_a_route)
    with running(api.kubeconfig(tmp_path), store=Store(patience_s=3600.0)) as world:
        world.until(lambda change: True, "the first listing")
        api.refusals[SERVICES] = (503, {"code": 503, "reason": "ServiceUnavailable"})
        is_cut.set()
        # The store learns of a restart a moment after this list.
        assert wait_until(lambda: world.restarts.count((Kind.SERVICE, Restart.REFUSED)) >= 2, DEADLINE_S)
        assert wait_until(lambda: world.store.counts()[Kind.HTTP_ROUTE, True] == 1, DEADLINE_S)
        yield world


def test_events_wait_for_broken_watches_of_other_kinds(api: ScriptedApi, tmp_path: Path) -> None:
    """A new object may refer to a new object of the other kind."""
    with without_services(api, tmp_path) as world:
        assert not world.store.wait(0.0)

        api.refusals[SERVICES] = api.stay

        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))


def test_events_that_a_broken_watch_has_missed_are_taken_together(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that has waited for them may refer to the last of them."""
    missed = 300

    def tell_of_services(send: Send) -> None:
        for number in range(missed):
            metadata = {"name": f"s{number}", "namespace": "default", "resourceVersion": str(number + 7)}
            send({"type": "ADDED", "object": {"metadata": metadata, "spec": {}}})
        api.stay(send)

    class Patient(threading.Timer):
        """Its time begins when all of them have arrived, however slow this machine is."""

        def run(self) -> None:
            wait_until(lambda: self.finished.is_set() or counted() == missed, DEADLINE_S)
            super().run()

    with without_services(api, tmp_path) as world:

        def counted() -> int:
            return world.store.counts()[Kind.SERVICE, True]

        monkeypatch.setattr(threading, "Timer", Patient)
        api.refusals[SERVICES] = tell_of_services

        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))

        assert world.change is not None
        assert len(world.change.snapshot.all(Kind.SERVICE)) == missed


def test_a_brief_lack_of_permission_is_not_logged(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server that has just started refuses so for a moment; nobody needs to act."""
    for _ in range(3):
        api.lists.put((403, {"code": 403, "reason": "Forbidden"}))
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), Timing(first_wait_s=0.05, longest_wait_s=0.5)) as world:
        for _ in range(5):
            query(api)

        assert (Kind.HTTP_ROUTE, Restart.FORBIDDEN) in world.restarts
    assert not [record for record in caplog.records if "forbidden" in record.getMessage()]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_failure_of_all_watches_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    caplog.set_level("INFO", "tunnelgw")
    kubeconfig = tmp_path / "kubeconfig"
    with Front() as front:
        if is_there:
            front.answer(lambda _: True, 503, b'{"code":503,"reason":"ServiceUnavailable"}')
        point_at(kubeconfig, front.url)
        with running(kubeconfig) as world:
            awaited = {*Kind} - WITH_DATA
            assert wait_until(lambda: {kind for kind, _ in world.restarts} >= awaited, DEADLINE_S)

    told = "watch refused, retrying" if is_there else "watch disconnected, retrying"
    assert [record.getMessage() for record in caplog.records if "watch" in record.getMessage()] == [told]


def point_at(kubeconfig: Path, url: str) -> None:
    document = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    kubeconfig.write_text(json.dumps(document))


def test_a_kind_that_may_be_listed_but_not_watched_is_listed_now_and_then(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ten_seconds_a_request = SimpleNamespace(monotonic=lambda: 10.0 * api.asked.qsize())
    monkeypatch.setattr("tunnelgw.sources.kubernetes.watch.time", ten_seconds_a_request)
    for _ in range(20):
        api.lists.put((200, listing([], "5")))
        api.watches.put((403, {"code": 403, "reason": "Forbidden"}))

    with running(api.kubeconfig(tmp_path), msgspec.structs.replace(QUICK, longest_wait_s=0.05, poll_s=30.0)):
        assert wait_until(lambda: api.asked.qsize() >= 12, DEADLINE_S)

    asked = "".join("W" if "watch" in query(api) else "L" for _ in range(12))
    assert asked == "LWWWWLWWLWWL"


def test_a_refused_list_is_not_requested_again_before_its_wait_is_over(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backoff.full_jitter", lambda cap_s: cap_s)
    for _ in range(1000):
        api.lists.put((503, {"code": 503}))

    with running(api.kubeconfig(tmp_path), Timing(first_wait_s=3600.0, longest_wait_s=3600.0)) as world:
        query(api)
        assert world.store.wait_listed({*Kind} - {Kind.HTTP_ROUTE}, DEADLINE_S), "others went on"

    assert api.asked.empty()


def test_a_watch_requests_bookmarks_and_a_timeout(api: ScriptedApi, tmp_path: Path) -> None:
    """Without bookmarks its version grows old while idle, and without a timeout a lost connection lasts."""
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)):
        _, watch = query(api), query(api)

    assert (watch["watch"], watch["allowWatchBookmarks"]) == ("1", "true")
    assert 55 <= int(watch["timeoutSeconds"]) <= 61


@pytest.mark.parametrize(
    ("code", "begins_at"),
    [
        (401, "5"),
        (403, "5"),
        (429, "5"),
        (500, "5"),
        (503, "5"),
        (400, None),
        (404, None),
        (410, None),
        (504, None),
    ],
)
def test_a_refused_watch_leads_to_a_list_only_if_its_version_may_be_at_fault(
    api: ScriptedApi, tmp_path: Path, code: int, begins_at: str | None
) -> None:
    api.lists.put((200, listing([], "5")))
    api.watches.put(lambda send: send({"type": "ERROR", "object": {"code": code}}))
    api.lists.put((200, listing([], "6")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)):
        assert [query(api).get("resourceVersion") for _ in range(3)] == [None, "5", begins_at]


def test_a_built_in_kind_that_is_missing_is_logged_and_waited_for(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Something else answers, for example because the kubeconfig has another path."""
    services = "/api/v1/services"
    api.refusals[services] = (404, b"404 page not found")
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        assert wait_until(lambda: world.restarts.count((Kind.SERVICE, Restart.REFUSED)) >= 2, DEADLINE_S)
        assert "watch refused, retrying" in caplog.messages

        del api.refusals[services]

        world.until(lambda change: True, "the whole list")
        assert names(world) == {"a"}


def test_discovery_that_fails_is_retried(api: ScriptedApi, tmp_path: Path) -> None:
    """The objects of a kind that is taken for absent would be removed."""
    api.refusals[GROUP] = (503, {"code": 503, "reason": "ServiceUnavailable"})
    with running(api.kubeconfig(tmp_path)) as world:
        assert wait_until(lambda: world.restarts.count((Kind.HTTP_ROUTE, Restart.REFUSED)) >= 2, DEADLINE_S)
        assert Kind.HTTP_ROUTE in world.store.unlisted

        api.lists.put((200, listing([route("a")], "5")))
        api.watches.put(api.stay)
        del api.refusals[GROUP]

        world.until(lambda change: True, "the whole list")
        assert names(world) == {"a"}


def test_a_kind_that_is_served_before_discovery_lists_it_is_not_taken_for_absent(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """As on an API server that has just started; else the controller would remove all routes from proxies."""
    api.refusals[GROUP] = (404, {"code": 404, "reason": "NotFound"})
    for _ in range(2):  # looked for, and listed
        api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the first listing")

        assert names(world) == {"a"}


def test_a_kind_that_is_served_in_other_versions_only_is_absent_and_logged_with_them(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For example BackendTLSPolicy of Gateway API v1.1 to v1.3: users wrote objects that have no effect."""
    caplog.set_level("INFO")
    not_found = (404, {"code": 404, "reason": "NotFound"})
    group = GROUP.rpartition("/")[0]
    api.refusals[GROUP] = 200, {"resources": [{"name": "others"}]}
    api.refusals[f"{group}/v1alpha2"] = 200, {"resources": [{"name": "httproutes"}]}
    api.refusals[group] = 200, {"versions": [{"version": "v1"}, {"version": "v1alpha2"}, {"version": "v1alpha3"}]}
    api.refusals[f"{group}/v1alpha3"] = 200, {"resources": [{"name": "backendtlspolicies"}]}
    api.refusals[ROUTES] = not_found

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the first listing, without the kind")
        said = "kind is served in other versions only, its objects are not read"
        assert wait_until(lambda: bool(fields_of(caplog, said, "HTTPRoute")), DEADLINE_S)
        assert fields_of(caplog, said, "HTTPRoute")[0]["versions"] == ["v1alpha2"]

        known, asked_before = api.refusals[group], api.requested[group]
        api.refusals[group] = 503, {"code": 503, "reason": "ServiceUnavailable"}
        assert wait_until(lambda: api.requested[group] > asked_before + 20, DEADLINE_S)
        api.refusals[group] = known
        asked_before = api.requested[group]
        assert wait_until(lambda: api.requested[group] > asked_before + 20, DEADLINE_S)

        api.lists.put((200, listing([route("a")], "5")))
        api.watches.put(api.stay)
        del api.refusals[ROUTES], api.refusals[GROUP]

        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))
        assert wait_until(lambda: bool(fields_of(caplog, "kind is installed now", "HTTPRoute")), DEADLINE_S)
        assert len(fields_of(caplog, said, "HTTPRoute")) == 1
        assert not fields_of(caplog, "kind is not installed, waiting for its CRD", "HTTPRoute")


@pytest.mark.parametrize("is_replaced_soon", [True, False])
@pytest.mark.parametrize("is_last_of_its_version", [True, False])
def test_objects_of_a_kind_that_is_served_in_other_versions_only_are_kept_for_a_while(
    api: ScriptedApi, tmp_path: Path, is_replaced_soon: bool, is_last_of_its_version: bool
) -> None:
    """They still exist: somebody may be replacing the definition of the kind by another release's. The list of a
    group's versions may come from another part of the server, which hears of that later."""
    group = GROUP.rpartition("/")[0]
    is_over = threading.Event()

    def one_event(send: Send) -> None:
        send({"type": "ADDED", "object": route("b", "6")})
        is_over.wait(DEADLINE_S)

    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(one_event)
    timing = msgspec.structs.replace(QUICK, unserved_s=3600.0 if is_replaced_soon else 0.01)
    with running(api.kubeconfig(tmp_path), timing) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "b"))
        api.refusals[group] = 200, {"versions": [{"version": "v1"}, {"version": "v1beta1"}]}
        gone = 404, {"code": 404, "reason": "NotFound"}
        api.refusals[GROUP] = gone if is_last_of_its_version else (200, {"resources": [{"name": "gateways"}]})
        api.refusals[f"{group}/v1beta1"] = 200, {"resources": [{"name": "httproutes"}]}
        api.refusals[ROUTES] = gone
        is_over.set()

        if is_replaced_soon:
            assert wait_until(lambda: (Kind.HTTP_ROUTE, Restart.REMOVED) in world.restarts, DEADLINE_S)
            asked_before = api.requested[f"{group}/v1beta1"]
            assert wait_until(lambda: api.requested[f"{group}/v1beta1"] > asked_before + 5, DEADLINE_S)
            assert world.store.counts()[Kind.HTTP_ROUTE, True] == 2
        else:
            world.until_gone(Kind.HTTP_ROUTE, Key("default", "b"))

        for _ in range(2):  # a search that has begun already may be answered, too
            api.lists.put((200, listing([route("b"), route("c")], "9")))
        api.watches.put(api.stay)
        del api.refusals[ROUTES], api.refusals[GROUP]
        world.until_here(Kind.HTTP_ROUTE, Key("default", "c"))
        assert names(world) == {"b", "c"}


def test_objects_of_a_kind_that_is_served_in_no_version_any_more_are_removed_at_once(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """The server has deleted them with the definition of their kind."""
    group = GROUP.rpartition("/")[0]
    is_over = threading.Event()
    api.lists.put((200, listing([route("a")], "5")))

    def stay_until_then(_send: Send) -> None:
        is_over.wait(DEADLINE_S)

    api.watches.put(stay_until_then)
    with running(api.kubeconfig(tmp_path), msgspec.structs.replace(QUICK, unserved_s=3600.0)) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))

        api.refusals[group] = 200, {"versions": [{"version": "v1"}]}
        api.refusals[GROUP] = 200, {"resources": [{"name": "gateways"}]}
        api.refusals[ROUTES] = 404, {"code": 404, "reason": "NotFound"}
        is_over.set()

        world.until_gone(Kind.HTTP_ROUTE, Key("default", "a"))


def test_a_kind_that_can_be_neither_discovered_nor_listed_counts_as_absent(api: ScriptedApi, tmp_path: Path) -> None:
    """An account without rights on the kind cannot see whether it is there."""
    api.refusals[GROUP] = (404, {"code": 404, "reason": "NotFound"})
    api.refusals[ROUTES] = (403, {"code": 403, "reason": "Forbidden"})

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: True, "the first listing, without the kind")

        assert names(world) == set()


@pytest.mark.parametrize("is_seen_in_a_watch", [True, False])
def test_a_missing_kind_is_looked_for_when_a_crd_is_created(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen_in_a_watch: bool
) -> None:
    monkeypatch.setattr("backoff.full_jitter", lambda _: 0.01)
    patient = Timing(first_wait_s=3600.0, longest_wait_s=3600.0, poll_s=3600.0)
    is_installed = threading.Event()

    def definition(send: Send) -> None:
        is_installed.wait(DEADLINE_S)
        send({"type": "ADDED", "object": {"metadata": {"name": "httproutes", "resourceVersion": "9"}}})
        api.stay(send)

    api.refusals[GROUP] = api.refusals[ROUTES] = (404, {"code": 404, "reason": "NotFound"})
    api.refusals[CRDS] = definition if is_seen_in_a_watch else (503, {"code": 503})
    with running(api.kubeconfig(tmp_path), patient) as world:
        awaited = {Kind.HTTP_ROUTE, Kind.CUSTOM_RESOURCE_DEFINITION} if is_seen_in_a_watch else {Kind.HTTP_ROUTE}
        assert world.store.wait_listed(awaited, DEADLINE_S)

        # The first list of CRDs triggers discovery too: it may find no name, and then find the kind served.
        for _ in range(2):
            api.lists.put((200, listing([route("a")], "5")))
        api.watches.put(api.stay)
        del api.refusals[GROUP], api.refusals[ROUTES]
        if not is_seen_in_a_watch:
            del api.refusals[CRDS]
        is_installed.set()

        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))


DEFINITION = {"metadata": {"name": "httproutes.gateway.networking.k8s.io", "resourceVersion": "9"}, "spec": {}}
SLOW_SEARCH = Timing(first_wait_s=0.05, longest_wait_s=0.5, poll_s=3600.0)


@contextmanager
def with_a_new_definition(
    api: ScriptedApi, tmp_path: Path, timing: Timing, before: Callable[[], None] = lambda: None
) -> Iterator[World]:
    """The definition of HTTPRoute has come, which is not served yet; then another watch has received a Service."""
    is_installed = threading.Event()
    store = Store(patience_s=3600.0)

    def definition(send: Send) -> None:
        is_installed.wait(DEADLINE_S)
        send({"type": "ADDED", "object": DEFINITION})
        api.stay(send)

    def service(send: Send) -> None:
        assert wait_until(lambda: store.counts()[Kind.CUSTOM_RESOURCE_DEFINITION, True] == 1, DEADLINE_S)
        send({"type": "ADDED", "object": {"metadata": route("web", "6")["metadata"], "spec": {}}})
        api.stay(send)

    api.refusals[GROUP] = api.refusals[ROUTES] = (404, {"code": 404, "reason": "NotFound"})
    api.refusals[CRDS] = definition
    api.refusals[SERVICES] = service
    with running(api.kubeconfig(tmp_path), timing, store) as world:
        world.until(lambda change: True, "the first listing, without the kind")
        before()
        is_installed.set()
        assert wait_until(lambda: store.counts()[Kind.SERVICE, True] == 1, DEADLINE_S)
        yield world


@pytest.mark.parametrize("is_listed_in_part", [False, True])
def test_events_wait_for_a_kind_whose_definition_has_just_been_created(
    api: ScriptedApi, tmp_path: Path, is_listed_in_part: bool
) -> None:
    """The kinds of a bundle are found one after the other, and their objects may refer to each other. For a moment,
    discovery may name only some versions of a kind."""
    if is_listed_in_part:
        group = GROUP.rpartition("/")[0]
        api.refusals[group] = 200, {"versions": [{"version": "v1beta1"}]}
        api.refusals[f"{group}/v1beta1"] = 200, {"resources": [{"name": "httproutes"}]}

    frequent_search = Timing(first_wait_s=0.05, longest_wait_s=0.4, poll_s=3600.0)
    with with_a_new_definition(api, tmp_path, frequent_search) as world:
        asked_before = api.requested[GROUP]
        # Each kind of the group asks, twice in a search.
        assert wait_until(lambda: api.requested[GROUP] > asked_before + 60, DEADLINE_S)
        assert not world.store.wait(0.0)

        for _ in range(2):  # a search that has begun already may be answered, too
            api.lists.put((200, listing([route("a")], "9")))
        api.watches.put(api.stay)
        api.refusals[GROUP] = 200, {"resources": [{"name": "httproutes"}]}
        del api.refusals[ROUTES]

        world.until_here(Kind.SERVICE, Key("default", "web"))
        assert names(world) == {"a"}


LONG_MISSING = Timing(first_wait_s=0.05, longest_wait_s=0.4, poll_s=0.8)
"""After some searches, a kind is searched for as rarely as one that has been missing for minutes."""
SEARCHES = 8


def test_events_wait_for_a_kind_that_was_missing_for_long_while_it_is_searched_for_again(
    api: ScriptedApi, tmp_path: Path
) -> None:
    group = GROUP.rpartition("/")[0]
    held_from: list[int] = []
    kinds = sum(resource.is_optional and resource.path.startswith(group) for resource in RESOURCES.values())

    def miss_for_long() -> None:
        assert wait_until(lambda: api.requested[group] >= SEARCHES * kinds, DEADLINE_S)
        held_from.append(api.hold(group))

    with with_a_new_definition(api, tmp_path, LONG_MISSING, miss_for_long) as world:
        assert wait_until(lambda: api.requested[group] >= held_from[0] + kinds, DEADLINE_S)

        assert not world.store.wait(0.0)
        api.held.pop(group).release(kinds)


def test_events_wait_for_a_kind_that_was_missing_for_long_if_its_definition_comes_during_a_search(
    api: ScriptedApi, tmp_path: Path
) -> None:
    requests_of_a_search = 2

    def begin_a_search() -> None:
        assert wait_until(lambda: api.requested[ROUTES] >= SEARCHES * requests_of_a_search, DEADLINE_S)
        requested_before = api.hold(ROUTES)
        assert wait_until(lambda: api.requested[ROUTES] > requested_before, DEADLINE_S)

    with with_a_new_definition(api, tmp_path, LONG_MISSING, begin_a_search) as world:
        requested_before = api.requested[ROUTES]
        api.held[ROUTES].release(requests_of_a_search)
        assert wait_until(lambda: api.requested[ROUTES] >= requested_before + requests_of_a_search, DEADLINE_S)

        assert not world.store.wait(0.0)
        api.held.pop(ROUTES).release(requests_of_a_search)


@pytest.mark.parametrize("is_served_otherwise", [True, False])
def test_events_do_not_wait_for_a_kind_that_its_definition_does_not_bring(
    api: ScriptedApi, tmp_path: Path, is_served_otherwise: bool
) -> None:
    """It has other versions only, or another definition has its names already, so that it is never served."""
    if is_served_otherwise:
        group = GROUP.rpartition("/")[0]
        api.refusals[group] = 200, {"versions": [{"version": "v1beta1"}]}
        api.refusals[f"{group}/v1beta1"] = 200, {"resources": [{"name": "httproutes"}]}

    with with_a_new_definition(api, tmp_path, SLOW_SEARCH if is_served_otherwise else QUICK) as world:
        change = world.until(lambda change: bool(change.snapshot.all(Kind.SERVICE)), "the Service")

        assert change.snapshot.all(Kind.HTTP_ROUTE) == {}


def test_a_kind_whose_definition_has_changed_is_listed_at_once_and_again_later(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """Not all servers of a cluster know the new definition at once."""
    is_watched = threading.Event()
    store = Store()

    def definitions(send: Send) -> None:
        is_watched.wait(DEADLINE_S)
        for generation in (1, 2):
            send({"type": "MODIFIED", "object": {"metadata": {**DEFINITION["metadata"], "generation": generation}}})
        send({"type": "ADDED", "object": {"metadata": {"name": "others.example.org", "resourceVersion": "10"}}})
        api.stay(send)

    def one_event(send: Send) -> None:
        is_watched.set()
        assert wait_until(lambda: store.counts()[Kind.CUSTOM_RESOURCE_DEFINITION, True] == 2, DEADLINE_S)
        send({"type": "ADDED", "object": route("a", "6")})
        api.stay(send)

    api.refusals[CRDS] = definitions
    for version in ("5", "7", "9"):
        api.lists.put((200, listing([], version)))
    api.watches.put(one_event)
    api.watches.put(lambda send: send({"type": "ADDED", "object": route("a", "8")}))
    api.watches.put(api.stay)
    with running(api.kubeconfig(tmp_path), store=store):
        assert [query(api).get("resourceVersion") for _ in range(5)] == [None, "5", None, "7", None]


def test_a_version_newer_than_that_of_the_server_leads_to_a_list(api: ScriptedApi, tmp_path: Path) -> None:
    too_new = {"code": 504, "reason": "Timeout", "message": "Too large resource version: 99, current: 7"}
    api.lists.put((200, listing([route("a")], "99")))
    api.watches.put(lambda send: send({"type": "ERROR", "object": too_new}))
    api.lists.put((200, listing([route("b")], "7")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until(lambda change: Key("default", "b") in change.snapshot.all(Kind.HTTP_ROUTE), "the restored objects")

        assert names(world) == {"b"}


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"", id="ended too soon"),
        pytest.param(b'{"type":"ERROR","object":{"code":503}}\n', id="the server is away for a while"),
        pytest.param(b"not JSON\n", id="broken off"),
    ],
)
def test_a_server_with_an_older_version_than_before_an_interruption_is_listed_again(
    api: ScriptedApi, tmp_path: Path, rest: bytes
) -> None:
    def interrupted(send: Send) -> None:
        send({"type": "ADDED", "object": route("b", "101")})
        api.newest = "20"
        if rest:
            send(rest)

    api.lists.put((200, listing([route("a")], "100")))
    api.watches.put(interrupted)
    api.lists.put((200, listing([route("restored")], "20")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "restored"))

        assert names(world) == {"restored"}
        assert [query(api).get("resourceVersion") for _ in range(4)] == [None, "100", None, "20"]


@pytest.mark.parametrize("newest", ["5", "6", "of-no-order"])
def test_after_an_interruption_the_watch_continues_unless_the_server_s_version_is_older(
    api: ScriptedApi, tmp_path: Path, newest: str
) -> None:
    api.newest = newest
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(lambda send: send(b"not JSON\n"))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path)):
        assert [query(api).get("resourceVersion") for _ in range(3)] == [None, "5", "5"]


def test_after_a_watch_that_lasted_as_long_as_requested_the_server_s_version_is_not_compared(
    api: ScriptedApi, tmp_path: Path
) -> None:
    """It would cost a request of each kind every minute."""
    api.newest = "1"
    api.lists.put((200, listing([], "5")))
    api.watches.put(lambda send: send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}}))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), Timing(watch_s=1.0)):
        assert [query(api).get("resourceVersion") for _ in range(3)] == [None, "5", "6"]


def test_a_server_that_ends_every_watch_at_once_is_asked_again_after_a_wait(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = SimpleNamespace(monotonic=lambda: 0.0)  # however slow this machine is
    monkeypatch.setattr("tunnelgw.sources.kubernetes.watch.time", at_once)
    api.lists.put((200, listing([], "5")))
    for _ in range(3):
        api.watches.put(lambda send: None)
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), QUICK) as world:
        for _ in range(5):
            query(api)

        assert world.restarts.count((Kind.HTTP_ROUTE, Restart.DISCONNECTED)) == 3


def test_a_server_that_ends_every_watch_after_a_bookmark_without_news_is_asked_again_after_waits_that_grow(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = SimpleNamespace(monotonic=lambda: 0.0)  # however slow this machine is
    monkeypatch.setattr("tunnelgw.sources.kubernetes.watch.time", at_once)
    longest: list[float] = []

    def no_jitter(cap_s: float) -> float:
        longest.append(cap_s)
        return 0.0

    monkeypatch.setattr("backoff.full_jitter", no_jitter)
    api.lists.put((200, listing([], "5")))
    for _ in range(3):
        api.watches.put(lambda send: send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), QUICK):
        for _ in range(5):
            query(api)

    assert longest == [0.05, 0.1, 0.2]


def test_a_list_whose_pages_repeat_is_started_over(api: ScriptedApi, tmp_path: Path) -> None:
    for _ in range(2):
        api.lists.put((200, listing([route("a")], "5", "next")))
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), QUICK) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))

        assert [query(api).get("continue") for _ in range(3)] == [None, "next", None]
        assert world.restarts.count((Kind.HTTP_ROUTE, Restart.DISCONNECTED)) == 1


def test_a_list_whose_pages_repeat_under_new_names_is_started_over(api: ScriptedApi, tmp_path: Path) -> None:
    for number in range(200):
        api.lists.put((200, listing([route("a")], "5", f"page-{number}")))

    with running(api.kubeconfig(tmp_path), QUICK) as world:
        asked = [query(api).get("continue") for _ in range(150)]

        assert asked.count(None) == 2
        assert world.restarts.count((Kind.HTTP_ROUTE, Restart.DISCONNECTED)) == 1


def test_secrets_and_config_maps_are_listed_in_smaller_pages(api: ScriptedApi, tmp_path: Path) -> None:
    """Each of them can be a megabyte."""
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), Timing(page_size=7, page_size_with_data=3)) as world:
        world.until(lambda change: True, "the whole list")

    limits = [api.limits[f"/api/v1/{plural}"] for plural in ("services", "secrets", "configmaps")]
    assert limits == ["7", "3", "3"]


def test_a_list_may_have_empty_pages(api: ScriptedApi, tmp_path: Path) -> None:
    """If the server has filtered out all objects of a page."""
    for number in range(90):
        api.lists.put((200, listing([], "5", f"page-{number}")))
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), QUICK) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))

        assert world.restarts == []


@pytest.mark.parametrize("metadata", [{}, {"name": "b", "namespace": "default"}])
@pytest.mark.parametrize("type_", ["BOOKMARK", "MODIFIED", "DELETED"])
def test_after_an_event_without_a_version_the_watch_continues_from_the_last_one(
    api: ScriptedApi, tmp_path: Path, type_: str, metadata: dict[str, str]
) -> None:
    """A watch from no version at all begins with what there is then: it would not tell of what has been deleted."""
    api.lists.put((200, listing([route("a")], "5")))
    api.watches.put(lambda send: send({"type": type_, "object": {"metadata": metadata, "spec": {}}}))
    api.watches.put(api.stay)

    with running(api.kubeconfig(tmp_path), QUICK) as world:
        world.until_here(Kind.HTTP_ROUTE, Key("default", "a"))
        versions = [query(api).get("resourceVersion") for _ in range(3)]

        assert versions == [None, "5", "5"]
        assert world.restarts.count((Kind.HTTP_ROUTE, Restart.DISCONNECTED)) == 1


@pytest.mark.parametrize("code", [410, 504, 400])
def test_waits_grow_while_no_list_leads_to_a_watch(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    longest: list[float] = []

    def no_jitter(cap_s: float) -> float:
        longest.append(cap_s)
        return 0.0

    monkeypatch.setattr("backoff.full_jitter", no_jitter)
    refused = {"type": "ERROR", "object": {"code": code, "message": "no watch from there"}}

    def healthy_for_a_while(send: Send) -> None:
        send({"type": "ADDED", "object": route("a", "6")})
        send(refused)

    for watch in (*[lambda send: send(refused)] * 3, healthy_for_a_while, lambda send: send(refused), api.stay):
        api.lists.put((200, listing([], "5")))
        api.watches.put(watch)

    with running(api.kubeconfig(tmp_path), QUICK):
        for _ in range(12):
            query(api)

    assert longest == [0.05, 0.1, 0.2, 0.05, 0.1]
