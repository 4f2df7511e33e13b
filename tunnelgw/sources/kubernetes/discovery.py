"""Finds the version of a kind that the server serves; a bell rings when that may have changed."""

import math
import threading
import time
from http import HTTPStatus

import msgspec

from tunnelgw.model.kinds import Resource
from tunnelgw.sources.kubernetes.failures import UNREADABLE, ApiServerError, Refused, Unreachable
from tunnelgw.sources.kubernetes.server import ApiServer


class _Served(msgspec.Struct):
    class Named(msgspec.Struct):
        name: str

    resources: list[Named] = []


class _Group(msgspec.Struct):
    class Version(msgspec.Struct):
        version: str

    versions: list[Version] = []


# Made before there are threads: while one thread has msgspec analyse a type, others that use that type would crash.
_decode_served = msgspec.json.Decoder(_Served).decode
_decode_group = msgspec.json.Decoder(_Group).decode


def find(server: ApiServer, resource: Resource) -> str | None:
    """The path of the first of our versions that is served; None: the kind is not installed.

    Raises ApiServerError while that cannot be determined.
    """
    if not resource.is_optional:
        return f"{resource.path}/{resource.plural}"
    path = _served_path(server, resource)
    if path is None:
        _require_server(server)
        path = _served_path(server, resource)  # the server may have come back only now
    return path


def _served_path(server: ApiServer, resource: Resource) -> str | None:
    for version in resource.versions:
        path = f"/apis/{resource.group}/{version}"
        try:
            is_served = _is_named(server, resource, version)
        except Refused as refusal:
            if refusal.status_code != HTTPStatus.NOT_FOUND:
                raise
            is_served = _is_served(server, f"{path}/{resource.plural}")
        if is_served:
            return f"{path}/{resource.plural}"
    return None


def _require_server(server: ApiServer) -> None:
    """Raises ApiServerError if the server is away: something in front of it may answer 404 for every path, which
    must not make a kind count as not installed."""
    try:
        server.request("GET", "/api/v1")  # every server has this path
    except Refused as refusal:
        if refusal.status_code != HTTPStatus.FORBIDDEN:
            raise


def other_versions(server: ApiServer, resource: Resource) -> tuple[str, ...] | None:
    """The served versions of a kind, none of which is among ours. None: they cannot be determined now, or one of ours
    is served after all."""
    served: list[str] = []
    is_outdated = False
    try:
        for version in _listed_versions(server, resource.group):
            try:
                served += [version] if _is_named(server, resource, version) else []
            except Refused as refusal:
                if refusal.status_code != HTTPStatus.NOT_FOUND:
                    raise
                is_outdated = True  # the list: API servers make it of APIServices, which follow the CRDs
    except (ApiServerError, *UNREADABLE):
        return None
    if is_outdated and not served:  # nor may the list have the new versions yet
        return None
    return tuple(served) if set(served).isdisjoint(resource.versions) else None


def _listed_versions(server: ApiServer, group: str) -> list[str]:
    """Empty if there is no such group. Raises ApiServerError, and UNREADABLE for what is no group."""
    try:
        return [each.version for each in _decode_group(server.request("GET", f"/apis/{group}")).versions]
    except Refused as refusal:
        if refusal.status_code != HTTPStatus.NOT_FOUND:
            raise
        return []


def _is_named(server: ApiServer, resource: Resource, version: str) -> bool:
    path = f"/apis/{resource.group}/{version}"
    try:
        served = _decode_served(server.request("GET", path))
    except UNREADABLE as error:
        raise Unreachable(f"GET {path}: not a list of resources: {error}") from error
    return any(each.name == resource.plural for each in served.resources)


def _is_served(server: ApiServer, path: str) -> bool:
    """Whether objects can be listed although discovery does not list their version.

    A server that has just started serves installed kinds a moment before discovery lists them; if they were taken for
    absent, all their objects would be lost. A missing permission tells nothing, since it is checked before anything is
    looked up.
    """
    try:
        server.request("GET", path, {"limit": "1"})
    except Refused as refusal:
        if refusal.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise
        return False
    return True


class Bell:
    """Rings when a CustomResourceDefinition comes, goes or changes; ends the wait for kinds that are not installed."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._rings = 0
        self._generations: dict[str, int] = {}
        self._changed_s: dict[str, float] = {}

    @property
    def rings(self) -> int:
        with self._turn:
            return self._rings

    def ring(self) -> None:
        with self._turn:
            self._rings += 1
            self._turn.notify_all()

    def note(self, definition: str, generation: int) -> None:
        """Record the current generation of a definition."""
        with self._turn:
            if self._generations.setdefault(definition, generation) != generation:
                self._generations[definition] = generation
                self._changed_s[definition] = time.monotonic()

    def changed_s(self, definition: str) -> float:
        """When the definition last changed (monotonic clock); -inf: not since it was first seen."""
        with self._turn:
            return self._changed_s.get(definition, -math.inf)

    def wait(self, heard: int, timeout_s: float) -> bool:
        """Wait until it has rung more than `heard` times; False: it has not within `timeout_s`."""
        with self._turn:
            return self._turn.wait_for(lambda: self._rings > heard, timeout_s)
