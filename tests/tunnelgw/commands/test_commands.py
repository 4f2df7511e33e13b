"""The commands that people run, as processes: what they print in a pipe, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

TIMEOUT_S = 60.0

GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: main}
spec:
  controllerName: tunnelgw.dev/tunnel-gateway-controller
  parametersRef: {group: tunnelgw.dev, kind: GatewayClassConfig, name: main}
---
apiVersion: tunnelgw.dev/v1alpha1
kind: GatewayClassConfig
metadata: {name: main}
spec:
  direct: {addresses: [192.0.2.1]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: main
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
"""
ROUTE = """\
apiVersion: tunnelgw.dev/v1alpha1
kind: Backend
metadata: {name: shop, namespace: shop}
spec: {host: 127.0.0.1, port: 3000}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: web, namespace: infra}]
  hostnames: [shop.example.org]
  rules:
  - matches: [{path: {value: /cart}}]
    backendRefs: [{group: tunnelgw.dev, kind: Backend, name: shop}]
"""


def run(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TUNNELGW_", "KUBE"))}
    return subprocess.run(
        [sys.executable, "-m", "tunnelgw", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**clean, "HOME": "/nonexistent", **(env or {})},
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "manifests"
    made.mkdir()
    (made / "gateway.yaml").write_text(GATEWAY)
    (made / "route.yaml").write_text(ROUTE)
    return made


class Answering:
    """A server that always gives the same answer; its URL."""

    def __init__(self, body: bytes, status_code: int = 200) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status_code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def lines(result: subprocess.CompletedProcess[str]) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_check_prints_no_rows_for_accepted_objects_and_exits_with_0(folder: Path) -> None:
    result = run("check", str(folder))

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "3 accepted\n"


@pytest.mark.parametrize(
    ("type_", "requested"),
    [
        ("LoadBalancer", "[]"),
        ("LoadBalancer", "[{value: 192.0.2.80}, {type: Hostname, value: lb.example.org}]"),
        ("NodePort", "[]"),
        ("ClusterIP", "[{value: 192.0.2.80}]"),
    ],
)
def test_a_missing_address_that_only_a_cluster_can_assign_is_a_warning_of_check(type_: str, requested: str) -> None:
    gateway = GATEWAY.replace("{addresses: [192.0.2.1]}", "{service: {name: public, namespace: infra}}")
    service = f"""\
  addresses: {requested}
---
apiVersion: v1
kind: Service
metadata: {{name: public, namespace: infra}}
spec: {{type: {type_}, ports: [{{name: http, port: 80, targetPort: 10080}}]}}
"""

    done = run("check", "-", stdin=gateway + service)

    [line] = done.stdout.splitlines()
    assert line.startswith("warning\tGateway infra/web\t\tProgrammed AddressNot")
    assert "Service infra/public has no address" in line
    assert done.returncode == 0


def test_check_reports_refused_objects_with_their_place_and_exits_with_1(folder: Path) -> None:
    route = folder / "route.yaml"
    route.write_text(ROUTE.replace("name: shop}]", "name: missing}]"))

    result = run("check", str(folder))

    assert result.returncode == 1
    (line,) = lines(result)
    assert line[:4] == ["refused", "HTTPRoute shop/shop", "Gateway infra/web", "ResolvedRefs BackendNotFound"]
    assert line[5] == f"{route}:6"


def test_a_terminal_gets_a_table_with_colours_and_text_as_it_is(folder: Path) -> None:
    (folder / "route.yaml").write_text(ROUTE.replace("kind: Backend, name: shop}", 'kind: Backend, name: "[red]"}'))
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb") as terminal:
        command = [sys.executable, "-m", "tunnelgw", "check", str(folder)]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TERM": "xterm"}
        child = subprocess.Popen(
            command, stdout=follower, stderr=subprocess.DEVNULL, env={**environment, "COLUMNS": "200"}
        )
        os.close(follower)
        watch = threading.Timer(TIMEOUT_S, child.kill)
        watch.start()
        shown = b""
        with suppress(OSError):  # so a terminal ends
            while piece := terminal.read1():
                shown += piece
        assert child.wait(TIMEOUT_S) == 1
        watch.cancel()

    heading, *_ = (line for line in shown.decode().splitlines() if "condition" in line)
    (row,) = (line for line in shown.decode().splitlines() if "HTTPRoute shop/shop" in line)
    assert heading.count("\u2503") > 2
    assert "\x1b[1;31mrefused" in row
    assert "[red]" in shown.decode()


def test_check_reports_an_invalid_object_with_file_and_line(folder: Path) -> None:
    broken = folder / "broken.yaml"
    broken.write_text(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n"
        "metadata: {name: x, namespace: apps}\nspec:\n  rules: 5\n"
    )

    result = run("check", str(folder), "--json")

    assert result.returncode == 1
    (row,) = [row for row in json.loads(result.stdout) if row["grade"] == "refused"]
    assert row["object"] == "HTTPRoute apps/x"
    assert row["where"] == f"{broken}:5"


def test_check_reports_a_file_whose_name_is_not_utf_8(folder: Path) -> None:
    (folder / os.fsdecode(b"gr\xfc\xdfe.yaml")).write_text("kind: [")

    result = run("check", str(folder), "--json")

    assert result.returncode == 1
    (row,) = [row for row in json.loads(result.stdout) if row["grade"] == "refused"]
    assert row["where"] == f"{folder}/gr\\xfc\\xdfe.yaml:2"


def test_check_says_where_an_object_is_already_defined_in_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    for octets in (b"a\xfc.yaml", b"b.yaml"):
        (tmp_path / os.fsdecode(octets)).write_text(GATEWAY)

    result = run("check", str(tmp_path), "--json")

    assert result.returncode == 1
    reasons = [row["message"] for row in json.loads(result.stdout) if row["grade"] == "refused"]
    assert any(reason.endswith(f" is already defined at {tmp_path}/a\\xfc.yaml:1") for reason in reasons)


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["rows", "JSON"])
def test_output_is_utf_8_whatever_the_locale_says(folder: Path, arguments: list[str]) -> None:
    (folder / "größe.yaml").write_text("kind: [")

    result = run("check", str(folder), *arguments, env={"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"})

    assert result.returncode == 1
    assert f"{folder}/größe.yaml:2" in result.stdout


def test_check_reads_standard_input(folder: Path) -> None:
    result = run("check", "-", "--all", stdin=GATEWAY)

    assert result.returncode == 0
    assert [line[1] for line in lines(result)] == ["GatewayClass main", "Gateway infra/web"]


def test_a_namespace_that_no_manifest_defines_exists_without_labels(folder: Path) -> None:
    selected = "{from: Selector, selector: {matchExpressions: [{key: internal, operator: DoesNotExist}]}}"
    (folder / "gateway.yaml").write_text(GATEWAY.replace("{from: All}", selected))

    result = run("check", str(folder))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "3 accepted\n")


def test_objects_that_lead_to_no_class_of_ours_are_ignored_and_no_error(folder: Path) -> None:
    result = run("check", str(folder), "--all", "--controller-name", "example.net/other")

    assert result.returncode == 0
    named, *others = lines(result)
    assert {line[0] for line in others} == {"ignored"}
    assert (named[0], named[1]) == ("warning", "GatewayClass main")
    assert named[4] == (
        "its controllerName is tunnelgw.dev/tunnel-gateway-controller, see --controller-name: no GatewayClass is ours"
    )


def test_check_says_how_to_learn_why_something_is_ignored(folder: Path) -> None:
    result = run("check", str(folder), "--controller-name", "example.net/other")

    assert result.stderr == "1 warning, 2 ignored (--all says why)\n"


def test_a_route_to_a_gateway_that_does_not_exist_is_a_warning(folder: Path) -> None:
    (folder / "route.yaml").write_text(ROUTE.replace("name: web, namespace: infra", "name: wep, namespace: infra"))

    result = run("check", str(folder))
    status = run("status", "--manifests", str(folder))

    where = f"{folder / 'route.yaml'}:6"
    assert result.returncode == 0
    assert lines(result) == [["warning", "HTTPRoute shop/shop", "", "", "Gateway infra/wep does not exist", where]]
    assert ["pending", "HTTPRoute shop/shop", "", "", "Gateway infra/wep does not exist"] in lines(status)


def test_a_gateway_whose_class_does_not_exist_is_a_warning(folder: Path) -> None:
    """With a misspelt class, nothing behind the Gateway is served."""
    (folder / "gateway.yaml").write_text(GATEWAY.replace("gatewayClassName: main", "gatewayClassName: mian"))

    result = run("check", str(folder))

    where = f"{folder / 'gateway.yaml'}:14"
    assert result.returncode == 0
    assert lines(result) == [["warning", "Gateway infra/web", "", "", "GatewayClass mian does not exist", where]]


WITH_TUNNEL = GATEWAY.replace(
    "  direct: {addresses: [192.0.2.1]}",
    "  tunnelID: 6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11\n  providerCredentialsSecretRef: {name: provider}",
)
NOT_FOUND = "secret not found: tunnelgw-system/provider (key api-token)"
NO_VALUE = (
    "Secret tunnelgw-system/provider key api-token: the Secret exists but has no usable value at the expected key"
)


def a_secret(name: str, data: str, field: str = "stringData") -> str:
    return f"""\
---
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: tunnelgw-system}}
{field}: {data}
"""


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (a_secret("provider", "{api-token: some-token}"), []),
        (a_secret("provider", "{token: some-token}"), [NO_VALUE]),
        (a_secret("provider", "{api-token: ''}"), [NO_VALUE]),
        (a_secret("provder", "{api-token: some-token}"), [NOT_FOUND]),
        ("", []),
    ],
    ids=["there", "another key", "an empty value", "another name", "kept elsewhere"],
)
def test_check_warns_of_a_provider_token_that_the_given_secrets_lack(secret: str, told: list[str]) -> None:
    """Without any Secret among the files, they are kept elsewhere, as in the cluster that the files are for."""
    done = run("check", "-", stdin=WITH_TUNNEL + secret)

    rows = [["warning", "GatewayClass main", "", "", f"GatewayClassConfig main: {message}", "-:1"] for message in told]
    assert (done.returncode, lines(done)) == (0, rows)


@pytest.mark.parametrize("is_named", [False, True])
def test_check_warns_of_a_secret_that_is_missing_in_a_folder_that_a_controller_reads(
    folder: Path, *, is_named: bool
) -> None:
    (folder / "gateway.yaml").write_text(WITH_TUNNEL)
    statuses = folder.parent / "statuses" if is_named else folder / "status"
    if not is_named:
        statuses.mkdir()
        known = ["GatewayClass", "", "main", {"uid": "u", "generation": 1, "created": "", "digest": ""}]
        (statuses / ".ledger.json").write_text(json.dumps([known]))

    told = run("check", str(folder), *(["--status-dir", str(statuses)] if is_named else []))
    alone = run("check", str(folder / "gateway.yaml"))

    where = f"{folder / 'gateway.yaml'}:1"
    row = ["warning", "GatewayClass main", "", "", f"GatewayClassConfig main: {NOT_FOUND}", where]
    assert (told.returncode, lines(told)) == (0, [row])
    assert (alone.returncode, lines(alone)) == (0, [])


def test_what_is_there_but_itself_refused_does_not_count_as_missing() -> None:
    config = run("check", "-", stdin=WITH_TUNNEL.replace("tunnelID: 6f1c", "tunnelID: 6F1C"))
    secret = run("check", "-", stdin=WITH_TUNNEL + a_secret("provider", "{api-token: some-token}", "stringdata"))
    gateway_class = run("check", "-", stdin=GATEWAY.replace("spec:\n  controllerName", "spec:\n  controllername"))
    gateway = run("check", "-", stdin=GATEWAY.replace("listeners:", "listener:") + "---\n" + ROUTE)

    for done in (config, secret, gateway_class, gateway):
        assert done.returncode == 1
        assert "does not exist" not in done.stdout
        assert "not found" not in done.stdout
    of_class, of_gateway = (row for row in lines(config) if row[3] == "Accepted InvalidParameters")
    assert of_class[4] == "GatewayClassConfig main is itself refused"
    assert of_gateway[4] == "GatewayClass main is not accepted: GatewayClassConfig main is itself refused"
    assert (
        lines(secret)[-1][4]
        == "GatewayClassConfig main: Secret tunnelgw-system/provider is itself refused (key api-token)"
    )
    assert [row[4] for row in lines(gateway_class) if row[1] == "Gateway infra/web"] == [
        "GatewayClass main is itself refused"
    ]
    assert [row[4] for row in lines(gateway) if row[1] == "HTTPRoute shop/shop"] == [
        "Gateway infra/web is itself refused"
    ]


def test_a_secret_that_is_missing_is_not_confused_with_a_refused_one_whose_name_begins_its_own() -> None:
    refused = a_secret("prov", "{api-token: some-token}", "stringdata")

    done = run("check", "-", stdin=WITH_TUNNEL + refused)

    assert lines(done)[-1][4] == f"GatewayClassConfig main: {NOT_FOUND}"


def test_each_document_without_a_name_counts(folder: Path) -> None:
    (folder / "one.yaml").write_text("- 1\n")
    (folder / "two.yaml").write_text("- 2\n")

    assert run("check", str(folder)).stderr == "3 accepted, 2 refused\n"


def test_files_in_the_status_directory_are_reported_as_not_read_unless_it_is_another_directory(folder: Path) -> None:
    page = folder / "status" / "page.yaml"
    page.parent.mkdir()
    page.write_text("kind: [\n")

    skipped = run("check", str(folder))
    read = run("check", str(folder), "--status-dir", str(folder.parent / "elsewhere"))
    told = run("status", "--manifests", str(folder))
    explained = run("explain", "--manifests", str(folder), "http://shop.example.org/cart")

    ((grade, *_, message, where),) = lines(skipped)
    assert (skipped.returncode, grade, where) == (0, "warning", f"{page}:1")
    assert message.startswith(
        f"not read, nor does a controller read it: {page.parent} is for the statuses that it writes"
    )
    assert (read.returncode, lines(read)[0][0], lines(read)[0][5]) == (1, "refused", f"{page}:2")
    assert lines(told)[0][:4] == ["warning", "(document)", "manifest", f"{page}:1"]
    assert explained.returncode == 0
    assert explained.stderr.startswith(f"tunnelgw explain: {page}:1: not read, ")


def test_a_path_that_does_not_exist_is_reported(folder: Path) -> None:
    result = run("check", str(folder / "nothing"))

    assert result.returncode == 2
    assert result.stderr == f"tunnelgw check: {folder / 'nothing'}: No such file or directory\n"


def test_a_file_with_a_read_error_is_reported_by_its_name() -> None:
    result = run("check", "/proc/self/mem")

    assert result.returncode == 2
    assert result.stderr == "tunnelgw check: /proc/self/mem: Input/output error\n"


def test_explain_shows_route_backend_and_near_misses(folder: Path) -> None:
    taken = run("explain", "--manifests", str(folder), "http://shop.example.org/cart/1")
    missed = run("explain", "GET", "--manifests", str(folder), "http://shop.example.org/")

    assert taken.returncode == 0
    assert "listener: infra/web/http" in taken.stdout
    assert "route: shop/shop (http), rules[0]" in taken.stdout
    assert "127.0.0.1:3000" in taken.stdout
    assert missed.returncode == 1
    assert "near miss: shop/shop" in missed.stdout


def test_explain_takes_the_address_of_the_client(folder: Path) -> None:
    known = run("explain", "--manifests", str(folder), "--client", "2001:DB8::1", "http://shop.example.org/cart/1")
    named = run("explain", "--manifests", str(folder), "--client", "lan", "http://shop.example.org/cart/1")

    assert known.returncode == 0
    assert (named.returncode, named.stdout) == (2, "")
    assert "seen client 'lan', want an IP address" in named.stderr


def test_explain_says_so_when_no_listener_takes_the_scheme(folder: Path) -> None:
    result = run("explain", "--manifests", str(folder), "https://shop.example.org/cart")

    assert result.returncode == 2
    assert "no listener takes https on port 443" in result.stderr


def test_explain_says_so_when_no_gateway_has_an_address(folder: Path) -> None:
    page = folder / "gateway.yaml"
    page.write_text(GATEWAY.replace("{addresses: [192.0.2.1]}", "{service: {name: public, namespace: infra}}"))

    result = run("explain", "--manifests", str(folder), "http://shop.example.org/cart")

    assert (result.returncode, result.stdout) == (2, "")
    assert "no listener can be reached; `tunnelgw status` says why, or `check`" in result.stderr


def test_status_shows_objects_without_a_status_as_pending(folder: Path) -> None:
    result = run("status", env={"TUNNELGW_MANIFESTS": str(folder)})

    assert result.returncode == 1
    assert {line[0] for line in lines(result)} == {"pending"}


def test_status_shows_refused_manifests_with_file_and_line(folder: Path) -> None:
    broken = folder / "broken.yaml"
    broken.write_text("kind: [\n")

    result = run("status", "--manifests", str(folder))

    first = lines(result)[0]
    assert result.returncode == 1
    assert first[:4] == ["not well", "(document)", "manifest", f"{broken}:2"]
    assert "did not find expected" in first[4]


def test_without_manifests_or_cluster_the_error_names_their_flags() -> None:
    result = run("status")

    assert result.returncode == 2
    assert result.stderr == (
        "tunnelgw status: no access to a cluster: this is no Pod, and there is no ~/.kube/config; "
        "see --kubeconfig (KUBECONFIG) and --manifests (TUNNELGW_MANIFESTS)\n"
    )


def test_the_kubeconfig_flag_takes_precedence_over_the_manifests_variable(folder: Path) -> None:
    variable = {"TUNNELGW_MANIFESTS": str(folder)}

    result = run("status", "--kubeconfig", "/nonexistent/kubeconfig", env=variable)
    both = run("status", "--kubeconfig", "/nonexistent/kubeconfig", "--manifests", str(folder))

    assert (result.returncode, both.returncode) == (2, 2)
    assert "no access to a cluster" in result.stderr
    assert "not allowed with argument" in both.stderr


def test_diff_reports_a_proxy_that_cannot_be_reached(folder: Path, tmp_path: Path) -> None:
    url = f"unix:{tmp_path / 'nowhere.sock'}"

    result = run("diff", "--source", "directory", "--manifests", str(folder), "--proxy-endpoints", url)

    assert result.returncode == 2
    ((action, target, _, message),) = lines(result)
    assert (action, target) == ("error", url)
    assert "No such file or directory" in message
    assert result.stderr == "tunnelgw diff: not everything could be compared, see the rows that begin with `error`\n"


def test_diff_reports_a_data_plane_without_proxies(folder: Path) -> None:
    result = run("diff", "--manifests", str(folder))

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith("the document of data plane shared cannot be compared: it has no proxies")


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b'{"routes": 5}', b'{"routes": [5]}', b'{"a": "\xff"}', b"[" * 9999]
)
def test_diff_reports_a_server_that_is_not_a_proxy(folder: Path, answer: bytes) -> None:
    with Answering(answer) as url:
        result = run("diff", "--source", "directory", "--manifests", str(folder), "--proxy-endpoints", url)

    assert result.returncode == 2
    ((action, target, _, message),) = lines(result)
    assert (action, target) == ("error", url)
    assert message.startswith("not a tunnelgw-proxy: its answer to GET /config: ")


NO_PROXY = "not a tunnelgw-proxy: it answered 404 to GET /config, but not as a proxy without a document does"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            b"<h1>Not Found</h1>",
            NO_PROXY,
        ),
        (b'{"error": "not found", "message": "no configuration is loaded yet"}', None),
    ],
)
def test_diff_distinguishes_a_proxy_without_a_document_from_another_server_s_404(
    folder: Path, answer: bytes, problem: str | None
) -> None:
    with Answering(answer, 404) as url:
        result = run("diff", "--source", "directory", "--manifests", str(folder), "--proxy-endpoints", url)

    assert result.returncode == (1 if problem is None else 2)
    assert [line[0] for line in lines(result)][-1] == ("add" if problem is None else "error")
    assert problem is None or lines(result)[0][3] == problem


@pytest.mark.parametrize("command", ["check", "explain", "status", "diff"])
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")

    assert result.returncode == 0
    assert f"tunnelgw {command}" in result.stdout


def test_the_error_for_an_unknown_command_lists_the_commands() -> None:
    result = run("chekc")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith("want one of run, check, explain, status, diff\nSee `tunnelgw --help`.\n")
