"""How gRPC calls end, and what is counted and logged of that."""

import pytest

from proxy.backend.stream import Reason
from proxy.h2 import ErrorCode
from proxy.heads import Fields
from tests.proxy.exchange.sides import GRPC, MemoryClient, World, asked


def status_after(world: World, error_code: int, waited_s: float = 0.0, fields: Fields | None = None) -> bytes | None:
    client = world.begin(asked(b"POST", fields=[GRPC, *(fields or [])]))
    world.wait(waited_s)
    world.pool.stream.fail(error_code=error_code)
    return client.field(b"grpc-status")


@pytest.mark.parametrize(
    ("error_code", "status"),
    [
        (ErrorCode.NO_ERROR, b"13"),
        (ErrorCode.INTERNAL_ERROR, b"13"),
        (ErrorCode.REFUSED_STREAM, b"14"),
        (ErrorCode.CANCEL, b"1"),
        (ErrorCode.ENHANCE_YOUR_CALM, b"8"),
        (ErrorCode.INADEQUATE_SECURITY, b"7"),
        (0xFACE, b"13"),
    ],
)
def test_a_reset_gives_the_grpc_status_that_it_would_give_without_a_proxy(
    world: World, error_code: int, status: bytes
) -> None:
    assert status_after(world, error_code) == status


@pytest.mark.parametrize(
    ("timeout", "waited_s", "status"),
    [
        (b"1500m", 1.4, b"1"),
        (b"1500m", 1.5, b"4"),
        (b"2S", 1.9, b"1"),
        (b"2S", 2.0, b"4"),
        (b"1M", 59.0, b"1"),
        (b"1M", 60.0, b"4"),
        (b"1H", 9.0, b"1"),
        (b"250000u", 0.3, b"4"),
        (b"99999999n", 0.09, b"1"),
        (b"99999999n", 0.1, b"4"),
        (b"99999999m", 9.0, b"1"),
        (b"100000000n", 9.0, b"1"),
        (b"1.5S", 9.0, b"1"),
        (b"-1S", 9.0, b"1"),
        (b"5", 9.0, b"1"),
        (b"5s", 9.0, b"1"),
        (b"S", 9.0, b"1"),
        (b"", 9.0, b"1"),
    ],
)
def test_a_call_cancelled_by_the_server_after_its_deadline_is_deadline_exceeded(
    world: World, timeout: bytes, waited_s: float, status: bytes
) -> None:
    """Servers cancel such calls, and may do so before the client. Invalid timeouts are ignored."""
    assert status_after(world, ErrorCode.CANCEL, waited_s, [(b"grpc-timeout", timeout)]) == status


def test_a_reset_for_another_reason_after_the_deadline_is_not_deadline_exceeded(world: World) -> None:
    assert status_after(world, ErrorCode.INTERNAL_ERROR, 2.0, [(b"grpc-timeout", b"1S")]) == b"13"


def test_a_reset_before_the_response_to_a_request_other_than_grpc_is_502(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.fail(error_code=ErrorCode.CANCEL)

    assert client.head is not None
    assert (client.head.status_code, client.field(b"grpc-status")) == (502, None)


@pytest.mark.parametrize("error_code", [None, ErrorCode.CANCEL, ErrorCode.INTERNAL_ERROR])
def test_a_response_cancelled_by_the_backend_is_cancelled_for_the_client(world: World, error_code: int | None) -> None:
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.fail(error_code=error_code)

    assert (client.is_reset, client.is_cancelled) == (True, error_code == ErrorCode.CANCEL)


# -- what is counted and logged --------------------------------------------------------------------------------------


def begun(world: World, fields: Fields | None = None) -> MemoryClient:
    return world.begin(asked(b"POST", fields=[GRPC] if fields is None else fields))


def counted(world: World) -> dict[str, int]:
    """For the route, and alike for the backend."""
    (route,), (backend,) = world.stats.routes.values(), world.stats.backends.values()
    assert route.calls == backend.calls
    return route.calls


@pytest.mark.parametrize("trailers_only", [False, True], ids=["trailers", "trailers-only"])
@pytest.mark.parametrize(("status", "is_error"), [(0, False), (5, False), (2, True), (14, True), (16, False)])
def test_a_call_is_counted_and_logged_with_the_status_of_its_backend(
    world: World, status: int, is_error: bool, trailers_only: bool
) -> None:
    begun(world)
    ends = [(b"x-rows", b"9"), (b"grpc-status", b"%d" % status)]
    if trailers_only:
        world.pool.stream.answer(200, [GRPC, *ends], end_stream=True)
    else:
        world.pool.stream.answer(200, [GRPC])
        world.pool.stream.send(b"reply")
        world.pool.stream.end_with(ends)

    assert counted(world) == {str(status): 1}
    assert (world.record.grpc_status, world.record.has_failed) == (status, is_error)


def test_an_answer_of_our_own_is_counted_with_its_status(world: World) -> None:
    begun(world)
    world.pool.stream.fail(Reason.REFUSED)

    assert counted(world) == {"14": 1}
    assert (world.record.grpc_status, world.record.reason) == (14, "refused")


def test_a_call_that_breaks_off_or_whose_client_leaves_is_counted_without_a_status(world: World) -> None:
    begun(world)
    world.pool.stream.answer(200, [GRPC])
    world.pool.stream.fail()
    begun(world).leave()

    assert counted(world) == {"none": 2}
    assert [record.grpc_status for record in world.records] == [None, None]


def test_a_client_that_leaves_before_it_has_taken_the_status_does_not_count_twice(world: World) -> None:
    client = begun(world)
    client.taken.window_bytes = 1
    world.pool.stream.answer(200, [GRPC])
    world.pool.stream.send(b"reply")
    world.pool.stream.end_with([(b"grpc-status", b"0")])
    client.leave()

    assert counted(world) == {"0": 1}


@pytest.mark.parametrize(("status", "label"), [(b"17", "(other)"), (b"999", "(other)"), (b"016", "16")])
def test_statuses_that_grpc_does_not_define_are_counted_together(world: World, status: bytes, label: str) -> None:
    begun(world)
    world.pool.stream.answer(200, [GRPC])
    world.pool.stream.end_with([(b"grpc-status", status)])

    assert counted(world) == {label: 1}


@pytest.mark.parametrize("status", [b"", b"OK", b"-1", b"1.0", b"0" * 4, b"9" * 5000])
def test_a_status_that_is_no_number_is_none(world: World, status: bytes) -> None:
    begun(world)
    world.pool.stream.answer(200, [GRPC])
    world.pool.stream.end_with([(b"grpc-status", status)])

    assert counted(world) == {}
    assert world.record.grpc_status is None


@pytest.mark.parametrize("fields", [[], [(b"content-type", b"application/grpc-web")]])
def test_what_is_no_grpc_call_is_not_counted_as_one(world: World, fields: Fields) -> None:
    begun(world, fields)
    world.pool.stream.answer(200)
    world.pool.stream.end_with([(b"grpc-status", b"14")])
    begun(world, fields).leave()

    assert counted(world) == {}
    assert (world.records[0].grpc_status, world.records[0].has_failed) == (None, False)
