"""Which version of a kind the server serves, and the bell that rings when that may have changed."""

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
    """The path of the newest version of ours that is served, None when the kind is not installed.

    Raises ApiServerError while that cannot be known.
    """
    if not resource.is_optional:
        return f"{resource.path}/{resource.plural}"
    path = _served_path(server, resource)
    if path is None:
        _require_server(server)
        path = _served_path(server, resource)  # it may have come back only now
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
    """Whatever is in front of one that is away may say of every path that nothing is there: that takes no kind away."""
    try:
        server.request("GET", "/api/v1")  # every server has it
    except Refused as refusal:
        if refusal.status_code != HTTPStatus.FORBIDDEN:
            raise


def other_versions(server: ApiServer, resource: Resource) -> tuple[str, ...] | None:
    """In which a kind is served that is served in none of ours. None while that cannot be known, or is so no more."""
    path = f"/apis/{resource.group}"
    try:
        versions = [each.version for each in _decode_group(server.request("GET", path)).versions]
        served = tuple(version for version in versions if _is_named(server, resource, version))
    except Refused as refusal:
        return () if refusal.status_code == HTTPStatus.NOT_FOUND else None
    except (ApiServerError, *UNREADABLE):
        return None
    return served if set(served).isdisjoint(resource.versions) else None


def _is_named(server: ApiServer, resource: Resource, version: str) -> bool:
    path = f"/apis/{resource.group}/{version}"
    try:
        served = _decode_served(server.request("GET", path))
    except UNREADABLE as error:
        raise Unreachable(f"GET {path}: not a list of resources: {error}") from error
    return any(each.name == resource.plural for each in served.resources)


def _is_served(server: ApiServer, path: str) -> bool:
    """Whether objects can be listed whose version the server does not name.

    One that has just started serves the kinds that are installed a moment before it names them, and who took them for
    absent would lose all their objects. A missing right tells nothing: it is refused before anything is looked up.
    """
    try:
        server.request("GET", path, {"limit": "1"})
    except Refused as refusal:
        if refusal.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise
        return False
    return True


class Bell:
    """Rung when a CustomResourceDefinition comes, goes or changes; ends the wait of those whose kind is not there."""

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
        """What a definition is now, by its name."""
        with self._turn:
            if self._generations.setdefault(definition, generation) != generation:
                self._generations[definition] = generation
                self._changed_s[definition] = time.monotonic()

    def changed_s(self, definition: str) -> float:
        """When it last became another (monotonic clock); -inf: never since it was first seen."""
        with self._turn:
            return self._changed_s.get(definition, -math.inf)

    def wait(self, heard: int, timeout_s: float) -> bool:
        """Until it has rung more often than `heard`; False after `timeout_s`."""
        with self._turn:
            return self._turn.wait_for(lambda: self._rings > heard, timeout_s)
