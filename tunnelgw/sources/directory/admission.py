"""Turns a document into an object, with the API server's checks: names, schema, defaults and rules.

A refusal is a `Problem` with file, line and reason. No document makes anything here raise.
"""

import base64
import difflib
import hashlib
from typing import Any, Final

import msgspec

from daemonkit.filereading import shown_name
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import LABEL, Key, Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.directory.manifests import Document
from tunnelgw.sources.directory.schema.common import NAMESPACE, SECTION
from tunnelgw.sources.directory.schema.kinds import BY_API_VERSION, SPECS, misspelling
from tunnelgw.sources.directory.schema.shapes import Place, Text
from tunnelgw.sources.references import WITH_DATA

NAMELESS: Final = "(document)"
"""The subject of a problem whose object cannot be determined."""
_LABEL_NAME: Final = Text(1, 63, LABEL, "a name of lower-case letters, digits and '-'")
_LABEL_NAMED: Final = frozenset({Kind.NAMESPACE, Kind.SERVICE})
_METADATA_FIELDS: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_STATUS_ALONE: Final = (
    "; a status alone is what tunnelgw wrote here before --status-dir named another folder: remove the file"
)
_OWN_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_DATA_FIELDS: Final = {
    Kind.SECRET: frozenset({"apiVersion", "kind", "metadata", "type", "data", "stringData", "immutable"}),
    Kind.CONFIG_MAP: frozenset({"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"}),
}
"""Of kinds without spec and status."""
_TLS_KEYS: Final = ("tls.crt", "tls.key")


def _shown_place(file: str, line: int) -> str:
    return f"{shown_name(file)}:{line}"


class Problem(msgspec.Struct, frozen=True):
    file: str
    """Empty: the object is not from a file."""
    line: int
    reason: str
    entry: Entry | None = None
    """The refused object; None: it cannot be determined."""

    @property
    def subject(self) -> str:
        """What is refused, as a text for people."""
        return f"{self.entry.table} {self.entry.key}" if self.entry else NAMELESS

    @property
    def where(self) -> str:
        return _shown_place(self.file, self.line) if self.file else ""

    def __str__(self) -> str:
        return f"{self.where or self.subject}: {self.reason}"


class Remembered(msgspec.Struct, frozen=True):
    """What an API server would add to an object."""

    uid: str
    generation: int
    created: str
    digest: str
    """Digest of everything except metadata and status."""


class Admitted(msgspec.Struct, frozen=True):
    entry: Entry
    document: dict[str, Any]
    """The document with defaults, without status."""
    digest: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return _shown_place(self.file, self.line)

    def object(self, remembered: Remembered, status: bytes = b"") -> Object:
        resource = RESOURCES[Kind(self.entry.table)]
        metadata = {
            **self.document["metadata"],
            "uid": remembered.uid,
            "generation": remembered.generation if self.entry.table in SPECS else 0,
            "creationTimestamp": remembered.created,
            "resourceVersion": hashlib.sha256(msgspec.json.encode(self.document) + status).hexdigest()[:16],
        }
        document = {**self.document, "metadata": metadata}
        if self.entry.table in WITH_DATA:
            document["data"] = document.get("data") or {}
        if status and "status" in resource.struct.__struct_fields__:
            document["status"] = msgspec.Raw(status)
        return msgspec.json.decode(msgspec.json.encode(document), type=resource.struct)


def admit(document: Document, file: str) -> Admitted | list[Problem]:
    """The object, or its problems; an empty list if the document is of none of our kinds."""
    return _Admission(document, file).result()


class _Admission:
    def __init__(self, document: Document, file: str) -> None:
        self._document = document
        self._file = file
        self._entry: Entry | None = None
        self._problems: list[Problem] = []

    def result(self) -> Admitted | list[Problem]:
        data = self._document.data
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            self._say((), "not an object of the API: kind is missing")
            return self._problems
        api_version = data.get("apiVersion")
        if not isinstance(api_version, str):
            self._say((), "not an object of the API: apiVersion is missing")
            return self._problems
        kind = BY_API_VERSION.get((api_version, data["kind"]))
        if kind is None:
            if wrong := misspelling(api_version, data["kind"]):
                self._say(("kind",), wrong)
            return self._problems
        try:
            return self._admitted(kind, data)
        except RecursionError:
            self._say((), "nests too deeply")
        return self._problems

    def _admitted(self, kind: Kind, data: dict[str, Any]) -> Admitted | list[Problem]:
        metadata = self._metadata(kind, data.get("metadata"))
        if metadata is None:
            return self._problems
        key = Key(metadata.get("namespace", ""), metadata["name"])
        self._entry = Entry(kind, key)
        content = self._content(kind, data)
        if not self._problems:
            self._try(kind, {**content, "metadata": metadata})
        if self._problems:
            # Problems that were found before the object was known are about it too.
            return [msgspec.structs.replace(problem, entry=self._entry) for problem in self._problems]
        digest = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:32]
        line = self._document.line_of(())
        return Admitted(self._entry, {**content, "metadata": metadata}, digest, self._file, line)

    def _metadata(self, kind: Kind, metadata: Any) -> dict[str, Any] | None:
        """Name, namespace, labels and annotations. None: the object cannot be determined."""
        if not isinstance(metadata, dict):
            self._say(("metadata",), "metadata is missing")
            return None
        for field in sorted(metadata.keys() - _METADATA_FIELDS):
            self._say_at(("metadata", field), "is not a known field")
        kept: dict[str, Any] = {}
        if not self._is_named("name", metadata, _LABEL_NAME if kind in _LABEL_NAMED else SECTION, kept):
            return None
        if RESOURCES[kind].is_namespaced:
            if metadata.get("namespace") in (None, ""):
                kept["namespace"] = "default"
            elif not self._is_named("namespace", metadata, NAMESPACE, kept):
                return None
        elif metadata.get("namespace"):
            self._say(
                ("metadata", "namespace"), f"metadata.namespace is not allowed for a {kind}, which has cluster scope"
            )
        for field in ("labels", "annotations"):
            table = metadata.get(field) or {}
            if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
                self._say(("metadata", field), f"metadata.{field} is not a map of strings; write numbers in quotes")
            else:
                kept[field] = table
        if kind is Kind.NAMESPACE:
            kept["labels"] = {**kept.get("labels", {}), "kubernetes.io/metadata.name": kept["name"]}
        return kept

    def _is_named(self, field: str, metadata: dict[str, Any], shape: Text, kept: dict[str, Any]) -> bool:
        """Returns whether the field has a valid name, which is then put into `kept`."""
        place: Place = ("metadata", field)
        count = len(self._problems)
        if metadata.get(field) is None:
            self._say_at(place, "is missing")
        else:
            kept[field] = shape.check(metadata[field], place, self._say_at)
        return len(self._problems) == count

    def _content(self, kind: Kind, data: dict[str, Any]) -> dict[str, Any]:
        """Everything except metadata and status, with defaults."""
        content = {name: value for name, value in data.items() if name not in ("metadata", "status")}
        shape = SPECS.get(kind)
        known = _DATA_FIELDS.get(kind, _OWN_FIELDS)
        if shape is not None or kind in _DATA_FIELDS:
            for name in sorted(data.keys() - known):
                near = difflib.get_close_matches(name, known, n=1)
                self._say((name,), f"{name} is not a known field{f', did you mean {near[0]}?' if near else ''}")
        if shape is not None:
            if "spec" in data:
                content["spec"] = shape.check(data["spec"], ("spec",), self._say_at)
            else:
                self._say((), f"spec is missing{_STATUS_ALONE if 'status' in data else ''}")
        elif kind is Kind.SECRET:
            content = self._secret(content)
        return content

    def _secret(self, content: dict[str, Any]) -> dict[str, Any]:
        maps = {name: content.pop(name, None) for name in ("data", "stringData")}
        for name in [name for name, given in maps.items() if not isinstance(given, dict | None)]:
            self._say((name,), f"{name} is not a map")
            maps[name] = None
        data, plain = (given or {} for given in maps.values())
        # The command `base64` breaks lines. An API server accepts and joins them too.
        data = {
            name: text.replace("\r", "").replace("\n", "") if isinstance(text, str) else text
            for name, text in data.items()
        }
        encoded = dict(data)
        for name, text in plain.items():
            if isinstance(text, str):
                encoded[name] = base64.b64encode(text.encode()).decode()
            else:
                self._say(("stringData", name), f"stringData.{name} {_no_string(text, 'text')}")
        for name, text in data.items():
            # The value itself is a secret, which no message may contain.
            if not isinstance(text, str):
                self._say(("data", name), f"data.{name} {_no_string(text, 'base64')}")
                continue
            try:
                base64.b64decode(text, validate=True)
            except ValueError:
                self._say(("data", name), f"data.{name} is not base64; plain text belongs into stringData")
        missing = [name for name in _TLS_KEYS if name not in encoded]
        if content.get("type") == "kubernetes.io/tls" and missing:
            self._say(("data",), f"{' and '.join(missing)} missing, which type kubernetes.io/tls needs")
        return {**content, "data": encoded}

    def _try(self, kind: Kind, document: dict[str, Any]) -> None:
        """Check that it fits our struct of the kind."""
        try:
            msgspec.json.decode(msgspec.json.encode(document), type=RESOURCES[kind].struct)
        except (msgspec.ValidationError, TypeError) as error:
            self._say((), str(error))

    def _say_at(self, place: Place, problem: str) -> None:
        self._say(place, f"{_dotted(place)} {problem}")

    def _say(self, place: Place, reason: str) -> None:
        self._problems.append(Problem(self._file, self._document.line_of(place), reason, self._entry))


def _no_string(value: object, wanted: str) -> str:
    return f"is null, want {wanted}" if value is None else "is not a string; write it in quotes"


def _dotted(place: Place) -> str:
    """For example `spec.rules[0].matches`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
