"""What ClientHellos of a real TLS client say, whole, in pieces and damaged."""

import itertools
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.doors.clienthello import MAX_BYTES, ClientHello, NotTls, parse_client_hello


def hello_of(server_name: str | None, options: int = 0) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= options
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    output = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), output, server_hostname=server_name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return output.read()


HELLO = hello_of("a.example")


@pytest.mark.parametrize(
    ("server_name", "expected"),
    [("a.example", b"a.example"), ("B.Example", b"b.example"), (None, None), ("127.0.0.1", None)],
)
def test_the_server_name_is_found(server_name: str | None, expected: bytes | None) -> None:
    assert ClientHello(expected, True) == parse_client_hello(hello_of(server_name))


@pytest.mark.parametrize("server_name", ["a.example", None])
def test_a_client_that_takes_no_session_tickets_is_recognised(server_name: str | None) -> None:
    hello = parse_client_hello(hello_of(server_name, ssl.OP_NO_TICKET))

    assert isinstance(hello, ClientHello)
    assert not hello.takes_tickets


def test_each_incomplete_hello_gives_the_number_of_bytes_needed_next() -> None:
    for size_bytes in range(len(HELLO)):
        wanted = parse_client_hello(HELLO[:size_bytes])

        assert isinstance(wanted, int)
        assert size_bytes < wanted <= len(HELLO)


def in_records(message: bytes, size_bytes: int) -> bytes:
    """`message` cut into records of so many bytes."""
    return b"".join(
        b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece
        for piece in (message[start : start + size_bytes] for start in range(0, len(message), size_bytes))
    )


def test_a_hello_in_several_records_is_joined() -> None:
    assert ClientHello(b"a.example", True) == parse_client_hello(in_records(HELLO[5:], 100))


@given(st.lists(st.integers(1, len(HELLO) - 6), max_size=6))
def test_a_hello_cut_into_records_anywhere_reads_the_same(cuts: list[int]) -> None:
    message = HELLO[5:]
    edges = sorted({0, *cuts, len(message)})
    records = b"".join(in_records(message[start:stop], stop - start) for start, stop in itertools.pairwise(edges))

    size_bytes = 0
    while isinstance(found := parse_client_hello(records[:size_bytes]), int):
        assert size_bytes < found <= len(records)
        size_bytes = found
    assert ClientHello(b"a.example", True) == found


@pytest.mark.parametrize("size_bytes", [1, 2, 7, 100])
def test_a_hello_in_tiny_records_is_parsed_only_a_few_times(size_bytes: int) -> None:
    message = b"\x01\0" + (5_000).to_bytes(2, "big") + bytes(5_000)
    records = in_records(message, size_bytes)

    looks, wanted = 0, 1
    while isinstance(found := parse_client_hello(records[:wanted]), int):
        assert wanted < found <= len(records)
        looks, wanted = looks + 1, found
    assert looks < 100


@pytest.mark.parametrize(
    "received",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x04\x02\0\0\0",
    ],
    ids=["HTTP", "an alert", "an empty record", "a ServerHello"],
)
def test_input_that_is_not_a_client_hello_is_refused(received: bytes) -> None:
    with pytest.raises(NotTls):
        parse_client_hello(received)


def test_a_hello_of_endless_length_is_refused() -> None:
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16_380)
    with pytest.raises(NotTls):
        parse_client_hello(record * (MAX_BYTES // len(record) + 1))


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 600))
def test_arbitrary_bytes_are_refused_or_need_more_or_are_a_hello(garbage: bytes, at: int) -> None:
    for received in (garbage, b"\x16\x03\x01" + garbage, HELLO[:at] + garbage):
        try:
            found = parse_client_hello(received)
        except NotTls:
            continue
        assert isinstance(found, ClientHello) or len(received) < found <= MAX_BYTES
