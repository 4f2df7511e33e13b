"""One exchange: a client's request, at most one backend stream at a time, and one response.

    begin -> decide -> answer at once                                  redirects, fixed answers, errors
                    -> ask for authorization, if a rule says so        a denial is passed on
                    -> attempt -> head passed on -> body -> end        the response is the backend's
                          ^-- failed, and may be repeated              nothing was passed on yet
    at any time: client gone -> backend cancelled; too slow -> 504, or reset if the head was passed on

It is both the exchange that a door calls and the receiver that a backend stream calls, so a request costs one object.
It ends exactly once, in `_finish`.

`Expect: 100-continue` is passed to the backend like any field, and its 100 is passed back like any 1xx: the backend
decides (RFC 9110, 10.1.1), and a client that does not wait is not held up. If the backend says nothing for a second,
the client is told to go on: many servers never send 100 over HTTP/2, and some clients would wait for ever.
"""

import math
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec

from proxy.backend.stream import BackendStream, Failure, Reason, Wish
from proxy.exchange import answers, upgrade
from proxy.exchange.answers import error_answer
from proxy.exchange.asking import Asking
from proxy.exchange.attempting import Attempting
from proxy.exchange.authorization import Question, with_consent, with_cookies, without
from proxy.exchange.calls import status_of_reset
from proxy.exchange.departure import Departure
from proxy.exchange.hopbyhop import final_fields, interim_fields, trailer_fields
from proxy.exchange.relay import NOBODY, Data, Relay, Upload
from proxy.exchange.upgrade import Switch, UnusableSwitch
from proxy.heads import Fields, ResponseHead
from proxy.loop import Creditor
from proxy.routing import Forward, Listener, Redirect, client_scheme, decide
from proxy.stats import GRPC_SERVER_ERRORS

_NOT_IMPLEMENTED: Final = error_answer(501, "not_implemented", "CONNECT is supported for websocket only")
_NO_WEBSOCKET: Final = error_answer(400, "bad_upgrade", "no websocket here: the rule answers requests by itself")
_CONTINUE_CODE: Final = 100
_LAST_WORDS_S: Final = 2.0


class Exchange(Attempting):
    __slots__ = ()

    def begin(self) -> None:
        shared, head = self._shared, self._head
        if head.method == b"CONNECT":
            if upgrade.is_unknown(head):
                self._count_in(None)
                self._answer(_NOT_IMPLEMENTED)
                return
            head = upgrade.as_get(head)
        decision = decide(shared.table, self._client.arrival.door, head, shared.draw, self._began_wall_s, self)
        if decision.listener is not None:
            self._listener_name = decision.listener.name
        self._count_in(decision.rule)
        if isinstance(decision, Forward):
            self._forward(decision)
        elif isinstance(decision, Redirect):
            self._reason = "redirect"
            self._send_own(answers.redirect_reply(decision, self._id_field, self._wall_s))
        elif self._head.method == b"CONNECT" and decision.status_code < HTTPStatus.MULTIPLE_CHOICES:
            # A 2xx would tell the client that its websocket is open (RFC 8441, 5).
            self._answer(msgspec.structs.replace(_NO_WEBSOCKET, response_edits=decision.response_edits))
        else:
            self._answer(decision)

    # -- what `decide` asks, see `routing.Sender` ----------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        return self._client.arrival.is_trusted

    def forwarded_fields(self, listener: Listener) -> Fields:
        return self._terms.forwarding.request_fields(self._client.arrival, listener, self._head, self._request_id)

    def _request(self, departure: Departure, wish: Wish) -> BackendStream:
        backend = departure.decision.backend
        return self._shared.pools.request(backend, departure.head, departure.end_stream, self, wish)

    # -- external authorization --------------------------------------------------------------------------------------

    def _ask(self, question: Question, wish: Wish) -> BackendStream:
        return Asking(self._shared, self, question, wish).stream

    def on_permitted(self, fields: Fields) -> None:
        departure = self._departure
        if departure is None or departure.decision.inquiry is None:
            return
        decision, inquiry = departure.decision, departure.decision.inquiry
        self.active_s = self._shared.loop.now_s
        if self._timers is not None:
            self._timers.end_attempt()
        self._stream = departure.question = None
        departure.head, departure.withheld = with_consent(inquiry, decision.request_edits, departure.head, fields)
        departure.decision = with_cookies(decision, fields)
        if self._upload is not None:
            self._upload.amend_trailers(partial(without, names=departure.withheld))
        # Later, since this is a call of the stream that asked: no other stream may be requested from within it.
        self._shared.loop.call_soon(partial(self._leave, departure))

    def _leave(self, departure: Departure) -> None:
        if not self._is_over and not self._is_head_sent:
            self._set_out(departure)

    def on_denied(self, head: ResponseHead, end_stream: bool) -> None:
        departure = self._departure
        if departure is None:
            return
        self.active_s = self._shared.loop.now_s
        edits, fields = departure.decision.response_edits, self._dated(final_fields(head))
        self._reason = "denied"
        self._stop_request()
        fields = fields if edits is None else edits.apply(fields)
        self._pass_head(ResponseHead(head.status_code, fields, head.never_indexed), end_stream)

    def on_rest_of_denial(self, data: Data) -> None:
        if self._stream is not None:
            self._pass_data(data, True, NOBODY)

    def on_denied_unclearly(self, status_code: int) -> None:
        self._let_go()
        self._detail = f"asking for authorization: answered {status_code}, want 200"
        self._answer(error_answer(403, "denied", "the request is not authorized", self._response_edits))

    # -- what the client does ----------------------------------------------------------------------------------------

    def on_request_data(self, data: Data, end_stream: bool) -> None:
        self.active_s = self._shared.loop.now_s
        self._request_bytes += len(data)
        self._is_request_complete = end_stream
        upload = self._upload
        if upload is None or self._is_request_stopped:
            self._client.release(len(data))
            return
        for mirror in self._mirrors:
            mirror.add(data, end_stream)
        upload.add_data(data, end_stream)
        self._send_request()
        if end_stream:
            self._end_with_the_edge()

    def on_request_trailers(self, fields: Fields) -> None:
        self.active_s = self._shared.loop.now_s
        self._is_request_complete = True
        upload, departure = self._upload, self._departure
        if upload is not None and not self._is_request_stopped:
            fields = self._terms.forwarding.request_trailers(fields)
            if departure is not None:
                fields = without(fields, departure.withheld_from_trailers)
            for mirror in self._mirrors:
                mirror.add_trailers(fields)
            upload.add_trailers(fields)
            self._send_request()

    def on_client_writable(self) -> None:
        self.active_s = self._shared.loop.now_s
        if self._download is not None and self._pump_download(self._download):
            self._finish()

    def on_client_gone(self, reason: str) -> None:
        if reason:
            self._reason, self._detail = "client_gone", reason
        self._count_broken_call()
        self._let_go()
        self._finish()

    # -- what the backend does ---------------------------------------------------------------------------------------

    @property
    def client_connection(self) -> object | None:
        """The arrival, which is one object for the lifetime of the connection; None for HTTP/2, over which a proxy may
        send requests of many clients."""
        arrival = self._client.arrival
        return arrival if arrival.protocol == "HTTP/1.1" else None

    def on_backend_open(self) -> None:
        self._send_request()

    def on_backend_writable(self) -> None:
        before_bytes = self._waiting_bytes
        self._send_request()
        # It may have taken nothing: credit for a whole connection wakes all its requests.
        if self._waiting_bytes != before_bytes:
            self.active_s = self._shared.loop.now_s

    def on_response_interim(self, head: ResponseHead) -> None:
        self.active_s = self._shared.loop.now_s
        timers = self._timers
        if head.status_code == _CONTINUE_CODE and timers is not None:
            if timers.has_continued:
                return
            timers.continue_s, timers.has_continued = math.inf, True
        self._client.send_interim(ResponseHead(head.status_code, interim_fields(head.fields)))

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        departure = self._departure
        if departure is None:
            return
        self.active_s = self._shared.loop.now_s
        status_code = head.status_code
        decision = departure.decision
        policy = decision.rule.retry
        if policy is not None and status_code in policy.codes and self._retries_after_status(departure, status_code):
            self._let_go()
            return
        if decision.response_edits is None and decision.rule.persistence is None and not self._is_body_held:
            self._pass_head(head.onward or self._onward(head), end_stream)
            return
        fields = self._edited(departure, self._dated(final_fields(head)))
        if self._is_body_held and departure.switch is not None:
            self._settle_switch(departure.switch, head, fields, end_stream)
        else:
            self._pass_head(ResponseHead(status_code, fields, head.never_indexed), end_stream)

    def on_response_data(self, data: Data, end_stream: bool) -> None:
        stream = self._stream
        if stream is not None:
            self._pass_data(data, end_stream, stream)

    def on_response(self, head: ResponseHead, data: Data) -> None:
        """The usual case, inlined for speed. Unusual cases go through the two calls that this replaces."""
        departure, stream = self._departure, self._stream
        if departure is None or stream is None:
            return
        decision, status_code = departure.decision, head.status_code
        rule = decision.rule
        if (
            rule.retry is not None
            or rule.persistence is not None
            or decision.response_edits is not None
            or self._is_body_held
        ):
            self.on_response_head(head, False)
            if self._stream is stream:
                self._pass_data(data, True, NOBODY)
            return
        self.active_s = now_s = self._shared.loop.now_s
        self._status_code = status_code
        self._response_after_s = now_s - self._began_s
        self._response_bytes = size_bytes = len(data)
        self._is_head_sent = True
        self._address = stream.address
        self._stream = None
        if not self._is_request_complete or self._upload is not None:
            self._stop_request()
        taken_bytes = self._client.send_response(head.onward or self._onward(head), data)
        if taken_bytes == size_bytes:
            self._finish()
            return
        if self._timers is not None:
            self._timers.end_attempt()
        self._keep(memoryview(data)[taken_bytes:], True, NOBODY)

    def on_response_trailers(self, fields: Fields) -> None:
        fields = trailer_fields(fields)
        if not fields:
            self.on_response_data(b"", True)
            return
        self._on_response_end()
        self._end_call(fields)
        if self._download is None:
            self._client.send_trailers(fields)
            self._finish()
            return
        self._download.add_trailers(fields)
        if self._pump_download(self._download):
            self._finish()

    def on_backend_failed(self, failure: Failure) -> None:
        departure, stream = self._departure, self._stream
        if departure is None or stream is None:
            return
        self._stream = None
        self._address = stream.address or self._address
        if self._is_head_sent:
            self._reason, self._detail = failure.reason.value, failure.detail
            self._abort(failure.error_code)
            return
        attempts = self._attempts_of(departure)
        delay_s = None
        if attempts is not None:
            delay_s = attempts.after_failure(failure, stream.address, self._shared.draw())
        if self._retry_after(delay_s):
            return
        self._detail = failure.detail
        grpc_status = None
        if failure.error_code is not None:
            grpc_status = status_of_reset(failure.error_code, self._head, self._shared.loop.now_s - self._began_s)
        self._answer(answers.failure_answer(failure.reason, departure.decision.response_edits, grpc_status))

    # -- responses ---------------------------------------------------------------------------------------------------

    def _pass_data(self, data: Data, end_stream: bool, creditor: Creditor) -> None:
        self.active_s = self._shared.loop.now_s
        self._response_bytes += len(data)
        if end_stream:
            self._on_response_end()
        if self._download is not None:
            self._keep(data, end_stream, creditor)
            return
        taken_bytes = self._client.send_data(data, end_stream, creditor)
        if taken_bytes < len(data):
            self._keep(memoryview(data)[taken_bytes:], end_stream, creditor)
        elif end_stream:
            self._finish()

    def _keep(self, data: Data, end_stream: bool, creditor: Creditor) -> None:
        """Keep what the client has not taken yet."""
        download = self._download
        if download is None:
            download = self._download = Relay()
        download.add(data, end_stream, creditor)
        if self._pump_download(download):
            self._finish()

    def _end_call(self, fields: Fields) -> None:
        """If this is a gRPC call, the backend ends it with these fields."""
        self._count_call(fields)
        if self._grpc_status in GRPC_SERVER_ERRORS:
            self._has_failed = True

    def _onward(self, head: ResponseHead) -> ResponseHead:
        """The head to pass on if the rule changes nothing. Cached, since equal heads may be one object."""
        fields = final_fields(head)
        onward = ResponseHead(head.status_code, self._dated(fields), head.never_indexed)
        if onward.fields is fields:
            head.onward = onward
        return onward

    def _dated(self, fields: Fields) -> Fields:
        """`fields`, or if they have no Date (RFC 9110, 6.6.1), a new list with the time at which the response came."""
        for name, _ in fields:
            if name == b"date":
                return fields
        return [*fields, (b"date", answers.http_date(int(self._wall_s)))]

    def _edited(self, departure: Departure, fields: Fields) -> Fields:
        """The fields of a response, changed as its rule wants."""
        decision = departure.decision
        if decision.response_edits is not None:
            fields = decision.response_edits.apply(fields)
        persistence = decision.rule.persistence
        if persistence is not None and self._stream is not None:
            field = persistence.response_field(
                decision.session,
                decision.backend.key,
                self._stream.address,
                self._began_wall_s,
                is_secure=self._client_scheme(decision.listener) == b"https",
            )
            if field is not None:
                fields.append(field)
        return fields

    def _client_scheme(self, listener: Listener) -> bytes:
        return client_scheme(self._head, listener.scheme, is_trusted=self._client.arrival.is_trusted)

    def _pass_head(self, head: ResponseHead, end_stream: bool) -> None:
        self._status_code = head.status_code
        self._response_after_s = self.active_s - self._began_s
        self._is_head_sent = True
        if self._upload is not None:
            self._upload.forget()
        if end_stream:
            self._on_response_end()
            if self._head.method == b"POST":  # as all gRPC calls are; a head alone may end one
                self._end_call(head.fields)
        self._client.send_headers(head, end_stream)
        if end_stream:
            self._finish()

    def _settle_switch(self, switch: Switch, head: ResponseHead, fields: Fields, end_stream: bool) -> None:
        """The backend has answered an upgrade request."""
        self._is_body_held = False
        try:
            is_done = switch.is_done_by(head)
        except UnusableSwitch as error:
            self._refuse_response(str(error))
            return
        if not is_done:
            if not switch.has_body:
                # Anything that the client has sent already was meant for the other protocol.
                self._stop_request()
            self._pass_head(ResponseHead(head.status_code, fields, head.never_indexed), end_stream)
            return
        if self._timers is not None:
            # Time limits are for requests; a connection in another protocol lasts as long as bytes move.
            self._timers.clear()
        if self._upload is None or switch.has_body:
            if self._upload is not None:
                self._upload.forget()
            self._is_request_complete = False
            self._upload = Upload(self._client, 0, self._shared.kept)
        self._pass_head(switch.response_head(fields), False)
        if end_stream:
            self.on_response_data(b"", True)
        else:
            self._send_request()
            if self._is_request_complete:
                self._end_with_the_edge()

    def _end_with_the_edge(self) -> None:
        """The edge ends a switched stream in both directions at once. The backend sees the end of one direction, and
        gets a moment for its last data in the other."""
        departure = self._departure
        is_switched = departure is not None and departure.switch is not None and self._is_head_sent
        if is_switched and self._client.arrival.is_edge:
            self._shared.loop.deadline(self._end_switched).set(self._shared.loop.now_s + _LAST_WORDS_S)

    def _end_switched(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._address = stream.address
            stream.cancel()
            self._pass_data(b"", True, NOBODY)

    def _refuse_response(self, detail: str) -> None:
        """The backend's head cannot be passed on."""
        self._detail = detail
        self._let_go()
        self._answer(answers.failure_answer(Reason.PROTOCOL, self._response_edits))
