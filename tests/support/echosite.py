"""A backend that sends bodies back, and a download from it that lasts as long as a test wants."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK
from tests.support.socketbackend import Dialogue, SocketBackend

TIMEOUT_S = 30.0
STOP_S = 60.0
CHUNK_BYTES = 16 * 1024
_PACE_S = 0.005


class EchoSite(SocketBackend):
    """`/download` sends chunks until its client has `finish_downloads` called; other requests get their body back."""

    def __init__(self) -> None:
        super().__init__(self._echo)
        self._finish = threading.Event()
        self.sums: list[str] = []
        """SHA-256 of each download that was sent completely."""

    def begin_downloads(self) -> None:
        self._finish.clear()

    def finish_downloads(self) -> None:
        self._finish.set()

    def _echo(self, dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            head, _, body = request.partition(b"\r\n\r\n")
            if head.startswith(b"GET /download "):
                self._pour(dialogue)
            else:
                is_chunked = b"\r\ntransfer-encoding: chunked" in head.lower()
                dialogue.answer(b"".join(_chunks(body)) if is_chunked else body)

    def _pour(self, dialogue: Dialogue) -> None:
        digest = hashlib.sha256()
        dialogue.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in itertools.count():
            chunk = bytes((number % 251,)) * CHUNK_BYTES
            digest.update(chunk)
            dialogue.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if self._finish.wait(_PACE_S):
                break
        self.sums.append(digest.hexdigest())
        dialogue.send(b"0\r\n\r\n")


def _chunks(framed: bytes) -> Iterator[bytes]:
    while framed:
        size, _, rest = framed.partition(b"\r\n")
        size_bytes = int(size, 16)
        yield rest[:size_bytes]
        framed = rest[size_bytes + 2 :]


class Download:
    """A download from an `EchoSite`, read from its head on, in a thread of its own, until the block ends."""

    def __init__(self, port: int, site: EchoSite) -> None:
        self._site = site
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
        self._thread = threading.Thread(target=self._read, name="download", daemon=True)
        self._digest = hashlib.sha256()
        self._error = ""

    def __enter__(self) -> Self:
        self._site.begin_downloads()
        self._connection.request("GET", "/download", headers={"Host": "a.example"})
        self._response = self._connection.getresponse()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the download complete."""
        self._site.finish_downloads()
        self._thread.join(STOP_S)
        self._connection.close()
        assert not self._thread.is_alive(), "the download never ended"

    def field(self, name: str) -> str:
        value = self._response.getheader(name)
        assert value is not None, f"no {name} in the answer to the download: {self._response.getheaders()}"
        return value

    @property
    def failures(self) -> list[str]:
        """What was wrong with the download; known after the block."""
        if self._error:
            return [f"the download: {self._error}"]
        return [] if self._digest.hexdigest() in self._site.sums else ["the download is not what was sent"]

    def _read(self) -> None:
        try:
            while data := self._response.read(CHUNK_BYTES):
                self._digest.update(data)
        except (OSError, http.client.HTTPException) as error:
            self._error = repr(error)
