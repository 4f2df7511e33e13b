"""Replies that no honest controller sends: each is ignored or raises a StoreError; anything else would be a crash."""

import contextlib
import gzip
import socket
import threading
from collections.abc import Iterator

import pytest

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.model import Record, RecordSpec
from dnswebhook.stores.unifi.settings import ApiChoice, FlavourChoice, UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore

WAIT_S = 30.0
SPEC = RecordSpec("app.example.com", "A", "192.0.2.1", 300)
SECRET = "a-session-token"


def reply(body: bytes = b"[]", status: str = "200 OK", **headers: str) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}Connection: close\r\n\r\n".encode("latin-1") + body


HUGE_NUMBER = "9" * 5000
HOSTILE = {
    "length-of-5000-digits": reply(Content_Length=HUGE_NUMBER),
    "date-beyond-all-years": reply(
        status="429 Too Many Requests", Retry_After="Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
    ),
    "redirect-to-no-url": reply(status="302 Found", Location="http://[::1"),
    # Python 3.14 takes 200,000 levels, as its stack has room for them.
    "deep-nesting": reply(b'[{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}]"),
    "deep-nesting-in-an-error": reply(b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", status="400 Bad Request"),
    "bad-gzip": reply(b"no gzip", Content_Encoding="gzip"),
    "rows-of-other-shapes": reply(b'[1,"two",null,[],{}]'),
    "a-ttl-of-5000-digits": reply(b'[{"_id":"a","ttl":' + HUGE_NUMBER.encode() + b"}]"),
    "an-id-that-is-no-text": reply(b'[{"_id":1}]'),
}


@contextlib.contextmanager
def controller_saying(*replies: bytes) -> Iterator[str]:
    """The URL of a controller that answers its n-th request with the n-th reply, then always with the last one."""
    listener = socket.create_server(("127.0.0.1", 0))
    waiting = list(replies)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@contextlib.contextmanager
def store_at(url: str, *, uses_key: bool = True) -> Iterator[UnifiStore]:
    credentials = {"api_key": Secret("key")} if uses_key else {"user": "user", "password": Secret("password")}
    settings = UnifiSettings(
        base_url=url, api=ApiChoice.V2, flavour=FlavourChoice.OS, request_timeout_s=WAIT_S, **credentials
    )
    store = UnifiStore(settings, lambda *_: None, lambda: None)
    try:
        yield store
    finally:
        store.close()


PASSED_OVER = {
    # A row that cannot become a record is left out.
    ("a-ttl-of-5000-digits", "list"),
    ("a-ttl-of-5000-digits", "probe"),
    # The body of a completed deletion is not read.
    ("rows-of-other-shapes", "delete"),
    ("an-id-that-is-no-text", "delete"),
}


@pytest.mark.parametrize("operation", ["list", "create", "update", "delete", "probe"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_reply_is_a_store_error_unless_it_is_ignored(hostile: str, operation: str) -> None:
    record = Record("65f0c0ffee0123456789abcd", SPEC.name, SPEC.type, "192.0.2.9", 300)
    is_passed_over = (hostile, operation) in PASSED_OVER
    outcome = contextlib.nullcontext() if is_passed_over else pytest.raises(StoreError)
    with controller_saying(HOSTILE[hostile]) as url, store_at(url) as store, outcome:
        deadline = Deadline.after(WAIT_S)
        match operation:
            case "list":
                assert store.list_records(deadline).records == ()
            case "create":
                store.create(SPEC, deadline)
            case "update":
                store.update(record, SPEC, deadline)
            case "delete":
                store.delete(record, deadline)
            case "probe":
                store.probe(deadline)


HOSTILE_LOGINS: dict[str, dict[str, str]] = {
    "no-cookie": {},
    "a-cookie-name-that-is-none": {"Set_Cookie": f"a/b={SECRET}"},
    "a-cookie-with-a-line-end": {"Set_Cookie": f'TOKEN="{SECRET}\\015\\012X-Evil: 1"'},
    "a-token-on-two-lines": {"Set_Cookie": "TOKEN=t", "X_CSRF_Token": f"{SECRET}\r\n and more"},
    "a-token-with-control-characters": {"Set_Cookie": "TOKEN=t", "X_CSRF_Token": f"{SECRET}\x0b\x01"},
}


@pytest.mark.parametrize("headers", HOSTILE_LOGINS.values(), ids=HOSTILE_LOGINS)
def test_a_hostile_session_is_a_store_error_without_its_secrets(headers: dict[str, str]) -> None:
    login = reply(b'{"deviceToken":"%s"}' % SECRET.encode(), **headers)
    said = ""
    with controller_saying(login, reply(b"[]")) as url, store_at(url, uses_key=False) as store:
        try:
            store.list_records(Deadline.after(WAIT_S))
        except StoreError as error:
            said = str(error)
    assert SECRET not in said


def test_what_a_compressed_bomb_unpacks_to_counts_against_the_limit() -> None:
    bomb = gzip.compress(b"[" + b" " * (80 * 1024 * 1024) + b"]")
    with (
        controller_saying(reply(bomb, Content_Encoding="gzip")) as url,
        store_at(url) as store,
        pytest.raises(StoreError, match="longer than the limit"),
    ):
        store.list_records(Deadline.after(WAIT_S))
