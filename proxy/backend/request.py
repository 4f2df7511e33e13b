"""A request to a backend, from the choice of its address to the end of its response: the exchange's handle.

It waits for a connection, then belongs to a link until it ends. It reports its outcome to a ledger, for the counters
and the health of its address. Its methods may be called at any time; after its end it only passes on credit.
"""

from typing import Final, Protocol

from daemonkit.logs import get_logger
from proxy.backend.stream import Failure, Receiver, Wish
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Creditor, Deadline

log = get_logger(__name__)


class Ledger(Protocol):
    """Keeps account of the requests to one address."""

    def answered(self, status_code: int) -> None:
        """The head of the response has arrived."""

    def failed(self, failure: Failure) -> None:
        """There is no complete response. Called after `ended`."""

    def timed_out(self) -> None:
        """The exchange has cancelled the request because it took too long. Called after `ended`."""

    def ended(self) -> None:
        """The request has ended, in any way. Called once for each request."""


class Link(Protocol):
    """A connection as its requests see it."""

    def send_data(
        self, request: "Request", data: bytes | memoryview, end_stream: bool, creditor: Creditor, /
    ) -> int: ...

    def send_trailers(self, request: "Request", fields: Fields, /) -> None: ...

    def progress_of(self, request: "Request", creditor: Creditor, /) -> int | None: ...

    def release(self, request: "Request", size_bytes: int, /) -> None: ...

    def cancel(self, request: "Request", /) -> None:
        """The exchange no longer wants the response."""


class Queue(Protocol):
    """Where requests wait for a connection."""

    def leave(self, request: "Request") -> None:
        """The request no longer wants a connection."""

    def lack(self) -> Failure | None:
        """Why requests are waiting; None if the address is to blame."""


class Request:
    """The `BackendStream` of every protocol."""

    __slots__ = (
        "address",
        "deadline",
        "end_stream",
        "has_ended",
        "head",
        "held_bytes",
        "is_answered",
        "is_open",
        "ledger",
        "link",
        "queue",
        "receiver",
        "stream_id",
        "wish",
    )

    def __init__(
        self, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish, address: str, ledger: Ledger
    ) -> None:
        self.head = head
        self.end_stream = end_stream
        self.receiver = receiver
        self.wish = wish
        self.address = address
        self.ledger = ledger
        self.link: Link | None = None
        self.queue: Queue | None = None
        """Set while the request waits, as `deadline` is."""
        self.deadline: Deadline | None = None
        self.stream_id = 0
        """On an HTTP/2 link."""
        self.held_bytes = 0
        """Response bytes not released yet."""
        self.is_open = False
        """The request's head is on its way over `link`."""
        self.is_answered = False
        self.has_ended = False

    # -- called by the exchange --------------------------------------------------------------------------------------

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        if self.has_ended:
            creditor.release(len(data))
            return len(data)
        return 0 if self.link is None else self.link.send_data(self, data, end_stream, creditor)

    def send_trailers(self, fields: Fields) -> None:
        if self.link is not None and not self.has_ended:
            self.link.send_trailers(self, fields)

    def progress_of(self, creditor: Creditor) -> int | None:
        return None if self.link is None else self.link.progress_of(self, creditor)

    def release(self, size_bytes: int) -> None:
        if self.link is not None:
            self.link.release(self, size_bytes)

    def cancel(self, *, timed_out: bool = False) -> None:
        if self.has_ended:
            return
        link, queue = self.link, self.queue
        self.end()
        self.link = None
        if timed_out:
            own_lack = None if queue is None else queue.lack()
            if own_lack is None:
                self.ledger.timed_out()
            else:
                self.ledger.failed(own_lack)
        if link is not None:
            link.cancel(self)
        elif queue is not None:
            queue.leave(self)

    # -- called by links and queues ----------------------------------------------------------------------------------

    def tell_open(self) -> None:
        """The request has waited, and is open now. Pools call this between other requests, which a bug of this one's
        receiver must not reach."""
        receiver = self.receiver
        try:
            receiver.on_backend_open()
        except Exception:
            self.on_bug(receiver)

    def end(self) -> None:
        """The response has ended, or the request is given up. Callers that still have to call the receiver get it
        first."""
        self.has_ended = True
        self.is_open = False
        # Breaks a reference cycle, as the receiver may refer to this object.
        self.receiver = _NOBODY
        self.ledger.ended()

    def fail(self, failure: Failure) -> None:
        """Give the request up and tell its receiver; no-op after its end."""
        if self.has_ended:
            return
        receiver = self.receiver
        self.end()
        self.link = None
        self.ledger.failed(failure)
        try:
            receiver.on_backend_failed(failure)
        except Exception:
            self.on_bug(receiver)

    def on_bug(self, receiver: Receiver) -> None:
        """A call to its receiver has raised: a bug of ours, which fails this request only. Call within `except`."""
        log.exception("bug in the handling of a response", receiver=type(receiver).__name__)
        self.cancel()
        try:
            receiver.on_bug()
        except Exception:
            log.exception("bug in the end of an exchange", receiver=type(receiver).__name__)


class _Nobody:
    """The receiver of a request that has ended."""

    client_connection: Final = None

    def on_backend_open(self) -> None: ...
    def on_backend_writable(self) -> None: ...
    def on_response_interim(self, head: ResponseHead) -> None: ...
    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None: ...
    def on_response_data(self, data: bytes | memoryview, end_stream: bool) -> None: ...
    def on_response(self, head: ResponseHead, data: bytes | memoryview) -> None: ...
    def on_response_trailers(self, fields: Fields) -> None: ...
    def on_backend_failed(self, failure: Failure) -> None: ...
    def on_bug(self) -> None: ...


_NOBODY: Final = _Nobody()
