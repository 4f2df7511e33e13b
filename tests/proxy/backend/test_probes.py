"""Active health: which addresses probes eject, and what they do not affect."""

import socket
import ssl
import threading
from collections.abc import Iterator, Sized
from contextlib import suppress
from typing import Any

import h2.events
import pytest
import trustme

from proxy import document
from proxy.backend import pools
from proxy.backend.balancer import Balancer
from proxy.backend.shared import Shared
from proxy.backend.stream import Reason
from tests.proxy.backend.h2peer import H2Peer, answers, speaks
from tests.proxy.backend.servers import OK, UNAVAILABLE, Behaviour, Conn, backend, dead_port, of
from tests.proxy.backend.world import PATIENCE_S, World, address_of, world
from tests.support.limits import out_of_descriptors

AUTHORITY = trustme.CA()


def test_an_address_whose_probes_fail_is_not_used_until_they_succeed() -> None:
    is_up = threading.Event()
    probes: list[bytes] = []

    def serve(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            if request.startswith(b"GET /health"):
                conn.send(OK if is_up.is_set() else UNAVAILABLE)
                # Not before: the test lets time pass when it sees it.
                probes.append(request)
            else:
                conn.send(OK)

    policy = document.ActiveHealth(path="/health", host="probe.example", interval="5s", unhealthy_threshold=2)
    with backend(serve) as peer, world() as w:
        w.use(of(peer, active_health=policy))
        w.until(lambda: len(probes) == 1)
        w.turns(20)
        assert w.fetch().status_code == 200
        w.pass_time(6)
        w.until(lambda: w.backend().ejected == 1)
        failure = w.fetch().failure
        assert failure is not None
        assert failure.reason is Reason.UNHEALTHY
        is_up.set()
        w.pass_time(6)
        w.until(lambda: w.backend().ejected == 0)

        assert w.fetch().status_code == 200
        assert b"Host: probe.example\r\n" in probes[0]
        assert peer.connections == 5
        assert (w.backend().requests, w.backend().connections_opened) == (2, 2)


def test_a_probe_without_a_response_fails_after_its_timeout() -> None:
    def stall(conn: Conn) -> None:
        conn.wait_for_end()

    policy = document.ActiveHealth(interval="5s", timeout="1s", unhealthy_threshold=1)
    with backend(stall) as peer, world() as w:
        w.use(of(peer, active_health=policy))
        w.until(lambda: peer.connections == 1)
        w.turns()
        w.pass_time(2)

        assert w.backend().ejected == 1


def each_timed_out(w: World, begun: Sized) -> Iterator[None]:
    """Three probes, 5 s apart, each after its timeout of 1 s; `begun` grows with each."""
    for count in range(1, 4):
        w.until(lambda count=count: len(begun) == count)  # type: ignore[misc]
        w.turns(20)
        w.pass_time(1)
        w.turns(20)
        yield
        w.pass_time(4)


def test_an_address_whose_health_page_never_ends_is_up_and_each_probe_has_its_own_connection() -> None:
    begun: list[Conn] = []

    def begin(conn: Conn) -> None:
        conn.send(OK[:-1])
        begun.append(conn)
        conn.wait_for_end()

    policy = document.ActiveHealth(interval="5s", timeout="1s", unhealthy_threshold=1)
    with backend(begin) as peer, world() as w:
        w.clock.stop()
        w.use(of(peer, active_health=policy))
        for _ in each_timed_out(w, begun):
            assert w.backend().ejected == 0


def test_no_more_of_a_health_page_is_read_than_64_kib() -> None:
    ended = threading.Event()

    def send_for_ever(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                conn.send(bytes(4096))
        ended.set()

    policy = document.ActiveHealth(interval="5s", unhealthy_threshold=1)
    with backend(send_for_ever) as peer, world() as w:
        w.clock.stop()  # so that no timeout ends the probe
        w.use(of(peer, active_health=policy))
        w.until(ended.is_set)

        assert w.backend().ejected == 0


@pytest.mark.parametrize(
    "page",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 40000\r\n\r\n" + bytes(40_000),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9c40\r\n%b\r\n0\r\nchecked: all\r\n\r\n" % bytes(40_000),
    ],
    ids=["40 KB", "with trailers"],
)
def test_probes_share_a_connection_as_long_as_they_read_whole_answers(page: bytes) -> None:
    probes: list[bytes] = []

    def serve(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            conn.send(page)
            probes.append(request)

    policy = document.ActiveHealth(interval="5s", timeout="1s")
    with backend(serve) as peer, world() as w:
        w.clock.stop()
        w.use(of(peer, active_health=policy))
        for _ in each_timed_out(w, probes):
            pass

        assert peer.connections == 1


def test_an_unreachable_address_is_marked_down() -> None:
    policy = document.ActiveHealth(interval="5s", unhealthy_threshold=2)
    with backend() as peer, world() as w:
        w.clock.stop()
        w.use(of(peer, f"127.0.0.1:{dead_port()}", active_health=policy))
        w.turns()
        w.pass_time(3)
        w.turns(20)
        assert w.backend().ejected == 0
        w.pass_time(5)
        w.until(lambda: w.backend().ejected == 1)

        assert [address_of(w.fetch()) for _ in range(4)] == [peer.address] * 4


def test_an_address_whose_probe_timed_out_is_probed_again_and_used_when_that_succeeds() -> None:
    """Over another connection: the first one may never respond."""
    probes: list[bytes] = []

    def stall_once(conn: Conn) -> None:
        if conn.place:
            probes_alone(probes)(conn)
        else:
            conn.wait_for_end()

    policy = document.ActiveHealth(path="/health", interval="5s", timeout="12s", unhealthy_threshold=1)
    with backend(stall_once) as peer, world() as w:
        w.clock.stop()
        w.use(of(peer, active_health=policy))
        w.until(lambda: peer.connections == 1)
        for _ in range(2):
            # One at a time.
            w.pass_time(5)
            w.turns(20)
        assert (w.backend().ejected, peer.connections) == (0, 1)
        w.pass_time(2)
        assert w.backend().ejected == 1
        w.pass_time(3)
        w.until(lambda: w.backend().ejected == 0 and len(probes) == 1)

        assert peer.connections == 2


@pytest.mark.parametrize("protocol", ["http", "h2c"])
def test_probes_and_requests_follow_a_name_whose_host_fails_its_probes_but_keeps_its_connections(protocol: str) -> None:
    is_leaving = threading.Event()

    def answer_as_long_as_asked(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            conn.send(UNAVAILABLE if is_leaving.is_set() and request.startswith(b"GET /health") else OK)

    def answer_over_http2(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            is_probe = dict(event.headers)[b":path"] == b"/health"
            peer.answer(event.stream_id, status=b"503" if is_leaving.is_set() and is_probe else b"200")

    behaviour = answer_as_long_as_asked if protocol == "http" else speaks(answer_over_http2)
    policy = document.ActiveHealth(path="/health", interval="10ms", timeout="1h", unhealthy_threshold=1)
    with backend(behaviour) as before, backend(Conn.serve if protocol == "http" else speaks()) as after:
        host = before

        def getaddrinfo(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host.host, host.port))]

        with world(getaddrinfo) as w:
            w.use(of("b.example:80", protocol=protocol, active_health=policy))
            w.fetch()
            w.until(lambda: before.connections == 2)
            host = after
            is_leaving.set()
            w.pass_time(31)
            w.until(lambda: after.connections == 1 and w.backend().ejected == 0)
            answer = w.fetch()

    assert answer.status_code == 200
    assert after.connections == 2


def test_probes_follow_a_name_to_another_host_while_the_former_one_keeps_its_connections() -> None:
    def fail_probes(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            conn.send(UNAVAILABLE if request.startswith(b"GET /health") else OK)

    policy = document.ActiveHealth(path="/health", interval="10ms", timeout="1h", unhealthy_threshold=1)
    with backend() as before, backend(fail_probes) as after:
        host = before

        def getaddrinfo(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host.host, host.port))]

        with world(getaddrinfo) as w:
            w.use(of("b.example:80", active_health=policy))
            w.until(lambda: before.connections == 1)
            host = after
            w.pass_time(31)
            w.until(lambda: w.told >= 2)
            w.pass_time(31)
            w.until(lambda: after.connections >= 1 and w.backend().ejected == 1)


def test_a_connection_that_carries_a_request_while_its_address_goes_down_is_closed_after_the_response() -> None:
    is_failing, may_answer = threading.Event(), threading.Event()

    def serve(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            if not request.startswith(b"GET /health"):
                assert may_answer.wait(PATIENCE_S)
            conn.send(UNAVAILABLE if is_failing.is_set() and request.startswith(b"GET /health") else OK)

    policy = document.ActiveHealth(path="/health", interval="10ms", unhealthy_threshold=1)
    with backend(serve) as peer, world() as w:
        w.use(of(peer, active_health=policy))
        answer = w.get()
        w.until(lambda: w.backend().connections == 1)
        is_failing.set()
        w.until(lambda: w.backend().ejected == 1)
        assert not answer.is_over
        may_answer.set()
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200
        assert w.backend().connections == 0


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_probe_over_http2_has_the_scheme_of_its_connection(is_tls: bool) -> None:
    """Backends may refuse any other scheme."""
    schemes: list[bytes] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            schemes.append(dict(event.headers)[b":scheme"])
        answers(peer, event)

    context, spec = None, document.BackendTLS(server_name="a.example", ca=AUTHORITY.cert_pem.bytes().decode())
    if is_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert("a.example").configure_cert(context)
        context.set_alpn_protocols(["h2"])
    options = {"protocol": "https", "tls": spec} if is_tls else {"protocol": "h2c"}
    with backend(speaks(note), tls=context) as peer, world() as w:
        w.use(of(peer, active_health=document.ActiveHealth(), **options))
        w.until(lambda: bool(schemes))

        assert schemes == [b"https" if is_tls else b"http"]


def test_a_removed_address_is_no_longer_probed() -> None:
    of_one: list[bytes] = []
    of_other: list[bytes] = []
    policy = document.ActiveHealth(path="/health", interval="5s")
    with backend(probes_alone(of_one)) as one, backend(probes_alone(of_other)) as other, world() as w:
        w.clock.stop()
        w.use(of(other, one, active_health=policy))
        w.turns()
        w.pass_time(3)
        w.until(lambda: len(of_one) == len(of_other) == 1)
        w.use(of(one, active_health=policy))
        for count in range(2, 6):
            w.turns()
            w.pass_time(5)
            w.until(lambda count=count: len(of_one) == count)  # type: ignore[misc]

        assert len(of_other) == 1


def test_changed_health_checks_change_the_probes() -> None:
    probes: list[bytes] = []

    def note(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            conn.send(OK)
            probes.append(request.split()[1])

    with backend(note) as peer, world() as w:
        for path in ("/health", "/ready"):
            w.use(of(peer, active_health=document.ActiveHealth(path=path)))
            w.until(lambda path=path: path.encode() in probes)  # type: ignore[misc]

        assert probes == [b"/health", b"/ready"]


def test_probes_end_with_their_backend() -> None:
    with backend() as peer, world() as w:
        w.use(of(peer, active_health=document.ActiveHealth(interval="5s")))
        w.until(lambda: peer.connections == 1)
        w.use()
        w.turns()
        w.until(lambda: w.backend().connections == 0)
        for _ in range(5):
            w.pass_time(6)
        w.turns(20)

        assert peer.connections == 1


def test_addresses_are_used_again_when_health_checks_are_removed() -> None:
    passive = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    active = document.ActiveHealth(unhealthy_threshold=1)
    with backend(lambda conn: conn.serve(UNAVAILABLE)) as peer, world() as w:
        w.use(of(peer, passive_health=passive, active_health=active))
        w.turns()
        w.until(lambda: w.backend().ejected == 1)
        w.use(of(peer))

        assert w.fetch().status_code == 503
        assert w.backend().ejected == 0


def test_an_ejected_address_stays_ejected_until_passive_health_is_removed() -> None:
    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend(lambda conn: conn.serve(UNAVAILABLE)) as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        assert w.fetch().status_code == 503
        w.use(of(peer, passive_health=policy, circuit=document.Circuit(max_requests=2)))
        assert w.fetch().failure is not None
        assert w.backend().ejected == 1
        w.use(of(peer))

        assert w.fetch().status_code == 503
        assert w.backend().ejected == 0


def test_an_address_that_is_down_may_be_ejected_too() -> None:
    """By a request that was running when it went down."""
    go_on = threading.Event()

    def serve(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            if request.startswith(b"GET /health"):
                conn.send(UNAVAILABLE)
            else:
                assert go_on.wait(PATIENCE_S)
                conn.reset()
                return

    passive = document.PassiveHealth(consecutive_failures=1, ejection_time="60s", max_ejected_percent=100)
    active = document.ActiveHealth(path="/health", interval="10s", timeout="5s", unhealthy_threshold=1)
    with backend(serve) as peer, world() as w:
        w.use(of(peer, passive_health=passive, active_health=active))
        running = w.get()
        w.until(lambda: w.backend().connections == 1)
        w.pass_time(11)
        w.until(lambda: w.backend().ejected == 1)
        assert not running.is_over
        go_on.set()
        w.until(lambda: running.is_over)

        assert running.failure is not None
        assert (w.backend().ejected, w.backend().ejections) == (1, 1)


def probes_alone(probes: list[bytes]) -> Behaviour:
    """Answers probes, and no other request."""

    def serve(conn: Conn) -> None:
        while (request := conn.request()) is not None:
            if request.startswith(b"GET /health"):
                try:
                    conn.send(OK)
                finally:
                    # Not before: tests let time pass when they see it.
                    probes.append(request)
            else:
                conn.wait_for_end()

    return serve


def test_probes_do_not_wait_at_the_limit_of_connections() -> None:
    probes: list[bytes] = []
    policy = document.ActiveHealth(path="/health", interval="80s", timeout="40s", unhealthy_threshold=1)
    circuit = document.Circuit(max_connections=1, max_pending=1)
    with backend(probes_alone(probes)) as peer, world() as w:
        w.use(of(peer, active_health=policy, circuit=circuit), connect_timeout="0s")
        w.until(lambda: len(probes) == 1)
        running = w.get()
        w.until(lambda: running.is_open_told == 1)
        waiting = w.get()
        for place in range(2, 5):
            w.pass_time(80)
            w.until(lambda seen=place: len(probes) == seen)  # type: ignore[misc]
            w.pass_time(50)

        assert not waiting.is_over
        assert w.backend().ejected == 0
        assert (w.backend().requests, w.backend().in_flight, w.backend().connections) == (2, 2, 1)


def test_a_lack_of_descriptors_is_not_a_failed_probe() -> None:
    probes: list[bytes] = []
    policy = document.ActiveHealth(path="/health", interval="80s", timeout="40s", unhealthy_threshold=1)
    with backend(probes_alone(probes)) as peer, world() as w:
        with out_of_descriptors():
            w.use(of(peer, active_health=policy))
            for _ in range(3):
                w.turns(20)
                w.pass_time(80)
            w.turns(20)
            assert w.backend().ejected == 0
        assert not probes
        w.pass_time(80)
        w.until(lambda: len(probes) == 1)

        assert w.backend().ejected == 0


def test_backends_of_one_document_are_probed_at_different_times() -> None:
    """All at once, thousands of them blocked the loop for a tenth of a second in each interval."""
    probes: list[bytes] = []
    policy = document.ActiveHealth(path="/health", interval="80s")
    draws = iter([0.25, 0.75])
    with backend(probes_alone(probes)) as peer, world(draw=lambda: next(draws)) as w:
        w.use(*(of(peer, name=name, active_health=policy) for name in ("one", "other")))
        w.turns(20)
        assert not probes
        w.pass_time(21)
        w.until(lambda: len(probes) == 1)
        w.pass_time(38)
        assert len(probes) == 1
        w.pass_time(2)
        w.until(lambda: len(probes) == 2)


def test_many_backends_with_probes_are_set_up_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Noted(Balancer):
        def __init__(self, shared: Shared, spec: document.Backend, *rest: Any) -> None:
            made.append(spec.name)
            super().__init__(shared, spec, *rest)

    monkeypatch.setattr(pools, "Balancer", Noted)
    policy, names = document.ActiveHealth(), [str(place) for place in range(300)]
    with world(draw=lambda: 0.9) as w:
        w.use(*(document.Backend(name=name, addresses=("b.test:80",), active_health=policy) for name in names))
        assert not made
        w.until(lambda: len(made) == len(names))
        w.turns()

        assert sorted(made) == sorted(names)


def test_unchanged_addresses_are_probed_however_often_the_document_changes() -> None:
    probes: list[bytes] = []
    policy = document.ActiveHealth(path="/health", interval="80s")
    with backend(probes_alone(probes)) as peer, world() as w:
        for _ in range(10):
            w.use(of(f"127.0.0.1:{dead_port()}", peer, active_health=policy))
            w.turns()
            w.pass_time(10)

        w.until(lambda: bool(probes))
