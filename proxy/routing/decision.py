"""What is to be done with a request: forward it, redirect it, or answer it. Values only; the exchange acts on them."""

from typing import TypeAlias

import msgspec

from proxy.routing.edits import HeaderEdits
from proxy.routing.head import Field
from proxy.routing.listener import Listener
from proxy.routing.rule import AuthPlan, Backend, Rule
from proxy.routing.session import Session

GRPC_UNIMPLEMENTED = 12
GRPC_UNAVAILABLE = 14


class Inquiry(msgspec.Struct, frozen=True, gc=False):
    """Ask first whether the request is allowed."""

    plan: AuthPlan
    path: bytes
    """Path with query to ask for: what the request was matched by, before any rewrite."""


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send the request to a backend."""

    listener: Listener
    rule: Rule
    """Holds timeouts, retry policy and session persistence, and the names for logs and metrics."""
    backend: Backend
    path: bytes
    """Path with query to send; the very object of the head when nothing changed."""
    authority: bytes
    """Host to send; the very object of the head when nothing changed."""
    request_edits: HeaderEdits | None
    response_edits: HeaderEdits | None
    mirrors: tuple[Backend, ...]
    """Backends that get a copy of the request, with the same path, authority and edits, and whose answer is ignored."""
    session: Session | None
    """The session that the request belongs to, when the rule keeps sessions and the request named a valid one."""
    inquiry: Inquiry | None
    """Nothing may be sent to the backend before it was answered with consent."""


class Redirect(msgspec.Struct, frozen=True, gc=False):
    """Answer with a redirect."""

    listener: Listener
    rule: Rule
    status_code: int
    location: bytes
    response_edits: HeaderEdits | None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer at once, with this status code, fields and body."""

    status_code: int
    reason: str
    """Why. Here: bad_path, no_resource, no_listener, no_route, too_much_to_match, no_backend, no_address, fixed,
    preflight. The exchange answers with more, see `exchange.record`."""
    body: bytes = b""
    headers: tuple[Field, ...] = ()
    """Content-Type included where there is a body; Content-Length and Date are the codec's."""
    grpc_status: int = GRPC_UNAVAILABLE
    """For requests of content type application/grpc, which get 200 with this status in the trailers instead."""
    listener: Listener | None = None
    rule: Rule | None = None
    response_edits: HeaderEdits | None = None


Decision: TypeAlias = Forward | Redirect | Answer


def grpc_status_of(status_code: int) -> int:
    """What an HTTP status code is to a gRPC client (the mapping that gRPC's HTTP/2 transport publishes)."""
    return {400: 13, 401: 16, 403: 7, 404: GRPC_UNIMPLEMENTED, 504: 4}.get(
        status_code, GRPC_UNAVAILABLE if status_code in (429, 500, 502, 503) else 2
    )
