"""The cached verdict about the store: what `/readyz` answers, and what triggers another probe."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from dnswebhook.errors import (
    CapabilitiesUnknown,
    CredentialsRefused,
    RateLimited,
    StoreError,
    StoreFailed,
    StoreTimeout,
    StoreUnreachable,
)
from dnswebhook.readiness import NOT_PROBED, PROBE_INTERVAL_S, STOPPING, Readiness
from tests.proxy.site import eventually
from tests.support.memory_store import WAIT_S, MemoryStore


class Watch:
    """A readiness with its probing thread, and the verdicts that it gave."""

    def __init__(self, store: MemoryStore, stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()
        self.verdicts: list[bool] = []
        self._changed = threading.Condition()
        self.readiness = Readiness(store, self.stop, self._note)

    def _note(self, is_ready: bool) -> None:
        with self._changed:
            self.verdicts.append(is_ready)
            self._changed.notify_all()

    def wait_for_verdicts(self, count: int) -> list[bool]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.verdicts) >= count, WAIT_S), self.verdicts
            return list(self.verdicts)

    @contextmanager
    def running(self) -> Iterator[Readiness]:
        thread = threading.Thread(target=self.readiness.run)
        thread.start()
        try:
            yield self.readiness
        finally:
            self.stop.set()
            self.readiness.wake()
            thread.join(PROBE_INTERVAL_S / 2)
            assert not thread.is_alive()


def test_nothing_is_ready_before_the_first_probe() -> None:
    assert NOT_PROBED == Watch(MemoryStore()).readiness.problem()


def test_a_store_that_answers_is_ready() -> None:
    watch = Watch(MemoryStore())

    with watch.running() as readiness:
        assert [True] == watch.wait_for_verdicts(1)
        assert readiness.problem() is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StoreUnreachable("secret detail"), "the record store cannot be reached"),
        (StoreTimeout("secret detail"), "the record store does not answer in time"),
        (CredentialsRefused("secret detail"), "the record store refuses the credentials"),
        (RateLimited("secret detail", 5), "the record store asks to slow down"),
        (StoreFailed("secret detail"), "the record store cannot be written"),
        (CapabilitiesUnknown("secret detail"), "the API of the network controller is not known yet"),
        (StoreError("secret detail"), "the record store cannot be reached"),
    ],
)
def test_each_failure_has_a_fixed_text_and_is_logged(
    error: StoreError, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    store.fail("probe", error)
    watch = Watch(store)

    with caplog.at_level(logging.INFO), watch.running() as readiness:
        assert [False] == watch.wait_for_verdicts(1)
        assert text == readiness.problem()
        eventually(lambda: bool(caplog.records), "it has been logged: the verdict is there before")
    assert ["record store is not ready"] == [record.getMessage() for record in caplog.records]


def test_a_failed_call_advances_the_next_probe_and_the_store_becomes_ready_again() -> None:
    store = MemoryStore()
    store.fail("probe", StoreUnreachable("gone"), times=1)
    watch = Watch(store)

    with watch.running() as readiness:
        watch.wait_for_verdicts(1)
        readiness.probe_soon()

        assert [False, True] == watch.wait_for_verdicts(2)
        assert readiness.problem() is None
    assert 2 == store.probes


def test_a_failed_call_advances_one_probe_only() -> None:
    class NoPause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return self.is_set()

    store = MemoryStore()
    watch = Watch(store, NoPause())

    with watch.running() as readiness:
        for count in range(1, 6):
            watch.wait_for_verdicts(count)
            readiness.probe_soon()
        watch.wait_for_verdicts(6)
    assert 6 == store.probes


def test_refused_credentials_make_the_store_not_ready_without_a_probe() -> None:
    watch = Watch(MemoryStore())

    watch.readiness.credentials_refused()

    assert "the record store refuses the credentials" == watch.readiness.problem()
    assert [False] == watch.verdicts


def test_a_verdict_is_logged_only_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(MemoryStore())

    with caplog.at_level(logging.INFO):
        for _ in range(3):
            watch.readiness.credentials_refused()

    assert 1 == len(caplog.records)


def test_the_log_says_when_a_store_is_ready_again(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.fail("probe", StoreUnreachable("gone"), times=1)
    watch = Watch(store)

    with caplog.at_level(logging.INFO), watch.running() as readiness:
        for count in (1, 2, 3):
            watch.wait_for_verdicts(count)
            readiness.probe_soon()
    assert ["record store is not ready", "record store is ready"] == [record.getMessage() for record in caplog.records]


def test_a_process_that_stops_is_not_ready() -> None:
    watch = Watch(MemoryStore())
    with watch.running() as readiness:
        watch.wait_for_verdicts(1)

    assert STOPPING == readiness.problem()


def test_a_stop_ends_the_wait_for_the_next_probe() -> None:
    """`running` joins the thread, and waits half an interval for that."""
    store = MemoryStore()
    watch = Watch(store)

    with watch.running():
        watch.wait_for_verdicts(1)

    assert 1 == store.probes


def test_a_wake_call_just_before_the_next_probe_is_not_lost() -> None:
    """The daemon calls `wake` only once, before it stops."""

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            is_set = super().wait(timeout)
            watch.readiness.wake()
            return is_set

    watch = Watch(MemoryStore(), Stop())
    thread = threading.Thread(target=watch.readiness.run, daemon=True)
    thread.start()
    watch.wait_for_verdicts(1)
    watch.readiness.probe_soon()
    watch.wait_for_verdicts(2)

    watch.stop.set()

    thread.join(PROBE_INTERVAL_S / 2)
    assert not thread.is_alive()


def test_of_two_verdicts_at_once_the_last_one_told_is_the_one_that_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the metric and the log would say until the next change that the store is ready."""
    verdicts: list[bool] = []
    is_first_told, has_second_told = threading.Event(), threading.Event()

    def note(is_ready: bool) -> None:
        if is_ready:
            is_first_told.set()
            has_second_told.wait(0.5)
        verdicts.append(is_ready)
        if not is_ready:
            has_second_told.set()

    stop = threading.Event()
    readiness = Readiness(MemoryStore(), stop, note)
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(1) as pool:
        probing = pool.submit(readiness.run)
        assert is_first_told.wait(WAIT_S)
        readiness.credentials_refused()
        problem = readiness.problem()
        stop.set()
        readiness.wake()
        probing.result(WAIT_S)

    assert problem == "the record store refuses the credentials"
    assert verdicts == [True, False]
    assert caplog.messages == ["record store is ready", "record store is not ready"]
