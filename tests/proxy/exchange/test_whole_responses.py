"""A response that arrives from its backend all at once is passed on like one that arrives in pieces."""

import pytest

from proxy import document
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import DATE, MemoryClient, World, asked, config

EDITED = config('"filters": {"responseHeaderModifier": {"set": [{"name": "Server", "value": "ours"}]}},')
TWICE = config('"retry": {"attempts": 1, "codes": [503], "backoff": "100ms"},')
STICKY = config('"sessionPersistence": {"type": "Cookie", "sessionName": "at"},')


def seen(client: MemoryClient) -> tuple[int, bytes, bool]:
    assert client.head is not None
    return client.head.status_code, client.body, client.is_ended


def test_head_and_body_are_passed_on_and_counted(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.answer_whole(b"hello", 201, [(b"etag", b"1"), DATE, (b"connection", b"keep-alive")])

    assert seen(client) == (201, b"hello", True)
    assert client.head is not None
    assert client.head.fields == [(b"etag", b"1"), DATE]
    assert (world.record.status_code, world.record.response_bytes) == (201, 5)
    assert world.record.address == "192.0.2.10:80"
    assert not client.is_request_stopped


def test_the_rest_is_sent_when_the_client_can_take_more(world: World) -> None:
    client = world.begin(asked())
    client.taken.window_bytes = 2
    world.pool.stream.answer_whole(b"hello")

    assert (seen(client), world.records) == ((200, b"he", False), [])

    client.widen()

    assert seen(client) == (200, b"hello", True)
    assert world.record.response_bytes == 5


def test_a_complete_response_ends_a_request_whose_body_is_unfinished(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    client.send(b"hello")
    stream.answer_whole(b"too much", 413)
    stream.taken.drain()

    assert (seen(client), client.is_request_stopped, client.owed_bytes) == ((413, b"too much", True), True, 0)


def test_the_edits_of_the_rule_are_applied(make_world: MakeWorld) -> None:
    world = make_world(EDITED)
    client = world.begin(asked())
    world.pool.stream.answer_whole(b"hello", 200, [(b"server", b"theirs")])

    assert (seen(client), client.field(b"server")) == ((200, b"hello", True), b"ours")
    assert world.record.response_bytes == 5


def test_a_complete_response_binds_a_session(make_world: MakeWorld) -> None:
    world = make_world(STICKY)
    client = world.begin(asked())
    world.pool.stream.answer_whole(b"hello")

    assert seen(client) == (200, b"hello", True)
    assert (client.field(b"set-cookie") or b"").startswith(b"at=")


def test_a_status_code_of_the_retry_policy_is_retried(make_world: MakeWorld) -> None:
    world = make_world(TWICE)
    client = world.begin(asked())
    world.pool.stream.answer_whole(b"busy", 503)

    assert client.head is None

    world.wait(0.2)
    world.pool.stream.answer_whole(b"hello")

    assert (seen(client), world.record.retries, world.record.response_bytes) == ((200, b"hello", True), 1, 5)


@pytest.mark.parametrize("content", [None, TWICE])
def test_a_status_code_outside_http_is_passed_on(make_world: MakeWorld, content: document.Document | None) -> None:
    world = make_world(content)
    client = world.begin(asked())
    world.pool.stream.answer_whole(b"hello", 600)

    assert seen(client) == (600, b"hello", True)
