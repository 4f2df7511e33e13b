"""The client role: responses of backends, whole and in pieces, and requests as backends get them."""

import pytest

from proxy.h1 import Caches, ClientConnection, ConnectionTerminated, Event, Limits, LocalProtocolError
from proxy.h1.caches import MAX_HEAD_BYTES, MAX_HEADS, MAX_LINE_BYTES
from proxy.heads import Fields, RequestHead
from tests.proxy.h1.transcripts import END, Line, receive_in_pieces, three_ways, transcript

OK = b"HTTP/1.1 200 OK\r\n"


def head(method: bytes = b"GET", fields: Fields | None = None, protocol: bytes | None = None) -> RequestHead:
    return RequestHead(method, b"http", b"a.example", b"/p?q", fields or [], protocol)


def asking(method: bytes = b"GET", limits: Limits | None = None) -> ClientConnection:
    client = ClientConnection(Caches(), limits or Limits())
    client.send_request(head(method), True)
    return client


def response(status_code: int, *fields: tuple[bytes, bytes]) -> Line:
    return ("response", status_code, list(fields))


LENGTH_0 = (b"content-length", b"0")
LENGTH_5 = (b"content-length", b"5")
CHUNKED = (b"transfer-encoding", b"chunked")

SAMPLES: dict[str, tuple[bytes, bytes, list[Line], bool]] = {
    "a length": (
        b"GET",
        OK + b"Content-Length: 5\r\n\r\nhello",
        [response(200, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
    "no body": (b"GET", OK + b"Content-Length: 0\r\n\r\n", [response(200, LENGTH_0), END], True),
    "chunks": (
        b"GET",
        OK + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        [response(200, (b"transfer-encoding", b"Chunked")), ("data", b"hello"), END],
        True,
    ),
    "trailers": (
        b"GET",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nGrpc-Status: 0\r\n\r\n",
        [response(200, CHUNKED), ("trailers", [(b"grpc-status", b"0")])],
        True,
    ),
    "trailers that frame or direct": (
        b"GET",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\nX-Sum: 1\r\nCache-Control: no-store\r\n\r\n",
        [response(200, CHUNKED), ("trailers", [(b"x-sum", b"1")])],
        True,
    ),
    "only trailers that frame": (
        b"GET",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\nIf-None-Match: x\r\n\r\n",
        [response(200, CHUNKED), ("trailers", [])],
        True,
    ),
    "HEAD": (b"HEAD", OK + b"Content-Length: 5\r\n\r\n", [response(200, LENGTH_5), END], True),
    "HEAD in chunks": (b"HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n", [response(200, CHUNKED), END], True),
    "204": (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", [response(204), END], True),
    "304 with a length": (b"GET", b"HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", [response(304, LENGTH_5), END], True),
    "no reason": (b"GET", b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", [response(404, LENGTH_0), END], True),
    "100 and 103": (
        b"GET",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 x\r\n\r\n",
        [("informational", 100, []), ("informational", 103, [(b"link", b"x")]), response(204), END],
        True,
    ),
    "199, which nobody has defined": (
        b"GET",
        b"HTTP/1.1 199 x\r\n\r\nHTTP/1.1 204 x\r\n\r\n",
        [("informational", 199, []), response(204), END],
        True,
    ),
    "connection close": (
        b"GET",
        OK + b"Content-Length: 5\r\nConnection: Close\r\n\r\nhello",
        [response(200, LENGTH_5, (b"connection", b"Close")), ("data", b"hello"), END],
        False,
    ),
    "connection close in a list": (
        b"GET",
        b"HTTP/1.1 204 x\r\nConnection: x, close\r\n\r\n",
        [response(204, (b"connection", b"x, close")), END],
        False,
    ),
    "connection close beside other options": (
        b"GET",
        b"HTTP/1.1 204 x\r\nConnection: x, close\r\nConnection: y, z\r\n\r\n",
        [response(204, (b"connection", b"x, close"), (b"connection", b"y, z")), END],
        False,
    ),
    "HTTP/1.0 with another option": (
        b"GET",
        b"HTTP/1.0 204 x\r\nConnection: x\r\n\r\n",
        [response(204, (b"connection", b"x")), END],
        False,
    ),
    "HTTP/1.0": (
        b"GET",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        [response(200, LENGTH_5), ("data", b"hello"), END],
        False,
    ),
    "HTTP/1.0 kept": (
        b"GET",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        [response(200, LENGTH_5, (b"connection", b"keep-alive")), ("data", b"hello"), END],
        True,
    ),
    "HTTP/1.0 kept, in a list": (
        b"GET",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive, x\r\n\r\nhello",
        [response(200, LENGTH_5, (b"connection", b"Keep-Alive, x")), ("data", b"hello"), END],
        True,
    ),
    "HTTP/1.0 kept, with other options": (
        b"GET",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nConnection: x\r\n\r\nhello",
        [response(200, LENGTH_5, (b"connection", b"keep-alive"), (b"connection", b"x")), ("data", b"hello"), END],
        True,
    ),
    "204 that announces a body": (
        b"GET",
        b"HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n",
        [response(204, LENGTH_5), END],
        False,
    ),
}

HTML = (b"content-type", b"text/html")
# Not valid HTTP, but read the same way by browsers and by other proxies.
OLD_DEVICES: dict[str, tuple[bytes, bytes, list[Line], bool]] = {
    "lines that end with LF": (
        b"GET",
        b"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 5\n\nhello",
        [response(200, HTML, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
    "some lines that end with LF, and two CRLFs in the body": (
        b"GET",
        OK + b"Content-Length: 9\r\nContent-Type: text/html\n\nhel\r\n\r\nlo",
        [response(200, (b"content-length", b"9"), HTML), ("data", b"hel\r\n\r\nlo"), END],
        True,
    ),
    "an empty line behind an LF": (
        b"GET",
        OK + b"Content-Type: text/html\nContent-Length: 5\n\r\nhello",
        [response(200, HTML, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
    "a stream of SHOUTcast": (
        b"GET",
        b"ICY 200 OK\r\nicy-name: radio\r\n\r\n\xff\xfb",
        [response(200, (b"icy-name", b"radio")), ("data", b"\xff\xfb")],
        False,
    ),
    "lines that end with LF, of an answer to POST": (
        b"POST",
        b"HTTP/1.1 200 OK\nContent-Length: 9\n\nhel\r\n\r\nlo",
        [response(200, (b"content-length", b"9")), ("data", b"hel\r\n\r\nlo"), END],
        True,
    ),
    "lines that end with LF, of an answer to HEAD": (
        b"HEAD",
        b"HTTP/1.1 200 OK\nContent-Length: 9\n\n",
        [response(200, (b"content-length", b"9")), END],
        True,
    ),
    "100 with LFs": (
        b"GET",
        b"HTTP/1.1 100 Continue\n\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        [("informational", 100, []), response(200, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
    "a field on several lines": (
        b"GET",
        OK + b"Content-Security-Policy: default-src x;\n  img-src *;\r\n\tfont-src y\r\nContent-Length: 5\r\n\r\nhello",
        [
            response(200, (b"content-security-policy", b"default-src x; img-src *; font-src y"), LENGTH_5),
            ("data", b"hello"),
            END,
        ],
        True,
    ),
    "spaces before a colon": (
        b"GET",
        OK + b"Content-Length \t: 5\r\n\r\nhello",
        [response(200, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
    "sizes of chunks filled up to four characters": (
        b"GET",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5   \r\nhello\r\n1\t;x=y\r\n!\r\n0   \r\n\r\n",
        [response(200, CHUNKED), ("data", b"hello!"), END],
        True,
    ),
    "a length and chunks": (
        b"GET",
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        [response(200, CHUNKED), ("data", b"hello"), END],
        False,
    ),
    "chunks and a length, twice": (
        b"GET",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        [response(200, CHUNKED), ("data", b"hello"), END],
        False,
    ),
    "the same length twice": (
        b"GET",
        OK + b"Content-Length: 5\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
        [response(200, HTML, LENGTH_5), ("data", b"hello"), END],
        True,
    ),
}

GARBAGE = {
    "rubbish": b"x",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "no status code": b"HTTP/1.1 OK\r\n\r\n",
    "a version in lower case": b"http/1.1 200 OK\r\n\r\n",
    "a version of two digits": b"HTTP/1.10 200 OK\r\n\r\n",
    "a status code of two digits": b"HTTP/1.1 20 x\r\n\r\n",
    "a status code of four digits": b"HTTP/1.1 2000 x\r\n\r\n",
    "two spaces in the status line": b"HTTP/1.1  200 OK\r\n\r\n",
    "a protocol whose name begins with ICY": b"ICYX 200 OK\r\n\r\n",
    "a tab in the status line": b"HTTP/1.1 200\tOK\r\n\r\n",
    "a control character in the reason": b"HTTP/1.1 200 O\x01K\r\n\r\n",
    "an empty line before the status line": b"\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "a field without a colon": OK + b"Content-Length 0\r\n\r\n",
    "a length with a sign": OK + b"Content-Length: +5\r\n\r\nhello",
    "a length beyond 64 bits": OK + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "identity behind chunked": OK + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a chunk longer than its size": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    "a bare LF behind a chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n",
    "a status code below 100": b"HTTP/1.1 099 x\r\n\r\n",
    "a bare CR in a value": OK + b"X: a\rb\r\n\r\n",
    "a NUL": OK + b"X: \0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "two lengths of one number": OK + b"Content-Length: 0\r\nContent-Length: 00\r\n\r\n",
    "two lengths and chunks": OK
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    "a length that is none and chunks": OK + b"Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a continued status line": OK + b" Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "a bare CR beside bare LFs": b"HTTP/1.1 200 OK\nX: a\rb\nContent-Length: 0\n\n",
    "a space before a chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n 2\r\nab\r\n0\r\n\r\n",
    "a space inside a chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n0 2\r\nab\r\n0\r\n\r\n",
    "too large a head with bare LFs": b"HTTP/1.1 200 OK\nX: " + b"a" * 70_000 + b"\n\n",
    "a list of lengths": OK + b"Content-Length: 0, 0\r\n\r\n",
    "a coding beside chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a coding in place of chunked": OK + b"Transfer-Encoding: br\r\n\r\n0\r\n\r\n",
    "no coding": OK + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a 100 in chunks": b"HTTP/1.1 100 x\r\nTransfer-Encoding: chunked\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "a 103 in chunks": b"HTTP/1.1 103 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a 103 with a length that is none": b"HTTP/1.1 103 x\r\nContent-Length: -1\r\n\r\n",
    "a 100 with a body": b"HTTP/1.1 100 x\r\nContent-Length: 5\r\n\r\n",
    "101 unasked": b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n",
    "too many fields": OK + b"X: a\r\n" * 257 + b"\r\n",
    "too large a head": OK + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    "endless informational heads": b"HTTP/1.1 103 x\r\n\r\n" * 40,
    "a bad chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "too large trailers": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", OLD_DEVICES)
def test_nonconforming_responses_of_old_devices_read_the_same_however_they_are_cut(name: str) -> None:
    method, raw, wanted, is_reusable = OLD_DEVICES[name]

    for cuts in three_ways(raw):
        client = asking(method)

        assert wanted == receive_in_pieces(client, raw, cuts)
        assert is_reusable == client.is_reusable


@pytest.mark.parametrize("name", SAMPLES)
def test_a_response_reads_the_same_however_it_is_cut(name: str) -> None:
    method, raw, wanted, is_reusable = SAMPLES[name]

    for cuts in three_ways(raw):
        client = asking(method)

        assert wanted == receive_in_pieces(client, raw, cuts)
        assert is_reusable == client.is_reusable


@pytest.mark.parametrize(
    ("lines", "expected_s"),
    [
        (b"", None),
        (b"Keep-Alive: timeout=5\r\n", 5),
        (b"keep-alive: TimeOut=0\r\n", 0),
        (b"Keep-Alive: timeout=15, max=100\r\n", 15),
        (b"Keep-Alive: max=100 ,\ttimeout=15 \r\n", 15),
        (b"Keep-Alive: max=100, timeout=15\r\n", 15),
        (b"Keep-Alive: timeout=15\t,max=100\r\n", 15),
        (b"Keep-Alive: timeout=1000000000\r\n", None),
        (b"Keep-Alive: timeout=999999999\r\n", 999_999_999),
        (b"Keep-Alive: timeout=" + b"9" * 5000 + b"\r\n", None),
        (b"Keep-Alive: max=5\r\n", None),
        (b"Keep-Alive: timeout\r\n", None),
        (b"Keep-Alive: timeout=\r\n", None),
        (b"Keep-Alive: timeout=-1\r\n", None),
        (b"Keep-Alive: timeout=5.5\r\n", None),
        (b"Keep-Alive: timeout=5s\r\n", None),
        (b"Keep-Alive: timeout=5 s\r\n", None),
        (b'Keep-Alive: timeout="5"\r\n', None),
        (b"Keep-Alive: header-timeout=5\r\n", None),
        (b"X-Keep-Alive: timeout=5\r\n", None),
        (b"Keep-Alive: timeout=5\r\nKeep-Alive: max=100\r\n", 5),
    ],
)
@pytest.mark.parametrize(("method", "status_code"), [(b"GET", 200), (b"HEAD", 200), (b"GET", 304)])
def test_the_timeout_of_a_keep_alive_field_is_read(
    method: bytes, status_code: int, lines: bytes, expected_s: int | None
) -> None:
    caches = Caches()
    raw = b"HTTP/1.1 %d x\r\n%bContent-Length: 0\r\n\r\n" % (status_code, lines)

    # In the third round its lines are cached, and in the fourth the whole head is.
    for _ in range(4):
        client = ClientConnection(caches)
        client.send_request(head(method), True)
        client.receive(raw)

        assert expected_s == client.timeout_s
        assert client.is_reusable


def test_the_latest_keep_alive_timeout_counts_and_interim_ones_are_ignored() -> None:
    client = ClientConnection(Caches())
    seen = []
    for lines in (b"", b"Keep-Alive: timeout=5\r\n", b"", b"Keep-Alive: timeout=x\r\n", b"Keep-Alive: timeout=9\r\n"):
        client.send_request(head(), True)
        client.receive(b"HTTP/1.1 103 x\r\nKeep-Alive: timeout=1\r\n\r\n" + OK + lines + b"Content-Length: 0\r\n\r\n")
        seen.append(client.timeout_s)

    assert seen == [None, 5, 5, 5, 9]


@pytest.mark.parametrize("is_cut_by_the_end", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_response_reads_the_same_taken_a_chunk_at_a_time(name: str, is_cut_by_the_end: bool) -> None:
    method, raw, wanted, is_reusable = SAMPLES[name]
    client = asking(method)

    events = client.receive(raw, 1)
    while client.has_unread and not is_cut_by_the_end:
        events += client.receive(b"", 1)
    if client.has_unread:
        events += client.receive_eof()

    assert wanted == transcript(events)
    assert not client.held_bytes
    assert is_cut_by_the_end or is_reusable == client.is_reusable


def test_a_caller_takes_a_response_a_chunk_at_a_time_and_in_order() -> None:
    client = asking()
    raw = OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n"

    taken = [client.receive(raw, 1), client.receive(b"1\r\nc\r\n", 1)]
    assert (True, len(b"1\r\nc\r\n")) == (client.has_unread, client.held_bytes)
    taken += [client.receive(b"", 1), client.receive(b"0\r", 1)]

    assert [[("data", b"a")], [("data", b"b")], [("data", b"c")], []] == [
        [line for line in transcript(events) if line[0] != "response"] for events in taken
    ]
    assert (False, 0) == (client.has_unread, client.held_bytes)
    assert [END] == transcript(client.receive(b"\n\r\n", 1))
    assert client.is_reusable


@pytest.mark.parametrize("name", SAMPLES)
def test_bytes_after_a_response_are_reported_and_end_the_connection(name: str) -> None:
    method, raw, wanted, _ = SAMPLES[name]

    for cuts in three_ways(raw + b"H"):
        client = asking(method)

        assert [*wanted, ("terminated", 502)] == receive_in_pieces(client, raw + b"H", cuts)
        assert not client.is_reusable


@pytest.mark.parametrize("name", GARBAGE)
def test_a_malformed_response_terminates_the_connection_with_502(name: str) -> None:
    raw = GARBAGE[name]

    for cuts in ([], list(range(1, len(raw), max(1, len(raw) // 1000)))):
        client = asking()
        seen = receive_in_pieces(client, raw, cuts)

        assert ("terminated", 502) == seen[-1]
        assert all(line[0] in ("response", "informational", "data") for line in seen[:-1])
        assert not client.is_reusable
        assert client.held_bytes == 0
        assert client.receive(b"HTTP/1.1 204 x\r\n\r\n") == []


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\n",
    ],
)
def test_a_101_response_that_does_not_match_the_requested_upgrade_is_refused(raw: bytes) -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"websocket"), True)

    assert [("terminated", 502)] == transcript(client.receive(raw))


def test_a_101_response_may_have_fields_besides_those_of_the_switch() -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"websocket"), True)

    raw = b"HTTP/1.1 101 x\r\nVia: 1.1 a\r\nUpgrade: WebSocket\r\nX-Request-Id: 7\r\nDate: x\r\n\r\n"
    fields = [(b"via", b"1.1 a"), (b"upgrade", b"WebSocket"), (b"x-request-id", b"7"), (b"date", b"x")]
    assert [("response", 101, fields)] == transcript(client.receive(raw))


@pytest.mark.parametrize("name", [b"DERP", b"derp"])
def test_a_backend_switches_to_the_protocol_that_it_was_asked_for(name: bytes) -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"DERP"), True)

    seen = transcript(client.receive(b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\nhi" % name))

    assert [("response", 101), ("data", b"hi")] == [line[:2] for line in seen]


def test_a_101_response_is_accepted_after_the_request_body_and_refused_before_its_end() -> None:
    asked = head(b"POST", fields=[(b"content-length", b"2")], protocol=b"tcp")
    switched = b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nhi"
    client, early = ClientConnection(Caches()), ClientConnection(Caches())
    for connection in (client, early):
        connection.send_request(asked)
    client.send_data(b"ok", True)

    assert [("response", 101), ("data", b"hi")] == [line[:2] for line in transcript(client.receive(switched))]
    assert client.data_to_send().endswith(b"\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nok")
    assert [("terminated", 502)] == transcript(early.receive(switched))


def test_a_switch_to_websocket_is_refused_when_another_protocol_was_requested() -> None:
    client = ClientConnection(Caches())
    client.send_request(head(b"POST", protocol=b"DERP"), True)

    raw = b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert [("terminated", 502)] == transcript(client.receive(raw))


@pytest.mark.parametrize("status_code", [100, 103])
def test_an_interim_response_may_say_that_it_has_no_body(status_code: int) -> None:
    raw = b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % status_code + OK + b"Content-Length: 0\r\n\r\n"

    seen = transcript(asking().receive(raw))

    assert [("informational", status_code), ("response", 200)] == [line[:2] for line in seen[:2]]


@pytest.mark.parametrize("framing", [b"Content-Length: 0", b"Transfer-Encoding: chunked"])
def test_a_101_response_has_no_body_whatever_its_framing_fields_say(framing: bytes) -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"websocket"), True)

    seen = transcript(client.receive(b"HTTP/1.1 101 x\r\n" + framing + b"\r\nUpgrade: websocket\r\n\r\n\x81\x00"))

    assert [("response", 101), ("data", b"\x81\x00")] == [line[:2] for line in seen]


def test_a_websocket_may_follow_a_response_with_a_body() -> None:
    client = asking()
    client.receive(OK + b"Content-Length: 5\r\n\r\nhel")
    client.receive(b"lo")
    client.send_request(head(protocol=b"websocket"), True)

    client.receive(b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")

    assert [("data", b"\x81\x00")] == transcript(client.receive(b"\x81\x00"))


def test_a_websocket_that_the_backend_refuses_leaves_an_ordinary_connection() -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"websocket"), True)

    assert [response(403, LENGTH_0), END] == transcript(client.receive(b"HTTP/1.1 403 x\r\nContent-Length: 0\r\n\r\n"))
    assert client.is_reusable


def test_interim_responses_up_to_the_limit_are_accepted_for_each_request() -> None:
    client = ClientConnection(Caches(), Limits(max_informational=3))
    for _ in range(2):
        client.send_request(head(), True)
        seen = transcript(client.receive(b"HTTP/1.1 103 x\r\n\r\n" * 3 + b"HTTP/1.1 204 x\r\n\r\n"))

        assert [*[("informational", 103, [])] * 3, response(204), END] == seen


def test_interim_responses_may_be_as_large_as_one_head_together() -> None:
    raw = b"HTTP/1.1 103 x\r\nLink: </a>\r\n\r\n" * 3
    for limit_bytes, is_taken in ((len(raw), True), (len(raw) - 1, False)):
        client = ClientConnection(Caches(), Limits(max_head_bytes=limit_bytes))
        for _ in range(2 if is_taken else 1):
            client.send_request(head(), True)
            seen = transcript(client.receive(raw + b"HTTP/1.1 204 x\r\n\r\n"))

            assert (seen[-1] == END) == is_taken


def test_a_response_exactly_at_its_limits_is_accepted_and_one_over_is_not() -> None:
    raw = OK + b"Content-Length: 0\r\nX: y\r\n\r\n"
    for limits, is_taken in (
        (Limits(max_head_bytes=len(raw), max_fields=2), True),
        (Limits(max_head_bytes=len(raw) - 1), False),
        (Limits(max_fields=1), False),
    ):
        for cuts in three_ways(raw):
            assert is_taken == (receive_in_pieces(asking(limits=limits), raw, cuts)[-1] == END)


def test_a_body_without_framing_ends_with_the_connection() -> None:
    client = asking()

    seen = transcript([*client.receive(OK + b"\r\nhel"), *client.receive(b"lo"), *client.receive_eof()])

    assert [response(200), ("data", b"hello"), END] == seen
    assert not client.is_reusable


def test_a_body_without_framing_is_incomplete_when_the_connection_is_cut_off() -> None:
    client = asking()

    seen = transcript([*client.receive(OK + b"\r\nhello"), *client.receive_eof(is_cut_off=True)])

    assert [response(200), ("data", b"hello"), ("terminated", 502)] == seen


@pytest.mark.parametrize(
    ("raw", "is_begun"),
    [(b"", False), (b"HTTP/1.1", True), (OK + b"Content-Length: 5\r\n\r\nhel", True)],
)
def test_an_eof_before_the_end_of_a_response_is_502_and_tells_whether_it_had_begun(raw: bytes, is_begun: bool) -> None:
    client = asking()
    events = client.receive(raw)

    assert ("terminated", 502) == transcript([*events, *client.receive_eof()])[-1]
    assert is_begun == client.is_response_begun


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b"", "before the end of a response head"),
        (b"HTTP/1.1", "before the end of a response head"),
        (OK + b"Content-Length: 5\r\n\r\n", "in the middle of a body"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel", "in the middle of a body"),
    ],
)
def test_an_eof_before_the_end_of_a_response_is_told_with_the_part_that_it_cut(raw: bytes, where: str) -> None:
    client = asking()
    client.receive(raw)

    assert [f"connection closed {where}"] == [event.reason for event in client.receive_eof()]  # type: ignore[attr-defined]


def test_an_eof_after_a_complete_response_leaves_the_next_one_not_begun() -> None:
    client = asking()
    client.receive(b"HTTP/1.1 204 x\r\n\r\n")
    client.send_request(head(), True)

    assert [("terminated", 502)] == transcript(client.receive_eof())
    assert not client.is_response_begun


@pytest.mark.parametrize(
    ("raw", "are_too_large"),
    [
        (OK + b"X: y\r\n" * 3 + b"\r\n", True),
        (OK + b"X: " + b"y" * 200 + b"\r\n\r\n", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 3 + b"\r\n", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"y" * 40 + b"\r\n\r\n", True),
        (OK + b"X\r\n\r\n", False),
        (b"rubbish", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nx", False),
        (OK + b"Content-Length: 5\r\n\r\nhello!", False),
    ],
)
def test_fields_over_a_limit_are_told_from_malformed_ones(raw: bytes, are_too_large: bool) -> None:
    for cuts in three_ways(raw):
        client = asking(limits=Limits(max_fields=2, max_head_bytes=150, max_trailer_bytes=30))
        events: list[Event] = []
        start = 0
        for end in [*cuts, len(raw)]:
            events += client.receive(raw[start:end])
            start = end

        assert isinstance(events[-1], ConnectionTerminated)
        assert are_too_large is events[-1].are_fields_too_large
    assert [False] == [event.are_fields_too_large for event in asking().receive_eof()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "is_authenticated"),
    [
        ([], False),
        ([(b"authorization", b"Basic x")], False),
        ([(b"x", b"ntlm")], False),
        ([(b"authorization", b"NTLM x")], True),
        ([(b"authorization", b"negotiate")], True),
        ([(b"authorization", b"Nego2 x")], True),
        ([(b"authorization", b"Kerberos x")], True),
        ([(b"authorization", b"CredSSP x")], True),
        ([(b"authorization", b"Basic x"), (b"authorization", b"NTLM x")], True),
    ],
)
def test_a_request_that_authenticates_the_connection_marks_it_for_good(fields: Fields, is_authenticated: bool) -> None:
    client = ClientConnection(Caches())
    for request_head in (head(fields=fields), head()):
        client.send_request(request_head, True)
        client.receive(b"HTTP/1.1 204 x\r\n\r\n")

        assert is_authenticated is client.is_authenticated


def test_an_eof_while_idle_gives_no_event_and_ends_reuse() -> None:
    client = asking()
    client.receive(b"HTTP/1.1 204 x\r\n\r\n")
    assert client.is_reusable

    assert client.receive_eof() == []
    assert not client.is_reusable


def test_a_response_before_the_end_of_its_request_prevents_reuse() -> None:
    client = ClientConnection(Caches())
    client.send_request(head(b"POST"))

    assert [response(204), END] == transcript(client.receive(b"HTTP/1.1 204 x\r\n\r\n"))

    client.send_data(b"x", True)
    assert not client.is_reusable
    with pytest.raises(LocalProtocolError):
        client.send_request(head(), True)


@pytest.mark.parametrize(
    ("request_head", "body", "wanted"),
    [
        (head(), None, b"GET /p?q HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (head(fields=[(b"x", b"y")]), None, b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\r\n"),
        (head(b"POST"), None, b"POST /p?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"),
        (head(b"PUT"), None, b"PUT /p?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"),
        (head(b"PATCH"), None, b"PATCH /p?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"),
        (head(b"DELETE"), None, b"DELETE /p?q HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        (
            head(b"POST", [(b"content-length", b"2")]),
            b"hi",
            b"POST /p?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi",
        ),
        (
            head(b"GET"),
            b"hi",
            b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ),
        (
            head(protocol=b"websocket"),
            None,
            b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
        (
            head(b"POST", protocol=b"x"),
            None,
            b"POST /p?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        ),
        (
            head(fields=[(b"te", b"trailers"), (b"x", b"y")]),
            None,
            b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nConnection: te\r\nTE: trailers\r\nX: y\r\n\r\n",
        ),
        (
            head(fields=[(b"te", b"trailers"), (b"x", b"y")], protocol=b"websocket"),
            None,
            b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nX: y\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
    ],
)
def test_a_request_is_written_with_its_framing(request_head: RequestHead, body: bytes | None, wanted: bytes) -> None:
    client = ClientConnection(Caches())

    client.send_request(request_head, body is None)
    if body is not None:
        client.send_data(body, True)

    assert wanted == client.data_to_send()


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_websocket_is_opened_when_the_backend_agrees_and_ends_with_its_connection(is_cut_off: bool) -> None:
    client = ClientConnection(Caches())
    client.send_request(head(protocol=b"websocket"), True)
    client.data_to_send()
    assert not client.is_switched
    fields = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]

    raw = b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00"
    assert [response(101, *fields), ("data", b"\x81\x00")] == transcript(client.receive(raw))

    assert client.is_switched

    client.send_data(b"\x89\x00")
    assert client.data_to_send() == b"\x89\x00"
    assert [END] == transcript(client.receive_eof(is_cut_off=is_cut_off))


@pytest.mark.parametrize(
    ("request_head", "end_stream"),
    [
        (RequestHead(b"GET x", b"http", b"a", b"/", []), True),
        (RequestHead(b"CONNECT", b"http", b"a", b"/", []), True),
        (RequestHead(b"GET", b"http", b"a", b"/ HTTP/1.1\r\nX: y", []), True),
        (RequestHead(b"GET", b"http", b"a", b"", []), True),
        (RequestHead(b"GET", b"http", b"a\r\nx: y", b"/", []), True),
        (head(fields=[(b"host", b"b")]), True),
        (head(fields=[(b"upgrade", b"h2c")]), True),
        (head(fields=[(b"content-length", b"5")]), True),
        (head(b"POST", protocol=b"websocket"), True),
        (head(protocol=b"h2c"), True),
        (head(protocol=b"DERP\r\nX: y"), True),
        (head(b"PUT", protocol=b"DERP"), True),
        (head(protocol=b"websocket"), False),
    ],
)
def test_a_request_that_could_be_read_as_another_is_never_sent(request_head: RequestHead, end_stream: bool) -> None:
    client = ClientConnection(Caches())

    with pytest.raises(LocalProtocolError):
        client.send_request(request_head, end_stream)

    assert not client.data_to_send()
    assert client.is_reusable

    # Less is checked of what was sent once before.
    authority = request_head.authority.partition(b"\r")[0]
    client.send_request(RequestHead(b"GET", b"http", authority, b"/", []), True)
    client.receive(b"HTTP/1.1 204 x\r\n\r\n")
    client.data_to_send()
    with pytest.raises(LocalProtocolError):
        client.send_request(request_head, end_stream)
    assert not client.data_to_send()


def test_a_second_request_cannot_be_sent_before_the_first_response() -> None:
    client = asking()
    assert not client.is_reusable

    with pytest.raises(LocalProtocolError):
        client.send_request(head(), True)


def test_response_heads_cached_for_head_requests_do_not_apply_to_get() -> None:
    """Response heads are cached as received, and the one to HEAD gives the length of a body that is not sent."""
    caches = Caches()
    sent = OK + b"Content-Length: 5\r\n\r\n"
    for method in (b"HEAD", b"HEAD", b"HEAD", b"GET", b"HEAD", b"GET"):
        client = ClientConnection(caches)
        client.send_request(head(method), True)
        body = b"hello" if method == b"GET" else b""

        expected = [response(200, LENGTH_5), *([("data", body)] if body else []), END]
        assert transcript(client.receive(sent + body)) == expected
        assert client.is_reusable


def repeated(caches: Caches, raw: bytes) -> None:
    for _ in range(3):
        client = ClientConnection(caches)
        client.send_request(head(), True)
        client.receive(raw)
        assert client.is_reusable


def test_neither_credentials_nor_long_lines_and_heads_of_responses_are_cached() -> None:
    caches = Caches()
    repeated(caches, OK + b"Content-Length: 0\r\nSet-Cookie: id=secret\r\n\r\n")
    repeated(caches, OK + b"Content-Length: 0\r\nX: " + b"x" * MAX_LINE_BYTES + b"\r\n\r\n")
    many = MAX_HEAD_BYTES // 100
    repeated(caches, OK + b"Content-Length: 0\r\n" + (b"X: " + b"x" * 100 + b"\r\n") * many + b"\r\n")

    remembered = [*caches.received.young, *caches.received.old, *caches.heads]

    assert {b"Content-Length: 0", b"X: " + b"x" * 100} == set(remembered)


def test_credentials_in_requests_are_not_cached() -> None:
    names = b"authorization cf-access-jwt-assertion cookie proxy-authorization".split()
    caches = Caches()
    for _ in range(3):
        ClientConnection(caches).send_request(
            head(fields=[(b"accept", b"*/*"), *((name, b"x") for name in names)]), True
        )

    assert {(b"accept", b"*/*")} == set(caches.sent.young)


def test_the_number_of_cached_heads_is_bounded() -> None:
    caches = Caches()
    lines = [b"X-%d: x\r\n" % number for number in range(11)]
    for number in range(1 << len(lines)):
        chosen = b"".join(line for place, line in enumerate(lines) if number >> place & 1)
        client = ClientConnection(caches)
        client.send_request(head(), True)
        client.receive(OK + chosen + b"Content-Length: 0\r\n\r\n")

    assert 0 < len(caches.heads) <= MAX_HEADS


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        (b"accept", b"Accept"),
        (b"content-type", b"Content-Type"),
        (b"x-b3-traceid", b"X-B3-Traceid"),
        (b"sec-websocket-key", b"Sec-WebSocket-Key"),
        (b"soapaction", b"SOAPAction"),
        (b"icy-metadata", b"Icy-MetaData"),
        (b"x-amz-meta-my-key", b"x-amz-meta-my-key"),
        (b"x-goog-meta-my-key", b"x-goog-meta-my-key"),
        (b"x-ms-meta-my-key", b"x-ms-meta-my-key"),
        (b"x_y.z", b"X_y.z"),
        (b"-x--y-", b"-X--Y-"),
        (b"x" * 65 + b"-y", b"X" + b"x" * 64 + b"-Y"),
    ],
)
def test_request_field_names_are_written_in_the_usual_http_11_spelling(name: bytes, spelling: bytes) -> None:
    """The servers of some devices compare them case-sensitively."""
    client = ClientConnection(Caches())
    for _ in range(4):
        client.send_request(head(fields=[(name, b"v")]), True)
        assert b"GET /p?q HTTP/1.1\r\nHost: a.example\r\n%b: v\r\n\r\n" % spelling == client.data_to_send()
        client.receive(b"HTTP/1.1 204 x\r\n\r\n")
