"""The edge's end of the control stream: registers the connection, or does what a test wants instead.

`ControlServer` implements the protocol; this module decides what to answer, and when.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

from proxy.exchange.relay import NOBODY
from proxy.heads import Fields, ResponseHead
from proxy.loop import Loop
from proxy.tunnel.registration import ConnectionDetails, Refusal, Registration
from tests.support.edge import controlserver as asked
from tests.support.edge.behaviour import Behaviour, Hang
from tests.support.edge.ledger import Ledger, Record
from tests.support.edge.stream import EdgeStream


class Connection(Protocol):
    """What the control stream tells its connection."""

    def on_registered(self, registration: Registration) -> None: ...
    def on_unregistered(self) -> None: ...
    def end(self, why: str) -> None: ...
    def drop(self, why: str) -> None: ...


Verdict = Callable[[Registration], Refusal | None]

REFUSED_LINGER_S = 0.05
"""Delay between a refusal and the end of its connection, so that the connector sees the refusal first."""


class ControlDesk:
    """The owner of the control stream; whoever opens the stream sets `stream`."""

    stream: EdgeStream

    def __init__(
        self,
        loop: Loop,
        connection: Connection,
        behaviour: Behaviour,
        ledger: Ledger,
        record: Record,
        verdict: Verdict,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._behaviour = behaviour
        self._ledger = ledger
        self._record = record
        self._verdict = verdict
        answers_bootstrap = behaviour.hang is not Hang.BEFORE_BOOTSTRAP
        self._server = asked.ControlServer(answers_bootstrap=answers_bootstrap, is_scattered=behaviour.is_scattered)
        self._later = loop.deadline(lambda: None)
        self._is_gone = False
        self._unsent = b""

    def send(self, data: bytes) -> None:
        """Send bytes verbatim, even if they are not a message."""
        if not self._is_gone:
            self._unsent += data
            self.on_writable()

    # -- what comes --------------------------------------------------------------------------------------------------

    def on_interim(self, head: ResponseHead) -> None:
        raise AssertionError(f"status {head.status_code} on the control stream")

    def on_head(self, head: ResponseHead, end_stream: bool) -> None:
        assert head.status_code == 200, f"status {head.status_code} on the control stream, want 200"
        names = {name for name, _ in head.fields}
        assert not any(name.startswith(b"cf-") for name in names), f"fields {names} on the control stream"
        if end_stream:
            self._on_end()

    def on_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self.stream.release(len(data))
        if self._behaviour.hang is not Hang.BEFORE_BOOTSTRAP:
            for question in self._server.receive(bytes(data)):
                self._on_question(question)
            self._flush()
        if end_stream:
            self._on_end()

    def on_trailers(self, fields: Fields) -> None:
        raise AssertionError("trailers on the control stream")

    def on_lost(self, error: str, code: int | None) -> None:
        self._is_gone = True
        self._later.cancel()
        if code is not None:
            self._on_end()

    def _on_end(self) -> None:
        with self._ledger.writing():
            self._record.has_control_ended = True

    # -- questions ---------------------------------------------------------------------------------------------------

    def _on_question(self, question: asked.Asked) -> None:
        if isinstance(question, asked.RegistrationAsked):
            self._on_registration(question)
        elif isinstance(question, asked.UnregisterAsked):
            self._server.acknowledge(question.question_id)
            self._flush()
            self._connection.on_unregistered()
        elif isinstance(question, asked.LocalConfigurationAsked):
            with self._ledger.writing():
                self._record.local_configurations.append(question.config)
            self._server.acknowledge(question.question_id)
        elif isinstance(question, asked.Aborted):
            with self._ledger.writing():
                self._record.abort_reason = question.reason

    def _on_registration(self, question: asked.RegistrationAsked) -> None:
        with self._ledger.writing():
            self._record.registrations.append(question.registration)
        behaviour = self._behaviour
        if behaviour.drops_at_register:
            self._connection.drop("dropped when it asked to be registered")
        elif behaviour.hang is not Hang.BEFORE_REGISTRATION:
            self._later.cancel()
            self._later = self._loop.deadline(lambda: self._answer(question))
            if behaviour.register_delay_s:
                self._later.set(self._loop.now_s + behaviour.register_delay_s)
            else:
                self._answer(question)

    def _answer(self, question: asked.RegistrationAsked) -> None:
        behaviour = self._behaviour
        refusal = behaviour.refusal or self._verdict(question.registration)
        answer: ConnectionDetails | Refusal | str
        if behaviour.exception is not None:
            answer = behaviour.exception
            self._server.fail(question.question_id, answer)
        elif refusal is not None:
            answer = refusal
            self._server.refuse(question.question_id, refusal)
        else:
            answer = ConnectionDetails(uuid.uuid4(), behaviour.location, behaviour.is_remotely_managed)
            self._server.accept(question.question_id, answer)
        self._flush()
        with self._ledger.writing():
            self._record.answers.append(answer)
        if isinstance(answer, ConnectionDetails):
            self._connection.on_registered(question.registration)
        elif behaviour.closes_refused:
            # Later: the connector must see the answer before the end.
            self._later = self._loop.deadline(lambda: self._connection.end("closed after the refusal"))
            self._later.set(self._loop.now_s + REFUSED_LINGER_S)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._is_gone:
            self.send(self._server.data_to_send())

    def on_writable(self) -> None:
        """Only a message or two are ever waiting, so windows do not matter; each piece becomes a frame of its own."""
        piece_bytes = self._behaviour.rpc_piece_bytes or len(self._unsent) or 1
        while self._unsent:
            taken = self.stream.send_data(self._unsent[:piece_bytes], False, NOBODY)
            if not taken:
                return
            self._unsent = self._unsent[taken:]
