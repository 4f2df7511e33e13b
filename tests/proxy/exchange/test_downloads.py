"""Responses that wait for clients over HTTP/2, of all clients together."""

from proxy.exchange.ending import MAX_DOWNLOADS_BYTES
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import World, asked

MIB = 1 << 20


def waiting(world: World) -> tuple[int, int, int]:
    downloads = world.services.downloads
    return len(downloads.waiting), downloads.held_bytes, world.loop.unsent.size_bytes


def test_responses_whose_clients_take_nothing_make_room_for_others_within_a_total(make_world: MakeWorld) -> None:
    """A few clients with windows that they do not open would otherwise have the worker killed."""
    world = make_world()
    count, piece = MAX_DOWNLOADS_BYTES // MIB, bytes(MIB)
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
    assert waiting(world) == (count, MAX_DOWNLOADS_BYTES - 10, MAX_DOWNLOADS_BYTES - 10)

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
