"""Objects that a cluster has without a manifest: a Namespace for each one that is used, and the CRDs of Gateway API."""

from collections.abc import Iterable

from tunnelgw.model.core import CustomResourceDefinition, Namespace
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object, ObjectMeta
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.model.snapshot import Entry

BUNDLE_VERSION = "v1.7.0"
"""The version of Gateway API whose rules are in `schema`."""


def surroundings(entries: Iterable[Entry]) -> list[tuple[Kind, Object]]:
    """The additional objects for a folder with these entries."""
    entries = tuple(entries)
    namespaces: list[tuple[Kind, Object]] = [
        (Kind.NAMESPACE, namespace(name)) for name in sorted(unsaid_namespaces(entries))
    ]
    return [*namespaces, *((Kind.CUSTOM_RESOURCE_DEFINITION, each) for each in definitions())]


def unsaid_namespaces(entries: Iterable[Entry]) -> frozenset[str]:
    """Namespaces that contain objects but have no manifest of their own."""
    entries = tuple(entries)
    used = {entry.key.namespace for entry in entries if entry.key.namespace}
    return frozenset(used - {entry.key.name for entry in entries if entry.table is Kind.NAMESPACE})


def namespace(name: str) -> Namespace:
    return Namespace(ObjectMeta(name, labels={"kubernetes.io/metadata.name": name}))


def definitions() -> list[CustomResourceDefinition]:
    annotations = {
        "gateway.networking.k8s.io/bundle-version": BUNDLE_VERSION,
        "gateway.networking.k8s.io/channel": "experimental",
    }
    return [
        CustomResourceDefinition(ObjectMeta(f"{resource.plural}.{resource.group}", annotations=annotations))
        for resource in RESOURCES.values()
        if resource.group == GATEWAY_API
    ]
