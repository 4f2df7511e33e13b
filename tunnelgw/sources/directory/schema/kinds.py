"""Every kind that a folder may hold: its API versions, and the shape of its spec."""

import difflib
from typing import Final

from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.sources.directory.schema import gateways, own, policies, routes
from tunnelgw.sources.directory.schema.shapes import Shape

SPECS: Final[dict[Kind, Shape]] = {
    Kind.GATEWAY_CLASS: gateways.GATEWAY_CLASS,
    Kind.GATEWAY: gateways.GATEWAY,
    Kind.LISTENER_SET: gateways.LISTENER_SET,
    Kind.HTTP_ROUTE: routes.HTTP_ROUTE,
    Kind.GRPC_ROUTE: routes.GRPC_ROUTE,
    Kind.REFERENCE_GRANT: policies.REFERENCE_GRANT,
    Kind.BACKEND_TLS_POLICY: policies.BACKEND_TLS_POLICY,
    Kind.GATEWAY_CLASS_CONFIG: own.GATEWAY_CLASS_CONFIG,
    Kind.GATEWAY_CONFIG: own.GATEWAY_CONFIG,
    Kind.BACKEND: own.BACKEND,
}
"""Kubernetes' own kinds are not here: of those, only the fields that we read are checked."""

# Kinds that also have v1beta1, to which the API server converts by changing only the version's name.
_OLDER: Final = {Kind.GATEWAY_CLASS, Kind.GATEWAY, Kind.HTTP_ROUTE, Kind.REFERENCE_GRANT}


def _api_versions() -> dict[tuple[str, str], Kind]:
    found: dict[tuple[str, str], Kind] = {}
    for kind, resource in RESOURCES.items():
        for version in resource.versions:
            found[f"{resource.group}/{version}".lstrip("/"), str(kind)] = kind
    for kind in _OLDER:
        found[f"{GATEWAY_API}/v1beta1", str(kind)] = kind
    del found["apiextensions.k8s.io/v1", str(Kind.CUSTOM_RESOURCE_DEFINITION)]
    return found


BY_API_VERSION: Final = _api_versions()
"""Kinds by `apiVersion` and `kind`."""

_NEIGHBOURS: Final = frozenset({"tlsroute", "tcproute", "udproute"})
"""Kinds of Gateway API that we do not read, but whose names are similar to ours."""
_NEAR_GROUP, _NEAR_KIND = 0.9, 0.8
_IN_ANY_CASE: Final = {(version, kind.lower()): kind for version, kind in BY_API_VERSION}
_BY_LOWER_CASE: Final = {str(kind).lower(): kind for kind in SPECS}
_GROUPS: Final = sorted({RESOURCES[kind].group for kind in SPECS})


def misspelling(api_version: str, kind: str) -> str:
    """What is wrong with a pair that is not in BY_API_VERSION; empty: it is somebody else's kind."""
    group, slash, _ = api_version.rpartition("/")
    if kind in RESOURCES:
        if kind == Kind.CUSTOM_RESOURCE_DEFINITION:
            return ""
        resource = RESOURCES[Kind(kind)]
        wanted = f"{resource.group}/{resource.versions[0]}".lstrip("/")
        # Others often have kinds with the same names: Gateway, Service, Backend.
        is_near = difflib.get_close_matches(group, [resource.group], cutoff=_NEAR_GROUP)
        # The beginning of the group is easily left out: Ingress, for example, belongs to networking.k8s.io.
        is_part = resource.group.endswith(f".{group}")
        return f"there is no kind {kind} in {api_version}, want {wanted}" if is_near or is_part or not slash else ""
    # Many of Kubernetes' own kinds have similar names, so for them only the case is judged.
    if meant := _IN_ANY_CASE.get((api_version, kind.lower())):
        return f"there is no kind {kind} in {api_version}, did you mean {meant}?"
    one = kind.removesuffix("List")
    if (api_version, one) in BY_API_VERSION:
        return (
            f"{kind} is what the API server answers, want kind List of v1 with apiVersion and kind {one} in each item"
        )
    if kind.lower() in _NEIGHBOURS or not difflib.get_close_matches(group, _GROUPS, n=1, cutoff=_NEAR_GROUP):
        return ""
    near = difflib.get_close_matches(kind.lower(), _BY_LOWER_CASE, n=1, cutoff=_NEAR_KIND)
    return f"there is no kind {kind} in {api_version}, did you mean {_BY_LOWER_CASE[near[0]]}?" if near else ""
