"""Redirects, rewrites and path normalization: the tables of Gateway API, row by row."""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy import routing
from proxy.routing.paths import UnusablePath, normalise
from tests.support.goldencases import NORMAL_FORMS, PREFIX_CHANGES, REDIRECT_HOSTS
from tests.support.routes import DOOR, Sender, draws, forwarded, path, request, route, table_of, taken


@pytest.mark.parametrize("authority", ["example.org", "example.org:8080", "EXAMPLE.org"])
@pytest.mark.parametrize(("public_port", "protocol", "scheme", "port", "expected"), REDIRECT_HOSTS)
def test_redirects_name_scheme_and_port(
    public_port: int, protocol: str, scheme: str | None, port: int | None, expected: str, authority: str
) -> None:
    """The port is the listener's, as clients see it: neither the bound one nor the one in Host."""
    wanted = {name: value for name, value in (("scheme", scheme), ("port", port)) if value}
    table = table_of(
        route("r", path("/"), rule={"backends": [], "filters": {"requestRedirect": wanted}}),
        listeners=[{"name": "web", "port": 8080, "publicPort": public_port, "protocol": protocol, **tls(protocol)}],
    )

    assert f"302 {expected}/a?q=1" == taken(table, request(f"{authority}/a?q=1"))


@pytest.mark.parametrize(
    ("public_port", "given", "expected"),
    [
        (80, "https", "https://example.org"),
        (443, "https", "https://example.org"),
        (8443, "HTTPS", "https://example.org:8443"),
        (80, "http", "http://example.org"),
        (80, "wss", "http://example.org"),
        (80, "https, http", "http://example.org"),
        (80, "", "http://example.org"),
    ],
)
def test_x_forwarded_proto_of_a_trusted_proxy_sets_the_scheme_of_redirects(
    public_port: int, given: str, expected: str
) -> None:
    """As of a load balancer that terminates TLS. A default port changes with the scheme."""
    table = table_of(
        route("r", rule={"backends": [], "filters": {"requestRedirect": {"statusCode": 302}}}),
        listeners=[{"name": "web", "port": 8080, "publicPort": public_port}],
    )
    head = request("example.org/a", x_forwarded_proto=given)

    believed = routing.decide(table, DOOR, head, draws(), 0.0, Sender(is_trusted=True))
    ignored = routing.decide(table, DOOR, head, draws())

    assert isinstance(believed, routing.Redirect)
    assert isinstance(ignored, routing.Redirect)
    assert believed.location == f"{expected}/a".encode()
    assert ignored.location.startswith(b"http://")


def tls(protocol: str) -> dict[str, Any]:
    """TLS material that has the form of PEM, which is all that the document checks."""
    if protocol == "HTTP":
        return {}
    pem = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
    pair = {"certificate": pem.format("CERTIFICATE"), "privateKey": pem.format("PRIVATE KEY")}
    return {"tls": {"certificates": [pair]}}


@pytest.mark.parametrize("status_code", [301, 302, 303, 307, 308])
def test_redirects_have_the_status_code_that_is_asked_for(status_code: int) -> None:
    redirect = {"hostname": "other.example", "statusCode": status_code}
    table = table_of(route("r", rule={"backends": [], "filters": {"requestRedirect": redirect}}))

    assert f"{status_code} http://other.example:8080/" == taken(table, request("h/"))


@pytest.mark.parametrize(("sent", "prefix", "replacement", "expected"), PREFIX_CHANGES)
def test_prefixes_are_replaced_by_whole_segments(sent: str, prefix: str, replacement: str, expected: str) -> None:
    change = {"type": "ReplacePrefixMatch", "replacePrefixMatch": replacement}
    rewriting = table_of(route("r", path(prefix), rule={"filters": {"urlRewrite": {"path": change}}}))
    redirect = {"path": change, "hostname": "o", "port": 80}
    redirecting = table_of(route("r", path(prefix), rule={"backends": [], "filters": {"requestRedirect": redirect}}))

    assert f"{expected}?q=/foo".encode() == forwarded(rewriting, request(f"h{sent}?q=/foo")).path
    assert f"302 http://o{expected}" == taken(redirecting, request(f"h{sent}"))


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        ("/new", b"/new?q=1"),
        ("", b"/?q=1"),
        ("new", b"/new?q=1"),
        ("/neue-straße", b"/neue-stra%C3%9Fe?q=1"),
        ("/~straße", b"/~stra%C3%9Fe?q=1"),
        ("/a\x1f~\x7f", b"/a%1F~%7F?q=1"),
        ("/{a}|b/[c]", b"/%7Ba%7D%7Cb/%5Bc%5D?q=1"),
        ("/a%20b%2fc!$&'()*+,;=:@", b"/a%20b%2fc!$&'()*+,;=:@?q=1"),
        ("/50%off/%%41", b"/50%25off/%25%41?q=1"),
    ],
)
def test_full_paths_are_replaced_and_the_query_is_kept(replacement: str, expected: bytes) -> None:
    change = {"type": "ReplaceFullPath", "replaceFullPath": replacement}
    table = table_of(route("r", path("/a"), rule={"filters": {"urlRewrite": {"path": change}}}))

    assert expected == forwarded(table, request("h/a/b?q=1")).path


def test_host_rewrite_changes_the_authority_and_nothing_else() -> None:
    table = table_of(route("r", rule={"filters": {"urlRewrite": {"hostname": "inner.example"}}}))
    head = request("outer.example:8080/a?b")

    decision = forwarded(table, head)

    assert b"inner.example" == decision.authority
    assert b"/a?b" == decision.path


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"hostname": "own.example"}, (b"own.example", b"/p")),
        ({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/own"}}, (b"rule.example", b"/own")),
    ],
)
def test_a_backends_rewrite_wins_over_the_rules_part_by_part(
    own: dict[str, Any], expected: tuple[bytes, bytes]
) -> None:
    whole = {"urlRewrite": {"hostname": "rule.example", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/p"}}}
    reference = {"address": "b:1", "filters": {"urlRewrite": own}}
    table = table_of(route("r", rule={"filters": whole, "backends": [reference]}))

    decision = forwarded(table, request("h/"))

    assert expected == (decision.authority, decision.path)


def test_path_and_authority_without_a_rewrite_are_forwarded_as_the_same_objects() -> None:
    head = request("h/a/b?c=d")

    decision = forwarded(table_of(route("r")), head)

    assert decision.path is head.path
    assert decision.authority is head.authority


ONLY_OVER_HTTP_2 = [("/café", "/caf%C3%A9"), ("/%c3é", "/%C3%C3%A9"), ("/|\0", None)]


@pytest.mark.parametrize(("sent", "expected"), [*NORMAL_FORMS, *ONLY_OVER_HTTP_2])
def test_request_paths_have_one_normal_form_for_matching_and_forwarding(sent: str, expected: str | None) -> None:
    """The wrong way round would let `/a/%2e%2e/admin` pass a rule about `/admin`."""
    table = table_of(route("r"))
    head = routing.PlainHead(b"GET", b"h", sent.encode() + b"?x=//..%2f")

    decision = routing.decide(table, DOOR, head, draws())

    if expected is None:
        assert isinstance(decision, routing.Answer)
        assert (400, "bad_path") == (decision.status_code, decision.reason)
    else:
        assert isinstance(decision, routing.Forward)
        assert expected.encode() + b"?x=//..%2f" == decision.path


def test_options_asterisk_is_answered_404() -> None:
    decision = routing.decide(table_of(route("r")), DOOR, routing.PlainHead(b"OPTIONS", b"h", b"*"), draws())

    assert isinstance(decision, routing.Answer)
    assert (404, "no_resource") == (decision.status_code, decision.reason)
    assert b"OPTIONS * is not supported" in decision.body


def test_repeated_slashes_are_kept_if_merge_slashes_is_off() -> None:
    table = table_of(route("a", path("/a/b")), route("root"), mergeSlashes=False)

    decision = forwarded(table, request("h/a//b"))

    assert "root" == decision.rule.route_name
    assert b"/a//b" == decision.path


@pytest.mark.parametrize("sent", [form for form, expected in NORMAL_FORMS if expected])
def test_normalization_is_idempotent(sent: str) -> None:
    once = normalise(sent.encode(), merge_slashes=True)

    assert once == normalise(once, merge_slashes=True)


UNRESERVED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


def spelled_plainly(path: bytes) -> bytes | None:
    """The normal form as the standard defines it, a character at a time (RFC 3986, 6.2.2); None: no such path."""
    spelled = b""
    for unit in re.findall(rb"%[0-9A-Fa-f]{2}|.", path, re.DOTALL):
        meant = unquote_to_bytes(unit) if len(unit) == 3 else unit
        if unit == b"%" or meant == b"\0":
            return None
        if meant in UNRESERVED or unit in b"!$&'()*+,;=:@/":
            spelled += meant
        else:
            spelled += b"%%%02X" % ord(meant)
    return spelled


PIECES = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([b"%41", b"%2f", b"%2F", b"%7e", b"%", b"%0", b"%00", b"%c3%BC", b"%zz", b"abc", b"/", b"!$&'"]),
)


@given(st.lists(PIECES, max_size=12))
@example([bytes(byte for byte in range(1, 256) if byte != ord("%"))])
@example([b"%%%02x" % byte for byte in range(1, 256)])
def test_each_character_of_a_path_has_one_spelling(pieces: list[bytes]) -> None:
    # Dots, backslashes and fragments have rules of their own.
    path = b"/" + re.sub(rb"[.\\#]|%2[eE]", b"", b"".join(pieces))
    try:
        normal = normalise(path, merge_slashes=False)
    except UnusablePath:
        normal = None

    assert normal == spelled_plainly(path)


DOTTED_PIECES = st.sampled_from([b"/", b"/", b"/a", b".", b"..", b"%2e", b"%2E", b"%2f", b";", b"/.", b"/..", b"/../"])


@given(st.lists(DOTTED_PIECES, max_size=10).map(b"".join), st.booleans())
def test_a_normal_form_has_no_dot_segments_and_is_its_own_normal_form(pieces: bytes, merge_slashes: bool) -> None:
    try:
        normal = normalise(b"/" + pieces, merge_slashes=merge_slashes)
    except UnusablePath:
        return

    assert normal == normalise(normal, merge_slashes=merge_slashes)
    assert not {b".", b".."} & set(normal.split(b"/"))
    assert normal.startswith(b"/")
    assert not (merge_slashes and b"//" in normal)


def test_the_paths_of_rules_are_normalized_too() -> None:
    table = table_of(route("r", path("/caf%c3%a9/%7Euser")), route("plain", path("/grüße", "Exact")))

    assert "r" == taken(table, request("h/caf%C3%A9/~user/x"))
    assert "plain" == taken(table, request("h/gr%c3%bc%C3%9Fe"))


@pytest.mark.parametrize("value", ["/geräte/{id}", "/ger%C3%A4te/%7Bid%7D"])
@pytest.mark.parametrize("sent", ["/geräte/{id}", "/ger%c3%a4te/%7bid%7d", "/ger\\xC3%A4te/{id%7D"])
def test_no_spelling_of_a_path_bypasses_its_rule(value: str, sent: str) -> None:
    """Over HTTP/2 a path can have any octet, and backends take all of these for the same path."""
    table = table_of(route("r", path(value, "Exact")), route("plain"))
    target = sent.encode().replace(b"\\xC3", b"\xc3")

    decision = routing.decide(table, DOOR, routing.PlainHead(b"GET", b"h", target + b"?q=\xc3{"), draws())

    assert isinstance(decision, routing.Forward)
    assert "r" == decision.rule.route_name
    assert b"/ger%C3%A4te/%7Bid%7D?q=\xc3{" == decision.path


@pytest.mark.parametrize("sent", ["/x[1]", "/x%5b1]", "/x%5B1%5D"])
def test_a_regular_expression_is_matched_against_the_normalized_path(sent: str) -> None:
    """The expression itself cannot be normalized: it describes text."""
    table = table_of(
        route("raw", path(r"/x\[[0-9]\]", "RegularExpression")),
        route("encoded", path("/x%5B[0-9]%5D", "RegularExpression")),
        route("plain"),
    )

    assert "encoded" == taken(table, request(f"h{sent}"))


def test_an_unusable_path_has_an_error_type_of_its_own() -> None:
    with pytest.raises(UnusablePath):
        normalise(b"/../x", merge_slashes=True)


def test_a_redirect_keeps_an_address_in_its_brackets() -> None:
    table = table_of(route("r", rule={"backends": [], "filters": {"requestRedirect": {"scheme": "https"}}}))

    assert "302 https://[2001:db8::1]/a" == taken(table, request("[2001:DB8::1]:8080/a"))


def test_an_invalid_host_is_never_repeated_in_a_redirect() -> None:
    table = table_of(route("r", rule={"backends": [], "filters": {"requestRedirect": {"scheme": "https"}}}))

    for authority in (b"a b", b'"x"', b"", b"a/b", b"a@b", b"a\r\nset-cookie: x"):
        decision = routing.decide(table, DOOR, routing.PlainHead(b"GET", authority, b"/"), draws())

        assert isinstance(decision, routing.Answer), authority
