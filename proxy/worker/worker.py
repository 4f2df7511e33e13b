"""The worker's end of the control channel: reads messages between the loop's other work, and answers.

`Drain` closes the doors, and ends the loop once nothing is running any more; `Cut` ends it at once. So does the end of
the channel: the supervisor is gone, so nothing could change or stop this process any more.
"""

import contextlib
import os
import resource
import socket
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from daemonkit.logs import get_logger
from daemonkit.memory import resident_bytes
from proxy.control import (
    Channel,
    Cut,
    Drain,
    FromWorker,
    Incomplete,
    Missed,
    OfEdge,
    Ready,
    Refused,
    Report,
    Snapshot,
    TakeDocument,
    Taken,
    TakeSockets,
    ToEdge,
    ToWorker,
    mapped,
    sealed_file,
)
from proxy.doors.member import UNWATCHED
from proxy.loop import Loop
from proxy.routing import Table
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane
from proxy.worker.sparefiles import SpareFiles
from proxy.worker.swap import Swapper

log = get_logger(__name__)
quiet_log = log.every(10.0)


class Worker:
    """Handles the control channel, in the loop's thread."""

    def __init__(
        self, loop: Loop, channel: Channel[ToWorker], data_plane: DataPlane, stats: Stats, spare: SpareFiles
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._data_plane = data_plane
        self._stats = stats
        self._spare = spare
        self._swapper = Swapper()
        self._generation = 0
        """The generation of the document in use."""
        self._sockets: dict[str, socket.socket] = {}
        """New sockets for the next document."""
        self._unserved: dict[str, socket.socket] = {}
        """Sockets received with documents that we did not use. They are kept for the next one that is used, since the
        supervisor does not send them again."""
        self._lacks_sockets = False
        """Some sockets for the next document did not arrive."""
        self._outbox: deque[tuple[FromWorker, bytes | None]] = deque()
        self.is_drained = False
        """Whether the worker was drained completely."""

    def start(self) -> None:
        self._channel.sock.setblocking(False)
        self._loop.watch(self._channel.sock, self, is_urgent=True)
        self._say(Ready())

    # -- the channel -------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        try:
            with self._spare.at_hand():
                received = self._channel.receive()
        except BlockingIOError:
            return
        except Incomplete as error:
            _say_missing(error)
            self._obey(error.message, [])
            return
        if received is None:
            log.warning("the supervisor is gone, exiting")
            self._loop.stop()
            return
        self._obey(*received)

    def _obey(self, message: object, descriptors: list[int]) -> None:
        match message:
            case TakeSockets(doors) if not descriptors:
                self._lacks_sockets = True
                self._say(Missed(doors))
            case TakeSockets(doors):
                _add(self._sockets, zip(doors, map(_socket_of, descriptors), strict=True))
            case TakeDocument():
                change, lacks_sockets = self._content_of(descriptors), self._lacks_sockets
                self._lacks_sockets = False
                if change is None or lacks_sockets:
                    self._say(Missed())
                else:
                    self._take(message, change)
            case ToEdge(order):
                content = self._content_of(descriptors)
                with self._spare.at_hand():
                    self._data_plane.obey(order, content, lambda report: self._say(OfEdge(report)))
            case Report():
                self._data_plane.measure()
                with self._spare.at_hand():
                    usage = _usage()
                self._say(usage, msgspec.msgpack.encode(self._stats))
                self._loop.work_through(self._data_plane.let_go_of_departed())
            case Drain():
                self._data_plane.drain(self._end)
            case Cut():
                self._loop.stop()

    def _content_of(self, descriptors: list[int]) -> memoryview | None:
        """The memory file that came with a message; None if there was none, it did not arrive, or memory is short."""
        try:
            with self._spare.at_hand():
                return mapped(descriptors[0]) if descriptors else None
        except OSError as error:
            _say_missing(error)
            return None

    def on_writable(self) -> None:
        self._send()

    def on_bug(self) -> None:
        """A message could not be handled: a new process is better than one that is out of sync."""
        self._loop.stop()

    def _say(self, message: FromWorker, content: bytes | None = None) -> None:
        self._outbox.append((message, content))
        if len(self._outbox) == 1:
            self._send()

    def _send(self) -> None:
        try:
            while self._outbox:
                self._send_one(*self._outbox[0])
                self._outbox.popleft()
        except BlockingIOError:
            pass
        except OSError:
            # Reading will report the end of the channel.
            self._outbox.clear()
        self._loop.rewatch(self._channel.sock, self, reads=True, writes=bool(self._outbox))

    def _send_one(self, message: FromWorker, content: bytes | None) -> None:
        if content is None:
            self._channel.send(message)
            return
        try:
            with self._spare.at_hand():
                descriptor = sealed_file("tunnelgw-proxy-worker", content)
        except OSError as error:
            # Even without statistics, the report shows that we are alive, and the supervisor is waiting for it.
            quiet_log.error("no descriptor or memory to attach data to a message", error=error)
            self._channel.send(message)
            return
        try:
            self._channel.send(message, (descriptor,))
        finally:
            os.close(descriptor)

    # -- documents ---------------------------------------------------------------------------------------------------

    def _take(self, order: TakeDocument, content: memoryview) -> None:
        sockets, self._sockets = self._sockets, {}

        def use(table: Table) -> None:
            _add(self._unserved, sockets.items())
            sockets.clear()
            with self._spare.at_hand():
                self._data_plane.use(table, self._unserved)
            self._unserved = {}
            self._generation = order.generation

        def taken(swap_s: float) -> None:
            self._stats.table_version = order.version
            self._stats.swaps += 1
            self._stats.last_swap_s = swap_s
            log.debug("document in use", document_version=order.version, swap_ms=round(swap_s * 1000, 1))
            self._say(Taken(order.generation))

        self._loop.work_through(self._guarded(order, self._swapper.swap(content, use, taken), sockets))

    def _guarded(self, order: TakeDocument, steps: Iterator[None], sockets: dict[str, socket.socket]) -> Iterator[None]:
        """Starts after earlier documents are done, so the table in use is that of the previous document."""
        if order.since not in (0, self._generation):
            log.error(
                "asked to change a document that this worker does not serve",
                document_version=order.version,
                since=order.since,
                served=self._generation,
            )
            self._refuse(order, sockets)
            return
        try:
            yield from steps
        except Exception as error:
            if isinstance(error, OSError) and error.errno in UNWATCHED:
                # That passes, so the document is wanted once more.
                quiet_log.error("cannot watch a port of the document, trying again", error=error)
                self._put_off(sockets, Missed())
                return
            log.exception("bug: a document that was accepted cannot be used", document_version=order.version)
            self._refuse(order, sockets)

    def _refuse(self, order: TakeDocument, sockets: dict[str, socket.socket]) -> None:
        self._put_off(sockets, Refused(order.generation, order.since))

    def _put_off(self, sockets: dict[str, socket.socket], answer: FromWorker) -> None:
        _add(self._unserved, sockets.items())
        self._say(answer)

    def _end(self) -> None:
        self.is_drained = True
        self._loop.stop()


def _say_missing(error: OSError) -> None:
    quiet_log.error("no descriptor or memory to receive the supervisor's message", error=error)


def _socket_of(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


def _add(sockets: dict[str, socket.socket], newer: Iterable[tuple[str, socket.socket]]) -> None:
    """Add sockets by door. Of two for the same door, the supervisor knows only the newer one; the other is closed."""
    for door, sock in newer:
        if door in sockets:
            sockets[door].close()
        sockets[door] = sock


def _usage() -> Snapshot:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    open_descriptors = 0
    with contextlib.suppress(OSError):
        open_descriptors = sum(1 for _ in os.scandir("/proc/self/fd")) - 1
    return Snapshot(usage.ru_utime + usage.ru_stime, resident_bytes(), open_descriptors)
