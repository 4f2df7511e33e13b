"""gRPC calls whose backend resets their stream."""

import pytest

from proxy.h2 import ErrorCode
from proxy.heads import Fields
from tests.proxy.exchange.sides import GRPC, World, asked


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
        (b"99999999n", 0.1, b"4"),
        (b"99999999m", 9.0, b"1"),
        (b"100000000n", 9.0, b"1"),
        (b"1.5S", 9.0, b"1"),
        (b"-1S", 9.0, b"1"),
        (b"5", 9.0, b"1"),
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
