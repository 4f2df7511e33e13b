"""The packages together on one connection, as a connector uses them: registration and requests over real frames."""

from proxy import h2
from proxy.h2 import Caches, Connection, DataReceived, RequestReceived, ResponseReceived
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.tunnel.controlevents import Registered, Unregistered
from proxy.tunnel.controlstream import ControlStream
from proxy.tunnel.remoteconfig import NO_VERSION, decode_update, encode_answer, flaw_of
from proxy.tunnel.responses import (
    CONFIGURATION_HEAD,
    CONTROL_HEAD,
    FAILURE_HEAD,
    FROM_ORIGIN,
    SERIALIZED,
    ResponseHeads,
)
from proxy.tunnel.streams import UPGRADE, Entrance, StreamKind
from tests.proxy.tunnel import vectors
from tests.support.edge.controlserver import ControlServer, Finished, RegistrationAsked, UnregisterAsked
from tests.support.edge.serialized import deserialize


class Tunnel:
    """A minimal connector, and its edge."""

    def __init__(self) -> None:
        self.edge = Connection.client(Caches())
        self.connector = Connection.server(Caches())
        self.entrance = Entrance("198.51.100.1")
        self.heads = ResponseHeads()
        self.control = ControlStream(vectors.REGISTRATION)
        self.control_id = 0
        self.kinds: dict[int, StreamKind] = {}
        self.version = NO_VERSION
        self.control_events: list[object] = []
        self.trip()

    def open(self, *fields: tuple[bytes, bytes], end_stream: bool = False, scheme: bytes = b"https") -> int:
        return self.edge.open_stream(RequestHead(b"GET", scheme, b"app.example", b"/", list(fields)), end_stream)

    def trip(self) -> list[h2.Event]:
        """Exchanges bytes until neither side has any; returns the events of the edge."""
        heard: list[h2.Event] = []
        while self.edge.has_output or self.connector.has_output:
            for event in self.connector.receive(self.edge.data_to_send(), 0.0):
                self.on_event(event)
            heard += self.edge.receive(self.connector.data_to_send(), 0.0)
        return heard

    def on_event(self, event: h2.Event) -> None:
        if isinstance(event, RequestReceived):
            kind, _ = self.entrance.admit(event.head)
            self.kinds[event.stream_id] = kind
            if kind is StreamKind.CONTROL:
                self.control_id = event.stream_id
                self.control.register()
                self.connector.send_headers(event.stream_id, CONTROL_HEAD)
                self.say()
            elif kind is StreamKind.TCP:
                self.connector.send_headers(event.stream_id, FAILURE_HEAD, end_stream=True)
            elif kind is StreamKind.HTTP:
                fields = [(b"content-length", b"2"), (b"x-door", event.head.scheme)]
                self.connector.send_headers(event.stream_id, self.heads.encode(ResponseHead(200, fields)))
                self.connector.send_data(event.stream_id, b"ok", True)
        elif isinstance(event, DataReceived):
            self.connector.release(event.stream_id, len(event.data))
            if event.stream_id == self.control_id:
                self.control_events += self.control.receive(event.data)
                self.say()
            elif self.kinds[event.stream_id] is StreamKind.CONFIGURATION:
                update = decode_update(bytes(event.data))
                self.version = max(self.version, update.version)
                self.connector.send_headers(event.stream_id, CONFIGURATION_HEAD)
                answer = encode_answer(self.version, flaw_of(update))
                self.connector.send_data(event.stream_id, answer, True)

    def say(self) -> None:
        if data := self.control.data_to_send():
            self.connector.send_data(self.control_id, data)


def body_of(events: list[h2.Event]) -> bytes:
    return b"".join(bytes(event.data) for event in events if isinstance(event, DataReceived))


def head_of(events: list[h2.Event]) -> ResponseHead:
    (head,) = (event.head for event in events if isinstance(event, ResponseReceived))
    return head


def fields_of(events: list[h2.Event]) -> Fields:
    return deserialize(dict(head_of(events).fields)[SERIALIZED])


def test_a_connection_registers_answers_requests_and_unregisters() -> None:
    tunnel = Tunnel()
    server = ControlServer(is_scattered=True)
    control_id = tunnel.open((UPGRADE, b"control-stream"))
    first = tunnel.trip()

    assert (200, [(b"content-type", b"application/octet-stream")]) == (
        head_of(first).status_code,
        head_of(first).fields,
    )
    assert RegistrationAsked(1, vectors.REGISTRATION) == server.receive(body_of(first))[1]
    server.accept(1, vectors.DETAILS)
    raw = server.data_to_send()
    for start in range(0, len(raw), 10):
        tunnel.edge.send_data(control_id, raw[start : start + 10])
    finished = server.receive(body_of(tunnel.trip()))
    assert [Registered(vectors.DETAILS)] == tunnel.control_events
    assert [Finished(0, False), Finished(1, False)] == finished

    tunnel.open((b"x-forwarded-proto", b"http"), (b"cf-connecting-ip", b"192.0.2.7"), end_stream=True)
    answer = tunnel.trip()
    assert b"ok" == body_of(answer)
    assert [(b"content-length", b"2"), (b"x-door", b"http")] == fields_of(answer)
    assert [FROM_ORIGIN, (b"content-length", b"2")] == head_of(answer).fields[1:]

    tunnel.control.unregister()
    tunnel.say()
    assert [UnregisterAsked(1)] == server.receive(body_of(tunnel.trip()))
    server.acknowledge(1)
    tunnel.edge.send_data(control_id, server.data_to_send())
    tunnel.trip()
    assert Unregistered(None) == tunnel.control_events[-1]


def test_a_pushed_configuration_is_acknowledged_over_its_stream() -> None:
    tunnel = Tunnel()
    for version, applied in ((3, 3), (2, 3)):
        stream_id = tunnel.open((UPGRADE, b"update-configuration"))
        tunnel.edge.send_data(stream_id, b'{"version":%d,"config":{"ingress":[]}}' % version, True)
        answer = tunnel.trip()

        assert b'{"lastAppliedVersion":%d,"err":null}' % applied == body_of(answer)
        assert (200, [(b"content-type", b"application/json")]) == (
            head_of(answer).status_code,
            head_of(answer).fields,
        )


def test_a_private_routing_stream_is_refused_as_a_failure_of_the_connector() -> None:
    tunnel = Tunnel()
    tunnel.open((b"cf-cloudflared-proxy-src", b"192.0.2.7"))
    head = head_of(tunnel.trip())

    assert 502 == head.status_code
    assert [(b"cf-cloudflared-response-meta", b'{"src":"cloudflared"}'), (b"content-length", b"0")] == head.fields
