"""Builders that let the tests of the codec read as dialogues: frames, field blocks, and both ends of a fake link."""

from collections.abc import Iterable
from dataclasses import dataclass

from hpack import Encoder

from proxy.h2 import Caches, Connection, Event, Limits, Settings, frames
from proxy.heads import RequestHead

GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.example"), (b":path", b"/")]
POST = [(b":method", b"POST"), *GET[1:]]
ENDS = frames.END_HEADERS | frames.END_STREAM
PREFACE_AND_SETTINGS = frames.PREFACE + frames.encode_settings([])
SETTINGS_ACK = frames.encode_frame(frames.SETTINGS, frames.ACK, 0)


@dataclass(frozen=True)
class Sent:
    """One frame that a codec sent."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


def literal(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A field block without table, Huffman or index, which every decoder can read at any time."""
    block = b""
    for name, value in fields:
        assert len(name) < 127
        assert len(value) < 127
        block += b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
    return block


def headers(stream_id: int, fields: Iterable[tuple[bytes, bytes]], flags: int = ENDS) -> bytes:
    return frames.encode_frame(frames.HEADERS, flags, stream_id, literal(fields))


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frames.encode_frame(frames.DATA, flags, stream_id, payload)


def response(stream_id: int, *fields: tuple[bytes, bytes], flags: int = ENDS, status: bytes = b"200") -> bytes:
    return headers(stream_id, [(b":status", status), *fields], flags)


def sent_frames(raw: bytes) -> list[Sent]:
    """What a codec sent, without the client's preface."""
    raw = raw.removeprefix(frames.PREFACE)
    found = []
    while raw:
        length = int.from_bytes(raw[:3], "big")
        stream_id = int.from_bytes(raw[5:9], "big")
        found.append(Sent(raw[3], raw[4], stream_id, raw[9 : 9 + length]))
        assert len(found[-1].payload) == length
        raw = raw[9 + length :]
    return found


def new_server(settings: Settings | None = None, limits: Limits | None = None) -> Connection:
    """After the handshake; its table is still decoded statefully."""
    server = Connection.server(Caches(), settings, limits)
    server.receive(PREFACE_AND_SETTINGS + SETTINGS_ACK, 0.0)
    server.data_to_send()
    return server


def new_client(settings: Settings | None = None, limits: Limits | None = None) -> Connection:
    """After the handshake."""
    client = Connection.client(Caches(), settings, limits)
    client.receive(frames.encode_settings([]) + SETTINGS_ACK, 0.0)
    client.data_to_send()
    return client


def get_head(path: bytes = b"/", *fields: tuple[bytes, bytes]) -> RequestHead:
    return RequestHead(b"GET", b"https", b"a.example", path, list(fields))


def honouring_encoder() -> Encoder:
    """Another implementation's encoder that uses Huffman and obeys our table of size 0."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder


def flow(one: Connection, other: Connection, one_events: list[Event], other_events: list[Event]) -> None:
    """Carry bytes both ways until neither end has any."""
    while one.has_output or other.has_output:
        other_events += other.receive(one.data_to_send(), 0.0)
        one_events += one.receive(other.data_to_send(), 0.0)
