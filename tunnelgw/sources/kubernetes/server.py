"""Requests to the API server: authentication and TLS by the package `kubernetes`, deadlines and errors by us.

    server = ApiServer(lambda: load_configuration(kubeconfig))
    body = server.request("GET", "/api/v1/namespaces", {"limit": "500"})
    with server.stream("/api/v1/namespaces", {"watch": "1"}, timeout_s=75.0) as lines: ...

Nothing is retried here. The configuration is read again after a 401, since a kubeconfig's certificates and tokens may
be replaced while we run. It is also read again if the server cannot be reached and the kubeconfig has been written
since: its address or authority may have changed. Files that a Pod or a kubeconfig names are read for each connection.
The package keeps values from the kubeconfig itself in files below /tmp, where systems delete old files: if one is gone,
the configuration is read again too, which writes the files again. Reading may run a plugin, which may take minutes or
never end, such as one that waits for a login; one thread waits for it, and the requests of others fail. `interrupt`
ends all waits on sockets, in all threads.
"""

import io
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import IncompleteRead
from typing import NamedTuple

import urllib3
from kubernetes.client import Configuration
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from daemonkit.causes import causes_of, forget_frames
from daemonkit.secret import text_without, without
from tunnelgw.sources.kubernetes.access import CONNECT_S, Access, Call
from tunnelgw.sources.kubernetes.connections import Connections
from tunnelgw.sources.kubernetes.failures import LONGEST_MESSAGE, Unreachable, refusal
from tunnelgw.sources.kubernetes.pluginlock import PluginLock
from tunnelgw.sources.kubernetes.reach import Reach

REQUEST_S = 60.0
"""How long the server may stay silent before or within an answer."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Unpacked. A page of a list is rarely more than a few MiB."""
MAX_LINE_BYTES = 32 * 1024 * 1024
"""Of a watch. An API server stores no object above a few MiB."""
_MAX_REFUSAL_BYTES = 64 * 1024
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 15.0
"""The longest pause between two attempts to read a configuration, while they fail."""
_READING_S = 10.0
"""How long a request waits for another thread that reads a configuration, or gets credentials from a plugin."""
_CHUNK_BYTES = 64 * 1024
_READ_BYTES = 1024 * 1024


class ApiServer:
    """Thread-safe."""

    def __init__(
        self,
        load: Callable[[], Configuration],
        edition_now: Callable[[], Hashable] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        reach: Reach | None = None,
        reading_s: float = _READING_S,
    ) -> None:
        """`load` is called at the first request, after the server has refused our credentials, and when the server
        could not be reached and `edition_now`, the state of what `load` reads, has changed. If it fails, all threads
        wait before it is called again; while it runs, they wait for `reading_s`. `reach`: shared by all clients of the
        same server.
        """
        self._load = load
        self._edition_now = edition_now
        self._clock = clock
        self.reach = reach or Reach(clock)
        self._failure: _Failure | None = None
        """How the last call of `load` failed; None: it succeeded."""
        self._reading = PluginLock(reading_s)
        """Held while the configuration is read, and `_failure` with it."""
        self._lock = threading.Lock()
        """Of `_access`; never held for long."""
        self._connections = Connections()
        self._access: Access | None = None

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = {},  # never written
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = REQUEST_S,
        answer_s: float | None = None,
    ) -> bytes:
        """The answer's body. Raises ApiServerError.

        `answer_s`: the limit for the whole answer, however slowly it comes; None: the same as `timeout_s`, which limits
        each silence.
        """
        # gzip makes long lists ten times shorter; the API server does not compress short answers and watches.
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = content_type
        call = Call(method, path, query, headers, body, timeout_s, timeout_s if answer_s is None else answer_s)
        with self._exchange(call) as response:
            content = _content(response, MAX_ANSWER_BYTES)
            if len(content) > MAX_ANSWER_BYTES:
                raise Unreachable(f"{method} {path}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
            return content

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = "application/json",
        timeout_s: float = REQUEST_S,
        answer_s: float = math.inf,
    ) -> Iterator[Iterator[bytes]]:
        """Whole lines as they arrive, without an incomplete last line. Raises ApiServerError, also between lines.

        `timeout_s` and `answer_s` as in `request`.
        """
        with self._exchange(Call("GET", path, query, {"Accept": accept}, None, timeout_s, answer_s)) as response:
            try:
                yield _lines(_pieces(response))
            finally:
                response.close()  # the unread rest must not be taken for the next answer

    def interrupt(self) -> None:
        """End all requests, and all waits for the server's return or for credentials, for good."""
        self._reading.end()
        self._connections.end()
        self.reach.end()

    def close(self) -> None:
        with self._lock:
            access, self._access = self._access, None
        if access:
            access.close()

    @contextmanager
    def _exchange(self, call: Call) -> Iterator[urllib3.BaseHTTPResponse]:
        access = self._current()
        has_answered = False
        try:
            with access.open(call) as response:
                has_answered = True
                self.reach.answered()
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # redirections are not followed
                    if response.status == HTTPStatus.UNAUTHORIZED:
                        self._renew(access)
                    body = _content(response, _MAX_REFUSAL_BYTES)
                    raise refusal(response.status, response.headers, without(body, access.secrets))
                yield response
        except Unreachable as error:  # no credentials; or the caller found that the answer is not the API's
            self._noted(error, has_answered=has_answered)
            raise
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._look_again(access)
            words = _words(list(causes_of(error)), access, call.timeout_s)
            forget_frames(error)
            what = f"{call.method} {call.path}: {words}"
            raise self._noted(Unreachable(what), has_answered=has_answered) from None  # the causes would add nothing

    def _noted(self, error: Unreachable, *, has_answered: bool) -> Unreachable:
        error.has_answered = has_answered
        error.returns = self.reach.lost(error)
        return error

    def _current(self) -> Access:
        if access := self._known():
            return access
        try:
            with self._reading:
                return self._known() or self._use(self._read())
        except Unreachable as error:
            self._noted(error, has_answered=False)
            raise

    def _known(self) -> Access | None:
        with self._lock:
            return self._access

    def _use(self, access: Access) -> Access:
        with self._lock:
            self._access = access
        return access

    def _read(self) -> Access:
        edition_ = self._edition_now()  # before reading, so that a write in the meantime counts as a change
        last = self._failure if self._failure and self._failure.edition == edition_ else None
        if last and self._clock() < last.not_before_s:
            raise Unreachable(last.message)
        try:
            access = Access(self._load(), self._connections, edition_, self._reading)
        except Unreachable as error:
            pause_s = min(2 * last.pause_s, _LONGEST_PAUSE_S) if last else _FIRST_PAUSE_S
            self._failure = _Failure(str(error), edition_, pause_s, self._clock() + pause_s)
            raise
        self._failure = None
        return access

    def _look_again(self, failed: Access) -> None:
        """Read the configuration again if it has changed. If that fails, keep the old one: the server may come back."""
        with suppress(Unreachable), self._reading:
            if self._known() is not failed:
                return
            if failed.edition == self._edition_now() and failed.has_its_files():
                return
            self._use(self._read())
            failed.close()

    def _renew(self, refused: Access) -> None:
        """Have the configuration read again. Other threads may still be reading from connections of the old one, which
        close when these threads are done."""
        with self._lock:
            if self._access is refused:
                self._access = None
        refused.close()


class _Failure(NamedTuple):
    """A failure to read the configuration; reading it may run a plugin each time."""

    message: str
    edition: Hashable
    pause_s: float
    not_before_s: float


def _words(inside: list[BaseException], access: Access, timeout_s: float) -> str:
    """A message for people: urllib3 nests errors several levels deep, and its messages contain its own objects."""
    found, place = frozenset(map(type, inside)), access.place
    # What is no HTTP is part of the error.
    said = text_without(str(inside[-1]), access.secrets)
    reason = said[:LONGEST_MESSAGE] or type(inside[-1]).__name__
    if NameResolutionError in found:
        return f"no such host: {place}: check DNS on this machine, or the server that the kubeconfig names: {reason}"
    if NewConnectionError in found:
        return f"cannot connect to {place}: {reason}"
    if ConnectTimeoutError in found:
        return f"no connection to {place} within {CONNECT_S:g} s"
    if ReadTimeoutError in found:
        if "handshake" in reason:
            return f"no TLS with {place} within {CONNECT_S:g} s"
        if "complete" in reason:
            return f"{place} answers too slowly: {reason}"
        return f"no answer from {place} for {timeout_s:g} s"
    if SSLError in found:
        return f"TLS with {place} failed: {reason}"
    if any(isinstance(each, IncompleteRead) for each in inside):
        return f"the connection to {place} ended in the middle of an answer"
    return f"the connection to {place} broke: {reason}"


def _content(response: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes:
    """The body. If it is longer than `most_bytes`, somewhat more than that, and the connection is closed."""
    content = io.BytesIO()  # unlike a bytearray, it gives its buffer away without a copy
    while piece := response.read(_READ_BYTES):
        content.write(piece)
        if content.tell() > most_bytes:
            response.close()  # the unread rest must not be taken for the next answer
            break
    return content.getvalue()


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Pieces as they arrive. urllib3's `stream` waits for a full piece if the answer ends with its connection."""
    while piece := response.read1(_CHUNK_BYTES):
        yield piece


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    begun = bytearray()  # a list of two-byte pieces would take 25 times the memory
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield bytes(begun + whole[0])
            yield from whole[1:]
            begun.clear()
        begun += rest
        if len(begun) > MAX_LINE_BYTES:
            raise Unreachable(f"a line of a watch is longer than {MAX_LINE_BYTES} bytes")
