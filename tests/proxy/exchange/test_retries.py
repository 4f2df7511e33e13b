"""When an attempt is retried, where, with what body; and what the client gets when it is not."""

import pytest

from proxy.backend.stream import Reason
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import MemoryClient, World, asked, config

TWICE = config('"retry": {"attempts": 2, "codes": [503, 504], "backoff": "100ms"},')
TWO_ADDRESSES = config(backend='{"addresses": ["192.0.2.10:80", "192.0.2.11:80"]}')


def status_code_of(client: MemoryClient) -> int | None:
    return None if client.head is None else client.head.status_code


def test_a_status_code_of_the_policy_is_retried_after_a_backoff(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"order", end_stream=True)
    world.pool.stream.answer(503)

    assert (len(world.pool.streams), world.pool.stream.is_cancelled, client.head) == (1, True, None)

    world.wait(0.09)

    assert len(world.pool.streams) == 1

    world.wait(0.2)

    assert (len(world.pool.streams), world.pool.stream.body) == (2, b"order")
    assert world.pool.stream.wish.avoid == ("192.0.2.10:80",)

    world.pool.stream.answer(201, end_stream=True)

    assert (status_code_of(client), world.record.retries, world.stats.route("shop").retries) == (201, 1, 1)
    assert client.owed_bytes == 0


def test_after_the_last_attempt_the_last_response_is_passed_on(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    for _ in range(3):
        world.pool.stream.answer(503, [(b"try", b"%d" % len(world.pool.streams))], end_stream=True)
        world.wait(2.0)

    assert (status_code_of(client), client.field(b"try"), world.record.retries) == (503, b"3", 2)
    assert world.record.reason == ""


def test_other_status_codes_are_passed_on(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.answer(500, end_stream=True)

    assert status_code_of(client) == 500


@pytest.mark.parametrize(
    "reason", [Reason.REFUSED, Reason.UNREACHABLE, Reason.CONNECT_TIMEOUT, Reason.TLS, Reason.RESOLVE]
)
def test_connection_failures_are_retried_by_policy(make_world: MakeWorld, reason: Reason) -> None:
    world = make_world(TWICE)
    client = world.begin(asked(b"POST"))
    world.pool.stream.fail(reason, is_unprocessed=True)
    world.wait(1.0)
    world.pool.stream.answer(200, end_stream=True)

    assert (status_code_of(client), world.record.retries) == (200, 1)


@pytest.mark.parametrize("reason", [Reason.OVERLOAD, Reason.UNHEALTHY, Reason.STOPPING])
def test_failures_that_would_repeat_at_once_are_not_retried(make_world: MakeWorld, reason: Reason) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.fail(reason, is_unprocessed=True)

    assert status_code_of(client) == 503


@pytest.mark.parametrize("reason", [Reason.PROTOCOL, Reason.FIELDS_TOO_LARGE])
def test_an_invalid_response_is_not_retried(make_world: MakeWorld, reason: Reason) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.fail(reason)

    assert status_code_of(client) == 502


def test_connection_errors_are_not_retried_when_the_policy_forbids_it(make_world: MakeWorld) -> None:
    world = make_world(config('"retry": {"attempts": 2, "connectionErrors": false},'))
    client = world.begin(asked())
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)

    assert status_code_of(client) == 502


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"])
def test_an_idempotent_request_on_a_broken_kept_connection_is_retried_once(world: World, method: bytes) -> None:
    client = world.begin(asked(method))
    world.pool.stream.fail(was_reused=True)

    assert (len(world.pool.streams), client.head) == (1, None)

    world.wait()

    assert world.pool.stream.wish.needs_new_connection
    assert world.pool.stream.wish.avoid == ()

    world.pool.stream.fail(was_reused=True)

    assert (status_code_of(client), len(world.pool.streams), world.record.retries) == (502, 2, 1)


@pytest.mark.parametrize("method", [b"POST", b"PATCH"])
def test_a_non_idempotent_request_on_a_broken_kept_connection_is_not_retried(world: World, method: bytes) -> None:
    client = world.begin(asked(method))
    world.pool.stream.fail(was_reused=True)

    assert status_code_of(client) == 502


@pytest.mark.parametrize("was_reused", [True, False], ids=["by a GOAWAY", "by a reset"])
def test_any_request_that_was_not_processed_is_retried(world: World, was_reused: bool) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"order")
    world.pool.stream.fail(was_reused=was_reused, is_unprocessed=True)
    client.send(b"ed", end_stream=True)
    world.wait()

    assert (world.pool.stream.body, world.pool.stream.is_request_ended) == (b"ordered", True)
    assert world.pool.stream.wish.avoid == ()
    assert world.pool.stream.wish.needs_new_connection is was_reused


def test_a_request_that_was_not_processed_is_sent_again_before_any_that_has_yet_to_arrive(world: World) -> None:
    """Otherwise a backend that processes few requests per connection could leave it out each time."""
    world.begin(asked(b"POST"))
    world.loop.deadline(lambda: world.pool.stream.fail(is_unprocessed=True)).set(world.loop.now_s)
    world.wait()

    assert len(world.pool.streams) == 2


def test_a_request_repeatedly_not_processed_is_not_retried_forever(world: World) -> None:
    client = world.begin(asked(b"POST"))
    for tried in range(1, 5):
        assert (len(world.pool.streams), client.head) == (tried, None)
        world.pool.stream.fail(is_unprocessed=True)
        world.wait()

    assert (status_code_of(client), len(world.pool.streams), world.record.retries) == (502, 4, 3)


def test_a_request_on_a_broken_new_connection_is_not_retried_without_a_policy(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.fail()

    assert status_code_of(client) == 502


@pytest.mark.parametrize(
    "reason", [Reason.REFUSED, Reason.UNREACHABLE, Reason.CONNECT_TIMEOUT, Reason.TLS, Reason.RESOLVE]
)
def test_an_unreachable_address_is_avoided_when_there_is_another(make_world: MakeWorld, reason: Reason) -> None:
    world = make_world(TWO_ADDRESSES)
    world.pool.addresses = ["192.0.2.10:80", "192.0.2.11:80"]
    client = world.begin(asked(b"POST"))
    world.pool.stream.fail(reason, is_unprocessed=True)
    world.wait()

    assert world.pool.stream.address == "192.0.2.11:80"

    world.pool.stream.answer(200, end_stream=True)

    assert (status_code_of(client), world.record.address) == (200, "192.0.2.11:80")


@pytest.mark.parametrize("is_stale_first", [True, False], ids=["then nobody listens", "then another broke too"])
def test_a_broken_kept_connection_does_not_use_up_the_retry_at_another_address(
    make_world: MakeWorld, is_stale_first: bool
) -> None:
    """A backend that stops closes its kept connections and no longer listens."""
    world = make_world(TWO_ADDRESSES)
    world.pool.addresses = ["192.0.2.10:80", "192.0.2.11:80"]
    client = world.begin(asked())
    for is_stale in (is_stale_first, not is_stale_first):
        if is_stale:
            world.pool.stream.fail(was_reused=True)
        else:
            world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
        assert client.head is None
        world.wait()

    assert world.pool.stream.wish.avoid == ("192.0.2.10:80",)
    assert world.pool.stream.wish.needs_new_connection

    world.pool.stream.answer(200, end_stream=True)

    assert (status_code_of(client), world.record.retries) == (200, 2)


@pytest.mark.parametrize("is_stale", [True, False])
def test_a_broken_kept_connection_and_an_unreachable_address_are_each_retried_once(
    make_world: MakeWorld, is_stale: bool
) -> None:
    world = make_world(TWO_ADDRESSES)
    client = world.begin(asked())
    world.pool.stream.fail(was_reused=True)
    world.wait()
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait()
    if is_stale:
        world.pool.stream.fail(was_reused=True)
    else:
        world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)

    assert (status_code_of(client), world.record.retries) == (502, 2)


def test_an_address_whose_connection_broke_while_connecting_is_avoided_once(make_world: MakeWorld) -> None:
    world = make_world(TWO_ADDRESSES)
    world.pool.addresses = ["192.0.2.10:80", "192.0.2.11:80"]
    client = world.begin(asked(b"POST"))
    world.pool.stream.fail(is_unprocessed=True, was_connecting=True)
    world.wait()

    assert world.pool.stream.wish.avoid == ("192.0.2.10:80",)

    world.pool.stream.fail(is_unprocessed=True, was_connecting=True)

    assert (status_code_of(client), world.record.retries) == (502, 1)


def test_an_address_that_does_not_speak_the_protocol_of_its_backend_is_no_reason_to_try_another(
    make_world: MakeWorld,
) -> None:
    world = make_world(TWO_ADDRESSES)
    client = world.begin(asked())
    world.pool.stream.fail(Reason.PROTOCOL, is_unprocessed=True, was_connecting=True)

    assert (status_code_of(client), len(world.pool.streams)) == (502, 1)


def test_the_record_names_the_last_address_that_was_tried_although_the_retry_was_refused(
    make_world: MakeWorld,
) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait(1.0)
    world.pool.stream.address = ""
    world.pool.stream.fail(Reason.UNHEALTHY, is_unprocessed=True)

    assert (status_code_of(client), world.record.reason) == (503, "unhealthy")
    assert world.record.address == "192.0.2.10:80"


def test_nothing_is_retried_once_a_response_has_begun(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.fail(was_reused=True)
    world.wait(5.0)

    assert (client.is_reset, len(world.pool.streams)) == (True, 1)


@pytest.mark.parametrize(("size_bytes", "status_code"), [(64 * 1024, None), (64 * 1024 + 1, 502)])
def test_a_body_is_kept_for_a_retry_up_to_a_limit(world: World, size_bytes: int, status_code: int | None) -> None:
    client = world.begin(asked(b"PUT"), end_stream=False)
    client.send(b"x" * size_bytes)
    world.pool.stream.taken.drain()
    world.pool.stream.fail(was_reused=True)
    world.wait()

    assert status_code_of(client) == status_code


def test_a_large_body_of_which_nothing_was_sent_can_still_be_retried(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    world.pool.opens_at_once = False
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"x" * 100_000, end_stream=True)
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    world.wait(1.0)
    world.pool.stream.open()

    assert (len(world.pool.stream.body), client.owed_bytes) == (100_000, 100_000)


def test_a_response_to_a_body_too_large_to_retry_is_passed_on_at_once(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"x" * 100_000, end_stream=True)
    world.pool.stream.answer(503, end_stream=True)

    assert (status_code_of(client), client.is_ended, world.record.retries) == (503, True, 0)


def test_a_policy_may_raise_the_limit_for_kept_bodies(make_world: MakeWorld) -> None:
    world = make_world(config('"retry": {"attempts": 1, "codes": [500], "maxBodyBytes": 200000},'))
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"x" * 150_000, end_stream=True)
    world.pool.stream.answer(500, end_stream=True)
    world.wait(1.0)

    assert len(world.pool.stream.body) == 150_000


def test_credit_is_returned_once_for_bytes_that_are_sent_twice(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked(b"POST"), end_stream=False)
    world.pool.stream.taken.window_bytes = 3
    client.send(b"hello", end_stream=False)
    world.pool.stream.fail()

    assert client.owed_bytes == 2

    world.wait(1.0)
    client.send(b" world", end_stream=True)

    assert world.pool.stream.body == b"hello world"

    world.pool.stream.taken.drain()

    assert client.owed_bytes == 0


def test_a_failure_within_a_call_leaves_the_body_complete_for_the_retry(world: World) -> None:
    client = world.begin(asked(b"PUT"), end_stream=False)
    stream = world.pool.stream
    stream.surprise = lambda: stream.fail(was_reused=True)
    client.send(b"hello", end_stream=True)
    world.wait()

    assert (world.pool.stream.body, world.pool.stream.is_request_ended, client.owed_bytes) == (b"hello", True, 0)


def test_trailers_are_sent_again_on_a_retry(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"message")
    client.exchange.on_request_trailers([(b"checksum", b"1")])
    world.pool.stream.answer(503, end_stream=True)
    world.wait(1.0)

    assert (world.pool.stream.body, world.pool.stream.trailers) == (b"message", [(b"checksum", b"1")])


def test_a_client_that_disconnects_during_the_backoff_ends_the_retry(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.answer(503)
    client.leave()
    world.wait(5.0)

    assert (len(world.pool.streams), world.record.reason, not world.services.running) == (1, "client_gone", True)


def test_a_client_that_disconnects_before_an_immediate_retry_ends_it(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.fail(is_unprocessed=True)
    client.leave()
    world.wait()

    assert (len(world.pool.streams), world.record.reason, not world.services.running) == (1, "client_gone", True)


def test_a_retry_asks_for_the_address_of_the_session_too(make_world: MakeWorld) -> None:
    sticky = config('"sessionPersistence": {"sessionName": "s"},')
    world = make_world(sticky)
    first = world.begin(asked())
    world.pool.stream.answer(200, end_stream=True)
    cookie = (first.field(b"set-cookie") or b"").partition(b";")[0]
    world.begin(asked(fields=[(b"cookie", cookie)]))
    asked_for = world.pool.stream.wish.session_address
    world.pool.stream.fail(was_reused=True)
    world.wait()

    assert len(world.pool.streams) == 3
    assert asked_for is not None
    assert world.pool.stream.wish.session_address == asked_for


def test_no_retry_begins_after_the_request_timeout(make_world: MakeWorld) -> None:
    world = make_world(
        config('"timeouts": {"request": "1s"}, "retry": {"attempts": 3, "codes": [503], "backoff": "2s"},')
    )
    client = world.begin(asked())
    world.pool.stream.answer(503, end_stream=True)

    assert status_code_of(client) == 503
