"""Time the HTTP/1.1 codec alone: heads, responses and bodies, in microseconds of CPU and MB/s.

    python -m benchmarks.proxy_h1

Each figure is the best of several rounds of process CPU time. "Cold" runs give every field line a new value, so that no
line is found in a cache; real traffic lies between cold and warm.
"""

import itertools
import time
from collections.abc import Callable

import h11
from rich.console import Console
from rich.table import Table

from proxy.h1 import Caches, ClientConnection, ServerConnection
from proxy.heads import RequestHead, ResponseHead

ROUNDS = 7
CALLS = 4_000

SMALL_REQUEST = b"GET /some/path?x=1 HTTP/1.1\r\nHost: app.example.com\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"
BROWSER_REQUEST = (
    b"GET /some/path?x=1 HTTP/1.1\r\nHost: app.example.com\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\nCookie: session=abcdef0123456789; theme=dark\r\n"
    b"Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n"
    b"Sec-Fetch-Mode: navigate\r\nPriority: u=0, i\r\n\r\n"
)
RESPONSE = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Type: text/html\r\n"
    b"Content-Length: 13\r\nLast-Modified: Fri, 20 Nov 2026 10:00:00 GMT\r\nConnection: keep-alive\r\n"
    b'ETag: "655b2c1a-d"\r\nAccept-Ranges: bytes\r\n\r\nhello, world\n'
)
FIELDS = [
    (b"server", b"nginx/1.22.1"),
    (b"date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
    (b"content-type", b"text/html"),
    (b"content-length", b"13"),
    (b"last-modified", b"Fri, 20 Nov 2026 10:00:00 GMT"),
    (b"etag", b'"655b2c1a-d"'),
    (b"accept-ranges", b"bytes"),
]
BODY_PIECE = bytes(256 * 1024)
BODY_BYTES = 256 * 1024 * 1024


def main() -> None:
    table = Table("operation", "us", title="HTTP/1.1 codec, CPU per call (best of rounds)")
    for name, call in (
        ("server: small request read, response written", server_exchange(SMALL_REQUEST)),
        ("server: browser's request read, response written", server_exchange(BROWSER_REQUEST)),
        ("server: browser's request read", server_read(BROWSER_REQUEST)),
        ("client: request written, response of 8 fields read", client_exchange(repeating=True)),
        ("client: the same, every line new", client_exchange(repeating=False)),
        ("h11 for comparison: small request read, response written", h11_exchange(SMALL_REQUEST)),
    ):
        table.add_row(name, f"{microseconds(call):.2f}")
    console = Console()
    console.print(table)
    bulk = Table("body", "MB/s", title=f"{BODY_BYTES >> 20} MiB in pieces of {len(BODY_PIECE) >> 10} KiB")
    for name, is_chunked in (("response with a length, received and sent", False), ("in chunks, both ways", True)):
        bulk.add_row(name, f"{bulk_rate(is_chunked):,.0f}")
    console.print(bulk)


def microseconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        best = min(best, time.process_time() - start)
    return best / CALLS * 1e6


def server_exchange(request: bytes) -> Callable[[], object]:
    server = ServerConnection(Caches())

    def call() -> None:
        server.receive(request)
        server.send_headers(ResponseHead(200, FIELDS))
        server.send_data(b"hello, world\n", True)
        server.buffers_to_send()

    return call


def server_read(request: bytes) -> Callable[[], object]:
    """Includes the cheapest response, since the next request is read only after one."""
    server = ServerConnection(Caches())
    head = ResponseHead(204, [])

    def call() -> None:
        server.receive(request)
        server.send_headers(head, True)
        server.buffers_to_send()

    return call


def client_exchange(*, repeating: bool) -> Callable[[], object]:
    client = ClientConnection(Caches())
    head = RequestHead(b"GET", b"http", b"app.example.com", b"/some/path?x=1", [(b"user-agent", b"curl/8.5.0")])
    count = itertools.count()

    def call() -> None:
        client.send_request(head, True)
        client.buffers_to_send()
        response = RESPONSE
        if not repeating:
            lines, body = RESPONSE.split(b"\r\n\r\n")
            mark = b"\r\nX-%d: " % next(count)
            response = b"\r\n\r\n".join((lines.replace(b"\r\n", mark, 3).replace(b"GMT", mark[2:]), body))
        client.receive(response)

    return call


def h11_exchange(request: bytes) -> Callable[[], object]:
    connection = h11.Connection(h11.SERVER)

    def call() -> None:
        connection.receive_data(request)
        connection.next_event()
        connection.next_event()
        connection.send(h11.Response(status_code=200, headers=FIELDS))
        connection.send(h11.Data(b"hello, world\n"))
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()

    return call


def bulk_rate(is_chunked: bool) -> float:
    """A backend's body through both codecs, as a proxy forwards it."""
    client, server = ClientConnection(Caches()), ServerConnection(Caches())
    client.send_request(RequestHead(b"GET", b"http", b"a.example", b"/", []), True)
    server.receive(SMALL_REQUEST)
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % BODY_BYTES
    client.receive(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing)
    server.send_headers(ResponseHead(200, [] if is_chunked else [(b"content-length", b"%d" % BODY_BYTES)]))
    piece = b"%x\r\n%b\r\n" % (len(BODY_PIECE), BODY_PIECE) if is_chunked else BODY_PIECE
    start = time.process_time()
    for _ in range(BODY_BYTES // len(BODY_PIECE)):
        for event in client.receive(piece):
            server.send_data(event.data)  # type: ignore[attr-defined] # nothing but data comes
        server.buffers_to_send()
    return BODY_BYTES / 1e6 / (time.process_time() - start)


if __name__ == "__main__":
    main()
