"""From the command line of a worker process to its running loop."""

import gc
import signal
import socket

from daemonkit import logs
from daemonkit.lifecycle import no_thread
from daemonkit.logs import get_logger
from daemonkit.memory import give_back_large_buffers, keep_free_heap, spare_the_collector
from proxy.accesslog.writer import AccessLogWriter
from proxy.control import Begin, Channel, ToWorker
from proxy.loop import READ_BYTES, Loop
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane
from proxy.worker.freeheap import FreeHeap
from proxy.worker.orphans import wake_when_orphaned
from proxy.worker.sparefiles import SpareFiles
from proxy.worker.worker import Worker

log = get_logger(__name__)

EXIT_DRAINED = 0
EXIT_ABANDONED = 1
_LARGE_BYTES = 2 * READ_BYTES
"""More than any single read: getting fresh pages for each would cost more than reading."""
_TURN_BYTES = 4 * _LARGE_BYTES
"""Memory for the bodies in one turn of the loop, including copies for TLS."""


def main(descriptor: int) -> int:
    """Run a worker. `descriptor` is its end of the control channel. Returns the exit code."""
    _leave_signals_to_the_supervisor()
    wake_when_orphaned()
    give_back_large_buffers(_LARGE_BYTES)
    keep_free_heap(_TURN_BYTES)
    channel: Channel[ToWorker] = Channel(socket.socket(fileno=descriptor), ToWorker)
    channel.sock.set_inheritable(False)
    first = channel.receive()
    if first is None:
        return EXIT_ABANDONED
    begin = first[0]
    if not isinstance(begin, Begin):
        raise TypeError(f"seen {type(begin).__name__} as the first message, want Begin")
    logs.setup(begin.log_level, begin.log_format)
    loop = Loop()
    stats = Stats()
    access_log = AccessLogWriter(loop, stats, begin.access_log)
    data_plane = DataPlane(loop, stats, access_log)
    spare = SpareFiles()
    spare.keep_back()
    worker = Worker(loop, channel, data_plane, stats, spare)
    try:
        access_log.start()
    except RuntimeError as error:
        log.error("exiting", error=no_thread(error), worker=begin.index)
        return EXIT_ABANDONED
    spare_the_collector()
    FreeHeap(loop, _TURN_BYTES).start()
    worker.start()
    loop.run()
    data_plane.close()
    access_log.close()
    gc.disable()
    return EXIT_DRAINED if worker.is_drained else EXIT_ABANDONED


def _leave_signals_to_the_supervisor() -> None:
    """Ignore stop signals: terminals and service managers signal all processes, but the supervisor ends workers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
