"""Peers that are slow on purpose: every exchange ends in time."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from urllib3 import HTTPHeaderDict

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreTimeout, StoreUnreachable
from dnswebhook.stores.unifi import sockets
from dnswebhook.stores.unifi.settings import UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore
from dnswebhook.stores.unifi.transport import NoReply, Reply, Request, Transport
from tests.support.controller import Controller, generated_drafts
from tests.support.lettinggo import uncollected

WAIT_S = 30.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """The port of a server whose every connection is handled by `serve`, which returns when the event is set."""
    leave = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    serve(connection, leave)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        leave.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def trickled(text: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def serve(connection: socket.socket, leave: threading.Event) -> None:
        for octet in text:
            connection.sendall(bytes([octet]))
            if leave.wait(0.05):
                return

    return serve


def exchange(port: int, seconds: float, *, max_response_bytes: int = 1_000_000) -> Reply:
    url = f"http://127.0.0.1:{port}"
    settings = UnifiSettings(base_url=url, api_key=Secret("k"), max_response_bytes=max_response_bytes)
    transport = Transport(settings)
    try:
        return transport.exchange(Request("GET", "/"), {}, Deadline.after(seconds))
    finally:
        transport.close()


@pytest.mark.parametrize(
    "text",
    [b"HTTP/1.1 200 OK\r\n" + b"X-Filler: y\r\n" * 50, HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 1000],
    ids=["head", "body"],
)
def test_an_answer_that_trickles_in_is_abandoned_at_the_deadline(text: bytes) -> None:
    with peer(trickled(text)) as port:
        began = time.monotonic()
        with pytest.raises(NoReply) as failure:
            exchange(port, 0.5)

        assert isinstance(failure.value.error, StoreTimeout)
        assert time.monotonic() - began < 1.5


def test_a_chunked_answer_is_read_whole() -> None:
    body = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\n[1\r\n2\r\n,2\r\n1\r\n]\r\n0\r\n\r\n"
    with peer(lambda connection, _: connection.sendall(body)) as port:
        assert exchange(port, WAIT_S).body == b"[1,2]"


def test_a_chunked_answer_without_end_is_cut_at_the_limit() -> None:
    def serve(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")

    with peer(serve) as port, pytest.raises(NoReply, match="longer than the limit of 50000 bytes"):
        exchange(port, WAIT_S, max_response_bytes=50_000)


def test_the_error_for_a_port_that_answers_tls_with_plain_text_says_so() -> None:
    with peer(lambda connection, _: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        transport = Transport(UnifiSettings(base_url=f"https://127.0.0.1:{port}", api_key=Secret("k")))
        with pytest.raises(NoReply, match=r"TLS failed.*speak https"):
            transport.exchange(Request("GET", "/"), {}, Deadline.after(WAIT_S))
        transport.close()


def test_an_answer_that_is_not_http_counts_as_unreachable() -> None:
    with peer(lambda connection, _: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        with pytest.raises(NoReply) as failure:
            exchange(port, WAIT_S)

        assert isinstance(failure.value.error, StoreUnreachable)


def test_credentials_do_not_appear_in_the_errors_of_any_exchange() -> None:
    settings = UnifiSettings(base_url="http://127.0.0.1:1", api_key=Secret("k"))
    transport = Transport(settings)
    with pytest.raises(NoReply) as failure:
        transport.exchange(Request("GET", "/"), {"X-API-KEY": "hunter2"}, Deadline.after(WAIT_S))
    transport.close()

    assert not failure.value.was_sent
    assert "hunter2" not in str(failure.value)


def test_a_session_cookie_cannot_smuggle_a_line_into_the_next_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        transport = Transport(UnifiSettings(base_url=url, api_key=Secret("k")))
        with pytest.raises(NoReply, match="control character"):
            transport.exchange(Request("GET", "/"), {"Cookie": "TOKEN=a\r\nX-Evil: 1"}, Deadline.after(WAIT_S))
        transport.close()

        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(10)
            assert connection.recv(65536) == b""


def test_a_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with peer(lambda connection, _: connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n[]")) as port:
        assert exchange(port, WAIT_S).body == b"[]"


def test_name_resolution_ends_at_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        release.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        with pytest.raises(TimeoutError, match=r"resolving unifi\.lan"):
            sockets.connect("unifi.lan", 443, 0.2)
    finally:
        release.set()


def test_an_address_that_refuses_before_another_one_accepts_leaves_no_reference_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as refusing, socket.create_server(("127.0.0.1", 0)) as accepting:
        refusing.bind(("127.0.0.1", 0))
        found = [(each.family, each.type, 6, "", each.getsockname()) for each in (refusing, accepting)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with uncollected() as garbage:
            with sockets.connect("unifi.lan", 443, WAIT_S) as sock:
                assert sock.getpeername() == accepting.getsockname()

            assert not garbage("dnswebhook")


def test_lookups_that_hang_take_a_few_threads_and_the_last_one_answers_all_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 443))]
    release = threading.Event()

    def hanging(*_: object, **__: object) -> list[object]:
        release.wait(WAIT_S)
        return [*found]

    def lookups() -> int:
        found = [thread for thread in threading.enumerate() if thread.name == "resolve"]
        assert all(thread.daemon for thread in found), "it would keep the process from its end"
        return len(found)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    before = lookups()
    try:
        for _ in range(40):
            with pytest.raises(sockets.NameTimeout):
                sockets.resolve("hanging.lan", 443, 0.001)

        assert lookups() - before <= 8
        with ThreadPoolExecutor() as pool:
            waiting = [pool.submit(sockets.resolve, "hanging.lan", 443, WAIT_S) for _ in range(3)]
            release.set()
            assert [each.result(WAIT_S) for each in waiting] == [[(socket.AF_INET, ("192.0.2.7", 443))]] * 3
    finally:
        release.set()


def test_a_name_that_no_thread_can_look_up_counts_as_unreachable_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lack(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    transport = Transport(UnifiSettings(base_url="http://localhost:1", api_key=Secret("k")))
    with contextlib.closing(transport), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lack)
        with pytest.raises(NoReply) as caught:
            transport.exchange(Request("GET", "/"), {}, Deadline.after(5))

    assert isinstance(caught.value.error, StoreUnreachable)
    assert "can't start new thread: raise the limit of tasks" in str(caught.value.error)


def test_closed_stores_leave_no_descriptor_and_no_thread_behind() -> None:
    def use_one(controller: Controller) -> None:
        settings = UnifiSettings(base_url=controller.url, api_key=Secret(controller.api_key))
        store = UnifiStore(settings, lambda *_: None, lambda: None)
        store.list_records(Deadline.after(10))
        store.close()

    def held() -> tuple[int, int]:
        pages = [thread for thread in threading.enumerate() if thread.name.startswith("unifi-page")]
        return len(list(Path("/proc/self/fd").iterdir())), len(pages)

    with Controller() as controller:
        controller.add_rows(generated_drafts(600))
        use_one(controller)
        before = held()
        for _ in range(20):
            use_one(controller)
        give_up_at = time.monotonic() + 10
        while held() > before and time.monotonic() < give_up_at:
            threading.Event().wait(0.01)  # the simulator closes its ends, and idle page threads end, on their own time

        assert held() <= before


@pytest.mark.parametrize(
    ("lines", "cookies"),
    [
        (["UOS_TOKEN=e.J_-9=; path=/; samesite=none; secure; httponly; partitioned"], {"UOS_TOKEN": "e.J_-9="}),
        (["unifises=abc; Path=/; HttpOnly", "csrf_token=def; Path=/"], {"unifises": "abc", "csrf_token": "def"}),
        (["a=1;HttpOnly;Priority=High;SameSite", 'b={"c":2}'], {"a": "1", "b": '{"c":2}'}),
        (["TOKEN=new", "TOKEN=; Max-Age=0", 'TOKEN=""; Expires=Thu, 01 Jan 1970 00:00:00 GMT'], {"TOKEN": "new"}),
        (["HttpOnly", "=1", "a/b=1", ""], {}),
    ],
)
def test_cookies_are_read_whatever_their_attributes_and_deletions_of_cookies_are_ignored(
    lines: list[str], cookies: dict[str, str]
) -> None:
    headers = HTTPHeaderDict([("Set-Cookie", line) for line in lines])

    assert Reply(Request("GET", "/"), 200, "", headers, b"").cookies == cookies


def test_what_may_be_quoted_of_a_reply_is_without_the_credentials_of_its_request() -> None:
    credentials = {"Cookie": "TOKEN=0123456789abcdef=; lang=en", "X-CSRF-Token": "a-csrf-token"}
    body = b"lang=en TOKEN=0123456789abcdef= a-csrf-token"

    reply = Reply(Request("GET", "/"), 500, "text/html", HTTPHeaderDict(), body, credentials)

    assert reply.quotable == b"lang=en TOKEN=<redacted> <redacted>"
    assert reply.body == body
