"""What the commands know of a folder of manifests."""

import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tests.tunnelgw.sources.kubernetes.running import DEADLINE_S
from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi, Send, listing
from tunnelgw.commands.inputs import STATUS, CannotAnswer, from_controlled, from_files
from tunnelgw.commands.listing import from_api_server
from tunnelgw.commands.main import run
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.ledger import Ledger
from tunnelgw.sources.directory.statuses import StatusFolder

MANIFEST = """\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: main
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""


def the_gateway(folder: Path, status_dir: str) -> Gateway:
    (found,) = from_files([str(folder)], status_dir).snapshot.all(Kind.GATEWAY).values()
    assert isinstance(found, Gateway)
    return found


@pytest.mark.parametrize("has_another_status_dir", [False, True])
def test_a_gateway_holds_the_addresses_that_its_status_shows(tmp_path: Path, *, has_another_status_dir: bool) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "gateway.yaml").write_text(MANIFEST)
    statuses = tmp_path / "elsewhere" if has_another_status_dir else folder / STATUS
    status_dir = str(statuses) if has_another_status_dir else ""
    gateway = the_gateway(folder, status_dir)
    assert gateway.held == ()
    entry = Entry(Kind.GATEWAY, gateway.key)
    ledger = Ledger(statuses)
    known = ledger.note(entry, "of the manifest", "2026-01-01T00:00:00Z")
    ledger.save()
    metadata = msgspec.structs.replace(gateway.metadata, uid=known.uid)
    status = b'{"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]}'

    StatusFolder(statuses).write(entry, msgspec.structs.replace(gateway, metadata=metadata), status)

    assert the_gateway(folder, status_dir).held == ("192.0.2.1",)


def site_with_a_broken_manifest(root: Path) -> Site:
    site = Site(root)
    site.write("web.yaml", route())
    site.look()
    site.write("web.yaml", "kind: [")
    site.look()
    return site


def test_the_last_good_objects_of_a_broken_manifest_are_read_only_for_questions_about_a_controller(
    tmp_path: Path,
) -> None:
    site = site_with_a_broken_manifest(tmp_path)

    controlled, plain = from_controlled([str(site.root)]), from_files([str(site.root)])
    file_alone = from_controlled([str(site.root / "web.yaml")], str(site.root / STATUS))

    assert [[*inputs.snapshot.all(Kind.HTTP_ROUTE)] for inputs in (controlled, plain, file_alone)] == [[WEB], [], []]
    assert len(controlled.problems) == len(plain.problems) == len(file_alone.problems) == 1


def test_the_last_good_objects_of_a_deleted_manifest_are_not_read(tmp_path: Path) -> None:
    site = site_with_a_broken_manifest(tmp_path)
    (site.root / "web.yaml").unlink()

    assert not from_controlled([str(site.root)]).snapshot.all(Kind.HTTP_ROUTE)


def test_statuses_in_any_of_several_folders_are_not_read_as_manifests(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        (folder / STATUS / "gateway").mkdir(parents=True)
        (folder / STATUS / "gateway" / "web.yaml").write_text(MANIFEST.partition("spec:")[0])

    assert from_files(map(str, folders)).problems == ()


def test_manifests_in_the_status_directory_are_skipped_as_by_a_controller_and_reported(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("web.yaml", route())
    site.look()
    entry = Entry(Kind.HTTP_ROUTE, WEB)
    (item,) = from_controlled([str(site.root)]).snapshot.all(Kind.HTTP_ROUTE).values()
    StatusFolder(site.root / STATUS).write(entry, item, b"{}")
    page = site.root / STATUS / "page.yaml"
    page.write_text(MANIFEST)

    for inputs in (from_files([str(site.root)]), from_controlled([str(site.root)])):
        assert not inputs.snapshot.all(Kind.GATEWAY)
        (problem,) = inputs.skipped
        assert problem.where == f"{page}:1"
        assert problem.reason.startswith("not read, nor does a controller read it: ")


def test_a_folder_named_status_is_read_if_the_status_directory_is_another(tmp_path: Path) -> None:
    (tmp_path / "manifests" / STATUS).mkdir(parents=True)
    (tmp_path / "manifests" / STATUS / "page.yaml").write_text(MANIFEST)

    inputs = from_files([str(tmp_path / "manifests")], str(tmp_path / "elsewhere"))

    assert len(inputs.snapshot.all(Kind.GATEWAY)) == 1
    assert inputs.skipped == ()


def refusing_secrets(api: ScriptedApi, status_code: int) -> None:
    """A user who may read routes often may not read Secrets."""
    api.lists.put((200, listing([], "5")))
    api.watches.put(api.stay)
    refusal = {"code": status_code, "reason": "Forbidden", "message": "User joe cannot list"}
    api.refusals["/api/v1/secrets"] = (status_code, refusal)


@pytest.mark.parametrize(
    ("status_code", "told"),
    [
        (403, "Secret may not be listed: 403 Forbidden: User joe cannot list"),
        (503, "Secret could not be listed within 3 s: 503 Forbidden: User joe cannot list"),
    ],
)
def test_a_kind_that_cannot_be_listed_is_reported_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status_code: int,
    told: str,
) -> None:
    monkeypatch.setattr("tunnelgw.commands.listing._LISTING_S", 3.0)
    with ScriptedApi() as api:
        refusing_secrets(api, status_code)

        with pytest.raises(CannotAnswer) as refused:
            from_api_server(str(api.kubeconfig(tmp_path)), "tunnelgw-system")

    assert str(refused.value) == told


def test_the_right_to_watch_is_not_needed_by_a_command(tmp_path: Path) -> None:
    with ScriptedApi() as api:
        secrets = api.held["/api/v1/secrets"] = threading.Semaphore(0)

        def watch_again(send: Send) -> None:  # the refusal has been noted, while another list is still to come
            secrets.release(2)
            api.stay(send)

        api.lists.put((200, listing([], "5")))
        api.watches.put((403, {"code": 403, "reason": "Forbidden", "message": "User joe cannot watch"}))
        api.watches.put(watch_again)

        inputs = from_api_server(str(api.kubeconfig(tmp_path)), "tunnelgw-system")

    assert inputs.skipped == ()


def test_the_right_to_watch_is_not_needed_in_one_of_several_namespaces_with_secrets(tmp_path: Path) -> None:
    with ScriptedApi() as api:
        other = api.held["/api/v1/namespaces/b/secrets"] = threading.Semaphore(0)
        refused = threading.Event()

        def watch(send: Send) -> None:
            if refused.is_set():  # the refusal has been noted, while the list of the other namespace is still to come
                other.release(2)
                api.stay(send)
            refused.set()
            send({"type": "ERROR", "object": {"code": 403, "reason": "Forbidden", "message": "User joe cannot watch"}})

        api.items["/api/v1/namespaces"] = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in ("a", "b")]
        api.refusals["/api/v1/namespaces/a/secrets"] = watch
        api.lists.put((200, listing([], "5")))
        api.watches.put(api.stay)

        inputs = from_api_server(str(api.kubeconfig(tmp_path)), "a", ("a", "b"))

    assert inputs.skipped == ()


def test_a_missing_permission_is_the_only_line_that_a_command_prints(tmp_path: Path) -> None:
    with ScriptedApi() as api:
        refusing_secrets(api, 403)
        command = [sys.executable, "-m", "tunnelgw", "status", "--kubeconfig", str(api.kubeconfig(tmp_path))]

        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    told = "tunnelgw status: Secret may not be listed: 403 Forbidden: User joe cannot list\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_unreadable_objects_of_an_api_server_are_reported_with_the_reason(tmp_path: Path) -> None:
    """The controller leaves them out too, so not all is well."""
    with ScriptedApi() as api:
        for _ in range(2):
            api.lists.put((200, listing([{"metadata": {"name": "web", "namespace": "shop"}, "spec": 5}], "5")))
            api.watches.put(api.stay)
        kubeconfig = str(api.kubeconfig(tmp_path))
        inputs = from_api_server(kubeconfig, "tunnelgw-system")
        command = [sys.executable, "-m", "tunnelgw", "status", "--kubeconfig", kubeconfig]

        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    (problem,) = inputs.problems
    told = "cannot be read and is left out: Expected `object`, got `int` - at `$.spec`"
    assert str(problem) == f"HTTPRoute shop/web: {told}"
    assert (done.returncode, done.stdout) == (1, f"not well\tHTTPRoute shop/web\tobject\t\t{told}\n")


@pytest.mark.parametrize(
    ("flag", "variable", "wanted"),
    [
        ("--controller-name", "TUNNELGW_CONTROLLER_NAME", "seen 'a b', want domain/path"),
        ("--namespace", "TUNNELGW_NAMESPACE", "seen 'a b', want a valid namespace name"),
    ],
)
def test_a_name_that_run_refuses_is_refused_by_commands_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, variable: str, wanted: str
) -> None:
    """With a controller's name that nothing can have, all would be well, since nothing is its own."""
    for given, environ in (([flag, "a b"], {}), ([], {variable: "a b"})):
        with pytest.raises(SystemExit) as told:
            run(["check", str(tmp_path), *given], environ)

        assert told.value.code == 2
        assert wanted in capsys.readouterr().err


def test_manifests_that_cannot_be_looked_at_are_named_as_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 256
    for given in (["check", name], ["status", "--manifests", name]):
        assert run(given, {}) == 2

        assert f"{name}: File name too long" in capsys.readouterr().err


def test_manifests_in_place_of_their_path_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    short = "kind: Secret\nstringData: {token: hunter2}\n"
    for content in (short, short * 9):
        assert run(["check", content], {}) == 2

        err = capsys.readouterr().err
        assert "(the content of a file, not repeated, in place of its path): " in err
        assert "hunter2" not in err


def test_the_content_of_a_kubeconfig_in_its_place_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = "apiVersion: v1\nusers: [{user: {token: hunter2}}]"
    for given, environ in ((["--kubeconfig", content], {}), ([], {"KUBECONFIG": content})):
        assert run(["status", *given], environ) == 2

        told = capsys.readouterr().err
        assert "--kubeconfig (KUBECONFIG): seen the content of a file, want the path" in told
        assert "hunter2" not in told
