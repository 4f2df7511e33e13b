"""The connector's end of the control stream: registers the connection and unregisters it. No I/O.

    stream = ControlStream(registration)
    stream.register()                       then send data_to_send() as body of the stream's response
    for event in stream.receive(data): ...  data: the body of the stream's request
    stream.unregister()                     and wait for Unregistered
    stream.close()                          queues the last messages; then end the stream

The registration capability is requested and used at once (a bootstrap, and a call to its promised answer), so that
registering takes one round trip. Deadlines are up to the caller, which calls `close` when it has waited long enough.
`receive` never raises: a message that cannot be understood yields `ControlStreamBroken`, or `RegistrationFailed` while
registering, as the last event.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import msgspec

from proxy.tunnel import registration as layout
from proxy.tunnel import rpc
from proxy.tunnel.capnp import EMPTY, MalformedMessage, MessageReader, Value
from proxy.tunnel.controlevents import (
    ControlEvent,
    ControlStreamBroken,
    LocalConfigurationAnswered,
    Registered,
    RegistrationFailed,
    Unregistered,
)
from proxy.tunnel.errors import LocalProtocolError
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.registration import REGISTRATION_SERVER, ConnectionDetails, Method, Registration
from proxy.tunnel.rpc import Failure, Payload

MAX_FOREIGN_TEXT: Final = 256
MAX_UNASKED: Final = 100
"""Limit of the edge's messages that answer no question of ours; each may cost us a reply."""
_LAST_WORDS: Final = "rpc: shutdown"

Outcome = Payload | Failure
Answered = Callable[[Outcome], ControlEvent | None]


class State(Enum):
    IDLE = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    UNREGISTERING = auto()
    ENDED = auto()
    """Not registered, or no longer; only `close` is left. Whatever the edge still sends is ignored."""
    CLOSED = auto()


class ControlStream:
    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self._reader = MessageReader()
        self._output: list[bytes] = []
        self._questions: dict[int, Answered] = {}
        """Unanswered questions, by id."""
        self._free_ids: list[int] = []
        self._next_id = 0
        self._bootstrap_id = 0
        self._cap_id: int | None = None
        """The edge's RegistrationServer, once known."""
        self._unasked = 0
        self.state = State.IDLE

    # -- what we ask -------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Register the connection; `Registered` or `RegistrationFailed` will follow."""
        self._want(State.IDLE, "register")
        self.state = State.REGISTERING
        self._bootstrap_id = self._ask(self._on_bootstrap)
        self._send(rpc.Bootstrap(self._bootstrap_id))
        self._call(Method.REGISTER_CONNECTION, layout.encode_registration(self._registration), self._on_registration)

    def update_local_configuration(self, config: bytes) -> None:
        """Tell the edge the configuration of a tunnel that is not remotely managed; `LocalConfigurationAnswered` will
        follow."""
        self._want(State.REGISTERED, "update the local configuration")
        params = layout.encode_local_configuration(config)
        self._call(Method.UPDATE_LOCAL_CONFIGURATION, params, self._on_local_configuration)

    def unregister(self) -> None:
        """Unregister the connection; `Unregistered` will follow."""
        self._want(State.REGISTERED, "unregister")
        self.state = State.UNREGISTERING
        self._call(Method.UNREGISTER_CONNECTION, EMPTY, self._on_unregistered)

    def close(self) -> None:
        """Finish open questions, and queue the last messages."""
        if self.state in (State.CLOSED, State.IDLE):
            self.state = State.CLOSED
            return
        for question_id in list(self._questions):
            self._send(rpc.Finish(question_id, releases_results=True))
        self._questions.clear()
        if self._cap_id is not None:
            self._send(rpc.Release(self._cap_id, 1))
        self._send(rpc.Abort(Failure(_LAST_WORDS)))
        self.state = State.CLOSED

    def lose(self) -> None:
        """The stream is gone, so no answers will come."""
        # They refer to this object, which otherwise only the garbage collector would free.
        self._questions.clear()

    def data_to_send(self) -> bytes:
        """Take all queued output; may be empty."""
        output, self._output = b"".join(self._output), []
        return output

    # -- what the edge says ------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> list[ControlEvent]:
        events: list[ControlEvent] = []
        if self._is_over:
            return events
        try:
            for root in self._reader.receive(data):
                event = self._on_message(rpc.decode(root))
                if event is not None:
                    events.append(event)
                if self._is_over:
                    break
        except MalformedMessage as error:
            events.append(self._break(f"the edge sent something that is not a message: {error}"))
        return events

    def receive_end(self) -> list[ControlEvent]:
        """The edge has ended or reset its side of the stream."""
        if self._is_over:
            return []
        where = "inside a message" if self._reader.has_part else "which it must not"
        return [self._break(f"the edge ended the control stream, {where}", FailureCause.LOST)]

    def _on_message(self, message: rpc.Message) -> ControlEvent | None:
        if isinstance(message, rpc.Return):
            return self._on_return(message)
        if isinstance(message, rpc.Abort):
            reason = f"the edge aborted the control stream: {_shown(message.failure.reason)}"
            return self._break(reason, FailureCause.LOST)
        self._unasked += 1
        if self._unasked > MAX_UNASKED:
            return self._break(f"{self._unasked} unsolicited messages, want at most {MAX_UNASKED}")
        if isinstance(message, rpc.Bootstrap | rpc.Call):
            failure = Failure("a connector offers no capabilities here", rpc.FailureKind.UNIMPLEMENTED)
            self._send(rpc.Return(message.question_id, failure))
        elif isinstance(message, rpc.Foreign):
            self._send(rpc.Unimplemented(message.message))
        # Ignored: Finish and Release concern what we never gave out, Unimplemented what the edge need not know.
        return None

    def _on_return(self, message: rpc.Return) -> ControlEvent | None:
        answered = self._questions.pop(message.answer_id, None)
        if answered is None:
            return self._break(f"the edge answered question {message.answer_id}, which is not open")
        outcome = message.outcome or Failure("the call was not carried out")
        # Only the bootstrap's capability is wanted; results without capabilities have none to release.
        is_bootstrap = message.answer_id == self._bootstrap_id and self._cap_id is None
        releases = isinstance(outcome, Failure) or bool(outcome.caps and not is_bootstrap)
        self._send(rpc.Finish(message.answer_id, releases_results=releases))
        self._free_ids.append(message.answer_id)
        return answered(outcome)

    def _on_bootstrap(self, outcome: Outcome) -> ControlEvent | None:
        if isinstance(outcome, Failure):
            return self._break(f"no access to registration: {_shown(outcome.reason)}", FailureCause.EXCEPTION)
        self._cap_id = rpc.imported_cap(outcome)
        return None

    def _on_registration(self, outcome: Outcome) -> ControlEvent:
        if isinstance(outcome, Failure):
            return self._fail(FailureCause.EXCEPTION, _shown(outcome.reason))
        try:
            response = layout.decode_response(outcome.content)
        except MalformedMessage as error:
            return self._fail(FailureCause.MALFORMED, f"the answer to the registration is malformed: {error}")
        if isinstance(response, ConnectionDetails):
            self.state = State.REGISTERED
            return Registered(msgspec.structs.replace(response, location=_in_line(response.location)))
        cause = FailureCause.REFUSED
        if response.is_duplicate:
            cause = FailureCause.DUPLICATE
        elif response.is_unauthorized:
            cause = FailureCause.UNAUTHORIZED
        # We retry whether or not the edge recommends it.
        return self._fail(cause, _shown(response.cause), response.retry_after_s)

    def _on_local_configuration(self, outcome: Outcome) -> ControlEvent:
        return LocalConfigurationAnswered(_error_of(outcome))

    def _on_unregistered(self, outcome: Outcome) -> ControlEvent:
        self.state = State.ENDED
        return Unregistered(_error_of(outcome))

    # -- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        return self.state in (State.ENDED, State.CLOSED)

    def _fail(self, cause: FailureCause, error: str, retry_after_s: float = 0.0) -> RegistrationFailed:
        self.state = State.ENDED
        return RegistrationFailed(cause, error, retry_after_s)

    def _break(self, reason: str, cause: FailureCause = FailureCause.MALFORMED) -> ControlEvent:
        """End the stream after a failure. While registering, this fails the registration with `cause`."""
        if self.state is State.REGISTERING:
            return self._fail(cause, reason)
        self.state = State.ENDED
        return ControlStreamBroken(reason)

    def _want(self, state: State, what: str) -> None:
        if self.state is not state:
            raise LocalProtocolError(f"cannot {what} while {self.state.name}, want {state.name}")

    def _call(self, method: Method, params: Value, answered: Answered) -> None:
        target = rpc.PromisedAnswer(self._bootstrap_id) if self._cap_id is None else rpc.ImportedCap(self._cap_id)
        self._send(rpc.Call(self._ask(answered), target, REGISTRATION_SERVER, method, Payload(params)))

    def _ask(self, answered: Answered) -> int:
        if self._free_ids:
            question_id = self._free_ids.pop()
        else:
            question_id, self._next_id = self._next_id, self._next_id + 1
        self._questions[question_id] = answered
        return question_id

    def _send(self, message: rpc.Message) -> None:
        self._output.append(rpc.encode(message))


def _error_of(outcome: Outcome) -> str | None:
    return _shown(outcome.reason) if isinstance(outcome, Failure) else None


def _shown(text: str) -> str:
    """A reason given by the edge, made fit for the log."""
    return _in_line(text) or "no reason given"


def _in_line(text: str) -> str:
    """A text of the edge, truncated and in one line."""
    text = "".join(c if c.isprintable() else " " for c in text[: 2 * MAX_FOREIGN_TEXT]).strip()
    return text[:MAX_FOREIGN_TEXT]
