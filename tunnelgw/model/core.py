"""Kubernetes' own kinds, with the fields that matter to routes and listeners."""

import msgspec

from tunnelgw.model.meta import Object
from tunnelgw.model.part import Part


class ServicePort(Part, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str = 0
    """A number or the name of a container port; 0: the same as `port`."""


class ServiceSpec(Part, frozen=True):
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] | None = None
    cluster_ips: tuple[str, ...] | None = msgspec.field(default=None, name="clusterIPs")
    """One for each address family; the text `None` for a headless Service."""


class LoadBalancerIngress(Part, frozen=True):
    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(Part, frozen=True):
    ingress: tuple[LoadBalancerIngress, ...] | None = None


class ServiceStatus(Part, frozen=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointConditions(Part, frozen=True):
    """If absent, `ready` means true, `serving` means the same as `ready`, and `terminating` means false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class EndpointTarget(Part, frozen=True):
    uid: str = ""


class Endpoint(Part, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: EndpointTarget = EndpointTarget()
    """The Pod; the same in the slices of both address families."""


class EndpointPort(Part, frozen=True):
    """`name` equals the name of the Service port. Without `port`, it cannot be used."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Object, frozen=True):
    """Belongs to the Service named by the label kubernetes.io/service-name."""

    address_type: str
    """IPv4, IPv6 or FQDN."""
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class Secret(Object, frozen=True):
    """`data` is base64, as in the API. Must never be logged; `repr` omits the data."""

    type: str = "Opaque"
    data: dict[str, str] | None = None
    is_outside: bool = False
    """Stands for a Secret that may exist in a namespace whose Secrets the controller does not read."""

    def __repr__(self) -> str:
        return f"Secret({self.key}, type={self.type!r})"


class ConfigMap(Object, frozen=True):
    data: dict[str, str] | None = None


class Namespace(Object, frozen=True):
    pass


class CustomResourceDefinition(Object, frozen=True):
    """Only its annotations are read, which show the installed version of Gateway API."""
