"""The tables of Gateway API through the running proxy: which match wins, redirects, rewrites, normal forms, CORS."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.document import TUNNEL_PORTS
from tests.e2e.proxy.doors import through_both_doors
from tests.e2e.tunnel.connector import Connector
from tests.support.asking import ask
from tests.support.gateway import Gateway, route_to
from tests.support.goldencases import NORMAL_FORMS, ORIGINS, PAIRS, PREFIX_CHANGES, REDIRECT_HOSTS
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.routes import path, route


@pytest.fixture(scope="module")
def recorder() -> Iterator[RecordingBackend]:
    with RecordingBackend() as backend:
        yield backend


def at(address: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A route of the pure tests with backends that exist."""
    moved = copy.deepcopy(entry)
    for rule in moved["rules"]:
        for target in rule["backends"]:
            target["address"] = address
    return moved


# -- matches ---------------------------------------------------------------------------------------------------------


@through_both_doors
@pytest.mark.parametrize("case", PAIRS)
def test_the_better_match_wins_in_either_order(gateway: Gateway, recorder: RecordingBackend, case: str) -> None:
    winner, loser, head = PAIRS[case]
    fields = {name.decode(): value.decode() for name, value in head.fields}
    with RecordingBackend("loser") as other:
        good, bad = at(recorder.address, winner), at(other.address, loser)
        for routes, expected in (((good, bad), "backend"), ((bad, good), "backend"), ((bad,), "loser")):
            gateway.serve(*routes)

            answer = ask(gateway.clear[1], head.path.decode(), host=head.authority.decode(), headers=fields)

            assert expected == answer.seen.backend


# -- redirects -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redirecting(shared_gateway: Gateway) -> Iterator[dict[tuple[int, str], ReservedPort]]:
    """A port for each kind of listener; `/row/N` is redirected as row N of the table says."""
    kinds = {(public_port, protocol) for public_port, protocol, *_ in REDIRECT_HOSTS}
    ports = {kind: ReservedPort() for kind in kinds}
    tls = next(listener["tls"] for listener in shared_gateway.doors.listeners() if "tls" in listener)
    listeners = []
    for (public_port, protocol), port in ports.items():
        listener = {"name": f"{protocol}-{public_port}", "address": LOOPBACK, "port": port.number}
        listener |= {"publicPort": public_port, "protocol": protocol}
        listeners.append(listener | ({"tls": tls} if protocol == "HTTPS" else {}))
    routes = []
    for row, (_, _, scheme, port_wanted, _) in enumerate(REDIRECT_HOSTS):
        wanted = {name: value for name, value in (("scheme", scheme), ("port", port_wanted)) if value}
        rule = {"backends": [], "filters": {"requestRedirect": wanted}}
        routes.append(route(f"row-{row}", path(f"/row/{row}"), rule=rule))
    shared_gateway.serve(*routes, listeners=listeners)
    yield ports
    for port in ports.values():
        port.close()


@pytest.mark.parametrize("row", range(len(REDIRECT_HOSTS)))
@pytest.mark.parametrize("host", ["example.org", "example.org:8080", "EXAMPLE.org"])
def test_redirects_name_scheme_and_port(
    shared_gateway: Gateway, redirecting: dict[tuple[int, str], ReservedPort], row: int, host: str
) -> None:
    public_port, protocol, _, _, expected = REDIRECT_HOSTS[row]
    tls = shared_gateway.doors.authority.client_context() if protocol == "HTTPS" else None

    answer = ask(redirecting[public_port, protocol].number, f"/row/{row}/a?q=1", host=host, tls=tls)

    assert (302, f"{expected}/row/{row}/a?q=1") == (answer.status_code, answer.value("location"))


@pytest.mark.parametrize("row", [row for row, case in enumerate(REDIRECT_HOSTS) if case[0] in TUNNEL_PORTS])
@pytest.mark.parametrize("host", ["example.org", "example.org:8080", "EXAMPLE.org"])
def test_redirects_of_the_tunnel_name_scheme_and_port(shared_tunnel_gateway: Connector, row: int, host: str) -> None:
    public_port, protocol, scheme, port_wanted, expected = REDIRECT_HOSTS[row]
    wanted = {name: value for name, value in (("scheme", scheme), ("port", port_wanted)) if value}
    listener = {"name": "one", "tunnel": True, "publicPort": public_port, "protocol": protocol}
    redirecting = route("r", rule={"backends": [], "filters": {"requestRedirect": wanted}})
    shared_tunnel_gateway.serve(redirecting, listeners=[listener])
    front = shared_tunnel_gateway.secure if protocol == "HTTPS" else shared_tunnel_gateway.clear

    answer = ask(front[1], "/a?q=1", host=host)

    assert (302, f"{expected}/a?q=1") == (answer.status_code, answer.value("location"))


@through_both_doors
@pytest.mark.parametrize("status_code", [301, 302, 303, 307, 308])
def test_redirects_have_the_configured_status_code(gateway: Gateway, status_code: int) -> None:
    redirect = {"hostname": "other.example", "statusCode": status_code, "port": 80}
    gateway.serve(route("r", rule={"backends": [], "filters": {"requestRedirect": redirect}}))

    answer = ask(gateway.clear[1], "/x", method="POST", body=b"body")

    assert (status_code, "http://other.example/x") == (answer.status_code, answer.value("location"))


# -- rewrites --------------------------------------------------------------------------------------------------------


@through_both_doors
def test_prefixes_are_replaced_by_path_elements(gateway: Gateway, recorder: RecordingBackend) -> None:
    """Row N of the table is the host rN.example."""
    routes = []
    for row, (_, prefix, replacement, _) in enumerate(PREFIX_CHANGES):
        change = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": replacement}}
        redirect = {**change, "hostname": "o", "port": 80}
        rewriting = {"filters": {"urlRewrite": change}}
        routes.append(
            at(recorder.address, route(f"w{row}", path(prefix), rule=rewriting, hostnames=[f"w{row}.example"]))
        )
        redirecting = {"filters": {"requestRedirect": redirect}, "backends": []}
        routes.append(route(f"r{row}", path(prefix), rule=redirecting, hostnames=[f"r{row}.example"]))
    gateway.serve(*routes)

    for row, (sent, _, _, expected) in enumerate(PREFIX_CHANGES):
        rewritten = ask(gateway.clear[1], f"{sent}?q=/foo", host=f"w{row}.example").seen.target
        redirected = ask(gateway.clear[1], sent, host=f"r{row}.example").value("location")
        assert (f"{expected}?q=/foo", f"http://o{expected}") == (rewritten, redirected), PREFIX_CHANGES[row]


@through_both_doors
@pytest.mark.parametrize(("replacement", "expected"), [("/new", "/new?q=1"), ("", "/?q=1"), ("new", "/new?q=1")])
def test_full_paths_are_replaced_and_the_query_is_kept(
    gateway: Gateway, recorder: RecordingBackend, replacement: str, expected: str
) -> None:
    change = {"type": "ReplaceFullPath", "replaceFullPath": replacement}
    gateway.serve(route_to(recorder.address, filters={"urlRewrite": {"path": change}}))

    assert expected == ask(gateway.clear[1], "/a/b?q=1").seen.target


@through_both_doors
def test_host_rewrite_is_what_the_backend_sees_as_host(gateway: Gateway, recorder: RecordingBackend) -> None:
    gateway.serve(route_to(recorder.address, filters={"urlRewrite": {"hostname": "inner.example"}}))

    seen = ask(gateway.clear[1], host="outer.example:8080").seen

    assert ("inner.example", "outer.example:8080") == (seen.value("host"), seen.value("x-forwarded-host"))


SENDABLE = [(sent, expected) for sent, expected in NORMAL_FORMS if sent.startswith("/")]


@through_both_doors
def test_paths_are_matched_and_forwarded_in_their_normal_form(gateway: Gateway, recorder: RecordingBackend) -> None:
    gateway.serve(route_to(recorder.address))

    for sent, expected in SENDABLE:
        answer = ask(gateway.clear[1], f"{sent}?x=//..%2f")
        if expected is None:
            assert 400 == answer.status_code, sent
        else:
            assert f"{expected}?x=//..%2f" == answer.seen.target


# -- header changes --------------------------------------------------------------------------------------------------

CHANGES = {
    "set": [{"name": "X-Set", "value": "new"}],
    "add": [{"name": "X-Add", "value": "second"}],
    "remove": ["X-Remove", "x-REMOVE-too"],
}


@through_both_doors
def test_request_fields_are_set_added_and_removed(gateway: Gateway, recorder: RecordingBackend) -> None:
    gateway.serve(route_to(recorder.address, filters={"requestHeaderModifier": CHANGES}))
    sent = {"x-set": "old", "X-ADD": "first", "X-Remove": "1", "X-Remove-Too": "1", "X-Keep": "1"}

    seen = ask(gateway.clear[1], headers=sent).seen

    assert ["new"] == seen.values("x-set")
    assert "first,second" == ",".join(seen.values("x-add")).replace(", ", ",")
    assert [] == seen.values("x-remove") + seen.values("x-remove-too")
    assert ["1"] == seen.values("x-keep")


@through_both_doors
def test_response_fields_are_set_added_and_removed(gateway: Gateway, backend: RecordingBackend) -> None:
    fields = (("X-Set", "old"), ("x-add", "first"), ("X-Remove", "1"), ("X-Remove-Too", "1"), ("X-Keep", "1"))
    backend.respond = lambda _: Reply(headers=fields)
    gateway.serve(route_to(backend.address, filters={"responseHeaderModifier": CHANGES}))

    answer = ask(gateway.clear[1])

    assert ["new"] == answer.values("x-set")
    assert "first,second" == ",".join(answer.values("x-add")).replace(", ", ",")
    assert [] == answer.values("x-remove") + answer.values("x-remove-too")
    assert ["1"] == answer.values("x-keep")


# -- CORS ------------------------------------------------------------------------------------------------------------


@through_both_doors
def test_only_allowed_origins_get_access_control_allow_origin(gateway: Gateway, backend: RecordingBackend) -> None:
    """Row N of the table is the host rN.example."""

    def answer(received: Received) -> Reply:
        return Reply(headers=(("Access-Control-Allow-Origin", "https://backend.example"),))

    backend.respond = answer
    routes = [
        at(backend.address, route(f"r{row}", rule={"filters": {"cors": {"allowOrigins": configured}}}))
        | {"hostnames": [f"r{row}.example"]}
        for row, (configured, _, _) in enumerate(ORIGINS)
    ]
    gateway.serve(*routes)

    for row, (configured, sent, is_allowed) in enumerate(ORIGINS):
        backend.forget()
        asked = {"Origin": sent, "Access-Control-Request-Method": "PUT"}
        preflight = ask(gateway.clear[1], method="OPTIONS", host=f"r{row}.example", headers=asked)
        assert [] == backend.received
        actual = ask(gateway.clear[1], host=f"r{row}.example", headers={"Origin": sent})

        expected = ("*" if configured == ["*"] else sent) if is_allowed else None
        seen = preflight.value("access-control-allow-origin"), actual.value("access-control-allow-origin")
        assert (expected, expected) == seen, ORIGINS[row]
        assert (204 if is_allowed else 403, 200) == (preflight.status_code, actual.status_code)
        assert 1 == len(backend.received)


@through_both_doors
def test_a_preflight_response_has_every_configured_cors_field(gateway: Gateway, recorder: RecordingBackend) -> None:
    cors = {
        "allowOrigins": ["https://a.example"],
        "allowMethods": ["GET", "PUT"],
        "allowHeaders": ["X-A", "X-B"],
        "exposeHeaders": ["X-C"],
        "allowCredentials": True,
        "maxAge": 60,
    }
    gateway.serve(route_to(recorder.address, filters={"cors": cors}))
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}

    answer = ask(gateway.clear[1], method="OPTIONS", headers=asked)

    prefix = "access-control-"
    assert {
        "allow-origin": "https://a.example",
        "allow-methods": "GET, PUT",
        "allow-headers": "X-A, X-B",
        "expose-headers": "X-C",
        "allow-credentials": "true",
        "max-age": "60",
    } == {name.removeprefix(prefix): value for name, value in answer.headers if name.startswith(prefix)}
    assert (204, b"", "Origin") == (answer.status_code, answer.body, answer.value("vary"))
