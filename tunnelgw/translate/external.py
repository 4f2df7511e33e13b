"""Backend objects of tunnelgw.dev: targets outside the cluster, or on a bare host."""

from proxy import document
from tunnelgw.model.conditions import Finding, Reason
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import Backend, BackendSpec
from tunnelgw.translate.certificates import authorities
from tunnelgw.translate.endpoints import address_of
from tunnelgw.translate.parts import excerpt, problems_of_backend
from tunnelgw.translate.protocols import Protocol
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import unresolved

_PROTOCOLS: dict[str, Protocol] = {"http": "http", "h2c": "h2c", "https": "https"}


def external_target(view: View, key: Key) -> document.Backend | Finding:
    """A query: the target, named after the object, or what is wrong with it."""
    found = view.get(Kind.BACKEND, key)
    if not isinstance(found, Backend):
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Backend {key} does not exist")
    spec = found.spec
    protocol = _PROTOCOLS.get(spec.protocol)
    if protocol is None:
        message = f"Backend {key}: protocol is {excerpt(spec.protocol)}, want http, h2c or https"
        return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
    ca = authorities(spec.tls.ca_certificate) if spec.tls and spec.tls.ca_certificate else document.UNSET
    tls = _tls(spec, ca or document.UNSET)
    target = document.Backend(str(key), (address_of(spec.host, spec.port),), protocol, tls)
    problems = problems_of_backend(target)
    if ca is None:
        problems.append("tls.caCertificate: holds no certificates in PEM")
    if problems:
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Backend {key}: {'; '.join(problems)}")
    return target


def _tls(spec: BackendSpec, ca: str | document.Unset) -> document.BackendTLS | document.Unset:
    """With protocol https and no `tls`, the target's certificate must be for its host, from one of the system's
    authorities."""
    if spec.tls:
        return document.BackendTLS(spec.tls.hostname, ca)
    return document.BackendTLS(spec.host.lower().removesuffix(".")) if spec.protocol == "https" else document.UNSET
