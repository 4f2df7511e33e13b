"""TLS of a listener: its certificates, and whether clients must show one.

References that lead nowhere are reported, and the others are used. A listener with certificateRefs of which none is
usable serves nobody, not even through the tunnel. The same holds if client certificates must be verified and no
authority is usable. Without certificateRefs a listener can still serve the tunnel, where TLS ends at the provider's
edge.
"""

from collections.abc import Iterable, Sequence

from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.gateways import FrontendValidation, Gateway, GatewaySpec, Listener, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.translate.certificates import BadReference, CaBundle, Cause, KeyPair, ca_bundle, key_pair
from tunnelgw.translate.grants import ReferenceFrom
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import BEFORE, ObjectId, false

MODES = ("AllowValidOnly", "AllowInsecureFallback")


class TlsDraft(Part, frozen=True):
    pairs: tuple[KeyPair, ...] = ()
    authorities: str = ""
    """As PEM; empty: clients are not asked for certificates."""
    mode: str = MODES[0]
    accepted: Finding | None = None
    """Accepted, if it is False."""
    unresolved: Finding | None = None
    blocked: str = ""
    """Why nothing can be served; empty: something can."""


def tls_draft(view: View, gateway: Key, spec: GatewaySpec, owner: ObjectId, listener: Listener) -> TlsDraft:
    """For an HTTPS listener. `spec`: the Gateway's."""
    mode = listener.tls.mode if listener.tls else "Terminate"
    if mode != "Terminate":
        message = f"tls.mode {mode} is not supported with protocol HTTPS, want Terminate"
        return TlsDraft(accepted=false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_VALUE, message), blocked=message)
    pairs, unresolved, blocked = _certificates(view, owner, listener)
    validation = frontend_validation(spec, listener.port)
    if validation is None:
        return TlsDraft(pairs, unresolved=unresolved, blocked=blocked)
    if validation.mode not in MODES:
        message = f"tls.frontend: mode {validation.mode} is not supported, want {' or '.join(MODES)}"
        refused = false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_VALUE, message)
        return TlsDraft(pairs, accepted=refused, unresolved=unresolved, blocked=message)
    authorities, problem = _authorities(view, gateway, validation, listener.port)
    accepted = None
    if not authorities:
        blocked = "tls.frontend: no caCertificateRef leads to a usable certificate authority"
        accepted = false(ConditionType.ACCEPTED, Reason.NO_VALID_CA_CERTIFICATE, blocked)
    return TlsDraft(pairs, authorities, validation.mode, accepted, unresolved or problem, blocked)


def frontend_validation(gateway: GatewaySpec, port: int) -> FrontendValidation | None:
    """How a port's clients are verified. The port's settings replace the defaults, even if they ask for no
    verification."""
    frontend = gateway.tls.frontend if gateway.tls else None
    if frontend is None:
        return None
    own = next((entry.tls for entry in frontend.per_port if entry.port == port), frontend.default)
    return own.validation


def is_insecure(gateway: Gateway) -> bool:
    """Whether some port admits clients without a valid certificate, although it asks for one."""
    frontend = gateway.spec.tls.frontend if gateway.spec.tls else None
    parts = (frontend.default, *(entry.tls for entry in frontend.per_port)) if frontend else ()
    return any(part.validation is not None and part.validation.mode == MODES[1] for part in parts)


def _certificates(view: View, owner: ObjectId, listener: Listener) -> tuple[tuple[KeyPair, ...], Finding | None, str]:
    refs = listener.tls.certificate_refs if listener.tls else ()
    referrer = ReferenceFrom(GATEWAY_API, owner.kind, owner.key.namespace)
    found = [key_pair(view, referrer, ref) for ref in refs]
    pairs = tuple(dict.fromkeys(pair for pair in found if isinstance(pair, KeyPair)))
    bad = [pair for pair in found if isinstance(pair, BadReference)]
    if not bad:
        return pairs, None, ""
    message = "; ".join(reference.message for reference in bad)
    if _is_unread(bad) and (kept := _pairs_before(view, owner, referrer, listener.name)):
        pairs, message = tuple(dict.fromkeys((*pairs, *kept))), message + BEFORE
    is_refused = any(reference.cause is Cause.NOT_PERMITTED for reference in bad)
    reason = Reason.REF_NOT_PERMITTED if is_refused else Reason.INVALID_CERTIFICATE_REF
    blocked = "" if pairs else "no certificateRef leads to a usable certificate"
    return pairs, false(ConditionType.RESOLVED_REFS, reason, f"tls.certificateRefs: {message}"), blocked


def _pairs_before(view: View, owner: ObjectId, referrer: ReferenceFrom, name: str) -> tuple[KeyPair, ...]:
    """The certificates that the listener had before it named a Secret that could not be read yet."""
    found = view.get(owner.kind, owner.key)
    previous = found.previous_spec if isinstance(found, Gateway | ListenerSet) else None
    listeners = [listener for listener in previous.listeners if listener.name == name] if previous else []
    refs = [ref for listener in listeners if listener.tls for ref in listener.tls.certificate_refs]
    return tuple(pair for ref in refs if isinstance(pair := key_pair(view, referrer, ref), KeyPair))


def _is_unread(bad: Iterable[BadReference]) -> bool:
    return any(reference.cause is Cause.NOT_READ for reference in bad)


_CA_REASONS = {
    Cause.NOT_PERMITTED: Reason.REF_NOT_PERMITTED,
    Cause.WRONG_KIND: Reason.INVALID_CA_CERTIFICATE_KIND,
    Cause.NOT_FOUND: Reason.INVALID_CA_CERTIFICATE_REF,
    Cause.NOT_USABLE: Reason.INVALID_CA_CERTIFICATE_REF,
    Cause.NOT_READ: Reason.INVALID_CA_CERTIFICATE_REF,
}


def _authorities(view: View, gateway: Key, validation: FrontendValidation, port: int) -> tuple[str, Finding | None]:
    """The authorities as PEM, and what is wrong. The referrer is the Gateway, even for listeners of ListenerSets."""
    pem, bad = _bundles(view, gateway, validation)
    if not bad:
        return pem, None
    reason = min((_CA_REASONS[reference.cause] for reference in bad), key=[*_CA_REASONS.values()].index)
    message = "; ".join(reference.message for reference in bad)
    if not pem and _is_unread(bad):
        found = view.get(Kind.GATEWAY, gateway)
        previous = found.previous_spec if isinstance(found, Gateway) else None
        former = frontend_validation(previous, port) if previous else None
        pem = _bundles(view, gateway, former)[0] if former else ""
        message += BEFORE if pem else ""
    return pem, false(ConditionType.RESOLVED_REFS, reason, f"tls.frontend caCertificateRefs: {message}")


def _bundles(view: View, gateway: Key, validation: FrontendValidation) -> tuple[str, Sequence[BadReference]]:
    """All good references as PEM, each bundle once; and the bad references."""
    referrer = ReferenceFrom(GATEWAY_API, Kind.GATEWAY, gateway.namespace)
    found = [ca_bundle(view, referrer, ref) for ref in validation.ca_certificate_refs]
    bundles = dict.fromkeys(bundle.pem for bundle in found if isinstance(bundle, CaBundle))
    return "".join(bundles), [reference for reference in found if isinstance(reference, BadReference)]
