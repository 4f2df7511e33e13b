"""What `tunnelgw-proxy run` refuses, how, and with which exit code."""

from __future__ import annotations

import base64
import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from daemonkit.options import BadOptions, load, parse
from proxy.control import refusal
from proxy.options import COMMANDS, PREFIX, Options
from tests.proxy.site import DEADLINE_S
from tests.support.daemon import Daemon
from tests.support.limits import no_memory_files
from tests.support.process import REPOSITORY

WITHOUT_A_CALL = """
import os, resource, sys
def refused(*_):
    raise OSError({code}, os.strerror({code}))
{call} = refused
sys.argv = ["tunnelgw-proxy", "run", "--config-addr", "127.0.0.1:0"]
from proxy.cli import main
main()
"""


def options(*arguments: str, **environ: str) -> Options:
    _, found = parse(Options, prefix=PREFIX, argv=arguments, environ=environ, commands=COMMANDS)
    return found


@pytest.mark.parametrize(
    ("call", "to_allow"), [("os.memfd_create", "memfd_create"), ("resource.getrlimit", "prlimit64")]
)
@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOSYS])
def test_a_forbidden_system_call_is_reported_before_any_worker_starts(call: str, to_allow: str, code: int) -> None:
    command = [sys.executable, "-c", WITHOUT_A_CALL.format(call=call, code=int(code))]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    assert ended.returncode == 1
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["level"], line["msg"]) == ("ERROR", "exiting")
    assert f"allow the system call {to_allow}" in line["error"]


def test_a_lack_of_memory_at_the_start_does_not_count_as_a_forbidden_memfd_create() -> None:
    with no_memory_files():
        assert refusal() is None


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_token_that_is_set_but_empty_is_fatal(blank: str) -> None:
    with Daemon("proxy", ["run"], {"PROXY_AUTH_TOKEN": blank}) as proxy:
        assert proxy.wait(DEADLINE_S) == 1
        (line,) = proxy.log
        assert line["level"] == "ERROR"
        assert line["msg"] == "refusing to start with a broken config-API auth configuration"
        assert line["error"] == "PROXY_AUTH_TOKEN is set but empty"


@pytest.mark.parametrize("token", ["two\nlines", "t\u00f6ken"])
def test_a_token_that_does_not_fit_into_a_header_field_is_fatal(token: str) -> None:
    with Daemon("proxy", ["run"], {"PROXY_AUTH_TOKEN": token}) as proxy:
        assert proxy.wait(DEADLINE_S) == 1
        (line,) = proxy.log
        assert line["msg"] == "refusing to start with a broken config-API auth configuration"
        assert line["error"] == "the token, from PROXY_AUTH_TOKEN, cannot be sent: want one line of printable ASCII"


def test_a_token_file_that_is_empty_is_fatal_too(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    with Daemon("proxy", [], {"PROXY_AUTH_TOKEN_FILE": str(file)}) as proxy:
        assert proxy.wait(DEADLINE_S) == 1
        (line,) = proxy.log
        assert line["msg"] == "refusing to start with a broken config-API auth configuration"
        assert str(file) in line["error"]


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (["--config-addr", "nowhere"], {}, ["--config-addr", "PROXY_CONFIG_ADDR", "'nowhere'"]),
        (["--allow-unauthenticated-config"], {}, ["loopback", ":8082"]),
        (["--allow-unauthenticated-config"], {"PROXY_CONFIG_ADDR": "192.0.2.1:80"}, ["loopback", "192.0.2.1:80"]),
        (["--config-tls-cert", "x.pem"], {}, ["--config-tls-key"]),
        (["--workers", "many"], {}, ["--workers", "PROXY_WORKERS"]),
        ([], {"PROXY_GRACE_PERIOD": "30"}, ["PROXY_GRACE_PERIOD"]),
        ([], {"PROXY_AUTH_TOKEN": "a", "PROXY_AUTH_TOKEN_FILE": "/dev/null"}, ["both set"]),
        (["--auth-token", "secret"], {}, ["--auth-token-file", "PROXY_AUTH_TOKEN"]),
        (["--access-log", "some"], {}, ["off", "errors", "all"]),
        (
            ["--edge-bind-address", "eth1"],
            {},
            ["--edge-bind-address", "PROXY_EDGE_BIND_ADDRESS", "'eth1'", "IP address"],
        ),
        (["--edge-bind-address", "192.0.2.1:0"], {}, ["'192.0.2.1:0'", "IP address"]),
        (["--edge-bind-address", "0.0.0.0"], {}, ["'0.0.0.0'", "an address of this host"]),
        (["--edge-bind-address", "ff02::1"], {}, ["'ff02::1'", "an address of this host"]),
        (["--edge-bind-address", "fe80::1%eth0"], {}, ["'fe80::1%eth0'", "that the edge can send answers to"]),
        (["--edge-bind-address", "2001:db8::1%eth0"], {}, ["'2001:db8::1%eth0'", "without a zone"]),
        (["--edge", "[fe80::1%eth0]:7844"], {}, ["--edge", "'[fe80::1%eth0]:7844'", "without a zone"]),
        (["--edge", "[fe80::1]:7844"], {}, ["--edge", "link-local"]),
        (
            ["--edge-bind-address", "192.0.2.1"],
            {"PROXY_EDGE_IP_VERSION": "6"},
            ["192.0.2.1", "--edge-ip-version", "PROXY_EDGE_IP_VERSION", "IPv6"],
        ),
        (["--access-log-sample", "2"], {}, ["--access-log-sample"]),
    ],
)
def test_bad_options_are_reported_with_their_names(
    arguments: list[str], environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(BadOptions) as refused:
        options(*arguments, **environ)

    assert all(word in str(refused.value) for word in words)
    assert "secret" not in str(refused.value).replace("--auth-token-file", "")


def test_bad_options_end_the_process_with_code_2_and_no_log_line() -> None:
    with Daemon("proxy", ["run", "--workers", "many", "--access-log", "some"]) as proxy:
        assert proxy.wait(DEADLINE_S) == 2
        assert proxy.log == ()
        assert sum(line.startswith("tunnelgw-proxy: ") for line in proxy.lines) == 2


@pytest.mark.parametrize("name", ["PROXY_CONFIG_TLS_KEY", "PROXY_CONFIG"])
@pytest.mark.parametrize(
    "content",
    [
        "-----BEGIN PRIVATE KEY-----",
        '{"key": "PRIVATE KEY"}',
        "first\nPRIVATE KEY",
        base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----").decode() + "PRIVATE",
        base64.b64encode(b"apiVersion: v1").decode() + "PRIVATE",
        *(base64.b64encode(b"{%b}" % key).decode() + "PRIVATE" for key in (b'"a": 1', b' "a": 1', b'\n  "a": 1')),
    ],
)
def test_content_in_place_of_a_files_name_is_refused_and_not_repeated(name: str, content: str) -> None:
    with pytest.raises(BadOptions, match="seen the content of a file, want the path") as told:
        parse(Options, prefix=PREFIX, argv=[], environ={name: content}, commands=COMMANDS)

    assert "PRIVATE" not in str(told.value)


@pytest.mark.parametrize("name", ["ewok.pem", "eyA/key.pem", "key.pem"])
def test_a_files_name_that_begins_as_json_does_in_base64_is_taken(name: str) -> None:
    assert options("--config", name).config == name


@pytest.mark.parametrize("address", ["127.0.0.1:8082", "[::1]:8082", "localhost:8082", "unix:/run/proxy.sock"])
def test_unauthenticated_config_is_allowed_at_addresses_of_this_host_only(address: str) -> None:
    assert options("--allow-unauthenticated-config", "--config-addr", address).allow_unauthenticated_config


@pytest.mark.parametrize(
    ("given", "used", "version"),
    [
        (["192.0.2.1"], "192.0.2.1", "4"),
        (["2001:DB8::0:1"], "2001:db8::1", "6"),
        (["::ffff:192.0.2.1", "--edge-ip-version", "4"], "192.0.2.1", "4"),
    ],
)
def test_the_family_of_the_bind_address_decides_which_edge_addresses_are_dialled(
    given: list[str], used: str, version: str
) -> None:
    found = options("--edge-bind-address", *given)

    assert (found.edge_bind_address, found.edge_version) == (used, version)


def test_the_defaults_are_those_of_the_manual() -> None:
    found = options()

    assert str(found.config_addr) == ":8082"
    assert (found.grace_period_s, found.shutdown_delay_s) == (30.0, 0.0)
    assert found.max_document_bytes == 64 * 1024 * 1024
    assert 1 <= found.worker_count <= 4


def test_help_names_the_commands_for_people() -> None:
    with Daemon("proxy", ["--help"]) as proxy:
        assert proxy.wait(DEADLINE_S) == 0
        text = "\n".join(proxy.lines)
        assert all(word in text for word in ("run", "check", "explain", "schema", "--state-dir", "PROXY_STATE_DIR"))
        assert "worker --fd" not in text


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(("variable", "meant"), [("TUNNEL_TOKENFILE", "TUNNEL_TOKEN_FILE"), ("TUNNEL_LOGLEVEL", None)])
def test_a_misspelt_tunnel_token_or_a_setting_of_cloudflared_is_reported(
    variable: str, meant: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the token there is no tunnel, and nothing said so."""
    load(Options, prog="tunnelgw-proxy", prefix=PREFIX, argv=[], environ={variable: "debug"})

    warning = json.loads(capfd.readouterr().err)
    assert (warning["level"], warning["variable"], warning.get("did_you_mean")) == ("WARNING", variable, meant)
