"""The fields that a backend gets, row by row; those of responses and trailers."""

from itertools import combinations, permutations

import msgspec
import pytest

from proxy.document import Forwarding as ForwardingSpec
from proxy.exchange.client import Arrival
from proxy.exchange.forwarding import Forwarding
from proxy.exchange.hopbyhop import interim_fields, response_fields, trailer_fields
from proxy.heads import Field, Fields
from proxy.routing import TUNNEL_HTTP, TUNNEL_HTTPS, Listener
from proxy.routing.hosts import RouteSet
from tests.proxy.exchange.sides import arrived, asked

LISTENER = Listener("web", "", b"http", 8080, RouteSet())
PLAIN = ForwardingSpec()
ALL = ForwardingSpec(forwarded=True, via=True)
CLIENT = arrived()
TRUSTED = arrived(address="10.0.0.1", is_trusted=True)
EDGE = arrived(address="198.51.100.1", is_edge=True)
LOCAL = arrived(address="unix", is_trusted=True)


def sent(
    fields: Fields, arrival: Arrival = CLIENT, spec: ForwardingSpec = PLAIN, authority: bytes = b"a.example"
) -> Fields:
    """What the backend gets, without the request id, which comes last."""
    found = Forwarding(spec).request_fields(arrival, LISTENER, asked(fields=fields, authority=authority), b"id-1")
    assert found[-1] == (b"x-request-id", b"id-1")
    return found[:-1]


def described(address: bytes = b"203.0.113.7") -> Fields:
    return [
        (b"x-forwarded-for", address),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"a.example"),
        (b"x-forwarded-port", b"8080"),
    ]


def test_forwarded_fields_describe_the_client() -> None:
    assert sent([(b"accept", b"*/*")]) == [(b"accept", b"*/*"), *described()]


def test_no_x_forwarded_host_is_sent_without_an_authority() -> None:
    assert b"x-forwarded-host" not in dict(sent([], authority=b""))


def test_a_client_on_a_unix_socket_is_described_without_an_address() -> None:
    fields = dict(sent([], arrived(address="unix"), ALL))

    assert b"x-forwarded-for" not in fields
    assert fields[b"forwarded"] == b'for=unknown;host="a.example";proto=http'


@pytest.mark.parametrize(
    "name",
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate transfer-encoding upgrade"
    b" proxy_authorization"
    b" http2-settings x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-user"
    b" x-forwarded-client-cert forwarded x-real-ip true-client-ip cf-connecting-ip cf-ray x-request-id"
    b" x_forwarded_for x-forwarded_for cf_connecting_ip x_real_ip x_request_id proxy_connection content_length"
    b" transfer_encoding proxy client-cert client-cert-chain client_cert x.forwarded.for cf.connecting.ip x+real!ip"
    b" x.real_ip content.length client~cert x.request.id".split(),
    ids=bytes.decode,
)
def test_reserved_fields_of_an_untrusted_client_are_removed(name: bytes) -> None:
    assert sent([(name, b"mine"), (b"accept", b"*/*")]) == [(b"accept", b"*/*"), *described()]


@pytest.mark.parametrize(
    "field",
    [
        (b"authorization", b"Bearer x"),
        (b"content-length", b"5"),
        (b"expect", b"100-continue"),
        (b"origin", b"http://b.example"),
        (b"te-st", b"1"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"tracestate", b"a=b"),
        (b"trailer", b"checksum"),
        (b"under_score", b"1"),
        (b"dot.ted", b"1"),
        (b"x-forward", b"1"),
    ],
    ids=lambda field: field[0].decode(),
)
@pytest.mark.parametrize("arrival", [CLIENT, TRUSTED, EDGE], ids=["client", "trusted", "edge"])
def test_other_fields_pass_unchanged(field: Field, arrival: Arrival) -> None:
    assert sent([field], arrival)[0] is field


@pytest.mark.parametrize(
    ("options", "is_kept"),
    [
        (b"keep-alive", True),
        (b"close", True),
        (b"Upgrade", True),
        (b"x-mine", False),
        (b"close, X-Mine", False),
        (b",x-mine,,", False),
    ],
)
def test_fields_named_by_connection_are_removed(options: bytes, is_kept: bool) -> None:
    assert ((b"x-mine", b"1") in sent([(b"connection", options), (b"x-mine", b"1")])) is is_kept
    assert ((b"x-mine", b"1") in response_fields([(b"x-mine", b"1"), (b"connection", options)])) is is_kept


@pytest.mark.parametrize("cookies", [[b"a=1"], [b"a=1", b"b=2"]])
@pytest.mark.parametrize("options", [b"cookie", b"close, Cookie"])
def test_cookies_named_by_connection_are_removed_wherever_it_stands(options: bytes, cookies: list[bytes]) -> None:
    fields = [(b"cookie", cookie) for cookie in cookies]

    assert b"cookie" not in dict(sent([(b"connection", options), *fields]))
    assert b"cookie" not in dict(sent([*fields, (b"connection", options)]))


def test_connection_options_cannot_remove_our_own_fields() -> None:
    assert sent([(b"connection", b"close, x-forwarded-for, x-request-id")]) == described()


@pytest.mark.parametrize(
    "name",
    b"x-forwarded-for x-forwarded-proto cf-connecting-ip forwarded x-request-id x_request_id content-length"
    b" content_length host cookie http2-settings".split(),
    ids=bytes.decode,
)
def test_fields_reserved_in_the_head_are_removed_from_trailers_too(name: bytes) -> None:
    given = [(name, b"mine"), (b"checksum", b"1")]

    assert Forwarding(PLAIN).request_trailers(given) == [(b"checksum", b"1")]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(b"trailers", b"trailers"), (b"Trailers, deflate;q=0.5", b"trailers"), (b"gzip", None), (b"", None)],
)
def test_only_trailers_is_kept_of_te(value: bytes, kept: bytes | None) -> None:
    assert dict(sent([(b"te", value)])).get(b"te") == kept


def test_te_is_kept_whether_it_comes_before_or_after_its_connection_field() -> None:
    te, connection = (b"te", b"trailers"), (b"connection", b"TE")

    assert sent([te, connection]) == sent([connection, te]) == sent([te])


@pytest.mark.parametrize(
    "name",
    b"cf_connecting_ip cf.connecting.ip x_forwarded_for x.forwarded.user x_real_ip x-real.ip true_client_ip"
    b" client.cert x_request_id".split(),
    ids=bytes.decode,
)
@pytest.mark.parametrize("arrival", [TRUSTED, EDGE], ids=["trusted", "edge"])
def test_trusted_peers_cannot_send_look_alike_spellings_of_reserved_fields(arrival: Arrival, name: bytes) -> None:
    """Proxies that do not know such a spelling pass it on from their clients, and backends take it for the field."""
    assert name not in dict(sent([(name, b"evil"), (b"cf-connecting-ip", b"192.0.2.1")], arrival))


@pytest.mark.parametrize("arrival", [TRUSTED, EDGE])
def test_the_proxy_field_is_removed_even_from_trusted_peers(arrival: Arrival) -> None:
    """CGI programs get it as HTTP_PROXY, a variable that HTTP clients obey."""
    assert b"proxy" not in dict(sent([(b"proxy", b"http://evil.example"), (b"accept", b"*/*")], arrival))


def test_cookie_fields_are_joined_into_one() -> None:
    fields = sent([(b"cookie", b"a=1"), (b"accept", b"*/*"), (b"cookie", b"b=2")])

    assert fields[:2] == [(b"accept", b"*/*"), (b"cookie", b"a=1; b=2")]


@pytest.mark.parametrize("values", [(b"a=1", b""), (b"", b"a=1"), (b"", b"a=1", b"")])
def test_empty_cookie_fields_are_ignored(values: tuple[bytes, ...]) -> None:
    """A value that ends in a space cannot be sent (RFC 9113, 8.2.1)."""
    assert dict(sent([(b"cookie", value) for value in values]))[b"cookie"] == b"a=1"


@pytest.mark.parametrize("arrival", [TRUSTED, LOCAL], ids=["trusted", "local"])
def test_empty_x_forwarded_for_fields_of_a_trusted_proxy_are_ignored(arrival: Arrival) -> None:
    given: Fields = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"")]
    got = dict(sent(given, arrival))[b"x-forwarded-for"]

    assert got.split(b", ")[0] == b"192.0.2.1"
    assert b"" not in got.split(b", ")


@pytest.mark.parametrize("arrival", [TRUSTED, EDGE], ids=["trusted", "edge"])
def test_the_order_of_the_fields_of_a_trusted_proxy_does_not_matter(arrival: Arrival) -> None:
    word: Fields = [(b"x-forwarded-proto", b"https")]
    cookies: Fields = [(b"cookie", b"a=1"), (b"cookie", b"b=2")]
    of_the_connection: Fields = [(b"connection", b"x-hop"), (b"x-hop", b"1")]
    for groups in permutations((word, cookies, of_the_connection)):
        got = sent([field for group in groups for field in group], arrival)

        assert len(dict(got)) == len(got)
        assert (dict(got)[b"x-forwarded-proto"], dict(got)[b"cookie"]) == (b"https", b"a=1; b=2")
        assert not {b"connection", b"x-hop"} & dict(got).keys()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("spec", [PLAIN, ALL], ids=["plain", "all"])
@pytest.mark.parametrize("arrival", [TRUSTED, EDGE], ids=["trusted", "edge"])
def test_fields_of_a_trusted_proxy_are_kept_and_only_missing_ones_are_added(
    arrival: Arrival, spec: ForwardingSpec, count: int
) -> None:
    words: Fields = [
        (b"x-forwarded-port", b"8443"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"public.example"),
    ]
    ours = {name: value for name, value in described() if name != b"x-forwarded-for"}
    for said in combinations(words, count):
        got = [field for field in sent(list(said), arrival, spec) if field[0] in ours]

        assert len(dict(got)) == len(got)
        assert dict(got) == {**ours, **dict(said)}


def test_a_trusted_proxy_is_appended_to_its_x_forwarded_for() -> None:
    given = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"192.0.2.2"), (b"x-forwarded-proto", b"https")]

    assert sorted(sent(given, TRUSTED)) == sorted(
        [
            (b"x-forwarded-for", b"192.0.2.1, 192.0.2.2, 10.0.0.1"),
            (b"x-forwarded-proto", b"https"),
            (b"x-forwarded-host", b"a.example"),
            (b"x-forwarded-port", b"8080"),
        ]
    )


def test_a_trusted_proxy_without_forwarded_fields_is_described_like_a_client() -> None:
    assert sent([], TRUSTED) == described(b"10.0.0.1")


def test_x_forwarded_for_of_a_trusted_local_proxy_is_kept() -> None:
    fields = sent([(b"x-forwarded-for", b"192.0.2.1")], LOCAL)

    assert (b"x-forwarded-for", b"192.0.2.1") in fields


def test_other_proxy_fields_of_a_trusted_proxy_pass_unchanged() -> None:
    given = [(b"x-real-ip", b"192.0.2.1"), (b"x-forwarded-user", b"me"), (b"cf-ray", b"1")]

    assert sent(given, TRUSTED)[:3] == given


def test_fields_sent_by_the_edge_pass_unchanged() -> None:
    given = [
        (b"cf-connecting-ip", b"192.0.2.1"),
        (b"cf-ray", b"8a"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-forwarded-proto", b"https"),
    ]

    assert sorted(sent(given, EDGE)) == sorted(
        [*given, (b"x-forwarded-host", b"a.example"), (b"x-forwarded-port", b"8080")]
    )


CERTIFIED = msgspec.structs.replace(CLIENT, client_cert=b":TUlJ:")
WITH_CERTIFICATES = ForwardingSpec(client_cert=True)


def test_the_certificate_of_a_client_is_sent_when_configured() -> None:
    assert sent([(b"client-cert", b":mine:")], CERTIFIED, WITH_CERTIFICATES) == [
        *described(),
        (b"client-cert", b":TUlJ:"),
    ]
    assert sent([], CERTIFIED) == described()
    assert sent([], CLIENT, WITH_CERTIFICATES) == described()


def test_the_certificate_of_a_trusted_proxy_is_not_sent_as_that_of_its_client() -> None:
    proxy = msgspec.structs.replace(TRUSTED, client_cert=b":TUlJ:")
    told = (b"client-cert", b":Y2xpZW50:")

    assert sent([], proxy, WITH_CERTIFICATES) == described(b"10.0.0.1")
    assert sent([told], proxy, WITH_CERTIFICATES) == [told, *described(b"10.0.0.1")]


@pytest.mark.parametrize("name", [b"client-cert", b"client-cert-chain", b"client_cert"])
def test_certificate_fields_from_the_edge_are_removed(name: bytes) -> None:
    assert name not in dict(sent([(name, b":bWluZQ==:")], EDGE, WITH_CERTIFICATES))


def test_no_x_forwarded_for_is_added_for_the_edge() -> None:
    assert b"x-forwarded-for" not in dict(sent([], EDGE))


@pytest.mark.parametrize(
    ("arrival", "given", "forwarded"),
    [
        (CLIENT, [], b'for=203.0.113.7;host="a.example";proto=http'),
        (CLIENT, [(b"forwarded", b"for=evil")], b'for=203.0.113.7;host="a.example";proto=http'),
        (arrived(address="2001:db8::1"), [], b'for="[2001:db8::1]";host="a.example";proto=http'),
        (
            TRUSTED,
            [(b"forwarded", b"for=192.0.2.1"), (b"forwarded", b"for=192.0.2.2")],
            b'for=192.0.2.1, for=192.0.2.2, for=10.0.0.1;host="a.example";proto=http',
        ),
        (EDGE, [(b"x-forwarded-for", b"192.0.2.1, 192.0.2.2")], b'for=192.0.2.2;host="a.example";proto=http'),
        (TRUSTED, [(b"x-forwarded-for", b"192.0.2.1")], b'for=10.0.0.1;host="a.example";proto=http'),
        (EDGE, [], b'for=unknown;host="a.example";proto=http'),
        (EDGE, [(b"x-forwarded-proto", b"https")], b'for=unknown;host="a.example";proto=http'),
    ],
)
def test_forwarded_is_sent_when_configured(arrival: Arrival, given: Fields, forwarded: bytes) -> None:
    values = [value for name, value in sent(given, arrival, ALL) if name == b"forwarded"]

    assert values == [forwarded]


def test_forwarded_has_no_host_without_an_authority() -> None:
    assert dict(sent([], CLIENT, ALL, authority=b""))[b"forwarded"] == b"for=203.0.113.7;proto=http"


@pytest.mark.parametrize(
    ("protocol", "via"), [("HTTP/1.0", b"1.0 tunnelgw"), ("HTTP/1.1", b"1.1 tunnelgw"), ("HTTP/2", b"2.0 tunnelgw")]
)
def test_via_is_sent_when_configured(protocol: str, via: bytes) -> None:
    fields = sent([(b"via", b"1.1 before")], arrived(protocol=protocol), ALL)

    assert [value for name, value in fields if name == b"via"] == [b"1.1 before", via]


def test_requests_for_different_hosts_on_one_connection_have_their_own_x_forwarded_host() -> None:
    forwarding = Forwarding(PLAIN)
    for authority in (b"a.example", b"b.example", b"a.example"):
        fields = forwarding.request_fields(CLIENT, LISTENER, asked(authority=authority), b"id")

        assert dict(fields)[b"x-forwarded-host"] == authority


def test_listeners_of_one_connection_have_their_own_ports() -> None:
    forwarding = Forwarding(PLAIN)
    for port in (80, 443):
        listener = Listener("web", "", b"http", port, RouteSet())
        fields = forwarding.request_fields(CLIENT, listener, asked(), b"id")

        assert dict(fields)[b"x-forwarded-port"] == b"%d" % port


def test_successive_connections_are_never_confused() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(10_000):
        address = f"10.0.{number // 250}.{number % 250}"
        fields = forwarding.request_fields(arrived(address=address), LISTENER, asked(), b"id")

        assert dict(fields)[b"x-forwarded-for"] == address.encode()


def test_descriptions_of_edge_clients_are_cached_per_door_and_host() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(500):
        for scheme, door in ((b"http", TUNNEL_HTTP), (b"https", TUNNEL_HTTPS)):
            arrival = msgspec.structs.replace(EDGE, address=f"198.51.{number}.1", scheme=scheme, door=door)
            fields = forwarding.request_fields(arrival, LISTENER, asked(), b"id")

            assert dict(fields)[b"x-forwarded-proto"] == scheme
    assert 2 == len(forwarding._descriptions)


def test_the_cache_of_hosts_is_bounded_in_bytes() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(10_000):
        authority = b"%d.example" % number if number % 2 else b"%d" % number * 1000
        fields = forwarding.request_fields(CLIENT, LISTENER, asked(authority=authority), b"id")

        assert dict(fields)[b"x-forwarded-host"] == authority
        assert sum(len(authority) for _, authority in forwarding._descriptions) <= 8192 * 260


def test_the_cache_of_field_names_is_bounded() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(5000):
        fields = forwarding.request_fields(CLIENT, LISTENER, asked(fields=[(b"x-%d" % number, b"1")]), b"id")

        assert fields[0] == (b"x-%d" % number, b"1")
        assert len(forwarding._untrusted.known) <= 2048


def test_field_names_that_never_repeat_do_not_keep_reserved_ones_from_being_removed() -> None:
    forwarding = Forwarding(PLAIN)
    taken_out: Fields = [
        (b"connection", b"x-hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"deflate"),
        (b"upgrade", b"h2c"),
        (b"x-real-ip", b"192.0.2.1"),
        (b"proxy", b"http://192.0.2.1"),
    ]
    for number in range(5_000):
        head = asked(fields=[(b"x-%d" % number, b"1"), *taken_out], authority=b"a.example")
        got = forwarding.request_fields(CLIENT, LISTENER, head, b"id-1")

        assert got == [(b"x-%d" % number, b"1"), *described(), (b"x-request-id", b"id-1")]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ([], None),
        ([(b"x-request-id", b"")], None),
        ([(b"x-request-id", b"a" * 128)], b"a" * 128),
        ([(b"x-request-id", b"a" * 129)], None),
    ],
)
def test_an_empty_or_oversized_request_id_is_not_used(given: Fields, taken: bytes | None) -> None:
    assert Forwarding(PLAIN).request_id_of(asked(fields=given)) == taken


def test_the_field_list_of_the_codec_is_not_modified() -> None:
    fields = [(b"cookie", b"a"), (b"cookie", b"b"), (b"te", b"trailers"), (b"dnt", b"1")]
    before = list(fields)
    sent(fields)

    assert fields == before


def test_hop_by_hop_fields_are_removed_from_responses() -> None:
    fields = [
        (b"host", b"a.example"),
        (b"server", b"s"),
        (b"connection", b"keep-alive, Keep-Alive"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authenticate", b"Basic"),
        (b"proxy-authentication-info", b"nextnonce=1"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]

    assert response_fields(fields) == [(b"server", b"s"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]


def test_what_proxies_before_us_tell_of_a_response_is_passed_on() -> None:
    """RFC 9209, 2: Proxy-Status describes the whole chain."""
    told = [(b"proxy-status", b"cache.example; error=dns_timeout")]

    assert response_fields(told) == told


def test_framing_and_upgrade_are_removed_from_interim_responses() -> None:
    hints = [(b"alt-svc", b"x"), (b"link", b"x")]

    assert interim_fields([*hints, (b"content-length", b"0"), (b"upgrade", b"x")]) == hints


def test_fields_that_belong_in_a_head_are_removed_from_trailers() -> None:
    fields = [(b"grpc-status", b"0"), (b"content-length", b"1"), (b"host", b"x"), (b"set-cookie", b"a=b")]

    assert trailer_fields(fields) == [(b"grpc-status", b"0")]


def test_the_cache_of_hosts_is_bounded_for_the_edge_too() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(20_000):
        forwarding.request_fields(EDGE, LISTENER, asked(authority=b"%d.example" % number), b"id-1")
    forwarding.request_fields(EDGE, LISTENER, asked(authority=b"long" * 100 + b".example"), b"id-1")

    kept = [len(authority) for _, authority in forwarding._descriptions]
    assert 0 < len(kept) < 10_000
    assert max(kept) < 300
