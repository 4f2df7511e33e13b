"""ReferenceGrant and BackendTLSPolicy (gateway.networking.k8s.io)."""

import msgspec

from tunnelgw.model.meta import NO_STATUS, Object
from tunnelgw.model.part import Part
from tunnelgw.model.refs import LocalRef


class GrantFrom(Part, frozen=True):
    group: str
    kind: str
    namespace: str


class GrantTo(Part, frozen=True):
    group: str
    kind: str
    name: str = ""
    """Empty: every object of the kind."""


class ReferenceGrantSpec(Part, frozen=True):
    from_: tuple[GrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[GrantTo, ...] = ()


class ReferenceGrant(Object, frozen=True):
    """Lives in the namespace of the objects that may be referred to."""

    spec: ReferenceGrantSpec


class PolicyTargetRef(LocalRef, frozen=True):
    section_name: str = ""
    """Name of a Service port; empty: all ports."""


class SubjectAltName(Part, frozen=True):
    type: str
    """Hostname or URI."""
    hostname: str = ""
    uri: str = ""


class BackendTlsValidation(Part, frozen=True):
    hostname: str
    ca_certificate_refs: tuple[LocalRef, ...] = ()
    well_known_ca_certificates: str = msgspec.field(default="", name="wellKnownCACertificates")
    subject_alt_names: tuple[SubjectAltName, ...] = ()


class BackendTlsPolicySpec(Part, frozen=True):
    target_refs: tuple[PolicyTargetRef, ...]
    validation: BackendTlsValidation
    options: dict[str, str] = {}


class BackendTlsPolicy(Object, frozen=True):
    spec: BackendTlsPolicySpec
    status: msgspec.Raw = NO_STATUS
    previous_spec: BackendTlsPolicySpec | None = msgspec.field(default=None, name="(previous spec)")
    """As for a Gateway."""
