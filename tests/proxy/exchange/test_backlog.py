"""Bodies that wait for clients over HTTP/2 or for backends, of all exchanges together."""

import sys

import pytest

from proxy.exchange.relay import MAX_KEPT_BYTES
from proxy.exchange.untaken import FIELD_BYTES, LARGE_HEAD_FIELDS, MAX_UNTAKEN_BYTES
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import World, asked, config

MIB = 1 << 20


def waiting(world: World) -> tuple[int, int, int]:
    backlog = world.services.untaken
    return len(backlog.waiting), backlog.held_bytes, world.loop.unsent.size_bytes


def test_responses_whose_clients_take_nothing_make_room_for_others_within_a_total(make_world: MakeWorld) -> None:
    """A few clients with windows that they do not open would otherwise have the worker killed."""
    world = make_world()
    count, piece = MAX_UNTAKEN_BYTES // MIB, bytes(MIB)
    clients = [world.begin(asked()) for _ in range(count + 1)]
    for stream, client in zip(world.pool.streams, clients, strict=True):
        client.taken.window_bytes = 0
        stream.answer()
        stream.send(piece)
        if client is clients[-2]:
            world.wait()
            assert not any(one.is_reset for one in clients)
            # The first one takes some, so the second has taken nothing for longest.
            clients[0].widen(10)
            clients[0].taken.drain()
    world.wait()

    assert [place for place, client in enumerate(clients) if client.is_reset] == [1]
    assert (world.record.reason, world.record.status_code) == ("client_behind", 200)
    assert world.pool.streams[1].is_cancelled
    assert waiting(world) == (count, MAX_UNTAKEN_BYTES - 10, MAX_UNTAKEN_BYTES - 10)

    del clients[1]
    for client in clients:
        client.widen()
        client.taken.drain()
    assert {len(client.body) for client in clients} == {MIB}
    assert waiting(world) == (0, 0, 0)


def test_whatever_waits_for_a_client_counts_until_it_is_taken_or_the_client_leaves(make_world: MakeWorld) -> None:
    world = make_world()
    taker, leaver, refused = (world.begin(asked()) for _ in range(3))
    for client in taker, leaver, refused:
        client.taken.window_bytes = 3
    whole, halting, failing = world.pool.streams
    whole.answer_whole(b"0123456789")
    halting.answer()
    halting.send(b"01234")
    failing.fail()
    own_bytes = int(refused.field(b"content-length") or b"0") - 3

    assert own_bytes > 0
    assert waiting(world) == (3, 7 + 2 + own_bytes, 7 + 2 + own_bytes)
    taker.widen()
    refused.widen()
    assert waiting(world) == (1, 2, 2)
    halting.send(b"56789")
    assert waiting(world) == (1, 7, 7)
    leaver.leave()
    assert waiting(world) == (0, 0, 0)
    assert (taker.body, leaver.body, halting.owed_bytes) == (b"0123456789", b"012", 3)


def test_a_client_that_takes_all_at_once_is_not_counted(make_world: MakeWorld) -> None:
    world = make_world()
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"01234")
    counted = waiting(world)
    world.pool.stream.send(b"56789", end_stream=True)

    assert counted == waiting(world) == (0, 0, 0)
    assert client.body == b"0123456789"


def test_uploads_whose_backends_take_nothing_make_room_for_others_within_the_same_total(make_world: MakeWorld) -> None:
    world = make_world()
    count, piece = MAX_UNTAKEN_BYTES // MIB, bytes(MIB)
    clients = [world.begin(asked(b"POST"), end_stream=False) for _ in range(count + 1)]
    for stream, client in zip(world.pool.streams, clients, strict=True):
        stream.taken.window_bytes = 0
        client.send(piece)
        if client is clients[-2]:
            world.wait()
            assert not any(one.head for one in clients)
            # The first one is taken a little, so nothing of the second has been taken for longest.
            world.pool.streams[0].widen(10)
            world.pool.streams[0].taken.drain()
    world.wait()

    assert [place for place, client in enumerate(clients) if client.head] == [1]
    assert (world.record.reason, world.record.status_code) == ("backend_behind", 503)
    assert world.pool.streams[1].is_cancelled
    assert not world.pool.streams[1].is_timed_out
    assert (clients[1].owed_bytes, clients[1].is_request_stopped) == (0, True)
    assert waiting(world) == (count, MAX_UNTAKEN_BYTES - 10, MAX_UNTAKEN_BYTES - 10)

    for stream in world.pool.streams:
        if not stream.is_over:
            stream.widen()
            stream.taken.drain()
    assert {client.owed_bytes for client in clients} == {0}
    assert waiting(world) == (0, 0, 0)


def test_large_heads_of_requests_that_are_not_answered_make_room_for_others_within_the_same_total(
    make_world: MakeWorld,
) -> None:
    """Thousands of small fields take four times as much memory as bytes on the wire."""
    world = make_world()
    fields = [(b"x-%d" % number, b"") for number in range(10_000)]
    head_bytes = len(fields) * FIELD_BYTES
    count = MAX_UNTAKEN_BYTES // head_bytes
    ordinary = world.begin(asked(fields=fields[:LARGE_HEAD_FIELDS]))
    clients = [world.begin(asked(fields=fields)) for _ in range(count)]
    world.wait()
    assert not any(client.head for client in clients)
    assert waiting(world) == (count, count * head_bytes, count * head_bytes)

    reader = clients[0]
    reader.taken.window_bytes = 3
    clients.append(world.begin(asked(fields=fields)))
    world.wait()
    assert [place for place, client in enumerate(clients) if client.head] == [0]
    assert (reader.field(b"content-type"), world.pool.streams[1].is_cancelled) == (b"text/plain; charset=utf-8", True)
    # Its answer waits, but its fields are forgotten.
    own_bytes = int(reader.field(b"content-length") or b"0") - 3
    assert waiting(world) == (count + 1, *2 * (count * head_bytes + own_bytes,))

    reader.widen()
    assert (world.record.reason, world.record.status_code) == ("backend_behind", 503)
    for stream in world.pool.streams:
        if not stream.is_over:
            stream.answer(end_stream=True)
    assert all(client.is_ended for client in (ordinary, *clients))
    assert waiting(world) == (0, 0, 0)


def test_a_client_that_takes_its_time_for_an_error_keeps_no_large_head_in_memory(make_world: MakeWorld) -> None:
    world = make_world()
    field = (b"x-many", b"times")
    client = world.begin(asked(fields=[field] * 1_000))
    client.taken.window_bytes = 3
    world.pool.stream.fail()
    world.pool.streams.clear()

    assert not client.is_over
    assert sys.getrefcount(field) < 1_000


def test_an_upload_that_waits_beside_a_response_that_has_begun_is_reset(make_world: MakeWorld) -> None:
    world = make_world()
    stuck = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 0
    stream.answer()
    stuck.taken.window_bytes = 0
    stream.send(b"taken late")
    stuck.widen()
    stuck.send(bytes(MIB))
    other = world.begin(asked(b"POST"), end_stream=False)
    world.pool.stream.taken.window_bytes = 0
    other.send(bytes(MAX_UNTAKEN_BYTES - MIB + 1))
    world.wait()

    assert (stuck.is_reset, other.head, stream.is_cancelled) == (True, None, True)
    assert (world.record.reason, world.record.status_code) == ("backend_behind", 200)


def test_whatever_waits_for_a_backend_counts_until_it_is_taken_or_not_wanted_any_more(make_world: MakeWorld) -> None:
    world = make_world()
    world.pool.opens_at_once = False
    taken, gone, answered, failed = (world.begin(asked(b"POST"), end_stream=False) for _ in range(4))
    taking, left, answering, failing = world.pool.streams
    for client in taken, gone, answered, failed:
        client.send(b"0123456789")
    assert waiting(world) == (4, 40, 40)

    taking.taken.window_bytes = 4
    taking.open()
    assert waiting(world) == (4, 36, 36)
    taking.widen()
    assert waiting(world) == (3, 30, 30)
    gone.leave()
    assert waiting(world) == (2, 20, 20)
    answering.answer()
    answering.send(b"whole", end_stream=True)
    assert waiting(world) == (1, 10, 10)
    failing.fail()
    assert waiting(world) == (0, 0, 0)
    assert (taking.body, answered.body, answered.owed_bytes, failed.owed_bytes) == (b"0123456789", b"whole", 0, 0)
    assert left.is_cancelled


def test_an_upload_that_begins_again_waits_again(make_world: MakeWorld) -> None:
    world = make_world(config('"retry": {"attempts": 1, "codes": [503], "backoff": "100ms"},'))
    client = world.begin(asked(b"PUT"), end_stream=False)
    client.send(b"0123456789", end_stream=True)
    assert waiting(world) == (0, 0, 0)
    world.pool.opens_at_once = False
    world.pool.stream.answer(503)
    assert waiting(world) == (1, 10, 10)
    world.wait(0.2)
    assert (len(world.pool.streams), waiting(world)) == (2, (1, 10, 10))
    world.pool.stream.open()
    assert (world.pool.stream.body, waiting(world)) == (b"0123456789", (0, 0, 0))


def test_no_body_is_kept_for_a_retry_while_all_together_keep_too_much(make_world: MakeWorld) -> None:
    world = make_world(config('"retry": {"attempts": 1, "codes": [503], "backoff": "100ms"},'))
    kept = world.services.kept
    before = world.begin(asked(b"PUT"), end_stream=False)
    before.send(b"0123456789", end_stream=True)
    first = world.pool.stream
    assert kept.size_bytes == 10
    kept.size_bytes += MAX_KEPT_BYTES
    after = world.begin(asked(b"PUT"), end_stream=False)
    after.send(b"0123456789", end_stream=True)
    world.pool.stream.answer(503, end_stream=True)
    first.answer(503)
    world.wait(0.2)
    world.pool.stream.answer(end_stream=True)

    assert [client.head and client.head.status_code for client in (before, after)] == [200, 503]
    assert kept.size_bytes == MAX_KEPT_BYTES


@pytest.mark.parametrize("end", ["answer", "leave", "fail", "grow", "switch"])
def test_what_is_kept_for_a_retry_counts_until_there_can_be_none(end: str, make_world: MakeWorld) -> None:
    world = make_world()
    protocol = b"derp" if end == "switch" else None
    client = world.begin(asked(b"POST", fields=[(b"content-length", b"10")], protocol=protocol), end_stream=False)
    client.send(b"0123456789", end_stream=end == "switch")
    assert world.services.kept.size_bytes == 10
    if end == "answer":
        world.pool.stream.answer()
    elif end == "leave":
        client.leave()
    elif end == "fail":
        world.pool.stream.fail()
    elif end == "grow":
        client.send(bytes(64 * 1024))
    else:
        world.pool.stream.answer(101)
    assert world.services.kept.size_bytes == 0
