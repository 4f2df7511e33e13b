"""Kubeconfigs that people have, and what is said of those that cannot be used."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config import incluster_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from daemonkit.logformat import describe_error
from tests.kube.processes import wait_until
from tests.support.certificates import Authority, bare_authority
from tests.support.lettinggo import uncollected
from tests.support.ports import ReservedPort
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.tunnelgw.sources.kubernetes.running import DEADLINE_S, let_one_kind_alone_come_back_soon, running
from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi, listing
from tunnelgw.model.kinds import Kind
from tunnelgw.sources.kubernetes.failures import Refused, Unreachable
from tunnelgw.sources.kubernetes.kubeconfig import edition, load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart

SECRET = "geheim"  # looked for in messages


EXPIRED = "abgelaufen"  # a token that is refused
_CREDENTIALS = "client.authentication.k8s.io/v1"


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


@contextmanager
def echoing(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[str]:
    """Its URL."""
    with HTTPServer(("127.0.0.1", port), _Echo) as server:
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with echoing() as url:
        yield url


def kubeconfig(folder: Path, url: str, user: dict[str, Any], authority: Authority | None = None) -> str:
    """Another file in the place of what was there, as `kubectl` and who renews certificates have it."""
    path = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u"}
    trust = {"certificate-authority-data": base64.b64encode(authority.pem.encode()).decode()} if authority else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": url, **trust}}],
        "users": [{"name": "u", "user": user}],
    }
    new = folder / "kubeconfig.new"
    new.write_text(json.dumps(document))
    new.rename(path)
    return str(path)


def plugin(folder: Path, token: str | None) -> dict[str, Any]:
    """A user whose plugin gives this token, or fails."""
    credential = {"apiVersion": _CREDENTIALS, "kind": "ExecCredential", "status": {"token": token}}
    given = folder / "given"
    given.unlink(missing_ok=True)
    if token is not None:
        given.write_text(json.dumps(credential))
    return {"exec": {"apiVersion": _CREDENTIALS, "command": "cat", "args": [str(given)], "interactiveMode": "Never"}}


def asked(path: str) -> bytes:
    server = ApiServer(lambda: load_configuration(path))
    try:
        return server.request("GET", "/version")
    finally:
        server.close()


def test_white_space_around_a_token_is_stripped(tmp_path: Path, url: str) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")

    from_file = asked(kubeconfig(tmp_path, url, {"tokenFile": str(token)}))
    given = asked(kubeconfig(tmp_path, url, {"token": f"{SECRET} \n"}))

    assert from_file == given == f"Bearer {SECRET}".encode()


def test_a_token_file_is_read_again_after_a_401(tmp_path: Path, url: str) -> None:
    token = tmp_path / "token"
    token.write_text(EXPIRED)
    path = kubeconfig(tmp_path, url, {"tokenFile": str(token)})
    server = ApiServer(lambda: load_configuration(path))
    with pytest.raises(Refused, match=r"^401 "):
        server.request("GET", "/version")

    token.write_text(SECRET)

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_no_request_is_sent_when_the_credential_plugin_fails(tmp_path: Path, url: str) -> None:
    path = kubeconfig(tmp_path, url, plugin(tmp_path, None))

    with pytest.raises(Unreachable, match=r"^no access to a cluster: the plugin cat gave no credentials$"):
        asked(path)


def test_a_credential_plugin_has_failed_by_its_exit_code_even_if_the_parent_of_the_command_ignores_such_ends(
    tmp_path: Path, url: str
) -> None:
    user = plugin(tmp_path, EXPIRED)
    user["exec"] |= {"command": "sh", "args": ["-c", f"cat {tmp_path}/given; exit 3"]}
    begin = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    status = [sys.executable, "-m", "tunnelgw", "status", "--kubeconfig", kubeconfig(tmp_path, url, user)]

    command = [sys.executable, "-c", begin, *status]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)

    assert "the plugin sh gave no credentials" in said.stderr


def test_a_credential_plugin_may_give_a_certificate_instead_of_a_token(tmp_path: Path) -> None:
    with closing(Authority()) as authority:
        context = authority.server_context(authority.issue("127.0.0.1"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.pem)
        client = authority.issue("client.example")
        status = {"clientCertificateData": client.chain_pem, "clientKeyData": client.key_pem}
        given = tmp_path / "given"
        given.write_text(json.dumps({"apiVersion": _CREDENTIALS, "kind": "ExecCredential", "status": status}))
        user = {
            "exec": {"apiVersion": _CREDENTIALS, "command": "cat", "args": [str(given)], "interactiveMode": "Never"}
        }
        with echoing(context) as url:
            assert asked(kubeconfig(tmp_path, url, user, authority)) == b""


def test_a_credential_plugin_that_failed_after_a_401_is_run_again(tmp_path: Path, url: str) -> None:
    now_s = 100.0
    path = kubeconfig(tmp_path, url, plugin(tmp_path, EXPIRED))
    server = ApiServer(lambda: load_configuration(path), clock=lambda: now_s)
    with pytest.raises(Refused, match=r"^401 "):
        server.request("GET", "/version")
    plugin(tmp_path, None)
    with pytest.raises(Unreachable):
        server.request("GET", "/version")

    plugin(tmp_path, SECRET)
    now_s += 1.0

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_runs_of_a_failing_credential_plugin_back_off(tmp_path: Path, url: str) -> None:
    now_s = 100.0
    path = kubeconfig(tmp_path, url, plugin(tmp_path, None))
    loads_s: list[float] = []

    def load() -> Configuration:
        loads_s.append(now_s - 100.0)
        return load_configuration(path)

    server = ApiServer(load, clock=lambda: now_s)
    for _ in range(60):
        for _ in range(3):
            with pytest.raises(Unreachable, match=r"^no access to a cluster: the plugin cat gave no credentials$"):
                server.request("GET", "/version")
        now_s += 1.0

    assert loads_s == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0, 45.0]
    server.close()


class WaitingPlugin:
    """Of a kubeconfig: gives a token that has expired already, or none, and then waits until it is given one."""

    def __init__(self, folder: Path, url: str, *, gives_one_first: bool) -> None:
        self._given, self._running, self._first = (folder / name for name in ("given", "running", "first"))
        for pipe in (self._given, self._running):
            os.mkfifo(pipe)
        if gives_one_first:
            self._first.write_text(self._credential(EXPIRED, 2020))
        script = f"cat {self._first} && rm {self._first} || {{ echo > {self._running}; cat {self._given}; }}"
        command = {"command": "sh", "args": ["-c", script]}
        self.path = kubeconfig(
            folder, url, {"exec": {"apiVersion": _CREDENTIALS, "interactiveMode": "Never", **command}}
        )

    def wait_until_it_waits(self) -> None:
        self._running.read_text()

    def give(self, token: str) -> None:
        self._given.write_text(self._credential(token, 2999))

    @staticmethod
    def _credential(token: str, expires_year: int) -> str:
        status = {"token": token, "expirationTimestamp": f"{expires_year}-01-01T00:00:00Z"}
        return json.dumps({"apiVersion": _CREDENTIALS, "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize("has_expired", [False, True])
def test_while_one_thread_waits_for_a_credential_plugin_the_requests_of_others_fail(
    tmp_path: Path, url: str, has_expired: bool
) -> None:
    """Nobody would be told otherwise, and nothing could stop."""
    plugin = WaitingPlugin(tmp_path, url, gives_one_first=has_expired)
    answers: list[bytes] = []
    with closing(ApiServer(lambda: load_configuration(plugin.path), reading_s=0.01)) as server:
        first = threading.Thread(target=lambda: answers.append(server.request("GET", "/version")), daemon=True)
        first.start()
        plugin.wait_until_it_waits()

        with pytest.raises(Unreachable, match=r"^no access to a cluster: getting credentials takes longer than 0.01 s"):
            server.request("GET", "/version")
        plugin.give(SECRET)
        first.join(DEADLINE_S)

        assert answers == [server.request("GET", "/version")] == [f"Bearer {SECRET}".encode()]


def test_threads_that_wait_for_a_credential_plugin_take_what_it_gives_even_if_that_expires_soon(url: str) -> None:
    """Otherwise each would run it in turn, and the last ones would wait for too long. Five minutes before its end, a
    token counts as expired."""
    configuration = Configuration(host=url)
    runs, has_begun, may_end = [], threading.Event(), threading.Event()

    def expired(given: Configuration) -> None:
        runs.append(threading.get_ident())
        has_begun.set()
        assert may_end.wait(DEADLINE_S)
        given.api_key["BearerToken"] = f"Bearer {SECRET}"

    configuration.api_key["BearerToken"] = f"Bearer {EXPIRED}"
    configuration.refresh_api_key_hook = expired  # type: ignore[assignment]  # the package says it is None
    answers: list[bytes] = []
    with closing(ApiServer(lambda: configuration, reading_s=DEADLINE_S)) as server:
        first, *others = (
            threading.Thread(target=lambda: answers.append(server.request("GET", "/version")), daemon=True)
            for _ in range(4)
        )
        first.start()
        assert has_begun.wait(DEADLINE_S)
        for thread in others:
            thread.start()
        assert wait_until(lambda: all(map(is_waiting, others)), DEADLINE_S)

        may_end.set()
        for thread in (first, *others):
            thread.join(DEADLINE_S)

    assert answers == [f"Bearer {SECRET}".encode()] * 4
    assert len(runs) == 1


def is_waiting(thread: threading.Thread) -> bool:
    """For another thread, on a condition."""
    return (frame := sys._current_frames().get(thread.ident or 0)) is not None and frame.f_code.co_name == "wait"


def test_an_interruption_ends_the_wait_for_another_threads_credential_plugin(tmp_path: Path, url: str) -> None:
    plugin = WaitingPlugin(tmp_path, url, gives_one_first=False)
    with closing(ApiServer(lambda: load_configuration(plugin.path), reading_s=2 * DEADLINE_S)) as server:
        first, second = (threading.Thread(target=suppressed, args=(server,), daemon=True) for _ in range(2))
        first.start()
        plugin.wait_until_it_waits()
        second.start()

        server.interrupt()

        second.join(DEADLINE_S)
        assert not second.is_alive()
        plugin.give(SECRET)
        first.join(DEADLINE_S)


@pytest.mark.parametrize("is_first", [True, False])
def test_after_an_interruption_no_credential_plugin_is_run(tmp_path: Path, url: str, is_first: bool) -> None:
    """It may ask somebody to log in, and its answer would be for nothing."""
    path = kubeconfig(tmp_path, url, plugin(tmp_path, SECRET))
    loads: list[str] = []

    def load() -> Configuration:
        loads.append(path)
        return load_configuration(path)

    with closing(ApiServer(load, lambda: len(loads))) as server:
        if not is_first:
            server.request("GET", "/version")
        known = list(loads)

        server.interrupt()

        with pytest.raises(Unreachable, match="interrupted"):
            server.request("GET", "/version")
        assert loads == known


def suppressed(server: ApiServer) -> None:
    with suppress(Unreachable):
        server.request("GET", "/version")


def test_all_watches_resume_soon_after_a_credential_plugin_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage: objects that refer to several kinds would be judged by incomplete data."""
    let_one_kind_alone_come_back_soon(monkeypatch)
    followed = (Kind.HTTP_ROUTE, Kind.REFERENCE_GRANT)
    with ScriptedApi() as api:
        api.lists.put((200, listing([], "1")))
        api.watches.put(api.stay)
        path = tmp_path / "kubeconfig"
        kubeconfig(tmp_path, api.url, plugin(tmp_path, None))
        with running(path) as world:
            away = [(kind, Restart.DISCONNECTED) for kind in followed]
            assert wait_until(lambda: min(map(world.restarts.count, away)) > 1, DEADLINE_S)

            plugin(tmp_path, SECRET)

            assert world.store.wait_listed(followed, DEADLINE_S)


@pytest.mark.parametrize("is_edited_in_place", [False, True])
def test_a_corrected_kubeconfig_is_read_at_once(tmp_path: Path, url: str, is_edited_in_place: bool) -> None:
    path = kubeconfig(tmp_path, url, plugin(tmp_path, None))
    server = ApiServer(lambda: load_configuration(path), lambda: edition(path), clock=lambda: 100.0)
    with pytest.raises(Unreachable):
        server.request("GET", "/version")

    if is_edited_in_place:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        Path(path).write_text(Path(kubeconfig(elsewhere, url, {"token": SECRET})).read_text())
    else:
        kubeconfig(tmp_path, url, {"token": SECRET})

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_a_corrected_file_is_read_at_once_where_the_kubeconfig_consists_of_several(tmp_path: Path, url: str) -> None:
    """As `KUBECONFIG=cluster:user` has it for kubectl."""
    document = json.loads(Path(kubeconfig(tmp_path, url, {})).read_text())
    cluster, user = tmp_path / "cluster", tmp_path / "user"
    cluster.write_text(json.dumps({name: part for name, part in document.items() if name != "users"}))
    user.write_text(json.dumps({"users": [{"name": "u", "user": plugin(tmp_path, None)}]}))
    path = os.pathsep.join((str(cluster), str(user)))
    server = ApiServer(lambda: load_configuration(path), lambda: edition(path), clock=lambda: 100.0)
    with pytest.raises(Unreachable, match=r"the plugin cat gave no credentials$"):
        server.request("GET", "/version")

    user.write_text(json.dumps({"users": [{"name": "u", "user": {"token": SECRET}}]}))

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_in_a_pod_a_kubeconfig_that_is_named_takes_precedence_over_the_pods_account(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")

    assert asked(kubeconfig(tmp_path, url, {"token": SECRET})) == f"Bearer {SECRET}".encode()


@pytest.mark.parametrize("user", [{}, {"username": "me", "password": SECRET}])
def test_a_user_without_a_plugin_may_have_a_password_or_nothing(tmp_path: Path, url: str, user: dict[str, str]) -> None:
    assert asked(kubeconfig(tmp_path, url, user)).startswith(b"Basic " if user else b"")


def test_a_moved_server_is_found_through_the_current_kubeconfig(tmp_path: Path, url: str) -> None:
    with echoing() as former:
        path = kubeconfig(tmp_path, former, {"token": SECRET})
        server = ApiServer(lambda: load_configuration(path), lambda: edition(path))
        server.request("GET", "/version")
    kubeconfig(tmp_path, url, {"token": SECRET})

    with pytest.raises(Unreachable):
        server.request("GET", "/version")

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_a_new_ca_is_trusted_through_the_current_kubeconfig(tmp_path: Path) -> None:
    with (
        closing(Authority()) as old,
        closing(Authority()) as new,
        echoing(new.server_context(new.issue("127.0.0.1"))) as url,
    ):
        path = kubeconfig(tmp_path, url, {"token": SECRET}, old)
        server = ApiServer(lambda: load_configuration(path), lambda: edition(path))
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            server.request("GET", "/version")
        kubeconfig(tmp_path, url, {"token": SECRET}, new)

        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            server.request("GET", "/version")

        assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
        server.close()


def test_a_ca_that_strict_x509_checks_refuse_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_context = ssl.SSLContext.__new__

    def strict(cls: type[ssl.SSLContext], *args: Any, **kwargs: Any) -> ssl.SSLContext:
        """As urllib3 has it from Python 3.13 on."""
        context = make_context(cls, *args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl.SSLContext, "__new__", strict)
    with closing(bare_authority()) as bare, echoing(bare.server_context(bare.issue("127.0.0.1"))) as url:
        assert asked(kubeconfig(tmp_path, url, {"token": SECRET}, bare)) == f"Bearer {SECRET}".encode()


def test_a_kubeconfig_that_is_written_while_it_is_read_is_read_again(tmp_path: Path, url: str) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": SECRET})

    def load() -> Configuration:
        found = load_configuration(path)
        kubeconfig(tmp_path, url, {"token": SECRET})
        return found

    server = ApiServer(load, lambda: edition(path))
    with pytest.raises(Unreachable):
        server.request("GET", "/version")

    assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
    server.close()


def test_an_unchanged_kubeconfig_is_not_read_again(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": SECRET})
    loads: list[str] = []

    def load() -> Configuration:
        loads.append(path)
        return load_configuration(path)

    server = ApiServer(load, lambda: edition(path))
    for _ in range(3):
        with pytest.raises(Unreachable):
            server.request("GET", "/version")

    assert len(loads) == 1
    server.close()


def test_a_ca_embedded_in_a_kubeconfig_survives_the_removal_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with (
        closing(Authority()) as authority,
        echoing(authority.server_context(authority.issue("127.0.0.1"))) as url,
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        path = kubeconfig(tmp_path, url, {"token": SECRET}, authority)
        server = ApiServer(lambda: load_configuration(path), lambda: edition(path))
        server.request("GET", "/version")
        for file in temporary.iterdir():
            file.unlink()
        with pytest.raises(Unreachable):
            server.request("GET", "/version")

        assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
        server.close()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("foo: [")])
def test_the_last_good_kubeconfig_is_used_while_the_file_is_unreadable(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    with ReservedPort() as port:
        with echoing(port=port.number) as url:
            path = kubeconfig(tmp_path, url, {"token": SECRET})
            server = ApiServer(lambda: load_configuration(path), lambda: edition(path))
            server.request("GET", "/version")
        spoil(Path(path))
        with pytest.raises(Unreachable):
            server.request("GET", "/version")

        with echoing(port=port.number):
            assert server.request("GET", "/version") == f"Bearer {SECRET}".encode()
        server.close()


def test_the_ca_file_of_a_pod_is_read_for_each_connection(tmp_path: Path) -> None:
    token, trusted = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(SECRET)
    with closing(Authority()) as old, closing(Authority()) as new:
        trusted.write_text(old.pem)
        with echoing(new.server_context(new.issue("127.0.0.1"))) as url:
            place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": url.rpartition(":")[2]}
            loader: Any = InClusterConfigLoader(str(token), str(trusted), environ=place)  # type: ignore[no-untyped-call]
            configuration = Configuration()
            loader.load_and_set(configuration)
            server = ApiServer(lambda: configuration)
            with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                server.request("GET", "/version")

            trusted.write_text(new.pem)

            assert server.request("GET", "/version") == f"bearer {SECRET}".encode()
            server.close()


def test_a_token_that_is_replaced_in_a_pod_is_used_before_the_server_refuses_the_old_one(tmp_path: Path) -> None:
    with closing(Authority()) as authority:
        token, trusted = tmp_path / "token", tmp_path / "ca.crt"
        token.write_text("first")
        trusted.write_text(authority.pem)
        with echoing(authority.server_context(authority.issue("127.0.0.1"))) as url:
            place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": url.rpartition(":")[2]}
            loader: Any = InClusterConfigLoader(str(token), str(trusted), environ=place)  # type: ignore[no-untyped-call]
            configuration = Configuration()
            loader.load_and_set(configuration)
            server = ApiServer(lambda: configuration)
            assert server.request("GET", "/version") == b"bearer first"

            token.write_text("second")
            loader.token_expires_at = datetime.now()  # noqa: DTZ005  # as the package has it: it is read again

            assert server.request("GET", "/version") == b"bearer second"
            server.close()


def test_in_a_pod_a_proxy_variable_does_not_apply_to_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is set for the provider, and a proxy outside the cluster does not reach cluster addresses."""
    token, trusted = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(SECRET)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(trusted))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with closing(Authority()) as authority:
        trusted.write_text(authority.pem)
        with echoing(authority.server_context(authority.issue("127.0.0.1"))) as url:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url.rpartition(":")[2])

            with closing(ApiServer(load_configuration)) as server:
                assert server.request("GET", "/version") == f"bearer {SECRET}".encode()


@pytest.mark.parametrize("token", [f"{SECRET}\nzeile", f"{SECRET}ü"])
def test_the_error_about_a_token_that_fits_no_header_does_not_show_it(tmp_path: Path, url: str, token: str) -> None:
    with pytest.raises(Unreachable) as told:
        asked(kubeconfig(tmp_path, url, {"token": token}))

    assert str(told.value) == "no access to a cluster: the account's token is not one line of printable ASCII"
    assert told.value.__cause__ is None


def test_the_error_about_a_refusal_that_repeats_the_token_does_not_show_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(Refused, match="401") as told:
        asked(kubeconfig(tmp_path, url, {"token": EXPIRED}))

    assert EXPIRED not in str(told.value)


def test_an_empty_token_file_of_a_pod_is_an_error(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("content", ["[" * 5000, '"\\UFFFFFFFF"'], ids=["nested", "no character"])
def test_a_file_that_pyyaml_fails_on_is_no_kubeconfig(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        asked(str(path))


def test_a_kubeconfig_that_is_not_there_is_named_unless_another_of_the_list_is(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    there = kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": SECRET})

    with pytest.raises(Unreachable, match=rf"^no access to a cluster: there is no {missing}$"):
        asked(missing)
    with pytest.raises(Unreachable, match="Connection refused"):
        asked(f"{missing}:{there}")


def test_an_api_server_with_ipv6_alone_is_dialled_though_loopback_had_none_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib3.util.connection.HAS_IPV6", False)  # as it is then

    with pytest.raises(Unreachable, match="Connection refused"):
        asked(kubeconfig(tmp_path, "http://[::1]:1", {"token": SECRET}))


def test_a_kubeconfig_whose_proxy_is_no_text_is_an_error(tmp_path: Path, url: str) -> None:
    path = Path(kubeconfig(tmp_path, url, {"token": SECRET}))
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = ["http://127.0.0.1:1"]
    path.write_text(json.dumps(document))

    with pytest.raises(Unreachable, match=r"kubeconfig is not a kubeconfig$"):
        asked(str(path))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_token_issuer_that_is_silent_or_answers_with_a_page_is_an_error(
    tmp_path: Path, url: str, is_there: bool
) -> None:
    past = base64.urlsafe_b64encode(b'{"exp": 100}').decode()
    with ScriptedApi() as api:
        api.refusals["/.well-known/openid-configuration"] = (200, b"<html>log in first</html>")
        issuer = api.url if is_there else "http://127.0.0.1:1"
        settings = {"id-token": f"e30.{past}.x", "refresh-token": SECRET, "idp-issuer-url": issuer}

        with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
            asked(kubeconfig(tmp_path, url, {"auth-provider": {"name": "oidc", "config": settings}}))


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.DependencyWarning")
@pytest.mark.parametrize("proxy", ["127.0.0.1:3128", "socks5://127.0.0.1:1", "http://[::1"])
def test_an_unusable_proxy_in_the_environment_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        asked(kubeconfig(tmp_path, "http://192.0.2.1", {"token": SECRET}))


def test_the_error_about_an_unreachable_proxy_names_it_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:{SECRET}@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(Unreachable) as told:
        asked(kubeconfig(tmp_path, "https://192.0.2.1", {"token": SECRET}))

    place = "https://192.0.2.1 through the proxy http://127.0.0.1:1"
    assert str(told.value).startswith(f"GET /version: cannot connect to {place}: ")
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("is_kubeconfigs", [False, True])
@pytest.mark.parametrize(
    "proxy", ["http://me:{}@127.0.0.1:99999", "http://me:{}#@127.0.0.1:1", "http:me:{}@127.0.0.1:1"]
)
def test_the_error_about_a_proxy_whose_url_is_wrong_is_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, is_kubeconfigs: bool
) -> None:
    proxy = proxy.format(SECRET)
    path = Path(kubeconfig(tmp_path, "https://192.0.2.1", {"token": "token"}))
    if is_kubeconfigs:
        document = json.loads(path.read_text())
        document["clusters"][0]["cluster"]["proxy-url"] = proxy
        path.write_text(json.dumps(document))
    else:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("no_proxy", "")

    with pytest.raises(Unreachable, match=r"^no access to a cluster: the proxy .* is no URL such as ") as told:
        asked(str(path))

    assert SECRET not in str(told.value)


@pytest.mark.parametrize("no_proxy", ["", "192.0.2.0/24"])
def test_the_proxy_of_a_kubeconfig_is_used_whatever_the_environment_says_of_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    """As with kubectl."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:2")
    monkeypatch.setenv("no_proxy", no_proxy)
    path = Path(kubeconfig(tmp_path, "https://192.0.2.1", {"token": SECRET}))
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = "http://127.0.0.1:1"
    path.write_text(json.dumps(document))

    with pytest.raises(Unreachable, match=r"192\.0\.2\.1 through the proxy http://127\.0\.0\.1:1: "):
        asked(str(path))


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "http://me:one#two@127.0.0.1:1"])
@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [("0.0.0.0", "0.0.0.0/8"), ("127.0.0.1", ""), ("localhost", "")],
)
def test_an_environment_without_a_proxy_for_the_server_leads_to_it_directly(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, host: str, no_proxy: str, proxy: str
) -> None:
    """As with kubectl, a server on this machine needs no NO_PROXY, such as that of kind or an SSH tunnel. The URL of a
    proxy that is not used may even be wrong."""
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", no_proxy)
    path = kubeconfig(tmp_path, url.replace("127.0.0.1", host), {"token": SECRET})

    assert asked(path) == f"Bearer {SECRET}".encode()


CUT = """\
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
clusters: [{name: a, cluster: {server: "https://192.0.2.1", certificate-authority-data: cut}}]
"""


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
        CUT,
    ],
)
def test_a_file_that_is_not_a_kubeconfig_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(Unreachable, match=r"^no access to a cluster: "):
        load_configuration(str(path))


def test_the_error_about_a_kubeconfig_in_another_encoding_names_the_file(tmp_path: Path) -> None:
    """As PowerShell writes `kubectl config view > kubeconfig`."""
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: a", encoding="utf-16")

    with pytest.raises(Unreachable, match=rf"^no access to a cluster: {path}, or a file it names, is not UTF-8$"):
        load_configuration(str(path))


@pytest.mark.parametrize("server", ["", "192.0.2.1:6443", "api.example"])
def test_a_server_that_is_not_a_url_is_an_error_that_quotes_it(tmp_path: Path, server: str) -> None:
    path = kubeconfig(tmp_path, server, {"token": SECRET})

    with pytest.raises(Unreachable, match=r"want a URL such as https://") as told:
        load_configuration(path)

    assert repr(server) in str(told.value)


def test_an_account_without_a_home_directory_has_no_default_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 0x7FFFFFF0)  # no account has this number

    with pytest.raises(Unreachable, match=r"^no access to a cluster: this is no Pod, and there is no ~/.kube/config$"):
        load_configuration()


def test_an_unreachable_server_leaves_no_reference_cycles() -> None:
    """It is tried for days, and the callers' frames hold pages of lists."""
    configuration = Configuration(host="http://127.0.0.1:1")
    with closing(ApiServer(lambda: configuration)) as server, uncollected() as garbage:
        with suppress(Unreachable):
            server.request("GET", "/api/v1/namespaces")

        assert not garbage("tunnelgw")


def test_the_error_about_an_answer_that_is_no_http_and_repeats_the_token_does_not_show_it(tmp_path: Path) -> None:
    def answer(dialogue: Dialogue) -> None:
        assert dialogue.receive()
        dialogue.send(f"-ERR Authorization: Bearer {SECRET}\r\n".encode())

    with SocketBackend(answer) as backend, pytest.raises(Unreachable, match="<redacted>") as told:
        asked(kubeconfig(tmp_path, f"http://{backend.address}", {"token": SECRET}))

    assert SECRET not in describe_error(told.value)
