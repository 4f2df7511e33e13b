"""Whole replies off a socket, in every framing that a controller or something in front of it may use."""

import contextlib
import gzip
import socket
import threading
import time
import tracemalloc

import pytest
from urllib3.exceptions import DecodeError, ProtocolError

from dnswebhook.stores.unifi.replyreader import MAX_FRAMING_BYTES, MAX_HEAD_BYTES, ReplyTooLong, WholeReply, read_reply

OK = b"HTTP/1.1 200 OK\r\n"


def read(*parts: bytes, limit: int = 1000, timeout_s: float = 5.0, ends: bool = True) -> tuple[WholeReply, bool]:
    """Returns what is read when a peer sends `parts`, and then closes its side if `ends`."""
    ours, peer = socket.socketpair()
    ours.settimeout(timeout_s)

    def send() -> None:
        with contextlib.suppress(OSError):  # the reader may have refused before all was sent
            for part in parts:
                peer.sendall(part)
            if ends:
                peer.shutdown(socket.SHUT_WR)

    with ours, peer:
        thread = threading.Thread(target=send)
        thread.start()
        try:
            return read_reply(ours, timeout_s, limit)
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def test_a_reply_with_content_length_leaves_the_connection_usable() -> None:
    reply, goes_on = read(OK + b"Content-Length: 2\r\nX-One: 1\r\nx-one: 2\r\n\r\n[]", ends=False)

    assert (reply.status, reply.data, goes_on) == (200, b"[]", True)
    assert reply.headers.getlist("X-ONE") == ["1", "2"]


def test_a_reply_may_arrive_octet_by_octet() -> None:
    text = OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\nX-Trailer: t\r\n\r\n"
    reply, goes_on = read(*(text[index : index + 1] for index in range(len(text))), ends=False)

    assert (reply.data, goes_on) == (b"[]", True)
    assert "X-Trailer" not in reply.headers


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_body_ends_with_its_head(status: int) -> None:
    reply, goes_on = read(b"HTTP/1.1 %d X\r\n\r\n" % status, ends=False)

    assert (reply.status, reply.data, goes_on) == (status, b"", True)


def test_a_body_of_unknown_length_ends_with_the_connection() -> None:
    reply, goes_on = read(OK + b"\r\n[1", b",2]")

    assert (reply.data, goes_on) == (b"[1,2]", False)


@pytest.mark.parametrize(
    "text",
    [OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n[]", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]"],
    ids=["said so", "HTTP/1.0"],
)
def test_a_connection_that_the_peer_will_close_is_not_used_again(text: bytes) -> None:
    reply, goes_on = read(text, ends=False)

    assert (reply.data, goes_on) == (b"[]", False)


def test_interim_replies_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    reply, goes_on = read(interim + b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", ends=False)

    assert (reply.status, reply.data, goes_on) == (201, b"{}", True)
    assert list(reply.headers) == ["Content-Length"]


def test_octets_after_a_reply_make_the_connection_unusable() -> None:
    reply, goes_on = read(OK + b"Content-Length: 2\r\n\r\n[]HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")

    assert (reply.status, reply.data, goes_on) == (200, b"[]", False)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200",
        OK + b"Content-Le",
        OK + b"Content-Length: 3\r\n\r\n[]",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_an_incomplete_or_invalid_reply_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(text)


@pytest.mark.parametrize(
    ("start", "filler_bytes"),
    [
        (OK + b"X-Filler: ", MAX_HEAD_BYTES),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", MAX_FRAMING_BYTES),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;x=", MAX_FRAMING_BYTES),
    ],
    ids=["head", "trailer", "chunk extension"],
)
def test_head_trailer_and_chunk_extension_have_a_limit(start: bytes, filler_bytes: int) -> None:
    with pytest.raises(ProtocolError, match=str(filler_bytes)):
        read(start, b"y" * (filler_bytes + 300_000), ends=False)


def test_an_announced_length_beyond_the_limit_is_not_waited_for() -> None:
    with pytest.raises(ReplyTooLong):
        read(OK + b"Content-Length: 1001\r\n\r\n", ends=False)


def test_a_body_beyond_the_limit_is_not_kept() -> None:
    with pytest.raises(ReplyTooLong):
        read(OK + b"\r\n" + b" " * 1001)


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_in_large_ones() -> None:
    chunks = b"2\r\nxy\r\n" * 500_000
    tracemalloc.start()
    try:
        reply, _ = read(
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", limit=2_000_000, timeout_s=60.0
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(reply.data) == 1_000_000
    assert peak_bytes < 8 * len(reply.data) + len(chunks)


def test_a_compressed_body_is_unpacked_although_none_was_requested() -> None:
    packed = gzip.compress(b"[1, 2]")
    reply, _ = read(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)

    assert reply.data == b"[1, 2]"


def test_a_compressed_body_counts_as_what_it_unpacks_to() -> None:
    packed = gzip.compress(b" " * 100_000)
    with pytest.raises(ReplyTooLong):
        read(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)


def test_a_body_that_does_not_match_its_content_encoding_is_refused() -> None:
    with pytest.raises(DecodeError):
        read(OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]")


def test_the_timeout_covers_the_whole_reply() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        read(OK, b"Content-Length: 2\r\n\r\n[", timeout_s=0.2, ends=False)

    assert time.monotonic() - began < 5
