"""The provider's API through a socket: what each answer means, and that every call ends."""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from urllib3.util.ssl_ import create_urllib3_context

from daemonkit import wholenames
from daemonkit.logformat import describe_error
from daemonkit.secret import Secret
from tests.support.certificates import Authority, bare_authority
from tests.support.controller.faults import Effect, Huge, Reply, Reset, Truncate, bad_gateway, html_page
from tests.support.lettinggo import uncollected
from tests.support.ports import ReservedPort
from tests.support.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider
from tests.support.socketbackend import Dialogue, SocketBackend
from tunnelgw.provider.client import Budget, ProviderClient
from tunnelgw.provider.errors import (
    AuthenticationFailed,
    NameUnknown,
    NotThere,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    Refused,
)
from tunnelgw.provider.pacing import MAX_CALLS, WINDOW_S
from tunnelgw.provider.transport import CallTiming

CONFIG = {"ingress": [{"service": "http_status:404"}]}
NESTED = "[" * 50_000 + "]" * 50_000
CHAIN = '{"message":"m","error_chain":[' * 400 + "]}" * 400


def client_with(provider: Provider, token: str) -> ProviderClient:
    return ProviderClient(Secret(token), provider.url)


def test_a_tunnel_and_its_document_are_read_and_replaced(provider: Provider, client: ProviderClient) -> None:
    assert [account.id for account in client.accounts()] == [ACCOUNT_ID]
    assert client.tunnel(ACCOUNT_ID, TUNNEL_ID).config_src == "cloudflare"
    assert client.configuration(ACCOUNT_ID, TUNNEL_ID).config is None

    written = client.put_configuration(ACCOUNT_ID, TUNNEL_ID, CONFIG)

    assert written.version == 1
    found = client.configuration(ACCOUNT_ID, TUNNEL_ID)
    assert (found.version, provider.tunnel.config) == (1, CONFIG)
    assert found.config is not None
    assert found.config["ingress"][0]["service"] == "http_status:404"


def test_a_provider_with_ipv6_alone_is_dialled_though_loopback_had_none_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("urllib3.util.connection.HAS_IPV6", False)  # as it is then

    with pytest.raises(ProviderUnreachable, match="Connection refused"):
        ProviderClient(Secret(TOKEN), "http://[::1]:1").accounts()


def test_a_wrong_token_and_a_missing_permission_both_name_both_causes(provider: Provider) -> None:
    provider.tokens["without-permission"] = False
    for token in ("wrong-token", "without-permission", "two words"):
        with pytest.raises(AuthenticationFailed) as raised:
            client_with(provider, token).tunnel(ACCOUNT_ID, TUNNEL_ID)
        message = str(raised.value)
        assert "authentication failed" in message
        assert "Cloudflare Tunnel: Edit" in message
        assert token not in message
        assert raised.value.is_refusal


@pytest.mark.parametrize(
    ("account", "tunnel", "error"),
    [
        (ACCOUNT_ID, "00000000-0000-4000-8000-000000000000", NotThere),
        (ACCOUNT_ID, "not-a-uuid", NotThere),
        ("f" * 32, TUNNEL_ID, AuthenticationFailed),
    ],
)
def test_a_missing_tunnel_and_a_foreign_account_raise_different_errors(
    client: ProviderClient, account: str, tunnel: str, error: type[ProviderError]
) -> None:
    with pytest.raises(error):
        client.configuration(account, tunnel)


def test_a_deleted_tunnel_is_not_there(provider: Provider, client: ProviderClient) -> None:
    provider.tunnel.deleted_at = "2026-01-01T00:00:00Z"

    with pytest.raises(NotThere, match="was deleted at 2026-01-01"):
        client.tunnel(ACCOUNT_ID, TUNNEL_ID)


def test_a_rejected_document_is_reported_with_the_provider_s_reason(client: ProviderClient) -> None:
    with pytest.raises(Refused, match="1056 Bad Configuration: the last rule must match all requests"):
        client.put_configuration(ACCOUNT_ID, TUNNEL_ID, {"ingress": [{"hostname": "a.b", "service": "http://x"}]})


def test_a_400_from_an_intermediary_is_a_refusal_too(provider: Provider, client: ProviderClient) -> None:
    provider.fault(Reply(status=400, body="<html>400\n Bad   Request</html>"))

    with pytest.raises(Refused, match=r"the provider answered 400 \(<html>400 Bad Request</html>\)"):
        client.configuration(ACCOUNT_ID, TUNNEL_ID)


@pytest.mark.parametrize("status_code", [401, 403, 404])
def test_an_html_error_page_of_an_intermediary_does_not_blame_token_or_tunnel(
    provider: Provider, client: ProviderClient, status_code: int
) -> None:
    page = (
        f"<!DOCTYPE html>\n<!--[if lt IE 7]> {'x' * 300} <![endif]-->\n<title>Attention\n Required!</title><p>Blocked"
    )
    provider.fault(Reply(status=status_code, body=page))

    with pytest.raises(
        ProviderUnreachable, match=rf"{status_code} \(Attention Required!\): that is not an answer of the API"
    ):
        client.configuration(ACCOUNT_ID, TUNNEL_ID)


@pytest.mark.parametrize(
    ("status_code", "body", "text"),
    [
        (200, "", "want a JSON envelope, the provider sent nothing"),
        (200, "<html>", "want a JSON envelope, the provider sent <html>"),
        (200, '{"success":false,"errors":[{"code":7,"message":"m"}]}', "the provider answered 200 (7 m)"),
        (502, "", "the provider answered 502"),
        (502, "bad gateway", "the provider answered 502 (bad gateway)"),
    ],
)
def test_an_unusable_response_is_quoted_in_the_error(
    provider: Provider, client: ProviderClient, status_code: int, body: str, text: str
) -> None:
    provider.fault(Reply(status=status_code, body=body))

    with pytest.raises(ProviderUnreachable) as raised:
        client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert str(raised.value).endswith(f": {text}")


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ((("Retry-After", "0"),), 0),
        ((("Retry-After", "300"),), 300),
        ((("Retry-After", "999999999"),), 900),
        ((("Retry-After", "Sat, 21 Nov 2026 10:00:30 GMT"), ("Date", "Sat, 21 Nov 2026 10:00:00 GMT")), 30),
        ((("Retry-After", "Sun, 21 Nov 2027 10:00:00 GMT"), ("Date", "Sat, 21 Nov 2026 10:00:00 GMT")), 900),
        ((("Retry-After", "Sat, 21 Nov 2026 09:00:00 GMT"), ("Date", "Sat, 21 Nov 2026 10:00:00 GMT")), 0),
        ((("Retry-After", "Sat, 21 Nov 2026 10:00:30 -0000"), ("Date", "Sat, 21 Nov 2026 10:00:00 GMT")), 30),
        ((("Retry-After", "soon"),), 60),
        ((("Retry-After", "\xb2"),), 60),
        ((), 60),
    ],
)
def test_a_429_sets_a_retry_delay_of_at_most_15_minutes(
    provider: Provider, client: ProviderClient, headers: tuple[tuple[str, str], ...], pause_s: float
) -> None:
    provider.fault(Reply(status=429, body="slow down", headers=headers))

    with pytest.raises(RateLimited) as raised:
        client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert raised.value.retry_after_s == pause_s


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ((("Retry-After", "120"),), 120),
        ((("Retry-After", "999999999"),), 900),
        ((("Retry-After", "soon"),), 0),
        ((), 0),
    ],
)
@pytest.mark.parametrize("status", [302, 403, 408, 500, 503])
def test_retry_after_of_other_errors_sets_a_retry_delay_of_at_most_15_minutes(
    provider: Provider, client: ProviderClient, status: int, headers: tuple[tuple[str, str], ...], pause_s: float
) -> None:
    provider.fault(Reply(status=status, body="maintenance", headers=headers))

    with pytest.raises(ProviderUnreachable) as raised:
        client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert raised.value.retry_after_s == pause_s


def test_a_response_above_the_size_limit_is_refused(
    provider: Provider, client: ProviderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelgw.provider.transport.MAX_ANSWER_BYTES", 100_000)
    provider.fault(Reply(status=200, body=f'{{"success":true,"result":"{"x" * 200_000}"}}'))

    with pytest.raises(ProviderUnreachable, match="the answer is longer than 100000 bytes"):
        client.configuration(ACCOUNT_ID, TUNNEL_ID)


def test_after_a_429_no_request_is_sent_before_the_retry_delay_is_over(
    provider: Provider, client: ProviderClient
) -> None:
    provider.fault(Reply(status=429, headers=(("Retry-After", "300"),)), count=1)
    for _ in range(3):
        with pytest.raises(RateLimited) as raised:
            client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert provider.calls.total() == 1
    assert 290 < raised.value.retry_after_s <= 300


@pytest.mark.parametrize(
    "effect",
    [
        Reply(status=500, body='{"success":false,"errors":[{"code":1000,"message":"internal"}],"result":null}'),
        Reply(status=200, body='{"success":false,"errors":[{"code":1000,"message":"internal"}],"result":null}'),
        Reply(status=500, body='{"success":false,"errors":null,"result":null}'),
        Reply(status=500, body='{"success":true,"errors":[],"result":{"version":7}}'),
        Reply(status=200, body='{"success":false,"errors":[],"result":{"version":7}}'),
        Reply(status=200, body=""),
        Reply(status=200, body='{"success":true,"errors":null,"result":{"version":"many"}}'),
        Reply(status=200, body='{"success":true,"result":{"version":7,"config":{"ingress":{"1":{}}}}}'),
        Reply(status=200, body='{"success":true,"result":{"version":7,"config":{"ingress":[{},"a.example"]}}}'),
        Reply(status=302, headers=(("Location", "/elsewhere"),)),
        Reply(status=302, headers=(("Location", "http://[elsewhere"),)),
        Reply(status=302, headers=(("Location", "\xff"),)),
        Reply(status=408),
        Reply(status=409, body="conflict"),
        html_page(),
        bad_gateway(),
        Truncate(),
        Reset(),
        Huge(size_bytes=17 * 1024 * 1024),
        Reply(status=200, body=f'{{"success":true,"result":{NESTED}}}'),
        Reply(status=200, body=f'{{"success":true,"result":{{"version":1,"config":{{"ingress":{NESTED}}}}}}}'),
        Reply(status=500, body=f'{{"success":false,"errors":{NESTED}}}'),
        Reply(status=500, body=f'{{"success":false,"errors":[{CHAIN}]}}'),
    ],
    ids=lambda effect: repr(effect)[:80],
)
def test_a_missing_or_malformed_response_is_a_retryable_error(
    provider: Provider, client: ProviderClient, effect: Effect
) -> None:
    client.put_configuration(ACCOUNT_ID, TUNNEL_ID, CONFIG)
    provider.fault(effect)

    with pytest.raises(ProviderUnreachable) as raised:
        client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert TOKEN not in str(raised.value)
    assert len(str(raised.value)) < 1000
    provider.heal()
    assert client.configuration(ACCOUNT_ID, TUNNEL_ID).version == 1


def test_a_failed_call_leaves_no_reference_cycles(provider: Provider, client: ProviderClient) -> None:
    """An unreachable provider is called for days, and urllib3's errors and frames refer to each other."""
    client.put_configuration(ACCOUNT_ID, TUNNEL_ID, CONFIG)
    provider.stop()
    with uncollected() as garbage:
        with suppress(ProviderUnreachable):
            client.configuration(ACCOUNT_ID, TUNNEL_ID)

        assert not garbage("urllib3")
    provider.start()


def drip(dialogue: Dialogue) -> None:
    dialogue.read_request()
    dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    until_s = time.monotonic() + 15
    while time.monotonic() < until_s and not dialogue.backend.over.wait(0.02):
        dialogue.send(b" ")


def drips_out(url: str) -> None:
    client = ProviderClient(Secret(TOKEN), url, timing=CallTiming(answer_s=0.5))

    with pytest.raises(ProviderUnreachable, match=r"^list accounts \(GET /accounts\): the answer was not complete"):
        client.accounts()

    client.close()


def test_a_response_that_trickles_in_is_aborted_at_its_deadline() -> None:
    with SocketBackend(drip) as backend:
        drips_out(f"http://{backend.address}")


def test_a_response_that_trickles_in_over_tls_or_through_a_proxy_is_aborted_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(Authority()) as authority:
        tls = authority.server_context(authority.issue("127.0.0.1"))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        with SocketBackend(drip, tls) as backend:
            drips_out(f"https://{backend.address}")
    with SocketBackend(drip) as backend:
        monkeypatch.setenv("http_proxy", f"http://{backend.address}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        drips_out("http://provider.example/client/v4")


def test_the_ca_of_a_tls_intercepting_proxy_is_trusted_with_every_python_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.13 on, urllib3 sets VERIFY_X509_STRICT, which the CA certificates of many of them do not pass."""

    def strict(**kwargs: Any) -> ssl.SSLContext:
        context = create_urllib3_context(**kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b'HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{"success":true,"result":[]}')

    for module in ("urllib3.connection", "tunnelgw.provider.transport"):
        monkeypatch.setattr(f"{module}.create_urllib3_context", strict)
    with (
        closing(bare_authority()) as authority,
        closing(Authority()) as other,
        SocketBackend(answer, authority.server_context(authority.issue("127.0.0.1"))) as backend,
    ):
        client = ProviderClient(Secret(TOKEN), f"https://{backend.address}")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        assert client.accounts() == []
        client.close()

        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.file))
        with pytest.raises(ProviderUnreachable, match="certificate verify failed"):
            client.accounts()
        client.close()


def test_an_environment_that_cannot_be_used_fails_the_call_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    missing = str(tmp_path / "not-mounted-yet.crt")
    for name, value, reason in (
        ("REQUESTS_CA_BUNDLE", missing, missing),
        ("CURL_CA_BUNDLE", missing, missing),
        ("HTTPS_PROXY", "http://user:%E2%82%AC@127.0.0.1:9", "the proxy's user or password is not Latin-1"),
    ):
        client = ProviderClient(Secret(TOKEN), "https://127.0.0.1:9")
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            with pytest.raises(ProviderUnreachable, match=re.escape(reason)):
                client.accounts()
        client.close()


@pytest.mark.parametrize(
    "proxy",
    [
        "http://user:pa55@127.0.0.1:99999",
        "http://user:pa55#word@127.0.0.1:9",
        "http://user:pa55[word@127.0.0.1:9",
        "http://user:pa55@",
    ],
)
def test_a_proxy_whose_url_is_wrong_fails_the_call_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with closing(ProviderClient(Secret(TOKEN), "https://127.0.0.1:9")) as client:
        with pytest.raises(ProviderUnreachable, match=r"environment \(HTTPS_PROXY or ALL_PROXY\) is no URL") as told:
            client.accounts()
        assert "pa55" not in describe_error(told.value)


def test_the_provider_s_name_is_resolved_without_search_domains_and_unchanged_in_the_host_header(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wholenames, "HOSTS_FILE", tmp_path / "none")
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def loopback(host: str, *rest: Any, **named: Any) -> Any:
        asked.append(host)
        return look_up("127.0.0.1", *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", loopback)
    requests: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        requests.append(dialogue.read_request())
        dialogue.send(b'HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{"success":true,"result":[]}')

    with closing(Authority()) as authority:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        for name, looked_up in (("api.cloudflare.com", "api.cloudflare.com."), ("api.example", "api.example")):
            asked.clear()
            with SocketBackend(answer, authority.server_context(authority.issue(name))) as backend:
                port = backend.address.rpartition(":")[2]
                client = ProviderClient(Secret(TOKEN), f"https://{name}:{port}/client/v4")
                assert client.accounts() == []
                client.close()
            assert asked == [looked_up]
            assert f"\r\nhost: {name}:{port}\r\n".encode() in requests.pop().lower()


def test_a_connection_that_was_idle_too_long_is_not_reused() -> None:
    """A middlebox, such as a NAT, may have dropped it silently."""
    answer = b'{"success":true,"result":{"version":1}}'

    def answer_once(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        dialogue.backend.over.wait()

    with SocketBackend(answer_once) as backend:
        timing = CallTiming(silence_s=2.0, idle_s=0.0)
        client = ProviderClient(Secret(TOKEN), f"http://{backend.address}", timing=timing)
        for _ in range(2):
            assert client.configuration(ACCOUNT_ID, TUNNEL_ID).version == 1
        client.close()


def test_reading_an_endless_response_stops_at_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnelgw.provider.transport.MAX_ANSWER_BYTES", 100_000)

    def go_on(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            while not dialogue.backend.over.is_set():
                dialogue.send(b"x" * 50_000)

    with SocketBackend(go_on) as backend:
        client = ProviderClient(Secret(TOKEN), f"http://{backend.address}", timing=CallTiming(answer_s=5.0))

        with pytest.raises(ProviderUnreachable, match="the answer is longer than 100000 bytes"):
            client.accounts()

        client.close()


def test_requests_have_user_agent_and_accept_and_those_with_a_body_content_type() -> None:
    requests: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            requests.append(request.lower())
            dialogue.answer(b'{"success":true,"result":{"version":2}}')

    with SocketBackend(answer) as backend:
        client = ProviderClient(Secret(TOKEN), f"http://{backend.address}")
        client.configuration(ACCOUNT_ID, TUNNEL_ID)
        client.put_configuration(ACCOUNT_ID, TUNNEL_ID, {"ingress": []})
        client.close()
        backend.wait_until_closed()

    for request in requests:
        assert b"\r\nuser-agent: tunnelgw/" in request
        assert b"\r\naccept: application/json\r\n" in request
    assert [b"\r\ncontent-type: application/json\r\n" in request for request in requests] == [False, True]
    assert backend.accepted == 1


def test_no_request_is_sent_once_the_token_s_call_budget_is_used_up(provider: Provider) -> None:
    budget = Budget()
    client = ProviderClient(Secret(TOKEN), provider.url, budget=budget)
    other = ProviderClient(Secret(TOKEN), provider.url, budget=budget)
    client.accounts()
    assert [budget.take() for _ in range(MAX_CALLS - 2)] == [0.0] * (MAX_CALLS - 2)
    client.accounts()

    with pytest.raises(RateLimited, match="to stay below the provider's limit") as raised:
        other.accounts()

    assert 0 < raised.value.retry_after_s <= WINDOW_S
    assert provider.calls.total() == 2
    client.close()
    other.close()


def test_a_refused_connection_and_an_unknown_host_are_reported_in_the_usual_words() -> None:
    nameless = ProviderClient(Secret(TOKEN), "http://provider.invalid/client/v4")

    with ReservedPort() as port:
        away = ProviderClient(Secret(TOKEN), f"http://{port.address}/client/v4")
        with pytest.raises(ProviderUnreachable, match="refused"):
            away.accounts()
    with pytest.raises(NameUnknown, match=r"no such host: provider\.invalid"):
        nameless.accounts()


@pytest.mark.parametrize("url", ["http://provider.test", "https://provider.test"])
@pytest.mark.parametrize("variables", [("HTTP_PROXY", "HTTPS_PROXY"), ("ALL_PROXY",)])
def test_a_proxy_of_the_environment_whose_name_is_unknown_is_named_in_place_of_the_provider(
    monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...], url: str
) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    for name in variables:
        monkeypatch.setenv(name, "http://user:pa55@proxy.invalid:3128")
    proxy = r"proxy\.invalid, the proxy of the environment \(HTTPS_PROXY or ALL_PROXY\)"
    with closing(ProviderClient(Secret(TOKEN), url)) as client:
        with pytest.raises(NameUnknown, match=rf"no such host: {proxy}: check DNS .*, or that variable$") as told:
            client.accounts()

        assert "pa55" not in describe_error(told.value)
        assert "provider.test" not in describe_error(told.value)


@pytest.mark.parametrize(
    ("host", "named"),
    [("provider.invalid.", "provider.invalid"), ("prövider.invalid", "xn--prvider-b1a.invalid")],
)
def test_an_unknown_name_of_the_provider_is_not_taken_for_a_proxys_however_it_is_spelt(
    monkeypatch: pytest.MonkeyPatch, host: str, named: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with (
        closing(ProviderClient(Secret(TOKEN), f"https://{host}")) as client,
        pytest.raises(NameUnknown, match=f"no such host: {re.escape(named)}: .*, or the provider's API URL"),
    ):
        client.accounts()


def test_an_unknown_proxy_with_the_name_of_the_provider_is_named_as_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://provider.invalid:3128")
    with (
        closing(ProviderClient(Secret(TOKEN), "https://provider.invalid")) as client,
        pytest.raises(NameUnknown, match=r"no such host: provider\.invalid, the proxy of the environment "),
    ):
        client.accounts()


def test_each_call_is_observed_with_its_outcome(provider: Provider) -> None:
    seen: list[tuple[str, str]] = []

    def observe(call: str, outcome: str, seconds: float) -> None:
        assert 0 <= seconds <= time.monotonic() - began_s
        seen.append((call, outcome))

    client, began_s = ProviderClient(Secret(TOKEN), provider.url, observe), time.monotonic()
    client.accounts()
    provider.fault(Reset())
    with pytest.raises(ProviderUnreachable):
        client.tunnel(ACCOUNT_ID, TUNNEL_ID)
    client.close()

    assert seen == [("list accounts", "ok"), ("read tunnel", "ProviderUnreachable")]


def test_cookies_of_the_provider_are_not_kept() -> None:
    """If each answer set another one, the requests would grow until the provider refused them."""
    requests: list[bytes] = []

    def answer(dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            requests.append(request.lower())
            dialogue.answer(b'{"success":true,"result":[]}', b"Set-Cookie: visit%d=x; Path=/" % len(requests))

    with SocketBackend(answer) as backend:
        client = ProviderClient(Secret(TOKEN), f"http://{backend.address}")
        for _ in range(3):
            client.accounts()
        client.close()

    assert len(requests) == 3
    assert not any(b"cookie" in request for request in requests)


def test_a_netrc_entry_does_not_replace_the_token(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))

    assert client_with(provider, TOKEN).accounts()


@pytest.mark.parametrize("status_code", [200, 400, 401, 404, 429, 500])
@pytest.mark.parametrize(
    "shape", ['{"success":false,"errors":[{"code":1,"message":"seen %s"}]}', "<title>%s</title>", "%s"]
)
def test_an_answer_that_repeats_the_token_does_not_bring_it_into_the_error(
    provider: Provider, client: ProviderClient, status_code: int, shape: str
) -> None:
    provider.fault(Reply(status=status_code, body=shape % f"Authorization: Bearer {TOKEN}"))

    with pytest.raises(ProviderError, match="<redacted>") as raised:
        client.configuration(ACCOUNT_ID, TUNNEL_ID)

    assert TOKEN not in describe_error(raised.value)


def test_an_answer_that_is_no_http_and_repeats_the_token_does_not_bring_it_into_the_error() -> None:
    def answer(dialogue: Dialogue) -> None:
        assert dialogue.receive()
        dialogue.send(f"-ERR Authorization: Bearer {TOKEN}\r\n".encode())

    with (
        SocketBackend(answer) as backend,
        closing(ProviderClient(Secret(TOKEN), f"http://{backend.address}")) as client,
    ):
        with pytest.raises(ProviderUnreachable, match="<redacted>") as raised:
            client.configuration(ACCOUNT_ID, TUNNEL_ID)

        assert TOKEN not in describe_error(raised.value)
