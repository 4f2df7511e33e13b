"""Which listener gets a request of the tunnel: by the scheme that the edge reports, over all Gateways on it."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.e2e.tunnel.connector import Connector
from tests.support.gateway import route_to
from tests.support.recordingbackend import RecordingBackend

OLD, NEW = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"


def http(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "tunnel": True, "publicPort": 80, **fields}


def https(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "tunnel": True, "publicPort": 443, "protocol": "HTTPS", **fields}


def saying(text: str, *listeners: str) -> dict[str, Any]:
    """A route for every host that responds with this text."""
    return {"name": text, "listeners": list(listeners), "rules": [{"respond": {"statusCode": 200, "body": text}}]}


TO_HTTPS: dict[str, Any] = {
    "name": "to-https",
    "listeners": ["web"],
    "rules": [{"filters": {"requestRedirect": {"scheme": "https", "statusCode": 301}}}],
}


def said(proxy: Connector, host: str = "a.example") -> tuple[str, str]:
    """The responses to a client over http and to one over https; for errors, the status codes."""
    replies = [proxy.ask(host=host, is_secure=is_secure) for is_secure in (False, True)]
    http_text, https_text = (reply.text if reply.ok else str(reply.status_code) for reply in replies)
    return http_text, https_text


def follow(proxy: Connector, url: str) -> list[requests.Response]:
    """As a browser would whose DNS resolves to the edge; fails where it would give up."""
    replies: list[requests.Response] = []
    while len(replies) < 5:
        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        replies.append(proxy.ask(f"/{path}", host=host, is_secure=scheme == "https"))
        if not replies[-1].is_redirect:
            return replies
        url = replies[-1].headers["location"]
    raise AssertionError(f"redirected for ever, the last time to {url}")


def test_a_redirect_to_https_beside_the_application_does_not_loop(proxy: Connector, backend: RecordingBackend) -> None:
    listeners = [http("web"), https("secure")]
    proxy.put(
        proxy.document(TO_HTTPS, route_to(backend.address, name="app", listeners=["secure"]), listeners=listeners)
    )
    moved, shown = follow(proxy, "http://a.example/cart?x=1")
    assert (moved.status_code, moved.headers["location"]) == (301, "https://a.example/cart?x=1")
    assert shown.status_code == 200
    (received,) = backend.received
    assert received.value("x-forwarded-proto") == "https"


def test_a_client_cannot_say_that_it_came_by_https(proxy: Connector, backend: RecordingBackend) -> None:
    listeners = [http("web"), https("secure")]
    proxy.put(
        proxy.document(TO_HTTPS, route_to(backend.address, name="app", listeners=["secure"]), listeners=listeners)
    )
    hints = {"X-Forwarded-Proto": "https", "Cf-Visitor": '{"scheme":"https"}', "X-Forwarded-Port": "443"}
    asked = {"Host": "a.example", **hints}
    reply = requests.get(f"http://{proxy.edge.front}/", headers=asked, timeout=30, allow_redirects=False)
    assert reply.status_code == 301
    assert not backend.received


@pytest.mark.parametrize("only", [http("only"), https("only")], ids=["http", "https"])
def test_a_gateway_with_one_listener_gets_both_schemes(
    proxy: Connector, backend: RecordingBackend, only: dict[str, Any]
) -> None:
    proxy.put(proxy.document(route_to(backend.address, listeners=["only"]), listeners=[only]))
    for is_secure, scheme, port in ((False, "http", "80"), (True, "https", "443")):
        assert proxy.ask(is_secure=is_secure).status_code == 200
        received = backend.received[-1]
        assert received.value("x-forwarded-proto") == scheme
        assert received.value("x-forwarded-port") in (None, port)


@pytest.mark.parametrize("is_old_first", [True, False])
def test_the_older_of_two_gateways_with_one_host_gets_its_requests(proxy: Connector, is_old_first: bool) -> None:
    old = http("old", gateway="b", createdAt=OLD, hostname="a.example")
    new = http("new", gateway="a", createdAt=NEW, hostname="a.example")
    listeners = [old, new] if is_old_first else [new, old]
    proxy.put(proxy.document(saying("of-old", "old"), saying("of-new", "new"), listeners=listeners))
    assert said(proxy) == ("of-old", "of-old")


def test_a_gateway_without_creation_time_ranks_last_and_ties_are_broken_by_name(proxy: Connector) -> None:
    routes = [saying(f"of-{name}", name) for name in "abc"]
    listeners = [http("b", gateway="b"), http("a", gateway="a"), http("c", gateway="c", createdAt=NEW)]
    proxy.put(proxy.document(*routes, listeners=listeners))
    assert said(proxy) == ("of-c", "of-c")
    proxy.put(proxy.document(*routes[:2], listeners=listeners[:2]))
    assert said(proxy) == ("of-a", "of-a")


def test_a_more_specific_hostname_wins_over_an_older_gateway_and_is_isolated(proxy: Connector) -> None:
    listeners = [
        http("any", gateway="old", createdAt=OLD),
        http("wild", gateway="mid", createdAt=NEW, hostname="*.example"),
        http("exact", gateway="new", createdAt=NEW, hostname="a.example"),
    ]
    proxy.put(proxy.document(saying("any", "any"), saying("wild", "wild"), listeners=listeners))
    assert said(proxy, "b.example") == ("wild", "wild")
    assert said(proxy, "elsewhere.test") == ("any", "any")
    assert said(proxy, "a.example") == ("404", "404"), "the exact listener has no route; others are not asked"


def test_each_gateway_routes_each_scheme_to_its_listener_of_that_port(proxy: Connector) -> None:
    listeners = [
        http("old-web", gateway="old", createdAt=OLD, hostname="a.example"),
        http("new-web", gateway="new", createdAt=NEW, hostname="b.example"),
        https("new-secure", gateway="new", createdAt=NEW, hostname="a.example"),
    ]
    routes = [saying(name, name) for name in ("old-web", "new-web", "new-secure")]
    proxy.put(proxy.document(*routes, listeners=listeners))
    assert said(proxy) == ("old-web", "old-web"), "the old one has port 80 alone, so it gets both"
    assert said(proxy, "b.example") == ("new-web", "404"), "the new one has both, so each gets its own"


def test_a_listener_that_is_not_for_the_tunnel_gets_none_of_its_requests(proxy: Connector) -> None:
    port = proxy.doors.clear.number
    listeners = [{"name": "direct", "address": "127.0.0.1", "port": port}, http("tunnel", hostname="a.example")]
    proxy.put(proxy.document(saying("direct", "direct"), saying("tunnel", "tunnel"), listeners=listeners))
    assert said(proxy) == ("tunnel", "tunnel")
    assert said(proxy, "b.example") == ("404", "404")
    assert requests.get(f"http://127.0.0.1:{port}/", timeout=30).text == "direct"
