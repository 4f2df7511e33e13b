"""Writes statuses to the API server: an object's whole status, if nobody has changed the object since we read it.

A conflict is a return value, since the object simply comes up again. `PUT` on the subresource is used because a merge
patch could not remove what is not wanted any more.
"""

from http import HTTPStatus

import msgspec

from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object
from tunnelgw.sources.kubernetes.failures import ApiServerError, Refused
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.writing import Outcome, Written

_TIMEOUT_S = 35.0
"""An admission webhook may take 30 s, and an abandoned write has to be repeated from the start."""


class _Update(msgspec.Struct, rename="camel", omit_defaults=True):
    class Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
        name: str
        resource_version: str
        uid: str
        namespace: str = ""

    api_version: str
    kind: str
    metadata: Metadata
    status: msgspec.Raw


class StatusWriter:
    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def write(self, kind: Kind, item: Object, status: bytes) -> Written:
        """`item`: the object as it was when `status` (JSON) was made for it."""
        resource = RESOURCES[kind]
        metadata = item.metadata
        place = f"/namespaces/{metadata.namespace}" if resource.is_namespaced else ""
        body = msgspec.json.encode(
            _Update(
                f"{resource.group}/{resource.versions[0]}",
                str(kind),
                _Update.Metadata(metadata.name, metadata.resource_version, metadata.uid, metadata.namespace),
                msgspec.Raw(status),
            )
        )
        path = f"{resource.path}{place}/{resource.plural}/{metadata.name}/status"
        try:
            self._server.request("PUT", path, body=body, timeout_s=_TIMEOUT_S)
        except Refused as refusal:
            outcome = _OUTCOMES.get(refusal.status_code, Outcome.FAILED)
            if outcome is Outcome.GONE and refusal.reason != _NOT_FOUND:
                outcome = Outcome.FAILED
            is_general = refusal.status_code in _GENERAL
            return Written(outcome, str(refusal), is_general, refusal.retry_after_s)
        except ApiServerError as error:
            return Written(Outcome.FAILED, str(error), is_general=True)
        return Written(Outcome.WRITTEN)


_NOT_FOUND = "NotFound"
"""The API's reason if an object does not exist. A 404 without it means that the path does not exist: one of several API
servers may not know a CRD yet.
"""
_OUTCOMES: dict[int, Outcome] = {
    HTTPStatus.CONFLICT: Outcome.CONFLICT,
    HTTPStatus.NOT_FOUND: Outcome.GONE,
    HTTPStatus.UNPROCESSABLE_ENTITY: Outcome.INVALID,
    HTTPStatus.BAD_REQUEST: Outcome.INVALID,
}
_GENERAL = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
