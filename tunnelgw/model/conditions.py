"""Conditions of Gateway API: types, reasons, and the entry in a status. The names are the API's own."""

from enum import StrEnum

from tunnelgw.model.part import Part


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    PROGRAMMED = "Programmed"
    RESOLVED_REFS = "ResolvedRefs"
    CONFLICTED = "Conflicted"
    OVERLAPPING_TLS_CONFIG = "OverlappingTLSConfig"
    PARTIALLY_INVALID = "PartiallyInvalid"
    SUPPORTED_VERSION = "SupportedVersion"
    INSECURE_FRONTEND_VALIDATION_MODE = "InsecureFrontendValidationMode"
    PARTLY_UNREACHABLE = "tunnelgw.dev/PartlyUnreachable"
    """On listeners, only ever True: one of the Gateway's doors does not lead to this listener."""
    SETTINGS_LEFT_OUT = "tunnelgw.dev/SettingsLeftOut"
    """On classes, and on Gateways with their own proxy, only ever True: which settings in `proxy` are not used."""
    DELIVERED = "tunnelgw.dev/Delivered"
    """On Gateways and ListenerSets: whether every proxy and the provider hold what is wanted; it also shows that we
    wrote the status. On routes, only ever False: somebody else has one of the route's hostnames at the provider."""


BAD_WHEN_TRUE = frozenset(
    {
        ConditionType.CONFLICTED,
        ConditionType.OVERLAPPING_TLS_CONFIG,
        ConditionType.PARTIALLY_INVALID,
        ConditionType.INSECURE_FRONTEND_VALIDATION_MODE,
        ConditionType.PARTLY_UNREACHABLE,
        ConditionType.SETTINGS_LEFT_OUT,
    }
)
"""All other types are bad if they are false."""
WORTH_KNOWING = frozenset(
    {
        ConditionType.OVERLAPPING_TLS_CONFIG,
        ConditionType.SUPPORTED_VERSION,
        ConditionType.INSECURE_FRONTEND_VALIDATION_MODE,
        ConditionType.PARTLY_UNREACHABLE,
        ConditionType.SETTINGS_LEFT_OUT,
    }
)
"""Bad conditions that may be intended: everything that is wanted is served."""


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Each reason is listed once, even if several kinds use it."""

    ACCEPTED = "Accepted"
    PENDING = "Pending"
    INVALID = "Invalid"
    PROGRAMMED = "Programmed"
    RESOLVED_REFS = "ResolvedRefs"
    # GatewayClass
    INVALID_PARAMETERS = "InvalidParameters"
    SUPPORTED_VERSION = "SupportedVersion"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    # Gateway
    LISTENERS_NOT_VALID = "ListenersNotValid"
    LISTENERS_NOT_RESOLVED = "ListenersNotResolved"
    UNSUPPORTED_ADDRESS = "UnsupportedAddress"
    ADDRESS_NOT_ASSIGNED = "AddressNotAssigned"
    ADDRESS_NOT_USABLE = "AddressNotUsable"
    INVALID_CLIENT_CERTIFICATE_REF = "InvalidClientCertificateRef"
    CONFIGURATION_CHANGED = "ConfigurationChanged"
    # Listeners
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"
    PORT_UNAVAILABLE = "PortUnavailable"
    HOSTNAME_CONFLICT = "HostnameConflict"
    PROTOCOL_CONFLICT = "ProtocolConflict"
    NO_CONFLICTS = "NoConflicts"
    INVALID_CERTIFICATE_REF = "InvalidCertificateRef"
    INVALID_ROUTE_KINDS = "InvalidRouteKinds"
    NO_VALID_CA_CERTIFICATE = "NoValidCACertificate"
    INVALID_CA_CERTIFICATE_REF = "InvalidCACertificateRef"
    INVALID_CA_CERTIFICATE_KIND = "InvalidCACertificateKind"
    OVERLAPPING_HOSTNAMES = "OverlappingHostnames"
    OVERLAPPING_CERTIFICATES = "OverlappingCertificates"
    # ListenerSet
    NOT_ALLOWED = "NotAllowed"
    PARENT_NOT_ACCEPTED = "ParentNotAccepted"
    PARENT_NOT_PROGRAMMED = "ParentNotProgrammed"
    # Routes
    NOT_ALLOWED_BY_LISTENERS = "NotAllowedByListeners"
    NO_MATCHING_LISTENER_HOSTNAME = "NoMatchingListenerHostname"
    NO_MATCHING_PARENT = "NoMatchingParent"
    UNSUPPORTED_VALUE = "UnsupportedValue"
    INCOMPATIBLE_FILTERS = "IncompatibleFilters"
    REF_NOT_PERMITTED = "RefNotPermitted"
    INVALID_KIND = "InvalidKind"
    BACKEND_NOT_FOUND = "BackendNotFound"
    # BackendTLSPolicy
    CONFLICTED = "Conflicted"
    TARGET_NOT_FOUND = "TargetNotFound"
    # tunnelgw.dev/Delivered
    DELIVERED = "Delivered"
    DELIVERY_FAILED = "DeliveryFailed"


class Finding(Part, frozen=True):
    """A condition as determined by translation, before time and generation are known."""

    type: ConditionType
    status: Status
    reason: Reason
    message: str = ""


class Condition(Part, frozen=True):
    """A condition as stored in a status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


NOT_EVERYWHERE = "not in force everywhere: "
"""Begins the message of a policy that is accepted, but not in force for all of its targets."""


def is_partial(condition: Finding | Condition) -> bool:
    """Whether a condition is only partly true. Its message tells, since Gateway API has no reason for that."""
    return condition.status == Status.TRUE and condition.message.startswith(NOT_EVERYWHERE)
