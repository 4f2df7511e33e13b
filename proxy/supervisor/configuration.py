"""The loaded document: who may replace it, by which version, and how it gets to the workers and to the disk.

Versions (design): absent means the loaded one plus one; the loaded version again with equal content changes nothing;
with other content, or an older version, it is refused and told what is loaded. Documents are taken one at a time. What
was accepted is deployed first, written to the state directory while the workers build their tables, and acknowledged
when all of them use it.
"""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemonkit.logs import get_logger
from proxy import document
from proxy.control import sealed_file
from proxy.document import Document, DocumentError, Problem, handover
from proxy.document.model import MAX_VERSION
from proxy.supervisor.certificates import CertificateCheck
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.state import StateFile

log = get_logger(__name__)

TAKE_S = 30.0
"""How long a PUT waits for the workers."""


class VersionConflict(Exception):
    def __init__(self, loaded: int, message: str) -> None:
        super().__init__(message)
        self.loaded = loaded


class NotServed(Exception):
    """The document is loaded, but not all workers serve it; the text says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """What a PUT is answered."""

    version: int
    changed: bool
    problems: tuple[Problem, ...]
    """What of the document does not work at the moment: ports that cannot be bound."""


@dataclass(frozen=True)
class Loaded:
    document: Document
    version: int
    digest: bytes
    """SHA-256 of all but the version."""
    loaded_at_s: float


class Configuration:
    """Any thread may call it."""

    def __init__(self, fleet: Fleet, sockets: ListeningSockets, state: StateFile | None) -> None:
        self._fleet = fleet
        self._sockets = sockets
        self._state = state
        self._reader = document.Reader()
        self._certificates = CertificateCheck()
        self._turn = threading.Lock()
        """Held while a document is taken; guards all that follows."""
        self._generation = 0
        self._content = -1
        self._is_closed = False
        self.loaded: Loaded | None = None
        """Replaced as a whole, so it may be read without the lock."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._sockets.problems

    # -- taking documents --------------------------------------------------------------------------------------------

    def put(self, data: bytes) -> Outcome:
        """Returns when every live worker serves it. Raises DocumentError, VersionConflict, NotServed."""
        with self._turn:
            config = self._read(data)
            content, digest = _content_of(config)
            version = self._next_version(config, digest)
            changed = self._adopt(config, version, content, digest)
            generation = self._generation
            problems = self._sockets.problems
        missing = self._fleet.wait_until_taken(generation, TAKE_S)
        if missing is not None:
            raise NotServed(f"version {version} is loaded, but {missing}")
        return Outcome(version, changed, problems)

    def load_file(self, path: Path) -> bool:
        """Load the document of a file, whatever version is loaded; False when it is loaded already.

        Raises OSError and DocumentError.
        """
        data = path.read_bytes()
        with self._turn:
            config = self._read(data)
            content, digest = _content_of(config)
            loaded = self.loaded
            if loaded is not None and loaded.digest == digest:
                return False
            least = 1 if loaded is None else loaded.version + 1
            version = max(least, config.version or 0)
            return self._adopt(config, min(version, MAX_VERSION), content, digest)

    def restore(self) -> None:
        """Load what the state directory holds, if anything; a document that cannot be used is left alone."""
        data = self._state.read() if self._state is not None else None
        if data is None:
            return
        with self._turn:
            try:
                config = self._read(data)
            except DocumentError as error:
                log.error("the document in the state directory cannot be used, starting without it", error=error)
                return
            content, digest = _content_of(config)
            self._adopt(config, config.version or 1, content, digest, keeps=False)

    def _read(self, data: bytes) -> Document:
        config = self._reader.read(data)
        self._certificates.check(config)
        return config

    def _next_version(self, config: Document, digest: bytes) -> int:
        loaded = self.loaded
        if loaded is None:
            return 1 if config.version is document.UNSET else config.version
        if config.version is document.UNSET:
            if loaded.version >= MAX_VERSION:
                raise VersionConflict(loaded.version, "no version is left above the loaded one")
            return loaded.version + 1
        if config.version < loaded.version:
            raise VersionConflict(loaded.version, f"version {config.version} is older than the loaded {loaded.version}")
        if config.version == loaded.version and digest != loaded.digest:
            raise VersionConflict(loaded.version, f"version {config.version} is loaded with other content")
        return config.version

    def _adopt(self, config: Document, version: int, content: bytes, digest: bytes, *, keeps: bool = True) -> bool:
        """True when the content is another one than before."""
        before = self.loaded
        changed = before is None or before.digest != digest
        # What may fail comes first: a document is loaded only when workers can be given it.
        descriptor = sealed_file("tunnelgw-proxy-document", content) if changed else -1
        self.loaded = Loaded(config, version, digest, time.time())
        if changed:
            self._sockets.use(config.listeners)
            self._deploy(version, descriptor)
            log.info("configuration loaded", version=version, routes=len(config.routes), size_bytes=len(content))
        if keeps and self._state is not None and (before is None or changed or before.version != version):
            self._state.write(document.encode(msgspec.structs.replace(config, version=version)))
        return changed

    # -- the workers -------------------------------------------------------------------------------------------------

    def _deploy(self, version: int, content: int = -1) -> None:
        """`content`: a memory file, ours from here on; without one that of before, with other sockets."""
        self._generation += 1
        before = self._content
        if content >= 0:
            self._content = content
        self._fleet.deploy(Deployment(self._generation, version, self._content, self._sockets.groups))
        # From here on no slot hands over what was before.
        if before >= 0 and before != self._content:
            os.close(before)
        self._sockets.release()

    def retry_sockets(self, stop: threading.Event, period_s: float = 5.0) -> None:
        """A thread: ports that could not be bound may be free now."""
        while not stop.wait(period_s):
            with self._turn:
                loaded = self.loaded
                if loaded is not None and not self._is_closed and self._sockets.problems and self._sockets.retry():
                    self._deploy(loaded.version)

    def withdraw(self, index: int) -> None:
        """A worker cannot be started: connections are for the others, until it can."""
        with self._turn:
            if self.loaded is not None and not self._is_closed:
                self._sockets.withdraw(index)
                self._deploy(self.loaded.version)
                log.warning("worker cannot be started, its connections go to the others", worker=index)

    def close_sockets(self) -> None:
        """Stop offering connections to workers that drain."""
        with self._turn:
            self._is_closed = True
            self._sockets.close()


def _content_of(config: Document) -> tuple[bytes, bytes]:
    """The canonical bytes for the workers, which have no version, and their hash."""
    content = handover.pack(msgspec.structs.replace(config, version=document.UNSET))
    return content, hashlib.sha256(content).digest()
