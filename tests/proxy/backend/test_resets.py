"""What the reset of a stream says about its request, case by case. Backends that send them are in `test_h2`."""

import pytest

from proxy.backend.resets import failure_of
from proxy.backend.stream import Failure, Reason
from proxy.h2 import ErrorCode, StreamReset
from proxy.heads import Fields, RequestHead

DEADLINE: Fields = [(b"grpc-timeout", b"1m")]


def after(
    code: int,
    *,
    by_peer: bool = True,
    fields: Fields | None = None,
    are_fields_too_large: bool = False,
    is_answered: bool = False,
    is_draining: bool = False,
) -> Failure:
    reset = StreamReset(1, code, by_peer, "as the test wants", are_fields_too_large)
    request = RequestHead(b"POST", b"http", b"a.example", b"/", fields or [])
    return failure_of(reset, request, "192.0.2.1:80", is_answered=is_answered, is_draining=is_draining)


@pytest.mark.parametrize("code", [*ErrorCode, 0xFACE])
def test_only_two_codes_say_that_the_request_was_not_processed(code: int) -> None:
    failure = after(code)

    assert (failure.reason, failure.error_code) == (Reason.RESET, code)
    assert failure.is_unprocessed is (code in (ErrorCode.REFUSED_STREAM, ErrorCode.HTTP_1_1_REQUIRED))
    assert failure.detail == f"192.0.2.1:80: stream reset with error code {code}: as the test wants"


@pytest.mark.parametrize("code", [*ErrorCode, 0xFACE])
def test_the_same_codes_sent_by_us_say_nothing_like_that(code: int) -> None:
    failure = after(code, by_peer=False, fields=DEADLINE, is_draining=True)

    assert (failure.reason, failure.error_code) == (Reason.PROTOCOL, None)
    assert (failure.is_unprocessed, failure.was_reused, failure.wants_http_1) == (False, False, False)
    assert failure.blames_address


@pytest.mark.parametrize("is_draining", [False, True])
def test_a_stream_left_out_by_a_goaway_does_not_count_against_the_address(is_draining: bool) -> None:
    failure = after(ErrorCode.REFUSED_STREAM, is_draining=is_draining)

    assert (failure.was_reused, failure.blames_address) == (is_draining, not is_draining)


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_request_is_wanted_over_http_1_only_if_it_has_no_response_yet(is_answered: bool) -> None:
    failure = after(ErrorCode.HTTP_1_1_REQUIRED, is_answered=is_answered)

    assert (failure.wants_http_1, failure.is_unprocessed) == (not is_answered, not is_answered)
    assert failure.blames_address is is_answered


@pytest.mark.parametrize(
    ("code", "fields", "blames_address"),
    [
        (ErrorCode.CANCEL, DEADLINE, False),
        (ErrorCode.CANCEL, [], True),
        (ErrorCode.INTERNAL_ERROR, DEADLINE, True),
    ],
    ids=["cancelled call with a deadline", "cancelled without a deadline", "failed call with a deadline"],
)
def test_only_a_cancelled_call_with_a_deadline_is_excused(code: int, fields: Fields, blames_address: bool) -> None:
    assert after(code, fields=fields).blames_address is blames_address


def test_fields_that_are_too_large_for_us_are_no_fault_of_the_address() -> None:
    failure = after(ErrorCode.ENHANCE_YOUR_CALM, by_peer=False, are_fields_too_large=True)

    assert (failure.reason, failure.is_unprocessed) == (Reason.FIELDS_TOO_LARGE, False)
    assert not failure.blames_address
