"""Plain exchanges: forwarding both ways, responses of the proxy itself, and the state left at the end."""

import gc

import pytest

from proxy.backend.stream import Reason
from proxy.exchange.answers import http_date
from proxy.exchange.record import Record
from proxy.heads import RequestHead, ResponseHead
from proxy.routing import Table, compile_table
from proxy.stats import NO_ROUTE
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import DATE, GRPC, WALL_S, World, asked, config, config_of


def test_a_request_without_a_body_is_forwarded_and_its_response_passed_on(world: World) -> None:
    client = world.begin(asked(path=b"/x?q=1"))
    stream = world.pool.stream

    assert (stream.key, stream.head.path, stream.head.authority) == ("http://192.0.2.10:80", b"/x?q=1", b"a.example")
    assert stream.has_no_body
    assert client.head is None

    stream.answer(200, [(b"etag", b"1"), DATE, (b"connection", b"keep-alive")])
    stream.send(b"hel")
    stream.send(b"lo", end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.head.fields) == (200, [(b"etag", b"1"), DATE])
    assert (client.body, client.is_ended, client.is_request_stopped) == (b"hello", True, False)


def test_credit_for_a_response_is_returned_only_when_the_client_has_taken_it(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"hello", end_stream=True)

    assert world.pool.stream.owed_bytes == 5

    client.taken.drain()

    assert world.pool.stream.owed_bytes == 0


def test_a_request_body_waits_until_the_backend_is_connected(world: World) -> None:
    world.pool.opens_at_once = False
    client = world.begin(asked(b"POST"), end_stream=False)
    client.send(b"one ")
    client.send(b"two", end_stream=True)
    stream = world.pool.stream

    assert (stream.body, client.owed_bytes) == (b"", 7)

    stream.open()

    assert (stream.body, stream.is_request_ended, client.owed_bytes) == (b"one two", True, 7)

    stream.taken.drain()

    assert client.owed_bytes == 0


def test_the_rest_of_a_body_is_sent_when_the_backend_can_take_more(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 3
    client.send(b"hello")
    client.send(b"", end_stream=True)

    assert (stream.body, stream.is_request_ended) == (b"hel", False)

    stream.widen(1)

    assert (stream.body, stream.is_request_ended) == (b"hell", False)

    stream.widen()

    assert (stream.body, stream.is_request_ended) == (b"hello", True)


def test_the_rest_of_a_response_is_sent_when_the_client_can_take_more(world: World) -> None:
    client = world.begin(asked())
    stream = world.pool.stream
    client.taken.window_bytes = 2
    stream.answer()
    stream.send(b"hello")
    stream.send(b" world", end_stream=True)

    assert (client.body, client.is_ended, world.records) == (b"he", False, [])

    client.widen()

    assert (client.body, client.is_ended, world.record.response_bytes) == (b"hello world", True, 11)


def test_trailers_pass_both_ways_without_framing_fields(world: World) -> None:
    client = world.begin(asked(b"POST", fields=[GRPC, (b"te", b"trailers")]), end_stream=False)
    stream = world.pool.stream
    client.send(b"message")
    client.exchange.on_request_trailers([(b"checksum", b"1"), (b"content-length", b"9")])

    assert (stream.body, stream.trailers, stream.field(b"te")) == (b"message", [(b"checksum", b"1")], b"trailers")

    stream.answer(200, [GRPC])
    stream.send(b"reply")
    stream.end_with([(b"grpc-status", b"0"), (b"transfer-encoding", b"chunked")])

    assert (client.body, client.trailers) == (b"reply", [(b"grpc-status", b"0")])
    assert not client.is_request_stopped
    assert world.record.reason == ""


def test_trailers_wait_for_a_body_that_the_client_has_not_taken(world: World) -> None:
    client = world.begin(asked())
    client.taken.window_bytes = 1
    world.pool.stream.answer()
    world.pool.stream.send(b"reply")
    world.pool.stream.end_with([(b"grpc-status", b"0")])

    assert (client.trailers, client.is_over) == (None, False)

    client.widen()

    assert (client.body, client.trailers) == (b"reply", [(b"grpc-status", b"0")])


@pytest.mark.parametrize("with_trailers", [False, True], ids=["data", "trailers"])
def test_an_end_after_a_slow_client_has_caught_up_is_passed_on_at_once(world: World, with_trailers: bool) -> None:
    client = world.begin(asked())
    client.taken.window_bytes = 1
    world.pool.stream.answer()
    world.pool.stream.send(b"reply")
    client.widen()
    if with_trailers:
        world.pool.stream.end_with([(b"grpc-status", b"0")])
    else:
        world.pool.stream.send(b"!", end_stream=True)

    assert (client.is_ended, world.record.reason) == (True, "")
    assert (world.stats.route("shop").in_flight, not world.services.running) == (0, True)


def test_trailers_may_end_a_response_before_the_request(world: World) -> None:
    client = world.begin(asked(b"POST", fields=[GRPC]), end_stream=False)
    client.send(b"message")
    world.pool.stream.answer()
    world.pool.stream.end_with([(b"grpc-status", b"8")])
    client.send(b"more")
    world.pool.stream.taken.drain()

    assert (client.is_ended, client.is_request_stopped, client.owed_bytes) == (True, True, 0)


def test_a_response_whose_trailers_are_all_forbidden_still_ends(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.end_with([(b"content-length", b"9")])

    assert (client.trailers, client.is_ended) == (None, True)


@pytest.mark.parametrize(
    ("method", "status_code", "length"), [(b"HEAD", 200, b"5"), (b"GET", 304, b"5"), (b"GET", 204, None)]
)
def test_a_response_without_a_body_ends_with_its_head(
    world: World, method: bytes, status_code: int, length: bytes | None
) -> None:
    """A 204 response must not have Content-Length (RFC 9110, 8.6)."""
    client = world.begin(asked(method))
    world.pool.stream.answer(status_code, [(b"content-length", b"5")], end_stream=True)

    assert client.is_ended
    assert client.field(b"content-length") == length
    assert world.record.status_code == status_code


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_response_without_a_date_gets_the_time_of_its_arrival(world: World, is_whole: bool) -> None:
    """RFC 9110, 6.6.1. Repeated heads of backends are the same object."""
    head = ResponseHead(200, [(b"etag", b"1")])
    dates = []
    for _ in range(2):
        client = world.begin(asked())
        world.wait(2.0)
        if is_whole:
            world.pool.stream.answer_whole(b"x", head=head)
        else:
            world.pool.stream.answer(head=head, end_stream=True)
        dates.append(client.field(b"date"))

    assert dates == [http_date(int(WALL_S) + 102), http_date(int(WALL_S) + 104)]
    assert head.fields == [(b"etag", b"1")]


def test_interim_responses_pass_without_framing_and_connection_fields(world: World) -> None:
    client = world.begin(asked(b"POST", fields=[(b"expect", b"100-continue")]), end_stream=False)
    stream = world.pool.stream

    assert stream.field(b"expect") == b"100-continue"

    stream.interim(100)
    stream.interim(103, [(b"link", b"</a.css>"), (b"content-length", b"0"), (b"connection", b"close")])

    assert [(head.status_code, head.fields) for head in client.interims] == [(100, []), (103, [(b"link", b"</a.css>")])]


def test_a_client_that_waits_for_100_gets_it_from_us_if_the_backend_sends_none(world: World) -> None:
    """Many servers never send it over HTTP/2, and some clients wait forever."""
    client = world.begin(asked(b"POST", fields=[(b"expect", b"100-continue")]), end_stream=False)
    world.wait(0.9)

    assert client.interims == []

    world.wait(0.2)

    assert [(head.status_code, head.fields) for head in client.interims] == [(100, [])]

    client.send(b"body", end_stream=True)
    world.wait(10.0)
    world.pool.stream.answer(200, end_stream=True)

    assert (world.pool.stream.body, len(client.interims), client.is_ended) == (b"body", 1, True)


@pytest.mark.parametrize("is_backend_first", [True, False])
def test_a_client_that_waits_for_100_gets_it_once(world: World, is_backend_first: bool) -> None:
    """Even from a backend that sends it late, or twice. Some clients take the second one for the response."""
    client = world.begin(asked(b"POST", fields=[(b"expect", b"100-continue")]), end_stream=False)
    if is_backend_first:
        world.pool.stream.interim(100)
    else:
        world.wait(1.1)

    world.pool.stream.interim(100)
    world.pool.stream.interim(102)

    assert [100, 102] == [head.status_code for head in client.interims]


@pytest.mark.parametrize("what", ["100", "body", "final head"])
def test_no_100_is_added_when_the_client_no_longer_waits_for_it(world: World, what: str) -> None:
    client = world.begin(asked(b"POST", fields=[(b"expect", b"100-continue")]), end_stream=False)
    if what == "100":
        world.pool.stream.interim(100)
    elif what == "body":
        client.send(b"eager")
    else:
        world.pool.stream.answer(413)
    world.wait(2.0)

    assert len(client.interims) == (what == "100")


def test_a_response_may_end_before_the_request(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 2
    client.send(b"hello")
    stream.answer(413)
    stream.send(b"too much")

    assert not client.is_request_stopped

    stream.send(b"", end_stream=True)
    stream.taken.drain()

    assert (client.is_request_stopped, client.is_ended, client.owed_bytes) == (True, True, 0)


def test_the_request_body_still_flows_during_an_early_response(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.answer()
    stream.send(b"early")
    client.send(b"late", end_stream=True)
    stream.send(b"", end_stream=True)

    assert (stream.body, stream.is_request_ended, client.is_request_stopped) == (b"late", True, False)


def test_a_client_that_disconnects_cancels_its_request_at_the_backend(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 1
    client.taken.window_bytes = 1
    client.send(b"hello")
    stream.answer()
    stream.send(b"reply")
    client.leave("connection lost")
    client.taken.drain()

    assert (stream.is_cancelled, stream.owed_bytes, client.owed_bytes) == (True, 0, 0)
    assert (world.record.reason, world.record.detail, world.record.status_code) == (
        "client_gone",
        "connection lost",
        200,
    )


def test_a_client_that_disconnects_after_the_whole_response_is_not_recorded_as_gone(world: World) -> None:
    """An HTTP/2 backend may end its stream some time after the announced length."""
    client = world.begin(asked())
    stream = world.pool.stream
    stream.answer()
    stream.send(b"reply")
    client.leave("")

    assert stream.is_cancelled
    assert (world.record.reason, world.record.detail, world.record.status_code) == ("", "", 200)


def test_a_client_that_disconnects_before_the_response_is_recorded_without_status(world: World) -> None:
    world.begin(asked()).leave()

    assert (world.record.status_code, world.record.reason) == (0, "client_gone")
    assert world.stats.route("shop").responses[0] == 1


def test_a_backend_that_fails_within_a_response_resets_the_client(world: World) -> None:
    client = world.begin(asked())
    world.pool.stream.answer()
    world.pool.stream.send(b"half")
    world.pool.stream.fail()

    assert client.is_reset
    assert (world.record.reason, world.record.status_code) == ("reset", 200)


@pytest.mark.parametrize(
    ("reason", "status_code", "retry_after"),
    [
        (Reason.RESOLVE, 502, None),
        (Reason.REFUSED, 502, None),
        (Reason.UNREACHABLE, 502, None),
        (Reason.CONNECT_TIMEOUT, 504, None),
        (Reason.TLS, 502, None),
        (Reason.RESET, 502, None),
        (Reason.PROTOCOL, 502, None),
        (Reason.FIELDS_TOO_LARGE, 502, None),
        (Reason.UNSENDABLE, 502, None),
        (Reason.OVERLOAD, 503, b"1"),
        (Reason.UNHEALTHY, 503, b"5"),
        (Reason.STOPPING, 503, b"1"),
    ],
)
def test_a_failure_before_the_response_is_answered_according_to_its_reason(
    world: World, reason: Reason, status_code: int, retry_after: bytes | None
) -> None:
    client = world.begin(asked())
    world.pool.stream.fail(reason)

    assert client.head is not None
    assert (client.head.status_code, client.field(b"retry-after")) == (status_code, retry_after)
    assert (world.record.reason, world.record.detail) == (reason.value, "as the test wants")
    assert world.record.address == "192.0.2.10:80"
    assert world.record.request_id in client.body
    assert client.field(b"x-request-id") == world.record.request_id


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_status_code_past_599_is_passed_on_and_counted_as_5xx(world: World, is_whole: bool) -> None:
    client = world.begin(asked())
    if is_whole:
        world.pool.stream.answer_whole(b"denied", 999)
    else:
        world.pool.stream.answer(999)
        world.pool.stream.send(b"denied", end_stream=True)

    assert client.head is not None
    assert (client.head.status_code, client.body) == (999, b"denied")
    assert (world.record.status_code, world.record.reason) == (999, "")
    assert world.stats.route("shop").responses == [0, 0, 0, 0, 0, 1]


def test_an_error_response_waits_for_a_client_that_takes_nothing(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    client.taken.window_bytes = 4
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    client.send(b"more")

    assert (len(client.body), client.is_over, client.owed_bytes, client.is_request_stopped) == (4, False, 0, True)

    client.widen()

    assert client.is_ended
    assert client.body.startswith(b"502 bad gateway: ")


def test_a_request_without_a_route_is_answered_404(make_world: MakeWorld) -> None:
    world = make_world(config('"matches": [{"path": {"value": "/api"}}],'))
    client = world.begin(asked(b"POST", b"/other"), end_stream=False)

    assert client.head is not None
    assert (client.head.status_code, client.is_ended, client.is_request_stopped) == (404, True, True)
    assert world.pool.streams == []
    assert (world.record.reason, world.record.listener, world.record.route) == ("no_route", "", "")
    assert (world.stats.route(NO_ROUTE).responses[4], world.stats.route(NO_ROUTE).in_flight) == (1, 0)


def test_a_redirect_is_answered_with_its_location(make_world: MakeWorld) -> None:
    text = """{"listeners": [{"name": "web", "port": 80}], "routes": [{"name": "shop", "rules": [
        {"filters": {"requestRedirect": {"scheme": "https"}}}]}]}"""
    world = make_world(config_of(text))
    client = world.begin(asked(path=b"/a?b=c"))

    assert client.head is not None
    assert (client.head.status_code, client.field(b"location")) == (302, b"https://a.example/a?b=c")
    assert (client.field(b"content-length"), world.record.reason) == (b"0", "redirect")


@pytest.mark.parametrize(
    "head",
    [asked(b"CONNECT", b""), asked(b"CONNECT", protocol=b"connect-udp")],
    ids=["to an address", "for an unknown protocol"],
)
def test_a_connect_that_is_not_for_websocket_is_refused(world: World, head: RequestHead) -> None:
    client = world.begin(head, end_stream=False)

    assert client.head is not None
    assert (client.head.status_code, client.is_request_stopped) == (501, True)


@pytest.mark.parametrize("authority", [b"a,b", b"u@a.example", b"a.example:99999", b"x" * 513])
def test_an_authority_that_backends_may_misread_is_refused(world: World, authority: bytes) -> None:
    client = world.begin(asked(authority=authority))

    assert client.head is not None
    assert (client.head.status_code, world.pool.streams, world.record.reason) == (400, [], "bad_host")


def test_an_authority_is_validated_even_if_it_is_rewritten(make_world: MakeWorld) -> None:
    world = make_world(config('"filters": {"urlRewrite": {"hostname": "b.example"}},'))
    client = world.begin(asked(authority=b"a.example:80,evil.example"))

    assert client.head is not None
    assert (client.head.status_code, world.pool.streams) == (400, [])


def test_the_record_holds_all_facts_and_no_query(world: World) -> None:
    client = world.begin(asked(b"POST", b"/x?secret=1"), end_stream=False)
    world.wait(0.25)
    client.send(b"12345", end_stream=True)
    world.pool.stream.answer(201)
    world.wait(0.25)
    world.pool.stream.send(b"123", end_stream=True)
    record = world.record

    assert (record.method, record.host, record.path) == (b"POST", b"a.example", b"/x")
    assert (record.client, record.protocol, record.door) == ("203.0.113.7", "HTTP/2", ":80")
    assert (record.listener, record.route, record.rule_index) == ("web", "shop", 0)
    assert (record.backend, record.address) == ("http://192.0.2.10:80", "192.0.2.10:80")
    assert (record.status_code, record.request_bytes, record.response_bytes) == (201, 5, 3)
    assert (record.response_after_s, record.duration_s) == (0.25, 0.5)
    assert (record.began_s, record.retries, record.reason) == (1_700_000_100.0, 0, "")


def test_the_record_of_our_own_response_has_its_size_and_its_time(make_world: MakeWorld) -> None:
    world = make_world(config('"name": "buy",'))
    client = world.begin(asked())
    world.wait(0.5)
    world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)

    assert (world.record.response_bytes, world.stats.route("shop").response_bytes) == (len(client.body),) * 2
    assert (world.record.response_after_s, world.record.rule) == (0.5, "buy")


def test_no_record_is_made_for_a_status_that_is_not_logged(world: World) -> None:
    world.services.is_logged = lambda status_code, _: status_code >= 500
    for status_code in (200, 404, 503):
        world.begin(asked())
        world.pool.stream.answer(status_code, end_stream=True)

    assert world.record.status_code == 503


@pytest.mark.parametrize("kind", ["broken off", "slow", "grpc"])
def test_a_failure_is_logged_as_one_although_the_client_has_got_a_200(make_world: MakeWorld, kind: str) -> None:
    """The log of errors alone must have what error messages and clients' request ids refer to."""
    world = make_world(config('"timeouts": {"request": "2s"},'))
    world.services.is_logged = lambda status_code, has_failed: (status_code, has_failed) == (200, True)
    client = world.begin(asked(b"POST", fields=[GRPC] if kind == "grpc" else []))
    if kind == "grpc":
        world.pool.stream.fail(Reason.REFUSED, is_unprocessed=True)
    else:
        world.pool.stream.answer()
        world.pool.stream.send(b"half")
        if kind == "slow":
            world.wait(2.1)
        else:
            world.pool.stream.fail(Reason.RESET)

    assert client.head is not None
    assert client.head.status_code == 200
    assert world.record.has_failed


@pytest.mark.parametrize("outcome", ["answered", "bad path", "client gone"])
def test_other_ends_are_no_failures_of_ours(world: World, outcome: str) -> None:
    client = world.begin(asked(path=b"/..", fields=[GRPC]) if outcome == "bad path" else asked())
    if outcome == "answered":
        world.pool.stream.answer(503, end_stream=True)
    elif outcome == "client gone":
        world.pool.stream.answer()
        client.leave()

    assert not world.record.has_failed


def test_an_exchange_is_counted_at_its_route(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    route = world.stats.route("shop")

    assert (route.in_flight, not world.services.running) == (1, False)

    client.send(b"12345", end_stream=True)
    world.pool.stream.answer(503)
    world.wait(2.0)
    world.pool.stream.send(b"123", end_stream=True)

    assert (route.in_flight, route.responses[5], route.request_bytes, route.response_bytes) == (0, 1, 5, 3)
    assert (route.duration_sum_s, not world.services.running) == (2.0, True)


def test_a_running_exchange_keeps_its_table_when_a_new_one_is_used(make_world: MakeWorld) -> None:
    world = make_world(config('"filters": {"responseHeaderModifier": {"set": [{"name": "Table", "value": "old"}]}},'))
    client = world.begin(asked())
    world.services.use(compile_table(config_of('{"listeners": [{"name": "web", "port": 80}]}')))
    world.pool.stream.answer(end_stream=True)
    later = world.begin(asked())

    assert client.field(b"table") == b"old"
    assert later.head is not None
    assert later.head.status_code == 404


def test_running_exchanges_keep_no_earlier_table_alive(make_world: MakeWorld) -> None:
    """Downloads and websockets may last for days, while documents come every few seconds."""

    def tables() -> int:
        gc.collect()
        return sum(isinstance(each, Table) for each in gc.get_objects())

    world = make_world(config())
    before = tables()
    assert before
    for _ in range(3):
        world.begin(asked())
        world.services.use(compile_table(config()))

    assert len(world.services.running) == 3
    assert tables() == before


def test_documents_with_the_same_forwarding_share_what_is_kept_about_clients(make_world: MakeWorld) -> None:
    """Each running exchange would otherwise keep some MiB about other clients of the time when it began."""
    world = make_world(config())
    first = world.services.terms.forwarding
    world.services.use(compile_table(config()))
    assert world.services.terms.forwarding is first

    world.services.use(compile_table(config_of('{"forwarding": {"via": true}}')))
    assert world.services.terms.forwarding is not first


def test_all_credit_is_returned_when_a_stream_ends_within_a_call(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 2
    stream.surprise = lambda: stream.answer(413, end_stream=True)
    client.send(b"hello")
    stream.taken.drain()

    assert (client.is_ended, client.is_request_stopped, client.owed_bytes) == (True, True, 0)


def test_a_stream_that_can_take_more_within_a_call_gets_it_in_order(world: World) -> None:
    client = world.begin(asked(b"POST"), end_stream=False)
    stream = world.pool.stream
    stream.taken.window_bytes = 2
    stream.surprise = stream.widen
    client.send(b"hello", end_stream=True)

    assert (stream.body, stream.is_request_ended) == (b"hello", True)


def test_our_own_response_is_not_cut_off_by_the_request_timeout(make_world: MakeWorld) -> None:
    world = make_world(config('"timeouts": {"request": "2s"},'))
    client = world.begin(asked())
    client.taken.window_bytes = 1
    world.pool.stream.fail()
    world.wait(3.0)
    client.widen()

    assert (client.is_ended, client.is_reset) == (True, False)


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_bug_on_the_backend_side_ends_only_its_exchange(world: World, is_answered: bool) -> None:
    client, other = world.begin(asked()), world.begin(asked())
    stream, other_stream = world.pool.streams
    if is_answered:
        stream.answer(200)
    stream.have_bug()
    other_stream.answer_whole(b"hello")

    assert (client.is_reset, other.body) == (True, b"hello")
    assert ["bug", ""] == [record.reason for record in world.records]
    assert not world.services.running


def test_an_exchange_ended_by_a_bug_is_counted_once(world: World) -> None:
    def fail(record: Record) -> None:
        raise RuntimeError(record.reason)

    world.services.access_log = fail
    client = world.begin(asked())
    with pytest.raises(RuntimeError):
        world.pool.stream.answer(end_stream=True)
    client.exchange.on_client_gone("given up after a bug in this proxy")

    assert (world.stats.route("shop").in_flight, sum(world.stats.route("shop").responses)) == (0, 1)


def test_a_bug_at_the_beginning_of_an_exchange_leaves_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("asked for")

    table = world.services.table
    # Before it is counted for a route,
    monkeypatch.setattr(world.services, "table", None)
    with pytest.raises(AttributeError):
        world.begin(asked())
    assert not world.services.running

    # and after.
    monkeypatch.setattr(world.services, "table", table)
    monkeypatch.setattr(world.pool, "request", fail)
    with pytest.raises(RuntimeError):
        world.begin(asked())
    assert not world.services.running
    assert world.stats.route("shop").in_flight == 0


# -- what is counted for a backend -------------------------------------------------------------------------------------


def outcomes(world: World, key: str = "http://192.0.2.10:80") -> list[int]:
    backend = world.stats.backends.get(key)
    return [] if backend is None else backend.responses


@pytest.mark.parametrize(
    ("status_code", "counted"), [(204, [0, 0, 1, 0, 0, 0]), (404, [0, 0, 0, 0, 1, 0]), (999, [0, 0, 0, 0, 0, 1])]
)
def test_a_response_is_counted_for_its_backend_with_the_time_it_took(
    world: World, status_code: int, counted: list[int]
) -> None:
    world.begin(asked())
    world.wait(0.3)
    world.pool.stream.answer(status_code, end_stream=True)

    backend = world.stats.backends["http://192.0.2.10:80"]
    assert backend.responses == counted
    assert backend.durations == world.stats.route("shop").durations
    assert abs(backend.duration_sum_s - 0.3) < 1e-9


def test_our_own_answer_about_a_backend_and_a_client_that_leaves_are_counted_for_it(world: World) -> None:
    world.begin(asked())
    world.pool.stream.fail(Reason.REFUSED)
    world.begin(asked()).leave()

    assert outcomes(world) == [1, 0, 0, 0, 0, 1]


def test_a_request_that_is_repeated_counts_once_for_its_backend(make_world: MakeWorld) -> None:
    world = make_world(config('"retry": {"codes": [503], "attempts": 1, "backoff": "1ms"},'))
    world.begin(asked())
    world.pool.stream.answer(503, end_stream=True)
    world.wait(1.0)
    world.pool.stream.answer(200, end_stream=True)

    assert outcomes(world) == [0, 0, 1, 0, 0, 0]


def test_redirects_are_counted_for_no_backend(make_world: MakeWorld) -> None:
    world = make_world(config('"filters": {"requestRedirect": {"scheme": "https"}},', backend=""))
    world.begin(asked())

    assert world.stats.route("shop").responses == [0, 0, 0, 1, 0, 0]
    assert world.stats.backends == {}
