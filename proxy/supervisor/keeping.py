"""Keeps the loaded document in the state directory, and finds it there at the start.

We wait for a slow disk, but not for one that hangs. What the disk does not take is written again later.
"""

import contextlib
import signal
import threading
from collections.abc import Callable

from daemonkit.lifecycle import StartFailed, start_thread
from daemonkit.logs import get_logger
from proxy.supervisor.loaded import Loaded
from proxy.supervisor.state import StateFile

log = get_logger(__name__)

KEEP_S = 5.0
"""How long to wait for a disk that is still writing an earlier document, or does not answer at the start."""
RETRY_S = 60.0
"""Longer than for sockets: on a full disk, each attempt writes as much of the document as there is room for."""

Restore = Callable[[bytes], Loaded | None]
"""Loads a document that was kept; None if it is unusable, or another has been loaded meanwhile."""


class Keeping:
    """Thread-safe."""

    def __init__(self, state: StateFile, loaded: Callable[[], Loaded | None]) -> None:
        """`loaded` gives the document to keep, if there is one."""
        self._state = state
        self._loaded = loaded
        self._writing = threading.Lock()
        """Held while a document is written to the disk, which may take long; guards `_kept`."""
        self._kept: Loaded | None = None
        self._is_unawaited = False
        """Whether somebody has given up waiting for the disk since the last document got there."""

    @property
    def is_kept(self) -> bool:
        """Whether documents get to the disk, as of the last attempt."""
        # The disk may have got the document at the very moment at which somebody gave up waiting for it.
        return self._state.is_writable and (not self._is_unawaited or self._kept is self._loaded())

    # -- the start ---------------------------------------------------------------------------------------------------

    def open(self, restore: Restore | None) -> None:
        """Test the state directory and, with `restore`, load its document.

        If the disk hangs, this does not wait: the document is loaded when the disk answers, unless another has been
        loaded by then.
        """
        opening = threading.Thread(target=lambda: self._open(restore), name="state", daemon=True)
        # Until the daemon handles them, stop signals end the process. In the new thread, they always would: block them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        try:
            opening.start()
        except RuntimeError:  # no thread can be started, which the daemon will report
            self._open(restore)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        opening.join(KEEP_S)
        if opening.is_alive():
            self._state.say_silent()

    def _open(self, restore: Restore | None) -> None:
        try:
            with self._writing:
                self._state.try_out()
                if restore is not None and (data := self._state.read()) is not None:
                    self._kept = restore(data)
                # A document loaded while the disk hung, whose PUT no longer waited for it.
                self._write()
        except Exception:
            log.exception("bug in the opening of the state directory")

    # -- writing -----------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Write the loaded document to the disk. A disk that hangs delays the caller and only one other document."""
        if not self._writing.acquire(timeout=KEEP_S):
            self._state.give_up(KEEP_S)
            self._is_unawaited = True
            return
        try:
            self._write()
        finally:
            self._writing.release()

    def retry(self, stop: threading.Event) -> None:
        """Thread target: a disk that did not take the document may have room again."""
        while not stop.wait(RETRY_S):
            if not self.is_kept:
                # In a thread that the stop does not wait for, since the disk may hang.
                with contextlib.suppress(StartFailed):
                    start_thread(threading.Thread(target=self._keep_again, name="state", daemon=True))

    def _keep_again(self) -> None:
        if not self._writing.acquire(blocking=False):
            return
        try:
            if self._loaded() is self._kept:
                self._state.try_out(is_retry=True)
            else:
                self._write(is_retry=True)
        except Exception:
            log.exception("bug in keeping the document")
        finally:
            self._writing.release()

    def _write(self, *, is_retry: bool = False) -> None:
        """Write the loaded document, and those loaded meanwhile by callers that gave up waiting for the disk."""
        while (loaded := self._loaded()) is not None and loaded is not self._kept:
            # If the write fails, the earlier document must not stay in memory.
            self._kept = None
            if not self._state.write(loaded.content.encode(loaded.version), is_retry=is_retry):
                return
            self._kept, self._is_unawaited = loaded, False
