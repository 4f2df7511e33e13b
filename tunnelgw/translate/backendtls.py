"""Which BackendTLSPolicy governs a port of a Service, and what it requires of TLS connections to it.

A policy for the port by name takes precedence over one for the whole Service; among equals the oldest wins, then the
first `namespace/name`. A broken policy wins all the same. Then nothing is sent to the port at all, since its author
asked neither for plain text nor for a connection without verification.
"""

from collections.abc import Mapping

import msgspec

from proxy.document import UNSET, Backend, BackendTLS, SubjectAltName, Unset
from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.policies import BackendTlsPolicy, BackendTlsValidation
from tunnelgw.model.policies import SubjectAltName as PolicyName
from tunnelgw.model.refs import CORE, GATEWAY_API, ObjectRef
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.certificates import BadReference, Cause, ca_bundle
from tunnelgw.translate.endpoints import ServicePortName
from tunnelgw.translate.grants import ReferenceFrom
from tunnelgw.translate.parts import problems_of_backend
from tunnelgw.translate.queries import View
from tunnelgw.translate.remarks import unresolved
from tunnelgw.translate.verdicts import BEFORE, false, true

_SYSTEM = "System"
_RESOLVED = true(ConditionType.RESOLVED_REFS, Reason.RESOLVED_REFS)


class PolicyTls(msgspec.Struct, frozen=True, gc=False):
    """The result for a policy, the same wherever the policy is in force."""

    tls: BackendTLS | None
    """None: the policy is broken, and nothing may be sent to the ports that it governs."""
    findings: tuple[Finding, ...]
    """ResolvedRefs always; Accepted if it is False."""


def governing_policy(view: View, port: ServicePortName) -> Key | None:
    """A query: the policy for connections to this port; None: there is none."""
    return policy_of_target(view, port) or policy_of_target(view, ServicePortName(port.service, ""))


def policy_of_target(view: View, target: ServicePortName) -> Key | None:
    """The winning policy among those with exactly this target. Empty port: the Service as a whole."""
    return view.ask(policies_of_service, target.service).get(target)


def policies_of_service(view: View, service: Key) -> Mapping[ServicePortName, Key]:
    """A query: the winning policy of each target."""
    found: dict[ServicePortName, Key] = {}
    for policy in view.bucket(Index.POLICIES_BY_SERVICE, service):
        if isinstance(policy, BackendTlsPolicy):
            for target in targets_of(policy):
                found.setdefault(target, policy.key)
    return found


def targets_of(policy: BackendTlsPolicy) -> tuple[ServicePortName, ...]:
    """The policy's targets, without those of other kinds than Service."""
    return tuple(
        ServicePortName(Key(policy.metadata.namespace, ref.name), ref.section_name)
        for ref in policy.spec.target_refs
        if (ref.group, ref.kind) == (CORE, Kind.SERVICE)
    )


def policy_tls(view: View, key: Key) -> PolicyTls:
    """A query: what the policy says about TLS, with the certificates that it refers to."""
    policy = view.get(Kind.BACKEND_TLS_POLICY, key)
    if not isinstance(policy, BackendTlsPolicy):
        return PolicyTls(None, (_RESOLVED,))
    validation = policy.spec.validation
    ca, bad = _authorities(view, key, validation)
    references = _RESOLVED
    if bad:  # a condition has one reason, that of the first; the message lists all
        message = "; ".join(f"caCertificateRefs[{place}]: {reference.message}" for place, reference in bad.items())
        if ca is None and policy.previous_spec and any(each.cause is Cause.NOT_READ for each in bad.values()):
            ca, _ = _authorities(view, key, policy.previous_spec.validation)
            message += BEFORE if ca is not None else ""
        is_wrong_kind = next(iter(bad.values())).cause is Cause.WRONG_KIND
        reason = Reason.INVALID_KIND if is_wrong_kind else Reason.INVALID_CA_CERTIFICATE_REF
        references = unresolved(reason, message)
    if ca is None:
        message = references.message or "want caCertificateRefs, or wellKnownCACertificates: System"
        return PolicyTls(None, (false(ConditionType.ACCEPTED, Reason.NO_VALID_CA_CERTIFICATE, message), references))
    names = tuple(map(_subject_alt_name, validation.subject_alt_names))
    tls = BackendTLS(validation.hostname, ca, names)
    problems = problems_of_backend(Backend("policy", protocol="https", tls=tls))
    well_known = validation.well_known_ca_certificates
    if well_known not in ("", _SYSTEM):
        problems.append(f"wellKnownCACertificates: {well_known!r} is not known here, want {_SYSTEM}")
    if problems:
        return PolicyTls(None, (false(ConditionType.ACCEPTED, Reason.INVALID, "; ".join(problems)), references))
    return PolicyTls(tls, (references,))


def _authorities(
    view: View, policy: Key, validation: BackendTlsValidation
) -> tuple[str | Unset | None, Mapping[int, BadReference]]:
    """The good references as PEM; UNSET: use the system's authorities; None: there is no authority to trust. Also the
    bad references by index.
    """
    if not validation.ca_certificate_refs:
        return (UNSET if validation.well_known_ca_certificates else None), {}
    referrer = ReferenceFrom(GATEWAY_API, Kind.BACKEND_TLS_POLICY, policy.namespace)
    bundles: list[str] = []
    bad: dict[int, BadReference] = {}
    for place, ref in enumerate(validation.ca_certificate_refs):
        found = ca_bundle(view, referrer, ObjectRef(ref.name, ref.group, ref.kind))
        if isinstance(found, BadReference):
            bad[place] = found
        else:
            bundles.append(found.pem)
    return ("".join(bundles) if bundles else None), bad


def _subject_alt_name(name: PolicyName) -> SubjectAltName:
    """For an unknown type neither field is set, which the document's check refuses."""
    return SubjectAltName(
        name.hostname if name.type == "Hostname" else UNSET,
        name.uri if name.type == "URI" else UNSET,
    )
