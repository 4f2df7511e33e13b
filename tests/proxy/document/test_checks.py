"""The reasons to refuse a document that fits the schema, each with the path of its field."""

import json
from string import ascii_lowercase
from typing import Any

import pytest

from proxy import document
from proxy.document import MAX_PROBLEMS

WEB = {"name": "web", "port": 80}
HERE = [{"address": "127.0.0.1:3000"}]
KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"


def rule(**fields: Any) -> dict[str, Any]:
    return {"routes": [{"rules": [{"backends": HERE, **fields}]}]}


def path_of(type_: str, value: str) -> dict[str, Any]:
    return rule(matches=[{"path": {"type": type_, "value": value}}])


def call_of(type_: str, **names: str) -> dict[str, Any]:
    (route,) = rule(matches=[{"grpc": {"type": type_, **names}}])["routes"]
    return {"routes": [{"kind": "grpc", **route}]}


def field_of(place: str, pattern: str) -> dict[str, Any]:
    return rule(matches=[{place: [{"name": "a", "type": "RegularExpression", "value": pattern}]}])


def fields_of(patterns: list[str]) -> dict[str, Any]:
    fields = [{"name": f"n{at}", "type": "RegularExpression", "value": text} for at, text in enumerate(patterns)]
    return rule(matches=[{"headers": fields[at : at + 16]} for at in range(0, len(fields), 16)])


def probing(**policy: str) -> dict[str, Any]:
    return {"backends": [{"name": "a", "addresses": ["b:80"], "activeHealth": policy}]}


def filtered(**filters: Any) -> dict[str, Any]:
    """By the rule."""
    return rule(filters=filters)


def edited(**edits: Any) -> dict[str, Any]:
    return filtered(requestHeaderModifier=edits)


def pointed(filters: dict[str, Any], *matches: dict[str, Any]) -> dict[str, Any]:
    """A rule without backends, with such matches."""
    return {"routes": [{"rules": [{"filters": filters, "matches": list(matches)}]}]}


def calls(**fields: Any) -> dict[str, Any]:
    """A route of kind grpc with one rule."""
    return {"routes": [{"kind": "grpc", "rules": [fields]}]}


def copied(**share: Any) -> dict[str, Any]:
    return filtered(requestMirrors=[{"backend": HERE[0], **share}])


def asking(at: Any = HERE[0], **auth: Any) -> dict[str, Any]:
    """The filter `externalAuth`."""
    return {"externalAuth": {"backend": at, **auth}}


def secured(**tls: Any) -> dict[str, Any]:
    return {"backends": [{"name": "a", "protocol": "https", "tls": {"serverName": "a.example", **tls}}]}


def with_key(key: str) -> dict[str, Any]:
    pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
    certificate = {"certificate": pem, "privateKey": key}
    return {"listeners": [{**WEB, "protocol": "HTTPS", "tls": {"certificates": [certificate]}}]}


PKCS8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----\n"
PKCS1 = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMA==\n-----END RSA PRIVATE KEY-----\n"

RULE = "routes[0].rules[0]"
MATCH = f"{RULE}.matches[0]"
PATH = f"{MATCH}.path.value"
FILTERS = f"{RULE}.filters"
EDITS = f"{FILTERS}.requestHeaderModifier"
LENGTH = {"name": "Content-Length", "value": "1"}
PREFIX = {"path": {"type": "PathPrefix", "value": "/a"}}
EXACT = {"path": {"type": "Exact", "value": "/a"}}
FULL = {"type": "ReplaceFullPath", "replaceFullPath": "/b"}
PART = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/b"}
GATE: dict[str, Any] = {"protocol": "HTTPS", "tls": {"certificates": [{"certificate": CERTIFICATE, "privateKey": KEY}]}}

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"listeners": [WEB, {**WEB, "port": 81}]}, "listeners[1].name", "want unique names"),
    ({"listeners": [WEB, {"name": "b", "port": 80}]}, "listeners[1].hostname", "same hostname"),
    (
        {"listeners": [{**WEB, "address": "fd00::1"}, {**WEB, "name": "b", "address": "FD00:0::1"}]},
        "listeners[1].hostname",
        "same hostname",
    ),
    ({"listeners": [{"name": "a"}]}, "listeners[0]", "nothing can reach this listener"),
    ({"listeners": [{**WEB, "address": "host"}]}, "listeners[0].address", "not an IP address"),
    *(
        ({"listeners": [{**WEB, "address": f"fe80::1%{zone}"}]}, "listeners[0].address", "not an IP address")
        for zone in ("a\0b", "a b", "ä", "sixteen-letters-")
    ),
    ({"listeners": [{**WEB, "protocol": "HTTPS"}]}, "listeners[0]", "`tls` is missing"),
    (
        {"listeners": [{**WEB, "hostname": "a.example"}, {**WEB, **GATE, "name": "b", "hostname": "b.example"}]},
        "listeners[1].protocol",
        "HTTPS, but listeners[0] has HTTP on the same port",
    ),
    (
        {"listeners": [{"name": "a", "tunnel": True}, {"name": "b", "tunnel": True}]},
        "listeners[1].hostname",
        "same hostname",
    ),
    ({"listeners": [{**WEB, "tls": GATE["tls"]}]}, "listeners[0].tls", "protocol is HTTP, which has no TLS"),
    (
        {"listeners": [{**WEB, **GATE, "tls": {**GATE["tls"], "clientValidation": {"ca": KEY}}}]},
        "listeners[0].tls.clientValidation.ca",
        "want -----BEGIN CERTIFICATE-----",
    ),
    (with_key("<redacted sha256:ab>"), "listeners[0].tls.certificates[0].privateKey", "never returns keys"),
    (with_key("a key"), "listeners[0].tls.certificates[0].privateKey", "5 characters without a PEM block"),
    (with_key(PKCS8), "listeners[0].tls.certificates[0].privateKey", "without a passphrase"),
    (with_key(PKCS1), "listeners[0].tls.certificates[0].privateKey", "without a passphrase"),
    ({"listeners": [{"name": "t", "tunnel": True, "publicPort": 8080}]}, "listeners[0].tunnel", "ports 80 and 443"),
    ({"listeners": [{"name": "t", "tunnel": True, "port": 8080}]}, "listeners[0].tunnel", "`publicPort` says which"),
    ({"backends": [{"name": "a", "addresses": ["b"]}]}, "backends[0].addresses[0]", "want host:port"),
    ({"backends": [{"name": "a", "addresses": ["b:0"]}]}, "backends[0].addresses[0]", "want host:port"),
    ({"backends": [{"name": "a", "protocol": "https"}]}, "backends[0]", "serverName"),
    ({"backends": [{"name": "a"}, {"name": "a"}]}, "backends[1].name", "want unique names"),
    ({"backends": [{"name": "http://a:80"}]}, "backends[0].name", "reserved for backends without a name"),
    (
        {"backends": [{"name": "a", "protocol": "h2c", "tls": {"serverName": "a.example"}}]},
        "backends[0].tls",
        "protocol is h2c, which has no TLS",
    ),
    *(
        (secured(serverName=name), "backends[0].tls.serverName", wanted)
        for wanted, names in {
            "want host name, no wildcard; a label has at most 63 characters": (
                *("a" * 64, f"a.{'b' * 64}.example", "xn--" + "a" * 60, "a..b", ".a", "a.", "", "-a", "a-", "a.-b"),
                *("*.a", "A.example", "ä.example", "a b", "a\0b", "a:1", "::1", "[::1]", "a\n"),
            ),
            "want text of length <= 253": (".".join(["a" * 63] * 4),),
        }.items()
        for name in names
    ),
    (secured(ca=KEY), "backends[0].tls.ca", "blocks PRIVATE KEY, want -----BEGIN CERTIFICATE-----"),
    (secured(ca=CERTIFICATE + KEY), "backends[0].tls.ca", "a private key among the certificates"),
    (
        secured(clientCertificate={"certificate": CERTIFICATE + KEY, "privateKey": KEY}),
        "backends[0].tls.clientCertificate.certificate",
        "a private key among the certificates",
    ),
    (
        rule(sessionPersistence={"type": "Header", "sessionName": "Content-Length"}),
        "routes[0].rules[0].sessionPersistence.sessionName",
        "written only by the proxy",
    ),
    (probing(path="/health check"), "backends[0].activeHealth.path", "want path in ASCII, without spaces"),
    (probing(path="health"), "backends[0].activeHealth.path", "want path in ASCII"),
    (
        {"limits": {"requestTimeout": 30}},
        "limits.requestTimeout",
        "want text: duration such as 500ms, 30s or 1m30s; 0s turns the timeout off, seen 30",
    ),
    (secured(subjectAltNames=[{}]), "backends[0].tls.subjectAltNames[0]", "either `hostname` or `uri`"),
    (
        secured(subjectAltNames=[{"hostname": "a.example", "uri": "spiffe://a/b"}]),
        "backends[0].tls.subjectAltNames[0]",
        "either `hostname` or `uri`",
    ),
    (
        secured(clientCertificate={"certificate": CERTIFICATE, "privateKey": CERTIFICATE}),
        "backends[0].tls.clientCertificate.privateKey",
        "want -----BEGIN PRIVATE KEY-----",
    ),
    (
        secured(clientCertificate={"certificate": KEY, "privateKey": KEY}),
        "backends[0].tls.clientCertificate.certificate",
        "want -----BEGIN CERTIFICATE-----",
    ),
    (probing(interval="0s"), "backends[0].activeHealth.interval", "not a time between two probes"),
    (probing(timeout="0ms"), "backends[0].activeHealth.timeout", "wait forever"),
    ({"forwarding": {"trustedProxies": ["10.0.0.1/8"]}}, "forwarding.trustedProxies[0]", "host bits set"),
    ({"forwarding": {"proxyProtocol": ["::1", "lb.example"]}}, "forwarding.proxyProtocol[1]", "want an address"),
    ({"forwarding": {"trustedProxies": ["fe80::1%eth0"]}}, "forwarding.trustedProxies[0]", "want it without"),
    ({"forwarding": {"requestIdHeader": "Content-Length"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"forwarding": {"requestIdHeader": "Transfer_Encoding"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"forwarding": {"requestIdHeader": "Host"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"forwarding": {"requestIdHeader": "Cookie"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"forwarding": {"requestIdHeader": "Expect"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"forwarding": {"requestIdHeader": "X-Real-IP"}}, "forwarding.requestIdHeader", "a meaning of its own"),
    ({"routes": [{}]}, "routes[0]", "no `rules` and no `backends`"),
    ({"routes": [{"backends": HERE, "listeners": ["x"]}]}, "routes[0].listeners[0]", "no entry of `listeners`"),
    ({"routes": [{"backends": [{"backend": "x"}]}]}, "routes[0].backends[0].backend", "no entry of `backends`"),
    ({"routes": [{"backends": [{}]}]}, "routes[0].backends[0]", "where to forward to"),
    ({"routes": [{"backends": [{"address": "b"}]}]}, "routes[0].backends[0].address", "want host:port"),
    *(
        ({"routes": [{"backends": [{"address": f"{host}:80"}]}]}, "routes[0].backends[0].address", "neither an IPv4")
        for host in ("010", "0X7F.1", "192.168.010.1", "192.168.1", "192.168.1.256", "192.168.1.1.")
    ),
    ({"routes": [{"backends": [{"address": "[::g]:80"}]}]}, "routes[0].backends[0].address", "want host:port"),
    ({"routes": [{"backends": [{"address": "[1::2::3]:80"}]}]}, "routes[0].backends[0].address", "want host:port"),
    ({"routes": [{"backends": [{**HERE[0], "protocol": "https"}]}]}, "routes[0].backends[0]", "`tls` is missing"),
    (
        {"routes": [{"backends": [{"addresses": ["b:1", "c:65536"]}]}]},
        "routes[0].backends[0].addresses[1]",
        "host:port",
    ),
    (
        rule(filters={"requestMirrors": [{"backend": {"address": "b"}}]}),
        "routes[0].rules[0].filters.requestMirrors[0].backend.address",
        "want host:port",
    ),
    (
        {"backends": [{"name": "x"}], "routes": [{"backends": [{"backend": "x", "address": "b:1"}]}]},
        "routes[0].backends[0]",
        "excludes `address`",
    ),
    *(
        (
            {"backends": [{"name": "x"}], "routes": [{"backends": [{"backend": "x", **more}]}]},
            "routes[0].backends[0]",
            "excludes `address`",
        )
        for more in ({"addresses": ["b:1"]}, {"protocol": "h2c"})
    ),
    (
        {"routes": [{"backends": [{"address": "b:1", "addresses": ["c:1"]}]}]},
        "routes[0].backends[0].addresses",
        "`address` is given too",
    ),
    (
        {"routes": [{"backends": HERE, "rules": [{"backends": HERE}]}]},
        "routes[0].backends",
        "want `backends` inside the rules",
    ),
    (
        {"routes": [{"rules": [{"name": "a", "backends": HERE}, {"name": "a", "backends": HERE}]}]},
        "routes[0].rules[1].name",
        "is the name of rules[0] too",
    ),
    (
        {"routes": [{"backends": [{**HERE[0], "filters": {"requestHeaderModifier": {"set": [LENGTH]}}}]}]},
        "routes[0].backends[0].filters.requestHeaderModifier.set[0].name",
        "only the proxy writes it",
    ),
    (
        rule(backends=[{**HERE[0], "filters": {"requestHeaderModifier": {"set": [LENGTH]}}}]),
        f"{RULE}.backends[0].filters.requestHeaderModifier.set[0].name",
        "only the proxy writes it",
    ),
    (edited(set=[LENGTH]), f"{EDITS}.set[0].name", "only the proxy writes it"),
    (edited(add=[{"name": "transfer-encoding", "value": "chunked"}]), f"{EDITS}.add[0].name", "only the proxy writes"),
    (edited(remove=["A", "Connection"]), f"{EDITS}.remove[1]", "only the proxy writes it"),
    (edited(set=[{"name": "Host", "value": "a"}]), f"{EDITS}.set[0].name", "`urlRewrite.hostname` only"),
    (
        filtered(responseHeaderModifier={"remove": ["Content-Length"]}),
        f"{FILTERS}.responseHeaderModifier.remove[0]",
        "only the proxy writes it",
    ),
    (pointed({"requestRedirect": {}, "urlRewrite": {}}), f"{FILTERS}.urlRewrite", "want one of the two"),
    (pointed({"requestRedirect": {"path": PART}}, EXACT), f"{FILTERS}.requestRedirect.path.type", "exactly one match"),
    (filtered(requestRedirect={}), f"{FILTERS}.requestRedirect", "excludes `backends`"),
    (calls(filters={"requestRedirect": {}}), f"{FILTERS}.requestRedirect", "not for routes of kind grpc"),
    (calls(filters={"urlRewrite": {}}), f"{FILTERS}.urlRewrite", "not for routes of kind grpc"),
    (rule(matches=[EXACT], filters={"urlRewrite": {"path": PART}}), f"{FILTERS}.urlRewrite.path.type", "exactly one"),
    (
        rule(matches=[PREFIX, PREFIX], filters={"urlRewrite": {"path": PART}}),
        f"{FILTERS}.urlRewrite.path.type",
        "exactly one match",
    ),
    (
        filtered(urlRewrite={"path": {"type": "ReplaceFullPath"}}),
        f"{FILTERS}.urlRewrite.path",
        "field `replaceFullPath` is missing",
    ),
    (
        filtered(urlRewrite={"path": {**FULL, "replacePrefixMatch": "/b"}}),
        f"{FILTERS}.urlRewrite.path",
        "field `replacePrefixMatch` is not wanted",
    ),
    (
        filtered(urlRewrite={"path": {**FULL, "replaceFullPath": "/b?c"}}),
        f"{FILTERS}.urlRewrite.path.replaceFullPath",
        "is not a path",
    ),
    (
        copied(percent=0, fraction={"numerator": 1}),
        f"{FILTERS}.requestMirrors[0].fraction",
        "`percent` is given too",
    ),
    (rule(filters=asking({"address": "b"})), f"{FILTERS}.externalAuth.backend.address", "want host:port"),
    (rule(filters=asking({"backend": "x"})), f"{FILTERS}.externalAuth.backend.backend", "no entry of `backends`"),
    (rule(filters=asking({})), f"{FILTERS}.externalAuth.backend", "where to forward to"),
    (rule(filters=asking(path="/a?b")), f"{FILTERS}.externalAuth.path", "is not a path"),
    *(
        (rule(filters=asking(**{field: ["Cookie", name]})), f"{FILTERS}.externalAuth.{field}[1]", "only by the proxy")
        for field in ("allowedHeaders", "allowedResponseHeaders")
        for name in ("Host", "content-length", "Connection")
    ),
    (
        pointed({**asking(), "requestRedirect": {"scheme": "https"}}),
        f"{FILTERS}.externalAuth",
        "the server would not be asked: `requestRedirect`",
    ),
    (
        rule(filters=asking(), respond={"statusCode": 200}, backends=[]),
        f"{FILTERS}.externalAuth",
        "the server would not be asked: `respond`",
    ),
    (
        rule(filters=asking(), backends=[*HERE, {"respond": {"statusCode": 399}}]),
        f"{FILTERS}.externalAuth",
        "the server would not be asked: `respond`",
    ),
    (copied(fraction={"numerator": 101}), f"{FILTERS}.requestMirrors[0].fraction.numerator", "more than the denom"),
    *(
        (filtered(cors={name: [value, "*"]}), f"{FILTERS}.cors.{name}", "must stand alone")
        for name, value in (("allowOrigins", "http://a"), ("allowMethods", "PUT"), ("allowHeaders", "a"))
    ),
    *(
        (
            rule(backends=[{**target, "respond": {"statusCode": 404}}]),
            f"{RULE}.backends[0].respond",
            "excludes `backend`",
        )
        for target in (HERE[0], {"addresses": ["b:1"]}, {"backend": "x"}, {"tls": {"serverName": "a.example"}})
    ),
    (
        rule(sessionPersistence={"type": "Header", "lifetimeType": "Permanent", "absoluteTimeout": "1h"}),
        f"{RULE}.sessionPersistence.lifetimeType",
        "Permanent is for cookies",
    ),
    *(
        (calls(matches=[match]), f"{MATCH}.{name}", "not for routes of kind grpc")
        for name, match in (
            ("path", PREFIX),
            ("method", {"method": "GET"}),
            ("queryParams", {"queryParams": [{"name": "a", "value": "b"}]}),
        )
    ),
    ({"routes": [{"name": "a", "backends": HERE}] * 2}, "routes[1].name", "want unique names"),
    (rule(respond={"statusCode": 404}), f"{RULE}.respond", "excludes `backends`"),
    (rule(timeouts={"request": "1s", "backendRequest": "2s"}), f"{RULE}.timeouts.backendRequest", "longer than"),
    (rule(sessionPersistence={"lifetimeType": "Permanent"}), f"{RULE}.sessionPersistence", "absoluteTimeout"),
    (path_of("PathPrefix", "a"), PATH, "does not begin with `/`"),
    (path_of("Exact", "/a/../b"), PATH, "no normalised path contains"),
    (path_of("Exact", "/a/%2e%2E/b"), PATH, "no normalised path contains"),
    (path_of("PathPrefix", "/.%2e"), PATH, "no normalised path contains"),
    (path_of("PathPrefix", "/a/.%2e;b"), PATH, "no normalised path contains"),
    (path_of("PathPrefix", "/a/..%5Cb"), PATH, "no normalised path contains"),
    (path_of("Exact", "/a%5c.%2E"), PATH, "no normalised path contains"),
    (path_of("Exact", "/a%5C.;x/b"), PATH, "no normalised path contains"),
    (path_of("PathPrefix", "/a%00"), PATH, "no normalised path contains"),
    (path_of("Exact", "/a%2fb"), PATH, "want a RegularExpression"),
    (path_of("RegularExpression", "/a(?=b)"), PATH, "look-ahead"),
    (path_of("RegularExpression", "/(a|b)*a(a|b){120}"), PATH, "more than 1024 states"),
    (path_of("RegularExpression", "/((((){256}){256}){256}){256}"), PATH, "want at most 256"),
    (field_of("headers", "a("), f"{MATCH}.headers[0].value", "a("),
    (field_of("queryParams", "a("), f"{MATCH}.queryParams[0].value", "a("),
    (fields_of([f"{at}.{{0,240}}" for at in range(9)]), f"{MATCH}.headers[8].value", "too large in total"),
    (rule(matches=[{"grpc": {"service": "a.B"}}]), f"{MATCH}.grpc", "not for routes of kind http"),
    (call_of("Exact"), f"{MATCH}.grpc", "want `service`, `method` or both"),
    (call_of("Exact", service="/a.B"), f"{MATCH}.grpc.service", "such as package.Service"),
    (call_of("RegularExpression", service="a.(B"), f"{MATCH}.grpc.service", "a.(B"),
    (call_of("RegularExpression", method="(?=C)"), f"{MATCH}.grpc.method", "look-ahead"),
]


@pytest.mark.parametrize(("refused", "path", "reason"), REFUSED)
def test_a_contradiction_is_refused_with_the_path_of_its_field(refused: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(document.DocumentError) as caught:
        document.decode(json.dumps(refused).encode())

    (problem,) = caught.value.problems
    assert problem.path == path
    assert reason in problem.message


@pytest.mark.parametrize("refused", [refused for refused, _, _ in REFUSED])
def test_a_reader_finds_the_same_problems_after_it_has_read_a_valid_document(refused: dict[str, Any]) -> None:
    data = json.dumps(refused).encode()
    with pytest.raises(document.DocumentError) as caught:
        document.decode(data)
    reader = document.Reader()
    reader.read(b'{"routes": [{"backends": [{"address": "127.0.0.1:3000"}]}]}')

    with pytest.raises(document.DocumentError) as caught_again:
        reader.read(data)

    assert caught.value.problems == caught_again.value.problems


def test_all_problems_are_reported_at_once_up_to_a_bound() -> None:
    with pytest.raises(document.DocumentError) as caught:
        document.decode(json.dumps({"routes": [{}] * 100}).encode())

    assert [f"routes[{place}]" for place in range(MAX_PROBLEMS)] == [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"a"', b"\xff", b'{"version": 1e400}', b"[" * 5000])
def test_bytes_that_are_not_a_document_raise_document_error(data: bytes) -> None:
    with pytest.raises(document.DocumentError):
        document.decode(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty, want an object such as {}"),
        (b" \n", "empty, want an object such as {}"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark, want none"),
        ("\ufeff{}".encode("utf-16-le"), "this is UTF-16"),
        ("\ufeff{}".encode("utf-16-be"), "this is UTF-16"),
        (b'{"routes": [],}', "line 1, column 15: trailing comma in object"),
        (
            b'{\n  "listeners": [\n    {"name": "web",, "port": 80}\n  ]\n}',
            "line 3, column 20: object keys must be strings",
        ),
    ],
)
def test_a_syntax_error_is_reported_with_line_and_column(data: bytes, reason: str) -> None:
    with pytest.raises(document.DocumentError) as caught:
        document.decode(data)

    assert str(caught.value) == f"not a JSON document in UTF-8: {reason}"


REPEATING = b"""{
  "listeners": [{"name": "web", "port": 80}],
  "routes": [{"backends": [{"address": "127.0.0.1:3000", "address": "127.0.0.1:3001", "address": "127.0.0.1:3002"}]}],
  "listeners": []
}"""


def test_repeated_fields_are_refused_with_their_paths() -> None:
    with pytest.raises(document.DocumentError) as caught:
        document.decode(REPEATING)

    assert list(map(str, caught.value.problems)) == [
        "listeners: this field occurs 2 times, want it once: only the last would count",
        "routes[0].backends[0].address: this field occurs 3 times, want it once: only the last would count",
    ]


def test_a_reader_that_refuses_a_repeated_field_keeps_the_routes_of_the_previous_document() -> None:
    reader = document.Reader()
    before = reader.read(b'{"routes": [{"name": "a", "backends": [{"address": "127.0.0.1:3000"}]}]}')

    with pytest.raises(document.DocumentError, match=r"^listeners: this field occurs 2 times"):
        reader.read(REPEATING)

    after = reader.read(b'{"routes": [{"name": "a", "backends": [{"address": "127.0.0.1:3000"}]}]}')
    assert after.content.routes == before.content.routes


def problems_of(refused: dict[str, Any]) -> list[str]:
    with pytest.raises(document.DocumentError) as caught:
        document.decode(json.dumps(refused).encode())
    return [problem.message for problem in caught.value.problems]


def test_the_work_on_expressions_that_are_too_large_counts_towards_the_total_of_a_rule() -> None:
    """Each of them counts as much as the largest that is allowed."""
    reasons = problems_of(fields_of([f"(a|b)*a(a|b){{{100 + at}}}" for at in range(10)]))

    assert [("1024 states" in reason, "too large in total" in reason) for reason in reasons] == [
        *[(True, False)] * 8,
        *[(False, True)] * 2,
    ]


def test_expressions_with_syntax_errors_do_not_count_towards_the_total_of_a_rule() -> None:
    assert all("too large" not in reason for reason in problems_of(fields_of([f"a{at}(" for at in range(16)])))


def test_a_rule_may_have_hundreds_of_common_regular_expressions_and_repeat_one_of_them() -> None:
    usual = [f"/api/v[0-9]+/users{at}/[a-z0-9-]+" for at in range(200)]

    document.decode(json.dumps(fields_of(usual)).encode())
    document.decode(json.dumps(fields_of([".{0,240}"] * 200)).encode())


def test_a_rule_may_have_twenty_long_lists_of_words() -> None:
    """They need less work than as many characters each of which is optional."""
    lists = ["|".join(f"host-{ascii_lowercase[at]}{word:02}" for word in range(30)) for at in range(20)]

    document.decode(json.dumps(fields_of([f"({words}).*" for words in lists])).encode())


def test_private_keys_appear_in_no_message_and_no_repr_and_are_redacted_to_fingerprints() -> None:
    tls = {"certificates": [{"certificate": CERTIFICATE, "privateKey": KEY}]}
    listener = {"name": "web", "port": 443, "protocol": "HTTPS", "tls": tls}

    taken = document.decode(json.dumps({"listeners": [listener]}).encode())
    redacted = document.encode_redacted(taken)
    with pytest.raises(document.DocumentError) as caught:
        document.decode(json.dumps({"listeners": [{**listener, "name": KEY}]}).encode())

    assert b"<redacted sha256:" in redacted
    for text in (repr(taken), redacted.decode(), str(caught.value)):
        assert "c2VjcmV0" not in text


TAKEN: list[dict[str, Any]] = [
    {"listeners": [{**WEB, "hostname": "a.example"}, {**WEB, "name": "b", "hostname": "b.example"}]},
    {"listeners": [WEB, {**WEB, "name": "b", "hostname": "b.example"}]},
    {"listeners": [WEB, {**WEB, **GATE, "name": "b", "port": 443}]},
    {"listeners": [{"name": "a", "tunnel": True}, {"name": "b", "tunnel": True, "gateway": "another"}]},
    {"listeners": [WEB, {"name": "a", "tunnel": True}]},
    {"listeners": [{"name": "a", "tunnel": True, "publicPort": 80}]},
    {"listeners": [{"name": "a", "tunnel": True, "protocol": "HTTPS"}]},
    {"listeners": [WEB], "routes": [{"backends": HERE, "listeners": ["web"]}]},
    {"routes": [{"backends": HERE}, {"backends": HERE}]},
    {"routes": [{"rules": [{"backends": HERE}, {"backends": HERE}]}]},
    {"routes": [{"name": "a", "backends": HERE}, {"name": "a", "kind": "grpc", "backends": HERE}]},
    secured(subjectAltNames=[{"hostname": "a.example"}, {"uri": "spiffe://a/b"}], ca=CERTIFICATE),
    secured(clientCertificate={"certificate": CERTIFICATE, "privateKey": KEY}),
    edited(set=[{"name": "X-Host", "value": "a"}], add=[{"name": "Via", "value": "a"}], remove=["Server"]),
    filtered(urlRewrite={"hostname": "b.example"}),
    filtered(urlRewrite={"path": FULL}),
    filtered(urlRewrite={"path": PART}),
    rule(matches=[PREFIX], filters={"urlRewrite": {"path": PART}}),
    rule(matches=[{"method": "GET"}], filters={"urlRewrite": {"path": PART}}),
    rule(matches=[EXACT, PREFIX], filters={"urlRewrite": {"path": FULL}}),
    pointed({"requestRedirect": {"path": PART}}, PREFIX),
    calls(backends=HERE, filters={"requestHeaderModifier": {"remove": ["a"]}}),
    copied(percent=0),
    copied(fraction={"numerator": 100}),
    filtered(cors={"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["a", "b"]}),
    rule(backends=[{"respond": {"statusCode": 404}}, HERE[0]]),
    rule(sessionPersistence={"lifetimeType": "Permanent", "absoluteTimeout": "1h"}),
]


@pytest.mark.parametrize("taken", TAKEN)
def test_a_document_without_contradictions_is_accepted(taken: dict[str, Any]) -> None:
    document.decode(json.dumps(taken).encode())


def test_an_attempt_may_take_as_long_as_its_request() -> None:
    document.decode(json.dumps(rule(timeouts={"request": "1s", "backendRequest": "1000ms"})).encode())


@pytest.mark.parametrize(
    "address", ["b:1", "b:65535", "b.example.:80", "10.0.0.1:80", "[::1]:80", "[::ffff:10.0.0.1]:80"]
)
def test_addresses_of_every_form_are_accepted(address: str) -> None:
    (route,) = document.decode(json.dumps({"routes": [{"backends": [{"address": address}]}]}).encode()).routes

    assert route.backends[0].address == address
