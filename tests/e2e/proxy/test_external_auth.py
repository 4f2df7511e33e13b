"""Requests that an authorizer has to allow first: nginx, which identifies the user by a cookie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.e2e.proxy.doors import through_both_doors
from tests.support.gateway import Gateway, route_to
from tests.support.programs import curl
from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.servers import Server, nginx

LOCATIONS = """
location /ask/ {
    if ($http_cookie = "session=ann") { set $user ann; }
    if ($http_cookie = "") { return 302 https://login.example/?back=$http_x_forwarded_proto://$host$request_uri; }
    if ($user = "") { return 401 "who are you?"; }
    add_header Remote-User $user;
    add_header Set-Cookie "seen=1";
    return 200 "welcome";
}
"""
AUTH = {"path": "/ask", "allowedHeaders": ["Cookie", "X-Forwarded-Proto"], "allowedResponseHeaders": ["Remote-User"]}


@pytest.fixture(scope="module")
def authorizer() -> Iterator[Server]:
    with nginx(locations=LOCATIONS) as server:
        yield server


def guarded(authorizer: str, backend: str) -> dict[str, Any]:
    return route_to(backend, filters={"externalAuth": {"backend": {"address": authorizer}, **AUTH}})


@through_both_doors
def test_an_allowed_request_is_forwarded_with_the_user_that_the_authorizer_names(
    gateway: Gateway, authorizer: Server
) -> None:
    with RecordingBackend() as backend:
        gateway.serve(guarded(authorizer.address, backend.address))
        claims = {"Cookie": "session=ann", "Remote-User": "root", "Remote_User": "root"}
        body = b"x" * 300_000

        replies = [requests.post(gateway.url_of("/a?b=c"), data=body, headers=claims, timeout=30) for _ in range(5)]

        assert [reply.status_code for reply in replies] == [200] * 5
        assert [reply.headers["Set-Cookie"] for reply in replies] == ["seen=1"] * 5
        for received in backend.received:
            assert (received.method, received.target, received.body) == ("POST", "/a?b=c", body)
            assert received.value("remote-user") == "ann"
            assert received.values("remote_user") == received.values("set-cookie") == []


@through_both_doors
def test_a_denied_request_gets_the_authorizers_response_and_does_not_reach_the_backend(
    gateway: Gateway, authorizer: Server
) -> None:
    with RecordingBackend() as backend:
        gateway.serve(guarded(authorizer.address, backend.address))
        stranger = requests.put(gateway.url_of("/a?b"), data=b"x" * 300_000, timeout=30, allow_redirects=False)
        impostor = requests.get(gateway.url_of("/a"), headers={"Cookie": "session=eve"}, timeout=30)

        assert stranger.status_code == 302
        assert stranger.headers["Location"].startswith("https://login.example/?back=http")
        assert stranger.headers["Location"].endswith("/ask/a?b")
        assert (impostor.status_code, impostor.text) == (401, "who are you?")
        assert backend.received == []


def test_requests_over_http_2_are_authorized_too(gateway: Gateway, authorizer: Server) -> None:
    with RecordingBackend() as backend:
        gateway.serve(guarded(authorizer.address, backend.address))
        status_codes = [
            curl(
                "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}", "-b", cookie, gateway.url_of("/a")
            ).stdout
            for cookie in ("session=ann", "session=eve")
        ]

        assert status_codes == [b"200", b"401"]
        assert [received.value("remote-user") for received in backend.received] == ["ann"]


def test_authorization_requests_share_kept_connections_whether_responses_have_bodies_or_not(gateway: Gateway) -> None:
    def allow(received: Received) -> Reply:
        return Reply(chunks=(b"wel", b"come") if received.method == "GET" else ())

    with RecordingBackend("authorizer", allow) as authorizer, RecordingBackend() as backend:
        gateway.serve(guarded(authorizer.address, backend.address))
        with requests.Session() as session:
            for method in ("GET", "HEAD", "POST", "GET", "DELETE"):
                assert session.request(method, gateway.url_of("/"), timeout=30).status_code == 200

        assert len(authorizer.received) == len(backend.received) == 5
        assert [received.value("content-length") for received in authorizer.received] == ["0"] * 5
        assert (authorizer.connections, backend.connections) == (1, 1)


def test_requests_are_answered_502_while_the_authorizer_is_unreachable(gateway: Gateway, authorizer: Server) -> None:
    with RecordingBackend() as backend:
        gateway.serve(guarded("127.0.0.1:1", backend.address))
        reply = requests.get(gateway.url_of("/"), headers={"Cookie": "session=ann"}, timeout=30)

        assert reply.status_code == 502
        line = gateway.access_line(reply.headers["x-request-id"])
        assert line["reason"] == "refused"
        assert line["detail"].startswith("asking for authorization: ")
        assert backend.received == []
