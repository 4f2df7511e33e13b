"""The corpus of ambiguous requests through the running proxy, checked by what a strict backend received."""

import contextlib
import re
import socket
from collections.abc import Iterator

import pytest

from tests.proxy.smuggling.corpus import Case, Forwarded, load
from tests.support.gateway import Gateway, route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply

CASES = load()
WAIT_S = 20.0


@pytest.fixture(scope="module")
def strict(shared_gateway: Gateway) -> Iterator[RecordingBackend]:
    with RecordingBackend(respond=lambda _: Reply(body=b"ok")) as backend:
        shared_gateway.serve(route_to(backend.address))
        yield backend


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_ambiguous_request_is_refused_or_reaches_the_backend_with_one_meaning(
    shared_gateway: Gateway, strict: RecordingBackend, case: Case
) -> None:
    strict.forget()
    whole = [request for request in case.forwarded if not request.is_cut]

    found = statuses(exchange(shared_gateway.clear[1], case, len(whole)))

    if case.rejected is not None:
        assert case.rejected == found.pop()
    assert [200] * len(whole) == found
    for wanted, received in zip(whole, strict.wait_for_requests(len(whole)), strict=True):
        check(wanted, received)


def exchange(port: int, case: Case, answers: int) -> bytes:
    """All bytes sent to the client, up to the end of its connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as client:
        client.sendall(case.raw)
        if case.rejected is None:
            while len(statuses(answer)) < answers:
                data = client.recv(65536)
                assert data, f"closed after {answer!r}"
                answer += data
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(65536):
                answer += data
    return answer


def check(wanted: Forwarded, received: Received) -> None:
    assert (wanted.method.decode(), wanted.path.decode("latin-1")) == (received.method, received.target)
    assert wanted.host.decode() == received.value("host")
    assert wanted.body == received.body
    fields = {(name.encode("latin-1"), value.encode("latin-1")) for name, value in received.headers}
    assert wanted.fields.items() <= fields
    assert wanted.absent.isdisjoint(name for name, _ in fields)


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer) if code != b"100"]
