"""What to do with a request: forward it, redirect it, or answer it. Values only; the exchange acts on them."""

from typing import TypeAlias

import msgspec

from proxy.heads import Field
from proxy.routing.edits import HeaderEdits
from proxy.routing.listener import Listener
from proxy.routing.rule import AuthPlan, Backend, Rule
from proxy.routing.session import Session

GRPC_UNIMPLEMENTED = 12
GRPC_UNAVAILABLE = 14


class Inquiry(msgspec.Struct, frozen=True, gc=False):
    """External authorization: ask first whether the request is allowed."""

    plan: AuthPlan
    path: bytes
    """Path with query to ask for: `plan.prefix` and the normalised path, before any rewrite."""


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send the request to a backend."""

    listener: Listener
    rule: Rule
    """Holds timeouts, retry policy and session persistence, and the names for logs and metrics."""
    backend: Backend
    path: bytes
    """Path with query to send; the same object as in the head if nothing changed."""
    authority: bytes
    """Host to send; the same object as in the head if nothing changed."""
    request_edits: HeaderEdits | None
    response_edits: HeaderEdits | None
    mirrors: tuple[Backend, ...]
    """Backends that get a copy of the request, with the same path, authority and edits. Their answers are ignored."""
    session: Session | None
    """The request's session, if the rule has session persistence and the request carries a valid token."""
    inquiry: Inquiry | None
    """If set, nothing may be sent to the backend before the authorization server has allowed the request."""


class Redirect(msgspec.Struct, frozen=True, gc=False):
    """Answer with a redirect."""

    listener: Listener
    rule: Rule
    status_code: int
    location: bytes
    response_edits: HeaderEdits | None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer at once with this status code, header fields and body."""

    status_code: int
    reason: str
    """Why, for logs and metrics. From here: bad_path, no_resource, no_listener, no_route, too_much_to_match,
    no_backend, no_address, fixed, preflight. The exchange adds more, see `exchange.record`."""
    body: bytes = b""
    headers: tuple[Field, ...] = ()
    """Includes Content-Type if there is a body; `exchange.answers` adds Content-Length and Date."""
    grpc_status: int = GRPC_UNAVAILABLE
    """gRPC calls get this status in place of `status_code`, with HTTP status code 200. A preflight is none."""
    listener: Listener | None = None
    rule: Rule | None = None
    response_edits: HeaderEdits | None = None


Decision: TypeAlias = Forward | Redirect | Answer


def grpc_status_of(status_code: int) -> int:
    """The gRPC status for an HTTP status code, as in gRPC's http-grpc-status-mapping.md but for two: 500 is UNAVAILABLE
    here and 504 DEADLINE_EXCEEDED, which say more than UNKNOWN and UNAVAILABLE."""
    return {400: 13, 401: 16, 403: 7, 404: GRPC_UNIMPLEMENTED, 504: 4}.get(
        status_code, GRPC_UNAVAILABLE if status_code in (429, 500, 502, 503) else 2
    )
