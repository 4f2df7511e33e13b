"""A folder whose files are edited in any order: what the store shows in the end is what a first look would show."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tunnelgw.sources.directory.site import Site, route
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Snapshot

GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: tunnel
  listeners:
  - {{name: web, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: {secret}}}]}}}}
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
stringData: {{text: {text}}}
"""
NAMED = """\
apiVersion: v1
kind: {kind}
metadata: {{name: {name}, {place}: {text}}}
"""
LETTERS = "abcd"
WORDS = st.sampled_from(["one", "two"])
FILES = ("a.yaml", "b.yml", "below/c.json", "below/d.yaml")


def _documents(letter: str) -> st.SearchStrategy[str]:
    """Named after the letter of their file, so that no two files have the same object unless they were moved."""
    return st.one_of(
        st.builds(lambda word: route(letter, f"{word}.example.org"), WORDS),
        st.builds(lambda secret: GATEWAY.format(name=letter, secret=secret), st.sampled_from(LETTERS)),
        st.builds(lambda word: SECRET.format(name=letter, text=word), WORDS),
        st.builds(lambda word: NAMED.format(kind="ConfigMap", name=letter, place="namespace", text=word), WORDS),
        st.builds(
            lambda word: NAMED.format(kind="Namespace", name=letter, place="labels", text=f"{{is: {word}}}"), WORDS
        ),
    )


Edit = Callable[[Site], object]


def _move(site: Site, old: str, new: str) -> None:
    if (site.root / old).exists() and old != new:
        (site.root / new).parent.mkdir(exist_ok=True)
        (site.root / old).rename(site.root / new)


def _writes(name: str) -> st.SearchStrategy[Edit]:
    return st.builds(
        lambda documents: lambda site: site.write(name, "---\n".join(documents)),
        st.lists(_documents(Path(name).stem), max_size=3, unique=True),
    )


NAMES = st.sampled_from(FILES)
WRITES: st.SearchStrategy[Edit] = NAMES.flatmap({name: _writes(name) for name in FILES}.__getitem__)
EDITS: st.SearchStrategy[Edit] = st.one_of(
    *[WRITES] * 6,
    st.builds(lambda name: lambda site: (site.root / name).unlink(missing_ok=True), NAMES),
    st.builds(lambda old, new: lambda site: _move(site, old, new), NAMES, NAMES),
    st.builds(lambda name: lambda site: site.write(name, "{broken: ["), NAMES),
)


def shown(snapshot: Snapshot) -> dict[tuple[Kind, Key], Any]:
    """All objects, without the metadata in which two creations of the same one differ."""
    found = {}
    for kind in Kind:
        for key, item in snapshot.all(kind).items():
            plain = msgspec.json.decode(msgspec.json.encode(item))
            found[kind, key] = {**plain, "metadata": {**plain["metadata"], "uid": "", "generation": 0}}
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.lists(EDITS, min_size=1, max_size=3), st.integers(0, 5)), min_size=2, max_size=6))
def test_after_any_edits_the_store_shows_what_a_first_look_shows(rounds: list[tuple[list[Edit], int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        site.look()
        for edits, chance in rounds:
            for edit in edits:
                edit(site)
            if chance == 5:  # a restart
                site = Site(Path(folder))
            change = site.look()
            first = Site(Path(folder), status="elsewhere", is_dry_run=True)

            afresh = first.look()

            assert site.problems() == first.problems()
            if not site.problems():  # otherwise a last good version is served
                assert shown(change.snapshot) == shown(afresh.snapshot)
