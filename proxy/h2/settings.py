"""SETTINGS (RFC 9113, 6.5; RFC 8441, 3; RFC 9218, 2.1): ours as options of a connection, the peer's as received.

Ours are fixed for the life of a connection, so there is one acknowledgement to wait for. The peer's start with the
protocol's initial values and change with each SETTINGS frame, entry by entry, in order.
"""

from dataclasses import dataclass
from enum import IntEnum

from proxy.h2.errors import ErrorCode, RemoteProtocolError
from proxy.h2.frames import MAX_MAX_FRAME_BYTES, MIN_MAX_FRAME_BYTES
from proxy.h2.windows import INITIAL_WINDOW_BYTES, MAX_WINDOW_BYTES
from proxy.heads import Field


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6
    ENABLE_CONNECT_PROTOCOL = 8
    NO_RFC7540_PRIORITIES = 9


@dataclass(frozen=True, slots=True)
class Settings:
    """What we announce. Receive memory of a connection is bounded by `connection_window_bytes`.

    If that has room for the first windows of all streams and for the pool, as here, stalled uploads hold up no others,
    however many they are.
    """

    # 250: browsers open at most about 100, and one peer should not take all of a worker.
    max_concurrent_streams: int = 250
    # The first window; streams that drain get wider ones from the pool (see windows). Not below the protocol's initial
    # size: the window of an upload that began before our SETTINGS arrived would become negative, which some clients
    # cannot handle.
    stream_window_bytes: int = INITIAL_WINDOW_BYTES
    max_stream_window_bytes: int = 262_144
    window_pool_bytes: int = 2 << 20
    connection_window_bytes: int = 250 * INITIAL_WINDOW_BYTES + (2 << 20)
    # Measured: larger frames gained nothing.
    max_frame_bytes: int = MIN_MAX_FRAME_BYTES
    max_header_list_bytes: int = 65_536
    # Servers only: RFC 8441, WebSockets over HTTP/2.
    is_extended_connect_enabled: bool = True
    # Servers only: the field with which a request opens another protocol if the peer has no extended CONNECT for that.
    handshake: Field | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        _want_within("max_concurrent_streams", self.max_concurrent_streams, 0, 0xFFFFFFFF)
        _want_within("stream_window_bytes", self.stream_window_bytes, 1, MAX_WINDOW_BYTES)
        _want_within("max_stream_window_bytes", self.max_stream_window_bytes, 1, MAX_WINDOW_BYTES)
        _want_within("window_pool_bytes", self.window_pool_bytes, 0, MAX_WINDOW_BYTES)
        # The connection's window starts at 65,535 and can only be made wider.
        _want_within("connection_window_bytes", self.connection_window_bytes, INITIAL_WINDOW_BYTES, MAX_WINDOW_BYTES)
        _want_within("max_frame_bytes", self.max_frame_bytes, MIN_MAX_FRAME_BYTES, MAX_MAX_FRAME_BYTES)
        _want_within("max_header_list_bytes", self.max_header_list_bytes, 1024, 0x7FFFFFFF)

    def announced(self, *, is_server: bool) -> list[tuple[int, int]]:
        entries = [
            # 0: see fieldcache
            (Setting.HEADER_TABLE_SIZE, 0),
            (Setting.MAX_CONCURRENT_STREAMS, self.max_concurrent_streams),
            (Setting.INITIAL_WINDOW_SIZE, self.stream_window_bytes),
            (Setting.MAX_FRAME_SIZE, self.max_frame_bytes),
            (Setting.MAX_HEADER_LIST_SIZE, self.max_header_list_bytes),
        ]
        if not is_server:
            # A server may not push, so a limit on its streams would have no use.
            return [(Setting.ENABLE_PUSH, 0), *(e for e in entries if e[0] != Setting.MAX_CONCURRENT_STREAMS)]
        if self.is_extended_connect_enabled:
            entries.append((Setting.ENABLE_CONNECT_PROTOCOL, 1))
        return [*entries, (Setting.NO_RFC7540_PRIORITIES, 1)]


def _want_within(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"HTTP/2 setting {name}={value}, want {lowest} to {highest}")


class PeerSettings:
    """The peer's SETTINGS in force. Its header table size is not kept, since we use no table, nor its advisory limit of
    field lists."""

    __slots__ = (
        "initial_window_bytes",
        "is_extended_connect_enabled",
        "max_concurrent_streams",
        "max_frame_bytes",
    )

    def __init__(self) -> None:
        self.initial_window_bytes = INITIAL_WINDOW_BYTES
        self.is_extended_connect_enabled = False
        # The protocol sets no limit until the peer's SETTINGS arrive; 100 is the least that the RFC recommends.
        self.max_concurrent_streams = 100
        self.max_frame_bytes = MIN_MAX_FRAME_BYTES

    def apply(self, entries: list[tuple[int, int]], *, from_server: bool, is_first: bool) -> int:
        """Returns by how much every stream's send window changes (6.9.2). Unknown settings are ignored."""
        window_before = self.initial_window_bytes
        if is_first:
            self.max_concurrent_streams = 0xFFFFFFFF
        for identifier, value in entries:
            self._apply_entry(identifier, value, from_server)
        return self.initial_window_bytes - window_before

    def _apply_entry(self, identifier: int, value: int, from_server: bool) -> None:
        match identifier:
            case Setting.INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW_BYTES:
                    raise _bad(
                        "INITIAL_WINDOW_SIZE", value, f"at most {MAX_WINDOW_BYTES}", ErrorCode.FLOW_CONTROL_ERROR
                    )
                self.initial_window_bytes = value
            case Setting.MAX_FRAME_SIZE:
                if not MIN_MAX_FRAME_BYTES <= value <= MAX_MAX_FRAME_BYTES:
                    raise _bad("MAX_FRAME_SIZE", value, f"{MIN_MAX_FRAME_BYTES} to {MAX_MAX_FRAME_BYTES}")
                self.max_frame_bytes = value
            case Setting.MAX_CONCURRENT_STREAMS:
                self.max_concurrent_streams = value
            case Setting.ENABLE_PUSH:
                if value > (0 if from_server else 1):
                    raise _bad("ENABLE_PUSH", value, "0" if from_server else "0 or 1")
            case Setting.ENABLE_CONNECT_PROTOCOL:
                if value > 1 or (value == 0 and self.is_extended_connect_enabled):
                    raise _bad("ENABLE_CONNECT_PROTOCOL", value, "0 or 1, and never 0 again after 1")
                self.is_extended_connect_enabled = value == 1
            case Setting.NO_RFC7540_PRIORITIES:
                if value > 1:
                    raise _bad("NO_RFC7540_PRIORITIES", value, "0 or 1")


def _bad(name: str, value: int, wanted: str, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> RemoteProtocolError:
    return RemoteProtocolError(code, f"SETTINGS {name}={value}, want {wanted}")
