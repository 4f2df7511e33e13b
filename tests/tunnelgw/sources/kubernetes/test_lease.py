"""One of several replicas leads, with the rights of the chart's Role on a real API server."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import requests
from kubernetes.client import Configuration

from daemonkit.logformat import JsonFormatter
from tests.e2e.controller.fronts import Asked, Front
from tests.tunnelgw.sources.cluster import HOME, Cluster
from tests.tunnelgw.sources.kubernetes.relay import Relay
from tunnelgw.model.meta import Key
from tunnelgw.sources.kubernetes import lease
from tunnelgw.sources.kubernetes.failures import Refused
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.lease import Leadership, LeaseTiming
from tunnelgw.sources.kubernetes.server import ApiServer

DEADLINE_S = 60.0
QUICK = LeaseTiming(duration_s=6, limit_s=4.0, retry_s=0.3, request_s=2.0)
LASTING = LeaseTiming(duration_s=90, limit_s=60.0, retry_s=0.1, request_s=2.0)
"""Nobody loses it for slowness."""


class Replica:
    def __init__(
        self,
        kubeconfig: Path,
        key: Key,
        name: str,
        changed: threading.Condition,
        timing: LeaseTiming,
        may_give_back: Callable[[], bool],
    ) -> None:
        self.stop = threading.Event()
        self.name = name
        self.news: list[bool] = []
        self._changed = changed
        self._server = ApiServer(lambda: load_configuration(str(kubeconfig)))
        self.leadership = Leadership(self._server, key, name, self.stop, self._on_change, timing, may_give_back)
        self._thread = threading.Thread(target=self.leadership.run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self._server.close()

    def _on_change(self, is_held: bool) -> None:
        with self._changed:
            self.news.append(is_held)
            self._changed.notify_all()


@contextmanager
def replicas(
    key: Key,
    *kubeconfigs: Path,
    timing: LeaseTiming = QUICK,
    may_give_back: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[list[Replica], Callable[[Callable[[], bool]], None]]]:
    """They run until the end of the block. The second value waits until a condition holds."""
    changed = threading.Condition()
    with ExitStack() as stack:
        several = []
        for kubeconfig in kubeconfigs:
            replica = Replica(kubeconfig, key, f"replica-{uuid.uuid4()}", changed, timing, may_give_back)
            stack.callback(replica.end)
            several.append(replica)

        def until(is_so: Callable[[], bool]) -> None:
            deadline_s = time.monotonic() + DEADLINE_S
            with changed:
                while not is_so():
                    assert time.monotonic() < deadline_s, f"news: {[replica.news for replica in several]}"
                    changed.wait(0.02)

        yield several, until


def is_renewal(asked: Asked) -> bool:
    return asked.method == "PUT"


def version_of(cluster: Cluster, key: Key) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"
    return str(cluster.admin.call("GET", path)["metadata"]["resourceVersion"])


def uid_of(cluster: Cluster, path: str) -> str:
    """The UID of the Lease, empty while there is none."""
    try:
        return str(cluster.admin.call("GET", path)["metadata"]["uid"])
    except requests.HTTPError:
        return ""


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged about leaders: the message and the holder of the Lease."""
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [(line["msg"], line["holder"]) for line in lines]


@pytest.fixture
def key() -> Key:
    return Key(HOME, f"lease-{uuid.uuid4().hex[:8]}")


def test_a_leader_that_stops_hands_the_lease_over_at_once(cluster: Cluster, key: Key) -> None:
    with replicas(key, cluster.kubeconfig, cluster.kubeconfig, timing=LASTING) as (several, until):
        until(lambda: any(replica.leadership.is_held() for replica in several))
        leader, standby = sorted(several, key=lambda replica: not replica.leadership.is_held())

        leader.end()

        until(standby.leadership.is_held)
        assert leader.news[-1] is False
        assert not leader.leadership.is_held()
        assert standby.leadership.holder == standby.name


def test_a_standby_logs_the_name_of_the_leader_once(
    cluster: Cluster, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tunnelgw.sources.kubernetes")
    with replicas(key, cluster.kubeconfig, timing=LASTING) as ((leader,), until):
        until(lambda: said(caplog) == [("leading", leader.name)])  # logged a moment after it holds the Lease
        with replicas(key, cluster.kubeconfig, timing=LASTING) as ((standby,), until_standby):
            until_standby(lambda: len(said(caplog)) > 1)
            renewed = version_of(cluster, key)
            until_standby(lambda: version_of(cluster, key) != renewed)
            assert said(caplog) == [("leading", leader.name), ("not leading", leader.name)]

            leader.end()

            until_standby(standby.leadership.is_held)
            # It leads as soon as the API server has responded, and logs that right after. The former leader may log
            # even later that it has released the Lease.
            until_standby(lambda: ("leading", standby.name) in said(caplog))


def test_a_leader_that_cannot_renew_stops_leading_before_the_standby_begins(
    cluster: Cluster, key: Key, tmp_path: Path
) -> None:
    url = urlsplit(cluster.environment.server)
    with (
        Relay((str(url.hostname), url.port or 0)) as relay,
        replicas(key, cluster.through(relay.address, tmp_path)) as ([cut_off], until_first),
    ):
        until_first(cut_off.leadership.is_held)
        with replicas(key, cluster.kubeconfig) as ([standby], until):
            relay.refuse()

            def has_taken_over() -> bool:
                is_held = standby.leadership.is_held()
                # In this order, since the replica that is cut off cannot begin to lead in between.
                assert not (is_held and cut_off.leadership.is_held())
                return is_held

            until(has_taken_over)
            until_first(lambda: cut_off.news[-1] is False)
            relay.accept()
            until_first(lambda: cut_off.leadership.holder == standby.name)
            assert not cut_off.leadership.is_held()


def test_a_lease_counts_from_the_request_not_from_a_late_response(cluster: Cluster, key: Key, tmp_path: Path) -> None:
    brief = LeaseTiming(duration_s=2, limit_s=0.5, retry_s=DEADLINE_S, request_s=DEADLINE_S)
    with Front(cluster.environment.server, str(cluster.environment.pki.authority)) as front:
        slow = front.hold(lambda asked: asked.method == "POST")
        with replicas(key, cluster.through(front.url, tmp_path), timing=brief) as ([late], until):
            slow.wait()
            since_s = time.monotonic()
            until(lambda: time.monotonic() - since_s > brief.limit_s)

            slow.release()

            until(lambda: late.leadership.holder == late.name)
            late.end()
            assert not late.news


def test_a_standby_respects_the_duration_that_the_holder_has_written(
    cluster: Cluster, key: Key, tmp_path: Path
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases"
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
    cluster.admin.call("POST", path, {"metadata": {"name": key.name}, "spec": spec})
    hasty = LeaseTiming(duration_s=0, retry_s=0.05)
    with (
        Front(cluster.environment.server, str(cluster.environment.pki.authority)) as front,
        replicas(key, cluster.through(front.url, tmp_path), timing=hasty) as ([standby], _),
    ):
        front.wait_for_more(lambda asked: asked.method == "GET", 5)

        assert front.count(is_renewal) == 0
        assert standby.leadership.holder == "other"


def test_a_lease_tells_acquire_time_and_number_of_transitions(cluster: Cluster, key: Key) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"

    def spec() -> dict[str, Any]:
        found: dict[str, Any] = cluster.admin.call("GET", path)["spec"]
        return found

    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([first], until):
        until(first.leadership.is_held)
        before = spec()
        until(lambda: spec()["renewTime"] != before["renewTime"])
        assert spec()["acquireTime"] == before["acquireTime"]
        assert spec().get("leaseTransitions", 0) == 0
    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([second], until):
        until(second.leadership.is_held)
        assert spec()["acquireTime"] != before["acquireTime"]
        assert spec()["leaseTransitions"] == 1


def test_a_renewal_whose_response_is_lost_does_not_depose_the_leader(
    cluster: Cluster, key: Key, tmp_path: Path
) -> None:
    renewals = 0

    def is_second(asked: Asked) -> bool:
        nonlocal renewals
        renewals += asked.method == "PUT"
        return asked.method == "PUT" and renewals == 2

    with Front(cluster.environment.server, str(cluster.environment.pki.authority)) as front:
        lost, following = front.hold(is_second), front.hold(lambda asked: asked.method == "PUT" and renewals == 3)
        with replicas(key, cluster.through(front.url, tmp_path), timing=LASTING) as ([leader], until):
            lost.wait()
            following.wait()
            lost.release()
            until(lambda: front.count(is_renewal) >= 2)
            following.release()

            until(lambda: front.count(is_renewal) >= 6)

            assert leader.news == [True]
            assert leader.leadership.holder == leader.name


def test_a_leader_whose_lease_has_another_holder_stops_leading_and_logs_each_that_follows(
    cluster: Cluster, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tunnelgw.sources.kubernetes")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"

    def hand_to(holder: str) -> None:
        cluster.admin.call("PATCH", path, {"spec": {"holderIdentity": holder}}, "application/merge-patch+json")

    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([leader], until):
        until(leader.leadership.is_held)

        hand_to("other")

        until(lambda: leader.news == [True, False])
        assert leader.leadership.holder == "other"
        until(lambda: ("not leading", "other") in said(caplog))
        hand_to("third")
        until(lambda: ("not leading", "third") in said(caplog))
        assert leader.news == [True, False]


@pytest.mark.parametrize("other", ["other", ""])
def test_a_stopping_leader_releases_a_lease_edited_since_but_not_that_of_another_holder(
    cluster: Cluster, key: Key, other: str
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"
    unaware = msgspec.structs.replace(LASTING, retry_s=DEADLINE_S)
    with replicas(key, cluster.kubeconfig, timing=unaware) as ([leader], until):
        until(lambda: leader.news == [True])
        written = {"spec": {"holderIdentity": other or leader.name}, "metadata": {"labels": {"written": "since"}}}
        cluster.admin.call("PATCH", path, written, "application/merge-patch+json")

        leader.end()

        assert cluster.admin.call("GET", path)["spec"].get("holderIdentity", "") == other


def test_what_others_wrote_into_the_metadata_of_the_lease_stays(cluster: Cluster, key: Key) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "owner", "uid": str(uuid.uuid4())}
    written = {
        "labels": {"app.kubernetes.io/managed-by": "other"},
        "annotations": {"example.org/note": "keep"},
        "ownerReferences": [{**owner, "blockOwnerDeletion": False}],
        "finalizers": ["example.org/keep"],
    }

    def metadata() -> dict[str, Any]:
        found: dict[str, Any] = cluster.admin.call("GET", path)["metadata"]
        return {name: found.get(name) for name in written}

    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([leader], until):
        until(leader.leadership.is_held)
        cluster.admin.call("PATCH", path, {"metadata": written}, "application/merge-patch+json")
        before = version_of(cluster, key)
        until(lambda: version_of(cluster, key) != before)
        assert metadata() == written, "after a renewal"
    assert metadata() == written, "after the release"
    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([follower], until):
        until(follower.leadership.is_held)
        assert metadata() == written, "after a takeover"
    cluster.admin.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_request_about_the_lease_that_is_not_answered_is_given_up_and_repeated(
    cluster: Cluster, key: Key, tmp_path: Path, method: str
) -> None:
    """Otherwise nobody would lead for as long as a load balancer keeps the connection."""
    impatient = msgspec.structs.replace(LASTING, request_s=1.0)
    asked_for: list[str] = []

    def is_first(asked: Asked) -> bool:
        asked_for.append(asked.method)
        return asked.method == method and asked_for.count(method) == 1

    with Front(cluster.environment.server, str(cluster.environment.pki.authority)) as front:
        unanswered = front.hold(is_first)
        with replicas(key, cluster.through(front.url, tmp_path), timing=impatient) as ([replica], until):
            unanswered.wait()

            until(lambda: asked_for.count(method) > 1 and replica.leadership.is_held())


def test_a_leader_whose_lease_was_deleted_creates_it_again_and_keeps_leading(cluster: Cluster, key: Key) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"
    with replicas(key, cluster.kubeconfig, timing=LASTING) as ([leader], until):
        until(leader.leadership.is_held)
        before = cluster.admin.call("GET", path)["metadata"]["uid"]

        cluster.admin.call("DELETE", path)

        until(lambda: uid_of(cluster, path) not in ("", before))
        assert leader.news == [True]


def test_a_leader_that_may_not_release_its_lease_lets_it_expire(cluster: Cluster, key: Key) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{key.name}"
    with replicas(key, cluster.kubeconfig, may_give_back=lambda: False) as ([leader], until):
        until(leader.leadership.is_held)

        leader.end()

        assert not leader.leadership.is_held()
        assert cluster.admin.call("GET", path)["spec"]["holderIdentity"] == leader.name
        with replicas(key, cluster.kubeconfig) as ([standby], until_next):
            until_next(standby.leadership.is_held)


def test_takeover_takes_less_than_25_seconds_and_the_old_leader_has_stopped_by_then() -> None:
    timing = LeaseTiming()

    # A renewal is seen one retry late; then comes the duration; then another retry and a request.
    assert timing.retry_s + timing.duration_s + timing.retry_s + timing.request_s < 25
    assert timing.limit_s + timing.request_s < timing.duration_s
    assert timing.retry_s + timing.request_s < timing.limit_s, "one failed renewal is not the end"


def test_leadership_has_no_gap_when_each_response_takes_four_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, news, asked = [0.0], list[bool](), 0
    monkeypatch.setattr(lease, "_now_s", lambda: clock[0])

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += timeout or 0.0
            return self.is_set()

    stop = Stop()

    class Server:
        def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
            nonlocal asked
            asked += 1
            if asked == 9:
                stop.set()
            assert timeout_s > 4.0
            clock[0] += 4.0
            if method == "GET":  # the previous leader has released it
                return msgspec.json.encode(
                    {"metadata": {"name": "lease", "namespace": HOME}, "spec": {"holderIdentity": ""}}
                )
            return body or b""

    Leadership(Server(), Key(HOME, "lease"), "replica", stop, news.append).run()

    assert news == [True, False]  # the latter by stopping


def test_a_lease_that_expires_during_its_renewal_is_reported_lost_then_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, stop, seen, news = [0.0], threading.Event(), list[bool](), list[bool]()
    monkeypatch.setattr(lease, "_now_s", lambda: clock[0])

    class Server:
        def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
            if method == "GET":
                raise Refused(HTTPStatus.NOT_FOUND, "NotFound", path)
            if method == "PUT" and not seen:
                clock[0] = QUICK.limit_s
                seen.append(leadership.is_held())
            elif method == "PUT":
                stop.set()
            else:
                clock[0] = 1.0  # so that the first renewal begins later than the acquisition
            return body or b""

    leadership = Leadership(Server(), Key(HOME, "lease"), "replica", stop, news.append, QUICK)
    leadership.run()

    assert seen == [False]
    assert news == [True, False, True, False]


def test_a_leader_is_told_of_the_expiry_of_its_lease_at_once() -> None:
    stop, lost, news = threading.Event(), threading.Event(), list[bool]()

    class Server:
        def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
            if method == "GET":
                raise Refused(HTTPStatus.NOT_FOUND, "NotFound", path)
            return body or b""

    def on_change(is_held: bool) -> None:
        news.append(is_held)
        if not is_held:
            lost.set()

    timing = LeaseTiming(duration_s=90, limit_s=1.0, retry_s=90 * DEADLINE_S, request_s=2.0)
    leadership = Leadership(Server(), Key(HOME, "lease"), "replica", stop, on_change, timing)
    thread = threading.Thread(target=leadership.run, daemon=True)
    thread.start()

    assert lost.wait(DEADLINE_S)
    assert news[:2] == [True, False]
    stop.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("said_s", "turn_s", "is_renewed", "turns_until_taken"),
    [
        (6, 4.0, True, None),
        (6, 4.0, False, 3),
        (0, 4.0, False, 4),  # without a duration, that of the standby counts
        (3600, 4.0, False, None),
    ],
)
def test_a_standby_takes_over_only_a_lease_that_did_not_change_for_its_duration(
    monkeypatch: pytest.MonkeyPatch, said_s: int, turn_s: float, is_renewed: bool, turns_until_taken: int | None
) -> None:
    clock, stop, looks = [0.0], threading.Event(), 0
    monkeypatch.setattr(lease, "_now_s", lambda: clock[0])

    class Server:
        def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
            nonlocal looks
            if method == "PUT":
                stop.set()
                return body or b""
            looks += 1
            clock[0] += turn_s
            if looks == 9:
                stop.set()
            version = str(looks if is_renewed else 1)
            spec = {"holderIdentity": "other", **({"leaseDurationSeconds": said_s} if said_s else {})}
            return msgspec.json.encode(
                {"metadata": {"name": "lease", "namespace": HOME, "resourceVersion": version}, "spec": spec}
            )

    timing = LeaseTiming(duration_s=10, limit_s=8.0, retry_s=0.0, request_s=2.0)
    news: list[bool] = []
    Leadership(Server(), Key(HOME, "lease"), "replica", stop, news.append, timing).run()

    assert (looks if news else None) == turns_until_taken


def test_a_lease_that_may_not_be_read_is_not_written() -> None:
    stop, asked = threading.Event(), list[str]()

    class Server:
        def request(self, method: str, path: str, *, body: bytes | None = None, timeout_s: float) -> bytes:
            asked.append(method)
            if len(asked) == 3:
                stop.set()
            raise Refused(HTTPStatus.FORBIDDEN, "Forbidden", path)

    timing = msgspec.structs.replace(LASTING, retry_s=0.0)
    Leadership(Server(), Key(HOME, "lease"), "replica", stop, timing=timing).run()

    assert asked == ["GET"] * 3


def test_a_response_that_is_not_a_lease_is_requested_again() -> None:
    configuration = Configuration()
    stop, asked = threading.Event(), threading.Semaphore(0)

    def is_meant(_: Asked) -> bool:
        asked.release()
        return True

    with Front() as front:
        configuration.host = front.url
        front.answer(is_meant, 200, b"<html>log in first</html>")
        server = ApiServer(lambda: configuration)
        leadership = Leadership(server, Key(HOME, "lease"), "replica", stop, lambda _: None, QUICK)
        thread = threading.Thread(target=leadership.run, daemon=True)
        thread.start()
        for _ in range(2):
            assert asked.acquire(timeout=DEADLINE_S)

        assert not leadership.is_held()
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        server.close()
