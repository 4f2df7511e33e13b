"""Statuses as files: one YAML file per object, `KIND/NAMESPACE/NAME.yaml` in the status folder, in lower case.

They are for people to read, and contain no secrets. After a restart a status is reused if it is about the same object
(by uid), so that transition times are kept.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from daemonkit.filereading import read_regular
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.model.statuses import AnyStatus
from tunnelgw.sources.writing import Outcome, Written

if TYPE_CHECKING or yaml.__with_libyaml__:
    from yaml import CSafeDumper as SafeDumper
    from yaml import CSafeLoader as SafeLoader
else:
    from yaml import SafeDumper, SafeLoader

_LONGEST_CHARACTERS = 224
"""With the rest of a temporary file's name, this is within the 255 bytes that all file systems allow."""
_DIGITS = 32
_MAX_BYTES = 16 * 1024 * 1024
"""Room for the longest status that an API server would store, in YAML."""
_UNUSABLE = (
    OSError,
    yaml.YAMLError,
    RecursionError,
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
)
"""What reading a status can raise; PyYAML raises Python's own errors for values such as `0b_`."""
_HEAD = "# Written by tunnelgw; edits are overwritten.\n"


def is_status(octets: bytes) -> bool:
    """Whether a file with this content is one of ours."""
    return octets.startswith(_HEAD.encode())


class StatusFolder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, entry: Entry, uid: str) -> bytes:
        """The status as JSON; empty if there is none for this object, or if it is damaged."""
        try:
            document = yaml.load(read_regular(self.path(entry), _MAX_BYTES), SafeLoader)
            if document["metadata"]["uid"] != uid:
                return b""
            status = msgspec.json.encode(document["status"])
            msgspec.json.decode(status, type=AnyStatus)
        except _UNUSABLE:
            return b""
        return status

    def write(self, entry: Entry, item: Object, status: bytes) -> None:
        """Raises OSError."""
        resource = RESOURCES[Kind(entry.table)]
        metadata: dict[str, Any] = {"name": entry.key.name}
        if entry.key.namespace:
            metadata["namespace"] = entry.key.namespace
        document = {
            "apiVersion": f"{resource.group}/{resource.versions[0]}",
            "kind": str(entry.table),
            "metadata": {**metadata, "uid": item.metadata.uid, "generation": item.metadata.generation},
            "status": msgspec.json.decode(status),
        }
        path = self.path(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        text = yaml.dump(document, Dumper=SafeDumper, sort_keys=False, allow_unicode=True)
        temporary.unlink(missing_ok=True)  # whatever it is, writing into a pipe or a link would not replace it
        with temporary.open("x", encoding="utf-8") as file:
            file.write(_HEAD + text)
        temporary.replace(path)

    def remove(self, entry: Entry) -> None:
        path = self.path(entry)
        with contextlib.suppress(OSError):
            path.unlink()
            for folder in (path.parent, path.parent.parent):
                if folder != self._root:
                    os.rmdir(folder)  # noqa: PTH106  # only while it is empty

    def path(self, entry: Entry) -> Path:
        namespace, name = entry.key
        return self._root / str(entry.table).lower() / namespace / f"{_file_name(name)}.yaml"


def _file_name(name: str) -> str:
    """Objects may have longer names than files, but never names that contain `~`."""
    if len(name) <= _LONGEST_CHARACTERS:
        return name
    return f"{name[: _LONGEST_CHARACTERS - _DIGITS - 1]}~{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"


class StatusWriter:
    """Writes statuses. It and the source hold `lock` while they work."""

    def __init__(
        self,
        folder: StatusFolder,
        lock: threading.RLock,
        is_current: Callable[[Entry, Object], bool | None],
        took: Callable[[Entry, bytes], None],
    ) -> None:
        """`is_current`: whether the folder has the object in this state; None: it is gone. `took`: called on
        success."""
        self._folder = folder
        self._lock = lock
        self._is_current = is_current
        self._took = took

    def write(self, kind: Kind, item: Object, status: bytes) -> Written:
        entry = Entry(kind, item.key)
        with self._lock:
            is_current = self._is_current(entry, item)
            if is_current is None:
                return Written(Outcome.GONE)
            if not is_current:
                return Written(Outcome.CONFLICT, "the manifest has changed since")
            try:
                self._folder.write(entry, item, status)
            except OSError as error:
                return Written(Outcome.FAILED, f"{self._folder.path(entry)}: {error.strerror}")
            self._took(entry, status)
        return Written(Outcome.WRITTEN)
