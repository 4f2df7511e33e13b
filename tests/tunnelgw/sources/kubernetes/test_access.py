"""Kubeconfigs that people have, and what is said of those that cannot be used."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config.incluster_config import InClusterConfigLoader

from tunnelgw.sources.kubernetes.server import ApiServer, Refused, Unreachable, load_configuration

SECRET = "geheim"  # looked for in messages


EXPIRED = "abgelaufen"  # a token that is refused


class _Echo(BaseHTTPRequestHandler):
    """Answers with the credentials that it was shown."""

    def do_GET(self) -> None:
        body = self.headers.get("Authorization", "").encode()
        self.send_response(401 if EXPIRED.encode() in body else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> str:
    path = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return str(path)


def asked(path: str) -> bytes:
    server = ApiServer(lambda: load_configuration(path))
    try:
        return server.request("GET", "/version")
    finally:
        server.close()


def test_white_space_around_a_token_is_no_part_of_it(tmp_path: Path, url: str) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")

    from_file = asked(kubeconfig(tmp_path, url, {"tokenFile": str(token)}))
    given = asked(kubeconfig(tmp_path, url, {"token": f"{SECRET} \n"}))

    assert from_file == given == f"Bearer {SECRET}".encode()


def test_after_a_refusal_a_token_that_was_replaced_meanwhile_is_shown(tmp_path: Path, url: str) -> None:
    token = tmp_path / "token"
    token.write_text(EXPIRED)
    path = kubeconfig(tmp_path, url, {"tokenFile": str(token)})
    server = ApiServer(lambda: load_configuration(path))
    with pytest.raises(Refused, match=r"^401 "):
        server.request("GET", "/version")

    token.write_text(SECRET)

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


@pytest.mark.parametrize("token", [f"{SECRET}\nzeile", f"{SECRET}ü"])
def test_a_token_that_no_header_can_carry_is_told_and_not_shown(tmp_path: Path, url: str, token: str) -> None:
    with pytest.raises(Unreachable) as told:
        asked(kubeconfig(tmp_path, url, {"token": token}))

    assert str(told.value) == "no access to a cluster: the account's token is not one line of printable ASCII"
    assert told.value.__cause__ is None


def test_a_token_of_a_pod_that_cannot_be_read_any_more_is_told(tmp_path: Path) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    for file in (token, authority):
        file.write_text(SECRET)
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    loader: Any = InClusterConfigLoader(str(token), str(authority), environ=place)  # type: ignore[no-untyped-call]
    configuration = Configuration()
    loader.load_and_set(configuration)
    server = ApiServer(lambda: configuration)

    token.write_text("")
    loader.token_expires_at = datetime.now()  # noqa: DTZ005  # as the package has it: it is read again

    with pytest.raises(Unreachable, match=r"^no access to a cluster: Token file exists but empty$"):
        server.request("GET", "/version")
    server.close()


def test_an_issuer_of_tokens_that_does_not_answer_is_told(tmp_path: Path, url: str) -> None:
    past = base64.urlsafe_b64encode(b'{"exp": 100}').decode()
    settings = {"id-token": f"e30.{past}.x", "refresh-token": SECRET, "idp-issuer-url": "http://127.0.0.1:1"}

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        asked(kubeconfig(tmp_path, url, {"auth-provider": {"name": "oidc", "config": settings}}))


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.DependencyWarning")
@pytest.mark.parametrize("proxy", ["127.0.0.1:3128", "socks5://127.0.0.1:1", "http://[::1"])
def test_a_proxy_in_the_environment_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        asked(kubeconfig(tmp_path, "http://192.0.2.1", {"token": SECRET}))


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "[]",
        "clusters: 5",
        "{current-context: a, contexts: [{name: a, context: 5}], clusters: []}",
        "{current-context: a, contexts: [{context: {}}], clusters: []}",
        "foo: [",
        "{}",
        "",
        "\x00",
    ],
)
def test_what_is_no_kubeconfig_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        load_configuration(str(path))


@pytest.mark.parametrize("server", ["", "192.0.2.1:6443", "api.example"])
def test_a_server_that_is_no_url_is_told_and_never_asked(tmp_path: Path, server: str) -> None:
    path = kubeconfig(tmp_path, server, {"token": SECRET})

    with pytest.raises(Unreachable, match=r"want a URL such as https://") as told:
        load_configuration(path)

    assert repr(server) in str(told.value)


def test_who_has_no_home_has_no_kubeconfig_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 0x7FFFFFF0)  # a number that is nobody's here

    with pytest.raises(Unreachable, match=r"^no access to a cluster: this is no Pod, and there is no ~/.kube/config$"):
        load_configuration()
