"""Structs of openapi/webhook.yaml; made by tools/generate.py, do not edit."""

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field


class ProviderSpecificProperty(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    value: str | UnsetType = UNSET


class ReceivedProperty(Struct, frozen=True, kw_only=True):
    name: str | None = None
    value: str | None = None


class DomainFilter(Struct, frozen=True, kw_only=True):
    filters: Annotated[
        list[str],
        Meta(
            description="Domains that are managed; `example.com` is the apex and all names below, `.example.com` only those below."
        ),
    ]
    exclude: list[str]
    regex_filter: Annotated[str, Meta(description="RE2 syntax; empty when lists are used.")] = field(name="regexFilter")
    regex_exclude: str = field(name="regexExclude")


class Negotiation(Struct, frozen=True, kw_only=True):
    """
    At the root either the list keys or the regex keys, and only those that are not empty: external-dns refuses to
    start when it sees both kinds.

    """

    domain_filter: DomainFilter = field(name="domainFilter")
    include: list[str] | UnsetType = UNSET
    exclude: list[str] | UnsetType = UNSET
    regex_include: str | UnsetType = field(name="regexInclude", default=UNSET)
    regex_exclude: str | UnsetType = field(name="regexExclude", default=UNSET)


class Error(Struct, frozen=True, kw_only=True):
    error: Annotated[str, Meta(description="A short category.")]
    message: Annotated[str, Meta(description="What was received, what was expected, and where.")]


class Endpoint(Struct, frozen=True, kw_only=True):
    """
    One record set in a response.
    """

    dns_name: Annotated[str, Meta(description="ASCII lower case, no trailing dot.", min_length=1)] = field(
        name="dnsName"
    )
    record_type: str = field(name="recordType")
    targets: list[str]
    record_ttl: Annotated[
        int,
        Meta(
            description="Seconds; 0 means that none is configured, or that the rows of the set differ.",
            ge=0,
            le=9223372036854775807,
        ),
    ] = field(name="recordTTL")
    set_identifier: Annotated[str, Meta(description="Absent when empty.")] | UnsetType = field(
        name="setIdentifier", default=UNSET
    )
    labels: (
        Annotated[
            dict[str, str],
            Meta(description="Ownership labels of external-dns. Absent when empty."),
        ]
        | UnsetType
    ) = UNSET
    provider_specific: Annotated[list[ProviderSpecificProperty], Meta(description="Absent when empty.")] | UnsetType = (
        field(name="providerSpecific", default=UNSET)
    )


class WantedEndpoint(Struct, frozen=True, kw_only=True):
    """
    One record set to adjust. If it has no name, as is possible in a DNSEndpoint object, it is left out of the
    response.

    """

    dns_name: (
        Annotated[
            str,
            Meta(description="Any letter case, punycode or Unicode, a trailing dot is allowed."),
        ]
        | UnsetType
    ) = field(name="dnsName", default=UNSET)
    record_type: str | None = field(name="recordType", default=None)
    targets: list[str] | None = None
    record_ttl: (
        Annotated[
            int,
            Meta(
                description="Seconds; 0 or less means that none is configured.",
                le=9223372036854775807,
            ),
        ]
        | None
    ) = field(name="recordTTL", default=None)
    set_identifier: str | None = field(name="setIdentifier", default=None)
    labels: dict[str, str] | None = None
    provider_specific: list[ReceivedProperty] | None = field(name="providerSpecific", default=None)


class ReceivedEndpoint(WantedEndpoint, frozen=True, kw_only=True):
    """
    One record set in a request. Only `dnsName` is required.
    """

    dns_name: Annotated[
        str, Meta(description="Any letter case, punycode or Unicode, a trailing dot is allowed.", min_length=1)
    ] = field(name="dnsName")


BareEndpoints: TypeAlias = Annotated[list[Endpoint], Meta(description="What external-dns decodes.")]
"""
What external-dns decodes.
"""


class WrappedEndpoints(Struct, frozen=True, kw_only=True):
    endpoints: list[Endpoint]


Endpoints: TypeAlias = BareEndpoints | WrappedEndpoints


ReceivedBareEndpoints: TypeAlias = (
    Annotated[list[WantedEndpoint], Meta(description="What external-dns sends; `null` is an empty array.")] | None
)
"""
What external-dns sends; `null` is an empty array.
"""


class ReceivedWrappedEndpoints(Struct, frozen=True, kw_only=True):
    endpoints: list[WantedEndpoint] | None


ReceivedEndpoints: TypeAlias = ReceivedBareEndpoints | ReceivedWrappedEndpoints


class Changes(Struct, frozen=True, kw_only=True):
    """
    What external-dns wants applied. Each list may be absent, null or empty. external-dns up to 0.16 spells the
    keys `Create`, `UpdateOld`, `UpdateNew` and `Delete`; if two keys differ only in case, the later one wins.

    """

    create: list[ReceivedEndpoint] | None = None
    update_old: (
        Annotated[
            list[ReceivedEndpoint],
            Meta(description="What `updateNew` replaces, pair by pair."),
        ]
        | None
    ) = field(name="updateOld", default=None)
    update_new: list[ReceivedEndpoint] | None = field(name="updateNew", default=None)
    delete: list[ReceivedEndpoint] | None = None
