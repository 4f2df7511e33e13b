"""The attempts of an exchange to get a response: one backend stream after another, and their time limits.

The rules are in `attempts`; this module carries them out. Every retry, even an immediate one, goes through the
exchange's timers, so a stream is never requested from within the call that ended another.
"""

import math
from abc import ABC, abstractmethod
from typing import Final

import msgspec

from proxy.backend.stream import NO_WISH, BackendStream, Wish
from proxy.exchange.answers import error_answer
from proxy.exchange.attempts import GATEWAY_TIMEOUT, Attempts
from proxy.exchange.authorization import Question
from proxy.exchange.departure import Departure, depart
from proxy.exchange.ending import Ending
from proxy.exchange.mirrors import mirrors_of
from proxy.exchange.relay import Upload
from proxy.exchange.timers import Timers
from proxy.exchange.untaken import LARGE_HEAD_FIELDS
from proxy.heads import RequestHead, ResponseHead
from proxy.routing import Answer, Forward

_CONTINUE_S: Final = 1.0
"""After this time a client that waits for 100 (Continue) is told to go on. curl does not wait longer either."""
_CONTINUE: Final = ResponseHead(100, [])


class Attempting(Ending, ABC):
    __slots__ = ()

    def _forward(self, decision: Forward) -> None:
        shared, rule = self._shared, decision.rule
        departure = depart(
            self._terms.forwarding,
            self._client.arrival,
            self._head,
            decision,
            self._request_id,
            self._is_request_complete,
            shared.nonce,
        )
        if isinstance(departure, Answer):
            self._answer(msgspec.structs.replace(departure, response_edits=decision.response_edits))
            return
        self._departure = departure
        if len(self._head.fields) > LARGE_HEAD_FIELDS:
            self._weigh()
        if not self._is_request_complete:
            self._upload = Upload(self._client, departure.replay_bytes, shared.kept)
        timeout_s = self._terms.request_timeout_of(rule)
        if timeout_s < math.inf or rule.backend_timeout_s:
            self._timers = Timers(shared.loop, self._on_time)
            self._timers.request_s = self._began_s + timeout_s
        if departure.question is None:
            self._set_out(departure)
        else:
            self._is_body_held = True
            self._attempt(departure, NO_WISH)

    def _set_out(self, departure: Departure) -> None:
        """Send the request to its backend: it is authorized, or needs no authorization."""
        shared, decision, upload = self._shared, departure.decision, self._upload
        self._is_body_held = departure.switch is not None
        if decision.mirrors and departure.switch is None:
            self._mirrors = mirrors_of(shared, decision.mirrors, departure.head, departure.end_stream)
        if upload is not None:
            for mirror in self._mirrors:
                upload.repeat_to(mirror)
            if departure.switch is None and _waits_for_100(self._head):
                timers = self._timers = self._timers or Timers(shared.loop, self._on_time)
                timers.continue_s = shared.loop.now_s + _CONTINUE_S
        if self._attempts is not None:
            self._attempts.turn_to(departure.head.method, len(decision.backend.spec.addresses))
        session = decision.session
        self._attempt(departure, NO_WISH if session is None else Wish(session.address))

    def _attempt(self, departure: Departure, wish: Wish) -> None:
        shared = self._shared
        decision = departure.decision
        timers = self._timers
        if timers is not None:
            backend_timeout_s = decision.rule.backend_timeout_s
            timers.attempt_s = shared.loop.now_s + backend_timeout_s if backend_timeout_s else math.inf
            timers.set()
        if departure.question is not None:
            self._stream = self._ask(departure.question, wish)
            return
        self._stream = self._request(departure, wish)
        if self._upload is not None:
            self._send_request()

    @abstractmethod
    def _request(self, departure: Departure, wish: Wish) -> BackendStream:
        """Ask the pools for a stream whose receiver is this exchange."""

    @abstractmethod
    def _ask(self, question: Question, wish: Wish) -> BackendStream:
        """Ask whether the request may be forwarded; the answer comes to this exchange."""

    def _send_request(self) -> None:
        upload, stream = self._upload, self._stream
        if upload is None:
            return
        # Everything waits for authorization; data of another protocol waits until the backend has switched to it.
        if stream is not None and stream.is_open and (not self._is_body_held or self._asks_with_body):
            upload.pump(stream)
        else:
            upload.lighten()
        if self._waiting_bytes or upload.held_bytes:
            self._weigh()

    @property
    def _asks_with_body(self) -> bool:
        """Whether the held body may be sent after all: it belongs to the upgrade request, which is still HTTP."""
        departure = self._departure
        if departure is None or departure.question is not None or departure.switch is None:
            return False
        return departure.switch.has_body

    def _retry_after(self, delay_s: float | None) -> bool:
        """Plan another attempt after `delay_s`. Returns False if that is None, or if there is no time for it."""
        if delay_s is None:
            return False
        timers = self._timers
        if timers is None:
            timers = self._timers = Timers(self._shared.loop, self._on_time)
        retry_s = self._shared.loop.now_s + delay_s
        if retry_s >= timers.request_s:
            return False
        timers.retry_s, timers.attempt_s = retry_s, math.inf
        if delay_s:
            timers.set()
        else:
            # Before requests that have yet to arrive: in their place behind those, it could be left out each time.
            self._shared.loop.call_soon(self._on_time)
        if self._upload is not None:
            self._upload.rewind()
            self._weigh()
        return True

    def _retries_after_status(self, departure: Departure, status_code: int) -> bool:
        """Plan another attempt in place of the running one."""
        stream, attempts = self._stream, self._attempts_of(departure)
        if stream is None or attempts is None:
            return False
        return self._retry_after(attempts.after_status(status_code, stream.address, self._shared.draw()))

    def _retry(self, departure: Departure, attempts: Attempts) -> None:
        self._route.retries += 1
        session = departure.decision.session if departure.question is None else None
        self._attempt(departure, attempts.begin(None if session is None else session.address))

    def _attempts_of(self, departure: Departure) -> Attempts | None:
        """None if the request cannot be sent again."""
        if self._upload is not None and not self._upload.is_replayable:
            return None
        if self._attempts is None:
            decision, question = departure.decision, departure.question
            # A question is safe to repeat, whatever the method of the request that it is about.
            method = departure.head.method if question is None else b"GET"
            addresses = (decision.backend if question is None else question.server).spec.addresses
            self._attempts = Attempts(decision.rule.retry, method, len(addresses))
        return self._attempts

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def idle_timeout_s(self) -> float:
        return self._terms.idle_timeout_s

    def on_idle(self) -> None:
        """There was no event for `idle_timeout_s`."""
        if not self._is_over and not self._is_taken_slowly():
            self._time_out("idle_timeout", "neither side has sent anything for too long")

    def _is_taken_slowly(self) -> bool:
        """Whether a side is slowly taking what the kernel holds for it, which no event reports until much is free.

        The first look extends the time by half of the timeout, and so does each look that finds progress.
        """
        stream, client = self._stream, self._client
        of_sides = client.progress_of(stream), None if stream is None else stream.progress_of(client)
        counts = [count for count in of_sides if count is not None]
        progress = sum(counts)
        looked_s, before = self._last_look
        if not counts or (looked_s == self.active_s and progress <= before):
            return False
        self.active_s += self.idle_timeout_s / 2
        self._last_look = (self.active_s, progress)
        return True

    def _on_time(self) -> None:
        timers, departure = self._timers, self._departure
        if timers is None or departure is None or self._is_over:
            return
        now_s = self._shared.loop.now_s
        if now_s >= timers.request_s:
            self._time_out("request_timeout", "the request took too long")
        elif now_s >= timers.attempt_s:
            self._time_out_attempt(departure)
        elif now_s >= timers.continue_s:
            timers.continue_s = math.inf
            timers.set()
            if not self._is_head_sent and not self._request_bytes:
                timers.has_continued = True
                self._client.send_interim(_CONTINUE)
        elif now_s >= timers.retry_s and self._attempts is not None:
            timers.retry_s = math.inf
            self._retry(departure, self._attempts)
        else:
            timers.set()

    def _time_out_attempt(self, departure: Departure) -> None:
        if not self._is_head_sent and self._retries_after_status(departure, GATEWAY_TIMEOUT):
            self._let_go(timed_out=True)
        else:
            self._time_out("backend_timeout", "the backend did not answer in time")

    def _time_out(self, reason: str, text: str) -> None:
        self._let_go(timed_out=True)
        if self._is_head_sent:
            self._reason = reason
            self._abort()
            return
        self._answer(error_answer(GATEWAY_TIMEOUT, reason, text, self._response_edits))


def _waits_for_100(head: RequestHead) -> bool:
    return any(name == b"expect" and value for name, value in head.fields)
