"""The contract's table of starts: the auth Secret, the provider's credentials, classes that are not ours."""

from __future__ import annotations

import json
import os
import sys
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.e2e.controller.arena import Arena, until_serves
from tests.e2e.controller.fronts import Asked, Front
from tests.e2e.controller.site import DEADLINE_S
from tests.proxy.site import TOKEN, Proxy, eventually
from tests.support.controller import faults
from tests.support.netns import NOT_ALLOWED
from tests.support.process import Process
from tests.support.provider import Provider
from tests.support.requirements import not_possible_here
from tests.tunnelgw.sources.cluster import HOME
from tunnelgw.model.kinds import Kind

FORBIDDEN = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'
DENIED = (
    b'{"kind":"Status","code":422,"reason":"Invalid","message":"secrets is forbidden: '
    b"ValidatingAdmissionPolicy 'team' with binding 'team' denied request: label team is required\"}"
)
OTHER_TUNNEL = "0f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b99"


def until_has_a_document(proxy: Proxy, token: str) -> None:
    """Even one without routes, which `until_serves` does not tell from no document."""
    eventually(lambda: proxy.get(token).status_code == HTTPStatus.OK, "the proxy has a document", DEADLINE_S)


# -- the auth Secret -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [{"auth-token": " \n"}, {"token": "abc"}, {}], ids=["blank", "other key", "empty"])
def test_an_auth_secret_without_a_usable_value_ends_the_controller(arena: Arena, data: dict[str, str]) -> None:
    arena.secret(arena.auth_secret, data, HOME)

    with arena.controller(token=None) as controller:
        words = controller.last_words()

    assert words == (
        f"failed to run controller: resolving shared-proxy auth secret: {HOME}/{arena.auth_secret} key auth-token: "
        "the Secret exists but has no usable value at the expected key: "
        f"delete it (kubectl -n {HOME} delete secret {arena.auth_secret}), then restart the controller and the proxies"
    )


def is_about_secrets_by_name(asked: Asked) -> bool:
    return f"/namespaces/{HOME}/secrets" in asked.path


def test_a_right_to_read_secrets_granted_shortly_after_the_start_is_waited_for(
    arena: Arena, api_front: Front, tmp_path: Path
) -> None:
    """An API server that has just started has not loaded all roles yet."""
    forbidden = api_front.answer(is_about_secrets_by_name, 403, FORBIDDEN)
    with arena.controller(token=None, kubeconfig=arena.cluster.through(api_front.url, tmp_path)) as controller:
        controller.expect("auth secret could not be read or created, retrying")
        assert controller.readiness() == (503, "waiting for the auth secret")

        forbidden.release()

        controller.wait_until_ready()
    assert arena.held_token()


def test_a_right_to_read_secrets_that_is_never_granted_ends_the_controller(
    arena: Arena, api_front: Front, tmp_path: Path
) -> None:
    api_front.answer(is_about_secrets_by_name, 403, FORBIDDEN)
    with arena.controller(token=None, kubeconfig=arena.cluster.through(api_front.url, tmp_path)) as controller:
        words = controller.last_words()

    assert words == (
        f"failed to run controller: resolving shared-proxy auth secret: {HOME}/{arena.auth_secret} key auth-token: "
        "403 Forbidden: no: give the controller's account get and create on Secrets; if a quota is exceeded, raise it; "
        "if an admission policy refuses the Secret, create it yourself, with a random value at auth-token"
    )


def test_an_auth_secret_that_a_policy_refuses_may_be_created_by_somebody_else(
    arena: Arena, api_front: Front, tmp_path: Path
) -> None:
    """Policies may require labels, which the controller does not know."""
    api_front.answer(lambda asked: asked == ("POST", f"/api/v1/namespaces/{HOME}/secrets"), 422, DENIED)
    with arena.controller(token=None, kubeconfig=arena.cluster.through(api_front.url, tmp_path)) as controller:
        refused = controller.expect("auth secret could not be read or created, retrying")
        assert "ValidatingAdmissionPolicy 'team'" in str(refused["error"])

        arena.secret(arena.auth_secret, {"auth-token": "theirs"}, HOME)

        controller.wait_until_ready()
        assert not controller.lines_of("auth secret created")


def test_a_missing_auth_secret_is_created_and_used(arena: Arena) -> None:
    """With the right to create Secrets, but not to change them."""
    with arena.controller(token=None) as controller:
        controller.expect("auth secret created", name=f"{HOME}/{arena.auth_secret}")
        controller.wait_until_ready()
    first = arena.held_token()
    assert first

    with Proxy(token=first) as proxy, arena.controller(token=None, proxies=[proxy]) as controller:
        controller.wait_until_ready()
        until_has_a_document(proxy, first)
        assert not controller.lines_of("auth secret created")

    assert arena.held_token() == first
    assert first not in "\n".join(controller.lines)


def test_white_space_around_the_auth_secrets_value_is_ignored(arena: Arena, proxy: Proxy) -> None:
    arena.secret(arena.auth_secret, {"auth-token": " a-token-of-the-tests\n"}, HOME)
    gateway_class = arena.gateway_class()
    arena.gateway(gateway_class)

    with arena.controller(token=None, proxies=[proxy]):
        arena.until_programmed()


def test_a_managed_auth_secret_is_waited_for_and_never_created(arena: Arena) -> None:
    managed = ("--proxy-auth-secret-managed", "--proxy-auth-secret", f"{arena.namespace}-theirs")
    with arena.controller(*managed, token=None) as controller:
        controller.expect("waiting for the auth secret, which somebody else creates")
        assert controller.readiness() == (503, "waiting for the auth secret")

        arena.secret(f"{arena.namespace}-theirs", {"auth-token": "abc"}, HOME)

        controller.wait_until_ready()
    assert arena.held_token() is None


# -- the provider's credentials --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_of_every_class_end_the_controller_after_the_proxies_are_configured(
    arena: Arena, provider: Provider, proxy: Proxy, status: int
) -> None:
    provider.tokens = {} if status == 401 else dict.fromkeys(provider.tokens, False)
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")

    with arena.controller(proxies=[proxy]) as controller:
        words = controller.last_words()

    assert words.startswith("failed to run controller: checking provider credentials: tunnel ")
    assert "authentication failed" in words
    assert f"answered {status}" in words
    assert "Cloudflare Tunnel: Edit" in words
    until_serves(proxy, "a.example.org")


def test_a_missing_credentials_secret_of_every_class_ends_the_controller(arena: Arena, proxy: Proxy) -> None:
    name = arena.gateway_class(token=None)

    with arena.controller(proxies=[proxy]) as controller:
        words = controller.last_words()

    assert f"secret not found: {arena.namespace}/{name} (key api-token)" in words


def test_wrong_credentials_end_the_controller_even_if_no_proxy_answers(arena: Arena, provider: Provider) -> None:
    provider.tokens = {}
    arena.gateway(arena.gateway_class())

    with arena.controller(proxies=["http://127.0.0.1:1"]) as controller:
        assert "authentication failed" in controller.last_words()
    assert provider.calls["write"] == 0


def test_refused_credentials_of_one_class_of_two_are_reported_on_its_gateway_only(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    provider.tunnels[OTHER_TUNNEL] = type(provider.tunnel)(OTHER_TUNNEL)
    arena.gateway(arena.gateway_class(), "good")
    arena.gateway(arena.gateway_class("-refused", token="wrong", tunnel_id=OTHER_TUNNEL), "bad")
    arena.route("web", "a.example.org", "good")

    with arena.controller(proxies=[proxy]) as controller:
        delivered = arena.until(Kind.GATEWAY, "bad", "tunnelgw.dev/Delivered", "False")
        arena.until(Kind.GATEWAY, "good", "tunnelgw.dev/Delivered", "True")
        arena.until_programmed("bad")
        provider.wait_for_hostnames({"a.example.org"})

        assert "authentication failed" in delivered["message"]
        assert controller.metric("tunnelgw_deliveries_total", target=f"tunnel {OTHER_TUNNEL}", outcome="refused") >= 1


def test_credentials_refused_after_the_start_do_not_end_the_controller(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    arena.gateway(arena.gateway_class())
    with arena.controller(proxies=[proxy]):
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "True")

        tokens, provider.tokens = provider.tokens, {}
        arena.route("web", "a.example.org")

        until_serves(proxy, "a.example.org")
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "False")
        assert arena.conditions(Kind.GATEWAY, "gw")["Programmed"]["status"] == "True"
        arena.until_accepted("web")

        provider.tokens = tokens
        provider.wait_for_hostnames({"a.example.org"}, 60.0)
        arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "True")


def test_a_provider_that_answers_502_is_retried(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    provider.fault(faults.Reply(status=502, body="<html>bad gateway</html>", content_type="text/html"), count=2)
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")

    with arena.controller(proxies=[proxy]) as controller:
        controller.expect("delivery failed, retrying", attempt=2)
        provider.wait_for_hostnames({"a.example.org"})


def test_a_provider_hostname_that_does_not_resolve_is_reported_as_no_such_host(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())

    with arena.controller("--provider-api-url", "http://provider.invalid/client/v4", proxies=[proxy]):
        delivered = arena.until(Kind.GATEWAY, "gw", "tunnelgw.dev/Delivered", "False")

        assert "no such host: provider.invalid" in delivered["message"]


# -- classes ---------------------------------------------------------------------------------------------------------


def test_classes_of_other_controllers_are_ignored_and_logged(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    theirs = arena.gateway_class(controller_name="other.example/controller")
    arena.gateway(theirs)
    arena.route("web", "a.example.org")

    with arena.controller(proxies=[proxy]) as controller:
        line = controller.expect("no GatewayClass is ours, see --controller-name", wanted=arena.controller_name)
        until_has_a_document(proxy, TOKEN)
        until_serves(proxy)

        assert "other.example/controller" in line["seen"]
    assert not arena.conditions(Kind.HTTP_ROUTE, "web")
    assert arena.read(Kind.GATEWAY, "gw")["status"]["conditions"][0]["reason"] == "Pending"
    assert not provider.calls


@pytest.mark.parametrize(("source", "flag"), [("kubernetes", "--kubeconfig"), ("directory", "--manifests")])
def test_a_missing_kubeconfig_or_folder_ends_the_controller_and_is_not_created(
    tmp_path: Path, source: str, flag: str
) -> None:
    misspelt = tmp_path / "misspelt"
    command = [sys.executable, "-m", "tunnelgw", "run", "--source", source, flag, str(misspelt)]

    with Process("tunnelgw", command) as controller:
        exit_code = controller.wait(DEADLINE_S)

    line = json.loads(controller.lines[-1])
    assert (exit_code, line["msg"]) == (1, "exiting")
    assert "No such file or directory" in line["error"]
    assert str(misspelt) in line["error"]
    assert flag in line["error"]
    assert not misspelt.exists()


def test_a_pipe_in_place_of_the_kubeconfig_ends_the_controller(tmp_path: Path) -> None:
    """It waited for a writer, and then could not have read the file again."""
    pipe = tmp_path / "kubeconfig"
    os.mkfifo(pipe)

    with Process("tunnelgw", [sys.executable, "-m", "tunnelgw", "run", "--kubeconfig", str(pipe)]) as controller:
        exit_code = controller.wait(DEADLINE_S)

    line = json.loads(controller.lines[-1])
    assert (exit_code, line["msg"]) == (1, "exiting")
    assert "it is a pipe, want a regular file" in line["error"]


# -- a folder instead of an API server -------------------------------------------------------------------------------


def test_a_read_only_status_directory_ends_the_controller(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    command = [sys.executable, "-m", "tunnelgw", "run", "--source", "directory", "--manifests", f"{tmp_path}/manifests"]
    script = 'mount -t tmpfs -o ro tmpfs "$0" || exit 77; exec "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, f"{tmp_path}/manifests", *command]
    with Process("tunnelgw", namespace) as controller:
        exit_code = controller.wait(DEADLINE_S)
    if exit_code == NOT_ALLOWED or controller.tail.startswith("unshare:"):
        not_possible_here(f"a read-only file system cannot be mounted here: {controller.tail}")

    line = json.loads(controller.lines[-1])
    assert (exit_code, line["msg"]) == (1, "exiting")
    assert "read-only file system" in line["error"]
    assert f"{tmp_path}/manifests/status" in line["error"]
    assert "--status-dir" in line["error"]


def test_a_status_directory_that_cannot_be_created_ends_the_controller_with_an_error_that_names_its_option(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "tunnelgw", "run", "--source", "directory", "--manifests", str(tmp_path)]

    with Process("tunnelgw", [*command, "--status-dir", f"{tmp_path}/file/status"]) as controller:
        exit_code = controller.wait(DEADLINE_S)

    line = json.loads(controller.lines[-1])
    assert (exit_code, line["msg"]) == (1, "exiting")
    assert "not a directory: statuses are written here; choose another place with --status-dir" in line["error"]
    assert f"{tmp_path}/file/status" in line["error"]


def test_a_manifest_in_place_of_the_folder_ends_the_controller_and_is_not_repeated() -> None:
    content = "kind: Secret\nstringData: {token: hunter2}\n"
    command = [sys.executable, "-m", "tunnelgw", "run", "--manifests", content]

    with Process("tunnelgw", command) as controller:
        exit_code = controller.wait(DEADLINE_S)

    assert exit_code == 1
    assert "want the folder with the manifests, see --manifests: '(the content of a file" in controller.lines[-1]
    assert "hunter2" not in controller.tail


def test_a_start_without_a_shared_proxy_is_logged(tmp_path: Path) -> None:
    loopback = ["--health-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"]
    command = [
        sys.executable,
        "-m",
        "tunnelgw",
        "run",
        "--source",
        "directory",
        "--manifests",
        str(tmp_path),
        *loopback,
    ]

    with Process("tunnelgw", command) as controller:
        controller.wait_for_line(lambda line: json.loads(line)["msg"] == "started", "the start", DEADLINE_S)

    assert "no shared proxy is named, see --proxy-endpoints and --proxy-service" in {
        json.loads(line)["msg"] for line in controller.lines
    }
