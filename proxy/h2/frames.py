"""The frame layer (RFC 9113, 4 and 6): the nine-byte head, payload layouts, and the frames that we write.

Decoders take a whole payload and raise `RemoteProtocolError` for a wrong layout; they know no streams or states.
HEADERS and DATA are written in `sending`, where they are cut to size.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any

from proxy.h2.errors import ErrorCode, RemoteProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20

HEAD_BYTES = 9
MIN_MAX_FRAME_BYTES = 16_384
MAX_MAX_FRAME_BYTES = 16_777_215
MAX_STREAM_ID = 0x7FFFFFFF

# Length in 16 + 8 bits, type, flags, stream identifier with its reserved bit.
FRAME_HEAD = Struct(">HBBBI")
_SETTING = Struct(">HI")
_UINT32 = Struct(">I")
_TWO_UINT32 = Struct(">II")


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    length = len(payload)
    return FRAME_HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id) + payload


def encode_settings(settings: Iterable[tuple[int, int]]) -> bytes:
    return encode_frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings))


def encode_window_update(stream_id: int, increment: int) -> bytes:
    return encode_frame(WINDOW_UPDATE, 0, stream_id, _UINT32.pack(increment))


def encode_rst_stream(stream_id: int, code: int) -> bytes:
    return encode_frame(RST_STREAM, 0, stream_id, _UINT32.pack(code))


def encode_goaway(last_stream_id: int, code: int, debug_data: bytes) -> bytes:
    return encode_frame(GOAWAY, 0, 0, _TWO_UINT32.pack(last_stream_id, code) + debug_data)


def wrong_size(what: str, size: int, wanted: str, stream_id: int = 0) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"{what} of {size} bytes, want {wanted}", stream_id)


def strip_padding(payload: Any) -> Any:
    """The payload of a frame with the PADDED flag, without pad length and padding."""
    if not payload:
        raise wrong_size("PADDED frame", 0, "at least 1, the pad length")
    padding = payload[0]
    if padding >= len(payload):
        reason = f"padding of {padding} bytes in a payload of {len(payload)}"
        raise RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, reason)
    return payload[1 : len(payload) - padding]


def decode_dependency(payload: bytes) -> int:
    """The stream that a priority field of five bytes names."""
    return int(_UINT32.unpack_from(payload)[0]) & MAX_STREAM_ID


def decode_uint32(payload: bytes, what: str) -> int:
    if len(payload) != 4:
        raise wrong_size(what, len(payload), "4")
    return int(_UINT32.unpack(payload)[0])


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % 6:
        raise wrong_size("SETTINGS", len(payload), "a multiple of 6")
    return list(_SETTING.iter_unpack(payload))


def decode_goaway(payload: bytes) -> tuple[int, int, bytes]:
    """Last stream identifier, error code, debug data."""
    if len(payload) < 8:
        raise wrong_size("GOAWAY", len(payload), "at least 8")
    last_stream_id, code = _TWO_UINT32.unpack_from(payload)
    return last_stream_id & MAX_STREAM_ID, code, payload[8:]
