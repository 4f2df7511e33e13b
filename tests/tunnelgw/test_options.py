"""What the controller's options refuse together."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemonkit.options import BadOptions, parse
from tunnelgw.options import PREFIX, Options


@pytest.mark.parametrize("token", ["first\nsecond", "caf\u00e9"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadOptions, match=r"PROXY_AUTH_TOKEN .* is not one line of printable ASCII") as bad:
        parse(Options, prefix=PREFIX, argv=[], environ={"PROXY_AUTH_TOKEN": token})

    assert token not in str(bad.value)


@pytest.mark.parametrize("again", ["", "/", "/../manifests"])
def test_statuses_go_not_into_the_folder_of_the_manifests_itself(tmp_path: Path, again: str) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    argv = ["--source", "directory", "--manifests", str(manifests)]

    with pytest.raises(BadOptions, match=r"--status-dir .* is the folder of --manifests"):
        parse(Options, prefix=PREFIX, argv=[*argv, "--status-dir", f"{manifests}{again}"], environ={})

    _, options = parse(Options, prefix=PREFIX, argv=argv, environ={})
    assert options.status_path == manifests / "status"


def test_a_link_that_leads_to_itself_is_left_to_those_who_open_it(tmp_path: Path) -> None:
    link = tmp_path / "manifests"
    link.symlink_to(link)

    _, options = parse(Options, prefix=PREFIX, argv=["--source", "directory", "--manifests", str(link)], environ={})

    assert options.manifests_path == link
