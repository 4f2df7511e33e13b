"""Resolves a backendRef: to a backend of the document, or to the reason why it leads nowhere.

Checked in the order kind, permission, existence, protocol, so that nobody learns of objects that they may not refer to.
"""

from tunnelgw.model.conditions import Finding, Reason
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import TUNNELGW
from tunnelgw.model.refs import CORE, GATEWAY_API
from tunnelgw.model.routes import BackendObjectRef
from tunnelgw.translate.backends import BackendId, ServicePortId, service_port
from tunnelgw.translate.backendtls import governing_policy
from tunnelgw.translate.certificates import client_certificate
from tunnelgw.translate.endpoints import ServicePortName
from tunnelgw.translate.external import external_target
from tunnelgw.translate.grants import ReferenceFrom, ReferenceTo, is_permitted, not_permitted
from tunnelgw.translate.parts import excerpt
from tunnelgw.translate.protocols import KNOWN, is_web_socket, protocol_of
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import unresolved

_KINDS = {(CORE, "Service"): Kind.SERVICE, (TUNNELGW, "Backend"): Kind.BACKEND}


class Referrer:
    """A route on a Gateway, which refers to backends."""

    def __init__(self, view: View, kind: Kind, namespace: str, gateway: Key) -> None:
        self._view = view
        self._kind = kind
        self._namespace = namespace
        self._gateway = gateway

    def follow(self, ref: BackendObjectRef) -> BackendId | Finding:
        kind = _KINDS.get((ref.group, ref.kind))
        if kind is None:
            wanted = f"Service, or Backend of {TUNNELGW}"
            return unresolved(Reason.INVALID_KIND, f"{_spell(ref)} is not a kind of backend, want {wanted}")
        key = Key(ref.namespace or self._namespace, ref.name)
        source = ReferenceFrom(GATEWAY_API, self._kind, self._namespace)
        target = ReferenceTo(ref.group, ref.kind, key.namespace, ref.name)
        if key.namespace != self._namespace and not self._view.ask(_is_permitted, (source, target)):
            return unresolved(Reason.REF_NOT_PERMITTED, not_permitted(source, target))
        if kind is Kind.SERVICE:
            return self._service(ServicePortId(key, ref.port))
        return self._external(key, ref)

    def _service(self, id_: ServicePortId) -> BackendId | Finding:
        port = self._view.ask(service_port, id_)
        if isinstance(port, Finding):
            return port
        app_protocol = port.app_protocol
        protocol = protocol_of(app_protocol)
        at = f"port {id_.number} of Service {id_.service}"
        if protocol is None:
            message = f"{at} has appProtocol {excerpt(app_protocol)}, want none or one of {KNOWN}"
            return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
        if self._is_grpc and is_web_socket(app_protocol):
            message = f"{at} has appProtocol {app_protocol}, which does not carry gRPC"
            return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
        policy = self._view.ask(governing_policy, ServicePortName(id_.service, port.name))
        if protocol == "https" and not policy:
            message = f"{at} has appProtocol {app_protocol}, which needs a BackendTLSPolicy to say whom to trust"
            return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
        return self._identified(Kind.SERVICE, id_.service, id_.number, "https" if policy else protocol)

    def _external(self, key: Key, ref: BackendObjectRef) -> BackendId | Finding:
        target = self._view.ask(external_target, key)
        if isinstance(target, Finding):
            return target
        port = int(target.addresses[0].rpartition(":")[2])
        if ref.port not in (0, port):
            return unresolved(Reason.BACKEND_NOT_FOUND, f"Backend {key} has port {port}, want {ref.port}")
        return self._identified(Kind.BACKEND, key, 0, target.protocol)

    def _identified(self, kind: Kind, key: Key, port: int, protocol: str) -> BackendId:
        is_h2c = self._is_grpc and protocol == "http"
        shows_certificate = protocol == "https" and self._view.ask(client_certificate, self._gateway).certificate
        return BackendId(kind, key, port, is_h2c, self._gateway if shows_certificate else None)

    @property
    def _is_grpc(self) -> bool:
        return self._kind is Kind.GRPC_ROUTE


def _is_permitted(view: View, reference: tuple[ReferenceFrom, ReferenceTo]) -> bool:
    """A query, so that a changed grant affects only routes for which it makes a difference."""
    return is_permitted(view, *reference)


def _spell(ref: BackendObjectRef) -> str:
    return f"{ref.group}/{ref.kind}" if ref.group else ref.kind
