"""Requests to the config API do not affect traffic."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterator

import pytest
import requests

from proxy.supervisor.api import MAX_TAKING
from tests.proxy.site import DEADLINE_S, TOKEN, Backend, Proxy, ask, eventually, fixed, forwarding, reserved_port
from tests.proxy.supervisor.begunput import BegunPut


class Load:
    """Requests on new and on kept connections, one after another in each thread."""

    def __init__(self, port: int) -> None:
        self.served = 0
        self.failures: list[str] = []
        self._port = port
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(4)]

    def _run(self, keeps: bool) -> None:
        with requests.Session() as session:
            while not self._stop.is_set():
                try:
                    response = (
                        session.get(f"http://127.0.0.1:{self._port}/", timeout=DEADLINE_S) if keeps else ask(self._port)
                    )
                    if response.status_code == 200:
                        self.served += 1
                    else:
                        self.failures.append(f"{response.status_code} {response.text}")
                except requests.RequestException as error:
                    self.failures.append(repr(error))

    def go_on(self) -> None:
        """Until some more requests have been served."""
        wanted = self.served + 50
        eventually(lambda: self.served >= wanted or bool(self.failures), "requests are served")

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Proxy, int, Backend]]:
    with Backend() as backend, reserved_port() as port, Proxy("--workers", "2") as proxy:
        proxy.use(forwarding(port, backend.address))
        yield proxy, port, backend


def test_garbage_is_refused_while_requests_are_served(site: tuple[Proxy, int, Backend]) -> None:
    proxy, port, _ = site
    with Load(port) as load:
        load.go_on()
        for body in (
            b"{",
            b"\x00" * 100_000,
            b"[" * 100_000,
            b'{"routes":[' + b'{"hostnames":["NO"]},' * 20_000 + b"{}]}",
        ):
            assert proxy.put(body).status_code == 400
            load.go_on()

    assert load.failures == []


def test_64_mib_and_one_byte_are_refused_while_requests_are_served(site: tuple[Proxy, int, Backend]) -> None:
    proxy, port, _ = site
    with Load(port) as load:
        load.go_on()
        # Chunked: the size is known only when all of it has arrived.
        with contextlib.suppress(requests.ConnectionError):
            response = requests.put(
                proxy.config_url,
                data=iter([bytes(1024 * 1024)] * 64 + [b"x"]),
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
                timeout=DEADLINE_S,
            )
            assert response.status_code == 413
        load.go_on()

    assert load.failures == []
    assert proxy.readiness()[0] == 200


def test_slow_uploads_of_documents_do_not_block_the_api(site: tuple[Proxy, int, Backend]) -> None:
    proxy, port, backend = site
    document = forwarding(port, backend.address)
    with contextlib.ExitStack() as slow:
        # Their 100 (Continue) shows that they are being received.
        begun = [slow.enter_context(BegunPut(proxy, document)) for _ in range(MAX_TAKING)]
        one_too_many = slow.enter_context(BegunPut(proxy, document, is_asked=False))
        refused = [proxy.put(document) for _ in range(20)]
        readiness = proxy.readiness()
        answers = [put.finish() for put in begun]
        unasked = one_too_many.answer()

    assert unasked.startswith(b"HTTP/1.1 503"), unasked
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(503, "1")}
    assert readiness == (200, "ready")
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers), answers
    assert proxy.put(document).status_code == 200


def test_documents_that_no_worker_takes_do_not_block_the_api(site: tuple[Proxy, int, Backend]) -> None:
    """Nor do those that wait for a hanging disk: a liveness probe without an answer would restart the proxy."""
    proxy, port, backend = site
    document = forwarding(port, backend.address)
    document["routes"].append({**document["routes"][0], "hostnames": ["new.example"]})
    with concurrent.futures.ThreadPoolExecutor(2 * MAX_TAKING) as pool:
        os.kill(proxy.worker_pid(), signal.SIGSTOP)
        try:
            puts = [pool.submit(proxy.put, document) for _ in range(2 * MAX_TAKING)]
            refused = list(itertools.islice(concurrent.futures.as_completed(puts, DEADLINE_S), MAX_TAKING))
            is_alive = requests.get(f"{proxy.api}/healthz", timeout=DEADLINE_S).status_code == 200
            readiness = proxy.readiness()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(proxy.worker_pid(), signal.SIGCONT)
        answers = [put.result() for put in refused]
        taken = [put.result() for put in puts if put not in refused]

    assert [(answer.status_code, answer.headers.get("Retry-After")) for answer in answers] == [(503, "1")] * MAX_TAKING
    assert (is_alive, readiness) == (True, (200, "ready"))
    assert [answer.status_code for answer in taken] == [200] * MAX_TAKING


def test_a_hundred_documents_are_taken_into_use_while_requests_are_served(site: tuple[Proxy, int, Backend]) -> None:
    proxy, port, backend = site
    with Load(port) as load:
        load.go_on()
        for number in range(100):
            document = forwarding(port, backend.address)
            document["routes"] += [
                {"hostnames": [f"h{number}-{place}.example"], "backends": [{"address": "127.0.0.1:3000"}]}
                for place in range(50)
            ]
            assert proxy.use(document)["changed"]
        load.go_on()

    assert load.failures == []


def test_a_request_continues_while_documents_are_replaced(site: tuple[Proxy, int, Backend]) -> None:
    proxy, port, backend = site
    proxy.use(forwarding(port, backend.address))
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(port, "/wait").text))
    waiting.start()
    assert backend.asked.wait(DEADLINE_S)
    for number in range(100):
        proxy.use(fixed(port, f"fixed {number}"))
    assert ask(port).text == "fixed 99"
    backend.release.set()
    waiting.join(DEADLINE_S)

    assert answers == ["hello"]
