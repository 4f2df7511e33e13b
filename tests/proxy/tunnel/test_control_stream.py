"""Registration and all that follows: the connector's end of the control stream against an edge's."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel import capnp, rpc
from proxy.tunnel.controlevents import (
    ControlEvent,
    ControlStreamBroken,
    LocalConfigurationAnswered,
    Registered,
    RegistrationFailed,
    Unregistered,
)
from proxy.tunnel.controlstream import MAX_FOREIGN_TEXT, MAX_UNASKED, ControlStream, State
from proxy.tunnel.errors import LocalProtocolError
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.registration import Refusal, encode_response
from tests.proxy.tunnel import vectors
from tests.support.edge.controlserver import (
    Aborted,
    BootstrapAsked,
    ControlServer,
    Finished,
    LocalConfigurationAsked,
    RegistrationAsked,
    Released,
    UnregisterAsked,
)

CUT = 7


class Site:
    """Both ends; a test decides when bytes are exchanged."""

    def __init__(self, server: ControlServer | None = None) -> None:
        self.stream = ControlStream(vectors.REGISTRATION)
        self.server = server or ControlServer()

    def asked(self) -> list[object]:
        return list(self.server.receive(self.stream.data_to_send()))

    def answered(self) -> list[ControlEvent]:
        return self.stream.receive(self.server.data_to_send())

    def register(self) -> None:
        self.stream.register()
        self.asked()
        self.server.accept(1, vectors.DETAILS)
        assert [Registered(vectors.DETAILS)] == self.answered()
        self.asked()


def test_a_whole_session_is_byte_for_byte_that_of_the_reference() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()

    assert vectors.BOOTSTRAP + vectors.REGISTER == stream.data_to_send()
    assert [] == stream.receive(vectors.BOOTSTRAP_RETURN)
    assert vectors.FINISH_0 == stream.data_to_send()
    assert [Registered(vectors.DETAILS)] == stream.receive(vectors.DETAILS_RETURN)
    assert vectors.FINISH_1 == stream.data_to_send()
    stream.unregister()
    assert vectors.UNREGISTER == stream.data_to_send()
    assert [Unregistered(None)] == stream.receive(vectors.EMPTY_RETURN)
    assert vectors.FINISH_1 == stream.data_to_send()
    stream.close()
    assert stream.data_to_send().endswith(vectors.ABORT)


def test_registering_sends_bootstrap_and_registration() -> None:
    site = Site()
    site.stream.register()

    assert [BootstrapAsked(0), RegistrationAsked(1, vectors.REGISTRATION)] == site.asked()


@pytest.mark.parametrize("is_scattered", [False, True])
def test_answers_may_arrive_byte_by_byte_and_in_segments(is_scattered: bool) -> None:
    site = Site(ControlServer(is_scattered=is_scattered, export_id=77))
    site.stream.register()
    site.asked()
    site.server.accept(1, vectors.DETAILS)
    raw = site.server.data_to_send()

    events = [event for i in range(len(raw)) for event in site.stream.receive(raw[i : i + 1])]
    assert [Registered(vectors.DETAILS)] == events
    site.asked()
    site.stream.unregister()
    assert [UnregisterAsked(1)] == site.asked()


def test_a_registration_may_be_answered_before_the_bootstrap() -> None:
    site = Site(ControlServer(answers_bootstrap=False))
    site.stream.register()
    site.asked()
    site.server.accept(1, vectors.DETAILS)

    assert [Registered(vectors.DETAILS)] == site.answered()
    site.asked()
    site.stream.unregister()
    assert [UnregisterAsked(1)] == site.asked()
    site.server.accept_bootstrap(0)
    assert [] == site.answered()
    assert [Finished(0, releases_results=False)] == site.asked()


@pytest.mark.parametrize(
    ("said", "told"), [("LIS\n\x1b[2J", "LIS  [2J"), ("L" * 60_000, "L" * MAX_FOREIGN_TEXT), ("", "")]
)
def test_a_location_is_made_safe_for_logs_and_labels(said: str, told: str) -> None:
    site = Site()
    site.stream.register()
    site.asked()
    site.server.accept(1, msgspec.structs.replace(vectors.DETAILS, location=said))

    assert [Registered(msgspec.structs.replace(vectors.DETAILS, location=told))] == site.answered()


REFUSALS = [
    (vectors.DUPLICATE, FailureCause.DUPLICATE),
    (Refusal("EDUPCONN", True, 0.0), FailureCause.DUPLICATE),
    (vectors.TRY_LATER, FailureCause.REFUSED),
    (Refusal("Unauthorized: Invalid tunnel secret", False, 0.0), FailureCause.UNAUTHORIZED),
    (Refusal("Tunnel not found", False, 0.0), FailureCause.REFUSED),
]


@pytest.mark.parametrize(("refusal", "cause"), REFUSALS)
def test_a_refusal_has_its_cause_and_the_retry_delay(refusal: Refusal, cause: FailureCause) -> None:
    site = Site()
    site.stream.register()
    site.asked()
    site.server.refuse(1, refusal)

    wanted = RegistrationFailed(cause, refusal.cause, refusal.retry_after_s)
    assert [wanted] == site.answered()
    assert [Finished(0, releases_results=False), Finished(1, releases_results=False)] == site.asked()
    site.stream.close()
    assert [Released(0, 1), Aborted("rpc: shutdown")] == site.asked()


def test_an_exception_fails_the_registration_and_releases_its_results() -> None:
    site = Site()
    site.stream.register()
    site.asked()
    site.server.fail(1, "overloaded")

    assert [RegistrationFailed(FailureCause.EXCEPTION, "overloaded")] == site.answered()
    assert [Finished(0, releases_results=False), Finished(1, releases_results=True)] == site.asked()


def test_a_call_that_the_edge_has_not_carried_out_fails_the_registration() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()
    # Return: answer 1, canceled.
    canceled = capnp.Struct(b"\x01\0\0\0\x01\0\x02\0".ljust(16, b"\0"), (None,))
    answer = capnp.encode(capnp.Struct(b"\x03".ljust(8, b"\0"), (canceled,)))

    (event,) = stream.receive(vectors.BOOTSTRAP_RETURN + answer)

    assert event == RegistrationFailed(FailureCause.EXCEPTION, "the call was not carried out")


def test_after_a_refusal_there_are_no_more_events() -> None:
    site = Site()
    site.stream.register()
    site.asked()
    site.server.refuse(1, Refusal("no", True, 0.0))
    assert [RegistrationFailed] == [type(event) for event in site.answered()]

    assert [] == site.stream.receive_end()
    assert [] == site.stream.receive(rpc.encode(rpc.Abort(rpc.Failure("and away"))))


def test_a_bootstrap_that_fails_fails_the_registration_at_once() -> None:
    site = Site(ControlServer(answers_bootstrap=False))
    site.stream.register()
    site.asked()
    site.server.fail(0, "no")

    error = "no access to registration: no"
    assert [RegistrationFailed(FailureCause.EXCEPTION, error)] == site.answered()
    assert State.ENDED is site.stream.state


CAP = rpc.CapDescriptor(rpc.CapKind.SENDER_HOSTED, 3)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (rpc.Payload(None), "without the capability that was asked for"),
        (rpc.Payload(capnp.Struct(bytes(8), ())), "without the capability that was asked for"),
        (rpc.Payload(capnp.Capability(0)), "capability 0 in a table of 0"),
        (rpc.Payload(capnp.Capability(1), (CAP,)), "capability 1 in a table of 1"),
        (rpc.Payload(capnp.Capability(0), (rpc.CapDescriptor(rpc.CapKind.NONE, 3),)), "capability of kind 0"),
    ],
)
def test_a_bootstrap_without_a_capability_of_the_edge_fails_the_registration(payload: rpc.Payload, reason: str) -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()

    (event,) = stream.receive(rpc.encode(rpc.Return(0, payload)))

    assert isinstance(event, RegistrationFailed)
    assert FailureCause.MALFORMED is event.cause
    assert reason in event.error


def test_unrequested_capabilities_are_released() -> None:
    site = Site()
    site.register()
    site.stream.update_local_configuration(b"{}")
    site.asked()

    site.stream.receive(rpc.encode(rpc.Return(1, rpc.Payload(capnp.Capability(0), (CAP,)))))

    assert [Finished(1, releases_results=True)] == site.asked()


def test_capabilities_are_released_by_a_call_with_the_number_of_the_bootstrap_too() -> None:
    site = Site()
    site.register()
    for _ in range(2):
        site.stream.update_local_configuration(b"{}")
    assert [LocalConfigurationAsked(1, b"{}"), LocalConfigurationAsked(0, b"{}")] == site.asked()

    site.stream.receive(rpc.encode(rpc.Return(0, rpc.Payload(capnp.Capability(0), (CAP,)))))

    assert [Finished(0, releases_results=True)] == site.asked()


def test_capabilities_of_a_registration_that_is_answered_before_the_bootstrap_are_released() -> None:
    site = Site(ControlServer(answers_bootstrap=False))
    site.stream.register()
    site.asked()

    site.stream.receive(rpc.encode(rpc.Return(1, rpc.Payload(encode_response(vectors.DETAILS), (CAP,)))))

    assert State.REGISTERED is site.stream.state
    assert [Finished(1, releases_results=True)] == site.asked()


def test_a_bootstrap_that_fails_after_the_registration_breaks_the_stream() -> None:
    site = Site(ControlServer(answers_bootstrap=False))
    site.stream.register()
    site.asked()
    site.server.accept(1, vectors.DETAILS)
    site.server.fail(0, "no")

    assert [Registered(vectors.DETAILS), ControlStreamBroken("no access to registration: no")] == site.answered()


def test_closing_cancels_a_registration_without_an_answer() -> None:
    site = Site()
    site.stream.register()
    site.asked()
    site.answered()
    site.asked()
    site.stream.close()

    wanted = [Finished(1, releases_results=True), Released(0, 1), Aborted("rpc: shutdown")]
    assert wanted == site.asked()
    site.server.accept(1, vectors.DETAILS)
    assert [] == site.answered()


def test_a_connection_id_of_another_length_fails_the_registration() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()
    stream.receive(vectors.BOOTSTRAP_RETURN)
    details = capnp.Struct(bytes(8), (b"short", None))
    content = capnp.Struct(b"", (capnp.Struct(b"\x01".ljust(8, b"\0"), (details,)),))

    (event,) = stream.receive(rpc.encode(rpc.Return(1, rpc.Payload(content))))
    assert isinstance(event, RegistrationFailed)
    assert FailureCause.MALFORMED is event.cause
    assert event.error == "the answer to the registration is malformed: connection id of 5 bytes, want 16"


def test_local_configuration_is_uploaded_after_registering() -> None:
    site = Site()
    site.register()
    site.stream.update_local_configuration(b"{}")

    assert [LocalConfigurationAsked(1, b"{}")] == site.asked()
    site.server.acknowledge(1)
    assert [LocalConfigurationAnswered(None)] == site.answered()
    assert [Finished(1, releases_results=False)] == site.asked()


def test_a_local_configuration_that_is_refused_leaves_the_connection_registered() -> None:
    site = Site()
    site.register()
    site.stream.update_local_configuration(b"{}")
    site.asked()
    site.server.fail(1, "bad local config")

    assert [LocalConfigurationAnswered("bad local config")] == site.answered()
    assert State.REGISTERED is site.stream.state


def test_a_refusal_without_a_reason_is_reported_as_such() -> None:
    site = Site()
    site.register()
    site.stream.update_local_configuration(b"{}")
    site.asked()
    site.server.fail(1, "\n")

    assert [LocalConfigurationAnswered("no reason given")] == site.answered()


def test_unregistering_ends_though_the_edge_answers_with_an_error() -> None:
    site = Site()
    site.register()
    site.stream.unregister()
    assert [UnregisterAsked(1)] == site.asked()
    site.server.fail(1, "too late")

    assert [Unregistered("too late")] == site.answered()


@pytest.mark.parametrize("is_registered", [False, True])
def test_an_abort_of_the_edge_ends_everything(is_registered: bool) -> None:
    site = Site()
    if is_registered:
        site.register()
    else:
        site.stream.register()
        site.asked()
        site.answered()
    site.server.abort("going\naway" + "x" * 1000)

    (event,) = site.answered()
    if is_registered:
        assert isinstance(event, ControlStreamBroken)
        text = event.reason
    else:
        assert isinstance(event, RegistrationFailed)
        assert FailureCause.LOST is event.cause
        text = event.error
    assert text.startswith("the edge aborted the control stream: going awayxxx")
    assert len(text) < 320


def test_the_end_of_the_stream_is_noticed_at_once() -> None:
    site = Site()
    site.register()

    assert [ControlStreamBroken("the edge ended the control stream, which it must not")] == site.stream.receive_end()
    assert [] == site.stream.receive_end()


def test_the_end_of_the_stream_after_unregistering_is_not_an_error() -> None:
    site = Site()
    site.register()
    site.stream.unregister()
    site.asked()
    site.server.acknowledge(1)

    assert [Unregistered(None)] == site.answered()
    assert [] == site.stream.receive_end()


def test_messages_of_the_edge_after_the_end_are_ignored() -> None:
    site = Site()
    site.register()
    site.stream.unregister()
    site.asked()
    site.server.acknowledge(1)
    site.server.abort("shut down")
    more = rpc.encode(rpc.Bootstrap(8))

    assert [Unregistered(None)] == site.stream.receive(site.server.data_to_send() + more)
    assert [] == site.stream.receive(more)
    assert [Finished(1, releases_results=False)] == site.asked()


def test_an_end_inside_a_message_is_reported_as_such() -> None:
    site = Site()
    site.register()
    site.stream.receive(rpc.encode(rpc.Bootstrap(8))[:CUT])

    assert [ControlStreamBroken("the edge ended the control stream, inside a message")] == site.stream.receive_end()


def test_no_call_is_allowed_while_unregistering() -> None:
    site = Site()
    site.register()
    site.stream.unregister()

    with pytest.raises(LocalProtocolError, match="cannot unregister while UNREGISTERING, want REGISTERED"):
        site.stream.unregister()
    with pytest.raises(LocalProtocolError, match="cannot update the local configuration while UNREGISTERING"):
        site.stream.update_local_configuration(b"{}")


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "an answer to nothing": vectors.DETAILS_RETURN,
    "a call to a target of no kind": capnp.encode(
        capnp.Struct(
            b"\x02".ljust(8, b"\0"), (capnp.Struct(bytes(24), (capnp.Struct(b"\0" * 4 + b"\x09\0\0\0", ()),)),)
        )
    ),
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
def test_garbage_breaks_a_registered_stream_once(raw: bytes) -> None:
    site = Site()
    site.register()

    (event,) = site.stream.receive(raw)
    assert isinstance(event, ControlStreamBroken)
    assert [] == site.stream.receive(raw)


def test_messages_before_garbage_are_processed() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()

    events = stream.receive(vectors.BOOTSTRAP_RETURN + vectors.DETAILS_RETURN + bytes(8) + b"\xff" * 64)
    assert [Registered, ControlStreamBroken] == [type(event) for event in events]


def test_calls_of_the_edge_are_answered_with_unimplemented() -> None:
    site = Site()
    site.register()
    call = rpc.Call(9, rpc.ImportedCap(3), 1, 2, rpc.Payload(None))
    strange = rpc.Foreign(9, capnp.Struct(b"\x09".ljust(8, b"\0"), (b"x",)))
    asked: list[rpc.Message] = [rpc.Bootstrap(8), call, strange, rpc.Finish(8, True), rpc.Release(0, 1)]
    raw = b"".join(map(rpc.encode, asked))

    assert [] == site.stream.receive(raw)
    answers = [rpc.decode(root) for root in capnp.MessageReader().receive(site.stream.data_to_send())]
    failure = rpc.Failure("a connector offers no capabilities here", rpc.FailureKind.UNIMPLEMENTED)
    assert [rpc.Return(8, failure), rpc.Return(9, failure), rpc.Unimplemented(strange.message)] == answers
    assert State.REGISTERED is site.stream.state


def test_a_flood_of_unsolicited_messages_breaks_the_stream() -> None:
    site = Site()
    site.register()

    assert [] == site.stream.receive(rpc.encode(rpc.Bootstrap(1)) * MAX_UNASKED)
    events = site.stream.receive(rpc.encode(rpc.Bootstrap(1)))
    assert [ControlStreamBroken("101 unsolicited messages, want at most 100")] == events


def test_calls_in_the_wrong_state_are_refused() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    with pytest.raises(LocalProtocolError, match="cannot unregister while IDLE, want REGISTERED"):
        stream.unregister()
    stream.register()
    with pytest.raises(LocalProtocolError, match="cannot register while REGISTERING, want IDLE"):
        stream.register()
    with pytest.raises(LocalProtocolError, match="cannot update the local configuration while REGISTERING"):
        stream.update_local_configuration(b"{}")


def test_an_unused_stream_closes_without_sending_anything() -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.close()
    stream.close()

    assert b"" == stream.data_to_send()
    assert State.CLOSED is stream.state


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_events_and_never_raise(raw: bytes, is_registered: bool) -> None:
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()
    if is_registered:
        stream.receive(vectors.BOOTSTRAP_RETURN + vectors.DETAILS_RETURN)
    for start in range(0, len(raw), CUT):
        stream.receive(raw[start : start + CUT])


@given(st.lists(st.sampled_from([*vectors.ALL.values()]), max_size=5), st.data())
def test_damaged_messages_give_events_and_never_raise(messages: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(b"".join(messages))
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    stream = ControlStream(vectors.REGISTRATION)
    stream.register()
    stream.receive(bytes(raw))
    stream.close()
