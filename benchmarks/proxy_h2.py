"""Measure the HTTP/2 codec alone: CPU time of the server side, without sockets, TLS or routing.

    python -m benchmarks.proxy_h2

Input is encoded beforehand by another HPACK encoder, as sent by a peer that honours our header table size of 0. A turn
is what one loop turn of a busy worker handles: 64 requests in one read, 64 responses in one write. Each figure is the
best of several rounds, since other load can only make it worse.
"""

import itertools
import time
from collections.abc import Callable, Iterator

from hpack import Encoder

from proxy.h2 import Caches, Connection, DataReceived, Limits, RequestReceived, Settings, frames
from proxy.heads import ResponseHead

TURN = 64
ROUNDS = 7
TURNS = 40

BROWSER_FIELDS = [
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-encoding", "gzip, br"),
    ("accept-language", "en-GB,en;q=0.7,de;q=0.3"),
    ("cache-control", "no-cache"),
    ("cdn-loop", "cloudflare; loops=1"),
    ("cf-connecting-ip", "203.0.113.7"),
    ("cf-ipcountry", "DE"),
    ("cf-visitor", '{"scheme":"https"}'),
    ("cookie", "theme=dark"),
    ("cookie", "session=7f1c0a2b9d8e4f60a1b2c3d4e5f60718"),
    ("cookie", "_ga=GA1.1.1234567890.1700000000"),
    ("referer", "https://app.example.net/dashboard"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "same-origin"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0"),
    ("x-forwarded-for", "203.0.113.7"),
    ("x-forwarded-proto", "https"),
]
RESPONSE_FIELDS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-length", b"200"),
    (b"cache-control", b"no-store"),
    (b"date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
    (b"server", b"nginx"),
    (b"etag", b'"65f0c2a1-c8"'),
]
BODY = b"x" * 200
# Fields with a new value in each request of the cold case.
COLD = ("cf-connecting-ip", "x-forwarded-for", "user-agent", "cookie", "referer")


def handshake(settings: Settings) -> Connection:
    server = Connection.server(Caches(), settings, Limits())
    server.receive(
        frames.PREFACE + frames.encode_settings([(4, 1 << 30)]) + frames.encode_window_update(0, 1 << 30), 0.0
    )
    server.receive(frames.encode_frame(frames.SETTINGS, frames.ACK, 0), 0.0)
    server.data_to_send()
    return server


def requests(is_cold: bool) -> Iterator[bytes]:
    """One read after another, each of TURN requests."""
    encoder = Encoder()
    encoder.header_table_size = 0
    numbers = itertools.count()
    stream_ids = itertools.count(1, 2)
    while True:
        turn = []
        for number in itertools.islice(numbers, TURN):
            pseudo = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "app.example.net")]
            fields = [(n, f"{v}{number}" if is_cold and n in COLD else v) for n, v in BROWSER_FIELDS]
            block = encoder.encode([*pseudo, *fields, ("cf-ray", f"{number:016x}-FRA")])
            turn.append(
                frames.encode_frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, next(stream_ids), block)
            )
        yield b"".join(turn)


def best_us(per: int, prepare: Callable[[], Callable[[], None]]) -> float:
    """CPU time of what `prepare` returns, in microseconds for each of its `per` units."""
    best = float("inf")
    for _ in range(ROUNDS):
        work = prepare()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / per * 1e6


def small_requests(is_cold: bool) -> float:
    server = handshake(Settings())
    reads = requests(is_cold)
    server.receive(next(reads), 0.0)

    def prepare() -> Callable[[], None]:
        for stream_id in list(server._streams):
            server.reset_stream(stream_id)
        turns = list(itertools.islice(reads, TURNS))
        head = ResponseHead(200, RESPONSE_FIELDS)

        def work() -> None:
            for read in turns:
                for event in server.receive(read, 0.0):
                    if type(event) is RequestReceived:
                        server.send_headers(event.stream_id, head)
                        server.send_data(event.stream_id, BODY, True)
                server.data_to_send()

        return work

    return best_us(TURN * TURNS, prepare)


def main() -> None:
    warm = small_requests(is_cold=False)
    cold = small_requests(is_cold=True)
    cold_fields = sum(name in COLD for name, _ in BROWSER_FIELDS)
    print(f"request and response, {len(BROWSER_FIELDS) + 5} fields, repeating    {warm:8.1f} us")
    print(f"the same, {cold_fields} fields new in each request              {cold:8.1f} us")
    print(f"   a new field more than a repeating one          {(cold - warm) / cold_fields:8.1f} us")
    print(f"a DATA frame of 16 KiB received and released      {upload():8.1f} us")
    print(f"a DATA frame of 16 KiB sent                       {download():8.1f} us")


def upload() -> float:
    server = handshake(Settings(stream_window_bytes=1 << 22, connection_window_bytes=1 << 24))
    server.receive(next(requests(is_cold=False)), 0.0)
    stream_id = 2 * TURN + 1
    opening = Encoder().encode([(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a.example")])
    server.receive(frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream_id, opening), 0.0)
    frame = frames.encode_frame(frames.DATA, 0, stream_id, bytes(16_384))
    # Reads of 256 KiB, which end inside a frame.
    stream = frame * (16 * TURNS)
    reads = [stream[start : start + 262_144] for start in range(0, len(stream), 262_144)]

    def work() -> None:
        for read in reads:
            for event in server.receive(read, 0.0):
                if type(event) is DataReceived:
                    server.release(event.stream_id, len(event.data))
            server.data_to_send()

    return best_us(16 * TURNS, lambda: work)


def download() -> float:
    server = handshake(Settings())
    server.receive(next(requests(is_cold=False)), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    piece = bytes(16_384)

    def work() -> None:
        for _ in range(TURNS):
            for _ in range(16):
                server.send_data(1, piece)
            server.buffers_to_send()

    return best_us(16 * TURNS, lambda: work)


if __name__ == "__main__":
    main()
