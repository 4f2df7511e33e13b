"""Every kind that the controller reads, in one table: group, versions, plural, scope and struct."""

from enum import StrEnum

import msgspec

from tunnelgw.model import core, gateways, own, policies, routes
from tunnelgw.model.meta import Object
from tunnelgw.model.refs import GATEWAY_API


class Kind(StrEnum):
    GATEWAY_CLASS = "GatewayClass"
    GATEWAY = "Gateway"
    LISTENER_SET = "ListenerSet"
    HTTP_ROUTE = "HTTPRoute"
    GRPC_ROUTE = "GRPCRoute"
    REFERENCE_GRANT = "ReferenceGrant"
    BACKEND_TLS_POLICY = "BackendTLSPolicy"
    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    SECRET = "Secret"  # noqa: S105  # the word, not one
    CONFIG_MAP = "ConfigMap"
    NAMESPACE = "Namespace"
    CUSTOM_RESOURCE_DEFINITION = "CustomResourceDefinition"
    GATEWAY_CLASS_CONFIG = "GatewayClassConfig"
    GATEWAY_CONFIG = "GatewayConfig"
    BACKEND = "Backend"


STATUS_KINDS = (
    Kind.GATEWAY_CLASS,
    Kind.GATEWAY,
    Kind.LISTENER_SET,
    Kind.HTTP_ROUTE,
    Kind.GRPC_ROUTE,
    Kind.BACKEND_TLS_POLICY,
)
"""Kinds whose status we write, in the order in which they are listed for people."""


class Resource(msgspec.Struct, frozen=True):
    """Where to find a kind. `versions`: in order of preference; the first one that is served is read."""

    kind: Kind
    struct: type[Object]
    group: str
    versions: tuple[str, ...]
    plural: str
    is_namespaced: bool = True
    is_optional: bool = False
    """Defined by a CRD that may be absent, which holds up nothing."""

    @property
    def path(self) -> str:
        """The path of the API group and version, for example `/apis/discovery.k8s.io/v1`."""
        return f"/apis/{self.group}/{self.versions[0]}" if self.group else f"/api/{self.versions[0]}"


def _gateway_api(kind: Kind, struct: type[Object], plural: str, *versions: str, is_namespaced: bool = True) -> Resource:
    return Resource(kind, struct, GATEWAY_API, versions or ("v1",), plural, is_namespaced, is_optional=True)


RESOURCES: dict[Kind, Resource] = {
    resource.kind: resource
    for resource in (
        _gateway_api(Kind.GATEWAY_CLASS, gateways.GatewayClass, "gatewayclasses", is_namespaced=False),
        _gateway_api(Kind.GATEWAY, gateways.Gateway, "gateways"),
        _gateway_api(Kind.LISTENER_SET, gateways.ListenerSet, "listenersets"),
        _gateway_api(Kind.HTTP_ROUTE, routes.HttpRoute, "httproutes"),
        _gateway_api(Kind.GRPC_ROUTE, routes.GrpcRoute, "grpcroutes"),
        _gateway_api(Kind.REFERENCE_GRANT, policies.ReferenceGrant, "referencegrants", "v1", "v1beta1"),
        _gateway_api(Kind.BACKEND_TLS_POLICY, policies.BackendTlsPolicy, "backendtlspolicies"),
        Resource(Kind.SERVICE, core.Service, "", ("v1",), "services"),
        Resource(Kind.ENDPOINT_SLICE, core.EndpointSlice, "discovery.k8s.io", ("v1",), "endpointslices"),
        Resource(Kind.SECRET, core.Secret, "", ("v1",), "secrets"),
        Resource(Kind.CONFIG_MAP, core.ConfigMap, "", ("v1",), "configmaps"),
        Resource(Kind.NAMESPACE, core.Namespace, "", ("v1",), "namespaces", is_namespaced=False),
        Resource(
            Kind.CUSTOM_RESOURCE_DEFINITION,
            core.CustomResourceDefinition,
            "apiextensions.k8s.io",
            ("v1",),
            "customresourcedefinitions",
            is_namespaced=False,
        ),
        Resource(
            Kind.GATEWAY_CLASS_CONFIG,
            own.GatewayClassConfig,
            own.TUNNELGW,
            ("v1alpha1",),
            "gatewayclassconfigs",
            is_namespaced=False,
            is_optional=True,
        ),
        Resource(
            Kind.GATEWAY_CONFIG, own.GatewayConfig, own.TUNNELGW, ("v1alpha1",), "gatewayconfigs", is_optional=True
        ),
        Resource(Kind.BACKEND, own.Backend, own.TUNNELGW, ("v1alpha1",), "backends", is_optional=True),
    )
}
