"""Mirrors: a copy for another backend that never slows, changes or fails the exchange."""

import pytest

from proxy.backend.stream import Reason
from proxy.exchange.mirrors import (
    BEHIND,
    IDLE_TIMEOUT_S,
    MAX_BEHIND_BYTES,
    MAX_SHARED_BYTES,
    MAX_TOTAL_BYTES,
    OWN_BYTES,
)
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import MemoryClient, MemoryStream, World, asked, config

MIRRORED = config('"filters": {"requestMirrors": [{"backend": {"address": "192.0.2.99:80"}}]},')


def begin(make_world: MakeWorld, *, end_stream: bool = False) -> tuple[World, MemoryClient, MemoryStream, MemoryStream]:
    """World, client, the mirror's stream, the real one."""
    world = make_world(MIRRORED)
    fields = [(b"accept", b"*/*"), (b"expect", b"100-continue")]
    client = world.begin(asked(b"PUT", b"/a?b", fields), end_stream=end_stream)
    mirror, stream = world.pool.streams
    assert (mirror.key, stream.key) == ("http://192.0.2.99:80", "http://192.0.2.10:80")
    return world, client, mirror, stream


def test_head_body_and_trailers_are_copied(make_world: MakeWorld) -> None:
    _, client, mirror, stream = begin(make_world)
    client.send(b"one ")
    client.send(b"two")
    client.exchange.on_request_trailers([(b"checksum", b"1")])

    assert (mirror.head.method, mirror.head.path, mirror.head.authority) == (b"PUT", b"/a?b", b"a.example")
    assert mirror.head.fields == [field for field in stream.head.fields if field[0] != b"expect"]
    assert (mirror.body, mirror.trailers) == (b"one two", [(b"checksum", b"1")])
    assert (stream.body, stream.trailers) == (b"one two", [(b"checksum", b"1")])


def test_a_mirrored_request_has_the_scheme_of_its_mirror(make_world: MakeWorld) -> None:
    tls = '"protocol": "https", "tls": {"serverName": "b.example"}'
    mirrored = f'"filters": {{"requestMirrors": [{{"backend": {{"address": "192.0.2.99:443", {tls}}}}}]}},'
    world = make_world(config(mirrored))
    world.begin(asked())

    assert [b"https", b"http"] == [stream.head.scheme for stream in world.pool.streams]


def test_the_response_of_a_mirror_is_read_and_ignored(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world, end_stream=True)
    mirror.interim(103)
    mirror.answer(500)
    mirror.send(b"nobody reads this")

    assert (client.head, client.interims, mirror.owed_bytes) == (None, [], 0)

    stream.answer(200, end_stream=True)
    mirror.send(b"", end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.body, not world.services.running) == (200, b"", True)


@pytest.mark.parametrize("form", ["head", "whole", "trailers"])
def test_a_mirror_is_over_with_its_response(make_world: MakeWorld, form: str) -> None:
    world, _, mirror, stream = begin(make_world, end_stream=True)
    stream.answer(200, end_stream=True)

    if form == "whole":
        mirror.answer_whole(b"nobody reads this")
    else:
        mirror.answer(204, end_stream=form == "head")
    if form == "trailers":
        mirror.end_with([(b"checksum", b"1")])

    assert not world.services.running


def test_a_mirrored_copy_is_counted_by_what_its_backend_answers_and_not_among_those_that_have_clients(
    make_world: MakeWorld,
) -> None:
    world = make_world(MIRRORED)
    for _ in range(6):
        world.begin(asked())
    answered, odd, whole, failed, late, silent = world.pool.streams[::2]
    answered.answer(503)
    answered.send(b"", end_stream=True)
    odd.answer(999, end_stream=True)
    whole.answer_whole(b"hello", 201)
    failed.fail(Reason.REFUSED)
    late.answer(200)
    late.fail(Reason.RESET)
    for stream in world.pool.streams[1::2]:
        stream.answer(200, end_stream=True)
    world.wait(IDLE_TIMEOUT_S * 1.5)

    assert silent.is_cancelled
    counted = world.stats.backend(answered.key)
    assert (counted.mirrored, sum(counted.responses)) == ([2, 0, 2, 0, 0, 2], 0)
    assert not world.stats.backend("http://192.0.2.10:80").mirrored


def test_a_failing_mirror_does_not_affect_the_exchange(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    mirror.fail(Reason.REFUSED, is_unprocessed=True)
    client.send(b"body", end_stream=True)
    stream.answer(200, end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, world.record.retries, not world.services.running) == (200, 0, True)


def test_a_bug_in_handling_the_response_of_a_mirror_does_not_affect_the_exchange(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world, end_stream=True)
    mirror.have_bug()
    stream.answer_whole(b"hello")

    assert (client.body, client.is_ended, world.record.reason) == (b"hello", True, "")
    assert not world.services.running


def test_a_slow_mirror_is_cancelled_and_does_not_slow_the_exchange(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    mirror.taken.window_bytes = 10
    client.send(b"x" * (MAX_BEHIND_BYTES - 1))
    stream.taken.drain()

    assert (mirror.is_cancelled, client.owed_bytes) == (False, 0)
    assert world.services.mirrors_behind.held_bytes == MAX_BEHIND_BYTES - 1

    client.send(b"xx")
    stream.taken.drain()

    assert (mirror.is_cancelled, client.owed_bytes, len(stream.body)) == (True, 0, MAX_BEHIND_BYTES + 1)

    client.send(b"more", end_stream=True)

    assert stream.is_request_ended
    assert world.stats.backend(mirror.key).failures == {BEHIND: 1}
    assert not world.stats.backend(stream.key).failures
    assert world.services.mirrors_behind.held_bytes == 0


def test_slow_mirrors_share_a_limit_beyond_a_small_allowance_each(make_world: MakeWorld) -> None:
    world = make_world(MIRRORED)
    clients = [world.begin(asked(b"PUT", b"/a"), end_stream=False) for _ in range(6)]
    mirrors, streams = world.pool.streams[::2], world.pool.streams[1::2]
    for mirror in mirrors:
        mirror.taken.window_bytes = 10
    for client in clients[:4]:
        client.send(b"x" * (MAX_SHARED_BYTES // 4))
    clients[4].send(b"x" * OWN_BYTES)

    assert not any(mirror.is_cancelled for mirror in mirrors)

    clients[4].send(b"x")

    assert [mirror.is_cancelled for mirror in mirrors] == [False, False, False, False, True, False]

    clients[5].send(b"x" * OWN_BYTES)
    clients[0].send(b"x")

    assert [mirror.is_cancelled for mirror in mirrors] == [True, False, False, False, True, False]

    for mirror, stream in zip(mirrors, streams, strict=True):
        mirror.widen()
        mirror.taken.drain()
        stream.taken.drain()

    assert world.services.mirrors_behind.held_bytes == 0


def test_mirrors_that_take_nothing_make_room_for_others_within_a_total(make_world: MakeWorld) -> None:
    """A backend that hangs would otherwise hold the allowance of each of its thousands of requests."""
    world = make_world(MIRRORED)
    count = MAX_TOTAL_BYTES // OWN_BYTES
    clients = [world.begin(asked(b"PUT"), end_stream=False) for _ in range(count + 1)]
    mirrors, streams = world.pool.streams[::2], world.pool.streams[1::2]
    for mirror, client in zip(mirrors, clients, strict=True):
        mirror.taken.window_bytes = 0
        client.send(b"x" * OWN_BYTES)
        if mirror is mirrors[-2]:
            assert not any(one.is_cancelled for one in mirrors)
            # The first one moves, so the second has waited longest.
            mirrors[0].widen(10)
            mirrors[0].taken.drain()
            mirrors[0].taken.window_bytes = 0

    assert [place for place, mirror in enumerate(mirrors) if mirror.is_cancelled] == [1]
    assert world.services.mirrors_behind.held_bytes == MAX_TOTAL_BYTES - 10
    assert world.stats.backend(mirrors[1].key).failures == {BEHIND: 1}

    for mirror, stream in zip(mirrors, streams, strict=True):
        mirror.widen()
        mirror.taken.drain()
        stream.taken.drain()

    assert (world.services.mirrors_behind.held_bytes, len(world.services.mirrors_behind.waiting)) == (0, 0)
    assert [len(mirror.body) for mirror in mirrors[2:]] == [OWN_BYTES] * (count - 1)


def test_a_mirror_that_keeps_pace_gets_bodies_of_any_size(make_world: MakeWorld) -> None:
    _, client, mirror, _ = begin(make_world)
    for _ in range(10):
        client.send(b"x" * 100_000)
        mirror.taken.drain()
    client.send(b"", end_stream=True)

    assert (len(mirror.body), mirror.is_request_ended, mirror.is_cancelled) == (1_000_000, True, False)


def test_a_mirror_that_catches_up_gets_the_rest(make_world: MakeWorld) -> None:
    world = make_world(MIRRORED)
    world.pool.opens_at_once = False
    client = world.begin(asked(b"PUT"), end_stream=False)
    mirror, _ = world.pool.streams
    client.send(b"hello", end_stream=True)
    mirror.taken.window_bytes = 2
    mirror.open()

    assert mirror.body == b"he"

    mirror.widen()

    assert (mirror.body, mirror.is_request_ended) == (b"hello", True)


def test_a_mirror_outlives_its_exchange_when_it_has_the_whole_request(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    client.send(b"body", end_stream=True)
    mirror.taken.drain()
    stream.answer(200, end_stream=True)

    assert (mirror.is_cancelled, not world.services.running) == (False, False)

    world.wait(IDLE_TIMEOUT_S + 2.0)

    assert (mirror.is_cancelled, mirror.is_timed_out, not world.services.running) == (True, True, True)


def test_a_mirror_outlives_its_exchange_when_trailers_ended_the_request(make_world: MakeWorld) -> None:
    _, client, mirror, stream = begin(make_world)
    client.send(b"body")
    client.exchange.on_request_trailers([(b"checksum", b"1")])
    stream.answer(200, end_stream=True)

    assert (mirror.is_cancelled, mirror.trailers) == (False, [(b"checksum", b"1")])


def test_an_endless_response_of_a_mirror_is_cancelled_some_time_after_the_exchange(make_world: MakeWorld) -> None:
    world, _, mirror, stream = begin(make_world, end_stream=True)
    mirror.answer(200)
    stream.answer(200)
    for _ in range(3):
        world.wait(IDLE_TIMEOUT_S * 0.6)
        mirror.send(b"event")
        stream.send(b"event")
    assert not mirror.is_cancelled
    stream.send(b"", end_stream=True)
    for _ in range(3):
        if not mirror.is_cancelled:
            world.wait(IDLE_TIMEOUT_S * 0.6)
            mirror.send(b"event")

    assert (mirror.is_cancelled, mirror.is_timed_out, not world.services.running) == (True, False, True)


def test_a_mirror_with_half_a_request_is_cancelled(make_world: MakeWorld) -> None:
    world, client, mirror, _ = begin(make_world)
    client.send(b"half")
    client.leave()

    assert (mirror.is_cancelled, not world.services.running) == (True, True)


def test_an_early_response_cancels_the_mirror(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    client.send(b"half")
    stream.answer(413, end_stream=True)

    assert (client.is_ended, mirror.is_cancelled, not world.services.running) == (True, True, True)


def test_a_retried_request_is_mirrored_once(make_world: MakeWorld) -> None:
    world, client, _, stream = begin(make_world, end_stream=True)
    stream.fail(was_reused=True)
    world.wait()
    world.pool.stream.answer(200, end_stream=True)

    assert [stream.key for stream in world.pool.streams].count("http://192.0.2.99:80") == 1
    assert client.is_ended


def test_an_upgrade_request_is_not_mirrored(make_world: MakeWorld) -> None:
    world = make_world(MIRRORED)
    world.begin(asked(fields=[(b"sec-websocket-key", b"k")], protocol=b"websocket"))

    assert [stream.key for stream in world.pool.streams] == ["http://192.0.2.10:80"]


def test_a_mirror_that_has_taken_everything_is_not_idle_during_the_exchange(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    for _ in range(3):
        world.wait(IDLE_TIMEOUT_S * 1.5)
        client.send(b"slow")
        mirror.taken.drain()
        stream.taken.drain()
    client.send(b"", end_stream=True)
    world.wait(IDLE_TIMEOUT_S * 1.5)

    assert (mirror.body, mirror.is_request_ended, mirror.is_cancelled) == (b"slowslowslow", True, False)

    stream.answer(200, end_stream=True)
    world.wait(IDLE_TIMEOUT_S * 0.8)

    assert not mirror.is_cancelled

    world.wait(IDLE_TIMEOUT_S * 0.3)

    assert (mirror.is_cancelled, mirror.is_timed_out) == (True, True)


def test_a_mirror_that_takes_nothing_for_long_is_cancelled_and_counted(make_world: MakeWorld) -> None:
    world, client, mirror, stream = begin(make_world)
    world.wait(IDLE_TIMEOUT_S * 1.5)
    mirror.taken.window_bytes = 0
    client.send(b"slow")
    stream.taken.drain()
    world.wait(IDLE_TIMEOUT_S * 0.8)

    assert not mirror.is_cancelled

    # Credit for others over its connection.
    mirror.widen(0)
    world.wait(IDLE_TIMEOUT_S * 0.3)

    assert (mirror.is_cancelled, mirror.is_timed_out) == (True, False)
    assert world.stats.backend(mirror.key).failures == {BEHIND: 1}
    assert world.services.mirrors_behind.held_bytes == 0
