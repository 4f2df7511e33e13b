"""Statuses as files, for objects of every name and after every accident."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.oddfiles import in_its_place
from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.sources.directory.reading import read_all
from tunnelgw.sources.writing import Outcome

STATUS = json.dumps({"parents": [{"controllerName": "a.example/b", "message": "good"}]}).encode()
LONGEST_NAME = ".".join(["a" * 62] * 4) + "b"


def test_a_status_of_the_longest_name_is_written_found_again_and_removed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    names = [LONGEST_NAME, LONGEST_NAME[:-1] + "c"]
    path = site.write("long.yaml", "---\n".join(map(route, names)))
    site.look()
    for name in names:
        item = site.route(Key("default", name))
        assert item is not None
        written = site.source.writer().write(Kind.HTTP_ROUTE, item, STATUS)
        assert (written.outcome, written.error) == (Outcome.WRITTEN, "")

    again = Site(tmp_path)
    files: list[Any] = [yaml.safe_load(file.read_text()) for file in site.status.rglob("*.yaml")]
    found = [again.route(Key("default", name)) for name in names]
    path.unlink()
    again.look()

    assert {file["metadata"]["name"] for file in files} == {*names}
    assert [json.loads(bytes(item.status)) for item in found if item] == [json.loads(STATUS)] * 2
    assert not list(site.status.rglob("*.yaml"))


@in_its_place
def test_what_lies_in_place_of_a_status_is_not_waited_for_and_is_replaced(
    tmp_path: Path, put_odd_file: Callable[[Path], None]
) -> None:
    """The controller waited for a pipe, also when it was to stop: it held the lock for statuses and manifests."""
    site = Site(tmp_path)
    site.write("web.yaml", route("web"))
    folder = site.status / "httproute" / "default"
    folder.mkdir(parents=True)
    put_odd_file(folder / "web.yaml")
    put_odd_file(folder / ".web.yaml.new")
    item = site.route(WEB)
    assert item is not None

    written = site.source.writer().write(Kind.HTTP_ROUTE, item, STATUS)

    assert (bytes(item.status), written.outcome, written.error) == (b"{}", Outcome.WRITTEN, "")
    assert [path.name for path in folder.iterdir()] == ["web.yaml"]
    assert yaml.safe_load((folder / "web.yaml").read_text())["status"] == json.loads(STATUS)


def test_a_status_that_is_read_as_a_manifest_is_refused_with_what_it_is(tmp_path: Path) -> None:
    """Where statuses were once written among the manifests, as by default, and are now written elsewhere."""
    site = Site(tmp_path)
    site.write("web.yaml", route("web"))
    site.look()
    item = site.route(WEB)
    assert item is not None
    site.source.writer().write(Kind.HTTP_ROUTE, item, STATUS)
    (file,) = site.status.rglob("*.yaml")

    reading = read_all([("status/web.yaml", file.read_bytes()), ("bare.yaml", bare("other"))])

    hint = "; a status alone is what tunnelgw wrote here before --status-dir named another folder: remove the file"
    assert [problem.reason for problem in reading.problems] == ["spec is missing", f"spec is missing{hint}"]


def bare(name: str) -> bytes:
    document: Any = yaml.safe_load(route(name))
    del document["spec"]
    return yaml.safe_dump(document).encode()


@pytest.mark.parametrize(
    "status",
    [
        "0b_",
        "5",
        "[]",
        "!!timestamp soon",
        "!!set {a}",
        "{parents: 5}",
        "{parents: [5]}",
        "{parents: [{conditions: 5}]}",
    ],
)
def test_a_damaged_status_counts_as_none(tmp_path: Path, status: str) -> None:
    site = Site(tmp_path)
    site.write("web.yaml", route())
    item = site.route()
    assert item is not None
    site.source.writer().write(Kind.HTTP_ROUTE, item, STATUS)
    path = site.status / "httproute" / "default" / "web.yaml"
    head, _, _ = path.read_text().partition("status:")
    path.write_text(f"{head}status: {status}\n")

    again = Site(tmp_path).look().snapshot.all(Kind.HTTP_ROUTE)[WEB]

    assert (again.metadata.uid, bytes(getattr(again, "status", b""))) == (item.metadata.uid, b"{}")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_beside_a_controller_leaves_its_state_and_statuses_alone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    gone = site.write("web.yaml", route())
    broken = site.write("other.yaml", route("other"))
    site.look()
    item = site.route()
    assert item is not None
    site.source.writer().write(Kind.HTTP_ROUTE, item, STATUS)
    before = content(site.status)

    dry = Site(tmp_path, is_dry_run=True)
    dry.look()
    gone.unlink()
    dry.write("new.yaml", route("new"))
    broken.write_text("kind: [")
    names = {key.name for key in dry.look().snapshot.all(Kind.HTTP_ROUTE)}

    assert names == {"other", "new"}
    assert content(site.status) == before


def test_a_dry_run_creates_no_status_folder(tmp_path: Path) -> None:
    site = Site(tmp_path, is_dry_run=True)
    site.write("web.yaml", route())

    assert site.hostnames() == ("a.example.org",)
    assert not site.status.exists()
