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


def test_a_client_is_described() -> None:
    assert sent([(b"accept", b"*/*")]) == [(b"accept", b"*/*"), *described()]


def test_a_host_that_was_not_sent_is_not_made_up() -> None:
    assert b"x-forwarded-host" not in dict(sent([], authority=b""))


def test_a_local_socket_has_no_address() -> None:
    fields = dict(sent([], arrived(address="unix"), ALL))

    assert b"x-forwarded-for" not in fields
    assert fields[b"forwarded"] == b'for=unknown;host="a.example";proto=http'


@pytest.mark.parametrize(
    "name",
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate transfer-encoding upgrade"
    b" http2-settings x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-user"
    b" x-forwarded-client-cert forwarded x-real-ip true-client-ip cf-connecting-ip cf-ray x-request-id"
    b" x_forwarded_for x-forwarded_for cf_connecting_ip x_real_ip x_request_id proxy_connection content_length"
    b" transfer_encoding proxy client-cert client-cert-chain client_cert x.forwarded.for cf.connecting.ip x+real!ip"
    b" x.real_ip content.length client~cert x.request.id".split(),
    ids=bytes.decode,
)
def test_a_client_that_is_not_trusted_cannot_say(name: bytes) -> None:
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
def test_fields_that_connection_names_stay_on_the_connection(options: bytes, is_kept: bool) -> None:
    assert ((b"x-mine", b"1") in sent([(b"connection", options), (b"x-mine", b"1")])) is is_kept
    assert ((b"x-mine", b"1") in response_fields([(b"x-mine", b"1"), (b"connection", options)])) is is_kept


def test_connection_cannot_take_our_own_words_away() -> None:
    assert sent([(b"connection", b"close, x-forwarded-for, x-request-id")]) == described()


@pytest.mark.parametrize(
    "name",
    b"x-forwarded-for x-forwarded-proto cf-connecting-ip forwarded x-request-id x_request_id content-length"
    b" content_length host cookie http2-settings".split(),
    ids=bytes.decode,
)
def test_trailers_cannot_say_what_the_head_must_not(name: bytes) -> None:
    given = [(name, b"mine"), (b"checksum", b"1")]

    assert Forwarding(PLAIN).request_trailers(given) == [(b"checksum", b"1")]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(b"trailers", b"trailers"), (b"Trailers, deflate;q=0.5", b"trailers"), (b"gzip", None), (b"", None)],
)
def test_only_trailers_is_left_of_te(value: bytes, kept: bytes | None) -> None:
    assert dict(sent([(b"te", value)])).get(b"te") == kept


def test_te_says_the_same_on_either_side_of_the_connection_field_that_has_to_name_it() -> None:
    te, connection = (b"te", b"trailers"), (b"connection", b"TE")

    assert sent([te, connection]) == sent([connection, te]) == sent([te])


@pytest.mark.parametrize(
    "name",
    b"cf_connecting_ip cf.connecting.ip x_forwarded_for x.forwarded.user x_real_ip x-real.ip true_client_ip"
    b" client.cert x_request_id".split(),
    ids=bytes.decode,
)
@pytest.mark.parametrize("arrival", [TRUSTED, EDGE], ids=["trusted", "edge"])
def test_who_is_believed_does_not_pass_on_what_backends_take_for_its_word(arrival: Arrival, name: bytes) -> None:
    """Proxies that do not know such a spelling pass it on from their clients."""
    assert name not in dict(sent([(name, b"evil"), (b"cf-connecting-ip", b"192.0.2.1")], arrival))


@pytest.mark.parametrize("arrival", [TRUSTED, EDGE])
def test_nobody_says_to_a_program_of_the_cgi_family_what_its_proxy_is(arrival: Arrival) -> None:
    """HTTP_PROXY is the name of the field there, and of a variable that clients of HTTP obey."""
    assert b"proxy" not in dict(sent([(b"proxy", b"http://evil.example"), (b"accept", b"*/*")], arrival))


def test_the_pieces_of_a_cookie_are_put_together() -> None:
    fields = sent([(b"cookie", b"a=1"), (b"accept", b"*/*"), (b"cookie", b"b=2")])

    assert fields[:2] == [(b"accept", b"*/*"), (b"cookie", b"a=1; b=2")]


@pytest.mark.parametrize("values", [(b"a=1", b""), (b"", b"a=1"), (b"", b"a=1", b"")])
def test_empty_pieces_of_a_cookie_add_nothing_to_it(values: tuple[bytes, ...]) -> None:
    """A value that ends in a space cannot be sent (RFC 9113, 8.2.1)."""
    assert dict(sent([(b"cookie", value) for value in values]))[b"cookie"] == b"a=1"


@pytest.mark.parametrize("arrival", [TRUSTED, LOCAL], ids=["trusted", "local"])
def test_nor_do_empty_words_of_a_proxy_that_is_believed(arrival: Arrival) -> None:
    given: Fields = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"")]
    got = dict(sent(given, arrival))[b"x-forwarded-for"]

    assert got.split(b", ")[0] == b"192.0.2.1"
    assert b"" not in got.split(b", ")


@pytest.mark.parametrize("arrival", [TRUSTED, EDGE], ids=["trusted", "edge"])
def test_it_does_not_matter_where_a_proxy_that_is_believed_puts_its_word(arrival: Arrival) -> None:
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
def test_a_proxy_is_believed_in_all_that_it_says_and_only_the_rest_is_added(
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


def test_a_trusted_proxy_is_appended_and_believed() -> None:
    given = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"192.0.2.2"), (b"x-forwarded-proto", b"https")]

    assert sorted(sent(given, TRUSTED)) == sorted(
        [
            (b"x-forwarded-for", b"192.0.2.1, 192.0.2.2, 10.0.0.1"),
            (b"x-forwarded-proto", b"https"),
            (b"x-forwarded-host", b"a.example"),
            (b"x-forwarded-port", b"8080"),
        ]
    )


def test_a_trusted_proxy_that_says_nothing_is_described_like_a_client() -> None:
    assert sent([], TRUSTED) == described(b"10.0.0.1")


def test_what_a_trusted_local_proxy_says_stays() -> None:
    fields = sent([(b"x-forwarded-for", b"192.0.2.1")], LOCAL)

    assert (b"x-forwarded-for", b"192.0.2.1") in fields


def test_other_names_of_proxies_pass_from_a_trusted_one() -> None:
    given = [(b"x-real-ip", b"192.0.2.1"), (b"x-forwarded-user", b"me"), (b"cf-ray", b"1")]

    assert sent(given, TRUSTED)[:3] == given


def test_what_the_edge_sent_passes_unchanged() -> None:
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


def test_the_certificate_of_a_client_is_sent_when_the_document_wants_it() -> None:
    assert sent([(b"client-cert", b":mine:")], CERTIFIED, WITH_CERTIFICATES) == [
        *described(),
        (b"client-cert", b":TUlJ:"),
    ]
    assert sent([], CERTIFIED) == described()
    assert sent([], CLIENT, WITH_CERTIFICATES) == described()


def test_the_certificate_of_a_trusted_proxy_is_not_its_clients() -> None:
    proxy = msgspec.structs.replace(TRUSTED, client_cert=b":TUlJ:")
    told = (b"client-cert", b":Y2xpZW50:")

    assert sent([], proxy, WITH_CERTIFICATES) == described(b"10.0.0.1")
    assert sent([told], proxy, WITH_CERTIFICATES) == [told, *described(b"10.0.0.1")]


@pytest.mark.parametrize("name", [b"client-cert", b"client-cert-chain", b"client_cert"])
def test_a_certificate_that_comes_through_the_edge_is_none(name: bytes) -> None:
    assert name not in dict(sent([(name, b":bWluZQ==:")], EDGE, WITH_CERTIFICATES))


def test_an_edge_that_names_no_client_gets_none_made_up() -> None:
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
def test_forwarded_is_sent_when_the_document_wants_it(arrival: Arrival, given: Fields, forwarded: bytes) -> None:
    values = [value for name, value in sent(given, arrival, ALL) if name == b"forwarded"]

    assert values == [forwarded]


def test_forwarded_names_no_host_where_none_was_sent() -> None:
    assert dict(sent([], CLIENT, ALL, authority=b""))[b"forwarded"] == b"for=203.0.113.7;proto=http"


@pytest.mark.parametrize(
    ("protocol", "via"), [("HTTP/1.0", b"1.0 tunnelgw"), ("HTTP/1.1", b"1.1 tunnelgw"), ("HTTP/2", b"2.0 tunnelgw")]
)
def test_via_is_sent_when_the_document_wants_it(protocol: str, via: bytes) -> None:
    fields = sent([(b"via", b"1.1 before")], arrived(protocol=protocol), ALL)

    assert [value for name, value in fields if name == b"via"] == [b"1.1 before", via]


def test_requests_of_a_connection_for_different_hosts_are_described_each_by_itself() -> None:
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


def test_connections_that_come_and_go_are_never_taken_for_each_other() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(10_000):
        address = f"10.0.{number // 250}.{number % 250}"
        fields = forwarding.request_fields(arrived(address=address), LISTENER, asked(), b"id")

        assert dict(fields)[b"x-forwarded-for"] == address.encode()


def test_clients_behind_the_edge_are_described_once_for_each_door_and_host() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(500):
        for scheme, door in ((b"http", TUNNEL_HTTP), (b"https", TUNNEL_HTTPS)):
            arrival = msgspec.structs.replace(EDGE, address=f"198.51.{number}.1", scheme=scheme, door=door)
            fields = forwarding.request_fields(arrival, LISTENER, asked(), b"id")

            assert dict(fields)[b"x-forwarded-proto"] == scheme
    assert 2 == len(forwarding._descriptions)


def test_hosts_that_never_repeat_do_not_fill_the_memory() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(10_000):
        authority = b"%d.example" % number if number % 2 else b"%d" % number * 1000
        fields = forwarding.request_fields(CLIENT, LISTENER, asked(authority=authority), b"id")

        assert dict(fields)[b"x-forwarded-host"] == authority
        assert sum(len(authority) for _, authority in forwarding._descriptions) <= 8192 * 260


def test_names_that_never_repeat_do_not_fill_the_memory() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(5000):
        fields = forwarding.request_fields(CLIENT, LISTENER, asked(fields=[(b"x-%d" % number, b"1")]), b"id")

        assert fields[0] == (b"x-%d" % number, b"1")
        assert len(forwarding._untrusted.known) <= 2048


def test_names_that_never_repeat_do_not_displace_what_is_taken_out() -> None:
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
    ("given", "taken"), [([], None), ([(b"x-request-id", b"")], None), ([(b"x-request-id", b"a" * 129)], None)]
)
def test_a_request_id_that_says_nothing_or_too_much_is_not_taken(given: Fields, taken: bytes | None) -> None:
    assert Forwarding(PLAIN).request_id_of(asked(fields=given)) == taken


def test_the_list_of_the_codec_is_left_alone() -> None:
    fields = [(b"cookie", b"a"), (b"cookie", b"b"), (b"te", b"trailers"), (b"dnt", b"1")]
    before = list(fields)
    sent(fields)

    assert fields == before


def test_responses_lose_what_belongs_to_their_connection() -> None:
    fields = [
        (b"host", b"a.example"),
        (b"server", b"s"),
        (b"connection", b"keep-alive, Keep-Alive"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authenticate", b"Basic"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]

    assert response_fields(fields) == [(b"server", b"s"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]


def test_interim_heads_say_nothing_of_a_body() -> None:
    assert interim_fields([(b"link", b"x"), (b"content-length", b"0"), (b"upgrade", b"x")]) == [(b"link", b"x")]


def test_trailers_lose_what_only_a_head_may_say() -> None:
    fields = [(b"grpc-status", b"0"), (b"content-length", b"1"), (b"host", b"x"), (b"set-cookie", b"a=b")]

    assert trailer_fields(fields) == [(b"grpc-status", b"0")]


def test_hosts_that_clients_make_up_take_no_memory_for_ever() -> None:
    forwarding = Forwarding(PLAIN)
    for number in range(20_000):
        forwarding.request_fields(EDGE, LISTENER, asked(authority=b"%d.example" % number), b"id-1")
    forwarding.request_fields(EDGE, LISTENER, asked(authority=b"long" * 100 + b".example"), b"id-1")

    kept = [len(authority) for _, authority in forwarding._descriptions]
    assert 0 < len(kept) < 10_000
    assert max(kept) < 300
