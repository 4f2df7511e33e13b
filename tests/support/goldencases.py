"""The tables of Gateway API as cases: run against `decide` alone (tests/proxy/routing) and through the real proxy."""

from typing import Any

from proxy import routing
from tests.support.routes import headers, path, request, route

REDIRECT_HOSTS = [
    # listener port, protocol, scheme, port -> Location without path
    (80, "HTTP", None, None, "http://example.org"),
    (80, "HTTP", None, 8080, "http://example.org:8080"),
    (80, "HTTP", "https", None, "https://example.org"),
    (80, "HTTP", "https", 8443, "https://example.org:8443"),
    (8080, "HTTP", None, None, "http://example.org:8080"),
    (8080, "HTTP", None, 80, "http://example.org"),
    (8080, "HTTP", "https", None, "https://example.org"),
    (443, "HTTPS", None, None, "https://example.org"),
    (443, "HTTPS", None, 8443, "https://example.org:8443"),
    (443, "HTTPS", "http", None, "http://example.org"),
    (443, "HTTPS", "http", 8080, "http://example.org:8080"),
]

PREFIX_CHANGES = [
    # path, matched prefix, replacement -> result
    ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
    ("/foo", "/foo", "/xyz", "/xyz"),
    ("/foo/", "/foo", "/xyz", "/xyz/"),
    ("/foo/bar", "/foo", "", "/bar"),
    ("/foo/bar", "/foo", "/", "/bar"),
    ("/foo/", "/foo", "", "/"),
    ("/foo/", "/foo", "/", "/"),
    ("/foo", "/foo", "", "/"),
    ("/foo", "/foo", "/", "/"),
    ("/a/b/c", "/", "/x", "/x/a/b/c"),
]

NORMAL_FORMS = [
    ("/a/b", "/a/b"),
    ("/a/b/", "/a/b/"),
    ("/%61%2Db", "/a-b"),
    ("/a%2fb", "/a%2Fb"),
    ("/a%5cb", "/a%5Cb"),
    ("/%7e", "/~"),
    ("/caf%c3%a9", "/caf%C3%A9"),
    ("/a%20b", "/a%20b"),
    ("/a%252fb", "/a%252fb"),
    ("/(a)'!*,;=:@$&+", "/(a)'!*,;=:@$&+"),
    ('/{a}|"b"<c>^`[d]', "/%7Ba%7D%7C%22b%22%3Cc%3E%5E%60%5Bd%5D"),
    ("//a///b", "/a/b"),
    ("/a/./b", "/a/b"),
    ("/a/../b", "/b"),
    ("/a/%2e%2e/b", "/b"),
    ("/a/.", "/a/"),
    ("/a/..", "/"),
    ("/a/b/..", "/a/"),
    ("/.well-known/x", "/.well-known/x"),
    ("/a/...", "/a/..."),
    ("/a/b/../../c", "/c"),
    ("/a//../b", "/b"),
    ("/..", None),
    ("/a/../../b", None),
    ("/%2e%2e/", None),
    ("/a/..;/admin", None),
    ("/a/%2e%2e;x=1/admin", None),
    ("/a/.;/admin", None),
    ("/a/..;", None),
    ("/a;b=1/b..;c/.d;e", "/a;b=1/b..;c/.d;e"),
    ("/a/..%3b/b", "/a/..%3B/b"),
    ("/a/..%2fadmin", None),
    ("/a/%2e%2e%5cadmin", None),
    ("/a%2F..%2Fadmin", None),
    ("/a%2f../admin", None),
    ("/a/.%2Fadmin", None),
    ("/a%2F..;x%2Fadmin", None),
    ("/a/b%2F..", None),
    ("/a%2F..b/...%2Fc/.d%2Fe", "/a%2F..b/...%2Fc/.d%2Fe"),
    ("/a%2Fb/../c", "/c"),
    ("/%zz", None),
    ("/a%", None),
    ("/a%0", None),
    ("/%00", None),
    ("/a\\b", None),
    ("/a#b", None),
    ("*", None),
    ("", None),
    ("a", None),
]

ORIGINS = [
    # configured, sent -> allowed
    (["*"], "https://any.example:444", True),
    (["https://a.example"], "https://a.example", True),
    (["https://a.example"], "https://A.example", True),
    (["https://a.example"], "http://a.example", False),
    (["https://a.example"], "https://b.example", False),
    (["https://a.example"], "https://x.a.example", False),
    (["https://a.example"], "https://a.example:443", True),
    (["https://a.example:443"], "https://a.example", True),
    (["http://a.example"], "http://a.example:80", True),
    (["https://a.example"], "https://a.example:444", False),
    (["https://a.example:444"], "https://a.example:444", True),
    (["https://*.a.example"], "https://x.a.example", True),
    (["https://*.a.example"], "https://x.y.a.example", True),
    (["https://*.a.example"], "https://a.example", False),
    (["https://*.a.example"], "https://xa.example", False),
    (["https://*.a.example"], "http://x.a.example:443", False),
    (["https://*.a.example"], "https://.a.example", False),
    (["https://*.a.example"], "https://x.a.example.evil", False),
    (["https://*.a.example:8443"], "https://x.a.example:8443", True),
    (["https://*.a.example:8443"], "https://x.a.example", False),
    (["https://*.a.example"], "https://evil.example/.a.example", False),
    (["https://*.a.example"], "https://me@x.a.example", False),
    (["https://*.a.example"], "https://x.a.example, https://y.a.example", False),
    (["https://*"], "https://whatever.example", True),
    (["https://*"], "https://[::1]", True),
    (["https://*"], "http://whatever.example", False),
    (["https://a.example"], "null", False),
    (["https://a.example"], "", False),
    ([], "https://a.example", False),
]

OLD, NEW = "2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z"

# Winner first: each pair differs in one criterion, and the loser is better in all lower criteria.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], routing.PlainHead]] = {
    "exact hostname before wildcard": (
        route("win", path("/"), hostnames=["a.b.example"], createdAt=NEW),
        route("lose", path("/x", "Exact", method="GET"), hostnames=["*.b.example"], createdAt=OLD),
        request("a.b.example/x"),
    ),
    "longer wildcard before shorter": (
        route("win", path("/"), hostnames=["*.b.example"], createdAt=NEW),
        route("lose", path("/x", "Exact"), hostnames=["*.example"], createdAt=OLD),
        request("a.b.example/x"),
    ),
    "wildcard before no hostname": (
        route("win", path("/"), hostnames=["*.example"], createdAt=NEW),
        route("lose", path("/x", "Exact"), createdAt=OLD),
        request("a.example/x"),
    ),
    "Exact before PathPrefix": (
        route("win", path("/x", "Exact"), createdAt=NEW),
        route("lose", path("/x", method="GET", headers=headers(a="1")), createdAt=OLD),
        request("h/x", a="1"),
    ),
    "Exact before RegularExpression": (
        route("win", path("/x", "Exact"), createdAt=NEW),
        route("lose", path("/.*", "RegularExpression", method="GET"), createdAt=OLD),
        request("h/x"),
    ),
    "RegularExpression before PathPrefix": (
        route("win", path("/.*", "RegularExpression"), createdAt=NEW),
        route("lose", path("/long/prefix", method="GET"), createdAt=OLD),
        request("h/long/prefix"),
    ),
    "longer RegularExpression before shorter": (
        route("win", path("/[a-z]+", "RegularExpression"), createdAt=NEW),
        route("lose", path("/.*", "RegularExpression", method="GET"), createdAt=OLD),
        request("h/x"),
    ),
    "longer PathPrefix before shorter": (
        route("win", path("/a/b"), createdAt=NEW),
        route("lose", path("/a", method="GET", headers=headers(a="1", b="2")), createdAt=OLD),
        request("h/a/b/c", a="1", b="2"),
    ),
    "method before many headers": (
        route("win", path("/a", method="GET"), createdAt=NEW),
        route("lose", path("/a", headers=headers(**{f"h{n}": "1" for n in range(12)})), createdAt=OLD),
        request("h/a", **{f"h{n}": "1" for n in range(12)}),
    ),
    "more headers before many query parameters": (
        route("win", path("/a", headers=headers(a="1", b="2")), createdAt=NEW),
        route("lose", path("/a", headers=headers(a="1"), queryParams=headers(p="1", q="2", r="3")), createdAt=OLD),
        request("h/a?p=1&q=2&r=3", a="1", b="2"),
    ),
    "more query parameters before age": (
        route("win", path("/a", queryParams=headers(p="1", q="2")), createdAt=NEW),
        route("lose", path("/a", queryParams=headers(p="1")), createdAt=OLD),
        request("h/a?p=1&q=2"),
    ),
    "older route before the alphabet": (
        route("z-win", path("/a"), createdAt=OLD),
        route("a-lose", path("/a"), createdAt=NEW),
        request("h/a"),
    ),
    "a route with a time before one without": (
        route("z-win", path("/a"), createdAt=NEW),
        route("a-lose", path("/a")),
        request("h/a"),
    ),
    "the alphabet last": (route("a-win", path("/a")), route("b-lose", path("/a")), request("h/a")),
    "a trailing slash makes no prefix longer": (
        route("a-win", path("/a")),
        route("b-lose", path("/a/")),
        request("h/a/b"),
    ),
}
