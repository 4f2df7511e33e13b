"""How an exchange ends: with the backend's last byte, an answer of our own, a reset, or because the client is gone.

`Ending` has the state of an exchange, and everything that leads to `_finish`, which takes effect exactly once: it
counts the exchange, tells the access log, and removes the exchange from the running set.
"""

from bisect import bisect_left
from http import HTTPStatus
from typing import Final

import msgspec

from proxy.backend.stream import BackendStream
from proxy.exchange import answers
from proxy.exchange.answers import Reply, error_answer
from proxy.exchange.attempts import Attempts
from proxy.exchange.calls import status_in
from proxy.exchange.client import ClientStream
from proxy.exchange.departure import Departure
from proxy.exchange.mirrors import Mirror
from proxy.exchange.record import Record
from proxy.exchange.relay import NOBODY, Relay, Upload
from proxy.exchange.shared import Shared
from proxy.exchange.timers import Timers
from proxy.exchange.untaken import large_head_bytes
from proxy.h2 import ErrorCode
from proxy.heads import Field, Fields, RequestHead
from proxy.routing import Answer, HeaderEdits, Rule, is_grpc
from proxy.stats import DURATION_BOUNDS_S, NO_ROUTE, BackendStats, RouteStats

_LAST_CLASS: Final = 5
_NO_LOOK: Final = (0.0, 0)


class Ending:
    __slots__ = (
        "_address",
        "_attempts",
        "_began_s",
        "_began_wall_s",
        "_client",
        "_departure",
        "_detail",
        "_download",
        "_grpc_status",
        "_has_failed",
        "_head",
        "_is_body_held",
        "_is_head_sent",
        "_is_over",
        "_is_request_complete",
        "_is_request_stopped",
        "_last_look",
        "_listener_name",
        "_mirrors",
        "_reason",
        "_request_bytes",
        "_request_id",
        "_response_after_s",
        "_response_bytes",
        "_route",
        "_rule",
        "_shared",
        "_status_code",
        "_stream",
        "_terms",
        "_timers",
        "_upload",
        "_waiting_bytes",
        "active_s",
    )

    _route: RouteStats

    def __init__(self, shared: Shared, client: ClientStream, head: RequestHead, end_stream: bool) -> None:
        self._shared = shared
        self._terms = shared.terms
        self._client = client
        self._head = head
        """As the client sent it."""
        self._began_wall_s = shared.wall_clock_s()
        self._began_s = self.active_s = shared.loop.now_s
        self._request_id = shared.request_id_for(client.arrival, head)
        self._listener_name = self._address = ""
        self._rule: Rule | None = None
        self._departure: Departure | None = None
        """Set if the request is to be forwarded."""
        self._attempts: Attempts | None = None
        self._timers: Timers | None = None
        self._stream: BackendStream | None = None
        """The running attempt's; None between two attempts, and after the last byte of the response."""
        self._upload: Upload | None = None
        self._download: Relay | None = None
        """Set once the client has not taken everything at once."""
        self._waiting_bytes = 0
        """How much of both bodies waits for the side that is to take it, and what a large head takes."""
        self._mirrors: tuple[Mirror, ...] = ()
        self._is_request_complete = end_stream
        self._is_request_stopped = False
        self._is_body_held = False
        """The request's body must not be sent yet: the authorization server has not answered, or the backend has not
        answered the upgrade request."""
        self._is_head_sent = False
        self._has_failed = False
        """See `Record`."""
        self._is_over = False
        self._status_code = 0
        self._grpc_status: int | None = None
        self._request_bytes = self._response_bytes = 0
        self._response_after_s = 0.0
        self._reason = self._detail = ""
        self._last_look = _NO_LOOK
        """When `_is_taken_slowly` last found progress: the `active_s` that it set, and the progress."""

    def _count_in(self, rule: Rule | None) -> None:
        self._rule = rule
        stats, name = self._shared.stats, NO_ROUTE if rule is None else rule.route_name
        self._route = route = stats.routes.get(name) or stats.route(name)
        route.in_flight += 1

    def _count_call(self, fields: Fields) -> None:
        """The response ends with these fields: trailers, or a head without a body."""
        status = self._grpc_status = status_in(self._head, fields)
        if status is not None:
            self._count_ended_call(status)

    def _count_broken_call(self) -> None:
        """The response is given up, or the client is gone."""
        if self._grpc_status is None and not self._is_over and is_grpc(self._head):
            self._count_ended_call(None)

    def _count_ended_call(self, status: int | None) -> None:
        self._route.count_call(status)
        backend = self._backend_stats
        if backend is not None:
            backend.count_call(status)

    @property
    def _backend_stats(self) -> BackendStats | None:
        """Of the backend that the request was routed to. None without one, or if it was not authorized."""
        departure = self._departure
        if departure is None or departure.question is not None:
            return None
        stats, key = self._shared.stats, departure.decision.backend.key
        return stats.backends.get(key) or stats.backend(key)

    # -- our own answers ---------------------------------------------------------------------------------------------

    @property
    def _id_field(self) -> Field:
        return self._terms.forwarding.request_id_name, self._request_id

    @property
    def _wall_s(self) -> float:
        """Now, in seconds since 1970."""
        return self._began_wall_s + self._shared.loop.now_s - self._began_s

    @property
    def _response_edits(self) -> HeaderEdits | None:
        """What the rule changes in responses, our own errors included."""
        return None if self._departure is None else self._departure.decision.response_edits

    def _answer(self, answer: Answer) -> None:
        self._reason = answer.reason
        self._has_failed = answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        reply = answers.reply_to(answer, self._head, self._id_field, self._wall_s)
        self._send_own(answers.for_edge(reply, answer) if self._client.arrival.is_edge else reply)

    def _send_own(self, reply: Reply) -> None:
        if self._timers is not None:
            self._timers.clear()
        body = reply.body
        self._status_code = reply.head.status_code
        self._response_after_s = self._shared.loop.now_s - self._began_s
        self._response_bytes = len(body)
        self._is_head_sent = True
        self._stop_request()
        self._client.send_headers(reply.head, not body)
        if not body:
            self._count_call(reply.head.fields)
        else:
            download = self._download = Relay()
            download.add(body, True, NOBODY)
            if not self._pump_download(download):
                self._forget_fields()
                return
        self._finish()

    # -- what its peers have not taken yet ---------------------------------------------------------------------------

    def _forget_fields(self) -> None:
        """The client takes its time for our own answer, to which the request's fields do not matter any more."""
        if large_head_bytes(self._head):
            self._head = msgspec.structs.replace(self._head, fields=[])
            if self._departure is not None:
                self._departure.head = self._head
            self._weigh()

    def _pump_download(self, download: Relay) -> bool:
        """Hand over what the client takes. Returns True if that was the end."""
        is_ended = download.pump(self._client)
        self._weigh()
        return is_ended

    def _weigh(self) -> None:
        """Count what waits now in the worker's total."""
        upload, download = self._upload, self._download
        now_bytes = 0 if self._is_over else large_head_bytes(self._head)
        if upload is not None:
            now_bytes += upload.held_bytes
        if download is not None:
            now_bytes += download.held_bytes
        before_bytes, self._waiting_bytes = self._waiting_bytes, now_bytes
        if now_bytes != before_bytes:
            self._shared.untaken.weigh(self, before_bytes, now_bytes)

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave_behind(self) -> None:
        """The client or the backend has taken nothing for longest of all, and too much waits."""
        if self._download is not None and self._download.held_bytes:
            self._reason, self._detail = "client_behind", "it does not read, and too much waits for such clients"
        elif self._is_head_sent:
            self._reason, self._detail = "backend_behind", "too much waits for backends, for this one longest"
        else:
            self._let_go()
            text = "too much waits for backends, for this one longest"
            self._answer(error_answer(503, "backend_behind", text, self._response_edits))
            return
        self._abort()

    def _on_response_end(self) -> None:
        """The backend has sent everything: its stream is over, and so is the request."""
        if self._stream is not None:
            self._address = self._stream.address
            self._stream = None
        if self._timers is not None:
            self._timers.end_attempt()
        self._stop_request()

    def _stop_request(self) -> None:
        """The rest of the request's body is not wanted any more."""
        if self._upload is not None:
            self._upload.drop()
            if self._waiting_bytes:
                self._weigh()
        if not self._is_request_complete and not self._is_request_stopped:
            self._is_request_stopped = True
            self._client.stop_request()

    def _let_go(self, *, timed_out: bool = False) -> None:
        """Give up the running attempt."""
        stream, self._stream = self._stream, None
        if self._download is not None:
            self._download.drop()
        if stream is not None:
            self._address = stream.address
            # Not a timeout of the backend if the client may be the slow side, in sending or reading: otherwise a client
            # could get any address ejected.
            stream.cancel(timed_out=timed_out and self._is_request_complete and not self._is_head_sent)

    def _abort(self, error_code: int | None = None) -> None:
        """The response cannot be completed. `error_code` is that of the backend's reset."""
        self._has_failed = True
        self._count_broken_call()
        self._let_go()
        self._client.reset(is_cancelled=error_code == ErrorCode.CANCEL)
        self._finish()

    def on_bug(self) -> None:
        """A bug of ours in a call from the backend's side ends this exchange, and no other."""
        if not self._is_over:
            self._reason, self._detail = "bug", "given up after a bug in this proxy"
            self._abort()

    def give_up(self) -> None:
        """A bug of ours in `begin`: the door does not know this exchange, and will not end it."""
        self._shared.running.discard(self)
        if hasattr(self, "_route"):
            self._let_go()
            self._finish()

    def _finish(self) -> None:
        """The end. After it nothing is called, except to give credit back for earlier bytes."""
        if self._is_over:
            # After a bug of ours, a door may end an exchange that has already ended.
            return
        self._is_over = True
        shared, route = self._shared, self._route
        shared.running.discard(self)
        if self._timers is not None:
            self._timers.cancel()
        if self._upload is not None:
            self._upload.drop()
        if self._waiting_bytes:
            self._weigh()
        for mirror in self._mirrors:
            mirror.on_exchange_ended()
        duration_s = shared.loop.now_s - self._began_s
        route.in_flight -= 1
        route.request_bytes += self._request_bytes
        route.response_bytes += self._response_bytes
        # Counted here, since calls would cost more than the counting.
        digit, bucket = self._status_code // 100, bisect_left(DURATION_BOUNDS_S, duration_s)
        if digit > _LAST_CLASS:
            digit = _LAST_CLASS
        route.responses[digit] += 1
        route.durations[bucket] += 1
        route.duration_sum_s += duration_s
        departure = self._departure
        if departure is not None and departure.question is None:
            key = departure.decision.backend.key
            backend = shared.stats.backends.get(key) or shared.stats.backend(key)
            backend.responses[digit] += 1
            backend.durations[bucket] += 1
            backend.duration_sum_s += duration_s
        if shared.is_logged(self._status_code, self._has_failed):
            shared.access_log(self._record(duration_s))

    def _record(self, duration_s: float) -> Record:
        head, arrival, rule, departure = self._head, self._client.arrival, self._rule, self._departure
        return Record(
            self._began_wall_s,
            self._request_id,
            arrival.address,
            arrival.protocol,
            arrival.door,
            self._listener_name,
            "" if rule is None else rule.route_name,
            "" if rule is None else rule.name,
            -1 if rule is None else rule.index,
            "" if departure is None else departure.decision.backend.key,
            self._address,
            head.method,
            head.authority,
            head.path.partition(b"?")[0],
            self._status_code,
            self._request_bytes,
            self._response_bytes,
            duration_s,
            self._response_after_s,
            0 if self._attempts is None else self._attempts.retries,
            self._reason,
            self._detail,
            self._has_failed,
            self._grpc_status,
        )
