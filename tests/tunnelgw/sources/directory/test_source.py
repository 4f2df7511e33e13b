"""A folder on a disk, and what the store shows of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.process import REPOSITORY
from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.core import Secret
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.routes import HttpRoute
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.store import Store
from tunnelgw.sources.writing import Outcome

CRDS = REPOSITORY / "helm" / "tunnelgw" / "crds"


def test_everything_is_listed_at_the_first_look_also_from_an_empty_folder(site: Site) -> None:
    change = site.look()

    assert site.store.unlisted == frozenset()
    assert Key("", "gateways.gateway.networking.k8s.io") in change.snapshot.all(Kind.CUSTOM_RESOURCE_DEFINITION)


def test_documents_lists_json_and_folders_are_read_and_hidden_files_are_not(site: Site) -> None:
    site.write("many.yaml", "---\n" + route("one") + "---\n---\n" + route("two"))
    site.write("below/further/three.yml", route("three"))
    site.write("four.json", json.dumps(yaml.safe_load(route("four"))))
    site.write("list.yaml", json.dumps({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(route("five"))]}))
    site.write(".hidden.yaml", route("hidden"))
    site.write("notes.txt", "no manifest")
    site.write("status/httproute/default/web.yaml", route("status"))
    site.write("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")

    routes = site.look().snapshot.all(Kind.HTTP_ROUTE)

    assert {key.name for key in routes} == {"one", "two", "three", "four", "five"}
    assert site.problems() == []


def test_texts_that_json_and_yaml_write_differently_are_read_as_an_api_server_reads_them(site: Site) -> None:
    texts = {"face": "\U0001f600\U00010437", "backslashes": r"\ud83d\ude00"}
    site.write("web.json", json.dumps({**yaml.safe_load(route()), "metadata": {"name": "web", "annotations": texts}}))
    site.write(
        "other.yaml",
        route("other").replace("  name: other", r"  {name: other, annotations: {is: =, raw: \ud83d\ude00}}"),
    )

    found = {key.name: item.metadata.annotations for key, item in site.look().snapshot.all(Kind.HTTP_ROUTE).items()}

    assert site.problems() == []
    assert found == {"web": texts, "other": {"is": "=", "raw": r"\ud83d\ude00"}}


@pytest.mark.parametrize("nothing", ["", "null", '""'])
def test_an_empty_namespace_means_the_default_one(site: Site, nothing: str) -> None:
    site.write("web.yaml", route(f"web\n  namespace: {nothing}"))

    assert site.hostnames(Key("default", "web")) == ("a.example.org",)


def test_an_object_gets_the_metadata_and_defaults_that_an_api_server_would_set(site: Site) -> None:
    site.write("web.yaml", route())

    change = site.look()

    item = change.snapshot.all(Kind.HTTP_ROUTE)[WEB]
    metadata = item.metadata
    assert (metadata.namespace, metadata.generation, metadata.creation_timestamp) == (
        "default",
        1,
        "2026-01-02T03:04:05Z",
    )
    assert len(metadata.uid) == 36
    assert isinstance(item, HttpRoute)
    assert item.spec.rules[0].matches[0].path.value == "/"
    namespace = change.snapshot.all(Kind.NAMESPACE)[Key("", "default")]
    assert namespace.metadata.labels == {"kubernetes.io/metadata.name": "default"}


def test_a_changed_file_changes_its_object_and_raises_its_generation(site: Site) -> None:
    site.write("web.yaml", route())
    first = site.route()
    site.write("web.yaml", route(hostname="b.example.org"))

    second = site.route()

    assert first is not None
    assert second is not None
    assert second.spec.hostnames == ("b.example.org",)
    assert (first.metadata.generation, second.metadata.generation) == (1, 2)
    assert first.metadata.uid == second.metadata.uid


def test_a_status_in_a_manifest_is_ignored_as_by_an_api_server(site: Site) -> None:
    site.write("web.yaml", route())
    site.look()
    site.write("web.yaml", route() + "status: {parents: [{message: from the manifest}]}\n")

    found = site.route()

    assert found is not None
    assert (bytes(found.status), found.metadata.generation) == (b"{}", 1)


def test_labels_comments_and_the_order_of_fields_leave_the_generation_alone(site: Site) -> None:
    site.write("web.yaml", route())
    site.look()
    head, parents, hostnames = route().partition("  parentRefs: [{name: gw}]\n")
    head = head.replace("  name: web\n", "  name: web\n  labels: {a: b}\n")
    site.write("web.yaml", f"# why\n{head}{hostnames}{parents}")

    changed = site.route()

    assert changed is not None
    assert (changed.metadata.generation, changed.metadata.labels) == (1, {"a": "b"})


def test_generation_age_and_identity_survive_a_restart_and_edits_meanwhile(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("web.yaml", route())
    before = site.route()
    site.write("web.yaml", route(hostname="edited-meanwhile.example.org"))

    again = Site(tmp_path)
    again.now = datetime(2027, 1, 1, tzinfo=UTC)
    after = again.route()

    assert before is not None
    assert after is not None
    assert after.metadata.generation == 2
    assert after.metadata.uid == before.metadata.uid
    assert after.metadata.creation_timestamp == before.metadata.creation_timestamp


def test_the_ledger_is_saved_as_soon_as_that_is_possible(site: Site) -> None:
    site.write("web.yaml", route())
    ledger = site.status / ".ledger.json"
    ledger.mkdir(parents=True)
    site.look()

    ledger.rmdir()
    site.look()

    assert ledger.is_file()


def test_an_object_that_was_removed_and_created_again_is_a_new_one(site: Site) -> None:
    path = site.write("web.yaml", route())
    first = site.route()
    path.unlink()
    gone = site.route()
    site.write("web.yaml", route())
    second = site.route()

    assert first is not None
    assert second is not None
    assert gone is None
    assert first.metadata.uid != second.metadata.uid


def test_an_object_that_was_removed_is_forgotten_also_by_the_next_process(tmp_path: Path) -> None:
    site = Site(tmp_path)
    path = site.write("web.yaml", route())
    first = site.route()
    path.unlink()
    site.look()
    site.write("web.yaml", route())

    second = Site(tmp_path).route()

    assert first is not None
    assert second is not None
    assert first.metadata.uid != second.metadata.uid


def test_of_two_documents_for_one_object_the_first_counts_until_it_is_removed(site: Site) -> None:
    first = site.write("a.yaml", route(hostname="first.example.org"))
    site.write("b.yaml", route(hostname="second.example.org"))

    assert site.hostnames() == ("first.example.org",)
    assert site.problems() == [f"b.yaml:1: HTTPRoute default/web is already defined at {first}:1"]
    first.unlink()
    assert site.hostnames() == ("second.example.org",)
    assert site.problems() == []


def test_a_duplicate_object_does_not_keep_other_ones_from_being_forgotten(site: Site) -> None:
    site.write("a.yaml", route())
    site.write("b.yaml", route())
    path = site.write("other.yaml", route("other"))
    other = Key("default", "other")
    first = site.route(other)
    path.unlink()
    site.look()
    site.write("other.yaml", route("other"))

    second = site.route(other)

    assert len(site.problems()) == 1
    assert first is not None
    assert second is not None
    assert first.metadata.uid != second.metadata.uid


def test_the_mount_of_a_config_map_is_followed_when_its_symlink_is_switched(site: Site) -> None:
    for number, hostname in enumerate(("old.example.org", "new.example.org")):
        site.write(f"..{number}/web.yaml", route(hostname=hostname))
    (site.root / "..data").symlink_to("..0")
    (site.root / "web.yaml").symlink_to("..data/web.yaml")
    old = site.hostnames()

    (site.root / "..data_tmp").symlink_to("..1")
    (site.root / "..data_tmp").replace(site.root / "..data")

    assert (old, site.hostnames()) == (("old.example.org",), ("new.example.org",))


def test_circular_symlinks_are_not_followed_for_ever(site: Site) -> None:
    site.write("below/web.yaml", route())
    site.write("other.yaml", route("other"))
    (site.root / "below" / "again").symlink_to("..")

    assert site.hostnames() == ("a.example.org",)
    assert site.problems() == []


def test_a_file_that_is_being_written_is_left_alone_until_it_is_still(site: Site) -> None:
    site.write("web.yaml", route())
    site.look()

    path = site.write("web.yaml", route(hostname="half.example.org"))
    os.utime(path, ns=(time.time_ns() + 10**12,) * 2)  # written just now, however slow this machine is
    during = site.hostnames()
    site.write("web.yaml", route(hostname="whole.example.org"))

    assert (during, site.hostnames()) == (("a.example.org",), ("whole.example.org",))


def test_a_file_that_could_not_be_read_is_read_as_soon_as_its_mode_is_mended() -> None:
    # Rights are given up after the imports: another user may have no way to this interpreter.
    code = (
        "import os, tempfile; from pathlib import Path; from tunnelgw.sources.directory.folder import Folder\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "with tempfile.TemporaryDirectory() as name:\n"
        "    path = Path(name, 'web.yaml'); path.write_text('a: b'); os.utime(path, (1, 1)); path.chmod(0)\n"
        "    folder = Folder(Path(name)); looks = [folder.look(), folder.look()]\n"
        "    path.chmod(0o600); looks += [folder.look(), folder.look()]\n"
        "    print([[*each.failed.values(), *each.read.values()] for each in looks])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert done.stdout == "[['Permission denied'], [], [b'a: b'], []]\n"


NAMING_SECRET = (
    "apiVersion: tunnelgw.dev/v1alpha1\nkind: GatewayClassConfig\nmetadata: {name: c}\n"
    "spec: {tunnelID: 01234567-89ab-cdef-0123-456789abcdef,"
    " providerCredentialsSecretRef: {name: s, namespace: default}}\n"
)


def test_plain_text_of_a_secret_is_encoded_and_never_part_of_a_message(site: Site) -> None:
    site.write(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: geheim}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: bad}\ndata: {token: 'geheim!'}\n",
    )
    site.write("config.yaml", NAMING_SECRET)

    secret = site.look().snapshot.all(Kind.SECRET)[Key("default", "s")]

    assert isinstance(secret, Secret)
    assert secret.data == {"token": "Z2VoZWlt"}
    assert site.problems() == ["secret.yaml:9: data.token is not base64; plain text belongs into stringData"]


@pytest.mark.parametrize(
    "text", ["!geheim", "!geheim wort", "!!geheim", "!<geheim>", "!ge!heim", "*geheim", "&geheim x: y"]
)
def test_plain_text_of_a_secret_that_means_something_in_yaml_is_not_part_of_a_message(site: Site, text: str) -> None:
    site.write("secret.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData:\n  token: {text}\n")

    site.look()

    (problem,) = site.problems()
    assert problem.startswith("secret.yaml:5: ")
    assert "heim" not in problem


def test_a_text_that_begins_like_a_tag_is_refused_with_the_remedy(site: Site) -> None:
    site.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: !geheim }\n")

    site.look()

    assert site.problems() == ["secret.yaml:4: an unknown tag; write a text that begins with `!` in quotes"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("data: {tls.crt: }", "data.tls.crt is null, want base64"),
        ("data: {token: 12345678}", "data.token is not a string; write it in quotes"),
        ("stringData: {token: }", "stringData.token is null, want text"),
        ("stringData: {token: 12345678}", "stringData.token is not a string; write it in quotes"),
    ],
)
def test_a_value_of_a_secret_that_is_not_a_string_is_reported_as_such(site: Site, content: str, problem: str) -> None:
    site.write("secret.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{content}\n")

    site.look()

    assert site.problems() == [f"secret.yaml:4: {problem}"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("kind: Secret\nstringdata: {token: geheim}", "stringdata is not a known field, did you mean stringData?"),
        ("kind: Secret\ntyp: kubernetes.io/tls", "typ is not a known field, did you mean type?"),
        ("kind: Secret\nsops: {version: 3.9.0}", "sops is not a known field"),
        ("kind: ConfigMap\nspec: {ca.crt: x}", "spec is not a known field"),
    ],
)
def test_a_misspelt_field_of_a_secret_or_configmap_is_refused_as_kubectl_does_it(
    site: Site, content: str, problem: str
) -> None:
    """It would count as one without keys."""
    site.write("it.yaml", f"apiVersion: v1\nmetadata: {{name: s}}\n{content}\n")

    site.look()

    assert site.problems() == [f"it.yaml:4: {problem}"]


@pytest.mark.parametrize("field", ["data", "stringData"])
@pytest.mark.parametrize("value", ["[token]", "[]", "''", "false", "token"])
def test_data_of_a_secret_that_is_not_a_map_is_reported_by_its_name(site: Site, field: str, value: str) -> None:
    site.write("secret.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{field}: {value}\n")

    site.look()

    assert site.problems() == [f"secret.yaml:4: {field} is not a map"]


@pytest.mark.parametrize("data", ["", "data:\n"], ids=["absent", "null"])
def test_a_secret_without_data_counts_as_read_and_empty(site: Site, data: str) -> None:
    site.write("secret.yaml", f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{data}")
    site.write("config.yaml", NAMING_SECRET)

    secret = site.look().snapshot.all(Kind.SECRET)[Key("default", "s")]

    assert isinstance(secret, Secret)
    assert secret.data == {}


def test_base64_of_a_secret_may_be_in_several_lines_and_is_stored_in_one(site: Site) -> None:
    site.write(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
        'data: {token: "Z2Vo\\r\\nZWlt\\n", both: "Z2Vo\\n"}\nstringData: {both: heim}\n',
    )
    site.write("config.yaml", NAMING_SECRET)

    secret = site.look().snapshot.all(Kind.SECRET)[Key("default", "s")]

    assert isinstance(secret, Secret)
    assert secret.data == {"token": "Z2VoZWlt", "both": "aGVpbQ=="}
    assert site.problems() == []


@pytest.mark.parametrize("kind", [Kind.GATEWAY_CLASS_CONFIG, Kind.GATEWAY_CONFIG])
def test_the_size_limit_of_a_pool_is_that_of_the_crd(site: Site, kind: Kind) -> None:
    crd: Any = yaml.safe_load((CRDS / f"{RESOURCES[kind].plural}.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    most = spec["properties"]["direct"]["properties"]["addresses"]["maxItems"]
    pool = [f"192.0.{2 + number // 256}.{number % 256}" for number in range(most + 1)]
    text = "apiVersion: tunnelgw.dev/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\nspec: {{direct: {{addresses: {}}}}}\n"

    site.write("fits.yaml", text.format(kind, "fits", json.dumps(pool[:most])))
    site.write("over.yaml", text.format(kind, "over", json.dumps(pool)))

    assert [key.name for key in site.look().snapshot.all(kind)] == ["fits"]


def test_a_secret_that_is_named_later_has_its_data_at_once(site: Site) -> None:
    site.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: geheim}\n")
    unnamed = site.look().snapshot.all(Kind.SECRET)[Key("default", "s")]
    site.write(
        "config.yaml",
        "apiVersion: tunnelgw.dev/v1alpha1\nkind: GatewayConfig\nmetadata: {name: c}\n"
        "spec: {tunnelID: 01234567-89ab-cdef-0123-456789abcdef, tunnelTokenSecretRef: {name: s}}\n",
    )

    site.source.look()

    assert site.store.wait(time.monotonic())
    named = site.store.take().snapshot.all(Kind.SECRET)[Key("default", "s")]
    assert isinstance(unnamed, Secret)
    assert isinstance(named, Secret)
    assert (unnamed.data, named.data) == (None, {"token": "Z2VoZWlt"})


def status(message: str) -> bytes:
    return json.dumps({"parents": [{"message": message}]}).encode()


def test_a_status_is_a_file_and_touches_its_object(site: Site) -> None:
    site.write("web.yaml", route())
    item = site.route()
    assert item is not None

    written = site.source.writer().write(Kind.HTTP_ROUTE, item, status("good"))

    change = site.store.take()
    document: Any = yaml.safe_load((site.status / "httproute" / "default" / "web.yaml").read_text())
    assert written.outcome is Outcome.WRITTEN
    assert document["kind"] == "HTTPRoute"
    assert document["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": item.metadata.uid,
        "generation": 1,
    }
    assert document["status"] == {"parents": [{"message": "good"}]}
    assert change.touched == {Entry(Kind.HTTP_ROUTE, WEB)}
    assert change.changed == frozenset()
    stored = change.snapshot.all(Kind.HTTP_ROUTE)[WEB]
    assert isinstance(stored, HttpRoute)
    assert json.loads(bytes(stored.status)) == {"parents": [{"message": "good"}]}


def test_a_status_survives_edits_and_restarts_and_is_removed_with_its_object(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("web.yaml", route())
    item = site.route()
    assert item is not None
    site.source.writer().write(Kind.HTTP_ROUTE, item, status("good"))
    path = site.write("web.yaml", route(hostname="b.example.org"))
    edited = site.route()

    again = Site(tmp_path)
    restarted = again.route()
    path.unlink()
    again.look()

    assert edited is not None
    assert restarted is not None
    assert bytes(edited.status) == status("good")
    assert json.loads(bytes(restarted.status)) == json.loads(status("good"))
    assert not list((tmp_path / "manifests" / "status").rglob("*.yaml"))


def test_a_status_for_an_object_that_has_changed_is_a_conflict_and_for_a_removed_one_gone(site: Site) -> None:
    path = site.write("web.yaml", route())
    item = site.route()
    assert item is not None
    site.write("web.yaml", route(hostname="b.example.org"))
    site.look()
    conflict = site.source.writer().write(Kind.HTTP_ROUTE, item, status("late")).outcome
    path.unlink()
    site.look()

    gone = site.source.writer().write(Kind.HTTP_ROUTE, item, status("late")).outcome

    assert (conflict, gone) == (Outcome.CONFLICT, Outcome.GONE)


def test_a_status_that_cannot_be_written_is_a_failed_outcome_and_no_exception(site: Site) -> None:
    site.write("web.yaml", route())
    item = site.route()
    assert item is not None
    (site.status / "httproute").write_text("in the way")

    written = site.source.writer().write(Kind.HTTP_ROUTE, item, status("lost"))

    assert written.outcome is Outcome.FAILED
    assert "web.yaml" in written.error


def test_a_folder_that_does_not_exist_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectorySource(tmp_path / "nowhere", tmp_path, Store(), threading.Event())
