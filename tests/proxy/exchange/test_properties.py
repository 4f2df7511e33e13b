"""Whatever happens in any order: an exchange ends once, all credit is returned, no byte is lost or duplicated, and
nothing of a request that needs authorization is sent anywhere before permission.
"""

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy import document
from proxy.backend.stream import Reason
from proxy.exchange.exchange import Exchange
from proxy.exchange.untaken import LARGE_HEAD_FIELDS, large_head_bytes
from proxy.exchange.upgrade import accept_of
from proxy.heads import RequestHead
from tests.proxy.exchange.sides import GRPC, UNLIMITED, MemoryClient, MemoryStream, World, asked, config, config_of

POLICIES = (
    '"timeouts": {"request": "5s", "backendRequest": "2s"},'
    '"retry": {"attempts": 2, "codes": [503, 504], "maxBodyBytes": 12},'
    '"sessionPersistence": {"sessionName": "s"},'
)
MIRROR = '"filters": {"requestMirrors": [{"backend": {"address": "192.0.2.99:80"}}]},'
SERVER = "http://192.0.2.50:9091"
GUARDED = '"filters": {%s"externalAuth": {"backend": {"address": "192.0.2.50:9091"}}},'
LIMITS = '"limits": {"streamIdleTimeout": "20s"},'
CONFIGS = [
    config(more=LIMITS),
    config(POLICIES, more=LIMITS),
    config(MIRROR, more=LIMITS),
    config(POLICIES + MIRROR, more=LIMITS),
    config(POLICIES, more=LIMITS, backend='{"addresses": ["192.0.2.10:80", "192.0.2.11:80"], "protocol": "h2c"}'),
    config(GUARDED % "", more=LIMITS),
    config(POLICIES + GUARDED % '"requestMirrors": [{"backend": {"address": "192.0.2.99:80"}}], ', more=LIMITS),
    config_of("{" + LIMITS + '"listeners": [{"name": "web", "port": 80}]}'),
]
HEADS = [
    (asked(), True),
    (asked(b"HEAD"), True),
    (asked(b"PUT"), False),
    (asked(b"PUT", fields=[(b"x-%d" % number, b"") for number in range(LARGE_HEAD_FIELDS + 1)]), False),
    (asked(b"POST", fields=[GRPC]), False),
    (asked(fields=[(b"sec-websocket-key", b"a")], protocol=b"websocket"), True),
    (asked(b"CONNECT", protocol=b"websocket"), False),
]
PIECES = st.binary(max_size=9)
PLACES = st.integers(0, 3)
RARELY = st.sampled_from([False, False, False, True])
"""What ends an exchange is rare, so that enough happens before."""
WINDOWS = st.one_of(st.integers(0, 6), st.just(UNLIMITED))
Beginning = tuple[document.Document, tuple[RequestHead, bool], bool, int]
"""The document, the request, whether connections open at once, and what the client takes."""
BEGINNINGS: st.SearchStrategy[Beginning] = st.tuples(
    st.sampled_from(CONFIGS), st.sampled_from(HEADS), st.booleans(), WINDOWS
)


def _at(place: int, streams: list[MemoryStream]) -> MemoryStream:
    return streams[place % len(streams)]


class Interleavings(RuleBasedStateMachine):
    world: World
    client: MemoryClient

    @initialize(beginning=BEGINNINGS)
    def begin(self, beginning: Beginning) -> None:
        content, head, opens_at_once, window_bytes = beginning
        self.world = World(content)
        self.world.pool.opens_at_once = opens_at_once
        self.world.pool.addresses = ["192.0.2.10:80", "192.0.2.11:80"]
        self.sent = b""
        self.needs_leave = any(rule.filters.external_auth for route in content.routes for rule in route.rules)
        self.is_allowed = False
        self.is_complete = head[1]
        self.answered: dict[MemoryStream, bytes] = {}
        self.client = self.world.begin(*head)
        self.client.taken.window_bytes = window_bytes

    @precondition(lambda self: self.client.is_over)
    @rule(beginning=BEGINNINGS)
    def begin_another(self, beginning: Beginning) -> None:
        """Most exchanges end after a few steps, and then hardly anything can happen to them."""
        self.teardown()
        self.begin(beginning)

    # -- the client

    @property
    def may_send(self) -> bool:
        client = self.client
        is_switched = client.head is not None and client.head.status_code == 101
        return not client.is_over and not client.is_request_stopped and (not self.is_complete or is_switched)

    @precondition(lambda self: self.may_send)
    @rule(data=PIECES, end_stream=RARELY)
    def client_sends(self, data: bytes, end_stream: bool) -> None:
        if self.client.head is not None and self.client.head.status_code == 101:
            end_stream = False
        self.sent += data
        self.is_complete = end_stream
        self.client.send(data, end_stream)

    @precondition(lambda self: self.may_send and not self.is_complete)
    @rule()
    def client_ends_with_trailers(self) -> None:
        self.is_complete = True
        self.client.exchange.on_request_trailers([(b"checksum", b"1")])

    @precondition(lambda self: self.client.head is not None and not self.client.is_over)
    @rule(window_bytes=WINDOWS)
    def client_takes_more(self, window_bytes: int) -> None:
        self.client.widen(window_bytes)

    @precondition(lambda self: self.client.taken.is_owing)
    @rule()
    def client_socket_drains(self) -> None:
        self.client.taken.drain()

    @precondition(lambda self: not self.client.is_over)
    @rule(is_certain=RARELY)
    def client_leaves(self, is_certain: bool) -> None:
        if is_certain:
            self.client.leave()

    # -- the backends, mirrors among them

    @property
    def waiting(self) -> list[MemoryStream]:
        return [stream for stream in self.world.pool.streams if not stream.is_open and not stream.is_over]

    @property
    def owing(self) -> list[MemoryStream]:
        return [stream for stream in self.world.pool.streams if stream.taken.is_owing]

    @property
    def live(self) -> list[MemoryStream]:
        return [stream for stream in self.world.pool.streams if stream.is_open and not stream.is_over]

    @property
    def unanswered(self) -> list[MemoryStream]:
        return [stream for stream in self.live if stream not in self.answered]

    @property
    def answering(self) -> list[MemoryStream]:
        return [stream for stream in self.live if stream in self.answered]

    @precondition(lambda self: self.waiting)
    @rule(place=PLACES)
    def backend_opens(self, place: int) -> None:
        _at(place, self.waiting).open()

    @precondition(lambda self: self.live)
    @rule(place=PLACES, window_bytes=WINDOWS)
    def backend_takes_more(self, place: int, window_bytes: int) -> None:
        _at(place, self.live).widen(window_bytes)

    @precondition(lambda self: self.owing)
    @rule(place=PLACES)
    def backend_socket_drains(self, place: int) -> None:
        _at(place, self.owing).taken.drain()

    @precondition(lambda self: self.unanswered)
    @rule(place=PLACES)
    def backend_says_wait(self, place: int) -> None:
        _at(place, self.unanswered).interim(103)

    @precondition(lambda self: self.unanswered)
    @rule(place=PLACES, status_code=st.sampled_from([200, 200, 200, 101, 403, 503, 700]), end_stream=RARELY)
    def backend_answers(self, place: int, status_code: int, end_stream: bool) -> None:
        stream = _at(place, self.unanswered)
        fields = []
        if status_code == 101:
            key = stream.field(b"sec-websocket-key")
            if key is None or stream.head.method != b"GET":
                return
            fields, end_stream = [(b"sec-websocket-accept", accept_of(key))], False
        self.answered[stream] = b""
        self.is_allowed = self.is_allowed or (stream.key == SERVER and status_code == 200)
        stream.answer(status_code, fields, end_stream)

    @precondition(lambda self: self.unanswered)
    @rule(place=PLACES, data=st.binary(min_size=1, max_size=9), status_code=st.sampled_from([200, 403, 503]))
    def backend_answers_all_at_once(self, place: int, data: bytes, status_code: int) -> None:
        stream = _at(place, self.unanswered)
        if stream.head.method != b"HEAD" and stream.head.protocol is None:
            self.answered[stream] = data
            self.is_allowed = self.is_allowed or (stream.key == SERVER and status_code == 200)
            stream.answer_whole(data, status_code)

    @precondition(lambda self: self.answering)
    @rule(place=PLACES, data=PIECES, end_stream=RARELY)
    def backend_sends(self, place: int, data: bytes, end_stream: bool) -> None:
        stream = _at(place, self.answering)
        self.answered[stream] += data
        stream.send(data, end_stream)

    @precondition(lambda self: self.answering)
    @rule(place=PLACES)
    def backend_ends_with_trailers(self, place: int) -> None:
        _at(place, self.answering).end_with([(b"grpc-status", b"0")])

    @precondition(lambda self: self.live)
    @rule(place=PLACES, reason=st.sampled_from(Reason), is_unprocessed=st.booleans(), was_reused=st.booleans())
    def backend_fails(self, place: int, reason: Reason, is_unprocessed: bool, was_reused: bool) -> None:
        _at(place, self.live).fail(reason, is_unprocessed=is_unprocessed, was_reused=was_reused)

    @precondition(lambda self: self.live)
    @rule(place=PLACES, kind=st.sampled_from(["fail", "answer", "end"]))
    def backend_will_surprise(self, place: int, kind: str) -> None:
        stream = _at(place, self.live)
        stream.surprise = partial(self._surprise, stream, kind)

    def _surprise(self, stream: MemoryStream, kind: str) -> None:
        if stream.is_over:
            return
        if kind == "fail":
            stream.fail(was_reused=True)
        elif stream in self.answered:
            stream.send(b"", end_stream=True)
        else:
            self.answered[stream] = b""
            stream.answer(403, end_stream=kind == "end")

    @precondition(lambda self: not self.client.is_over)
    @rule(seconds=st.sampled_from([0.0, 0.05, 1.0, 3.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.world.services.untaken.waiting)
    @rule()
    def too_much_waits(self) -> None:
        """In the whole worker, and it is the exchange's turn to be given up."""
        for exchange in list(self.world.services.untaken.waiting):
            exchange.leave_behind()

    # -- what must hold

    @invariant()
    def it_ends_exactly_once(self) -> None:
        assert len(self.world.records) == (1 if self.client.is_over else 0)

    @invariant()
    def it_is_counted_while_it_runs(self) -> None:
        running = sum(route.in_flight for route in self.world.stats.routes.values())
        assert running == (0 if self.client.is_over else 1)

    @invariant()
    def backends_get_the_beginning_of_what_was_sent(self) -> None:
        for stream in self.world.pool.streams:
            assert self.sent.startswith(stream.body)
            if stream.is_request_ended and not stream.has_no_body:
                assert stream.body == self.sent

    @invariant()
    def nothing_leaves_without_leave(self) -> None:
        streams = self.world.pool.streams
        if self.needs_leave and not self.is_allowed:
            assert {stream.key for stream in streams} <= {SERVER}
        assert [stream for stream in streams if stream.key == SERVER and not stream.has_no_body] == []

    @invariant()
    def what_waits_is_counted_while_it_waits(self) -> None:
        services = self.world.services
        backlog, exchanges = services.untaken, [one for one in services.running if isinstance(one, Exchange)]
        relays = [relay for one in exchanges for relay in (one._upload, one._download) if relay is not None]
        bodies_bytes = sum(relay.held_bytes for relay in relays)
        heads_bytes = sum(large_head_bytes(one._head) for one in exchanges)
        assert backlog.held_bytes == self.world.loop.unsent.size_bytes == bodies_bytes + heads_bytes
        assert list(backlog.waiting) == [one for one in exchanges if backlog.held_bytes]
        assert services.kept.size_bytes == sum(len(one._upload._kept) for one in exchanges if one._upload is not None)

    @invariant()
    def a_complete_response_is_that_of_one_backend(self) -> None:
        client = self.client
        if client.is_ended and self.world.record.reason == "":
            assert client.body in [
                body
                for stream, body in self.answered.items()
                if stream.key not in ("http://192.0.2.99:80", SERVER) and not stream.is_cancelled
            ]

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        if not self.client.is_over:
            self.client.leave()
        self.world.wait(100.0)
        self.client.taken.drain()
        for stream in self.world.pool.streams:
            stream.taken.drain()
        assert self.client.owed_bytes == 0
        assert [stream.owed_bytes for stream in self.world.pool.streams] == [0] * len(self.world.pool.streams)
        assert all(stream.is_over for stream in self.world.pool.streams)
        assert not self.world.services.running
        assert len(self.world.records) == 1
        self.world.close()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)
