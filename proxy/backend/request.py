"""A request to a backend, from the choice of its address to the end of its response: what the exchange holds.

It waits for a connection, then belongs to a link until it ends, and tells a ledger what became of it, for the counters
and the health of its address. It may be called at any time; after its end only credit is still passed on.
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
        """The head of the response came."""

    def failed(self, failure: Failure) -> None:
        """No complete answer came; `ended` came before."""

    def timed_out(self) -> None:
        """It took too long for the exchange; `ended` came before."""

    def ended(self) -> None:
        """In whatever way; once for each request."""


class Link(Protocol):
    """A connection as its requests see it."""

    def send_data(
        self, request: "Request", data: bytes | memoryview, end_stream: bool, creditor: Creditor, /
    ) -> int: ...

    def send_trailers(self, request: "Request", fields: Fields, /) -> None: ...

    def progress_of(self, creditor: Creditor, /) -> int | None: ...

    def release(self, request: "Request", size_bytes: int, /) -> None: ...

    def cancel(self, request: "Request", /) -> None:
        """The exchange no longer wants the answer."""


class Queue(Protocol):
    """Where requests wait for a connection."""

    def leave(self, request: "Request") -> None:
        """It does not want one any more."""

    def lack(self) -> Failure | None:
        """Why requests wait, unless the address is to blame."""


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
        """Set while it waits, with `deadline`."""
        self.deadline: Deadline | None = None
        self.stream_id = 0
        """Its number on a link that carries several."""
        self.held_bytes = 0
        """Of the response, not released yet."""
        self.is_open = False
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
        return None if self.link is None else self.link.progress_of(creditor)

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

    def open(self, link: Link) -> None:
        """Its head is on its way over `link`."""
        self.link = link
        self.is_open = True

    def end(self) -> None:
        """The response has ended, or the request is given up. Callers that still have to tell the receiver fetch it
        before."""
        self.has_ended = True
        self.is_open = False
        # The receiver may refer to this object, and both would keep each other alive.
        self.receiver = _NOBODY
        self.ledger.ended()

    def fail(self, failure: Failure) -> None:
        """Give it up and say so; does nothing after its end."""
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
        """A call of its receiver has raised: a bug of ours, which costs this request only. Call within `except`."""
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
