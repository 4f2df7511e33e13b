"""The loaded document: which version may replace it, and how it gets to the workers.

A document without a version gets the loaded one plus one. The loaded version with equal content changes nothing. The
loaded version with other content, or an older version, is refused, and the response says what is loaded. Documents are
loaded one at a time. An accepted document is first deployed, then kept (`keeping`) while the workers build their
tables, and acknowledged when all of them use it.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from daemonkit.filereading import read_input
from daemonkit.logs import get_logger
from proxy import document
from proxy.document import MAX_VERSION, Content, DocumentError, Problem, Reading
from proxy.supervisor.certificates import CertificateCheck, tell_of_expired
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.keeping import Keeping
from proxy.supervisor.loaded import Loaded
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.state import MAX_DOCUMENT_BYTES, StateFile

log = get_logger(__name__)

TAKE_S = 30.0
"""How long a PUT waits for the workers."""
_RETRY_SOCKETS_S = 5.0


class VersionConflict(Exception):
    def __init__(self, loaded: int, message: str) -> None:
        super().__init__(message)
        self.loaded = loaded


class WantedOtherwise(Exception):
    """The request's precondition failed: a document is loaded although none should be, or the reverse."""


class Stopping(Exception):
    """This proxy is stopping, so no worker would serve another document."""


class NotServed(Exception):
    """The document is loaded, but not all workers serve it; the text says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """The result of a PUT."""

    version: int
    changed: bool
    problems: tuple[Problem, ...]
    """What does not work now: ports that cannot be bound."""


class Configuration:
    """Thread-safe."""

    def __init__(
        self,
        fleet: Fleet,
        sockets: ListeningSockets,
        state: StateFile | None,
        most_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        """`most_bytes`: the limit for a document in a file."""
        self._most_bytes = most_bytes
        self._fleet = fleet
        self._sockets = sockets
        self._keeping = None if state is None else Keeping(state, lambda: self.loaded)
        self._reader = document.Reader()
        self._certificates = CertificateCheck()
        self._turn = threading.Lock()
        """Held while a document is loaded; guards all attributes below."""
        self._generation = 0
        self._is_closed = False
        self.refused = 0
        """How many documents were refused because they, or their files, were faulty."""
        self.loaded: Loaded | None = None
        """Replaced as a whole, so it can be read without the lock."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._sockets.problems

    @property
    def is_kept(self) -> bool | None:
        """Whether documents get to the disk, as of the last attempt; None without a state directory."""
        return None if self._keeping is None else self._keeping.is_kept

    # -- loading documents -------------------------------------------------------------------------------------------

    def put(self, data: bytes, *, wants_loaded: bool | None = None) -> Outcome:
        """Load a document; returns when every live worker serves it. `wants_loaded` is a precondition: whether a
        document must be loaded already (True), or must not (False).

        Raises DocumentError, VersionConflict, WantedOtherwise, NotServed, Stopping.
        """
        with self._turn:
            self._want_open()
            if wants_loaded is not None and wants_loaded != (self.loaded is not None):
                raise WantedOtherwise("no configuration is loaded yet" if wants_loaded else "a configuration is loaded")
            reading = self._read(data)
            changed = self._is_news(reading.content)
            version = self._next_version(reading.version, is_news=changed)
            self._adopt(reading.content, version, is_news=changed)
            generation = self._generation
            problems = self._sockets.problems
        self._keep()
        missing = self._fleet.wait_until_taken(generation, TAKE_S)
        if missing is not None:
            if self._fleet.is_stopping:
                raise Stopping("this proxy is stopping")
            raise NotServed(f"version {version} is loaded, but {missing}")
        return Outcome(version, changed, problems)

    def load_file(self, path: Path) -> bool:
        """Load a document from a file, whatever version is loaded. Returns False if it is loaded already.

        Raises OSError, DocumentError and Stopping.
        """
        data = self._content_of(path)
        with self._turn:
            self._want_open()
            reading = self._read(data)
            if not self._is_news(reading.content):
                return False
            least = 1 if self.loaded is None else self.loaded.version + 1
            version = max(least, reading.version or 0)
            self._adopt(reading.content, min(version, MAX_VERSION), is_news=True)
        self._keep()
        return True

    def open_state(self, *, restores: bool) -> None:
        """Test the state directory and, with `restores`, load its document; see `Keeping.open`."""
        if self._keeping is not None:
            self._keeping.open(self._restore if restores else None)

    def _restore(self, data: bytes) -> Loaded | None:
        """Load a document that was kept, unless it is unusable or another has been loaded meanwhile."""
        with self._turn:
            if self.loaded is not None or self._is_closed:
                return None
            try:
                reading = self._read(data)
            except DocumentError as error:
                log.error("the document in the state directory cannot be used, starting without it", error=error)
                return None
            self._adopt(reading.content, reading.version or 1, is_news=True)
            return self.loaded

    def _want_open(self) -> None:
        """Raises Stopping after `close_sockets`: ports bound now would accept clients that no worker serves."""
        if self._is_closed:
            raise Stopping("this proxy is stopping")

    def _read(self, data: bytes) -> Reading:
        try:
            reading = self._reader.read(data)
            self._certificates.check(reading.content.tls_parts())
        except DocumentError:
            self.refused += 1
            raise
        return reading

    def _content_of(self, path: Path) -> bytes:
        try:
            return read_input(path, self._most_bytes)
        except OSError:
            with self._turn:
                self.refused += 1
            raise

    def _is_news(self, content: Content) -> bool:
        return self.loaded is None or not self.loaded.content.says_the_same_as(content)

    def _next_version(self, version: int | document.Unset, *, is_news: bool) -> int:
        loaded = self.loaded
        if loaded is None:
            return 1 if version is document.UNSET else version
        if version is document.UNSET:
            if loaded.version >= MAX_VERSION:
                raise VersionConflict(loaded.version, "no version is left above the loaded one")
            return loaded.version + 1
        if version < loaded.version:
            raise VersionConflict(loaded.version, f"version {version} is older than the loaded {loaded.version}")
        if version == loaded.version and is_news:
            raise VersionConflict(loaded.version, f"version {version} is loaded with different content")
        return version

    def _adopt(self, content: Content, version: int, *, is_news: bool) -> None:
        before = self.loaded
        if before is not None and not is_news and version == before.version:
            return
        certificates = self._certificates.validities(content.settings.listeners)
        loaded = Loaded(content, version, time.time(), certificates)
        if is_news:
            self._sockets.use(content.settings.listeners)
            self._deploy(loaded)
        # Only now: if the above raises, the same document must count as a change when it is sent again.
        self.loaded = loaded
        if is_news:
            tell_of_expired(certificates, {} if before is None else before.certificates)
            log.info("configuration loaded", document_version=version, routes=len(content.routes))

    def _keep(self) -> None:
        """To be called without the lock for documents, so that a disk that hangs delays neither workers nor the
        stop."""
        if self._keeping is not None:
            self._keeping.keep()

    def retry_keeping(self, stop: threading.Event) -> None:
        """Thread target: write again what the disk did not take."""
        if self._keeping is not None:
            self._keeping.retry(stop)

    # -- the workers -------------------------------------------------------------------------------------------------

    def _deploy(self, loaded: Loaded) -> None:
        """Deploy a new document, or the same one with other sockets."""
        self._generation += 1
        self._fleet.deploy(Deployment(self._generation, loaded.version, loaded.content, self._sockets.groups))
        self._sockets.release()

    def retry_sockets(self, stop: threading.Event) -> None:
        """Thread target: retry ports that could not be bound."""
        while not stop.wait(_RETRY_SOCKETS_S):
            with self._turn:
                loaded = self.loaded
                if loaded is not None and not self._is_closed and self._sockets.problems and self._sockets.retry():
                    self._deploy(loaded)

    def withdraw(self, index: int) -> None:
        """A worker cannot be started: direct its connections to the others until it can."""
        with self._turn:
            if self.loaded is not None and not self._is_closed:
                self._sockets.withdraw(index)
                self._deploy(self.loaded)
                log.warning("cannot start a worker, its connections go to the others", worker=index)

    def close_sockets(self) -> None:
        """Stop offering connections to workers that drain."""
        with self._turn:
            self._is_closed = True
            self._fleet.withhold()
            self._sockets.close()
