"""Which listener gets a request: hostnames on one port, isolation, and the choice for requests of the tunnel."""

from typing import Any

import pytest

from proxy import routing
from tests.support.routes import DOOR, path, request, route, table_of, taken

OLD, NEW = "2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"

LONGEST_NAME = b"a." * 126 + b"b"

ISOLATED = [
    {"name": "empty", "port": 8080},
    {"name": "wide", "port": 8080, "hostname": "*.example.com"},
    {"name": "narrow", "port": 8080, "hostname": "*.foo.example.com"},
    {"name": "exact", "port": 8080, "hostname": "abc.foo.example.com"},
]

HOSTS = [
    ("bar.com", "empty"),
    ("example.com", "empty"),
    ("bar.example.com", "wide"),
    ("a.b.example.com", "wide"),
    ("foo.example.com", "wide"),
    ("bar.foo.example.com", "narrow"),
    ("x.abc.foo.example.com", "narrow"),
    ("abc.foo.example.com", "exact"),
    ("ABC.foo.Example.com:1234", "exact"),
    ("abc.foo.example.com.", "exact"),
    ("[::1]:8080", "empty"),
    ("", "empty"),
]


@pytest.mark.parametrize(("host", "owner"), HOSTS)
def test_only_routes_of_the_most_specific_listener_are_considered(host: str, owner: str) -> None:
    names = [str(listener["name"]) for listener in ISOLATED]
    routes = [route(name, path(f"/{name}"), listeners=[name]) for name in names]
    table = table_of(*routes, listeners=ISOLATED)

    reached = {name: taken(table, request(f"{host}/{name}")) for name in names}

    assert {name: name if name == owner else "404 no_route" for name in names} == reached


@pytest.mark.parametrize("hostname", ["*.example.com", "a.example.com"])
def test_a_listener_with_a_hostname_takes_its_hosts_from_the_listener_without_one(hostname: str) -> None:
    listeners = [{"name": "empty", "port": 8080}, {"name": "some", "port": 8080, "hostname": hostname}]
    table = table_of(route("of-all", listeners=["empty"]), route("of-some", listeners=["some"]), listeners=listeners)

    assert "of-some" == taken(table, request("a.example.com/"))
    assert "of-all" == taken(table, request("example.com/"))


def test_a_host_without_listener_is_not_found() -> None:
    table = table_of(route("r"), listeners=[{"name": "a", "port": 8080, "hostname": "a.example"}])

    assert "r" == taken(table, request("a.example/"))
    assert "404 no_listener" == taken(table, request("b.example/"))
    assert "404 no_listener" == taken(table, request("a.example/"), "unknown door")


def test_listeners_on_one_address_share_a_door_whatever_its_spelling() -> None:
    """The kernel would distribute clients between two sockets of one address at random."""
    table = table_of(
        route("one", listeners=["one"]),
        route("other", listeners=["other"]),
        listeners=[
            {"name": "one", "port": 80, "address": "fd00::1", "hostname": "one.example"},
            {"name": "other", "port": 80, "address": "FD00:0::0001", "hostname": "other.example"},
        ],
    )
    door = routing.socket_door("fd00:0:0:0:0:0:0:1", 80)

    assert [door] == [name for name in table.doors if "tunnel" not in name]
    assert ["one", "other"] == [taken(table, request(f"{name}.example/"), door) for name in ("one", "other")]


def test_hosts_that_need_421_on_one_connection_have_different_listeners() -> None:
    """A door answers 421 when the host of the request and the SNI of the connection have different listeners."""
    table = table_of(
        route("r"),
        listeners=[
            {"name": "second", "port": 8080, "hostname": "second-example.org"},
            {"name": "rest", "port": 8080},
        ],
    )
    door = table.doors[DOOR]

    assert door.listener_for(b"example.org") is door.listener_for(b"unknown.org")
    assert door.listener_for(b"example.org") is not door.listener_for(b"second-example.org")


INTERSECTIONS = [
    ("very.specific.com", ["non.matching.com", "*.specific.com"], "very.specific.com", True),
    ("very.specific.com", ["non.matching.com", "*.specific.com"], "other.specific.com", False),
    ("*.wildcard.io", ["wildcard.io", "foo.wildcard.io", "a.b.wildcard.io"], "foo.wildcard.io", True),
    ("*.wildcard.io", ["wildcard.io", "foo.wildcard.io", "a.b.wildcard.io"], "a.b.wildcard.io", True),
    ("*.wildcard.io", ["wildcard.io", "foo.wildcard.io", "a.b.wildcard.io"], "wildcard.io", False),
    ("*.wildcard.io", ["*.foo.wildcard.io"], "a.foo.wildcard.io", True),
    ("*.wildcard.io", ["*.foo.wildcard.io"], "a.wildcard.io", False),
    ("*.foo.io", ["*.io"], "a.foo.io", True),
    ("*.foo.io", ["*.io"], "a.io", False),
    (None, ["a.com", "*.b.com"], "x.b.com", True),
    (None, ["a.com", "*.b.com"], "b.com", False),
    ("*.wildcard.io", ["wildcard.io"], "wildcard.io", False),
    ("equal.com", ["equal.com"], "equal.com", True),
    ("*.equal.com", ["*.equal.com"], "a.equal.com", True),
]


@pytest.mark.parametrize(("hostname", "hostnames", "host", "is_served"), INTERSECTIONS)
def test_hostnames_of_listener_and_route_intersect(
    hostname: str | None, hostnames: list[str], host: str, is_served: bool
) -> None:
    listener = {"name": "l", "port": 8080, **({"hostname": hostname} if hostname else {})}
    table = table_of(route("r", hostnames=hostnames), listeners=[listener])

    assert is_served == (taken(table, request(f"{host}/")) == "r")


def test_a_port_serves_its_own_listeners_only() -> None:
    listeners = [{"name": "one", "port": 8080}, {"name": "two", "port": 8081, "address": "::1"}]
    table = table_of(route("r1", listeners=["one"]), route("r2", listeners=["two"]), listeners=listeners)

    assert "r1" == taken(table, request("h/"))
    assert "r2" == taken(table, request("h/"), routing.socket_door("::1", 8081))
    assert "[::1]:8081" == routing.socket_door("::1", 8081)


def test_a_tunnel_only_listener_has_no_port() -> None:
    table = table_of(route("r"), listeners=[tunnel("https", 443)])

    assert {routing.TUNNEL_HTTP, routing.TUNNEL_HTTPS} == set(table.doors)


def test_without_listeners_the_tunnel_serves_every_route() -> None:
    table = table_of(route("r", hostnames=["a.example"]), listeners=[])

    assert "r" == taken(table, request("a.example/"), routing.TUNNEL_HTTP)
    assert "r" == taken(table, request("a.example/"), routing.TUNNEL_HTTPS)


def tunnel(name: str, port: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "publicPort": port, "tunnel": True, **fields}


def test_redirect_to_https_on_80_with_the_application_on_443_does_not_loop() -> None:
    redirect = {"backends": [], "filters": {"requestRedirect": {"scheme": "https"}}}
    table = table_of(
        route("to-https", listeners=["http"], rule=redirect),
        route("app", listeners=["https"]),
        listeners=[tunnel("http", 80), tunnel("https", 443)],
    )

    assert "302 https://a.example/x" == taken(table, request("a.example/x"), routing.TUNNEL_HTTP)
    assert "app" == taken(table, request("a.example/x"), routing.TUNNEL_HTTPS)


def test_a_tunnel_gateway_with_an_http_listener_only_gets_https_requests_too() -> None:
    change = {"type": "ReplaceFullPath", "replaceFullPath": "/n"}
    redirect = {"backends": [], "filters": {"requestRedirect": {"path": change}}}
    table = table_of(route("app"), route("old", path("/o"), rule=redirect), listeners=[tunnel("http", 80)])

    assert "app" == taken(table, request("a.example/"), routing.TUNNEL_HTTP)
    assert "app" == taken(table, request("a.example/"), routing.TUNNEL_HTTPS)
    assert "302 https://a.example/n" == taken(table, request("a.example/o"), routing.TUNNEL_HTTPS)
    assert "302 http://a.example/n" == taken(table, request("a.example/o"), routing.TUNNEL_HTTP)


def test_the_oldest_gateway_with_the_same_host_gets_it_in_any_order() -> None:
    young = tunnel("young", 443, gateway="ns/a", createdAt=NEW, hostname="*.example")
    old = tunnel("old", 443, gateway="ns/b", createdAt=OLD, hostname="*.example")
    undated = tunnel("undated", 443, gateway="ns/0", hostname="*.example")
    routes = [route(name, listeners=[name]) for name in ("young", "old", "undated")]

    for listeners in ([young, old, undated], [undated, old, young]):
        assert "old" == taken(table_of(*routes, listeners=listeners), request("a.example/"), routing.TUNNEL_HTTPS)


def test_a_listener_without_a_creation_time_ranks_last_whatever_its_gateway() -> None:
    listeners = [
        tunnel("old-http", 80, gateway="ns/old", createdAt=OLD),
        tunnel("undated-https", 443, gateway="ns/old"),
        tunnel("young-https", 443, gateway="ns/young", createdAt=NEW),
    ]
    routes = [route(name, listeners=[name]) for name in ("old-http", "undated-https", "young-https")]
    table = table_of(*routes, listeners=listeners)

    assert "young-https" == taken(table, request("a.example/"), routing.TUNNEL_HTTPS)
    assert "old-http" == taken(table, request("a.example/"), routing.TUNNEL_HTTP)


def test_hostname_specificity_is_compared_across_all_gateways_of_the_tunnel() -> None:
    """An HTTP-only Gateway takes part in https as well, and a younger Gateway with the more specific name wins."""
    listeners = [
        tunnel("old-any", 443, gateway="ns/old", createdAt=OLD),
        tunnel("young-exact", 80, gateway="ns/young", createdAt=NEW, hostname="a.example"),
    ]
    routes = [route(name, listeners=[name]) for name in ("old-any", "young-exact")]
    table = table_of(*routes, listeners=listeners)

    assert "young-exact" == taken(table, request("a.example/"), routing.TUNNEL_HTTPS)
    assert "old-any" == taken(table, request("b.example/"), routing.TUNNEL_HTTPS)
    assert "old-any" == taken(table, request("b.example/"), routing.TUNNEL_HTTP)


def test_a_gateway_with_both_ports_keeps_their_hosts_apart() -> None:
    listeners = [tunnel("http", 80), tunnel("https", 443, hostname="a.example")]
    table = table_of(route("r"), listeners=listeners)

    assert "404 no_listener" == taken(table, request("b.example/"), routing.TUNNEL_HTTPS)
    assert "r" == taken(table, request("b.example/"), routing.TUNNEL_HTTP)


def test_listeners_outside_the_tunnel_are_not_reached_through_it() -> None:
    table = table_of(route("r"), listeners=[{"name": "web", "port": 80}])

    assert "404 no_listener" == taken(table, request("h/"), routing.TUNNEL_HTTP)


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        (LONGEST_NAME + b".:65535", LONGEST_NAME),
        (b"b" + LONGEST_NAME + b".:65535", b""),
    ],
)
def test_a_host_has_at_most_253_octets_without_final_dot_and_port(authority: bytes, host: bytes) -> None:
    assert host == routing.host_of(authority)
