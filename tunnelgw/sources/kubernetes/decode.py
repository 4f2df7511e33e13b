"""Decodes bytes from the API into objects of one kind, one object at a time.

An object that does not fit its struct becomes a `Rejected`: it is left out, with the reason. Objects hold no reference
to the bytes that they were decoded from, and no labels or annotations that nothing here reads: kubectl puts whole
manifests into annotations.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tunnelgw.model.kinds import Kind, Resource
from tunnelgw.model.meta import Key, Object
from tunnelgw.sources.kubernetes.failures import UNREADABLE, Status, Unreachable
from tunnelgw.sources.tables import Unreadable


class Rejected(NamedTuple):
    key: Key
    problem: Unreadable


class Page(NamedTuple):
    items: Sequence[Object | Rejected]
    version: str
    continue_: str
    """Empty: this was the last page."""


class Event(NamedTuple):
    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK."""
    version: str
    item: Object | Rejected | None
    """None for a bookmark."""


class _Listing(msgspec.Struct, rename="camel"):
    class Metadata(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        continue_: str = msgspec.field(default="", name="continue")

    metadata: Metadata
    items: list[msgspec.Raw] | None
    """Go may encode an empty list as null. Without the field, the answer is not a list."""


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Named(msgspec.Struct):
    class Metadata(msgspec.Struct, rename="camel"):
        name: str = ""
        namespace: str = ""
        resource_version: str = ""
        generation: int = 0

    metadata: Metadata


_ANNOTATED = frozenset((Kind.CUSTOM_RESOURCE_DEFINITION,))
_LABELLED = frozenset((Kind.NAMESPACE, Kind.ENDPOINT_SLICE))
"""Kinds whose labels are read: for selectors, and for names of Services."""
_NONE: dict[str, str] = {}

_LISTING = msgspec.json.Decoder(_Listing)
_CHANGE = msgspec.json.Decoder(_Change)
_NAMED = msgspec.json.Decoder(_Named)
_STATUS = msgspec.json.Decoder(Status)


class ObjectDecoder:
    def __init__(self, resource: Resource) -> None:
        self._decoder = msgspec.json.Decoder(resource.struct)
        self._unread = [
            field for field, kinds in (("annotations", _ANNOTATED), ("labels", _LABELLED)) if resource.kind not in kinds
        ]

    def object(self, raw: bytes | msgspec.Raw) -> Object | Rejected:
        """Raises Unreachable if it is not a Kubernetes object at all."""
        try:
            item: Object = self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            metadata = _named(raw).metadata
            return Rejected(
                Key(metadata.namespace, metadata.name), Unreadable(str(error), generation=metadata.generation)
            )
        except UNREADABLE as error:
            raise Unreachable(f"not JSON: {error}") from error
        for field in self._unread:
            msgspec.structs.force_setattr(item.metadata, field, _NONE)
        status = getattr(item, "status", None)
        if isinstance(status, msgspec.Raw):
            msgspec.structs.force_setattr(item, "status", status.copy())
        return item

    def page(self, body: bytes) -> Page:
        """Raises Unreachable if it is not a list."""
        listing = _listing(body)
        items = [self.object(raw) for raw in listing.items or ()]
        return Page(items, listing.metadata.resource_version, listing.metadata.continue_)

    def version(self, body: bytes) -> str:
        """The version of a list, whatever its items are. Raises Unreachable if it is not a list."""
        return _listing(body).metadata.resource_version

    def event(self, line: bytes) -> Event:
        """Raises Refused for an event that ends the watch, and Unreachable for anything that is not an event."""
        try:
            change = _CHANGE.decode(line)
            if change.type == "ERROR":
                raise _STATUS.decode(change.object).refusal()
        except UNREADABLE as error:
            raise Unreachable(f"not a watch event: {error}") from error
        item = None if change.type == "BOOKMARK" else self.object(change.object)
        metadata = item.metadata if isinstance(item, Object) else _named(change.object).metadata
        if not metadata.resource_version:  # a watch from no version would not tell what was deleted until then
            raise Unreachable(f"not a watch event: {change.type} without resourceVersion")
        return Event(change.type, metadata.resource_version, item)


def _listing(body: bytes) -> _Listing:
    try:
        return _LISTING.decode(body)
    except UNREADABLE as error:
        raise Unreachable(f"not a list of the API: {error}") from error


def _named(raw: bytes | msgspec.Raw) -> _Named:
    try:
        return _NAMED.decode(raw)
    except UNREADABLE as error:
        raise Unreachable(f"not an object of the API: {error}") from error
