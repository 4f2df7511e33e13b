"""A backend that authenticates connections, as Windows' do by NTLM: no client may be taken for another."""

import http.client

import pytest

from tests.e2e.proxy.doors import through_both_doors_alone
from tests.support.gateway import Gateway, route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply

DEADLINE_S = 20.0
CHALLENGE = (("WWW-Authenticate", "NTLM challenge"),)


class Domain:
    """Three steps on one connection: hello, the challenge, the user's answer. Then the connection is that user's."""

    def __init__(self) -> None:
        self._challenged: set[int] = set()
        self._users: dict[int, str] = {}

    def respond(self, received: Received) -> Reply:
        _, _, said = (received.value("authorization") or "").partition(" ")
        if said == "hello":
            self._challenged.add(received.connection)
            return Reply(401, headers=CHALLENGE)
        if said and received.connection in self._challenged:
            self._users[received.connection] = said
        user = self._users.get(received.connection)
        return Reply(401, headers=(("WWW-Authenticate", "NTLM"),)) if user is None else Reply(200, body=user.encode())


def ask(client: http.client.HTTPConnection, said: str = "") -> tuple[int, bytes]:
    client.request("GET", "/", headers={"Host": "a.example", **({"Authorization": f"NTLM {said}"} if said else {})})
    response = client.getresponse()
    return response.status, response.read()


def log_in(client: http.client.HTTPConnection, user: str) -> tuple[int, bytes]:
    ask(client)
    ask(client, "hello")
    return ask(client, user)


@pytest.fixture
def domain(backend: RecordingBackend) -> RecordingBackend:
    backend.respond = Domain().respond
    return backend


def test_a_users_connection_stays_authenticated_and_no_other_client_shares_it(
    lone_gateway: Gateway, domain: RecordingBackend
) -> None:
    lone_gateway.serve(route_to(domain.address))
    alice, bob, nobody = (http.client.HTTPConnection(*lone_gateway.clear, timeout=DEADLINE_S) for _ in range(3))

    assert log_in(alice, "alice") == (200, b"alice")
    assert ask(nobody)[0] == 401
    assert log_in(bob, "bob") == (200, b"bob")
    assert [ask(client) for client in (alice, bob, alice)] == [(200, b"alice"), (200, b"bob"), (200, b"alice")]
    assert ask(nobody)[0] == 401
    lone_gateway.serve(route_to(domain.address), route_to(domain.address, name="more", hostnames=["b.example"]))
    assert ask(alice) == (200, b"alice")
    for client in (alice, bob, nobody):
        client.close()


def test_a_backend_connection_of_a_user_closes_with_the_users_connection(
    lone_gateway: Gateway, domain: RecordingBackend
) -> None:
    lone_gateway.serve(route_to(domain.address))
    for user in ("alice", "bob"):
        client = http.client.HTTPConnection(*lone_gateway.clear, timeout=DEADLINE_S)
        assert log_in(client, user) == (200, user.encode())
        client.close()

    domain.wait_until_closed()


@through_both_doors_alone
def test_a_client_is_never_taken_for_the_user_before_it(lone_gateway: Gateway, domain: RecordingBackend) -> None:
    lone_gateway.serve(route_to(domain.address))
    alice, nobody = (http.client.HTTPConnection(*lone_gateway.clear, timeout=DEADLINE_S) for _ in range(2))

    for _ in range(3):
        log_in(alice, "alice")
        assert ask(nobody)[0] == 401
    for client in (alice, nobody):
        client.close()
