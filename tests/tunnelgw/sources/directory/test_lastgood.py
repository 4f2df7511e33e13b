"""What was served stays served while its manifest is broken, also after a restart of the controller."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.oddfiles import endless_device, far_too_large, pipe
from tests.tunnelgw.sources.directory.examples import FULL
from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.core import Secret
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Key
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.store import Store

BROKEN = "kind: HTTPRoute\nmetadata: {name: [\n"
OTHER = Key("default", "other")


def broken_site(root: Path, name: str = "web.yaml") -> Site:
    """Its file was good when it was first looked at."""
    site = Site(root)
    site.write(name, route())
    site.look()
    site.write(name, BROKEN)
    site.look()
    return site


@pytest.mark.parametrize("octets", [b"web.yaml", b"gr\xfc\xdfe.yaml", "größe.yaml".encode()])
def test_the_last_good_version_of_a_broken_file_survives_restarts(tmp_path: Path, octets: bytes) -> None:
    """Whatever it is called: file names are bytes, which need not be UTF-8."""
    before = broken_site(tmp_path, os.fsdecode(octets)).route()

    twice = [Site(tmp_path).route(), (again := Site(tmp_path)).route()]

    assert before is not None
    assert before.spec.hostnames == ("a.example.org",)
    assert twice == [before, before]
    assert [problem.partition(": ")[0] for problem in again.problems()] == [f"{os.fsdecode(octets)}:3"]


def test_the_last_good_versions_are_written_only_when_they_change(tmp_path: Path) -> None:
    site = broken_site(tmp_path)
    kept = site.status / ".last-good.json"
    os.utime(kept, (1, 1))

    site.write("other.yaml", route("other"))
    site.look()
    Site(tmp_path).look()

    assert kept.stat().st_mtime == 1


def test_a_folder_that_is_given_as_a_dot_keeps_its_last_good_versions_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(broken_site(tmp_path).root)
    store = Store()

    DirectorySource(Path(), Path("status"), store, threading.Event()).look()

    assert WEB in store.take().snapshot.all(Kind.HTTP_ROUTE)


def test_a_refused_document_survives_a_restart_beside_good_ones_of_its_file(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("many.yaml", route("web") + "---\n" + route("other"))
    site.look()
    site.write("many.yaml", route("web", hostname="A_B") + "---\n" + route("other", hostname="new.example.org"))
    site.look()

    again = Site(tmp_path)

    assert (again.hostnames(WEB), again.hostnames(OTHER)) == (("a.example.org",), ("new.example.org",))


def test_the_good_documents_of_a_broken_file_that_is_edited_just_before_a_restart_stay_as_they_were(
    tmp_path: Path,
) -> None:
    """Only the refused ones are remembered; the others seemed to be gone until the file was still."""
    site = Site(tmp_path)
    site.write("web.yaml", route() + "---\n" + route("other"))
    site.look()
    path = site.write("web.yaml", route() + "---\n" + route("other", "not a hostname"))
    before = site.route(), site.route(OTHER)
    os.utime(path)

    again = Site(tmp_path)

    assert (again.route(), again.route(OTHER)) == before
    assert None not in before


def test_a_broken_file_that_is_mended_while_no_controller_runs_is_served_as_mended(tmp_path: Path) -> None:
    broken_site(tmp_path).write("web.yaml", route(hostname="mended.example.org"))

    assert Site(tmp_path).hostnames() == ("mended.example.org",)


def test_a_broken_file_that_is_removed_while_no_controller_runs_is_gone(tmp_path: Path) -> None:
    broken_site(tmp_path).write("web.yaml", BROKEN).unlink()

    assert Site(tmp_path).route() is None


def test_the_last_good_version_of_a_mended_file_is_deleted(tmp_path: Path) -> None:
    site = broken_site(tmp_path)
    kept = site.status / ".last-good.json"
    was_there = kept.is_file()

    site.write("web.yaml", route(hostname="mended.example.org"))
    site.look()

    assert (was_there, kept.exists()) == (True, False)


@pytest.mark.parametrize("damage", [b"", b'[{"file"', b"\xff", b'["\xff"]', b"[" * 100_000, b'[{"file": 5}]'])
@pytest.mark.parametrize("name", [".last-good.json", ".ledger.json"])
def test_a_damaged_state_file_is_logged_and_only_its_content_is_lost(
    tmp_path: Path, name: str, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broken_site(tmp_path).write("other.yaml", route("other"))
    (tmp_path / "manifests" / "status" / name).write_bytes(damage)
    caplog.set_level(logging.WARNING, "tunnelgw")

    again = Site(tmp_path)

    assert again.hostnames(OTHER) == ("a.example.org",)
    assert [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]


@pytest.mark.parametrize("name", [".last-good.json", ".ledger.json"])
def test_a_state_file_that_is_far_too_large_counts_as_damaged_and_is_not_read(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken_site(tmp_path).write("other.yaml", route("other"))
    path = tmp_path / "manifests" / "status" / name
    path.unlink()
    far_too_large(path)
    caplog.set_level(logging.WARNING, "tunnelgw")

    again = Site(tmp_path)

    assert again.hostnames(OTHER) == ("a.example.org",)
    assert [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]


@pytest.mark.parametrize("put_odd_file", [pipe, endless_device])
@pytest.mark.parametrize("name", [".last-good.json", ".ledger.json"])
def test_what_cannot_be_a_state_file_refuses_the_start_as_one_that_may_not_be_read(
    tmp_path: Path, name: str, put_odd_file: Callable[[Path], None]
) -> None:
    """The start waited for the pipe, without a word."""
    broken_site(tmp_path)
    path = tmp_path / "manifests" / "status" / name
    path.unlink()
    put_odd_file(path)

    with pytest.raises(OSError, match="want a regular file: move it away") as failed:
        Site(tmp_path)

    assert failed.value.filename == str(path)


def test_a_last_good_version_that_a_newer_schema_refuses_is_left_out(tmp_path: Path) -> None:
    kept = broken_site(tmp_path).status / ".last-good.json"
    write_without_digests(kept, kept.read_text().replace("a.example.org", "A_B"))

    assert Site(tmp_path).route() is None


def write_without_digests(kept: Path, text: str) -> None:
    """As earlier releases wrote them."""
    rows = json.loads(text)
    for row in rows:
        del row["sha256"]
    kept.write_text(json.dumps(rows))


def test_last_good_versions_of_a_release_that_wrote_no_digests_are_served(tmp_path: Path) -> None:
    kept = broken_site(tmp_path).status / ".last-good.json"
    write_without_digests(kept, kept.read_text())

    assert Site(tmp_path).hostnames() == ("a.example.org",)


def test_a_last_good_version_that_is_not_what_was_written_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One wrong byte on the disk, and another hostname was served."""
    kept = broken_site(tmp_path).status / ".last-good.json"
    kept.write_bytes(kept.read_bytes().replace(b"a.example.org", b"b.example.org"))
    caplog.set_level(logging.WARNING, "tunnelgw")

    assert Site(tmp_path).route() is None
    assert "saved last good manifests are damaged, ignoring them" in [each.getMessage() for each in caplog.records]


def test_a_last_good_version_that_cannot_be_saved_is_served_and_saved_later(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("web.yaml", route())
    site.look()
    kept = site.status / ".last-good.json"
    kept.mkdir()
    site.write("web.yaml", BROKEN)
    meanwhile = site.hostnames()

    kept.rmdir()
    site.look()

    assert meanwhile == ("a.example.org",)
    assert Site(tmp_path).hostnames() == ("a.example.org",)


def test_the_last_good_version_of_a_secret_is_readable_only_by_the_daemon_s_user(tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: geheim}\n"
    config = (
        "apiVersion: tunnelgw.dev/v1alpha1\nkind: GatewayConfig\nmetadata: {name: c}\n"
        "spec: {tunnelID: 01234567-89ab-cdef-0123-456789abcdef, tunnelTokenSecretRef: {name: s}}\n"
    )
    site = Site(tmp_path)
    site.write("config.yaml", config)
    site.write("secret.yaml", secret)
    site.look()
    site.write("secret.yaml", "data: [")
    site.look()

    found = Site(tmp_path).look().snapshot.all(Kind.SECRET)[Key("default", "s")]

    assert isinstance(found, Secret)
    assert found.data == {"token": "Z2VoZWlt"}
    assert stat.S_IMODE((site.status / ".last-good.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(("kind", "spec"), FULL, ids=[str(kind) for kind, _ in FULL])
def test_an_object_of_any_kind_is_restored_as_it_was(tmp_path: Path, kind: Kind, spec: dict[str, Any]) -> None:
    resource = RESOURCES[kind]
    document = {"apiVersion": f"{resource.group}/{resource.versions[0]}", "kind": kind, "metadata": {"name": "web"}}
    site = Site(tmp_path)
    site.write("web.yaml", json.dumps({**document, "spec": spec}))
    (before,) = site.look().snapshot.all(kind).values()
    site.write("web.yaml", "kind: [")
    site.look()

    (after,) = Site(tmp_path).look().snapshot.all(kind).values()

    assert before == after
