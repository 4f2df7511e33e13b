"""External authorization: the question to the server that decides whether a request is forwarded, and its answer.

    200                 permitted: its fields go to the exchange, which forwards the request
    3xx, 4xx, 5xx       denied: passed on to the client as it is
    anything else       denied, with our own answer
    no answer           a failure, as of a backend

Whatever goes wrong, no part of the request is forwarded.
"""

from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from proxy.backend.stream import BackendStream, Failure, Wish
from proxy.exchange.authorization import Question
from proxy.exchange.hopbyhop import response_fields
from proxy.exchange.relay import Data
from proxy.exchange.shared import Shared
from proxy.heads import Fields, ResponseHead

_PAST_CODES: Final = 600
_MAX_REST_BYTES: Final = 64 * 1024
_REST_TIMEOUT_S: Final = 30.0


class Applicant(Protocol):
    """The exchange that asks."""

    def on_permitted(self, fields: Fields) -> None:
        """`fields` are the response's."""

    def on_denied(self, head: ResponseHead, end_stream: bool) -> None:
        """The response, and the body that follows, are for the client."""

    def on_rest_of_denial(self, data: Data) -> None:
        """The whole body of the denial at once, in place of `on_response_data`; no credit is owed for it."""

    def on_denied_unclearly(self, status_code: int) -> None:
        """The response cannot be passed on to the client."""

    def on_response_data(self, data: Data, end_stream: bool) -> None: ...

    def on_response_trailers(self, fields: Fields) -> None: ...

    def on_backend_failed(self, failure: Failure) -> None: ...

    def on_bug(self) -> None: ...


class Asking:
    """One question and its answer. The exchange holds `stream` until the answer is known."""

    __slots__ = ("_applicant", "_asker", "_rest_bytes", "_shared", "active_s", "stream")

    def __init__(self, shared: Shared, applicant: Applicant, question: Question, wish: Wish) -> None:
        self._shared = shared
        self._applicant: Applicant | None = applicant
        """None once the exchange continues without us: the rest of the response is received and dropped."""
        self._asker: Applicant | None = applicant
        """The same, but None only after the end."""
        self._rest_bytes = 0
        self.active_s = shared.loop.now_s
        self.stream: BackendStream = shared.pools.request(question.server, question.head, True, self, wish)

    @property
    def idle_timeout_s(self) -> float:
        return _REST_TIMEOUT_S

    def on_idle(self) -> None:
        self._end()
        self.stream.cancel()

    def _end(self) -> None:
        self._applicant = self._asker = None
        self._shared.running.discard(self)

    # -- what the server does ----------------------------------------------------------------------------------------

    client_connection: Final = None

    def on_backend_open(self) -> None:
        """There is no body to send."""

    def on_backend_writable(self) -> None:
        """There is no body to send."""

    def on_response_interim(self, head: ResponseHead) -> None:
        """It is not meant for the client."""

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        applicant = self._applicant
        if applicant is None:
            return
        if head.status_code == HTTPStatus.OK:
            self._applicant = None
            if not end_stream:
                # The connection can be used again if the rest of the response comes within `idle_timeout_s`.
                self.active_s = self._shared.loop.now_s
                self._shared.running.add(self)
            applicant.on_permitted(response_fields(head.fields))
        elif HTTPStatus.MULTIPLE_CHOICES <= head.status_code < _PAST_CODES:
            applicant.on_denied(head, end_stream)
        else:
            self._applicant = None
            applicant.on_denied_unclearly(head.status_code)
            self._end()
            return
        if end_stream:
            self._end()

    def on_response_data(self, data: Data, end_stream: bool) -> None:
        applicant = self._applicant
        if applicant is not None:
            applicant.on_response_data(data, end_stream)
            if end_stream:
                self._end()
            return
        self._rest_bytes += len(data)
        self.stream.release(len(data))
        if end_stream:
            self._end()
        elif self._rest_bytes > _MAX_REST_BYTES:
            self.on_idle()

    def on_response(self, head: ResponseHead, data: Data) -> None:
        self.on_response_head(head, False)
        if self._applicant is not None:
            self._applicant.on_rest_of_denial(data)
        self._end()

    def on_response_trailers(self, fields: Fields) -> None:
        if self._applicant is not None:
            self._applicant.on_response_trailers(fields)
        self._end()

    def on_backend_failed(self, failure: Failure) -> None:
        applicant = self._applicant
        self._end()
        if applicant is not None:
            applicant.on_backend_failed(
                msgspec.structs.replace(failure, detail=f"asking for authorization: {failure.detail}")
            )

    def on_bug(self) -> None:
        asker = self._asker
        self._end()
        if asker is not None:
            asker.on_bug()
