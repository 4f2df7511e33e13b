"""A failed call releases all that it held, such as a reply of many MiB, without the garbage collector.

Errors and the frames that they came through keep each other, and garbage is looked for rarely: a controller that kept
failing made the daemon grow by hundreds of MiB.
"""

import gc
import json
import threading
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from daemonkit.causes import forget_frames
from daemonkit.secret import Secret
from dnswebhook.app import Limits, WebhookApp
from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import StoreError
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.provider import Policy, Provider
from dnswebhook.readiness import Readiness
from dnswebhook.stores.unifi.store import UnifiStore
from tests.dnswebhook.stores.unifi.conftest import OpenStore, api, controller, open_store, store
from tests.support.controller import Controller, Huge, Reply, Reset, Truncate, faults
from tests.support.controller.faults import Effect
from tests.support.lettinggo import lets_go, uncollected
from tests.support.memory_store import WAIT_S
from tests.support.webhook_site import MAX_BODY_BYTES, NEW, OTHER

__all__ = ["OpenStore", "api", "controller", "open_store", "store"]

EFFECTS: dict[str, Callable[[], Effect]] = {
    "400": lambda: Reply(status=400, body='{"code":"api.err.Anything"}'),
    "403": lambda: Reply(status=403, body='{"code":"api.err.Anything"}'),
    "500": lambda: Reply(status=500),
    "a page": faults.html_page,
    "garbage": faults.garbage,
    "an object for an array": faults.object_instead_of_array,
    "too much": lambda: Huge(size_bytes=65 * 1024 * 1024),
    "half": Truncate,
    "a reset": Reset,
}


def app_on(store: UnifiStore) -> WebhookApp:
    metrics = Metrics(CollectorRegistry())
    provider = Provider(store, Policy(DomainFilter(), ProtectedNames()), metrics, Journal())
    return WebhookApp(provider, Limits(MAX_BODY_BYTES, WAIT_S), metrics, threading.Event(), lambda _: None)


def replies_alive() -> int:
    """Counts replies of a controller, whole or not. Tables of other tests hold some too."""
    return sum(type(each).__name__ in ("Reply", "WholeReply", "_Sink") for each in gc.get_objects())


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_failed_listing_leaves_no_reply_in_memory(store: UnifiStore, controller: Controller, effect: str) -> None:
    app = app_on(store)
    controller.fault(EFFECTS[effect](), on="list")
    gc.collect()
    before = replies_alive()

    assert lets_go(app, "/records")
    assert replies_alive() == before


def test_a_listing_while_the_controller_is_away_leaves_no_garbage(store: UnifiStore, controller: Controller) -> None:
    app = app_on(store)
    controller.stop()
    with uncollected() as garbage:
        lets_go(app, "/records")

        assert not garbage("dnswebhook")


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("operation", ["create", "delete"])
def test_failed_changes_leave_no_reply_in_memory(
    store: UnifiStore, controller: Controller, operation: str, effect: str
) -> None:
    app = app_on(store)
    assert lets_go(app, "/records", "POST", json.dumps({"create": [OTHER]}).encode())
    controller.fault(EFFECTS[effect](), on=operation)
    gc.collect()
    before = replies_alive()
    gc.disable()
    try:
        assert lets_go(app, "/records", "POST", json.dumps({"create": [NEW], "delete": [OTHER]}).encode())
        assert replies_alive() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("effect", ["403", "500"])
def test_a_failed_probe_leaves_no_reply_in_memory(store: UnifiStore, controller: Controller, effect: str) -> None:
    controller.fault(EFFECTS[effect]())
    stop = threading.Event()

    def end(_: bool) -> None:
        stop.set()
        readiness.wake()

    readiness = Readiness(store, stop, end)
    gc.collect()
    before = replies_alive()
    gc.disable()
    try:
        readiness.run()
        assert replies_alive() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("effect", ["400", "403", "too much", "half"])
def test_a_login_that_fails_while_the_controller_is_identified_leaves_nothing_of_it_in_memory(
    controller: Controller, open_store: OpenStore, effect: str
) -> None:
    """The password is among it, and a probe tries anew every few seconds."""
    store = open_store(controller, user=controller.username, password=Secret(controller.password))
    controller.fault(faults.html_page(200), on="list")  # to those who are not logged in
    controller.fault(EFFECTS[effect](), on="login")
    with uncollected() as garbage:
        with pytest.raises(StoreError) as told:
            store.probe(Deadline.after(WAIT_S))
        forget_frames(told.value)

        assert not [each for each in garbage("dnswebhook") if not isinstance(each, Exception)]


def test_a_removal_that_cannot_be_confirmed_leaves_no_reply_in_memory(
    controller: Controller, open_store: OpenStore
) -> None:
    """The store is asked once more whether a row is gone before a CNAME takes its place."""
    alias = {"dnsName": OTHER["dnsName"], "recordType": "CNAME", "targets": ["x.example.net"]}
    app = app_on(open_store(controller, api="v2"))
    controller.quirks.accepts_cname_overlap = True
    assert lets_go(app, "/records", "POST", json.dumps({"create": [OTHER]}).encode())
    unconfirmed = controller.fault(Truncate(), on="delete", nth=2)
    with uncollected() as garbage:
        lets_go(app, "/records", "POST", json.dumps({"updateOld": [OTHER], "updateNew": [alias]}).encode())

        assert unconfirmed.strikes
        assert not [each for each in garbage("dnswebhook") if not isinstance(each, Exception)]
