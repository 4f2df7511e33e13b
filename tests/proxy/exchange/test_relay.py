"""The memory of bodies that wait to be sent, however they were cut."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from proxy.exchange.relay import Kept, Relay, Upload
from proxy.heads import Fields
from proxy.loop import Creditor

SIZE_BYTES = 60_000


class Client:
    def __init__(self) -> None:
        self.released_bytes = 0

    def release(self, size_bytes: int) -> None:
        self.released_bytes += size_bytes


class Backend:
    """Takes up to `room_bytes`, and gives credit at once."""

    def __init__(self, room_bytes: int = 0) -> None:
        self.room_bytes = room_bytes
        self.body = b""

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        taken = min(len(data), self.room_bytes)
        self.room_bytes -= taken
        self.body += data[:taken]
        creditor.release(taken)
        return taken

    def send_trailers(self, fields: Fields) -> None:
        """Of no interest here."""


def held_bytes(fill: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = fill()
    found = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return found


def cut_by_the_client(size_bytes: int) -> Upload:
    upload = Upload(Client(), SIZE_BYTES, Kept())
    for place in range(0, SIZE_BYTES, size_bytes):
        upload.add_data(b"%06d" % place * (size_bytes // 6) or b"x" * size_bytes, False)
    return upload


def cut_from_large_reads(size_bytes: int) -> Relay:
    relay, client = Relay(), Client()
    for _ in range(0, SIZE_BYTES, size_bytes):
        relay.add(memoryview(bytes(256 * 1024))[:size_bytes], False, client)
    return relay


@pytest.mark.parametrize("size_bytes", [1, 6, 60, 3000])
def test_a_queued_body_costs_little_more_than_its_bytes(size_bytes: int) -> None:
    assert held_bytes(lambda: cut_by_the_client(size_bytes)) < 4 * SIZE_BYTES


@pytest.mark.parametrize("size_bytes", [600, 6000])
def test_a_queued_piece_does_not_keep_its_whole_read_in_memory(size_bytes: int) -> None:
    assert held_bytes(lambda: cut_from_large_reads(size_bytes)) < 2 * SIZE_BYTES + 512 * 1024


def test_a_first_piece_not_yet_sent_does_not_keep_its_whole_read_in_memory() -> None:
    def upload() -> Upload:
        upload = Upload(Client(), 0, Kept())
        upload.add_data(memoryview(bytes(1024 * 1024))[:SIZE_BYTES], False)
        upload.lighten()
        return upload

    def download() -> Relay:
        relay = Relay()
        relay.add(memoryview(bytes(1024 * 1024))[:SIZE_BYTES], False, Client())
        relay.pump(Backend(SIZE_BYTES // 2))
        return relay

    assert held_bytes(upload) < 2 * SIZE_BYTES
    assert held_bytes(download) < 2 * SIZE_BYTES


@pytest.mark.parametrize("size_bytes", [1, 7, 1000, 5000])
def test_small_pieces_keep_their_order_and_their_credit(size_bytes: int) -> None:
    client, backend = Client(), Backend()
    upload = Upload(client, SIZE_BYTES, Kept())
    body = b"".join(b"%06d" % number for number in range(2000))
    for place in range(0, len(body), size_bytes):
        upload.add_data(body[place : place + size_bytes], False)
        backend.room_bytes += size_bytes // 2
        upload.pump(backend)
    upload.rewind()
    again = Backend(len(body))
    upload.add_data(b"", True)

    assert upload.pump(again)
    assert again.body == body
    assert client.released_bytes == len(body)
