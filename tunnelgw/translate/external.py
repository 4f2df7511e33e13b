"""Backend objects of tunnelgw.dev: targets outside the cluster, or on a bare host."""

from cryptography import x509

from proxy import document
from tunnelgw.model.conditions import Finding, Reason
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import Backend, BackendSpec
from tunnelgw.translate.endpoints import address_of
from tunnelgw.translate.parts import excerpt, problems_of_backend
from tunnelgw.translate.protocols import Protocol
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import unresolved

_PROTOCOLS: dict[str, Protocol] = {"http": "http", "h2c": "h2c", "https": "https"}


def external_target(view: View, key: Key) -> document.Backend | Finding:
    """A query: the target under the object's name, or what is wrong with it."""
    found = view.get(Kind.BACKEND, key)
    if not isinstance(found, Backend):
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Backend {key} does not exist")
    spec = found.spec
    protocol = _PROTOCOLS.get(spec.protocol)
    if protocol is None:
        message = f"Backend {key}: protocol is {excerpt(spec.protocol)}, want http, h2c or https"
        return unresolved(Reason.UNSUPPORTED_PROTOCOL, message)
    target = document.Backend(str(key), (address_of(spec.host, spec.port),), protocol, _tls(spec))
    problems = problems_of_backend(target) or _problems_of_authorities(spec)
    if problems:
        return unresolved(Reason.BACKEND_NOT_FOUND, f"Backend {key}: {'; '.join(problems)}")
    return target


def _tls(spec: BackendSpec) -> document.BackendTLS | document.Unset:
    """With https alone, the target must prove its own name to the system's authorities."""
    if spec.tls:
        return document.BackendTLS(spec.tls.hostname, spec.tls.ca_certificate or document.UNSET)
    return document.BackendTLS(spec.host) if spec.protocol == "https" else document.UNSET


def _problems_of_authorities(spec: BackendSpec) -> list[str]:
    """The proxy would refuse a whole document for a certificate that it cannot read."""
    if not spec.tls or not spec.tls.ca_certificate:
        return []
    try:
        x509.load_pem_x509_certificates(spec.tls.ca_certificate.encode())
    except ValueError:
        return ["tls.caCertificate: holds no certificates in PEM"]
    return []
