"""A connected socket, plain or TLS: input as it arrives, output once per turn, and the law of back-pressure.

The law: credit is given back only for bytes that this socket's kernel buffer has taken. Whoever hands over body bytes
calls `owe(creditor, size_bytes)`; when all output that was queued up to the end of that turn has been sent, the
creditor's `release(size_bytes)` is called. A creditor whose bytes are not released stops reading its own peer, so what
a transport holds is bounded by what its creditors may have in flight.

    transport = Transport(loop, sock, owner)
    transport.start()                       owner.on_data(bytes), on_eof(), on_lost(error)
    transport.flush_later()                 owner.buffers_to_send() is fetched at the end of the turn
    transport.finish() / transport.abort()  after what is queued / at once
"""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from daemonkit.logs import get_logger
from daemonkit.tlssocket import TlsSocket
from proxy.loop.debts import Creditor
from proxy.loop.finishing import LOOK_S, PATIENCE_S, Finishing
from proxy.loop.loop import LITTLE_BYTES, READ_BYTES, Loop
from proxy.loop.output import NOT_NOW, Output
from proxy.loop.owner import NOBODY, Owner
from proxy.loop.tlsinput import TlsInput

log = get_logger(__name__)

_FIRST_READ_BYTES: Final = 64 * 1024
_MAX_READ_BYTES: Final = 252 * 1024
"""How much is read from a plain socket at once, at first and at most: each read allocates a buffer of this size. What
is read over TLS is limited by the loop (`Loop.read_bytes`)."""
_MAX_SILENT_RECORDS: Final = 16
"""How many TLS records without data may precede a peer's last data: servers send two to four at the beginning."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Transport:
    __slots__ = (
        "_debts",
        "_finishing",
        "_is_eof_seen",
        "_is_flush_due",
        "_is_half_closing",
        "_is_paused",
        "_linger",
        "_loop",
        "_output",
        "_owner",
        "_read_bytes",
        "_sock",
        "_tls",
        "_withheld_loss",
        "before_close",
        "is_closed",
        "is_cut_off",
        "is_output_ended",
        "is_writing",
        "reads_rest_before_loss",
    )

    def __init__(self, loop: Loop, sock: socket.socket, owner: Owner) -> None:
        """`sock` is connected and non-blocking; the handshake of an `ssl.SSLSocket` is done."""
        self._loop = loop
        self._sock = sock
        self._owner: Owner = owner
        self._tls = TlsInput(sock) if isinstance(sock, ssl.SSLSocket | TlsSocket) else None
        self.before_close: Callable[[], None] | None = None
        """Called just before the socket is closed, while the kernel can still be asked about it."""
        self.reads_rest_before_loss = False
        """If the connection breaks while reading is paused, `on_lost` waits until reading is resumed, and earlier data
        has been received."""
        self.is_closed = False
        self.is_cut_off = False
        """With `on_eof`: TLS ended without close_notify, so anybody on the path may have ended it (RFC 8446, 6.1).

        Only known for a client's `TlsSocket`, and for sockets wrapped with `suppress_ragged_eofs=False`.
        """
        self._read_bytes = _FIRST_READ_BYTES
        self._output = Output(sock, loop.unsent)
        self._debts = self._output.debts
        self._is_flush_due = False
        self._is_half_closing = False
        self.is_writing = False
        """The socket has not taken everything that was fetched; `on_drained` follows."""
        self._is_paused = False
        self._is_eof_seen = False
        self._finishing: Finishing | None = None
        """Set by `finish`."""
        self.is_output_ended = False
        """Nothing can be sent any more. If it is true within `on_data`, the connection has broken, and `on_lost` or
        `on_eof` comes next."""
        self._withheld_loss: OSError | None = None
        """Why the connection has broken, until `reads_rest_before_loss` lets `on_lost` be called."""
        self._linger = loop.deadline(self._on_linger)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "finishing" if self._finishing is not None else "open"
        return f"<Transport {state}, {self.queued_bytes} bytes queued>"

    def start(self) -> None:
        """Begin to read. If the kernel does not watch the socket (a limit of watches, no memory), now or after a pause,
        the connection counts as lost: `on_lost` comes in a later call of the loop."""
        try:
            self._loop.watch(self._sock, self)
        except OSError as error:
            self._loop.call_soon(partial(self._lose_unless_closed, error))
            return
        if self._tls is not None and self._tls.has_more:
            # Data that came with the last bytes of the handshake causes no event.
            self._loop.call_soon(self._read_pending)

    def keep_unsent_low(self, size_bytes: int) -> None:
        """Make the kernel hold little unsent data, so that later output need not wait behind it."""
        # Unix sockets have no such limit.
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size_bytes)

    def set_user_timeout(self) -> None:
        """Make the kernel give up a peer that takes nothing when we do (RFC 5482); otherwise it tries for minutes after
        closing."""
        # Unix sockets have no such limit, and need none.
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * PATIENCE_S))

    def hand_over(self, owner: Owner) -> None:
        """Call `owner` from now on: the connection goes on in another protocol."""
        self._owner = owner

    @property
    def queued_bytes(self) -> int:
        """How much waits for the socket. Output that has not been fetched yet does not count."""
        return self._output.queued_bytes

    @property
    def unowed_bytes(self) -> int:
        """How much of `queued_bytes` is not body, and so not limited by credit."""
        return self._output.queued_bytes - self._debts.waiting_bytes

    @property
    def can_half_close(self) -> bool:
        return self._tls is None

    @property
    def is_sending(self) -> bool:
        """The socket has not taken everything. Output that is still to be fetched counts."""
        return self._is_flush_due or bool(self._output.queue)

    @property
    def is_finishing(self) -> bool:
        """`finish` has been called, and what is queued is still being sent."""
        return self._finishing is not None

    @property
    def is_delivering(self) -> bool:
        """The peer's kernel has not acknowledged everything. Output that is still to be fetched counts."""
        return self._is_flush_due or self._output.unacknowledged_bytes > 0

    def progress_of(self, creditor: Creditor) -> int | None:
        """How much the peer has acknowledged, while bytes of `creditor` wait for the socket; None if none wait.

        No event reports it: the socket becomes writable only when a large part of its buffer is free.
        """
        return self.acknowledged_bytes if self._debts.has(creditor) else None

    @property
    def acknowledged_bytes(self) -> int:
        return self._output.acknowledged_bytes

    # -- receiving ---------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._rewatch()

    def read_little(self) -> None:
        """Read LITTLE_BYTES at most next time. Reads that are full grow again, unless the loop `reads_little`."""
        self._read_bytes = LITTLE_BYTES

    def resume_reading(self) -> None:
        """Data that TLS holds already is delivered by a later call of the loop, never from within this one."""
        if self._is_paused:
            self._is_paused = False
            if self._withheld_loss is not None:
                self._loop.call_soon(self._read_pending)
                return
            self._rewatch()
            if self._tls is not None and not self.is_closed and self._tls.has_more:
                self._loop.call_soon(self._read_pending)

    def on_readable(self) -> None:
        if self._is_paused or self.is_closed:
            return
        tls = self._tls
        try:
            data = self._sock.recv(self._read_bytes) if tls is None else tls.receive(self._loop.read_bytes)
        except NOT_NOW:
            return
        except ssl.SSLEOFError:
            self.is_cut_off = True
            data = b""
        except OSError as error:
            self._lose(error)
            return
        if tls is not None and tls.holds_end:
            self._loop.call_soon(self._read_pending)
        if self._finishing is not None:
            self._drop(data)
        elif data:
            if len(data) == self._read_bytes:
                self._read_bytes = (
                    LITTLE_BYTES if self._loop.reads_little else min(2 * self._read_bytes, _MAX_READ_BYTES)
                )
            self._owner.on_data(data)
        else:
            self._is_eof_seen = True
            self._rewatch()
            self._owner.on_eof()

    def _read_pending(self) -> None:
        if self.is_closed or self._is_paused:
            return
        try:
            if self._withheld_loss is not None:
                self._lose_output(self._withheld_loss)
            elif not self._is_eof_seen:
                self.on_readable()
        except Exception:
            # As the loop does for events of the socket.
            log.exception("bug in the handler of a socket", handler=type(self).__name__)
            self.on_bug()

    def _drop(self, data: bytes) -> None:
        if not data:
            self._is_eof_seen = True
            if self.is_output_ended and not self.is_writing:
                self._close()
            else:
                self._rewatch()

    # -- sending -----------------------------------------------------------------------------------------------------

    def flush_later(self) -> None:
        """Fetch the owner's output at the end of this turn."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.flush_later(self)

    def owe(self, creditor: Creditor, size_bytes: int) -> None:
        """Body bytes of `creditor` are among the output of this turn; implies `flush_later`."""
        self._debts.owe(creditor, size_bytes)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.flush_later(self)

    def flush(self) -> None:
        self._is_flush_due = False
        if self.is_closed or self.is_output_ended:
            if self._withheld_loss is not None:
                self._owner.buffers_to_send()
            self._debts.forgive()
            return
        buffers = self._owner.buffers_to_send()
        try:
            is_done = self._output.send(buffers)
        except OSError as error:
            self._lose_output(error)
            return
        if is_done:
            self._debts.settle()
            if self._finishing is not None or self._is_half_closing:
                self._end_if_asked()
        else:
            self._account()

    def on_writable(self) -> None:
        if self.is_closed:
            return
        try:
            self._output.send_queued()
        except OSError as error:
            self._lose_output(error)
            return
        self._account()
        if self.is_writing or self.is_closed:
            return
        if self._finishing is None:
            self._owner.on_drained()

    def _account(self) -> None:
        """Give credit back for what the socket has taken, after it was offered what waits."""
        self._debts.repay(self._output.sent_bytes)
        is_waiting = bool(self._output.queue)
        if is_waiting != self.is_writing:
            self.is_writing = is_waiting
            self._rewatch()
        if not is_waiting:
            self._end_if_asked()

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send what is queued and what the owner still has, however slowly the peer takes it, then close; `on_closed`
        follows.

        What the peer still sends is read and dropped for a moment, since closing a socket with unread data would
        destroy the last output.
        """
        if self._finishing is not None or self.is_closed:
            return
        self._finishing = Finishing(self._loop.now_s)
        self._is_paused = False
        self._linger.set(self._loop.now_s + LOOK_S)
        self._rewatch()
        self.flush_later()

    def half_close(self) -> None:
        """Send what is queued, then tell the peer that this was all; what it sends is still received.

        Does nothing unless `can_half_close`: peers take a close_notify of TLS for the end of both directions.
        """
        if self.can_half_close and not self.is_closed:
            self._is_half_closing = True
            self.flush_later()

    def close(self) -> None:
        """Send what the socket takes at once, and close it in order; no call to the owner follows.

        For peers that expect nothing more: if they send anything meanwhile, the last output may be lost.
        """
        if self.is_closed:
            return
        with contextlib.suppress(OSError):
            self._output.send([] if self.is_output_ended else self._owner.buffers_to_send())
        self._say_end()
        self._let_go()

    def abort(self) -> None:
        """Close at once with a reset, so that the peer knows that something is missing; no call to the owner
        follows."""
        if self.is_closed:
            return
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._let_go()

    def on_bug(self) -> None:
        self._lose_unless_closed(ConnectionAbortedError("given up after a bug in this proxy"))

    def _end_if_asked(self) -> None:
        """Everything queued has been sent: go on with `finish` or `half_close` if one was called."""
        if self._is_flush_due:
            return
        if self._finishing is not None:
            self._finish_output()
        elif self._is_half_closing:
            self._is_half_closing = False
            # If the peer is gone, reading will tell.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def _finish_output(self) -> None:
        self.is_output_ended = True
        if not self._say_end():
            # The socket has no room for close_notify, without which the peer would take the end for a cut.
            self.is_writing = True
            self._rewatch()
            return
        if self._is_eof_seen:
            self._close()
            return
        self._linger.set(self._loop.now_s + LOOK_S)
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close()

    def _say_end(self) -> bool:
        """Over TLS, send close_notify, without waiting for the peer's. False: the socket does not take it now."""
        if isinstance(self._sock, ssl.SSLSocket | TlsSocket):
            try:
                self._sock.unwrap()
            except ssl.SSLWantWriteError:
                return False
            except (OSError, ValueError):
                pass
        return True

    def _on_linger(self) -> None:
        now_s, finishing = self._loop.now_s, self._finishing
        if finishing is None:
            return
        if finishing.goes_on(now_s, self._output.unacknowledged_bytes, is_queued=self.is_writing):
            self._linger.set(now_s + LOOK_S)
        else:
            self._close()

    def _close(self) -> None:
        if not self.is_closed:
            owner = self._owner
            self._let_go()
            owner.on_closed()

    def _lose_output(self, error: OSError) -> None:
        """Sending has failed. First deliver what the peer sent before, perhaps the answer to an upload that it did not
        want. Owners check `is_output_ended` before they begin something new for what they receive.
        """
        self.is_output_ended = True
        tls = self._tls
        silent_records = 0
        while not (self.is_closed or self._is_paused or self._is_eof_seen or self._finishing is not None):
            try:
                data = self._sock.recv(_MAX_READ_BYTES) if tls is None else tls.receive(READ_BYTES)
            except NOT_NOW:
                # Over TLS this may be a record without data, such as a session ticket.
                silent_records += 1
                if tls is None or silent_records == _MAX_SILENT_RECORDS:
                    break
                continue
            except OSError:
                break
            if data:
                self._owner.on_data(data)
                continue
            # A broken socket always reads as ended. The peer has really ended its side, as servers do that close during
            # an upload, only if TLS says so, or if the error was EPIPE.
            if isinstance(self._sock, TlsSocket) or isinstance(error, BrokenPipeError):
                self._is_eof_seen = True
                self._owner.on_eof()
            break
        if self._is_paused and self.reads_rest_before_loss and not self.is_closed:
            self._withheld_loss = error.with_traceback(None)  # its frames refer to this object
            self.is_writing = False
            self._rewatch()
            self._output.drop()
        elif not self.is_closed:
            self._lose(error)

    def _lose_unless_closed(self, error: OSError) -> None:
        if not self.is_closed:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        owner = self._owner
        self._let_go()
        if self._finishing is not None:
            owner.on_closed()
        else:
            owner.on_lost(error)

    def _let_go(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._linger.cancel()
        if self.before_close is not None:
            self.before_close()
            self.before_close = None
        self._loop.unwatch(self._sock)
        self._sock.close()
        self._output.drop()
        self._owner = NOBODY

    def _rewatch(self) -> None:
        if not self.is_closed:
            reads = not self._is_paused and not self._is_eof_seen
            try:
                self._loop.rewatch(self._sock, self, reads=reads, writes=self.is_writing)
            except OSError as error:
                self._loop.call_soon(partial(self._lose_unless_closed, error))
