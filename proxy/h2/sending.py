"""What our side sends, on streams and on the connection (RFC 9113, 5.1, 5.2, 6): the calling half of `Connection`.

Every call checks the state, then queues bytes; nothing is sent until the caller fetches them. Queued body data is never
copied: `send_data` keeps the very buffer it was given, cut to the windows, so one join per turn of the loop moves it.

Calls for a stream that was reset are ignored, since the caller may not have read its `StreamReset` event yet. Calls
that are wrong whatever events were read raise `LocalProtocolError` and queue nothing.
"""

from proxy.h2 import frames
from proxy.h2.abuse import DRIBBLE_BYTES, FloodGuard
from proxy.h2.errors import ErrorCode, LocalProtocolError
from proxy.h2.fieldlines import BlockEncoder
from proxy.h2.settings import PeerSettings, Settings
from proxy.h2.streams import MOST_REMEMBERED_RESETS, Gone, Stream, StreamTable
from proxy.h2.windows import INITIAL_WINDOW_BYTES, Line, Pool, SharedWindow
from proxy.heads import Fields, RequestHead, ResponseHead

# Larger DATA frames gain nothing (measured) and keep other streams waiting.
MAX_DATA_FRAME_BYTES = 65_536
# Payload of the PING whose acknowledgement a drain awaits before it says which stream was the last.
DRAIN_PING = b"draining"

# Every peer accepts frames of this size, and copying one costs less than queueing it.
_SMALL_BYTES = 4_096

_pack_head = frames.FRAME_HEAD.pack


class Sending:
    """State and calls of the sending half; `Receiving` adds what arrives on streams, `Connection` the rest."""

    def __init__(self, settings: Settings, encoder: BlockEncoder, guard: FloodGuard, *, is_server: bool) -> None:
        self.is_server = is_server
        self.settings = settings
        self.peer = PeerSettings()
        # After a connection error, or `terminate`: nothing more is received; what is queued may be sent.
        self.is_terminated = False
        # Neither side opens streams any more.
        self.is_draining = False
        self._is_drain_announced = False
        # Our PING is on its way, so the peer may not have seen yet that we drain.
        self._awaits_drain_ack = False
        # Pings of the caller that the peer has not answered.
        self._awaited_pongs = 0
        # Streams of the peer from this identifier on are not processed.
        self._refused_from = frames.MAX_STREAM_ID + 1
        self._encoder = encoder
        self._guard = guard
        # A server that does not announce a limit of streams may accept any number.
        self._table = StreamTable(settings.max_concurrent_streams if is_server else MOST_REMEMBERED_RESETS)
        self._streams = self._table.live
        self._output: list[bytes | memoryview] = []
        self._send_window = INITIAL_WINDOW_BYTES
        # If less than this is left of a window, only pieces that fit as a whole are sent.
        self._least_bytes = 1
        self._receive_window = SharedWindow(settings.connection_window_bytes)
        self._pool = Pool(settings.stream_window_bytes, settings.max_stream_window_bytes, settings.window_pool_bytes)
        if not is_server:
            self._output.append(frames.PREFACE)
        self._output.append(frames.encode_settings(settings.announced(is_server=is_server)))
        increment = settings.connection_window_bytes - INITIAL_WINDOW_BYTES
        if increment:
            self._output.append(frames.encode_window_update(0, increment))

    def carried_by(self, line: Line) -> None:
        """Keep windows for bodies no wider than `line` can use, which is asked whenever credit is announced."""
        self._pool.line = line

    # -- output ------------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything queued, in one piece; empty when there is nothing."""
        return b"".join(self.buffers_to_send())

    def buffers_to_send(self) -> list[bytes | memoryview]:
        """Everything queued, in its original pieces: for `sendmsg`, or to be joined with other output."""
        output, self._output = self._output, []
        return output

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    @property
    def is_drained(self) -> bool:
        """Draining, and the last stream has ended: the transport may be closed."""
        return self.is_draining and not self._streams and not self._awaits_drain_ack

    @property
    def has_send_window(self) -> bool:
        """The connection's window is open. If it is not, `WindowUpdated` of stream 0 will come, once or more often."""
        return self._send_window >= self._least_bytes

    @property
    def send_window_bytes(self) -> int:
        """What the connection's window leaves for the bodies of all streams together."""
        return self._send_window

    @property
    def is_crowded(self) -> bool:
        """Received bytes that the caller has not released take up half of the connection's window, or more."""
        return 2 * self._receive_window.held >= self.settings.connection_window_bytes

    def is_live(self, stream_id: int) -> bool:
        return stream_id in self._streams

    def is_whole(self, stream_id: int) -> bool:
        """Whether the request is sent completely, and the response lacks at most the end of the stream."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.has_received_head:
            return False
        return stream.is_bodiless and not stream.is_tunnel and not stream.is_local_open

    def sendable(self, stream_id: int) -> int:
        """How many bytes the windows allow now. If it is 0, a `WindowUpdated` event will come, for the stream or for
        stream 0."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_local_open:
            return 0
        return max(0, min(stream.send_window, self._send_window))

    def awaits_credit(self, stream_id: int) -> bool:
        """Whether the windows are so narrow that `send_data` takes nothing of a larger piece. `WindowUpdated` events
        will come."""
        return self.sendable(stream_id) < self._least_bytes

    def has_stream_window(self, stream_id: int) -> bool:
        """The stream's own window is open, whatever that of the connection."""
        stream = self._streams.get(stream_id)
        return stream is not None and stream.send_window >= self._least_bytes

    def _gather_credit(self) -> None:
        """From now on, do not use small credit, but wait for more. More will come, since the peer has not yet given
        back the rest of its window.

        Call when many small frames have been sent. The peer may give credit back frame by frame: each small piece of
        credit would be used for a small frame, come back as credit of that size, and so on for ever. Or it gives a
        fixed amount each time, such as lighttpd's 16 KiB, of which each piece of a body leaves a few bytes.
        """
        if not self._is_window_tiny:
            self._least_bytes = DRIBBLE_BYTES

    @property
    def _is_window_tiny(self) -> bool:
        """The peer's windows are so small that it may never give more credit than that."""
        return self.peer.initial_window_bytes < 4 * DRIBBLE_BYTES

    # -- messages ----------------------------------------------------------------------------------------------------

    def send_headers(self, stream_id: int, head: ResponseHead, end_stream: bool = False) -> None:
        """Answer a request. A status code below 200 is an interim response, of which any number may come first."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_local_open:
            self._refuse_sending(stream_id, stream)
            return
        is_interim = head.status_code < 200
        if stream.has_sent_head or not self.is_server:
            raise LocalProtocolError(
                f"response head on stream {stream_id}, which has one or is not a request of the peer"
            )
        if is_interim and end_stream:
            raise LocalProtocolError(f"interim response {head.status_code} cannot end stream {stream_id}")
        block = self._encoder.response(head)
        stream.has_sent_head = not is_interim
        self._guard.answers_sent += not is_interim
        stream.is_tunnel = stream.is_connect and not is_interim and head.status_code < 300
        self._queue_block(stream, block, end_stream)

    def send_trailers(self, stream_id: int, fields: Fields) -> None:
        """End our direction of the stream with fields after the body."""
        stream = self._sending(stream_id)
        if stream is not None:
            self._queue_block(stream, self._encoder.trailers(fields), end_stream=True)

    def send_data(self, stream_id: int, data: bytes | memoryview, end_stream: bool = False) -> int:
        """Queue as much of `data` as the windows allow; returns how much that was, 0 if it would be very little.

        `end_stream` takes effect only if all of it was taken. `data` must not change until it has been sent. A stream
        that is gone takes nothing.
        """
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_local_open:
            self._refuse_sending(stream_id, stream)
            return 0
        if not stream.has_sent_head:
            raise _headless(stream_id)
        size = len(data)
        room = min(stream.send_window, self._send_window)
        # An empty piece that ends the stream needs no window. The window may be negative (6.9.2).
        if size > room and size:
            if room < self._least_bytes:
                return 0
            size, end_stream = room, False
            if size < DRIBBLE_BYTES:
                self._guard.dribbles_sent += 1
                if self._guard.is_dribbled:
                    self._gather_credit()
        stream.send_window -= size
        self._send_window -= size
        self._queue_data(stream_id, data, size, end_stream)
        if end_stream:
            self._local_end(stream)
        return size

    def send_response(self, stream_id: int, head: ResponseHead, data: bytes | memoryview) -> int:
        """`send_headers` and `send_data` to the end of the stream, in one; `data` is not empty."""
        self.send_headers(stream_id, head)
        stream, size, output = self._streams.get(stream_id), len(data), self._output
        if stream is None or size > min(stream.send_window, self._send_window, _SMALL_BYTES):
            return self.send_data(stream_id, data, end_stream=True)
        stream.send_window -= size
        self._send_window -= size
        self._guard.data_frames_sent += 1
        frame_head = _pack_head(size >> 8, size & 0xFF, frames.DATA, frames.END_STREAM, stream_id)
        output[-1] = b"".join((output[-1], frame_head, data))
        stream.is_local_open = False
        if not stream.is_remote_open:
            self._table.end(stream)
        return size

    def end_stream(self, stream_id: int) -> None:
        """End our direction of the stream; needs no window."""
        stream = self._sending(stream_id)
        if stream is not None:
            self._output.append(frames.encode_frame(frames.DATA, frames.END_STREAM, stream_id))
            self._local_end(stream)

    def reset_stream(self, stream_id: int, code: int = ErrorCode.CANCEL) -> None:
        """Give up both directions of the stream. Credit for what the caller still held is given back; no event
        follows."""
        self._want_opened(stream_id)
        if stream_id in self._streams:
            self._guard.resets_sent += 1
            self._reset(stream_id, code)
        else:
            self.abandon(stream_id)

    # -- credit ------------------------------------------------------------------------------------------------------

    def release(self, stream_id: int, size_bytes: int) -> None:
        """Give credit back for received body bytes that are no longer held; also after the stream has ended.

        After a reset there is nothing left to give back.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            size_bytes = self._table.release_ended(stream_id, size_bytes)
        elif stream.receive_window is None:
            return
        else:
            increment = stream.receive_window.drain(size_bytes)
            if increment:
                self._output.append(frames.encode_window_update(stream_id, increment))
        self._release_to_connection(size_bytes)

    def abandon(self, stream_id: int) -> None:
        """Give credit back for everything that the caller still held of this stream's body."""
        self.release(stream_id, self._table.held_by(stream_id))

    # -- connection --------------------------------------------------------------------------------------------------

    def ping(self, payload: bytes) -> None:
        """Send a PING; `PingAcked` brings its payload back."""
        if len(payload) != 8 or payload == DRAIN_PING:
            raise LocalProtocolError(f"PING payload {payload!r}, want 8 bytes, and not those that a drain uses")
        self._awaited_pongs += 1
        self._output.append(frames.encode_frame(frames.PING, 0, 0, payload))

    def drain(self) -> None:
        """Finish open streams, accept no new ones. A server first says so, and refuses only after a round trip (6.8).

        A client sends no GOAWAY before `terminate`: peers that use the h2 package, hypercorn among them, drop
        unfinished responses as soon as one comes.
        """
        if self._is_drain_announced or self.is_terminated:
            return
        if self.is_server:
            self._announce_drain(frames.MAX_STREAM_ID)
        else:
            self._is_drain_announced = self.is_draining = True

    def refuse_from(self, stream_id: int) -> None:
        """Finish earlier streams; refuse this one and all later ones (server role), which the caller has not processed.

        The peer may send them again over another connection, whatever their methods are (6.8, 8.7).
        """
        if self.is_terminated or stream_id >= self._refused_from:
            return
        self._refused_from, self.is_draining = stream_id, True
        # First, so that the peer does not send the streams again over this connection.
        self._announce_drain(self._last_peer_stream_id)
        for live_id in [live_id for live_id in self._streams if live_id >= stream_id]:
            self.reset_stream(live_id, ErrorCode.REFUSED_STREAM)

    def terminate(self, code: int = ErrorCode.NO_ERROR, debug_data: bytes = b"") -> None:
        """Give up the connection at once: the last frame is a GOAWAY, and every stream is gone without an event."""
        if not self.is_terminated:
            self.is_terminated = True
            self._streams.clear()
            self._table.held_by_ended.clear()
            self._output.append(frames.encode_goaway(self._last_peer_stream_id, code, debug_data))

    def open_stream(self, head: RequestHead, end_stream: bool = False) -> int:
        """Send a request (client role); returns its stream identifier. Ask `openable` first."""
        if self.openable <= 0:
            raise LocalProtocolError(
                "no stream can be opened: limit of the peer reached, connection draining, or server role"
            )
        if head.protocol is not None and not self.peer.is_extended_connect_enabled:
            raise LocalProtocolError("extended CONNECT, which the peer has not enabled")
        block = self._encoder.request(head)
        stream = self._table.open(self._table.last_id + 2 if self._table.last_id else 1, self.peer.initial_window_bytes)
        stream.has_sent_head = True
        stream.is_bodiless = head.method == b"HEAD"
        stream.is_connect = head.method == b"CONNECT"
        self._queue_block(stream, block, end_stream)
        return stream.stream_id

    @property
    def openable(self) -> int:
        """How many more streams a client may open now."""
        if self.is_server or self.is_draining or self.is_terminated:
            return 0
        ids_left = (frames.MAX_STREAM_ID - self._table.last_id) // 2
        return min(self.peer.max_concurrent_streams - len(self._streams), ids_left)

    # -- shared with the receiving half ------------------------------------------------------------------------------

    @property
    def _last_peer_stream_id(self) -> int:
        return min(self._table.last_id, max(0, self._refused_from - 2)) if self.is_server else 0

    def _announce_drain(self, last_stream_id: int) -> None:
        self._output.append(frames.encode_goaway(last_stream_id, ErrorCode.NO_ERROR, b""))
        if not self._is_drain_announced:
            self._is_drain_announced = self._awaits_drain_ack = True
            self._output.append(frames.encode_frame(frames.PING, 0, 0, DRAIN_PING))

    def _finish_drain(self) -> None:
        self._awaits_drain_ack = False
        self.is_draining = True
        self._output.append(frames.encode_goaway(self._last_peer_stream_id, ErrorCode.NO_ERROR, b""))

    def _sending(self, stream_id: int) -> Stream | None:
        """A stream whose body is being sent; None if it is gone."""
        stream = self._streams.get(stream_id)
        if stream is None or not stream.is_local_open:
            self._refuse_sending(stream_id, stream)
            return None
        if not stream.has_sent_head:
            raise _headless(stream_id)
        return stream

    def _refuse_sending(self, stream_id: int, stream: Stream | None) -> None:
        """Silent if the stream is gone, which the caller may not know yet."""
        if stream is not None:
            raise LocalProtocolError(f"stream {stream_id} was ended by us already")
        self._want_opened(stream_id)

    def _want_opened(self, stream_id: int) -> None:
        if stream_id not in self._streams and self._table.why_gone(stream_id) is Gone.IDLE:
            raise LocalProtocolError(f"stream {stream_id} was never opened")

    def _queue_data(self, stream_id: int, data: bytes | memoryview, size: int, end_stream: bool) -> None:
        max_bytes = min(self.peer.max_frame_bytes, MAX_DATA_FRAME_BYTES)
        output = self._output
        if size == len(data) <= max_bytes:
            self._guard.data_frames_sent += 1
            output.append(_pack_head(size >> 8, size & 0xFF, frames.DATA, end_stream, stream_id))
            output.append(data)
            return
        view = memoryview(data)
        for start in range(0, size, max_bytes):
            stop = min(start + max_bytes, size)
            length = stop - start
            flags = frames.END_STREAM if end_stream and stop == size else 0
            self._guard.data_frames_sent += 1
            output.append(_pack_head(length >> 8, length & 0xFF, frames.DATA, flags, stream_id))
            output.append(view[start:stop])

    def _queue_block(self, stream: Stream, block: bytes, end_stream: bool) -> None:
        length, max_bytes = len(block), self.peer.max_frame_bytes
        flags = frames.END_STREAM if end_stream else 0
        if length <= max_bytes:
            head = _pack_head(length >> 8, length & 0xFF, frames.HEADERS, flags | frames.END_HEADERS, stream.stream_id)
            self._output.append(head + block)
        else:
            kind = frames.HEADERS
            for start in range(0, length, max_bytes):
                if start + max_bytes >= length:
                    flags |= frames.END_HEADERS
                fragment = block[start : start + max_bytes]
                self._output.append(frames.encode_frame(kind, flags, stream.stream_id, fragment))
                kind, flags = frames.CONTINUATION, 0
        if end_stream:
            self._local_end(stream)

    def _local_end(self, stream: Stream) -> None:
        stream.is_local_open = False
        if not stream.is_remote_open:
            self._table.end(stream)

    def _reset(self, stream_id: int, code: int) -> None:
        held = self._table.reset(stream_id, Gone.RESET_BY_US)
        self._output.append(frames.encode_rst_stream(stream_id, code))
        self._release_to_connection(held)

    def _release_to_connection(self, size_bytes: int) -> None:
        increment = self._receive_window.release(size_bytes)
        if increment:
            self._output.append(frames.encode_window_update(0, increment))


def _headless(stream_id: int) -> LocalProtocolError:
    return LocalProtocolError(f"body or trailers on stream {stream_id} before its head")
