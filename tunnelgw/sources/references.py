"""Which Secrets and ConfigMaps an object names: the store keeps the content of only those.

The other Secrets of a cluster (releases of charts, other people's keys) are none of our business, and can be large. For
these the store keeps a stub: the object without its data.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import Gateway, GatewayClass, GatewayTls, Listener, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import SUBDOMAIN, Key, Object, ObjectMeta
from tunnelgw.model.own import TUNNELGW, GatewayClassConfig, GatewayConfig
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import CORE, LocalRef, ObjectRef, ParametersRef, SecretKeyRef
from tunnelgw.model.snapshot import Entry

WITH_DATA = frozenset({Kind.SECRET, Kind.CONFIG_MAP})
REFERRING = frozenset(
    {
        Kind.GATEWAY,
        Kind.LISTENER_SET,
        Kind.BACKEND_TLS_POLICY,
        Kind.GATEWAY_CLASS_CONFIG,
        Kind.GATEWAY_CONFIG,
    }
)
"""Kinds whose objects can name Secrets or ConfigMaps."""
_NAME = re.compile(SUBDOMAIN)

WithPreviousSpec: TypeAlias = GatewayClass | Gateway | ListenerSet | BackendTlsPolicy
"""Objects that keep their previous spec while something that they name now cannot be read."""


def references(item: Object, home: str) -> frozenset[Entry]:
    """The objects that `item` names now, or named in its previous spec. `home`: the controller's namespace, the
    default for cluster-scoped objects."""
    if isinstance(item, WithPreviousSpec) and item.previous_spec is not None:
        return named(item, home) | named(msgspec.structs.replace(item, spec=item.previous_spec), home)
    return named(item, home)


def named(item: Object, home: str) -> frozenset[Entry]:
    """The objects that `item` names now."""
    namespace = item.metadata.namespace
    match item:
        case Gateway():
            return frozenset((*_of_listeners(item.spec.listeners, namespace), *_of_tls(item.spec.tls, namespace)))
        case ListenerSet():
            return frozenset(_of_listeners(item.spec.listeners, namespace))
        case BackendTlsPolicy():
            return frozenset(_entries(item.spec.validation.ca_certificate_refs, namespace))
        case GatewayClassConfig():
            return frozenset(_of_keys((item.spec.provider_credentials_secret_ref,), home))
        case GatewayConfig():
            spec = item.spec
            refs = (spec.provider_credentials_secret_ref, spec.auth_secret_ref, spec.tunnel_token_secret_ref)
            return frozenset(_of_keys(refs, namespace))
    return frozenset()


def parameters(item: Object) -> Entry | None:
    """The entry of the configuration that a class or a Gateway names."""
    kind: Kind
    ref: ParametersRef | LocalRef | None
    match item:
        case GatewayClass():
            kind, ref = Kind.GATEWAY_CLASS_CONFIG, item.spec.parameters_ref
        case Gateway() if item.spec.infrastructure:
            kind, ref = Kind.GATEWAY_CONFIG, item.spec.infrastructure.parameters_ref
        case _:
            return None
    if ref is None or (ref.group, ref.kind) != (TUNNELGW, kind):
        return None
    return Entry(kind, Key(item.metadata.namespace, ref.name))


def stub(item: Object) -> Object:
    """The object without its data."""
    if isinstance(item, Secret | ConfigMap):
        return msgspec.structs.replace(item, data=None)
    return item


def can_be(entry: Entry) -> bool:
    """Whether an object can have this name at all: the API does not check references, so it may be `../x` or `x?y`."""
    return all(map(_NAME.fullmatch, (entry.key.namespace, entry.key.name)))


def unseen(entry: Entry) -> Object:
    """Stands for an object that may or may not exist."""
    metadata = ObjectMeta(entry.key.name, entry.key.namespace)
    return Secret(metadata) if entry.table is Kind.SECRET else ConfigMap(metadata)


def outside(entry: Entry) -> Object:
    """Stands for a Secret in a namespace whose Secrets we do not read."""
    return Secret(ObjectMeta(entry.key.name, entry.key.namespace), data={}, is_outside=True)


def _of_listeners(listeners: Iterable[Listener], namespace: str) -> Iterable[Entry]:
    for listener in listeners:
        if listener.tls:
            yield from _entries(listener.tls.certificate_refs, namespace)


def _of_tls(tls: GatewayTls | None, namespace: str) -> Iterable[Entry]:
    if tls and tls.backend and tls.backend.client_certificate_ref:
        yield from _entries((tls.backend.client_certificate_ref,), namespace)
    if tls and tls.frontend:
        for part in (tls.frontend.default, *(per_port.tls for per_port in tls.frontend.per_port)):
            if part.validation:
                yield from _entries(part.validation.ca_certificate_refs, namespace)


def _entries(refs: Iterable[ObjectRef | LocalRef], namespace: str) -> Iterable[Entry]:
    for ref in refs:
        if ref.group == CORE and ref.kind in WITH_DATA:
            yield Entry(Kind(ref.kind), Key(getattr(ref, "namespace", "") or namespace, ref.name))


def _of_keys(refs: Iterable[SecretKeyRef | None], namespace: str) -> Iterable[Entry]:
    for ref in refs:
        if ref:
            yield Entry(Kind.SECRET, Key(ref.namespace or namespace, ref.name))
