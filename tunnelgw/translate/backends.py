"""Backends of the document: a Service's port with its endpoints, or a Backend object's target.

Endpoints are read only here, so when they come and go, one backend of the document changes, and no route.
"""

from typing import NamedTuple

import msgspec

from proxy import document
from tunnelgw.model.conditions import Finding, Reason
from tunnelgw.model.core import Service, ServicePort
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import TUNNELGW
from tunnelgw.translate.backendtls import governing_policy, policy_tls
from tunnelgw.translate.certificates import client_certificate
from tunnelgw.translate.endpoints import ServicePortName, service_addresses
from tunnelgw.translate.external import external_target
from tunnelgw.translate.names import short
from tunnelgw.translate.protocols import protocol_of
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import unresolved


class BackendId(NamedTuple):
    """A backend of the document. Routes that need different settings for one Service get different backends."""

    kind: Kind
    """Service or Backend."""
    key: Key
    port: int = 0
    """The Service's port."""
    is_h2c: bool = False
    """Use HTTP/2 in clear text: a gRPC route refers to it, and its port names no protocol but HTTP."""
    gateway: Key | None = None
    """The Gateway whose client certificate is presented to it."""

    @property
    def name(self) -> str:
        """Its name in the document."""
        name = f"{self.key}:{self.port}" if self.kind is Kind.SERVICE else f"backend.{TUNNELGW}/{self.key}"
        return short(f"{name}{'+h2c' if self.is_h2c else ''}{f'@{self.gateway}' if self.gateway else ''}")


class ServicePortId(NamedTuple):
    """A port of a Service by its number, as in references."""

    service: Key
    number: int


def backend(view: View, id_: BackendId) -> document.Backend:
    """A query. A backend to which nothing may be sent has no addresses: then the proxy answers 503."""
    made = _of_service(view, id_) if id_.kind is Kind.SERVICE else view.ask(external_target, id_.key)
    if not isinstance(made, document.Backend):
        return document.Backend(id_.name)
    made = msgspec.structs.replace(made, name=id_.name)
    if made.tls:
        certificate = view.ask(client_certificate, id_.gateway).certificate if id_.gateway else None
        if certificate is not None:
            tls = msgspec.structs.replace(made.tls, client_certificate=certificate)
            made = msgspec.structs.replace(made, tls=tls)
    elif id_.is_h2c:
        made = msgspec.structs.replace(made, protocol="h2c")
    return made


def _of_service(view: View, id_: BackendId) -> document.Backend | None:
    """None: nothing may be sent to it."""
    port = view.ask(service_port, ServicePortId(id_.key, id_.port))
    if isinstance(port, Finding):
        return None
    place = ServicePortName(id_.key, port.name)
    protocol = protocol_of(port.app_protocol)
    tls: document.BackendTLS | document.Unset = document.UNSET
    policy = view.ask(governing_policy, place)
    if policy:
        protocol, tls = "https", view.ask(policy_tls, policy).tls or document.UNSET
    if protocol is None or (protocol == "https" and not tls):
        return None
    return document.Backend(id_.name, service_addresses(view, place), protocol, tls)


def service_port(view: View, id_: ServicePortId) -> ServicePort | Finding:
    """A query: a port that requests can be sent to, or why there is none."""
    service = view.get(Kind.SERVICE, id_.service)
    if not isinstance(service, Service):
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Service {id_.service} does not exist")
    if service.spec.type == "ExternalName":
        message = f"Service {id_.service} is of type ExternalName, which is not followed; use a Backend of {TUNNELGW}"
        return unresolved(Reason.BACKEND_NOT_FOUND, message)
    ports = [port for port in service.spec.ports or () if port.port == id_.number]
    if not ports:
        known = ", ".join(str(port.port) for port in service.spec.ports or ()) or "none"
        wanted = f"port {id_.number}" if id_.number else "a port, and the reference names none"
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Service {id_.service} has ports {known}, want {wanted}")
    over_tcp = [port for port in ports if port.protocol == "TCP"]
    if not over_tcp:
        message = f"port {id_.number} of Service {id_.service} is {ports[0].protocol}, want TCP"
        return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
    return over_tcp[0]
