"""Timeouts of an exchange: 504 before the response has begun, a reset afterwards."""

import pytest

from proxy.document import Document
from proxy.exchange.answers import http_date
from proxy.heads import ResponseHead
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import GRPC, WALL_S, MemoryClient, World, arrived, asked, config

REQUEST = config('"timeouts": {"request": "2s"},')
BACKEND = config('"timeouts": {"request": "10s", "backendRequest": "2s"},')


def status_code_of(client: MemoryClient) -> int | None:
    return None if client.head is None else client.head.status_code


@pytest.mark.parametrize(
    ("content", "reason"), [(REQUEST, "request_timeout"), (BACKEND, "backend_timeout")], ids=["request", "backend"]
)
def test_a_response_that_does_not_begin_in_time_is_answered_504(
    make_world: MakeWorld, content: Document, reason: str
) -> None:
    world = make_world(content)
    client = world.begin(asked())
    world.wait(1.9)

    assert client.head is None

    world.wait(0.2)

    assert (status_code_of(client), world.record.reason) == (504, reason)
    assert client.field(b"date") == http_date(int(WALL_S + 102.1))
    assert (world.pool.stream.is_cancelled, world.pool.stream.is_timed_out) == (True, True)


@pytest.mark.parametrize("content", [REQUEST, BACKEND], ids=["request", "backend"])
def test_a_response_that_does_not_end_in_time_is_reset(make_world: MakeWorld, content: Document) -> None:
    world = make_world(content)
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"slow")
    world.wait(2.1)

    assert (client.is_reset, world.pool.stream.is_cancelled, status_code_of(client)) == (True, True, 200)


@pytest.mark.parametrize("content", [REQUEST, BACKEND], ids=["request", "backend"])
def test_a_slow_client_does_not_count_as_a_timeout_of_the_backend(make_world: MakeWorld, content: Document) -> None:
    world = make_world(content)
    world.begin(asked(b"POST"), end_stream=False).send(b"slow")
    world.wait(2.1)
    slow_sender = world.pool.stream
    world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"slow reader?")
    world.wait(2.1)
    slow_reader = world.pool.stream

    assert (slow_sender.is_cancelled, slow_sender.is_timed_out) == (True, False)
    assert (slow_reader.is_cancelled, slow_reader.is_timed_out) == (True, False)


def test_a_slow_client_is_bounded_by_the_request_timeout_and_not_the_backend_timeout(make_world: MakeWorld) -> None:
    world = make_world(BACKEND)
    client = world.begin(asked())
    client.taken.window_bytes = 1
    world.pool.stream.answer()
    world.pool.stream.send(b"all", end_stream=True)
    world.wait(2.1)

    assert not client.is_over

    world.wait(8.0)

    assert (client.is_reset, world.record.reason) == (True, "request_timeout")


def test_a_client_that_disconnects_does_not_count_as_a_timeout_of_the_backend(world: World) -> None:
    world.begin(asked()).leave()

    assert (world.pool.stream.is_cancelled, world.pool.stream.is_timed_out) == (True, False)


def test_the_record_names_the_address_that_did_not_answer_in_time(make_world: MakeWorld) -> None:
    world = make_world(REQUEST)
    world.begin(asked())
    world.wait(2.1)

    assert (world.record.reason, world.record.address) == ("request_timeout", "192.0.2.10:80")


def test_the_default_request_timeout_applies_to_rules_without_one(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"requestTimeout": "3s"},'))
    client = world.begin(asked())
    world.wait(3.1)

    assert status_code_of(client) == 504


def test_a_rule_may_disable_the_default_request_timeout(make_world: MakeWorld) -> None:
    world = make_world(config('"timeouts": {"request": "0s"},', more='"limits": {"requestTimeout": "3s"},'))
    client = world.begin(asked())
    world.wait(4.0)

    assert client.head is None


def test_an_attempt_that_times_out_is_retried_when_the_policy_has_504(make_world: MakeWorld) -> None:
    world = make_world(
        config('"timeouts": {"backendRequest": "1s"}, "retry": {"attempts": 1, "codes": [504], "backoff": "100ms"},')
    )
    client = world.begin(asked())
    world.wait(1.0)

    assert (world.pool.stream.is_timed_out, client.head) == (True, None)

    world.wait(1.0)

    assert len(world.pool.streams) == 2

    world.wait(1.0)

    assert (status_code_of(client), world.record.reason, world.record.retries) == (504, "backend_timeout", 1)


def test_an_attempt_that_times_out_is_not_retried_when_the_policy_lacks_504(make_world: MakeWorld) -> None:
    world = make_world(
        config('"timeouts": {"backendRequest": "1s"}, "retry": {"attempts": 1, "codes": [503], "backoff": "100ms"},')
    )
    client = world.begin(asked(b"POST"))
    world.wait(1.0)

    assert (status_code_of(client), world.record.retries, len(world.pool.streams)) == (504, 0, 1)


def test_the_request_timeout_covers_all_attempts(make_world: MakeWorld) -> None:
    world = make_world(
        config(
            '"timeouts": {"request": "3s", "backendRequest": "2s"},'
            '"retry": {"attempts": 5, "codes": [504], "backoff": "10ms"},'
        )
    )
    client = world.begin(asked())
    for _ in range(31):
        world.wait(0.1)

    assert (status_code_of(client), world.record.reason, world.record.retries) == (504, "request_timeout", 1)


def test_a_client_that_was_told_to_go_on_keeps_its_request_timeout(make_world: MakeWorld) -> None:
    world = make_world(REQUEST)
    client = world.begin(asked(b"POST", fields=[(b"expect", b"100-continue")]), end_stream=False)
    world.wait(1.1)

    assert (len(client.interims), client.head) == (1, None)

    world.wait(1.0)

    assert (status_code_of(client), world.record.reason) == (504, "request_timeout")


def test_a_grpc_call_that_times_out_is_deadline_exceeded(make_world: MakeWorld) -> None:
    world = make_world(REQUEST)
    client = world.begin(asked(b"POST", fields=[GRPC]), end_stream=False)
    world.wait(2.1)

    assert (status_code_of(client), client.field(b"grpc-status"), client.body) == (200, b"4", b"")


@pytest.mark.parametrize("moves", ["request", "response", "client", "backend"])
def test_any_progress_restarts_the_idle_timeout(make_world: MakeWorld, moves: str) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.answer()
    if moves == "backend":
        stream.taken.window_bytes = 0
        client.send(b"upload")
    for _ in range(5):
        world.wait(8.0)
        if moves == "request":
            client.send(b"x")
        elif moves == "response":
            stream.send(b"x")
        elif moves == "client":
            client.widen()
        else:
            stream.widen(1)

    assert not client.is_over

    world.wait(11.0)

    assert (client.is_reset, world.record.reason) == (True, "idle_timeout")


def test_an_exchange_idle_before_its_response_is_answered_504(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked())
    world.wait(9.0)

    assert client.head is None

    world.wait(2.0)

    assert (status_code_of(client), world.record.reason) == (504, "idle_timeout")


class BrokenClient(MemoryClient):
    """Simulates a bug in the handling of one request."""

    def send_headers(self, head: ResponseHead, end_stream: bool) -> None:
        super().send_headers(head, end_stream)
        raise RuntimeError("asked for")


def begin_broken(world: World) -> BrokenClient:
    client = BrokenClient(arrived())
    client.exchange = world.services.begin(client, asked(), True)
    return client


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_one_idle_request_does_not_keep_others_from_timing_out(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    broken = begin_broken(world)
    others = [world.begin(asked()) for _ in range(20)]
    world.wait(11.0)

    assert broken.head is not None
    assert [status_code_of(client) for client in others] == [504] * 20


@pytest.mark.usefixtures("with_an_error")
def test_idle_timeouts_still_work_after_a_bug_in_one_request(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    broken = begin_broken(world)
    world.wait(5.0)
    later = world.begin(asked())
    world.wait(6.0)
    assert (broken.head is not None, later.head) == (True, None)
    world.wait(5.0)

    assert status_code_of(later) == 504
    assert not world.services.running


def test_our_own_response_is_reset_after_the_idle_timeout_when_nobody_reads_it(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked())
    client.taken.window_bytes = 0
    world.pool.stream.fail()
    world.wait(11.0)

    assert (client.is_reset, not world.services.running) == (True, True)


def test_a_client_that_still_reads_from_the_send_buffer_is_not_idle(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"x")
    for client.progress in range(20):
        world.wait(4.0)

    assert not client.is_over

    world.wait(10.0)

    assert (client.is_reset, world.record.reason) == (True, "idle_timeout")


def test_a_backend_that_still_reads_from_the_send_buffer_is_not_idle(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked(b"PUT"), end_stream=False)
    client.send(b"x")
    for world.pool.stream.progress in range(20):
        world.wait(4.0)

    assert not client.is_over

    world.wait(10.0)

    assert (status_code_of(client), world.record.reason) == (504, "idle_timeout")


def test_a_backend_that_takes_nothing_is_idle_however_often_it_could_take_more(make_world: MakeWorld) -> None:
    """Credit for the whole connection may leave this request as little as before, and come for others for ever."""
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked(b"PUT"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 0
    client.send(b"x")
    for _ in range(2):
        world.wait(4.0)
        stream.widen(0)

    assert not client.is_over

    world.wait(3.0)

    assert (status_code_of(client), world.record.reason) == (504, "idle_timeout")


def test_old_progress_does_not_extend_the_idle_timeout(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "10s"},'))
    client = world.begin(asked())
    stream = world.pool.stream
    stream.answer()
    stream.send(b"x")
    for client.progress in (5000, 1000):
        world.wait(11.0)
        assert not client.is_over
        stream.send(b"x")
    world.wait(11.0)
    assert not client.is_over
    world.wait(5.0)

    assert (client.is_reset, world.record.reason) == (True, "idle_timeout")


def test_a_short_idle_timeout_is_exceeded_by_a_tenth_at_most(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "1s"},'))
    client = world.begin(asked())
    world.pool.stream.answer()
    for _ in range(5):
        world.wait(0.1)
    world.pool.stream.send(b"x")
    for _ in range(9):
        world.wait(0.1)
    assert not client.is_over

    world.wait(0.1)
    world.wait(0.1)

    assert client.is_reset


def test_an_idle_timeout_of_0s_disables_it(make_world: MakeWorld) -> None:
    world = make_world(config(more='"limits": {"streamIdleTimeout": "0s"},'))
    client = world.begin(asked())
    world.wait(1_000_000.0)

    assert not client.is_over


@pytest.mark.parametrize("is_whole", [True, False], ids=["at_once", "in_pieces"])
def test_the_backend_timeout_ends_with_the_last_byte_of_the_backend(make_world: MakeWorld, is_whole: bool) -> None:
    world = make_world(BACKEND)
    client = world.begin(asked())
    client.taken.window_bytes = 4
    if is_whole:
        world.pool.stream.answer_whole(b"for a slow reader")
    else:
        world.pool.stream.answer()
        world.pool.stream.send(b"for a slow reader", end_stream=True)
    world.wait(2.1)
    client.widen()

    assert (client.body, client.is_ended, world.record.reason) == (b"for a slow reader", True, "")


def test_the_request_timeout_lasts_until_the_client_has_the_response(make_world: MakeWorld) -> None:
    world = make_world(BACKEND)
    client = world.begin(asked())
    client.taken.window_bytes = 4
    world.pool.stream.answer_whole(b"for a slow reader")
    world.wait(10.1)

    assert (client.is_reset, world.record.reason) == (True, "request_timeout")
