"""`check`, `explain` and `schema`: what they print, and their exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from proxy.commands.main import run
from tests.proxy.site import TOKEN, Proxy
from tests.support.process import REPOSITORY
from tests.support.socketbackend import Dialogue, SocketBackend

SHOP: Mapping[str, Any] = {
    "listeners": [
        {"name": "web", "address": "127.0.0.1", "port": 8080, "publicPort": 80},
        {"name": "admin", "address": "127.0.0.1", "port": 9090, "hostname": "admin.example"},
        {"name": "edge", "protocol": "HTTPS", "tunnel": True},
    ],
    "routes": [
        {
            "name": "shop/cart",
            "hostnames": ["shop.example"],
            "rules": [
                {
                    "name": "canary",
                    "matches": [{"path": {"value": "/cart"}, "headers": [{"name": "X-Canary", "value": "1"}]}],
                    "backends": [{"address": "10.0.0.2:80"}],
                },
                {
                    "matches": [{"path": {"value": "/cart"}}],
                    "backends": [
                        {"address": "10.0.0.1:80", "weight": 3},
                        {"address": "10.0.0.3:80", "weight": 1},
                    ],
                },
            ],
        }
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(SHOP))
    return str(path)


def told(capsys: pytest.CaptureFixture[str], *arguments: str, **environ: str) -> tuple[int, str, str]:
    code = run(arguments, environ)
    out, err = capsys.readouterr()
    return code, out, err


def test_check_reports_a_valid_document_as_sound(capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert told(capsys, "check", file) == (0, f"{file}: sound; 3 listeners, 1 route, 0 backends\n", "")


def test_check_prints_every_problem_of_every_file(
    capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"routes": [{"hostnames": ["A"]}, {"colour": 1}]}')

    code, out, _ = told(capsys, "check", file, str(broken))

    assert code == 1
    assert f"{file}: sound" in out
    assert f"{broken}: routes[0].hostnames[0]: " in out
    assert f"{broken}: routes[1].colour: " in out


def test_check_prints_json_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")

    code, out, _ = told(capsys, "check", "--json", str(broken))

    (verdict,) = json.loads(out)
    assert (code, verdict["file"], verdict["is_sound"]) == (1, str(broken), False)
    assert "not a JSON document" in verdict["problems"][0]["message"]


def test_check_reads_standard_input_as_a_real_command() -> None:
    command = [sys.executable, "-m", "proxy", "check", "-"]
    done = subprocess.run(command, input=b'{"routes": []}', cwd=REPOSITORY, capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (
        0,
        b"-: sound; 0 listeners (served through the tunnel only), 0 routes, 0 backends\n",
    )


def test_a_file_that_cannot_be_read_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "check", "/nowhere/document.json")

    assert (code, out) == (2, "")
    assert "/nowhere/document.json: No such file" in err


def test_explain_names_route_rule_reason_and_shares(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = told(capsys, "explain", "--config", file, "GET", "http://shop.example/cart?page=2")

    for spelling in ([], ["-X", "GET"]):
        again = told(capsys, "explain", *spelling, "--config", file, "http://shop.example/cart?page=2")
        assert again == (code, out, "")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("door: ")] == [
        "door: 127.0.0.1:8080",
        "door: tunnel-http",
    ]
    assert "listener: web (every host)" in out
    assert "route: shop/cart (http), rules[1], match 0, hostname shop.example" in out
    assert "because: path PathPrefix /cart" in out
    assert "backend: 75.0% http://10.0.0.1:80" in out
    assert "backend: 25.0% http://10.0.0.3:80" in out
    assert "outcome: forward to http://10.0.0.1:80 as shop.example/cart?page=2" in out
    assert "near miss: shop/cart (http), canary" in out
    assert "wants 'Exact 1', but was not sent" in out


def test_explain_looks_at_header_fields(capsys: pytest.CaptureFixture[str], file: str) -> None:
    arguments = ["explain", "--config", file, "-H", "x-canary: 1", "-H", "Host: shop.example", "GET", "http://x/cart/1"]

    code, out, _ = told(capsys, *arguments)

    assert code == 0
    assert "(http), canary, match 0" in out
    assert "runner-up: shop/cart (http), rules[1], match 0, hostname shop.example, behind by" in out


@pytest.mark.parametrize(
    ("said", "where", "rule"),
    [
        ("X-Real-IP: 10.1.1.1", ["http://a.example:8080/"], "outside"),
        ("X-Real-IP: 10.1.1.1", ["--client", "10.0.0.1", "http://a.example:8080/"], "inside"),
        ("X-Real-IP: 10.1.1.1", ["--client", "::ffff:10.0.0.1", "http://a.example:8080/"], "inside"),
        ("X-Real-IP: 10.1.1.1", ["--client", "::1", "http://a.example:8080/"], "outside"),
        ("X-Real-IP: 10.1.1.1", ["https://a.example/"], "inside"),
        ("Client-Cert: 10.1.1.1", ["--client", "10.0.0.1", "http://a.example:8080/"], "inside"),
        ("Client-Cert: 10.1.1.1", ["https://a.example/"], "outside"),
        ("X-Request-Id: 10.1.1.1", ["http://a.example:8080/"], "outside"),
        ("X-Request-Id: 10.1.1.1", ["https://a.example/"], "inside"),
    ],
)
def test_explain_believes_fields_that_describe_clients_as_the_proxy_would(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, said: str, where: list[str], rule: str
) -> None:
    names = ("X-Real-IP", "Client-Cert", "X-Request-Id")
    believing = {"name": "inside", "matches": [{"headers": [{"name": name, "value": "10.1.1.1"}]} for name in names]}
    rules = [{**one, "backends": [{"address": "b.test:80"}]} for one in (believing, {"name": "outside"})]
    listeners = [{"name": "web", "port": 8080}, {"name": "edge", "protocol": "HTTPS", "tunnel": True}]
    document = tmp_path / "document.json"
    document.write_text(
        json.dumps(
            {"listeners": listeners, "forwarding": {"trustedProxies": ["10.0.0.0/8"]}, "routes": [{"rules": rules}]}
        )
    )

    code, out, _ = told(capsys, "explain", "--config", str(document), "-H", said, "GET", *where)

    assert code == 0
    assert f"route: routes[0] (http), {rule}, match " in out


def test_explain_shows_what_a_condition_sees_in_place_of_what_was_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    condition = {"name": "X-Forwarded-For", "value": "10.1.1.1"}
    rule = {"matches": [{"headers": [condition]}], "backends": [{"address": "b.test:80"}]}
    document = tmp_path / "document.json"
    document.write_text(json.dumps({"listeners": [{"name": "web", "port": 80}], "routes": [{"rules": [rule]}]}))
    where = ["--client", "2001:DB8::0001", "-H", "X-Forwarded-For: 10.1.1.1", "GET", "http://a.example/"]

    code, out, _ = told(capsys, "explain", "--config", str(document), *where)

    assert code == 1
    assert "header x-forwarded-for wants 'Exact 10.1.1.1', seen '2001:db8::1'" in out


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("", ""),
        ("closed for today\r\ncome again\n", ": closed for today"),
        (f"\n{'x' * 120}\n", f": {'x' * 120}"),
        ("x" * 121, f": {'x' * 120}..."),
        ("not \x1b[31mred", ": not  [31mred"),
    ],
)
def test_explain_prints_the_beginning_of_the_body_of_a_fixed_response(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, body: str, shown: str
) -> None:
    """A controller that could not resolve a route's reference says so in that body."""
    document = tmp_path / "closed.json"
    rule = {"backends": [{"respond": {"statusCode": 500, "body": body}}]}
    document.write_text(json.dumps({"listeners": [{"name": "web", "port": 80}], "routes": [{"rules": [rule]}]}))

    code, out, _ = told(capsys, "explain", "--config", str(document), "GET", "http://a.example/")

    assert code == 0
    assert f"outcome: answer 500 (fixed){shown}\n" in out


def test_explain_prints_no_body_of_a_response_that_the_document_does_not_define(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    _, out, _ = told(capsys, "explain", "--config", file, "GET", "http://elsewhere.example/")

    assert "outcome: answer 404 (no_route)\n" in out


def test_explain_uses_the_listener_that_is_named(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = told(capsys, "explain", "--config", file, "--listener", "admin", "GET", "http://shop.example/cart")

    assert code == 1
    assert "door: 127.0.0.1:9090" in out
    assert "listener: none takes this host\n" in out


def test_explain_goes_through_the_tunnel_for_an_https_url(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = told(capsys, "explain", "--config", file, "--json", "GET", "https://shop.example/cart")

    (report,) = json.loads(out)
    assert code == 0
    assert (report["door"], report["listener"]) == ("tunnel-https", "edge")
    assert report["winner"]["route"] == "shop/cart"
    assert report["outcome"]["action"] == "forward"


SHOWN: Mapping[str, Any] = {
    "listeners": [
        {"name": "web", "address": "127.0.0.1", "port": 80},
        {"name": "own", "address": "127.0.0.1", "port": 80, "hostname": "own.example"},
        {
            "name": "secure",
            "address": "127.0.0.1",
            "port": 443,
            "protocol": "HTTPS",
            "tls": {"certificates": [{"certificate": "as it was put", "privateKey": f"<redacted sha256:{'0' * 64}>"}]},
        },
    ],
    "backends": [{"name": "copy", "addresses": ["10.0.0.9:80"]}],
    "routes": [
        {
            "name": "shop",
            "hostnames": ["shop.example"],
            "listeners": ["web", "secure"],
            "rules": [
                {
                    "matches": [{"path": {"value": "/old"}}],
                    "filters": {"requestRedirect": {"scheme": "https", "statusCode": 301}},
                },
                {
                    "filters": {
                        "requestHeaderModifier": {"set": [{"name": "X-Shop", "value": "1"}], "remove": ["X-Debug"]},
                        "requestMirrors": [{"backend": {"backend": "copy"}, "percent": 50}],
                    },
                    "backends": [{"address": "10.0.0.1:80"}],
                },
            ],
        },
        {"listeners": ["web", "secure"], "backends": [{"address": "10.0.0.2:80"}]},
    ],
}
"""As a running proxy with TLS shows it, without its key."""


@pytest.fixture
def shown(tmp_path: Path) -> str:
    path = tmp_path / "shown.json"
    path.write_text(json.dumps(SHOWN))
    return str(path)


REDIRECTED = """\
door: 127.0.0.1:80
host: shop.example
path: /old
listener: web (every host)
not listener: own (own.example)
route: shop (http), rules[0], match 0, hostname shop.example
because: path PathPrefix /old
runner-up: shop (http), rules[1], match 0, hostname shop.example, behind by length of path
filter: requestRedirect 301
outcome: redirect 301 to https://shop.example/old?a=1
"""
FORWARDED = """\
door: 127.0.0.1:443
host: shop.example
path: /
listener: secure (every host)
route: shop (http), rules[1], match 0, hostname shop.example
because: path PathPrefix /
runner-up: routes[1] (http), rules[0], match 0, hostname every host, behind by hostname
backend: 100.0% http://10.0.0.1:80 (10.0.0.1:80); request header x-debug removed; request header x-shop: 1; \
0.5 of requests copied to copy
outcome: forward to http://10.0.0.1:80 as shop.example/ without x-debug with 'x-shop: 1' copied to copy
near miss: shop (http), rules[0], match 0, hostname shop.example: path wants 'path PathPrefix /old', seen '/'
"""
OF_NO_HOST = """\
door: 127.0.0.1:80
host: (none)
path: /
listener: web (every host)
not listener: own (own.example)
route: routes[1] (http), rules[0], match 0, hostname every host
because: path PathPrefix /
backend: 100.0% http://10.0.0.2:80 (10.0.0.2:80)
outcome: forward to http://10.0.0.2:80 as /?q
near miss: shop (http), rules[0], match 0, hostname shop.example: hostname wants 'shop.example', seen ''
near miss: shop (http), rules[1], match 0, hostname shop.example: hostname wants 'shop.example', seen ''
"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["GET", "http://shop.example/old?a=1"], REDIRECTED),
        (["GET", "https://shop.example"], FORWARDED),
        (["-H", "Host:", "GET", "http://shop.example/?q"], OF_NO_HOST),
    ],
    ids=["redirected", "forwarded", "of no host"],
)
def test_explain_prints_one_fact_a_line_for_a_redacted_document_too(
    capsys: pytest.CaptureFixture[str], shown: str, arguments: list[str], text: str
) -> None:
    assert told(capsys, "explain", "--config", shown, *arguments) == (0, text, "")


def test_explain_prints_the_problems_of_a_redacted_document_that_was_made_invalid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**SHOWN, "routes": [{"hostnames": [1]}]}))

    code, _, err = told(capsys, "explain", "--config", str(changed), "GET", "http://a.example/")

    assert code == 2
    assert "routes[0].hostnames[0]: " in err


@pytest.mark.parametrize(
    ("host", "listener", "code", "drawn", "misses"),
    [
        ("own.example", " own (own.example) ", 1, "\x1b[31manswer 404", 1),
        ("a.example", " web (every host) ", 0, "\x1b[32mforward to ", 2),
    ],
)
def test_explain_formats_its_report_for_a_terminal(
    shown: str, host: str, listener: str, code: int, drawn: str, misses: int
) -> None:
    reading, writing = os.openpty()
    command = [sys.executable, "-m", "proxy", "explain", "--config", shown, "GET", f"http://{host}/"]
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    said = b""
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=writing, env=environ) as child:
        os.close(writing)
        with contextlib.suppress(OSError):  # EIO: its other end has been closed
            while select.select([reading], [], [], 60.0)[0]:
                said += os.read(reading, 4096)
    os.close(reading)
    lines = said.decode().splitlines()

    assert child.returncode == code
    assert "door 127.0.0.1:80" in lines[0]
    assert any(host in line and "\x1b[1mhost" in line for line in lines), "the label is bold"
    assert any(listener in line for line in lines), "nor is it coloured"
    assert any(drawn in line for line in lines)
    assert ["near miss" in line for line in lines if " wants " in line] == [True, *[False] * (misses - 1)], "said once"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_explain_goes_through_the_tunnel_where_the_listener_named_has_no_port(
    capsys: pytest.CaptureFixture[str], file: str, scheme: str
) -> None:
    where = ["--listener", "edge", "GET", f"{scheme}://shop.example/cart"]

    code, out, _ = told(capsys, "explain", "--config", file, *where)

    assert (code, out.splitlines()[0]) == (0, f"door: tunnel-{scheme}")


def test_explain_says_that_a_document_has_no_listeners(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({"routes": SHOP["routes"]}))

    named = told(capsys, "explain", "--config", str(bare), "--listener", "web", "GET", "http://shop.example/")
    missed = told(capsys, "explain", "--config", str(bare), "GET", "http://shop.example:81/")

    assert (named[0], missed[0]) == (2, 2)
    assert "no listener 'web'; its listeners: none" in named[2]
    assert "no listener takes http on port 81; the document's listeners: none;" in missed[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["GET", "http://shop.example:81/"], ["port 81", "web (http, port 80)", "--listener"]),
        (["GET", "https://shop.example:80/"], ["https on port 80", "edge (https, port 443)"]),
        (["GET", "shop.example"], ["'shop.example'", "https://"]),
        (["GET", "ftp://shop.example/"], ["'ftp://shop.example/'", "https://"]),
        (["GET", "https:///cart"], ["'https:///cart'", "https://"]),
        (["GET", "http://shop.example:x/"], ["http://shop.example:x/"]),
        (["-H", "nonsense", "GET", "http://shop.example/"], ["'nonsense'", "name: value"]),
        (["-H", " : value", "GET", "http://shop.example/"], ["' : value'", "name: value"]),
        (["--listener", "none", "GET", "http://shop.example/"], ["'none'", "web, admin, edge"]),
        (["--client", "proxy.lan", "GET", "http://shop.example/"], ["'proxy.lan'", "want an IP address"]),
        (["G ET", "http://shop.example/"], ["'G ET'", "want one word"]),
        (["", "http://shop.example/"], ["seen method ''", "want one word"]),
        (["-X", "PUT", "GET", "http://shop.example/"], ["two methods, 'PUT' after -X and 'GET'"]),
        (["CONNECT", "http://shop.example/"], ["answered with 501", "ask about that"]),
        (["GET", "http://b\u00fccher..example/"], ["'b\u00fccher..example'", "not a host name"]),
        (["G\udce9T", "http://shop.example/"], ["want one word"]),
    ],
)
def test_an_invalid_request_to_explain_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], file: str, arguments: list[str], words: list[str]
) -> None:
    code, out, err = told(capsys, "explain", "--config", file, *arguments)

    assert (code, out) == (2, "")
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"routes": [{"hostnames": ["A"]}]}', "routes[0].hostnames[0]"),
        (b'{"routes": [{"backends": [{"backend": "nowhere"}]}]}', "routes[0].backends[0].backend"),
        (b'{"routes": [{"name": "\xff"}]}', "not a JSON document"),
    ],
)
def test_explain_prints_the_problems_of_a_refused_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: bytes, place: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(text)

    code, _, err = told(capsys, "explain", "--config", str(broken), "GET", "http://a.example/")

    assert code == 2
    assert place in err


def test_explain_converts_an_internationalized_host_to_its_a_labels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps({**SHOP, "routes": [{**SHOP["routes"][0], "hostnames": ["xn--bcher-kva.example"]}]}))

    code, out, _ = told(capsys, "explain", "--config", str(file), "GET", "http://B\u00fccher.example:80/cart")

    assert code == 0
    assert "host: xn--bcher-kva.example" in out


def test_explain_takes_octets_that_are_not_utf_8_as_a_client_would_send_them(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    typed = os.fsdecode(b"http://shop.example/cart/\xe9")

    code, out, _ = told(capsys, "explain", "--config", file, "-H", os.fsdecode(b"x: \xe9"), "GET", typed)

    assert (code, "path: /cart/%E9" in out) == (0, True)


def test_explain_says_that_a_proxy_cannot_have_such_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "explain", "--proxy", "http://proxy..lan:8082", "GET", "http://shop.example/")

    assert (code, out) == (2, "")
    assert "cannot ask the proxy at http://proxy..lan:8082: " in err


@pytest.mark.parametrize("url", ["http://[::1]x/", "http://[::1]80/", "http://sh\top.example/"])
def test_explain_takes_no_url_that_a_request_cannot_have(
    capsys: pytest.CaptureFixture[str], file: str, url: str
) -> None:
    """urllib may take them, where no client would, or the proxy would answer 400."""
    code, out, err = told(capsys, "explain", "--config", file, "GET", url)

    assert (code, out) == (2, "")
    assert f"seen URL {url!r}: " in err


@pytest.mark.parametrize("url", ["http://[::1]", "https://[::1]", "http://[::1]:"])
def test_explain_asks_at_the_schemes_port_if_an_ipv6_address_has_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    asked: list[tuple[str, int]] = []

    def refuse(address: tuple[str, int], *_: object) -> None:
        asked.append(address)
        raise OSError("not there")

    monkeypatch.setattr(socket, "create_connection", refuse)

    told(capsys, "explain", "--proxy", url, "GET", "http://shop.example/")

    assert asked == [("::1", 443 if url.startswith("https") else 80)]


@pytest.mark.parametrize(
    "url", ["http://proxy .lan:8082", "http://proxy\n.lan:8082", "http://proxy.lan:808a", "http://[::1"]
)
def test_explain_says_what_is_wrong_with_the_url_of_a_proxy(capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, out, err = told(capsys, "explain", "--proxy", url, "GET", "http://shop.example/")

    assert (code, out) == (2, "")
    assert f"seen {url!r}: " in err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"Content-Length: 5\r\n\r\n{}", "IncompleteRead(2 bytes read, 3 more expected)"),
        (b"Content-Length: 99999999999999\r\n\r\n{}", "IncompleteRead(2 bytes read, 99999999999997 more expected)"),
        (b"Content-Length: 99999999999999999999\r\n\r\n{}", "IncompleteRead(2 bytes read"),
        (b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n{}", "IncompleteRead("),
        (b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}", "a chunk of -1 bytes"),
        (b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}", "a chunk of -5 bytes"),
    ],
    ids=["short", "no memory", "no size", "no size of a chunk", "to the end", "negative"],
)
def test_explain_says_what_is_wrong_with_an_answer_that_is_not_as_long_as_it_claims(
    capsys: pytest.CaptureFixture[str], answer: bytes, said: str
) -> None:
    def reply(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\n" + answer)

    with SocketBackend(reply) as backend:
        address = f"http://127.0.0.1:{backend.port}"
        code, out, err = told(capsys, "explain", "--proxy", address, "GET", "http://shop.example/")

    assert (code, out) == (2, "")
    assert f"cannot ask the proxy at {address}: {said}" in err


def test_explain_takes_no_answer_that_is_longer_than_a_document_can_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.commands.sources._MAX_ANSWER_BYTES", 20)

    def reply(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n10\r\n%b}" % (b" " * 15))

    with SocketBackend(reply) as backend:
        address = f"http://127.0.0.1:{backend.port}"
        code, out, err = told(capsys, "explain", "--proxy", address, "GET", "http://shop.example/")

    assert (code, out) == (2, "")
    assert f"the answer of the proxy at {address} is longer than 20 bytes" in err


@pytest.mark.parametrize(
    ("scheme", "hint"),
    [("https", "(no TLS is spoken there: is it http?)"), ("http", "is the scheme right (http or https)?")],
)
def test_explain_hints_at_a_wrong_scheme_of_the_proxy_url(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, scheme: str, hint: str
) -> None:
    pair = trustme.CA().issue_cert("127.0.0.1")
    cert, key = (str(tmp_path / name) for name in ("cert.pem", "key.pem"))
    pair.cert_chain_pems[0].write_to_path(cert)
    pair.private_key_pem.write_to_path(key)
    with Proxy(*(["--config-tls-cert", cert, "--config-tls-key", key] if scheme == "http" else [])) as proxy:
        _, _, address = proxy.url("config").partition("//")
        code, _, err = told(capsys, "explain", "--proxy", f"{scheme}://{address}", "GET", "http://shop.example/")

    assert (code, hint in err) == (2, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_check_shows_the_name_of_a_file_that_is_not_utf_8(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, as_json: bool
) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    Path(odd).write_text('{"routes": []}')

    code, out, _ = told(capsys, "check", *["--json"] * as_json, odd)

    assert code == 0
    assert (json.loads(out)[0]["file"] if as_json else out.partition(": ")[0]) == f"{tmp_path}/\\xff.json"


def test_check_checks_the_other_documents_when_one_cannot_be_read(
    capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path
) -> None:
    code, out, err = told(capsys, "check", str(tmp_path / "none.json"), file)

    assert code == 2
    assert f"{file}: sound" in out
    assert "cannot read" in err


def test_a_document_in_place_of_its_path_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    document = '{"listeners": [{"tls": {"certificates": [{"privateKey": "PRIVATE"}]}}]}'
    for given in (["check", document], ["explain", "--config", document, "http://a.example"]):
        code, _, err = told(capsys, *given)

        assert code == 2
        assert "cannot read (the content of a file, not repeated, in place of its path): No such file" in err
        assert "PRIVATE" not in err


def test_explain_asks_a_running_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    with Proxy() as proxy:
        proxy.use({"routes": SHOP["routes"]})
        where = ["--proxy", proxy.url("config"), "GET", "https://shop.example/cart"]

        code, out, _ = told(capsys, "explain", *where, PROXY_AUTH_TOKEN=TOKEN)
        without = told(capsys, "explain", *where)
        another = told(capsys, "explain", *where, PROXY_AUTH_TOKEN="another")

    assert code == 0
    assert "route: shop/cart" in out
    assert (without[0], another[0]) == (2, 2)
    assert "requires its token: --auth-token-file, PROXY_AUTH_TOKEN or" in without[2]
    assert "refused the token" in another[2]


def test_explain_asks_a_proxy_over_tls_with_a_token_from_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    token, ca, cert, key = (str(tmp_path / name) for name in ("token", "ca.pem", "cert.pem", "key.pem"))
    Path(token).write_text(f"{TOKEN}\n")
    authority.cert_pem.write_to_path(ca)
    pair.cert_chain_pems[0].write_to_path(cert)
    pair.private_key_pem.write_to_path(key)
    with Proxy("--config-tls-cert", cert, "--config-tls-key", key) as proxy:
        url = f"https://{proxy.address('config')}"
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        requests.put(
            f"{url}/config", json={"routes": SHOP["routes"]}, headers=bearer, verify=ca, timeout=30.0
        ).raise_for_status()
        where = ["--proxy", url, "GET", "https://shop.example/cart"]

        by_flag = told(capsys, "explain", "--auth-token-file", token, "--ca-file", ca, *where)
        by_variable = told(capsys, "explain", "--ca-file", ca, *where, PROXY_AUTH_TOKEN_FILE=token)
        without_authority = told(capsys, "explain", *where, PROXY_AUTH_TOKEN=TOKEN)
        without_token = told(capsys, "explain", "--ca-file", ca, *where)

    assert [(code, "route: shop/cart" in out) for code, out, _ in (by_flag, by_variable)] == [(0, True)] * 2
    assert without_authority[0] == without_token[0] == 2
    assert "if its authority is one of your own, name it (--ca-file)" in without_authority[2]
    assert "--auth-token-file, PROXY_AUTH_TOKEN or PROXY_AUTH_TOKEN_FILE" in without_token[2]


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["--auth-token-file", "/nowhere/token"], {}, ["--auth-token-file", "/nowhere/token"]),
        ([], {"PROXY_AUTH_TOKEN": "a", "PROXY_AUTH_TOKEN_FILE": "b"}, ["want only one of them"]),
        ([], {"PROXY_AUTH_TOKEN": "geheim\nzeile"}, ["PROXY_AUTH_TOKEN", "not one line of printable ASCII"]),
        (["--ca-file", "/nowhere/ca.pem"], {}, ["--ca-file", "/nowhere/ca.pem", "No such file"]),
        (["--ca-file", "/dev/null"], {}, ["--ca-file", "/dev/null"]),
        (["--proxy", "https://[::1"], {}, ["https://[::1", "Invalid IPv6 URL"]),
        (["--proxy", "http://u:geheim@127.0.0.1:1"], {}, ["explain: --proxy: seen a URL with credentials in it, want"]),
        (["--proxy", "https://[::1]x:1"], {}, ["https://[::1]x:1", "IPv6"]),
        (["--proxy", "http://[fe80::1]:1"], {}, ["the interface of a link-local address too, as in [fe80::1%eth0]"]),
    ],
)
def test_unusable_options_for_asking_a_proxy_are_reported_with_the_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], env: dict[str, str], words: list[str]
) -> None:
    where = [] if "--proxy" in arguments else ["--proxy", "https://127.0.0.1:1"]

    code, out, err = told(capsys, "explain", *arguments, *where, "GET", "https://shop.example/", **env)

    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert "geheim" not in err


def test_schema_prints_the_schema_of_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "schema")

    assert code == 0
    assert out == (REPOSITORY / "docs" / "proxy-document.schema.json").read_text()


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, "-m", "proxy", "chek", "document.json"]

    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    wanted = "run, check, explain, schema, edge-ca, tunnel-check"
    assert (
        done.stderr == f"tunnelgw-proxy: unknown command 'chek', want one of {wanted}\nSee `tunnelgw-proxy --help`.\n"
    )


def test_a_closed_output_ends_the_command_by_sigpipe_without_a_message(file: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        asked = [sys.executable, "-m", "proxy", "check", file]
        done = subprocess.run(asked, check=False, cwd=REPOSITORY, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


ESCAPES = "\x1b]0;title\x07\x1b[31m\n\u202e"


@pytest.mark.parametrize(
    "document",
    [
        {ESCAPES: 1},
        {"routes": [{"rules": [{"name": ESCAPES, "backends": [{"address": "10.0.0.1:80"}]}]}]},
        {
            "routes": [
                {
                    "rules": [
                        {
                            "matches": [{"queryParams": [{"name": ESCAPES, "value": ESCAPES}]}],
                            "backends": [{"address": "10.0.0.1:80"}],
                        }
                    ]
                }
            ]
        },
    ],
)
def test_names_in_a_document_do_not_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Mapping[str, Any]
) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(document))

    for arguments in (["check", str(file)], ["explain", "--config", str(file), "GET", "http://a.example/"]):
        _, out, err = told(capsys, *arguments)

        assert (out + err).replace("\n", "").isprintable()
        assert "\n\u202e" not in out + err
