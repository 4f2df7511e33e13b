"""A worker in a thread, and the other end of its control channel."""

import fcntl
import os
import socket
import termios
import threading

from proxy.accesslog import AccessLogSettings
from proxy.accesslog.writer import AccessLogWriter
from proxy.control import (
    Channel,
    Drain,
    FromWorker,
    Report,
    TakeDocument,
    TakeSockets,
    ToWorker,
    channel_pair,
    sealed_file,
)
from proxy.loop import Loop
from proxy.routing import socket_door
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane
from proxy.worker.sparefiles import SpareFiles
from proxy.worker.worker import Worker

WAIT_S = 30.0


class Supervisor:
    """The other end of the channel of a worker that runs in a thread."""

    def __init__(self, loop: Loop | None = None) -> None:
        self._loop = loop or Loop()
        ours, theirs = channel_pair()
        ours.settimeout(WAIT_S)
        self._channel = Channel[FromWorker](ours, FromWorker)
        self._theirs = Channel[ToWorker](theirs, ToWorker)
        self.is_drained = False
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        loop, stats = self._loop, Stats()
        access_log = AccessLogWriter(loop, stats, AccessLogSettings("off"))
        data_plane = DataPlane(loop, stats, access_log)
        worker = Worker(loop, self._theirs, data_plane, stats, SpareFiles())
        worker.start()
        loop.run()
        self.is_drained = worker.is_drained
        data_plane.close()
        loop.close()

    def give(self, sock: socket.socket, door: str = "") -> None:
        self._channel.send(TakeSockets((door or door_of(sock),)), [sock.fileno()])

    def tell(self, generation: int, since: int, content: bytes) -> None:
        descriptor = sealed_file("test", content)
        self.hand(generation, since, descriptor)
        os.close(descriptor)

    def hand(self, generation: int, since: int, descriptor: int) -> None:
        """Like `tell`, with a memory file of the caller."""
        self._channel.send(TakeDocument(generation, generation, since), [descriptor])

    def ask(self) -> None:
        """Requests a report."""
        self._channel.send(Report())

    def say(self, message: object) -> None:
        """Anything, even what no worker is told."""
        self._channel.send(message)

    def narrow(self) -> None:
        """Shrinks the worker's send buffer, so that it has room for few messages that are not received."""
        self._theirs.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)

    @property
    def has_been_heard(self) -> bool:
        """Whether the worker has read all messages."""
        unread = fcntl.ioctl(self._channel.sock, termios.TIOCOUTQ, bytes(4))
        return not any(unread)

    def hear(self) -> FromWorker:
        received = self._channel.receive()
        assert received is not None
        message, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        return message

    def wait_for_end(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._channel.send(Drain())
        self.wait_for_end()
        self._channel.close()
        self._theirs.close()


def door_of(sock: socket.socket) -> str:
    return socket_door(*sock.getsockname())
