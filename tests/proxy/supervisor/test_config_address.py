"""Where the config API listens: TCP, TLS, a unix socket; and the errors when it cannot."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
import trustme

from daemonkit.unixhttp import UnixHTTPConnection
from tests.proxy.site import DEADLINE_S, Proxy, ask, eventually, fixed, reserved_port
from tests.proxy.supervisor.certificates import certificate


def put(path: Path, document: object, **headers: str) -> tuple[int, dict[str, object]]:
    connection = UnixHTTPConnection(str(path), DEADLINE_S)
    try:
        connection.request("PUT", "/config", json.dumps(document), {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_unix_socket_may_be_used_without_a_token(tmp_path: Path) -> None:
    path = tmp_path / "config.sock"
    with Proxy("--config-addr", f"unix:{path}", "--allow-unauthenticated-config", token=None) as proxy:
        proxy.address("config")

        assert put(path, {"routes": []}) == (200, {"version": 1, "changed": True})
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


def test_a_unix_socket_requires_the_token_if_one_is_set(tmp_path: Path) -> None:
    path = tmp_path / "config.sock"
    with Proxy("--config-addr", f"unix:{path}", token="t") as proxy:
        proxy.address("config")

        assert put(path, {"routes": []})[0] == 401
        assert put(path, {"routes": []}, Authorization="Bearer t")[0] == 200


def test_without_a_token_requests_are_refused_by_default() -> None:
    with Proxy(token=None) as proxy:
        response = proxy.put({"routes": []}, token=None)

        assert response.status_code == 401
        assert "PROXY_AUTH_TOKEN" in response.json()["message"]
        assert proxy.get(token=None).status_code == 401
        assert any("PROXY_AUTH_TOKEN is not set" in line["msg"] for line in proxy.log)


def test_with_allow_unauthenticated_config_documents_are_accepted_without_a_token() -> None:
    with Proxy("--allow-unauthenticated-config", token=None) as proxy:
        assert proxy.put({"routes": []}, token=None).status_code == 200
        assert proxy.get(token=None).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil"])
def test_without_a_token_a_foreign_host_name_is_answered_403(host: str) -> None:
    """DNS rebinding: the owner of a name can point it at this address after a browser has loaded a page from it."""
    with Proxy("--allow-unauthenticated-config", token=None) as proxy:
        named = {"Host": host.format(port=proxy.address("config").rpartition(":")[2])}
        url = f"http://{proxy.address('config')}/config"
        put = requests.put(url, json={"routes": []}, headers=named, timeout=DEADLINE_S)
        got = requests.get(url, headers=named, timeout=DEADLINE_S)

        assert [put.status_code, got.status_code] == [403, 403]
        assert "PROXY_AUTH_TOKEN" in put.json()["message"]
        assert proxy.get(token=None).status_code == 404


def test_without_a_token_the_host_of_an_absolute_target_counts_instead_of_the_field() -> None:
    """RFC 9112, 3.2.2."""
    with Proxy("--allow-unauthenticated-config", token=None) as proxy:
        host, _, port = proxy.address("config").rpartition(":")

        def status_of(target: str, field: str) -> bytes:
            with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
                sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {field}\r\nConnection: close\r\n\r\n".encode())
                with sock.makefile("rb") as answer:
                    return answer.readline().split()[1]

        assert status_of("http://evil.example/config", "localhost") == b"403"
        assert status_of("http://localhost/config", "evil.example") == b"404"  # nothing is loaded


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8082", "127.0.0.1", "[::1]:8082"])
def test_without_a_token_the_host_may_be_a_loopback_address_or_localhost(host: str) -> None:
    with Proxy("--allow-unauthenticated-config", token=None) as proxy:
        url = f"http://{proxy.address('config')}/config"

        assert requests.put(url, json={"routes": []}, headers={"Host": host}, timeout=DEADLINE_S).status_code == 200


def test_without_a_token_a_client_of_http_1_0_needs_no_host() -> None:
    with Proxy("--allow-unauthenticated-config", token=None) as proxy:
        host, _, port = proxy.address("config").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
            sock.sendall(b"GET /config HTTP/1.0\r\n\r\n")
            with sock.makefile("rb") as answer:
                assert answer.readline().split()[1] == b"404"  # nothing is loaded


def test_with_a_token_any_host_is_accepted() -> None:
    with Proxy(token="t") as proxy:
        url = f"http://{proxy.address('config')}/config"
        headers = {"Host": "proxy.example", "Authorization": "Bearer t"}

        assert requests.put(url, json={"routes": []}, headers=headers, timeout=DEADLINE_S).status_code == 200


def test_over_a_unix_socket_any_host_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.sock"
    with Proxy("--config-addr", f"unix:{path}", "--allow-unauthenticated-config", token=None) as proxy:
        proxy.address("config")

        assert put(path, {"routes": []}, Host="proxy")[0] == 200


def test_the_config_api_speaks_tls_where_a_certificate_is_given(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(ca))
    with Proxy("--config-tls-cert", str(cert), "--config-tls-key", str(key), token="t") as proxy:
        url = f"https://{proxy.address('config')}"
        answer = requests.put(
            f"{url}/config",
            json={"routes": []},
            headers={"Authorization": "Bearer t"},
            verify=str(ca),
            timeout=DEADLINE_S,
        )

        assert answer.json() == {"version": 1, "changed": True}
        eventually(lambda: requests.get(f"{url}/readyz", verify=str(ca), timeout=5).status_code == 200, "ready")


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_the_validity_of_the_config_api_certificate_is_a_metric_and_its_expiry_is_logged(
    tmp_path: Path,
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = "tunnelgw_proxy_config_certificate_not_"
    since = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
    expired, later = datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(2091, 2, 3, 4, 5, 6, tzinfo=UTC)

    def use(not_after: datetime) -> None:
        pair = certificate("127.0.0.1", not_after=not_after)
        key.write_text(pair["privateKey"])
        cert.write_text(pair["certificate"])

    def told(url: str) -> dict[str, float]:
        text = requests.get(f"{url}/metrics", verify=False, timeout=DEADLINE_S).text
        lines = [line.removeprefix(name).split() for line in text.splitlines() if line.startswith(name)]
        return {which.partition("_")[0]: float(value) for which, value in lines}

    use(expired)
    with Proxy("--config-tls-cert", str(cert), "--config-tls-key", str(key)) as proxy:
        url = f"https://{proxy.address('config')}"
        proxy.wait_for_message(
            "certificate of the config API has expired, clients will refuse it", expired_at="2024-02-29T12:00:00+00:00"
        )
        assert told(url) == {"before": since, "after": expired.timestamp()}

        use(later)

        eventually(lambda: told(url) == {"before": since, "after": later.timestamp()}, "the end of the new one")


def test_an_address_in_use_fails_the_start_with_a_log_line_that_says_so() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        proxy = Proxy("--config-addr", address).start()

        assert proxy.wait(DEADLINE_S) == 1
        line = proxy.wait_for_message("exiting")
        assert address in line["error"]


def test_a_second_proxy_at_the_same_address_takes_neither_the_ports_nor_the_state_of_the_first(tmp_path: Path) -> None:
    """Its sockets would share the ports, and their connections be reset when it ends: by a unit, every two seconds."""
    state, file = tmp_path / "state", tmp_path / "document.json"
    state.mkdir()
    with reserved_port() as port, Proxy("--state-dir", str(state)) as proxy:
        proxy.use(fixed(port, "the first"))
        kept = {path.name: path.read_bytes() for path in state.iterdir()}
        file.write_text(json.dumps(fixed(port, "the second")))
        address = proxy.api.removeprefix("http://")
        second = Proxy("--config-addr", address, "--state-dir", str(state), "--config", str(file)).start()

        assert second.wait(DEADLINE_S) == 1
        assert [line["msg"] for line in second.log] == ["exiting"]
        assert {path.name: path.read_bytes() for path in state.iterdir()} == kept
        assert ask(port).text == "the first"


def test_the_unix_socket_is_removed_when_the_document_cannot_be_used(tmp_path: Path) -> None:
    path, file = tmp_path / "config.sock", tmp_path / "document.json"
    file.write_text("{")
    proxy = Proxy("--config-addr", f"unix:{path}", "--allow-unauthenticated-config", "--config", str(file)).start()

    assert proxy.wait(DEADLINE_S) == 2
    assert not path.exists()


def test_the_token_is_read_once_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" first \n")
    with Proxy(token=None, env={"PROXY_AUTH_TOKEN_FILE": str(file)}) as proxy:
        assert proxy.put({"routes": []}, token="first").status_code == 200
        file.write_text("second")

        assert proxy.put({"routes": []}, token="second").status_code == 401
        assert proxy.put({"routes": []}, token="first").status_code == 200


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_the_config_api_presents_a_certificate_of_another_x509_version_as_openssl_does(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    pair = certificate("127.0.0.1")
    version_3, version_2 = bytes.fromhex("a003 020102"), bytes.fromhex("a003 020101")
    der = ssl.PEM_cert_to_DER_cert(pair["certificate"])
    assert der.count(version_3) == 1
    cert.write_text(ssl.DER_cert_to_PEM_cert(der.replace(version_3, version_2)))
    key.write_text(pair["privateKey"])
    with Proxy("--config-tls-cert", str(cert), "--config-tls-key", str(key)) as proxy:
        url = f"https://{proxy.address('config')}"

        assert requests.get(f"{url}/healthz", verify=False, timeout=DEADLINE_S).status_code == 200
