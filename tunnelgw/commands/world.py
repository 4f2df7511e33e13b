"""The objects that a command asks about, read once: from files, or from an API server."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.directory.admission import Problem, Remembered
from tunnelgw.sources.directory.reading import read_all
from tunnelgw.sources.directory.surroundings import surroundings
from tunnelgw.sources.kubernetes.server import ApiServer, ApiServerError, load_configuration
from tunnelgw.sources.kubernetes.source import KubernetesSource
from tunnelgw.sources.store import Store

SUFFIXES = (".yaml", ".yml", ".json")
_LISTING_S = 60.0


class NoWorld(Exception):
    """It cannot be read; the message says what to do."""


class World(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    problems: tuple[Problem, ...] = ()
    """What was refused before it was an object."""
    places: Mapping[Entry, str] = {}
    """File and line of each object that came from a file."""


def from_files(names: Iterable[str]) -> World:
    """Files, folders with all below them, or `-` for standard input. Raises NoWorld."""
    contents = [*_contents(names)]
    reading = read_all(contents)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items: list[tuple[Kind, Object]] = []
    for entry, admitted in reading.admitted.items():
        remembered = Remembered(f"{entry.room} {entry.key}", 1, now, admitted.digest)
        items.append((Kind(entry.room), admitted.object(remembered)))
    items += surroundings(reading.admitted)
    return World(
        Snapshot.of(items),
        reading.problems,
        {entry: f"{admitted.file}:{admitted.line}" for entry, admitted in reading.admitted.items()},
    )


def _contents(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        try:
            if name == "-":
                yield "-", sys.stdin.buffer.read()
            elif (path := Path(name)).is_dir():
                for each in sorted(path.rglob("*")):
                    inside = each.relative_to(path).parts
                    if each.suffix in SUFFIXES and each.is_file() and not any(part[0] == "." for part in inside):
                        yield str(each), each.read_bytes()
            else:
                yield name, path.read_bytes()
        except OSError as error:
            raise NoWorld(f"{name}: {error.strerror or error}") from error


def from_api_server(kubeconfig: str, namespace: str) -> World:
    """Raises NoWorld."""
    stop = threading.Event()
    server = ApiServer(lambda: load_configuration(kubeconfig))
    try:
        server.request("GET", "/version")
    except ApiServerError as error:
        raise NoWorld(f"{error}; name a kubeconfig with --kubeconfig or KUBECONFIG") from error
    store = Store(home=namespace)
    source = KubernetesSource(server, store, stop)
    threads = [threading.Thread(target=target, name=name, daemon=True) for name, target in source.threads()]
    for thread in threads:
        thread.start()
    try:
        if not store.wait(time.monotonic() + _LISTING_S):
            missing = ", ".join(sorted(store.unlisted)) or "referenced Secrets"
            raise NoWorld(f"{missing} could not be listed within {_LISTING_S:.0f} s")
        return World(store.take().snapshot)
    finally:
        stop.set()
        source.drain(time.monotonic())
        for thread in threads:
            thread.join(1.0)
        source.stop()
