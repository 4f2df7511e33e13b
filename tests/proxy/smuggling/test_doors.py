"""Every case of the corpus through a real door: which exchanges begin, and what the client is answered."""

import re
import socket
from collections.abc import Iterator

import pytest

from tests.proxy.doors.echo import Exchange
from tests.proxy.doors.rig import Rig, read_all_or_reset, serving
from tests.proxy.smuggling.corpus import Case, Forwarded, load

CASES = load()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with serving(limits={"maxUriBytes": 16384}) as rig:
        yield rig


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_refused_or_becomes_the_exchanges_that_were_meant(rig: Rig, case: Case) -> None:
    while not rig.services.begun.empty():
        rig.services.begun.get()
    with rig.connect() as client:
        client.sendall(case.raw)
        answer = b""
        if case.rejected is None:
            whole = sum(not request.is_cut for request in case.forwarded)
            while len(statuses(answer)) < whole:
                data = client.recv(65536)
                assert data, f"closed after {answer!r}"
                answer += data
            client.shutdown(socket.SHUT_WR)
        answer += read_all_or_reset(client)

    found = statuses(answer)
    if case.rejected is not None:
        assert case.rejected == found[-1]
        found.pop()
    assert all(status_code == 200 for status_code in found)
    begun = [rig.services.begun.get_nowait() for _ in case.forwarded]
    assert rig.services.begun.empty()
    for wanted, exchange in zip(case.forwarded, begun, strict=True):
        check(wanted, exchange)


def check(wanted: Forwarded, exchange: Exchange) -> None:
    head = exchange.head
    assert (wanted.method, wanted.path, wanted.host) == (head.method, head.path, head.authority)
    assert wanted.body == exchange.body
    assert wanted.fields.items() <= {field for field in head.fields if field[0] != b"host"} | {
        (b"host", head.authority),
        (b"content-length", b"%d" % len(exchange.body)),
    } | {(b"transfer-encoding", b"chunked")}


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer) if code != b"100"]
