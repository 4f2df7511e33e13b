"""All objects at one moment, with the indexes that translation uses. Made by the store, read by one thread.

A snapshot never changes. The next one shares with it everything that has not changed, down to the identity of objects
and buckets.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from tunnelgw.model.core import EndpointSlice
from tunnelgw.model.gateways import Gateway, GatewayClass, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.policies import BackendTlsPolicy, ReferenceGrant
from tunnelgw.model.refs import CORE, GATEWAY_API
from tunnelgw.model.routes import GrpcRoute, HttpRoute, backend_refs

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class Index(StrEnum):
    """What objects can be looked up by, besides their own name."""

    CLASSES_BY_CONTROLLER = "classes by controller"
    """Key("", controller name)."""
    GATEWAYS_BY_CLASS = "gateways by class"
    """Key("", class name)."""
    LISTENER_SETS_BY_GATEWAY = "listener sets by gateway"
    ROUTES_BY_PARENT = "routes by parent"
    """Key of the Gateway or ListenerSet, under the index of its kind."""
    ROUTES_BY_LISTENER_SET = "routes by listener set"
    ROUTES_BY_SERVICE = "routes by service"
    """Routes that forward or mirror requests to it, or have it authorize them, whether or not they may."""
    GRANTS_BY_NAMESPACE = "grants by namespace"
    """Key(namespace, "")."""
    POLICIES_BY_SERVICE = "policies by service"
    SLICES_BY_SERVICE = "slices by service"


class Entry(NamedTuple):
    """One thing that translation can read: an object of a kind, or a bucket of an index."""

    table: Kind | Index
    key: Key


class Objects(Protocol):
    """What objects can be read from: a snapshot, or a view of one that records what is read."""

    def get(self, kind: Kind, key: Key) -> Object | None:
        """An object; None: it does not exist."""

    def bucket(self, index: Index, key: Key) -> tuple[Object, ...]:
        """The objects of an index under a key, the oldest first."""


def index_entries(item: Object) -> Iterable[tuple[Index, Key]]:
    """The buckets that an object belongs to."""
    namespace = item.metadata.namespace
    match item:
        case GatewayClass():
            yield (Index.CLASSES_BY_CONTROLLER, Key("", item.spec.controller_name))
        case Gateway():
            yield (Index.GATEWAYS_BY_CLASS, Key("", item.spec.gateway_class_name))
        case ListenerSet():
            ref = item.spec.parent_ref
            if (ref.group, ref.kind) == (GATEWAY_API, Kind.GATEWAY):
                yield (Index.LISTENER_SETS_BY_GATEWAY, Key(ref.namespace or namespace, ref.name))
        case HttpRoute() | GrpcRoute():
            yield from {
                (_ROUTE_PARENTS[ref.kind], Key(ref.namespace or namespace, ref.name))
                for ref in item.spec.parent_refs
                if ref.group == GATEWAY_API and ref.kind in _ROUTE_PARENTS
            }
            yield from {
                (Index.ROUTES_BY_SERVICE, Key(ref.namespace or namespace, ref.name))
                for ref in backend_refs(item)
                if (ref.group, ref.kind) == (CORE, Kind.SERVICE)
            }
        case ReferenceGrant():
            yield (Index.GRANTS_BY_NAMESPACE, Key(namespace, ""))
        case BackendTlsPolicy():
            for name in {ref.name for ref in item.spec.target_refs if (ref.group, ref.kind) == (CORE, Kind.SERVICE)}:
                yield (Index.POLICIES_BY_SERVICE, Key(namespace, name))
        case EndpointSlice():
            if service := item.metadata.labels.get(SERVICE_NAME_LABEL):
                yield (Index.SLICES_BY_SERVICE, Key(namespace, service))


_ROUTE_PARENTS = {"Gateway": Index.ROUTES_BY_PARENT, "ListenerSet": Index.ROUTES_BY_LISTENER_SET}


class Snapshot:
    """`objects` by kind and key; `buckets` by index and key, each sorted by age (`Object.age`)."""

    __slots__ = ("_buckets", "_objects")

    def __init__(
        self,
        objects: Mapping[Kind, Mapping[Key, Object]],
        buckets: Mapping[Index, Mapping[Key, tuple[Object, ...]]],
    ) -> None:
        self._objects = objects
        self._buckets = buckets

    @classmethod
    def of(cls, items: Iterable[tuple[Kind, Object]]) -> "Snapshot":
        """A snapshot built from scratch, for commands that run once."""
        objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in Kind}
        members: dict[Index, dict[Key, list[Object]]] = {index: {} for index in Index}
        for kind, item in items:
            objects[kind][item.key] = item
        for by_key in objects.values():
            for item in by_key.values():
                for index, key in index_entries(item):
                    members[index].setdefault(key, []).append(item)
        buckets = {
            index: {key: tuple(sorted(found, key=lambda item: item.age)) for key, found in by_bucket.items()}
            for index, by_bucket in members.items()
        }
        return cls(objects, buckets)

    def all(self, kind: Kind) -> Mapping[Key, Object]:
        return self._objects[kind]

    def get(self, kind: Kind, key: Key) -> Object | None:
        return self._objects[kind].get(key)

    def read(self, entry: Entry) -> Object | tuple[Object, ...] | None:
        """An object, or None if there is none; for an index, a bucket, which is empty if there is none."""
        if isinstance(entry.table, Index):
            return self._buckets[entry.table].get(entry.key, ())
        return self._objects[entry.table].get(entry.key)

    def bucket(self, index: Index, key: Key) -> tuple[Object, ...]:
        """Empty if there is no such bucket."""
        return self._buckets[index].get(key, ())
