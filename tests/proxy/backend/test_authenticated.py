"""Connections that belong to one client: NTLM and Negotiate authenticate connections, not requests."""

import threading

import pytest

from proxy import document
from proxy.backend.stream import Wish
from proxy.heads import Fields
from tests.proxy.backend.servers import OK, PATIENCE_S, Conn, backend
from tests.proxy.backend.world import Answer, World, address_of, one, world

NTLM: Fields = [(b"authorization", b"NTLM TlRMTVNTUAAB")]
ALICE, BOB = object(), object()
"""Connections of clients."""


def tell_place(conn: Conn) -> None:
    conn.serve(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % conn.place)


def place_of(answer: Answer) -> int:
    return int(answer.body)


def test_a_connection_that_a_client_has_authenticated_carries_no_request_of_another() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        alice = [w.fetch(fields=NTLM, client=ALICE), w.fetch(client=ALICE)]
        others = [w.fetch(client=BOB), w.fetch(), w.fetch(client=ALICE), w.fetch(client=BOB)]

        assert [place_of(answer) for answer in alice] == [0, 0]
        assert [place_of(answer) for answer in others] == [1, 1, 0, 1]


def test_a_shared_connection_belongs_to_the_client_from_its_authentication_on() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.fetch(client=BOB), w.fetch(client=ALICE, fields=NTLM), w.fetch(client=BOB)]

        assert [place_of(answer) for answer in answers] == [0, 0, 1]


def test_an_authenticated_connection_is_closed_without_a_client_to_own_it() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.fetch(fields=NTLM), w.fetch(), w.fetch(fields=NTLM)]

        assert [place_of(answer) for answer in answers] == [0, 1, 1]
        assert w.backend().connections == 0


@pytest.mark.parametrize(
    "scheme",
    [b"Negotiate YII=", b"negotiate YII=", b"ntlm TlRM", b"NTLM", b"Kerberos YII=", b"CredSSP FgMB", b"Nego2 TkVH"],
)
def test_every_scheme_that_authenticates_connections_is_recognized(scheme: bytes) -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch(client=ALICE, fields=[(b"accept", b"*/*"), (b"authorization", scheme)])

        assert place_of(w.fetch(client=BOB)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        [(b"authorization", b"Basic bnRsbQ==")],
        [(b"authorization", b"Bearer NTLM")],
        [(b"x-authorization", b"NTLM abc")],
        [(b"note", b"authorization: NTLM abc")],
    ],
)
def test_a_scheme_that_authenticates_requests_leaves_the_connection_shared(fields: Fields) -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch(client=ALICE, fields=fields)

        assert place_of(w.fetch(client=BOB)) == 0


def test_a_second_authorization_field_is_not_overlooked() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch(client=ALICE, fields=[(b"authorization", b"Basic YTpi"), *NTLM])

        assert place_of(w.fetch(client=BOB)) == 1


def test_the_address_with_the_connection_of_the_client_is_preferred() -> None:
    with backend(tell_place) as first, backend(tell_place) as second, world() as w:
        w.use(document.Backend(name="b", addresses=(first.address, second.address)))
        told = w.fetch(client=ALICE, fields=NTLM)
        again = [w.fetch(client=ALICE) for _ in range(4)]
        others = [w.fetch(client=BOB) for _ in range(2)]

        assert told.request is not None
        assert {a.request.address for a in again if a.request is not None} == {told.request.address}
        assert {a.request.address for a in others if a.request is not None} == {first.address, second.address}


def test_a_retry_of_a_client_uses_neither_its_kept_connection_nor_an_address_to_avoid() -> None:
    with backend(tell_place) as first, backend(tell_place) as second, world() as w:
        w.use(document.Backend(name="b", addresses=(first.address, second.address)))
        told = w.fetch(client=ALICE, fields=NTLM)
        elsewhere = w.fetch(client=ALICE, wish=Wish(avoid=(address_of(told),)))

        assert address_of(elsewhere) != address_of(told)

        w.use(one(address_of(told)))
        anew = w.fetch(client=ALICE, wish=Wish(needs_new_connection=True))

        assert (address_of(anew), place_of(told), place_of(anew)) == (address_of(told), 0, 1)
        assert place_of(w.fetch(client=ALICE)) == 0


def test_of_two_connections_that_a_client_has_authenticated_one_is_kept() -> None:
    """Its next request can use only one. A client over HTTP/2 may have sent both requests at once."""
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.get(fields=NTLM, client=ALICE) for _ in range(2)]
        w.until(lambda: all(answer.is_over for answer in answers))

        assert sorted(map(place_of, answers)) == [0, 1]
        assert w.backend().connections == 1


def test_an_owned_connection_is_closed_to_make_room_at_the_limit() -> None:
    with backend(tell_place) as peer, world() as w:
        circuit = document.Circuit(max_connections=1)
        w.use(document.Backend(name="b", addresses=(peer.address,), circuit=circuit))
        answers = [w.fetch(client=ALICE, fields=NTLM), w.fetch(client=BOB), w.fetch(client=ALICE)]

        assert [place_of(answer) for answer in answers] == [0, 1, 1]


@pytest.mark.parametrize("addresses", [1, 2], ids=["at the same address", "at another address"])
def test_a_connection_that_becomes_owned_makes_room_for_a_request_that_waits(addresses: int) -> None:
    go_on = threading.Event()

    def answer_later(conn: Conn) -> None:
        while conn.request() is not None:
            assert go_on.wait(PATIENCE_S)
            conn.send(OK)

    with backend(answer_later) as first, backend(answer_later) as second, world() as w:
        circuit = document.Circuit(max_connections=1)
        used = (first.address, second.address)[:addresses]
        w.use(document.Backend(name="b", addresses=used, circuit=circuit))
        told = w.get(fields=NTLM, client=ALICE)
        w.until(lambda: told.is_open_told == 1)
        waiting = w.get(client=BOB)
        go_on.set()
        w.until(lambda: waiting.is_over)

        assert (told.status_code, waiting.status_code) == (200, 200)


def test_shared_connections_at_any_address_make_room_before_owned_ones() -> None:
    with backend(tell_place) as first, backend(tell_place) as second, world() as w:
        circuit = document.Circuit(max_connections=2)
        w.use(document.Backend(name="b", addresses=(first.address, second.address), circuit=circuit))
        begun = w.fetch(client=BOB)
        told = w.fetch(client=ALICE, fields=NTLM)
        others = [w.fetch(client=BOB) for _ in range(4)]
        again = w.fetch(client=ALICE)

        assert (address_of(begun), address_of(told)) == (second.address, first.address)
        assert {address_of(answer) for answer in others} == {first.address, second.address}
        assert (address_of(told), place_of(told)) == (address_of(again), place_of(again))


def test_an_owned_connection_that_the_backend_closes_is_forgotten() -> None:
    def serve_once(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % conn.place)

    with backend(serve_once) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch(client=ALICE, fields=NTLM)
        until_none_is_open(w)

        assert place_of(w.fetch(client=ALICE)) == 1


def test_an_owned_connection_is_closed_with_its_client_only() -> None:
    with backend(tell_place) as first, backend(tell_place) as second, world() as w:
        w.use(one(first.address), one(second.address, "c"))
        for key in ("b", "c"):
            w.fetch(key, client=ALICE, fields=NTLM)
        w.fetch(client=BOB, fields=NTLM)
        w.pools.forget_client(BOB)
        assert [w.backend(key).connections for key in ("b", "c")] == [1, 1]
        w.pools.forget_client(ALICE)
        w.pools.forget_client(object())

        assert [w.backend(key).connections for key in ("b", "c")] == [0, 0]


def test_the_idle_timeout_applies_to_owned_connections() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="20s")
        w.fetch(client=ALICE, fields=NTLM)
        assert w.backend().connections == 1
        w.pass_time(21)

        assert w.backend().connections == 0


def test_draining_closes_owned_connections() -> None:
    with backend(tell_place) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch(client=ALICE, fields=NTLM)
        w.pools.drain()
        until_none_is_open(w)
        w.fetch(client=ALICE, fields=NTLM)

        until_none_is_open(w)


def until_none_is_open(w: World) -> None:
    w.until(lambda: w.backend().connections == 0)
