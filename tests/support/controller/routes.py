"""Paths: which call a method and path mean, for one flavour and version of the controller."""

from enum import Enum, StrEnum

import msgspec

from tests.support.controller.faults import Operation

V2_SINCE = (8, 2)
API_KEYS_SINCE = (9, 0)
INTEGRATION_SINCE = (10, 1)


class Flavour(StrEnum):
    UNIFI_OS = "unifi-os"
    CLASSIC = "classic"
    """The self-hosted application: no prefix, no integration API."""


class Section(StrEnum):
    """Which part of the appliance a path leads to; also the key by which calls are counted."""

    V2 = "v2"
    INTEGRATION = "integration"
    SESSION = "session"
    OTHER = "other"


class Misfit(Enum):
    NOT_FOUND = "nothing here"
    METHOD_NOT_ALLOWED = "not with this method"


class Route(msgspec.Struct, frozen=True):
    section: Section
    operation: Operation
    template: str
    """The path without identifiers, for the log."""
    site: str = ""
    row_id: str = ""
    misfit: Misfit | None = None


_ONE_METHODS = {"GET": Operation.READ, "PUT": Operation.UPDATE, "DELETE": Operation.DELETE}
_ALL_METHODS = {"GET": Operation.LIST, "POST": Operation.CREATE}
_ELSEWHERE = Route(Section.OTHER, Operation.OTHER, "elsewhere", misfit=Misfit.NOT_FOUND)


class Router:
    def __init__(self, flavour: Flavour, version: str) -> None:
        self._flavour = flavour
        numbers = parsed_version(version)
        self._has_v2 = numbers >= V2_SINCE
        self._has_integration = numbers >= INTEGRATION_SINCE and flavour is Flavour.UNIFI_OS
        self._login_path = "/api/auth/login" if flavour is Flavour.UNIFI_OS else "/api/login"

    def route(self, method: str, path: str) -> Route:
        if path == self._login_path:
            misfit = None if method == "POST" else Misfit.METHOD_NOT_ALLOWED
            return Route(Section.SESSION, Operation.LOGIN, path, misfit=misfit)
        parts = path.strip("/").split("/")
        if self._flavour is Flavour.UNIFI_OS:
            if parts[:2] != ["proxy", "network"]:
                return _ELSEWHERE
            parts = parts[2:]
        if self._has_v2 and len(parts) in (5, 6) and parts[:3] == ["v2", "api", "site"] and parts[4] == "static-dns":
            return _v2_route(method, parts[3], parts[5:])
        if self._has_integration and parts[:2] == ["integration", "v1"]:
            return _integration_route(method, parts[2:])
        return _ELSEWHERE


def _v2_route(method: str, site: str, rest: list[str]) -> Route:
    template = "v2/static-dns/{id}" if rest else "v2/static-dns"
    operation = (_ONE_METHODS if rest else _ALL_METHODS).get(method)
    if operation is None or operation is Operation.READ:
        return Route(Section.V2, Operation.OTHER, template, site, misfit=Misfit.METHOD_NOT_ALLOWED)
    return Route(Section.V2, operation, template, site, rest[0] if rest else "")


def _integration_route(method: str, parts: list[str]) -> Route:
    operation: Operation | None
    site = row_id = ""
    match parts:
        case ["info"]:
            template, operation = "v1/info", Operation.INFO if method == "GET" else None
        case ["sites"]:
            template, operation = "v1/sites", Operation.SITES if method == "GET" else None
        case ["sites", site, "dns", "policies"]:
            template, operation = "v1/policies", _ALL_METHODS.get(method)
        case ["sites", site, "dns", "policies", row_id]:
            template, operation = "v1/policies/{id}", _ONE_METHODS.get(method)
        case _:
            return _ELSEWHERE
    if operation is None:
        return Route(Section.INTEGRATION, Operation.OTHER, template, site, misfit=Misfit.METHOD_NOT_ALLOWED)
    return Route(Section.INTEGRATION, operation, template, site, row_id)


def parsed_version(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
