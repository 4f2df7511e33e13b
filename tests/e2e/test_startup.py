"""How the daemon starts: bad options, ports in use, what it logs, what it tells systemd, and when it is ready."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

from tests.support.daemon import Daemon
from tests.support.process import Process
from tests.support.storeviews import UnifiView

SECRET = "do-not-show-this-key"
DEADLINE_S = 20.0
UNIFI = {"UNIFI_HOST": "http://127.0.0.1:9", "UNIFI_API_KEY": SECRET}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def embedded(tmp_path: Path) -> dict[str, str]:
    return {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": str(tmp_path)}


def outcome(env: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that was written."""
    with Daemon("dnswebhook", ["run", *arguments], env) as process:
        return process.wait(DEADLINE_S), "\n".join(process.lines)


# Bad options.


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["--api-addr", "nowhere"], {}, ["--api-addr", "DNSWEBHOOK_API_ADDR", "'nowhere'", "host:port"]),
        ([], {"DNSWEBHOOK_API_ADDR": "127.0.0.1:99999"}, ["DNSWEBHOOK_API_ADDR", "99999", "65535"]),
        (["--call-deadline", "soon"], {}, ["--call-deadline", "DNSWEBHOOK_CALL_DEADLINE", "'soon'"]),
        ([], {"DNSWEBHOOK_CALL_DEADLINE": "12"}, ["DNSWEBHOOK_CALL_DEADLINE", "'12'"]),
        (["--dry-run=perhaps"], {}, ["--dry-run", "perhaps"]),
        (["--max-delete-share", "2"], {}, ["--max-delete-share", "2"]),
        (["--log-level", "chatty"], {}, ["LOG_LEVEL", "chatty", "debug"]),
        (["--no-such-flag", SECRET], {}, ["--no-such-flag"]),
        (["serve"], {}, ["unexpected argument", "serve"]),
        ([], {"DOMAIN_FILTER": "example.org", "REGEXP_DOMAIN_FILTER": "x"}, ["DOMAIN_FILTER", "REGEXP_DOMAIN_FILTER"]),
        ([], {"REGEXP_DOMAIN_FILTER": "("}, ["REGEXP_DOMAIN_FILTER"]),
        ([], {"DNSWEBHOOK_STORE": "unifi"}, ["UNIFI_HOST"]),
        ([], {"UNIFI_HOST": "http://127.0.0.1:9"}, ["UNIFI_API_KEY"]),
        ([], {**UNIFI, "UNIFI_HOST": "ftp://127.0.0.1"}, ["UNIFI_HOST", "ftp"]),
        ([], {**UNIFI, "UNIFI_API_KEY": ""}, ["UNIFI_API_KEY is set but empty"]),
        ([], {**UNIFI, "UNIFI_API_KEY": "  \n"}, ["UNIFI_API_KEY"]),
        ([], {**UNIFI, "UNIFI_API_KEY_FILE": "/dev/null"}, ["UNIFI_API_KEY", "UNIFI_API_KEY_FILE"]),
        ([], {**UNIFI, "UNIFI_USER": "dns", "UNIFI_PASS": SECRET}, ["UNIFI_API_KEY", "UNIFI_USER"]),
        (
            [],
            {"UNIFI_HOST": "http://127.0.0.1:9", "UNIFI_API_KEY_FILE": "/no/such/file"},
            ["UNIFI_API_KEY_FILE", "/no/such/file"],
        ),
        (
            [],
            {"UNIFI_HOST": "https://127.0.0.1:9", "UNIFI_API_KEY": SECRET, "UNIFI_CA_CERT": "/no/such/file"},
            ["/no/such/file"],
        ),
    ],
)
def test_bad_options_exit_with_2_and_an_error_message(
    arguments: list[str], env: dict[str, str], words: list[str]
) -> None:
    exit_code, text = outcome(env, *arguments)

    assert exit_code == 2, text
    assert [word for word in words if word not in text] == []
    assert SECRET not in text
    assert "Traceback" not in text


def test_all_bad_options_are_reported_at_once() -> None:
    exit_code, text = outcome({"DNSWEBHOOK_API_ADDR": "x", "LOG_FORMAT": "xml"}, "--grace-period", "long")

    assert exit_code == 2
    assert all(word in text for word in ("DNSWEBHOOK_API_ADDR", "LOG_FORMAT", "--grace-period")), text


# Ports.


@pytest.mark.parametrize("option", ["--api-addr", "--health-addr"])
def test_a_port_in_use_exits_with_1_and_one_line_that_names_it(embedded: dict[str, str], option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        # The later flag wins: all other listeners have ports chosen by the kernel.
        with Daemon.dnswebhook(embedded, [option, address]) as daemon:
            assert daemon.wait(DEADLINE_S) == 1, daemon.tail

    errors = [entry for entry in daemon.log if entry["level"] == "ERROR"]
    assert [entry["msg"] for entry in errors] == ["exiting"], daemon.tail
    assert address in errors[0]["error"]
    assert "stack" not in errors[0]
    assert "Traceback" not in daemon.tail


def test_the_daemon_listens_on_ipv6_loopback_and_unix_sockets(embedded: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with Daemon.dnswebhook(embedded, ["--api-addr", f"unix:{path}", "--health-addr", "[::1]:0"]) as daemon:
        assert daemon.address("api") == f"unix:{path}"
        assert requests.get(f"{daemon.url('health')}/healthz", timeout=DEADLINE_S).status_code == 200
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(DEADLINE_S)
            client.connect(str(path))
            client.sendall(b"GET /records HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert daemon.stop() == 0, daemon.tail
    assert not path.exists()


# Logs.


def test_every_log_line_from_start_to_exit_is_a_json_object(embedded: dict[str, str]) -> None:
    with Daemon.dnswebhook({**embedded, "LOG_LEVEL": "debug"}) as daemon:
        url = daemon.url("api")
        requests.get(f"{url}/records", timeout=DEADLINE_S)
        requests.post(f"{url}/records", data=b"{", timeout=DEADLINE_S)
        requests.get(f"{url}/%0anowhere", timeout=DEADLINE_S)
        assert daemon.stop() == 0, daemon.tail

    entries = [json.loads(line) for line in daemon.lines]
    assert len(entries) > 5
    for entry in entries:
        assert TIME.fullmatch(entry["time"]), entry
        assert entry["level"] in ("DEBUG", "INFO", "WARNING", "ERROR"), entry
        assert entry["msg"], entry
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in entry), entry
    assert [entry["msg"] for entry in entries][-1] == "stopped"


def test_log_format_text_writes_one_line_per_entry(embedded: dict[str, str]) -> None:
    with Process("dnswebhook", Daemon.dnswebhook({})._command, {**embedded, "LOG_FORMAT": "text"}) as process:
        started = process.wait_for_line(lambda line: "started" in line, "started", DEADLINE_S)
        listening = process.wait_for_line(lambda line: "listening" in line, "listening", DEADLINE_S)
        assert process.stop() == 0

    assert not started.startswith("{")
    assert "INFO" in started
    assert "server=health" in listening


def test_the_embedded_store_is_chosen_with_a_warning_when_no_controller_is_named(tmp_path: Path) -> None:
    with Daemon.dnswebhook({"DNSWEBHOOK_STATE_DIR": str(tmp_path)}) as daemon:
        warning = daemon.wait_for_log(lambda entry: "UNIFI_HOST" in entry.get("msg", ""), "a warning")
        daemon.wait_for_message("started")
        assert daemon.stop() == 0, daemon.tail

    assert warning["level"] == "WARNING"
    assert warning["path"] == str(tmp_path)


# Readiness, and systemd.


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[UnifiView]:
    view = UnifiView("v2", tmp_path)
    yield view
    view.close()


def until_ready(daemon: Daemon) -> requests.Response:
    """The first 200 of /readyz."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        answer = requests.get(f"{daemon.url('health')}/readyz", timeout=DEADLINE_S)
        if answer.status_code == 200:
            return answer
        assert answer.status_code == 503
    raise AssertionError(f"not ready after {DEADLINE_S} s; its log:\n{daemon.tail}")


@pytest.mark.parametrize("store", ["embedded", "unifi"])
def test_the_daemon_becomes_ready_by_itself(embedded: dict[str, str], controller: UnifiView, store: str) -> None:
    with Daemon.dnswebhook(embedded if store == "embedded" else controller.env) as daemon:
        assert until_ready(daemon).json() == {"status": "ok", "message": "ready"}
        alive = requests.get(f"{daemon.url('health')}/healthz", timeout=DEADLINE_S)
        assert (alive.status_code, alive.json()) == (200, {"status": "ok", "message": "alive"})


def test_systemd_is_notified_ready_once_the_sockets_are_bound_and_stopping_at_the_end(
    embedded: dict[str, str], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        with Daemon.dnswebhook({**embedded, "NOTIFY_SOCKET": str(tmp_path / "notify")}) as daemon:
            assert manager.recv(4096) == b"READY=1"
            host, _, port = daemon.address("api").rpartition(":")
            with socket.create_connection((host, int(port)), timeout=DEADLINE_S):
                pass
            assert daemon.stop() == 0, daemon.tail
        assert manager.recv(4096) == b"STOPPING=1"


def test_systemd_is_notified_ready_although_the_controller_is_unreachable(
    controller: UnifiView, tmp_path: Path
) -> None:
    """Otherwise the unit would never start, nor would external-dns."""
    controller.controller.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        with Daemon.dnswebhook({**controller.env, "NOTIFY_SOCKET": str(tmp_path / "notify")}) as daemon:
            assert manager.recv(4096) == b"READY=1"
            assert requests.get(f"{daemon.url('health')}/readyz", timeout=DEADLINE_S).status_code == 503


def test_the_watchdog_is_fed(embedded: dict[str, str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        env = {**embedded, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with Daemon.dnswebhook(env):
            assert [manager.recv(4096) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
