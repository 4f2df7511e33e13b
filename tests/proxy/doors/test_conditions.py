"""Header conditions over real connections: what an unknown client says about itself chooses no route."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.doors.chain import Proxy
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import ask, read_until

SAID = [
    ("X-Forwarded-For", "10.1.1.1"),
    ("x-forwarded-for", "10.1.1.1"),
    ("X-FORWARDED-PROTO", "https"),
    ("x-Forwarded-Host", "10.1.1.1"),
    ("X-Real-IP", "10.1.1.1"),
    ("CF-Connecting-IP", "10.1.1.1"),
    ("CF-Connecting-IP", ""),
    ("Client-Cert", ":YQ==:"),
    ("Forwarded", "for=10.1.1.1"),
    ("X-Request-Id", "10.1.1.1"),
]
NAMES = list(dict.fromkeys(name.lower() for name, _ in SAID))
BELIEVED = "(for=10.1.1.1|10.1.1.1|https|:YQ==:)(, .*)?"


def answer(text: str, *names: str, value: str = BELIEVED) -> dict[str, Any]:
    """A rule for requests with all of these fields."""
    conditions = [{"name": name, "type": "RegularExpression", "value": value} for name in names]
    return {
        "matches": [{"headers": conditions}],
        "backends": [{"respond": {"statusCode": 200, "body": f"{text}.\n"}}],
    }


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(1, "http") as made:
        yield made.open()
        made.call(made.pools.close)


@pytest.mark.parametrize(("trusted", "expected"), [([], b"unknown.\n"), (["127.0.0.0/8"], b"believed.\n")])
def test_only_trusted_proxies_fulfil_conditions_on_fields_that_describe_clients(
    proxy: Proxy, trusted: list[str], expected: bytes
) -> None:
    """The connections last while the document's conditions change."""
    forwarding = {"trustedProxies": trusted}
    proxy.serve(answer("unknown"), forwarding=forwarding)
    lines = "".join(f"{name}: {value}\r\n" for name, value in SAID)
    fields = [(name.lower().encode(), value.encode()) for name, value in SAID]
    with proxy.connect() as client, H2Client(proxy.connect()) as other:
        for name in NAMES:
            proxy.serve(answer("believed", name), answer("unknown"), forwarding=forwarding)
            ask(client, "/", lines)
            assert read_until(client, b".\n").endswith(b"\r\n\r\n" + expected)
            assert expected == other.answer(other.ask("/", fields=fields)).body

            proxy.serve(answer("any", "x-other"), answer("unknown"), forwarding=forwarding)
            ask(client, "/", lines)
            assert read_until(client, b".\n").endswith(b"\r\n\r\nunknown.\n")


def test_conditions_see_our_own_description_of_a_client_whatever_it_says(proxy: Proxy) -> None:
    proxy.serve(
        answer("told", "X-Forwarded-For", value="127.0.0.1"),
        answer("unknown"),
        answer("told", "X-Forwarded-Proto", value="http"),
    )
    with proxy.connect() as client, H2Client(proxy.connect()) as other:
        for said in ("", "X-Forwarded-For: 10.1.1.1\r\n", "Connection: x-forwarded-for\r\nX_Forwarded_For: 1\r\n"):
            ask(client, "/", said)
            assert read_until(client, b".\n").endswith(b"\r\n\r\ntold.\n")
        assert b"told.\n" == other.get("/").body
