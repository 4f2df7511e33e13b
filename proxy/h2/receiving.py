"""What the peer sends on streams: heads, bodies, trailers, window updates and resets (RFC 9113, 5.1, 6.1, 6.2, 8.1).

The receiving half below `Connection`, which adds the frames of the connection itself. Each handler takes the flags, the
stream identifier and the payload of one frame, changes the stream, appends events, and raises `RemoteProtocolError`.
"""

import sys
from dataclasses import replace

from proxy.h2 import events, frames
from proxy.h2.abuse import DRIBBLE_BYTES, Flood, FloodGuard, Limits
from proxy.h2.blocks import Assembly, header_fragment
from proxy.h2.errors import ErrorCode, FieldsTooLargeError, RemoteProtocolError, protocol_error
from proxy.h2.events import Event
from proxy.h2.fieldcache import BlockDecoder, measured_bytes
from proxy.h2.fieldlines import BlockEncoder
from proxy.h2.fields import (
    CONTENT_LENGTH,
    METHOD,
    FieldBlock,
    Malformed,
    content_length,
    request_head,
    response_head,
    trailers,
)
from proxy.h2.sending import Sending
from proxy.h2.settings import Setting, Settings
from proxy.h2.streams import UNKNOWN_LENGTH, Gone, Stream
from proxy.h2.windows import INITIAL_WINDOW_BYTES, StreamWindow, widened
from proxy.heads import BODILESS_STATUS_CODES

UNLIMITED = sys.maxsize
# In units of the work for one field: what a message costs us besides its fields, and what a piece of a body costs.
_BLOCK_WORK = 10
_BYTES_PER_WORK = 64
_DATA_WORK = 2


class Receiving(Sending):
    """State and handlers of the streams' receiving half."""

    def __init__(
        self, settings: Settings, limits: Limits, encoder: BlockEncoder, decoder: BlockDecoder, *, is_server: bool
    ) -> None:
        super().__init__(settings, encoder, FloodGuard(limits), is_server=is_server)
        self._limits = limits
        self._decoder = decoder
        self._assembly: Assembly | None = None
        self._events: list[Event] = []
        # The peer has acknowledged our SETTINGS.
        self._is_acknowledged = False
        # Until the peer has seen them, it may use the protocol's initial windows.
        self._leeway_bytes = max(0, INITIAL_WINDOW_BYTES - settings.stream_window_bytes)
        self._blocks_before_ack = 0
        # In the current call of `receive`.
        self._work_left = UNLIMITED

    def limit_field_lists(self, max_bytes: int) -> None:
        """Announce another MAX_HEADER_LIST_SIZE. It applies at once, since it is advisory (RFC 9113, 6.5.2)."""
        if self.is_terminated or max_bytes == self.settings.max_header_list_bytes:
            return
        self.settings = replace(self.settings, max_header_list_bytes=max_bytes)
        self._decoder.limit(max_bytes)
        self._output.append(frames.encode_settings([(Setting.MAX_HEADER_LIST_SIZE, max_bytes)]))

    # -- field blocks ------------------------------------------------------------------------------------------------

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.PRIORITIZED):
            fragment, flaw = header_fragment(flags, stream_id, payload)
        else:
            fragment, flaw = payload, None
        end_stream = flags & frames.END_STREAM == frames.END_STREAM
        if flags & frames.END_HEADERS:
            self._on_block(stream_id, fragment, end_stream, flaw)
            return
        max_bytes = 2 * self.settings.max_header_list_bytes
        self._assembly = Assembly(stream_id, fragment, end_stream, flaw, max_bytes, self._limits.max_continuations)

    def _on_continuation(self, _flags: int, stream_id: int, _payload: bytes) -> None:
        raise protocol_error(f"CONTINUATION on stream {stream_id} without a field block")

    def _on_block(self, stream_id: int, block: bytes, end_stream: bool, flaw: str | None) -> None:
        # First, since a block that is not decoded would break those after it.
        decoded = self._decoder.decode(block)
        self._work_left -= _BLOCK_WORK + len(decoded.fields) + len(block) // _BYTES_PER_WORK
        if not self._is_acknowledged:
            self._count_block_before_ack()
        stream = self._streams.get(stream_id)
        if stream is None:
            if not self.is_server or stream_id <= self._table.last_id or not stream_id & 1:
                self._on_gone(stream_id, "HEADERS")
                return
            stream = self._open(stream_id)
        elif not stream.is_remote_open:
            raise RemoteProtocolError(ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM", stream_id)
        if flaw is not None:
            raise protocol_error(flaw, stream_id)
        try:
            if stream.has_received_head:
                self._on_trailers(stream, decoded, end_stream)
            elif self.is_server:
                self._on_request(stream, decoded, end_stream)
            else:
                self._on_response(stream, decoded, end_stream)
        except Malformed as malformed:
            raise protocol_error(str(malformed), stream_id) from None

    def _count_block_before_ack(self) -> None:
        self._blocks_before_ack += 1
        if self._blocks_before_ack > self._limits.max_blocks_before_ack:
            reason = f"{self._blocks_before_ack} field blocks without an acknowledgement of our SETTINGS"
            raise RemoteProtocolError(ErrorCode.SETTINGS_TIMEOUT, reason)

    def _open(self, stream_id: int) -> Stream:
        is_full = len(self._streams) >= self.settings.max_concurrent_streams
        stream = self._table.open(stream_id, self.peer.initial_window_bytes)
        if is_full or self.is_draining:
            why = "draining" if self.is_draining else f"{self.settings.max_concurrent_streams} streams are open"
            raise RemoteProtocolError(ErrorCode.REFUSED_STREAM, why, stream_id)
        return stream

    def _on_request(self, stream: Stream, decoded: FieldBlock, end_stream: bool) -> None:
        limit_bytes = self.settings.max_header_list_bytes
        event: Event
        if decoded.size_bytes > limit_bytes:
            method = decoded.special[METHOD]
            event = events.RequestTooLarge(stream.stream_id, decoded.size_bytes, limit_bytes, method)
        else:
            head = request_head(decoded, self.settings.is_extended_connect_enabled)
            stream.is_connect = head.method == b"CONNECT"
            event = events.RequestReceived(stream.stream_id, head, end_stream)
            length = decoded.special[CONTENT_LENGTH]
            # An HTTP/1.1 handshake may say that it has no body, as Java's does, and its translation to HTTP/2 may keep
            # that. The data that follows belongs to another protocol.
            if length is not None and not stream.is_connect and self.settings.handshake not in head.fields:
                self._expect(stream, int(length), end_stream)
        stream.has_received_head = True
        self._events.append(event)
        # No response has been sent, so this does not end the stream.
        stream.is_remote_open = not end_stream

    def _on_response(self, stream: Stream, decoded: FieldBlock, end_stream: bool) -> None:
        self._want_small(stream, decoded)
        head = response_head(decoded)
        if head.status_code < 200:
            if end_stream:
                raise Malformed(f"interim response {head.status_code} ends the stream")
            # Nothing else bounds them: heads are not flow-controlled.
            stream.interim_count += 1
            if stream.interim_count > self._limits.max_interim:
                raise Malformed(f"more than {self._limits.max_interim} interim responses")
            stream.interim_bytes += decoded.size_bytes or measured_bytes(decoded)
            limit_bytes = self.settings.max_header_list_bytes
            if stream.interim_bytes > limit_bytes:
                raise Malformed(f"interim responses of more than {limit_bytes} bytes together")
            self._events.append(events.InformationalReceived(stream.stream_id, head))
            return
        stream.is_bodiless = stream.is_bodiless or head.status_code in BODILESS_STATUS_CODES
        stream.is_tunnel = stream.is_connect and head.status_code < 300
        length = content_length(decoded)
        if length is not None and not stream.is_bodiless and not stream.is_tunnel:
            self._expect(stream, length, end_stream)
        stream.has_received_head = True
        is_whole = end_stream or (stream.is_bodiless and not stream.is_tunnel and not stream.is_local_open)
        self._events.append(events.ResponseReceived(stream.stream_id, head, end_stream, is_whole))
        if end_stream:
            self._remote_end(stream)

    def _on_trailers(self, stream: Stream, decoded: FieldBlock, end_stream: bool) -> None:
        if stream.is_tunnel:
            raise Malformed("HEADERS on a stream that is a tunnel (8.5)")
        self._want_small(stream, decoded)
        if not end_stream:
            raise Malformed("trailers without END_STREAM")
        fields = trailers(decoded)
        self._expect_end(stream)
        self._events.append(events.TrailersReceived(stream.stream_id, fields))
        self._remote_end(stream)

    def _want_small(self, stream: Stream, decoded: FieldBlock) -> None:
        limit_bytes = self.settings.max_header_list_bytes
        if decoded.size_bytes > limit_bytes:
            reason = f"field list of {decoded.size_bytes} bytes, want at most {limit_bytes}"
            raise FieldsTooLargeError(reason, stream.stream_id)

    @staticmethod
    def _expect(stream: Stream, length: int, end_stream: bool) -> None:
        if end_stream and length:
            raise Malformed(f"content-length {length} without a body")
        stream.expected_bytes = length

    @staticmethod
    def _expect_end(stream: Stream) -> None:
        if stream.expected_bytes > 0:
            raise Malformed(f"body ends {stream.expected_bytes} bytes short of its content-length")

    def _remote_end(self, stream: Stream) -> None:
        stream.is_remote_open = False
        if not stream.is_local_open:
            self._table.end(stream)
        elif stream.receive_window is not None:
            stream.receive_window.end()

    # -- bodies ------------------------------------------------------------------------------------------------------

    def _on_data(self, flags: int, stream_id: int, payload: bytes | memoryview) -> None:
        size = len(payload)
        self._work_left -= _DATA_WORK
        window = self._receive_window
        window.take(size, 0)
        if window.is_due:
            self._output.append(frames.encode_window_update(0, window.announce()))
        data = frames.strip_padding(payload) if flags & frames.PADDED else payload
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_remote_open or not stream.has_received_head:
            self._release_to_connection(size)
            self._on_misplaced_data(stream, stream_id)
            return
        if size:
            self._take(stream, size, len(data))
        end_stream = flags & frames.END_STREAM == frames.END_STREAM
        if data:
            if stream.is_bodiless:
                self._end_with_head(stream_id)
                return
            self._count_body(stream, len(data))
        elif not end_stream:
            self._guard.count(Flood.EMPTY_DATA)
            return
        if end_stream and stream.expected_bytes > 0:
            if not self._may_stop_short(stream):
                raise protocol_error(f"body ends {stream.expected_bytes} bytes short of its content-length", stream_id)
            if data:
                self._events.append(events.DataReceived(stream_id, data, False))
            self._remote_end(stream)
            return
        self._events.append(events.DataReceived(stream_id, data, end_stream))
        if end_stream:
            self._remote_end(stream)

    def _may_stop_short(self, stream: Stream) -> bool:
        """Whether a response is being sent, which the peer should get although its request is malformed (8.1.1).

        curl 7.88 ends a refused upload like this. The end is not reported: nobody may take such a body for complete.
        """
        return self.is_server and stream.has_sent_head and stream.is_local_open and not stream.is_connect

    def _on_misplaced_data(self, stream: Stream | None, stream_id: int) -> None:
        if stream is None:
            self._on_gone(stream_id, "DATA")
        elif not stream.is_remote_open:
            raise RemoteProtocolError(ErrorCode.STREAM_CLOSED, "DATA after END_STREAM", stream_id)
        else:
            raise protocol_error("DATA before HEADERS", stream_id)

    def _take(self, stream: Stream, size: int, data_size: int) -> None:
        """Charge a payload to the stream's window; its padding is released at once."""
        window = stream.receive_window
        if window is None:
            window = stream.receive_window = StreamWindow(self._pool)
            if not self._is_acknowledged:
                window.available += self._leeway_bytes
        try:
            window.take(size, stream.stream_id)
        except RemoteProtocolError:
            self._release_to_connection(size)
            raise
        if size != data_size:
            self._release_padding(stream.stream_id, window, size - data_size)

    def _release_padding(self, stream_id: int, window: StreamWindow, size: int) -> None:
        # Padding does not show that somebody takes the body, so it does not widen the window.
        increment = window.release(size)
        if increment:
            self._output.append(frames.encode_window_update(stream_id, increment))
        self._release_to_connection(size)

    def _end_with_head(self, stream_id: int) -> None:
        """A body came where there can be none, from a server that leaves HEAD to applications which ignore the method.

        The response was complete with its head, which has been reported. The reset stops what comes after it.
        """
        self._guard.resets_sent += 1
        self._reset(stream_id, ErrorCode.PROTOCOL_ERROR)
        self._events.append(events.DataReceived(stream_id, b"", True))

    @staticmethod
    def _count_body(stream: Stream, size: int) -> None:
        if stream.expected_bytes != UNKNOWN_LENGTH:
            stream.expected_bytes -= size
            if stream.expected_bytes < 0:
                raise protocol_error("body longer than its content-length", stream.stream_id)

    def _on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        increment = frames.decode_uint32(payload, "WINDOW_UPDATE") & frames.MAX_STREAM_ID
        self._guard.count(Flood.WINDOW_UPDATE)
        self._guard.check_dribbles()
        stream = self._streams.get(stream_id)
        if stream is None and stream_id:
            self._on_late_frame(stream_id, "WINDOW_UPDATE")
            return
        if not increment:
            raise protocol_error("window increment 0, want 1 to 2^31-1", stream_id)
        if increment < DRIBBLE_BYTES:
            self._gather_credit()
        least = self._least_bytes
        if stream is not None:
            before = stream.send_window
            stream.send_window = widened(before, increment, stream_id)
            if before < least and stream.send_window > 0 and stream.is_local_open:
                self._events.append(events.WindowUpdated(stream_id))
        else:
            before = self._send_window
            self._send_window = widened(before, increment, 0)
            if before < least and self._send_window > 0:
                self._events.append(events.WindowUpdated(0))

    def _on_late_frame(self, stream_id: int, what: str) -> None:
        """A frame that may arrive for a while after the stream is gone."""
        if self._table.why_gone(stream_id) is Gone.IDLE:
            raise protocol_error(f"{what} on stream {stream_id}, which is idle")
        self._guard.count(Flood.IGNORED)

    def _on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        code = frames.decode_uint32(payload, "RST_STREAM")
        stream = self._streams.get(stream_id)
        if stream is None:
            self._on_late_frame(stream_id, "RST_STREAM")
            return
        if self.is_server and stream.is_local_open:
            self._guard.count(Flood.RESET)
        self._release_to_connection(self._table.reset(stream_id, Gone.RESET_BY_PEER))
        self._events.append(events.StreamReset(stream_id, code, True, "reset by the peer"))

    # -- stream errors -----------------------------------------------------------------------------------------------

    def _on_stream_error(self, error: RemoteProtocolError) -> None:
        stream_id = error.stream_id
        stream = self._streams.get(stream_id)
        if not self.is_server and stream is not None:
            # The stream is one that we have opened, so there is no more to limit, and others share the connection.
            self._guard.resets_sent += 1
        elif not self.is_draining:
            self._guard.count(Flood.STREAM_ERROR)
        self._reset(stream_id, error.code)
        if stream is None:
            return
        if self.is_server and not stream.has_received_head:
            self._events.append(events.RequestRejected(stream_id, error.code, error.reason))
        else:
            are_fields_too_large = isinstance(error, FieldsTooLargeError)
            self._events.append(events.StreamReset(stream_id, error.code, False, error.reason, are_fields_too_large))

    def _on_gone(self, stream_id: int, what: str) -> None:
        """A HEADERS or DATA frame on a stream that is not live (5.1)."""
        how = self._table.why_gone(stream_id)
        reason = f"{what} on stream {stream_id}, which is {how.value}"
        if how is Gone.RESET_BY_US:
            self._guard.count(Flood.IGNORED)
        elif how is Gone.RESET_BY_PEER:
            raise RemoteProtocolError(ErrorCode.STREAM_CLOSED, reason, stream_id)
        elif how is Gone.ENDED:
            raise RemoteProtocolError(ErrorCode.STREAM_CLOSED, reason)
        else:
            raise protocol_error(reason)
