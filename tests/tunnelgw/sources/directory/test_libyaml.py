"""A PyYAML without libyaml, as pip builds it where neither a wheel nor the library's headers are."""

from __future__ import annotations

import subprocess
import sys

from tests.support.process import REPOSITORY

SCRIPT = """
import sys, tempfile
from pathlib import Path
sys.modules["yaml._yaml"] = None
import yaml
assert not yaml.__with_libyaml__
from tests.tunnelgw.sources.directory.site import WEB, Site, route
from tunnelgw.model.kinds import Kind
from tunnelgw.sources.directory.manifests import BrokenFile, documents

with tempfile.TemporaryDirectory() as folder:
    site = Site(Path(folder))
    site.write("web.yaml", route())
    site.look()
    print(site.source.writer().write(Kind.HTTP_ROUTE, site.route(WEB), b'{"parents":[]}').outcome.name)
    again = Site(Path(folder))
    print(bytes(again.route(WEB).status).decode())
    path, = Path(folder).glob("**/status/**/*.yaml")
    path.write_text('a: "\\\\UFFFFFFFF"')
    print(bytes(Site(Path(folder)).route(WEB).status).decode())
nested = "a: \\n " + "[" * 100_000
halves = 'a: "\\\\ud800"', 'a:\\n  "\\\\ud83d\\\\ude00": 1'
for text in (*halves, "a: 1\\nb: [", "a: 1\\na: 2", "a:\\n  5: 6", nested, "a: !!int 0b_", "a: \\x07", "a: 2026-01-01"):
    try:
        print([document.data for document in documents(text.encode())])
    except BrokenFile as broken:
        print(broken.line, broken.reason)
for text in ("token: *geheim", "token: !ge!heim"):
    try:
        print([document.data for document in documents(text.encode())])
    except BrokenFile as broken:
        print(broken.line, broken.reason)
# What is behind the colon is Python's.
for text in ('a: "\\\\U00110000"', 'a: "\\\\UFFFFFFFF"', "%YAML " + "1" * 5000 + ".1\\n---\\na: 1"):
    try:
        print([document.data for document in documents(text.encode())])
    except BrokenFile as broken:
        print(broken.line, broken.reason.partition(":")[0])
"""


def test_manifests_are_read_and_statuses_kept_without_libyaml() -> None:
    """Without it the controller did not even start, with manifests in a cluster as well."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )

    assert [
        "WRITTEN",
        '{"parents":[]}',
        "{}",
        *(f"{line} half of a surrogate pair is not a character" for line in (1, 2)),
        "2 expected the node content, but found '<stream end>'",
        "2 key 'a' occurs twice",
        "2 a key is not a string; write it in quotes",
        "2 nests too deeply",
        "1 a value cannot be read as int; write texts in quotes",
        "1 not YAML: special characters are not allowed",
        "[{'a': '2026-01-01'}]",
        *(f"1 found undefined {what}" for what in ("alias", "tag handle")),
        *3 * ["1 not YAML"],
    ] == done.stdout.splitlines(), done.stderr
