"""What a faulty edge, or an attacker behind it, can do to one connection: others serve on, and it is set up anew."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from proxy.h2 import ErrorCode, frames
from tests.e2e.tunnel.connector import REGISTERED_LINE, RETRY_LINE, Connector
from tests.proxy.h2.wire import GET, POST, data, headers
from tests.support.edge.edge import Edge
from tests.support.edge.hostile import HostileEdge
from tests.support.gateway import resident_bytes, route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply

FIRST = 101
"""Number of the first stream that a test opens by hand."""
HEAL_S = 60.0
MOST_ATTEMPTS = 3
"""A flood that a busy machine takes ten seconds to read is none: limits count anew every ten seconds, and PINGs stay
unanswered, as our peer reads nothing meanwhile."""
MAX_GROWTH_BYTES = 16 << 20
OPEN = headers(FIRST, POST, frames.END_HEADERS)
FRAGMENT = bytes(frames.MIN_MAX_FRAME_BYTES)


def odd(count: int) -> range:
    return range(FIRST, FIRST + 2 * count, 2)


def rapid_resets() -> bytes:
    return b"".join(headers(i, GET) + frames.encode_rst_stream(i, ErrorCode.CANCEL) for i in odd(20_100))


def malformed_requests() -> bytes:
    return b"".join(headers(i, GET[:2]) for i in odd(50_100))


def continued(fragment: bytes, count: int) -> bytes:
    head = frames.encode_frame(frames.HEADERS, 0, FIRST, b"")
    return head + frames.encode_frame(frames.CONTINUATION, 0, FIRST, fragment) * count


def bomb() -> bytes:
    """One large field for the decoder's dynamic table, then thousands of references to it."""
    block = _indexed(b"x", 3900) + b"\xbe" * 12_000
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 3, block)


def _indexed(name: bytes, value_bytes: int) -> bytes:
    """A literal that enters the table (RFC 7541, 6.2.1)."""
    left, size = value_bytes - 127, b"\x7f"
    while left >= 128:
        size += bytes((left % 128 | 0x80,))
        left //= 128
    return b"\x40" + bytes((len(name),)) + name + size + bytes((left,)) + b"v" * value_bytes


ATTACKS: dict[str, tuple[Callable[[], bytes], ErrorCode, str]] = {
    "rapid reset": (rapid_resets, ErrorCode.ENHANCE_YOUR_CALM, "RESET"),
    "malformed requests": (malformed_requests, ErrorCode.ENHANCE_YOUR_CALM, "STREAM_ERROR"),
    "PING": (lambda: frames.encode_frame(frames.PING, 0, 0, bytes(8)) * 10_200, ErrorCode.ENHANCE_YOUR_CALM, "PING"),
    "SETTINGS": (lambda: frames.encode_settings([(4, 1)]) * 110, ErrorCode.ENHANCE_YOUR_CALM, "SETTINGS"),
    "empty DATA": (lambda: OPEN + data(FIRST, b"") * 20_100, ErrorCode.ENHANCE_YOUR_CALM, "EMPTY_DATA"),
    "WINDOW_UPDATE": (
        lambda: frames.encode_window_update(0, 1) * 100_100,
        ErrorCode.ENHANCE_YOUR_CALM,
        "WINDOW_UPDATE",
    ),
    "PRIORITY": (
        lambda: frames.encode_frame(frames.PRIORITY, 0, 1, bytes(5)) * 50_100,
        ErrorCode.ENHANCE_YOUR_CALM,
        "IGNORED",
    ),
    "unknown frames": (lambda: frames.encode_frame(99, 0, 0) * 50_100, ErrorCode.ENHANCE_YOUR_CALM, "IGNORED"),
    "many CONTINUATIONs": (lambda: continued(b"", 90), ErrorCode.ENHANCE_YOUR_CALM, ""),
    "much CONTINUATION": (lambda: continued(FRAGMENT, 129), ErrorCode.ENHANCE_YOUR_CALM, ""),
    "a table that was turned off": (
        lambda: frames.encode_frame(frames.HEADERS, frames.END_HEADERS, FIRST, _indexed(b"x", 200) + b"\xbe"),
        ErrorCode.COMPRESSION_ERROR,
        "",
    ),
    "too large a frame": (lambda: data(1, bytes(1 << 20)), ErrorCode.FRAME_SIZE_ERROR, ""),
    "no HTTP/2": (lambda: b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n" * 100, ErrorCode.FRAME_SIZE_ERROR, ""),
}


class Site:
    """A proxy with a connection to an edge as it should be, and another to a hostile one."""

    def __init__(self, edge: Edge, hostile: HostileEdge, proxy: Connector, backend: RecordingBackend) -> None:
        self.edge = edge
        self.hostile = hostile
        self.proxy = proxy
        self.backend = backend


@pytest.fixture
def site() -> Iterator[Site]:
    """`/held` is answered at the end of the test."""
    gate = threading.Event()

    def respond(received: Received) -> Reply:
        if received.target == "/held":
            gate.wait(HEAL_S)
        return Reply(body=received.target.encode())

    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(RecordingBackend(respond=respond))
        stack.callback(gate.set)
        edge = stack.enter_context(Edge(("127.0.0.1:0",)))
        hostile = stack.enter_context(HostileEdge(edge))
        arguments = ["--edge", hostile.address, "--register-without-config"]
        proxy = stack.enter_context(Connector(edge, connections=2, arguments=arguments))
        proxy.put(proxy.document(route_to(backend.address)))
        site = Site(edge, hostile, proxy, backend)
        yield site
        gate.set()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_its_connection_and_no_other(site: Site, name: str) -> None:
    attack, code, reason = ATTACKS[name]
    raw = attack()
    for nth in range(1, 1 + MOST_ATTEMPTS):
        with site.hostile.register() as peer:
            (record,) = site.edge.wait_for_registered(1, HEAL_S)
            held = site.edge.call("/held")
            (pid,) = site.proxy.worker_pids
            before_bytes = resident_bytes(pid)

            peer.send_raw(raw)
            goaway = peer.read_to_end()

            assert resident_bytes(pid) - before_bytes < MAX_GROWTH_BYTES
        error = error_of(site, nth)
        if "answered no PING" not in error:
            break
    assert goaway is None or (goaway[0] == code and goaway[1].startswith(reason)), goaway
    assert error.startswith(f"the edge broke HTTP/2: {reason}")
    with site.hostile.register():
        assert site.edge.ledger.registered == [record], "the other connection"
        assert site.edge.call("/after").read_all() == b"/after"
        assert held.lost is None
        site.proxy.wait_for_line(lambda line: REGISTERED_LINE in line, "another registration", HEAL_S, 2 + nth)


def error_of(site: Site, nth: int) -> str:
    """Why the hostile connection ended for the nth time."""

    def is_wanted(line: str) -> bool:
        return RETRY_LINE in line and site.hostile.address in line

    line = site.proxy.wait_for_line(is_wanted, f"end {nth} of the hostile connection", HEAL_S, nth)
    return str(json.loads(line)["error"])


def test_a_bomb_of_field_references_before_registration_ends_its_connection(site: Site) -> None:
    with site.hostile.accept() as peer:
        (pid,) = site.proxy.worker_pids
        before_bytes = resident_bytes(pid)
        peer.send_raw(bomb())
        goaway = peer.read_to_end()
        assert goaway is None or goaway[0] in (ErrorCode.ENHANCE_YOUR_CALM, ErrorCode.COMPRESSION_ERROR), goaway
        assert resident_bytes(pid) - before_bytes < MAX_GROWTH_BYTES
    with site.hostile.register():
        site.edge.wait_for_registered(1, HEAL_S)
        assert site.edge.call("/after").read_all() == b"/after"


NO_PATH = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example")]
WHOLE = [*NO_PATH, (":path", "/")]
MALFORMED = {
    "relative path": [*NO_PATH, (":path", "no-slash")],
    "empty path": [*NO_PATH, (":path", "")],
    "no path": NO_PATH,
    "user in the authority": [*NO_PATH[:2], (":authority", "user@a.example"), (":path", "/")],
    "connection field": [*WHOLE, ("connection", "close")],
    "upper case": [*WHOLE, ("Upper", "1")],
    "line break": [*WHOLE, ("x-line", "a\r\nb: c")],
    "negative length": [*WHOLE, ("content-length", "-1")],
}


def test_a_malformed_request_resets_its_stream_only(site: Site) -> None:
    with site.hostile.register() as peer:
        site.backend.forget()
        for what, fields in MALFORMED.items():
            stream = peer.begin(fields, end_stream=True)
            peer.wait_for(lambda stream=stream: peer.is_reset(stream), what)  # type: ignore[misc]
        assert not site.backend.received
        assert peer.body(peer.request("/after")) == b"/after"


def test_a_response_before_the_end_of_the_request_is_followed_by_a_reset_without_error(site: Site) -> None:
    """NO_ERROR after the whole response, as in RFC 9113, 8.1."""
    site.proxy.put(site.proxy.document({"rules": [{"respond": {"statusCode": 200, "body": "enough"}}]}))
    with site.hostile.register() as peer:
        stream = peer.request("/", "POST", end_stream=False)
        assert peer.body(stream) == b"enough"
        peer.wait_for(lambda: peer.is_reset(stream), "the reset")
        assert peer.reset_code(stream) == ErrorCode.NO_ERROR
