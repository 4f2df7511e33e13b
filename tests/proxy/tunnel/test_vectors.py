"""We write what the provider's own programs write, and read what they write."""

import pytest

from proxy.tunnel import capnp, registration, rpc
from proxy.tunnel.capnp import EMPTY, Capability, MessageReader
from proxy.tunnel.registration import REGISTRATION_SERVER, Method
from proxy.tunnel.rpc import CapDescriptor, CapKind, Failure, ImportedCap, Payload, PromisedAnswer
from tests.proxy.tunnel import vectors
from tests.support.edge.farpointers import encode_scattered

REGISTRATION_PARAMS = Payload(registration.encode_registration(vectors.REGISTRATION))
CASES = [
    (vectors.BOOTSTRAP, rpc.Bootstrap(0)),
    (
        vectors.REGISTER,
        rpc.Call(1, PromisedAnswer(0), REGISTRATION_SERVER, Method.REGISTER_CONNECTION, REGISTRATION_PARAMS),
    ),
    (
        vectors.BOOTSTRAP_RETURN,
        rpc.Return(0, Payload(Capability(0), (CapDescriptor(CapKind.SENDER_HOSTED, 0),))),
    ),
    (vectors.FINISH_0, rpc.Finish(0, releases_results=False)),
    (vectors.FINISH_1, rpc.Finish(1, releases_results=False)),
    (vectors.DETAILS_RETURN, rpc.Return(1, Payload(registration.encode_response(vectors.DETAILS)))),
    (vectors.DUPLICATE_RETURN, rpc.Return(1, Payload(registration.encode_response(vectors.DUPLICATE)))),
    (vectors.TRY_LATER_RETURN, rpc.Return(1, Payload(registration.encode_response(vectors.TRY_LATER)))),
    (
        vectors.UNREGISTER,
        rpc.Call(1, ImportedCap(0), REGISTRATION_SERVER, Method.UNREGISTER_CONNECTION, Payload(EMPTY)),
    ),
    (vectors.EMPTY_RETURN, rpc.Return(1, Payload(EMPTY))),
    (vectors.ABORT, rpc.Abort(Failure("rpc: shutdown"))),
    (vectors.EXCEPTION_RETURN, rpc.Return(1, Failure("bad local config"))),
]


def read(raw: bytes) -> rpc.Message:
    (root,) = MessageReader().receive(raw)
    return rpc.decode(root)


@pytest.mark.parametrize(("raw", "message"), CASES)
def test_messages_are_written_byte_for_byte_as_the_reference_does(raw: bytes, message: rpc.Message) -> None:
    assert raw.hex() == rpc.encode(message).hex()


@pytest.mark.parametrize(("raw", "message"), CASES)
def test_messages_of_the_reference_are_read(raw: bytes, message: rpc.Message) -> None:
    assert message == read(raw)


@pytest.mark.parametrize(("raw", "message"), CASES)
def test_messages_over_many_segments_and_far_pointers_are_read(raw: bytes, message: rpc.Message) -> None:
    (root,) = MessageReader().receive(raw)
    scattered = encode_scattered(root)

    assert scattered[:4] != raw[:4]
    assert message == read(scattered)


def test_all_vectors_are_tried() -> None:
    assert set(vectors.ALL.values()) == {raw for raw, _ in CASES}


def test_the_parameters_of_a_registration_are_read_back() -> None:
    message = read(vectors.REGISTER)
    assert isinstance(message, rpc.Call)

    assert vectors.REGISTRATION == registration.decode_registration(message.params.content)


@pytest.mark.parametrize("response", [vectors.DETAILS, vectors.DUPLICATE, vectors.TRY_LATER])
def test_responses_are_read_back(response: registration.ConnectionDetails | registration.Refusal) -> None:
    assert response == registration.decode_response(registration.encode_response(response))


def test_a_connection_id_of_another_length_is_malformed() -> None:
    details = capnp.Struct(bytes(8), (b"fifteen bytes..", None))
    response = capnp.Struct(b"", (capnp.Struct(b"\x01".ljust(8, b"\0"), (details,)),))

    with pytest.raises(capnp.MalformedMessage, match="connection id of 15 bytes, want 16"):
        registration.decode_response(response)


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (capnp.Struct(b"", (capnp.Struct(b"\x02".ljust(8, b"\0"), (EMPTY,)),)), "answer of kind 2 to a registration"),
        (capnp.PointerList((EMPTY,)), "a PointerList, want a struct"),
    ],
    ids=["another kind", "no struct"],
)
def test_an_answer_of_another_form_is_malformed(response: capnp.Value, problem: str) -> None:
    with pytest.raises(capnp.MalformedMessage, match=problem):
        registration.decode_response(response)


def test_methods_have_the_numbers_that_the_edge_knows_them_by() -> None:
    """Both of our own ends would agree on any other numbers as well."""
    assert {method.name: method.value for method in Method} == {
        "REGISTER_CONNECTION": 0,
        "UNREGISTER_CONNECTION": 1,
        "UPDATE_LOCAL_CONFIGURATION": 2,
    }


def test_a_negative_retry_delay_counts_as_none() -> None:
    error = capnp.Struct((-5).to_bytes(8, "little", signed=True) + b"\x01".ljust(8, b"\0"), (capnp.text("later"),))
    response = capnp.Struct(b"", (capnp.Struct(bytes(8), (error,)),))

    assert registration.Refusal("later", True, 0.0) == registration.decode_response(response)


def test_fields_that_an_older_writer_does_not_know_read_as_their_defaults() -> None:
    """Structs shorter than ours, down to none at all."""
    old = registration.decode_response(capnp.Struct(b"", (capnp.Struct(bytes(8), ()),)))

    assert registration.Refusal("", False, 0.0) == old
    assert old == registration.decode_response(None)


def test_fields_of_a_newer_writer_are_skipped() -> None:
    body = capnp.Struct(
        b"\x01".ljust(24, b"\xff"),
        (vectors.DETAILS.connection_id.bytes, capnp.text("LIS"), capnp.Scalars(5, 1, bytes(8)), capnp.text("new")),
    )
    response = capnp.Struct(b"", (capnp.Struct(b"\x01".ljust(16, b"\0"), (body, None)),))
    sent = rpc.Return(1, Payload(response))
    received = read(rpc.encode(sent))

    assert sent == received
    assert isinstance(received, rpc.Return)
    assert isinstance(received.outcome, Payload)
    assert registration.ConnectionDetails(vectors.DETAILS.connection_id, "LIS", True) == registration.decode_response(
        received.outcome.content
    )


def test_a_secret_is_in_no_repr_of_a_registration() -> None:
    assert "AQIDBA" not in repr(vectors.REGISTRATION)
    assert "<redacted>" in repr(vectors.REGISTRATION)
