"""Settings of both sides (RFC 9113, 6.5). Ours are within the bounds of the protocol, or there is no connection."""

from typing import Any

import pytest

from proxy.h2 import Caches, Connection, RequestReceived, RequestTooLarge, Settings, frames
from tests.proxy.h2.wire import GET, get_head, headers, new_server, sent_frames

BOUNDS = {
    "max_concurrent_streams": (0, 0xFFFFFFFF),
    "stream_window_bytes": (1, 0x7FFFFFFF),
    "max_stream_window_bytes": (1, 0x7FFFFFFF),
    "window_pool_bytes": (0, 0x7FFFFFFF),
    "connection_window_bytes": (65_535, 0x7FFFFFFF),
    "max_frame_bytes": (16_384, 0xFFFFFF),
    "max_header_list_bytes": (1024, 0x7FFFFFFF),
}


def option(name: str, value: int) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("name", BOUNDS)
def test_settings_are_refused_outside_their_bounds(name: str) -> None:
    lowest, highest = BOUNDS[name]
    for value in (lowest, highest):
        assert value == getattr(Settings(**option(name, value)), name)
    for value in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"HTTP/2 setting {name}={value}, want {lowest} to {highest}"):
            Settings(**option(name, value))


@pytest.mark.parametrize("is_enabled", [True, False], ids=["extended CONNECT", "no extended CONNECT"])
def test_each_side_announces_what_the_other_has_to_know(is_enabled: bool) -> None:
    """A client that did not say so would be sent pushes; servers alone limit streams and take extended CONNECT."""
    settings = Settings(
        max_concurrent_streams=7,
        stream_window_bytes=100_000,
        max_frame_bytes=20_000,
        max_header_list_bytes=5_000,
        is_extended_connect_enabled=is_enabled,
    )
    server, client = (
        frames.decode_settings(sent_frames(side(Caches(), settings).data_to_send())[0].payload)
        for side in (Connection.server, Connection.client)
    )

    sizes = {4: 100_000, 5: 20_000, 6: 5_000}
    assert dict(server) == {1: 0, 3: 7, **sizes, **({8: 1} if is_enabled else {}), 9: 1}
    assert dict(client) == {1: 0, 2: 0, **sizes}


def test_another_limit_of_field_lists_is_announced_once_and_applies_at_once() -> None:
    server = new_server()
    request = headers(1, [*GET, (b"x", b"y" * 100), *[(b"z", b"y" * 100)] * 8])

    for _ in range(2):
        server.limit_field_lists(1024)

    assert frames.encode_settings([(6, 1024)]) == server.data_to_send()
    assert [RequestTooLarge] == [type(event) for event in server.receive(request, 0.0)]
    server.limit_field_lists(65_536)
    assert frames.encode_settings([(6, 65_536)]) == server.data_to_send()
    assert [RequestReceived] == [
        type(event) for event in server.receive(request.replace(b"\0\0\x01", b"\0\0\x03", 1), 0.0)
    ]

    server.terminate()
    server.data_to_send()
    server.limit_field_lists(1024)
    assert not server.has_output


def test_a_client_opens_100_streams_before_it_knows_the_limit_and_any_number_if_there_is_none() -> None:
    client = Connection.client(Caches())
    assert 100 == client.openable

    client.receive(frames.encode_settings([]), 0.0)

    assert client.openable > 1_000_000_000


def test_the_limit_of_streams_stays_in_force_when_other_settings_change() -> None:
    client = Connection.client(Caches())
    client.receive(frames.encode_settings([(3, 7)]), 0.0)
    client.open_stream(get_head())

    client.receive(frames.encode_settings([(4, 100_000)]), 0.0)

    assert 6 == client.openable
