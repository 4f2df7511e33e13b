"""A folder of manifests on a disk, and what the store shows of it."""

from __future__ import annotations

import itertools
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.routes import HttpRoute
from tunnelgw.sources.directory.source import DirectorySource
from tunnelgw.sources.store import Change, Store

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WEB = Key("default", "web")
_SECONDS = itertools.count(1)
"""Times of modification, each later than those before, whichever source looks."""
ROUTE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {name}
spec:
  parentRefs: [{{name: gw}}]
  hostnames: [{hostname}]
"""


def route(name: str = "web", hostname: str = "a.example.org") -> str:
    return ROUTE.format(name=name, hostname=hostname)


class Site:
    """A folder, its status folder, and a source that looks when it is told to."""

    def __init__(self, root: Path, *, is_dry_run: bool = False, status: str = "manifests/status") -> None:
        """`status`: the status folder, below `root`."""
        self.root = root / "manifests"
        self.root.mkdir(exist_ok=True)
        self.status = root / status
        self.store = Store()
        self.now = NOW
        self.source = DirectorySource(
            self.root, self.status, self.store, threading.Event(), lambda: self.now, is_dry_run=is_dry_run
        )

    def write(self, name: str, text: str) -> Path:
        """A file that has been still for a while already."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written_s = next(_SECONDS)
        os.utime(path, (written_s, written_s))
        return path

    def look(self) -> Change:
        self.source.look()
        return self.store.take()

    def route(self, key: Key = WEB) -> HttpRoute | None:
        item = self.look().snapshot.all(Kind.HTTP_ROUTE).get(key)
        assert item is None or isinstance(item, HttpRoute)
        return item

    def hostnames(self, key: Key = WEB) -> tuple[str, ...]:
        route = self.route(key)
        return route.spec.hostnames if route else ()

    def problems(self) -> list[str]:
        return [f"{Path(each.file).name}:{each.line}: {each.reason}" for each in self.source.problems]
