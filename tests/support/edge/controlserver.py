"""The edge's end of the control stream, without I/O: receives questions, answers when told to.

    server = ControlServer()
    for event in server.receive(data): ...
    server.accept(question_id, details)     or refuse, fail, acknowledge
    server.data_to_send()

The bootstrap is answered at once unless `answers_bootstrap` is false. Answers may be split over segments, as the real
edge may do. It is stricter than necessary: anything that a connector should not do raises AssertionError.
"""

from typing import TypeAlias

import msgspec

from proxy.tunnel import capnp, registration, rpc
from proxy.tunnel.registration import ConnectionDetails, Method, Refusal, Registration
from tests.support.edge.farpointers import encode_scattered

EXPORT_ID = 0


class RegistrationAsked(msgspec.Struct, frozen=True):
    question_id: int
    registration: Registration


class UnregisterAsked(msgspec.Struct, frozen=True):
    question_id: int


class LocalConfigurationAsked(msgspec.Struct, frozen=True):
    question_id: int
    config: bytes


class BootstrapAsked(msgspec.Struct, frozen=True):
    question_id: int


class Finished(msgspec.Struct, frozen=True):
    question_id: int
    releases_results: bool


class Released(msgspec.Struct, frozen=True):
    cap_id: int
    reference_count: int


class Aborted(msgspec.Struct, frozen=True):
    reason: str


Asked: TypeAlias = (
    RegistrationAsked | UnregisterAsked | LocalConfigurationAsked | BootstrapAsked | Finished | Released | Aborted
)


class ControlServer:
    def __init__(
        self, *, answers_bootstrap: bool = True, is_scattered: bool = False, export_id: int = EXPORT_ID
    ) -> None:
        self._reader = capnp.MessageReader(16 * 1024 * 1024)
        self._answers_bootstrap = answers_bootstrap
        self._is_scattered = is_scattered
        self._export_id = export_id
        self._open: set[int] = set()
        self._bootstrap_id: int | None = None
        self._output: list[bytes] = []

    def receive(self, data: bytes | memoryview) -> list[Asked]:
        return [self._on_message(rpc.decode(root)) for root in self._reader.receive(data)]

    def data_to_send(self) -> bytes:
        output, self._output = b"".join(self._output), []
        return output

    # -- answers -----------------------------------------------------------------------------------------------------

    def accept_bootstrap(self, question_id: int) -> None:
        cap = rpc.CapDescriptor(rpc.CapKind.SENDER_HOSTED, self._export_id)
        self._send(rpc.Return(question_id, rpc.Payload(capnp.Capability(0), (cap,))))

    def accept(self, question_id: int, details: ConnectionDetails) -> None:
        self._send(rpc.Return(question_id, rpc.Payload(registration.encode_response(details))))

    def refuse(self, question_id: int, refusal: Refusal) -> None:
        self._send(rpc.Return(question_id, rpc.Payload(registration.encode_response(refusal))))

    def acknowledge(self, question_id: int) -> None:
        """Send the empty result."""
        self._send(rpc.Return(question_id, rpc.Payload(capnp.EMPTY)))

    def fail(self, question_id: int, reason: str) -> None:
        self._send(rpc.Return(question_id, rpc.Failure(reason)))

    def abort(self, reason: str) -> None:
        self._send(rpc.Abort(rpc.Failure(reason)))

    def _send(self, message: rpc.Message) -> None:
        encoded = rpc.encode(message)
        if self._is_scattered:
            (root,) = capnp.MessageReader().receive(encoded)
            encoded = encode_scattered(root)
        self._output.append(encoded)

    # -- questions ---------------------------------------------------------------------------------------------------

    def _on_message(self, message: rpc.Message) -> Asked:
        if isinstance(message, rpc.Finish):
            self._open.remove(message.question_id)
            return Finished(message.question_id, message.releases_results)
        if isinstance(message, rpc.Release):
            return Released(message.cap_id, message.reference_count)
        if isinstance(message, rpc.Abort):
            return Aborted(message.failure.reason)
        if isinstance(message, rpc.Bootstrap):
            return self._on_bootstrap(message)
        assert isinstance(message, rpc.Call), f"{type(message).__name__} from a connector"
        return self._on_call(message)

    def _on_bootstrap(self, message: rpc.Bootstrap) -> Asked:
        self._ask(message.question_id)
        self._bootstrap_id = message.question_id
        if self._answers_bootstrap:
            self.accept_bootstrap(message.question_id)
        return BootstrapAsked(message.question_id)

    def _on_call(self, message: rpc.Call) -> Asked:
        self._ask(message.question_id)
        assert message.interface_id == registration.REGISTRATION_SERVER
        if isinstance(message.target, rpc.PromisedAnswer):
            assert message.target.question_id == self._bootstrap_id
        else:
            assert message.target.cap_id == self._export_id
        content = message.params.content
        if message.method_id == Method.REGISTER_CONNECTION:
            return RegistrationAsked(message.question_id, registration.decode_registration(content))
        if message.method_id == Method.UNREGISTER_CONNECTION:
            return UnregisterAsked(message.question_id)
        assert message.method_id == Method.UPDATE_LOCAL_CONFIGURATION
        return LocalConfigurationAsked(message.question_id, registration.decode_local_configuration(content))

    def _ask(self, question_id: int) -> None:
        assert question_id not in self._open, f"question {question_id} is open already"
        self._open.add(question_id)
