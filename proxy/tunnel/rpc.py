"""The envelope of the control stream: Cap'n Proto RPC messages (rpc.capnp, level 1, without promises of our own).

A question is a bootstrap or a call; the answer is a `Return` with the same id, and a `Finish` ends the question. The
side that asks chooses the id. `Call.target` is a capability that the other side has exported, or the answer to an open
question, so that a call need not wait for the bootstrap before it. Encodes and decodes; messages that are not used here
stay `Foreign`. Pure.
"""

from enum import IntEnum
from struct import Struct as Layout
from typing import Final, TypeAlias

import msgspec

from proxy.tunnel import capnp
from proxy.tunnel.capnp import Capability, MalformedMessage, Struct, StructList, Value

_UNIMPLEMENTED, _ABORT, _CALL, _RETURN, _FINISH, _RELEASE, _BOOTSTRAP = 0, 1, 2, 3, 4, 6, 8
_KNOWN: Final = frozenset((_UNIMPLEMENTED, _ABORT, _CALL, _RETURN, _FINISH, _RELEASE, _BOOTSTRAP))
_RESULTS, _EXCEPTION = 0, 1
_IMPORTED_CAP, _PROMISED_ANSWER = 0, 1

_ID: Final = Layout("<II")
_ID_KIND: Final = Layout("<IHH")
_CALL_DATA: Final = Layout("<IHHQQ")
_RETURN_DATA: Final = Layout("<IHHQ")
_NO_TRANSFORM: Final = StructList(1, 0, ())


class CapKind(IntEnum):
    """How a payload passes a capability."""

    NONE = 0
    SENDER_HOSTED = 1
    SENDER_PROMISE = 2
    RECEIVER_HOSTED = 3
    RECEIVER_ANSWER = 4
    THIRD_PARTY_HOSTED = 5


class FailureKind(IntEnum):
    FAILED = 0
    OVERLOADED = 1
    DISCONNECTED = 2
    UNIMPLEMENTED = 3


class ImportedCap(msgspec.Struct, frozen=True):
    """A capability exported by the other side."""

    cap_id: int


class PromisedAnswer(msgspec.Struct, frozen=True):
    """The future answer to a question."""

    question_id: int


class CapDescriptor(msgspec.Struct, frozen=True):
    kind: int
    """A CapKind, or a number that we do not know."""
    cap_id: int


class Payload(msgspec.Struct, frozen=True):
    """Parameters or results."""

    content: Value | None
    caps: tuple[CapDescriptor, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """An exception."""

    reason: str
    kind: int = FailureKind.FAILED
    """A FailureKind, or a number that we do not know."""


class Bootstrap(msgspec.Struct, frozen=True):
    question_id: int


class Call(msgspec.Struct, frozen=True):
    question_id: int
    target: ImportedCap | PromisedAnswer
    interface_id: int
    method_id: int
    params: Payload


class Return(msgspec.Struct, frozen=True):
    answer_id: int
    outcome: Payload | Failure | None
    """None: an outcome of a kind that we never ask for, such as canceled."""


class Finish(msgspec.Struct, frozen=True):
    question_id: int
    releases_results: bool
    """The capabilities in the results are not wanted."""


class Release(msgspec.Struct, frozen=True):
    cap_id: int
    reference_count: int


class Abort(msgspec.Struct, frozen=True):
    """The sender gives up the connection."""

    failure: Failure


class Unimplemented(msgspec.Struct, frozen=True):
    """The reply to a message that the receiver does not know."""

    message: Struct


class Foreign(msgspec.Struct, frozen=True):
    """A message of any other kind."""

    tag: int
    message: Struct


Message: TypeAlias = Bootstrap | Call | Return | Finish | Release | Abort | Unimplemented | Foreign


def encode(message: Message) -> bytes:
    """The framed message, as sent on the wire."""
    if isinstance(message, Foreign):
        return capnp.encode(message.message)
    tag, body = _body(message)
    return capnp.encode(Struct(tag.to_bytes(8, "little"), (body,)))


def _body(message: Bootstrap | Call | Return | Finish | Release | Abort | Unimplemented) -> tuple[int, Struct]:
    if isinstance(message, Bootstrap):
        return _BOOTSTRAP, Struct(_ID.pack(message.question_id, 0), (None,))
    if isinstance(message, Call):
        data = _CALL_DATA.pack(message.question_id, message.method_id, 0, message.interface_id, 0)
        return _CALL, Struct(data, (_encode_target(message.target), _encode_payload(message.params), None))
    if isinstance(message, Return):
        return _RETURN, _encode_return(message)
    if isinstance(message, Finish):
        return _FINISH, Struct(_ID.pack(message.question_id, not message.releases_results), ())
    if isinstance(message, Release):
        return _RELEASE, Struct(_ID.pack(message.cap_id, message.reference_count), ())
    if isinstance(message, Abort):
        return _ABORT, _encode_failure(message.failure)
    return _UNIMPLEMENTED, message.message


def _encode_target(target: ImportedCap | PromisedAnswer) -> Struct:
    if isinstance(target, ImportedCap):
        return Struct(_ID_KIND.pack(target.cap_id, _IMPORTED_CAP, 0), (None,))
    promised = Struct(_ID.pack(target.question_id, 0), (_NO_TRANSFORM,))
    return Struct(_ID_KIND.pack(0, _PROMISED_ANSWER, 0), (promised,))


def _encode_payload(payload: Payload) -> Struct:
    caps = tuple(Struct(_ID.pack(cap.kind, cap.cap_id), (None,)) for cap in payload.caps)
    return Struct(b"", (payload.content, StructList(1, 1, caps)))


def _encode_return(message: Return) -> Struct:
    # 1: releaseParamCaps is false, since parameters carry no capabilities.
    if isinstance(message.outcome, Failure):
        return Struct(_RETURN_DATA.pack(message.answer_id, 1, _EXCEPTION, 0), (_encode_failure(message.outcome),))
    if message.outcome is None:
        raise ValueError("an answer without outcome cannot be sent")
    return Struct(_RETURN_DATA.pack(message.answer_id, 1, _RESULTS, 0), (_encode_payload(message.outcome),))


def _encode_failure(failure: Failure) -> Struct:
    return Struct(_ID_KIND.pack(0, failure.kind, 0), (capnp.text(failure.reason),))


def decode(message: Struct) -> Message:
    """Raises MalformedMessage."""
    tag = message.unsigned(0, 2)
    if tag not in _KNOWN:
        return Foreign(tag, message)
    body = message.struct(0)
    if tag == _RETURN:
        return Return(body.unsigned(0, 4), _decode_outcome(body))
    if tag == _CALL:
        return _decode_call(body)
    if tag == _FINISH:
        return Finish(body.unsigned(0, 4), not body.bit(32))
    if tag == _BOOTSTRAP:
        return Bootstrap(body.unsigned(0, 4))
    if tag == _RELEASE:
        return Release(body.unsigned(0, 4), body.unsigned(4, 4))
    if tag == _ABORT:
        return Abort(_decode_failure(body))
    return Unimplemented(body)


def _decode_call(body: Struct) -> Call:
    return Call(
        body.unsigned(0, 4),
        _decode_target(body.struct(0)),
        body.unsigned(8, 8),
        body.unsigned(4, 2),
        _decode_payload(body.struct(1)),
    )


def _decode_target(target: Struct) -> ImportedCap | PromisedAnswer:
    kind = target.unsigned(4, 2)
    if kind == _IMPORTED_CAP:
        return ImportedCap(target.unsigned(0, 4))
    if kind != _PROMISED_ANSWER:
        raise MalformedMessage(f"call to a target of kind {kind}, want {_IMPORTED_CAP} or {_PROMISED_ANSWER}")
    promised = target.struct(0)
    if promised.structs(0):
        raise MalformedMessage("call to a field of an answer, want the answer itself")
    return PromisedAnswer(promised.unsigned(0, 4))


def _decode_outcome(body: Struct) -> Payload | Failure | None:
    kind = body.unsigned(6, 2)
    if kind == _RESULTS:
        return _decode_payload(body.struct(0))
    return _decode_failure(body.struct(0)) if kind == _EXCEPTION else None


def _decode_payload(payload: Struct) -> Payload:
    caps = (CapDescriptor(cap.unsigned(0, 2), cap.unsigned(4, 4)) for cap in payload.structs(1))
    return Payload(payload.pointer(0), tuple(caps))


def _decode_failure(failure: Struct) -> Failure:
    return Failure(failure.text(0), failure.unsigned(4, 2))


def imported_cap(payload: Payload) -> int:
    """The id of the capability in a payload. Raises MalformedMessage."""
    content = payload.content
    if not isinstance(content, Capability):
        raise MalformedMessage("results without the capability that was asked for")
    if content.index >= len(payload.caps):
        raise MalformedMessage(f"capability {content.index} in a table of {len(payload.caps)}")
    cap = payload.caps[content.index]
    if cap.kind not in (CapKind.SENDER_HOSTED, CapKind.SENDER_PROMISE):
        raise MalformedMessage(f"capability of kind {cap.kind}, want one that the sender hosts")
    return cap.cap_id
